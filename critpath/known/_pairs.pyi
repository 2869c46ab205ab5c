import numpy as np
import numpy.typing as npt

def read_pairs(text: bytes, terms: int, most: int, pairs: npt.NDArray[np.int64]) -> int: ...
