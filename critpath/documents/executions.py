"""The runs of a comparison's document, as entries and as the columns that they come from."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from critpath.documents.base import Maybe, Part, SetName, doc
from critpath.documents.exploration import RequestEntry

if TYPE_CHECKING:
    from numpy.typing import NDArray

SETS: Final[tuple[SetName, ...]] = ("normal", "sample")

# What gives a column of some positions: consecutive ones, or any.
Cells = Callable[[slice | list[int]], Iterable[Any]]
_AT_ONCE: Final = 1 << 16  # of very many a list of each column would be 40 MB a million


class ExecutionEntry(Part):
    """One run, and what was found of it."""

    id: Annotated[str, doc("value of its key, else TID@BEGIN")]
    set: Annotated[SetName, doc("which set it is of")]
    position: Annotated[int, doc("its place in its set")]
    source: Annotated[int, doc("which recording it is of, a place in the set's sources")]
    begin: Annotated[int, doc("when it began, in ns of the trace's clock")]
    end: Annotated[int, doc("when it ended")]
    tid: Annotated[int, doc("its thread")]
    comm: Annotated[str, doc("name of the thread")]
    label: Annotated[str, doc("what kind it is, as the trace says; '' if it does not")]
    cluster: Annotated[int | None, doc("its cluster, null where there are none")]
    weak: Annotated[bool, doc("it was noise and joined to the cluster")]
    pair: Annotated[int | None, doc("the normal cluster it is compared with")]
    anomalous: Annotated[bool, doc("it stands out")]
    excess: Annotated[
        int | None,
        doc(
            "duration less its normal cluster's mean (ns); if in turns, "
            "without CPU waits for strangers"
        ),
    ]
    score: Annotated[Maybe, doc("how far it stands out")]
    p_value: Annotated[Maybe, doc("probability of a run before to stand out as far")]
    paper: Annotated[bool, doc("it stands out by the paper's rule")]
    symbol: Annotated[str | None, doc("the symbol it stands out most in, or total")]
    lossy: Annotated[bool, doc("the tracer lost events while it ran")]
    posterior: Annotated[
        Maybe, doc("probability of having the change, null where nothing is slower")
    ] = None
    request: Annotated[RequestEntry | None, doc("of a request found without marks")] = None


class ExecutionTable(Sequence[ExecutionEntry]):
    """The runs of a document, made as entries when somebody asks for one.

    A million of them take a gigabyte, and the text of an answer shows ten.

    Parameters
    ----------
    sizes : mapping
        How many runs each set has.
    columns : mapping
        Of each set what gives every column of `ExecutionEntry`.
    """

    def __init__(
        self, sizes: Mapping[SetName, int], columns: Mapping[SetName, Mapping[str, Cells]]
    ) -> None:
        self._sizes, self._columns = sizes, columns
        self._known: dict[tuple[SetName, str], NDArray[Any]] = {}
        self._entries: list[ExecutionEntry] | None = None

    def rows(
        self, which: SetName, names: Sequence[str], of: list[int] | None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield some columns of runs of a set: of some positions, or of all."""
        if self._entries is not None:
            return rows_of(self._entries, which, names, of)
        return self._cells(which, names, of)

    def column(self, which: SetName, name: str) -> NDArray[Any]:
        """Return a column of all runs of a set."""
        if self._entries is not None:
            return column_of(self._entries, which, name)
        if (which, name) not in self._known:
            cells = self._columns[which][name](slice(0, self._sizes[which]))
            self._known[which, name] = _array([*cells], name)
        return self._known[which, name]

    def _cells(
        self, which: SetName, names: Sequence[str], of: list[int] | None
    ) -> Iterator[tuple[Any, ...]]:
        many = self._sizes[which]
        every = (slice(at, min(at + _AT_ONCE, many)) for at in range(0, many, _AT_ONCE))
        for some in every if of is None else [of]:
            yield from zip(*(self._columns[which][name](some) for name in names), strict=True)

    def marked(self) -> list[ExecutionEntry]:
        """Return the runs that stand out."""
        if self._entries is not None:
            return [one for one in self._entries if one.anomalous]
        return [
            one
            for which in SETS
            for one in self._make(
                which,
                self.column(which, "anomalous").nonzero()[0].tolist(),
            )
        ]

    def __len__(self) -> int:
        return len(self._every)

    def __iter__(self) -> Iterator[ExecutionEntry]:
        return iter(self._every)

    def __getitem__(self, place: Any) -> Any:
        return self._every[place]

    @property
    def _every(self) -> list[ExecutionEntry]:
        if self._entries is None:
            self._entries = [one for which in SETS for one in self._make(which, None)]
        return self._entries

    def _make(self, which: SetName, positions: list[int] | None) -> Iterator[ExecutionEntry]:
        cells = self._cells(which, ExecutionEntry.__struct_fields__, positions)
        return itertools.starmap(ExecutionEntry, cells)


def rows_of(
    executions: Sequence[ExecutionEntry],
    which: SetName,
    names: Sequence[str],
    of: Collection[int] | None = None,
) -> Iterator[tuple[Any, ...]]:
    """Yield some keys of runs of a set, without making entries for it."""
    if isinstance(executions, ExecutionTable):
        yield from executions.rows(which, names, None if of is None else sorted(of))
        return
    for one in executions:
        if one.set == which and (of is None or one.position in of):
            yield tuple(getattr(one, name) for name in names)


def column_of(executions: Sequence[ExecutionEntry], which: SetName, name: str) -> NDArray[Any]:
    """Return a column of all runs of a set: of texts and of what may be None, the objects."""
    if isinstance(executions, ExecutionTable):
        return executions.column(which, name)
    return _array([getattr(one, name) for one in executions if one.set == which], name)


def _array(cells: list[Any], name: str) -> NDArray[Any]:
    import numpy as np  # noqa: PLC0415 - start-up time: documents are read without it

    try:
        return np.array(cells, _KINDS.get(name, object))
    except OverflowError:  # another's file may have times of any size
        return np.array(cells, object)


_KINDS: Final = {
    **dict.fromkeys(("position", "begin", "end"), "int64"),
    **dict.fromkeys(("anomalous", "lossy"), "bool"),
}


def marked_of(executions: Sequence[ExecutionEntry]) -> list[ExecutionEntry]:
    """Return the runs that stand out."""
    if isinstance(executions, ExecutionTable):
        return executions.marked()
    return [one for one in executions if one.anomalous]
