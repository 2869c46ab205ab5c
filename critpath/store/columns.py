"""The columns of extracted paths, and what a file says of itself beside them.

One row per execution, its segments as a list of structures, so that pandas, polars and
DuckDB read it as it stands (``SELECT id, unnest(segments, recursive := true) FROM
'paths.parquet'``).  What is not per execution is JSON in the file's metadata, under
``critpath``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import numpy.typing as npt

from critpath.model import Executions, Loss
from critpath.model.details import DETAIL_NUMBERS, DETAIL_TEXTS
from critpath.model.requests import FACT_NUMBERS, FACT_TEXTS
from critpath.model.table import TEXTS
from critpath.model.texts import Texts, pack_texts
from critpath.schema.notes import LEVELS, Note, Remark, Saved
from critpath.text.notes import KEPT, word_all
from critpath.text.recognized import identify_all
from critpath.units import utf8

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = "critpath/paths/2"
FIRST: Final = "critpath/paths/1"  # whose segments have a text for what qualifies their state
KEY: Final = b"critpath"
# Executions' texts, and all of their columns.
NAMES: Final = tuple(n for n, (_, kind) in Executions.declared().items() if kind == TEXTS)
EXECUTION: Final = {
    **{name: "string" if name in NAMES else "int64" for name in Executions.declared()},
    "session": "int64",
    "lossy": "bool",
}
# Besides, where all executions are requests of servers; a file may be without.
REQUEST: Final = {
    **dict.fromkeys(FACT_TEXTS, "string"),
    **dict.fromkeys(FACT_NUMBERS, "int64"),
}
_WHAT: Final = {"begin": "int64", "end": "int64", "state": "string"}
DETAIL: Final = {
    **dict.fromkeys(DETAIL_TEXTS, "string"),
    **dict.fromkeys(DETAIL_NUMBERS, "int64"),
}
# Of details and segments, in the order in which files came to have them.
LATER: Final = (
    *("kin", "place", "loop", "request", "asks", "under_way"),
    *("connections", "held", "before", "others"),
)
_WHOSE: Final = {
    "comm": "string",
    "tid": "int64",
    "host": "int64",
    "cpu": "int32",
    "lossy": "bool",
}
SEGMENT: Final = {**_WHAT, "detail": "int32", **_WHOSE}
FIRST_SEGMENT: Final = {**_WHAT, "detail": "string", **_WHOSE}
# Besides; older files are without.
MORE_OF_SEGMENT: Final = {"elsewhere_idle": "int64"}
# Of requests besides: what the thread did beneath QUEUED and SHARED.
REQUEST_SEGMENT: Final = {"beneath": "string"}
# Besides, of requests and of several hosts: how surely time and whose it was are known.
SURE_SEGMENT: Final = {"uncertainty": "int64", "confidence": "double", "others": "bool"}
# Besides, where a recording has stacks: with which a thread slept, ran or was woken.
STACK_SEGMENT: Final = {"stack": "string", "waker_stack": "string"}
CLIENT: Final = "client"  # of requests; older files are without
OLDER: Final = 5  # how many there are of any file's columns
SEGMENTS: Final = "segments"
DETAILS: Final = "details"  # of an execution, each once: `detail` of a segment is a place there
# Segments' texts: few words, often repeated.
WORDS: Final = ("state", "detail", "comm", *REQUEST_SEGMENT, *STACK_SEGMENT)
# What is worth a dictionary: times and ids hardly come twice.
REPEATED: Final = (
    *("tid", "host", "comm", "label", "session", *REQUEST),
    *(
        f"{SEGMENTS}.list.element.{name}"
        for name in (
            *(*SEGMENT, *MORE_OF_SEGMENT, *REQUEST_SEGMENT, *SURE_SEGMENT, *STACK_SEGMENT),
        )
        if name not in {"begin", "end", "lossy", "others"}
    ),
    *(f"{DETAILS}.list.element.{name}" for name in DETAIL),
)


def arrow_schema(
    *,
    requests: bool = False,
    older: int = 0,
    coded: bool = False,
    stacks: bool = False,
    first: bool = False,
    lacking: int = 0,
) -> pa.Schema:
    """Return the columns, with which any file of this format must agree.

    Parameters
    ----------
    requests : bool
        With those of requests, and of several hosts.
    older : int
        Below `OLDER`: how much later files of the first format have more.
    coded : bool
        Segments' texts are dictionaries in memory; in the file they are the same.
    stacks : bool
        With those of stacks.
    first : bool
        Of the first format.
    lacking : int
        How many of the last of `LATER` one of the second lacks that is older.
    """
    import pyarrow as pa  # noqa: PLC0415 - 0.1 s that only those who read or write paths need

    words = pa.dictionary(pa.int32(), pa.string())

    def make(columns: Mapping[str, str]) -> list[pa.Field]:
        types = {name: pa.type_for_alias(alias) for name, alias in columns.items()}
        return [pa.field(name, kind, nullable=False) for name, kind in types.items()]

    besides = [MORE_OF_SEGMENT, *([REQUEST_SEGMENT, SURE_SEGMENT] if requests else [])]
    columns = EXECUTION | REQUEST if requests else EXECUTION
    if requests and older:
        columns = {name: kind for name, kind in columns.items() if name != CLIENT}
        older -= 1
    kept = [*besides[: max(len(besides) - older, 0)], *([STACK_SEGMENT] if stacks else [])]

    def list_of(name: str, columns: Mapping[str, str]) -> pa.Field:
        made = make(columns)
        if coded:
            made = [f.with_type(words) if f.type == pa.string() else f for f in made]
        element = pa.field("element", pa.struct(made), nullable=False)
        return pa.field(name, pa.list_(element), nullable=False)

    segment = {**(FIRST_SEGMENT if first else SEGMENT)}
    without = LATER if first else LATER[len(LATER) - lacking :]
    segment |= {k: kind for each in kept for k, kind in each.items() if k not in without}
    detail = {name: kind for name, kind in DETAIL.items() if name not in without}
    details = [] if first else [list_of(DETAILS, detail)]
    return pa.schema([*make(columns), *details, list_of(SEGMENTS, segment)])


_LONGEST: Final = 100_000  # letters of a text
_NUMBER: Final = 2**62  # no difference of two below this overflows


def _is_number(value: object) -> bool:
    return type(value) is int and -_NUMBER <= value < _NUMBER


def is_texts(value: object) -> bool:
    """Tell whether a value of JSON is a list of texts."""
    return isinstance(value, list) and all(isinstance(v, str) and len(v) <= _LONGEST for v in value)


def is_count(value: object) -> bool:
    """Tell whether a value of JSON is a number of things."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_environments(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(e, dict) and all(isinstance(v, str | bool) or _is_number(v) for v in e.values())
        for e in value
    )


