from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

U8: TypeAlias = npt.NDArray[np.uint8]
F32: TypeAlias = npt.NDArray[np.float32]
I64: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[Any]  # int32 or float64, all of one call alike

NO_INT: int

def to_grid(
    ratio_logs: F32, full_a: F32, full_b: F32, centre: float, grid: float, base: I64, last: I64
) -> None: ...
def start(opening_b: Numbers, extend: float, none: float, row: Numbers) -> None: ...
def forward(
    scores: Numbers,
    opening_a: Numbers,
    closing_a: Numbers,
    opening_b: Numbers,
    closing_b: Numbers,
    extend: float,
    none: float,
    first: int,
    low: I64,
    high: I64,
    row: Numbers,
    spare: Numbers,
    trace: U8,
) -> None: ...
def backtrack(
    trace: U8, first: int, i: int, j: int, state: int, low: I64, path: U8, place: int
) -> tuple[int, int, int]: ...
