"""Critical paths as a Perfetto trace, for https://ui.perfetto.dev.

Times are those of the trace's clock, to the nanosecond.  They are written without a
clock of their own, which Perfetto takes for its own clock of traces (CLOCK_BOOTTIME):
so its views show them as they are.  Where one recording is exported and its place in
time is known, a snapshot of the clocks lets the viewer show the date as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from critpath.documents import FindingEntry
from critpath.model import Bool, CriticalPaths, State
from critpath.report.exports.exported import Exported, execution_name, thread_name
from critpath.report.exports.perfetto_packets import Slices
from critpath.report.palette import LOOKS, words_of
from critpath.text.phrases import KINDS


def perfetto_trace(sets: Sequence[Exported]) -> Iterator[bytes]:
    """Write critical paths as a Perfetto trace, piece by piece.

    A track per execution, with one slice over all of it; below it one per thread on its
    path, with a slice per segment.  Where the path moves to another thread, a flow leads
    from the segment of who woke it to that of who was woken.  Findings of a comparison
    have tracks of their own below the execution.  Several sets have a track each above.

    Parameters
    ----------
    sets : sequence of Exported

    Yields
    ------
    bytes
        One after the other they are the file.
    """
    slices = Slices()
    flows = 0
    for one in sets:
        above = slices.track(one.name) if len(sets) > 1 else 0
        moves = one.paths.paths.wakes
        bodies = _Bodies(slices, one.paths.paths)
        for index in range(len(one.paths)):
            flows = _execution(slices, bodies, one, moves, index, above, flows)
    yield from slices.write(_epoch(sets))


class _Bodies(dict[tuple[int, ...], bytes]):
    """Everything of a segment but its time and its track, made once per kind."""

    def __init__(self, slices: Slices, paths: CriticalPaths) -> None:
        super().__init__()
        self.slices, self.paths = slices, paths

    def __missing__(self, kind: tuple[int, ...]) -> bytes:
        code, detail, comm, tid, cpu, lossy = kind
        state, said = State(code), self.paths.strings[detail]
        waited = state == State.WAIT_CPU
        self[kind] = self.slices.body(
            LOOKS[state.name].words,
            state.name,
            {
                "state": state.name,
                "who ran" if waited else "detail": said,
                "thread": self.paths.strings[comm],
                "tid": tid if tid >= 0 else None,
                "cpu": cpu if cpu >= 0 else None,
                "lossy": True if lossy else None,
            },
        )
        return self[kind]


def _execution(
    slices: Slices,
    bodies: _Bodies,
    one: Exported,
    moves: Bool,
    index: int,
    above: int,
    flows: int,
) -> int:
    """Add one execution and return how many flows there are by then."""
    executions, paths = one.paths.executions, one.paths.paths
    begin, end = int(executions.begin[index]), int(executions.end[index])
    name = execution_name(executions, index)
    track = slices.track(name, above)
    about = {
        "id": executions.id[index],
        "label": executions.label[index],
        "set": one.name,
        "recording": one.paths.sources[int(one.paths.session[index])],
        "type": one.cluster(index),
        "tid": int(executions.tid[index]),
        "lossy": True if one.paths.lossy[index] else None,
    }
    whole = slices.open(begin, track, slices.body(name, "execution", about))
    rows = slice(int(paths.start[index]), int(paths.start[index + 1]))
    columns = ("begin", "end", "state", "detail", "comm", "tid", "cpu", "lossy", "host")
    tracks: dict[tuple[int, int], int] = {}
    before = -1
    for low, high, *kind, host, leaves in zip(
        *(getattr(paths, column)[rows].tolist() for column in columns),
        moves[rows].tolist(),
        strict=True,
    ):
        _, _, comm, tid, _, _ = kind
        thread = tracks.get((host, tid))
        if thread is None:
            shown = thread_name(paths.strings[comm], tid)
            thread = tracks[host, tid] = slices.track(shown, track)
        segment = slices.open(low, thread, bodies[tuple(kind)])
        slices.close(high, segment)
        if before >= 0:
            flows += 1
            slices.flow(before, segment, flows)
        before = segment if leaves else -1
    slices.close(end, whole)
    if one.findings:
        _findings(slices, one.findings[index], track)
    return flows


def _findings(slices: Slices, findings: Sequence[FindingEntry], above: int) -> None:
    """Add the findings, on as many tracks as it takes for none to lie over another."""
    free: list[tuple[int, int]] = []  # per track: until when it is taken, and the track
    for finding in sorted(findings, key=lambda f: (f.begin, f.end, f.rank)):
        begin, end = finding.begin, max(finding.begin, finding.end)
        place = next((i for i, (until, _) in enumerate(free) if until <= begin), len(free))
        if place == len(free):
            free.append((begin, slices.track("findings", above)))
        track = free[place][1]
        free[place] = (end, track)
        body = slices.body(
            f"{words_of(finding)}: {KINDS.get(finding.kind, finding.kind)}",
            "finding",
            {
                "rank": finding.rank,
                "kind": finding.kind,
                "state": finding.state,
                "detail": finding.detail,
                "thread": finding.comm,
                "tid": finding.tid if finding.tid >= 0 else None,
                "more than normal (ns)": _whole(finding.contribution),
                "here (ns)": _whole(finding.observed),
                "normal (ns)": _whole(finding.expected),
                "unusual": finding.abnormal,
            },
        )
        slices.close(end, slices.open(begin, track, body))


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _epoch(sets: Sequence[Exported]) -> int:
    """Return what to add to a time for ns since 1970, 0 unless it is one for all."""
    known = {
        int(about["clock_epoch"])
        for one in sets
        for about in one.paths.environment
        if "clock_epoch" in about
    }
    recordings = sum(len(one.paths.sources) for one in sets)
    return known.pop() if len(known) == 1 and recordings == 1 else 0
