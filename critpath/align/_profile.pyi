from typing import TypeAlias

import numpy as np
import numpy.typing as npt

F64: TypeAlias = npt.NDArray[np.float64]
U8: TypeAlias = npt.NDArray[np.uint8]
F32: TypeAlias = npt.NDArray[np.float32]
I64: TypeAlias = npt.NDArray[np.int64]
I8: TypeAlias = npt.NDArray[np.int8]

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
