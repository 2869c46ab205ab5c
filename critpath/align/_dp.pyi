from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

F64: TypeAlias = npt.NDArray[np.float64]
F32: TypeAlias = npt.NDArray[np.float32]
I64: TypeAlias = npt.NDArray[np.int64]
I8: TypeAlias = npt.NDArray[np.int8]
U8: TypeAlias = npt.NDArray[np.uint8]
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
def summarise(rows: I8, share: F64, frequency: F64, gap_starts: F64, gap_ends: F64) -> None: ...
def expected_ratio(
    a: F64,
    ratio: F64,
    b: F32,
    least: float,
    low: I64,
    high: I64,
    out: F32,
) -> None: ...
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
