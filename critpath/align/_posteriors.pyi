from typing import TypeAlias

import numpy as np
import numpy.typing as npt

F32: TypeAlias = npt.NDArray[np.float32]
F64: TypeAlias = npt.NDArray[np.float64]
I32: TypeAlias = npt.NDArray[np.int32]
I64: TypeAlias = npt.NDArray[np.int64]
U8: TypeAlias = npt.NDArray[np.uint8]

def pair_posteriors(
    letters: U8,
    offset: I64,
    ratio: F32,
    gaps: F64,
    threshold: float,
    margin: int,
    star: bool,
    most: int,
    cells: int,
    wide_cells: int,
) -> tuple[I64, I32, F32] | None: ...
