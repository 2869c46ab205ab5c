"""One critical path as plain data (``critpath path --format json``)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec import Struct

from critpath.model import F64, I64, RUNNING, CriticalPaths, Loss, State
from critpath.model.details import word_detail
from critpath.model.stacks import Stack, location_of
from critpath.model.vectors import number_rows
from critpath.report.document._segments import join_segments, sum_paths

if TYPE_CHECKING:
    from critpath.documents import PathDocument
    from critpath.model import PathSet, Symbol, VectorTable

PATH_FORMAT: Final = "critpath/path/1"

_UNEXPLAINED: Final = frozenset({State.WAIT_UNEXPLAINED.name, State.UNKNOWN.name})


def path_document(
    paths: CriticalPaths,
    index: int,
    *,
    tid: int,
    comm: str,
    losses: Sequence[Loss],
    execution: str = "",
    label: str = "",
    uncertainty: int | None = 0,
    confidence: float = 1.0,
) -> PathDocument:
    """Build the document of one critical path.

    Parameters
    ----------
    paths : CriticalPaths
    index : int
        Which of the paths.
    tid, comm : int, str
        The subject: the thread whose execution the path explains.
    losses : sequence of Loss
        Losses of the recording; those that overlap the path's window count.
    execution, label : str
        The execution's id and what kind it is.
    uncertainty : int or None
        By how much times between the hosts that it crosses may be wrong (ns); None: a clock is
        not known.
    confidence : float
        How probable it is of its least sure segment that it is of this execution.

    Returns
    -------
    PathDocument
        Times in ns, ``totals`` only of states that occur, ``unexplained`` the ns in
        WAIT_UNEXPLAINED and UNKNOWN.
    """
    import msgspec  # noqa: PLC0415 - start-up time: `write_paths` does without

    from critpath.documents import FrameEntry, PathDocument, PathSegment  # noqa: PLC0415 - as above

    named = {"execution": execution, "label": label}
    rows = slice(int(paths.start[index]), int(paths.start[index + 1]))
    [seen], [spent], *_ = _sum_paths(paths.take(np.array([index])))
    sums = seen, spent, uncertainty, confidence
    frame = _frame((int(tid), comm), named, losses, _window(paths, index), sums)
    document = msgspec.convert(frame, PathDocument)
    document.segments = [
        PathSegment(
            begin=begin,
            end=end,
            tid=tid_,
            comm=paths.strings[comm_],
            state=State(state).name,
            detail=word_detail(paths.details[detail]),
            beneath=_beneath(beneath),
            uncertainty_ns=bound if bound >= 0 else None,
            confidence=_round(sure),
            others=theirs,
            **msgspec.convert(_named_stacks(paths.stacks, *stacks), dict[str, list[FrameEntry]]),
        )
        for begin, end, tid_, comm_, state, detail, beneath, bound, sure, theirs, *stacks in zip(
            paths.begin[rows].tolist(),
            paths.end[rows].tolist(),
            paths.tid[rows].tolist(),
            paths.comm[rows].tolist(),
            paths.state[rows].tolist(),
            paths.detail[rows].tolist(),
            paths.beneath[rows].tolist(),
            paths.uncertainty[rows].tolist(),
            paths.confidence[rows].tolist(),
            paths.others[rows].tolist(),
            paths.stack[rows].tolist(),
            paths.waker_stack[rows].tolist(),
            strict=True,
        )
    ]
    return document


def write_paths(paths: PathSet) -> Iterator[bytes | bytearray]:
    """Write the documents of all paths of a set, a line of JSON each, in pieces.

    The same text as `json.dumps` of `path_document`, several times faster: a path has
    100,000 segments of a few kinds, and only their times differ within a kind.
    """
    for some in paths.chunks():
        kinds: dict[tuple[Any, ...], bytes] = {}
        start = some.paths.start
        first = 0
        while first < len(some):
            if len(kinds) > _KEPT:  # where every execution is of a thread of its own
                kinds.clear()
            most = int(np.searchsorted(start, start[first] + _TOGETHER, "right")) - 1
            last = max(first + 1, min(most, len(some)))
            yield from _write_documents(some, range(first, last), kinds)
            first = last


def _write_documents(
    of: PathSet, some: range, kinds: dict[tuple[Any, ...], bytes]
) -> Iterator[bytes | bytearray]:
    """Write the documents of consecutive paths; what is known of kinds of segments is kept."""
    executions, taken = of.executions, of.paths.take(np.arange(some.start, some.stop))
    start, begin, end = taken.start, taken.begin, taken.end
    sums = _sum_paths(taken)
    kind, texts = _number_kinds(taken, kinds)
    bounds, joined = np.cumsum([0, *map(len, texts)]), b"".join(texts)
    for at, index in enumerate(some):
        first, last = int(start[at]), int(start[at + 1])
        subject = int(executions.tid[index]), executions.comm[index]
        named = {"execution": executions.id[index], "label": executions.label[index]}
        seen, spent, bound, least = (column[at] for column in sums)
        found = seen, spent, int(bound) if bound >= 0 else None, float(least)
        document = _frame(subject, named, of.losses, _window(taken, at), found)
        before, after = escape_more(json.dumps(document)).split('"segments": []', 1)
        yield f'{before}"segments": ['.encode("ascii")
        for low in range(first, last, _AT_ONCE):
            rows = slice(low, min(low + _AT_ONCE, last))
            if low > first:
                yield b", "
            yield join_segments(begin[rows], end[rows], kind[rows], joined, bounds)
        yield f"]{after}\n".encode("ascii")


def _sum_paths(paths: CriticalPaths) -> tuple[I64, I64, I64, F64]:
    columns = paths.start, paths.begin, paths.end, paths.state, paths.uncertainty, paths.confidence
    return sum_paths(*columns, paths.others.view(np.uint8), len(State))


def _window(paths: CriticalPaths, index: int) -> tuple[int, int]:
    first, last = int(paths.start[index]), int(paths.start[index + 1])
    return (int(paths.begin[first]), int(paths.end[last - 1])) if last > first else (0, 0)


def escape_more(text: str) -> str:
    """Escape in JSON what it need not, but a terminal or a CI system's log reader acts on.

    Both can only stand in a string: DEL, and ``##[``, which GitHub's runner looks for.
    """
    return text.replace("\x7f", "\\u007f").replace("##[", "#\\u0023[")


def _round(probability: float) -> float:
    return round(probability, 4)


# technical: segments in a piece of text, which stays in the processor's cache, and of paths that
# are written together.
_AT_ONCE: Final = 2048
_TOGETHER: Final = 1 << 16
_KEPT: Final = 20_000  # kinds of segments, some 300 bytes each
_FRAME: Final = ("function", "file", "line", "module")


def _named_stacks(stacks: Sequence[Stack], stack: int, waker: int) -> dict[str, Any]:
    """Return the frames of a segment's stacks, of those that are known."""
    return {
        name: [dict(zip(_FRAME, frame, strict=False)) for frame in stacks[code]]
        for name, code in (("stack", stack), ("waker_stack", waker))
        if code >= 0
    }


