"""Columns as Arrow arrays, from their buffers.

pyarrow's own converter looks whether it was given something of pandas, and imports pandas
for that wherever it is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa


def of_numbers(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return integers or truth values [n] as an array of a type.

    Raises
    ------
    pyarrow.ArrowInvalid
        If a value does not fit into the type.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow, and few commands need it

    own = pa.bool_() if values.dtype == np.bool_ else pa.from_numpy_dtype(values.dtype)
    data = np.packbits(values, bitorder="little") if own == pa.bool_() else values
    buffer = pa.py_buffer(np.ascontiguousarray(data))
    array = pa.Array.from_buffers(own, len(values), [None, buffer])
    return array if own == kind else array.cast(kind)


def of_texts(texts: Sequence[str]) -> pa.Array:
    """Return texts as an array of strings.

    Raises
    ------
    pyarrow.ArrowInvalid
        If they have 2 GiB and more in all.
    """
    import pyarrow as pa  # noqa: PLC0415 - as above

    encoded = [text.encode("utf-8") for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    offsets = of_numbers(ends, pa.int32()).buffers()[1]
    return pa.Array.from_buffers(
        pa.string(), len(texts), [None, offsets, pa.py_buffer(b"".join(encoded))]
    )


def numbers(array: pa.Array | pa.ChunkedArray) -> Any:
    """Return an array of integers or truth values as numpy's [n], read-only.

    One with missing values comes as pyarrow gives it, to be refused by its type.
    """
    import pyarrow as pa  # noqa: PLC0415 - as above

    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    if array.null_count:
        return array.to_numpy(zero_copy_only=False)
    first, count, data = array.offset, len(array), array.buffers()[1] or b""
    if array.type == pa.bool_():
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        found = bits[first : first + count].astype(np.bool_)
    else:
        dtype = np.dtype(str(array.type))
        found = np.frombuffer(data, dtype, count, first * dtype.itemsize)
    found.flags.writeable = False
    return found
