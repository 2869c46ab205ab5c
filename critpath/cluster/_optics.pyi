from typing import TypeAlias

import numpy as np
import numpy.typing as npt

F64: TypeAlias = npt.NDArray[np.float64]
I64: TypeAlias = npt.NDArray[np.int64]

def core_distances(columns: F64, weight: I64, min_samples: int, core: F64) -> None: ...
def visit(
    columns: F64,
    core: F64,
    begin: I64,
    rows: I64,
    ordering: I64,
    reachability: F64,
    predecessor: I64,
) -> None: ...
