from typing import TypeAlias

import numpy as np
import numpy.typing as npt

F32: TypeAlias = npt.NDArray[np.float32]
I8: TypeAlias = npt.NDArray[np.int8]
I32: TypeAlias = npt.NDArray[np.int32]
I64: TypeAlias = npt.NDArray[np.int64]
U8: TypeAlias = npt.NDArray[np.uint8]

def consistency(
    offset: I64, begin: I64, column: I32, value: F32, between: I64, out: F32
) -> None: ...
def place_letters(rows: I8, members: I64, offset: I64, at: I32) -> None: ...
def column_scores(
    offset: I64,
    begin: I64,
    column: I32,
    value: I32,
    one: I64,
    two: I64,
    at: I32,
    out: I32,
) -> None: ...
def best_path(scores: I32, path: U8) -> tuple[int, int]: ...
def best_chain(
    offset: I64,
    begin: I64,
    column: I32,
    value: I32,
    a: I8,
    one: I64,
    two: I64,
    at: I32,
    m: int,
    path: U8,
) -> tuple[int, int]: ...
def paired_sum(offset: I64, begin: I64, column: I32, value: I32, one: int, at: I32) -> int: ...
