"""Which executions of a recording with gaps are whole, and how many are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct

from critpath.executions import MARKER_EVENTS, find_executions, parse_specification
from critpath.graph.critical_path import extract_paths, subject_workers
from critpath.model import F64, I64, Bool, Executions, ReplayedRecording, State
from critpath.model.gaps import BASE, Gaps
from critpath.model.recording import Chosen
from critpath.read import Recording
from critpath.schema.environment import Environment, GapCounts
from critpath.schema.notes import (
    ChancesEvened,
    ExecutionsChosen,
    ExecutionsWhole,
    Note,
    RecordedTook,
)
from critpath.schema.parameters.ab import WINDOWS
from critpath.stats.medians import compare_sides
from critpath.timeline import RecordingOpener

if TYPE_CHECKING:
    from critpath.model.requests import CutRequests

_MOST_LABELS: Final = 500  # technical
_STRIP: Final = 200  # technical: places of the strip that a report draws
_MILLION: Final = 1_000_000  # technical


class Share(Struct, frozen=True):
    """What is taken of a recording with gaps.

    Attributes
    ----------
    overhead : mapping
        What the manifest says of the budget.
    partial : bool
        The executions that are not whole, and no other.
    bystanders : bool
        Also those that are whole without having been chosen, where a budget chose.
    interrupts : bool
        As the paths are walked.
    segments : int
        Of paths that are walked together; 0 for no limit.
    """

    overhead: Mapping[str, object]
    partial: bool
    bystanders: bool
    interrupts: bool
    segments: int


def leave_out_partial(
    replayed: ReplayedRecording, executions: Executions, pieces: CutRequests | None, share: Share
) -> tuple[ReplayedRecording, Executions, CutRequests | None]:
    """Leave out the executions that are not whole, and count them by their labels.

    One is not whole that overlaps a gap, nor one on whose path something is not known because of
    one: a thread whose first event after it does not tell what it was doing.
    """
    partial = _find_partial(replayed, executions, pieces, share)
    given = executions
    if executions.chance is None and share.overhead.get("chosen_by") == "windows":
        begun = choose_by_begin(executions, replayed.events.gaps, replayed.events.end)
        executions = replace(executions, chance=np.where(begun, 1.0, np.nan))
    chosen = None if executions.chance is None else np.isfinite(executions.chance)
    bystander = np.zeros(len(partial), np.bool_) if chosen is None else ~partial & ~chosen
    left = ~partial if share.bystanders else ~partial & ~bystander
    evened: list[Note] = []
    if executions.chance is not None and not share.bystanders:
        left, evened = _even_chances(executions, left)
    rows = np.flatnonzero(partial if share.partial else left)
    fates = {"whole": ~partial & ~bystander, "partial": partial}
    if chosen is not None:
        fates |= {"bystander": bystander, "cut": partial & chosen}
    counts = {
        kind: Counter(executions.label[i] for i in np.flatnonzero(those).tolist())
        for kind, those in fates.items()
    }
    counted = _describe_share(replayed, counts, share.overhead)
    whole = int((~partial).sum())
    said: list[Note] = [ExecutionsWhole(whole, len(partial), counted.gaps, counted.gaps_ns)]
    ours = ~partial
    if chosen is not None:
        ours = chosen
        numbers = (counts[kind].total() for kind in ("whole", "cut", "bystander"))
        said += [ExecutionsChosen(*numbers), *evened]
    took = _relative_times(executions)
    # Who is no bystander took longer: of requests nobody chose which to record.
    sides = took[ours].tolist(), took[~ours].tolist()
    felt = compare_sides(*sides, 0, "more") if executions.requests is None else None
    if felt is not None:
        counted = replace(counted, took=felt)
        said.append(RecordedTook(felt["more"], felt["low"], felt["high"]))
    told = (*replayed.events.environment, Environment(gaps=counted))
    events = replace(replayed.events, environment=told)
    taken = given.take(rows)
    return (
        replace(replayed, events=events),
        replace(taken, notes=(*taken.notes, *said)),
        None if pieces is None else pieces.take(rows),
    )


def choose_by_begin(executions: Executions, gaps: Gaps, end: int) -> Bool:
    """Return which executions began in a window in time so early that their kind ends in it.

    Where an execution lies whole in a window by how long it took, short ones are favoured; where it
    began says nothing of that.  The tail of a window in which none counts is as long as nearly all
    of the kind take.  Of a kind for which windows are too short for that, all whole ones are taken.
    """
    took = executions.end - executions.begin
    room = np.zeros(len(took), np.int64)  # from its begin to the end of the window
    for host in np.unique(executions.host).tolist():
        mine, own = executions.host == host, gaps.of(BASE, host)
        place = np.searchsorted(own.end, executions.begin[mine], side="right")
        room[mine] = np.append(own.begin, end)[place] - executions.begin[mine]
    result = room >= took
    _, kind = np.unique(np.array(executions.label, np.str_), return_inverse=True)
    order = np.argsort(kind, kind="stable")
    for of in np.split(order, np.flatnonzero(np.diff(kind[order])) + 1) if len(order) else ():
        begun = room[of] >= np.quantile(took[of], WINDOWS.nearly_all)
        if begun.sum() >= WINDOWS.fewest:
            result[of] = begun
    return result


def _even_chances(executions: Executions, kept: Bool) -> tuple[Bool, list[Note]]:
    """Draw executions of a kind again whose chances differ by more than twice; say what is left.

    Those that had a higher chance stay in proportion to it, so that every part of the recording
    speaks for as many executions as there were: means and tests need no weights then.
    """
    chance = np.ones(len(kept)) if executions.chance is None else executions.chance
    _, kind = np.unique(np.array(executions.label, np.str_), return_inverse=True)
    draw = np.random.default_rng(0).random(len(kept))  # always the same
    result, said = kept.copy(), list[Note]()
    for one in range(int(kind.max(initial=-1)) + 1):
        mine = np.flatnonzero(kept & (kind == one) & np.isfinite(chance))
        if not len(mine):
            continue
        low, high = float(chance[mine].min()), float(chance[mine].max())
        if high <= WINDOWS.alike * low:
            continue
        result[mine] = draw[mine] < WINDOWS.alike * low / chance[mine]
        counts = int(result[mine].sum()), len(mine)
        said.append(ChancesEvened(executions.label[mine[0]], low, high, *counts))
    return result, said


def count_chosen(path: Path) -> Chosen | None:
    """Count the marked executions of a recording with gaps by what became of them.

    None where nothing is marked.  Without chances, as of windows in time, those that began early
    enough in one are the selected.
    """
    recording = Recording(path)
    names = recording.event_names
    if not any(name in names for entry in MARKER_EVENTS for name in entry.names):
        return None
    opener = RecordingOpener(recording, MARKER_EVENTS, "native")
    marks = parse_specification("marker")
    found = find_executions(opener.read_for(marks), marks)
    if not len(found):
        return None
    gaps = recording.find_gaps((), ())
    partial = gaps.overlap(found.host, found.begin, found.end)
    chance = np.ones(len(found)) if found.chance is None else found.chance
    if found.chance is not None:
        chosen = np.isfinite(chance)
    else:
        chosen = choose_by_begin(found, gaps, recording.manifest.end or int(found.end.max()))
    label = np.array(found.label, object)
    took = (found.end - found.begin).astype(np.float64)
    kinds: dict[str, Mapping[str, int]] = {}
    felt: dict[str, Mapping[str, float]] = {}
    for kind, _ in Counter(found.label).most_common(_MOST_LABELS):
        mine = label == kind
        kinds[kind] = {
            "seen": int(mine.sum()),
            "selected": int((mine & chosen & ~partial).sum()),
            "cut": int((mine & chosen & partial).sum()),
            "bystanders": int((mine & ~chosen & ~partial).sum()),
        }
        sides = took[mine & chosen], took[mine & ~chosen]
        if more := compare_sides(sides[0].tolist(), sides[1].tolist(), 0, "slowdown"):
            felt[kind] = {**more, "recorded": len(sides[0]), "others": len(sides[1])}
    rows = [
        {
            "kind": found.label[i],
            "key": found.id[i],
            "begin": int(found.begin[i]),
            "tid": int(found.tid[i]),
            "chance": float(chance[i]),
        }
        for i in np.flatnonzero(chosen & ~partial).tolist()
        if found.chance is not None
    ]
    return Chosen(kinds, felt, rows)


def _relative_times(executions: Executions) -> F64:
    """Return how long each took, as a multiple of the median of its label: kinds are mixed."""
    took = (executions.end - executions.begin).astype(np.float64)
    _, kind = np.unique(np.array(executions.label, np.str_), return_inverse=True)
    for one in range(int(kind.max(initial=-1)) + 1):
        mine = kind == one
        took[mine] /= max(float(np.median(took[mine])), 1.0)
    return took


def _find_partial(
    replayed: ReplayedRecording, executions: Executions, pieces: CutRequests | None, share: Share
) -> Bool:
    gaps = replayed.events.gaps
    result = gaps.overlap(executions.host, executions.begin, executions.end)
    result |= subject_workers(replayed.workers, executions) < 0
    rest = np.flatnonzero(~result)
    if not len(rest):
        return result
    first = 0
    for found in extract_paths(
        *(replayed, executions.take(rest), "", ""),
        interrupts=share.interrupts,
        most_segments=share.segments,
        pieces=None if pieces is None else pieces.take(rest),
    ):
        paths = found.paths
        hidden = np.unique(paths.path[paths.state == State.NOT_RECORDED])
        result[rest[first + hidden]] = True
        first += len(paths)
    return result


def _describe_share(
    replayed: ReplayedRecording, counts: Mapping[str, Counter[str]], overhead: Mapping[str, object]
) -> GapCounts:
    """Return what a set says of a recording's gaps."""
    events = replayed.events
    base = events.gaps.of(BASE)
    labels = {
        kind: dict(of.most_common(_MOST_LABELS)) if len(of) > 1 or "" not in of else {}
        for kind, of in counts.items()
    }
    return GapCounts(
        gaps=len(base),
        gaps_ns=int((np.minimum(base.end, events.end) - base.begin).clip(min=0).sum()),
        recorded_ns=events.end - events.begin,
        whole=counts["whole"].total(),
        partial=counts["partial"].total(),
        by_label=labels,
        strip=_strip(base, events.begin, events.end),
        bystander=counts["bystander"].total() if "bystander" in counts else None,
        cut=counts["cut"].total() if "bystander" in counts else None,
        overhead=overhead or None,
    )


def _strip(gaps: Gaps, begin: int, end: int) -> tuple[tuple[int, int], ...]:
    """Return where gaps are, in millionths of the recording: so many places, joined."""
    span = max(end - begin, 1)
    edges = begin + span * np.arange(_STRIP + 1) // _STRIP
    covered = np.diff(_covered(gaps, edges))
    hidden = 2 * covered > np.diff(edges)
    places = np.flatnonzero(np.diff(np.concatenate([[False], hidden, [False]]).astype(np.int8)))
    shares = (places.reshape(-1, 2) * _MILLION // _STRIP).tolist()
    return tuple((first, last) for first, last in shares)


def _covered(gaps: Gaps, times: I64) -> I64:
    """Return how much of the time before each moment lies in gaps."""
    total = np.concatenate([[0], np.cumsum(gaps.end - gaps.begin)])
    place = np.searchsorted(gaps.begin, times, side="right")
    over = np.where(place > 0, np.append(gaps.end, 0)[place - 1] - times, 0)
    return np.asarray(total[place] - over.clip(min=0), np.int64)
