from typing import TypeAlias

import numpy as np
import numpy.typing as npt

F64: TypeAlias = npt.NDArray[np.float64]
U8: TypeAlias = npt.NDArray[np.uint8]
F32: TypeAlias = npt.NDArray[np.float32]
I64: TypeAlias = npt.NDArray[np.int64]
I8: TypeAlias = npt.NDArray[np.int8]

def expected_ratio(
    a: F64, ratio: F64, begin: I64, letter: I64, share: F64, least: float, out: F32
) -> None: ...
def start(open_b: F64, extend: float, row: F64) -> None: ...
def forward(
    scores: F32 | F64,
    first: int,
    open_a: F64,
    close_a: F64,
    open_b: F64,
    close_b: F64,
    extend: float,
    row: F64,
    trace: U8,
) -> None: ...
def backtrack(
    trace: U8, first: int, i: int, j: int, state: int, path: U8, place: int
) -> tuple[int, int, int]: ...
def sum_of_pairs(
    codes: I8,
    weights: F64,
    side: U8,
    crossing: bool,
    log_ratio: F64,
    gap_open: float,
    extend: float,
    centre: float,
) -> float: ...
