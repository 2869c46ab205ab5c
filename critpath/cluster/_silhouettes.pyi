from typing import TypeAlias

import numpy as np
import numpy.typing as npt

F64: TypeAlias = npt.NDArray[np.float64]
I64: TypeAlias = npt.NDArray[np.int64]

def block_size() -> int: ...
def sums_within(
    points: F64, weight: F64, begin: I64, blocks: I64, tile: F64, sums: F64
) -> None: ...
def sums_between(
    left: F64, points: F64, weight: F64, begin: I64, blocks: I64, tile: F64, sums: F64
) -> None: ...
def merged(
    left: F64,
    left_weight: F64,
    left_begin: I64,
    points: F64,
    weight: F64,
    counted: F64,
    begin: I64,
    blocks: I64,
    sizes: F64,
    own: F64,
    inside: F64,
    sums: F64,
    outside: F64,
    tile: F64,
    scratch: F64,
    left_sums: F64,
    silhouettes: F64,
) -> None: ...