def _is_losses(value: object) -> bool:
    types = {f.name: str if f.name == "reason" else int for f in fields(Loss)}
    return isinstance(value, list) and all(
        isinstance(loss, dict)
        and loss.keys() == types.keys()
        and all(
            type(loss[name]) is kind and (kind is str or _is_number(loss[name]))
            for name, kind in types.items()
        )
        for loss in value
    )


# What the metadata holds, and how it is checked.
ABOUT: Final[Mapping[str, Callable[[object], bool]]] = {
    "specification": lambda value: isinstance(value, str),
    "sources": is_texts,
    "losses": _is_losses,
    "environment": _is_environments,
    "events": is_count,
    "warnings": is_texts,
    "incomplete": is_count,
    "notes": is_texts,
    "strings": is_texts,
}


# Notes are saved as they are worded, with their ids beside.

_IDS: Final = {"warnings": "warning_ids", "notes": "note_ids"}


def save_remarks(name: str, remarks: Sequence[Remark]) -> dict[str, list[str]]:
    """Return notes, under the name that they are saved under, and their ids if they have any."""
    said = word_all(remarks, KEPT)
    if not any(isinstance(remark, Note) for remark in remarks):
        return {name: said}
    return {name: said, _IDS[name]: identify_all(remarks)}


def read_remarks(name: str, saved: Mapping[str, object]) -> tuple[Remark, ...]:
    """Return the notes of a file, of which earlier versions have the sentences alone."""
    said, ids = cast("list[str]", saved[name]), saved.get(_IDS[name])
    if not isinstance(ids, list) or len(ids) != len(said):
        return tuple(said)
    return tuple(
        Saved(known, text) if known in LEVELS else text
        for known, text in zip(map(str, ids), said, strict=True)
    )


# Columns as Arrow arrays, from their buffers.


def of_numbers(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return integers or truth values [n] as an array of a type."""
    import pyarrow as pa  # noqa: PLC0415 - slow, and few commands need it

    if kind == pa.bool_():
        data: npt.NDArray[Any] = np.packbits(values, bitorder="little")
    else:
        # Not by pyarrow's cast, whose module takes .04 s to load.
        data = np.ascontiguousarray(values, kind.to_pandas_dtype())
        if data.dtype != values.dtype and (data != values).any():
            raise pa.ArrowInvalid("a number that its column has no room for")
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)])


def of_texts(texts: Sequence[str]) -> pa.Array:
    """Return texts as an array of strings."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    data, start = texts.gather() if isinstance(texts, Texts) else pack_texts(texts)
    if data.max(initial=0) > 127:  # few are, and a trace's may be no UTF-8
        data, start = pack_texts([*map(utf8, texts)])
    offsets = of_numbers(start, pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), len(texts), [None, offsets, pa.py_buffer(data)])


def texts_of(array: pa.Array) -> Texts:
    """Return an array of strings as a column, equal ones once; it is as large as the array's words.

    Raises
    ------
    ValueError
        If some are missing, or no UTF-8.
    """
    coded = array.dictionary_encode()
    words = coded.dictionary
    words.validate(full=True)
    if coded.null_count or words.null_count:
        raise ValueError("a text is missing")
    offsets, data = words.buffers()[1:]
    start = np.frombuffer(offsets or bytes(4), np.int32)[words.offset :][: len(words) + 1]
    texts = np.frombuffer(data or b"", np.uint8)[start[0] : start[-1]].copy()
    return Texts(texts, (start - start[0]).astype(np.uint32), numbers(coded.indices))


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
