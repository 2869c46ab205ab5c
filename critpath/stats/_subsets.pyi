import numpy as np
import numpy.typing as npt

def draw(seeds: npt.NDArray[np.uint64], k: int, marked: npt.NDArray[np.uint8]) -> None: ...