def _beneath(state: int) -> str:
    return State(state).name if state else ""


def _number_kinds(
    paths: CriticalPaths, known: dict[tuple[Any, ...], bytes]
) -> tuple[I64, list[bytes]]:
    """Return of which kind each segment is, and the JSON of all but a kind's times.

    What is known of a kind of the same paths is kept.
    """
    kinds = [getattr(paths, name) for name in _KIND]
    first, kind = number_rows(kinds, len(paths.begin))
    each = zip(*(column[first].tolist() for column in kinds), strict=True)
    texts = []
    for one in each:
        if one not in known:
            known[one] = _kind_json(paths, *one)
        texts.append(known[one])
    return kind, texts


_KIND: Final = (
    *("tid", "comm", "state", "detail", "beneath"),
    *("uncertainty", "confidence", "others", "stack", "waker_stack"),
)


def _kind_json(
    paths: CriticalPaths,
    tid: int,
    comm: int,
    state: int,
    detail: int,
    *rest: Any,
) -> bytes:
    beneath, bound, sure, others, stack, waker = rest
    named: dict[str, Any] = {
        "tid": tid,
        "comm": paths.strings[comm],
        "state": State(state).name,
        "detail": word_detail(paths.details[detail]),
        "beneath": _beneath(beneath),
        "uncertainty_ns": bound if bound >= 0 else None,
        "confidence": _round(sure),
        "others": bool(others),
    }
    named |= _named_stacks(paths.stacks, stack, waker)
    return escape_more(json.dumps(named))[1:].encode("ascii")


def _frame(
    subject: tuple[int, str],
    named: dict[str, str],
    losses: Sequence[Loss],
    window: tuple[int, int],
    sums: tuple[I64, I64, int | None, float],
) -> dict[str, Any]:
    """Return the document with no segments in it."""
    (tid, comm), (begin, end), (seen, spent, uncertainty, confidence) = subject, window, sums
    totals = {member.name: int(spent[member]) for member in State if seen[member]}
    touching = [loss for loss in losses if loss.begin <= end and loss.end >= begin]
    return {
        "format": PATH_FORMAT,
        "subject": {"tid": tid, "comm": comm},
        **named,
        "begin": begin,
        "end": end,
        "segments": [],
        "totals": totals,
        "unexplained": sum(ns for state, ns in totals.items() if state in _UNEXPLAINED),
        "uncertainty_ns": uncertainty,
        "confidence": _round(confidence),
        "loss": {
            "events": sum(int(loss.events) for loss in touching),
            "packets": sum(int(loss.packets) for loss in touching),
        },
    }


