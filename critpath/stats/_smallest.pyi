import numpy as np
import numpy.typing as npt

def mark(keys: npt.NDArray[np.float32], k: int, marked: npt.NDArray[np.uint8]) -> None: ...
