import numpy as np
import numpy.typing as npt

from critpath.model import F64, I64

def score(
    joining: F64,
    values: F64,
    left_mean: F64,
    left_squares: F64,
    left_pooled: F64,
    mean: F64,
    size: F64,
    left_size: F64,
    joined: npt.NDArray[np.uint8],
    starts: I64,
    freedom: float,
    prior: float,
    low_support: float,
    least: float,
    scores: F64,
) -> None: ...