class PlaceSummary(Struct, frozen=True):
    """What the executions of one label spend in one state on one kind of thread.

    Attributes
    ----------
    symbol : Symbol
    time, count : float
        A mean execution's nanoseconds and segments.
    share : float
        Of the label's time.
    executions : int
        That have any.
    """

    symbol: Symbol
    time: float
    count: float
    share: float
    executions: int


class LabelSummary(Struct, frozen=True):
    """Where the executions of one label spend their time, the longest first.

    Attributes
    ----------
    label : str
    executions, lossy : int
        All of them, and those that overlap a loss.
    median, longest : float
        Duration (ns).
    places : tuple of PlaceSummary
    beneath : tuple of (State, float)
        Of requests, what their threads did while these were QUEUED or SHARED: shares of that
        time.
    """

    label: str
    executions: int
    lossy: int
    median: float
    longest: float
    places: tuple[PlaceSummary, ...]
    beneath: tuple[tuple[State, float], ...] = ()


class CodeSummary(Struct, frozen=True):
    """What executions spend in one place of the code.

    Attributes
    ----------
    location : str
        ``function (file:line)``; "" for what is in no known place.
    time, running : float
        Of a mean execution (ns): all of it, and what its threads ran meanwhile.
    share : float
        Of all executions' time.
    count : float
        Segments of a mean execution.
    executions : int
        That have any.
    """

    location: str
    time: float
    running: float
    share: float
    count: float
    executions: int


def summarize_code(paths: PathSet, most: int) -> tuple[list[CodeSummary], CodeSummary | None]:
    """Return the places in the code where most of the time goes, and what the others have."""
    names: dict[str, int] = {"": 0}
    sums = [np.zeros((1, 3), np.int64)]
    seen = [np.zeros(0, np.int64)]
    first = 0
    for chunk in paths.paths.chunks():
        table = np.zeros(len(chunk.stacks) + 1, np.int64)  # the last is of those without
        for code in np.unique(chunk.stack[chunk.stack >= 0]).tolist():
            table[code] = names.setdefault(location_of(chunk.stacks[code]), len(names))
        of, time = table[chunk.stack], chunk.duration
        found = np.zeros((len(names), 3), np.int64)
        runs = np.isin(chunk.state, [int(state) for state in RUNNING])
        for column, values in enumerate((time, time * runs, np.ones_like(time))):
            np.add.at(found[:, column], of, values)
        sums.append(found)
        seen.append(np.unique((chunk.path + first) * 2**32 + of) % 2**32)
        first += len(chunk)
    total = np.zeros((len(names), 3), np.int64)
    for found in sums:
        total[: len(found)] += found
    executions = np.bincount(np.concatenate(seen), minlength=len(names))
    size, whole = max(len(paths), 1), max(int(total[:, 0].sum()), 1)

    def summary(location: str, row: I64, executions: int) -> CodeSummary:
        time, running, count = row.tolist()
        return CodeSummary(
            location, time / size, running / size, time / whole, count / size, executions
        )

    located = list(names)
    order = np.argsort(-total[:, 0], kind="stable").tolist()
    order = [at for at in order if total[at, 2]]
    rows = [summary(located[at], total[at], int(executions[at])) for at in order[:most]]
    rest = total[order[most:]].sum(axis=0)
    return rows, summary("", rest, len(order) - most) if len(order) > most else None


def summarize_paths(paths: PathSet, vectors: VectorTable) -> list[LabelSummary]:
    """Return where the executions of each label spend their time, the label with most first.

    Parameters
    ----------
    paths : PathSet
    vectors : VectorTable
        Of these paths, by state and thread.
    """
    labels = np.array(paths.executions.label, object)
    total = vectors.total
    beneath = paths.sum_beneath()
    found = []
    for label in sorted(set(labels.tolist())):
        mine = labels == label
        whole, size = max(int(total[mine].sum()), 1), int(mine.sum())
        durations, counts = vectors.durations[mine], vectors.counts[mine]
        time = durations.sum(axis=0)
        places = tuple(
            PlaceSummary(
                vectors.symbols[i],
                float(time[i] / size),
                float(counts[:, i].sum() / size),
                float(time[i] / whole),
                int((counts[:, i] > 0).sum()),
            )
            for i in np.argsort(-time, kind="stable").tolist()
            if counts[:, i].any()
        )
        lossy = int(paths.lossy[mine].sum())
        median, longest = float(np.median(total[mine])), float(total[mine].max())
        under = beneath[mine].sum(axis=0)
        states = tuple(
            (State(i), float(under[i] / under.sum()))
            for i in np.argsort(-under, kind="stable").tolist()
            if under[i]
        )
        found.append((whole, LabelSummary(label, size, lossy, median, longest, places, states)))
    return [one for _, one in sorted(found, key=lambda x: (-x[0], x[1].label))]
