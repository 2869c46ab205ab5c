from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from critpath.model import F64, I32, I64

U64: TypeAlias = npt.NDArray[np.uint64]

def common(bits: U64, selected: U64, found: I64) -> None: ...
def common_of(bits: U64, first: int, second: int) -> int: ...
def largest_differences(
    bits: U64,
    sizes: I64,
    scale: F64,
    domain: I64,
    domains: U64,
    among: I64,
    twice: U64,
    twice_at: I64,
    words_at: I64,
    shifts: I64,
    best: int,
    fewest: int,
    pairs: I32,
    largest: F64,
) -> None: ...
