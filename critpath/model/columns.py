"""Columns of tables: their types, and how a table checks and freezes them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
U8 = npt.NDArray[np.uint8]
F64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]


def freeze_columns(table: object, length: int, **columns: type[np.generic]) -> None:
    """Check that columns have one length and dtype; replace them by read-only views.

    Parameters
    ----------
    table : object
        The frozen dataclass under construction.
    length : int
        Rows every column must have; -1 leaves the length free.
    **columns : numpy scalar type
        Column name and its dtype.

    Raises
    ------
    ValueError
        If a column has another length or cannot be cast without loss of kind.
    """
    for name, dtype in columns.items():
        column = np.asarray(getattr(table, name))
        if column.dtype != dtype:
            column = column.astype(dtype, casting="same_kind")
        # Native code, and Arrow, take columns as they lie in memory.
        column = np.ascontiguousarray(column)
        if length >= 0 and len(column) != length:
            raise ValueError(f"{type(table).__name__}.{name}: {len(column)} rows, not {length}")
        column = column.view()
        column.flags.writeable = False
        object.__setattr__(table, name, column)
