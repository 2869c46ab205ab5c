from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_I64: TypeAlias = npt.NDArray[np.int64]
_I32: TypeAlias = npt.NDArray[np.int32]

def run_starts(ts: _I64) -> _I64: ...
def merge(ts: _I64, place: _I64, widths: _I64, starts: _I64) -> tuple[_I64, _I32, _I32, _I64]: ...
