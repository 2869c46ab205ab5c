"""What a difference between two sets should not come from, and what else to know of them."""

from __future__ import annotations

from typing import Final

import numpy as np

from critpath.model import I64, PathSet
from critpath.units import plural

# Keys of the sets' environments.
_ALIKE: Final = {
    "kernel_release": "kernels",
    "tracer_name": "tracers",
    "recorded_on": "machines",
    "recorded_cpu": "processors",
    "recorded_cpus": "numbers of cpus",
    "recorded_profile": "profiles",
}


def set_warnings(normal: PathSet, sample: PathSet, folded: int) -> tuple[str, ...]:
    """Say what a reader must know about two sets before believing their difference.

    Parameters
    ----------
    normal, sample : PathSet
    folded : int
        Symbols that share a code because the alphabet is full.

    Returns
    -------
    tuple of str
        One line each.
    """
    result = [text for text in dict.fromkeys(normal.warnings) if text in sample.warnings]
    for name, path_set in (("normal", normal), ("sample", sample)):
        own = [text for text in dict.fromkeys(path_set.warnings) if text not in result]
        result += [f"{name}: {text}" for text in own]
    result += differing(normal, sample)
    result += _same(normal, sample)
    result += _apart(normal, sample)
    if folded:
        result.append(f"{plural(folded, 'rare kind')} of thread counted together as '*'")
    return tuple(result)


def differing(normal: PathSet, sample: PathSet) -> list[str]:
    """Say in which surroundings that should be alike two sets were recorded; a line each."""
    result = []
    for key, what in _ALIKE.items():
        seen = [_said(s, key) for s in (normal, sample)]
        # Only critpath's own recordings say the latter: silence is no difference there.
        known = all(seen) or not key.startswith("recorded_")
        # One set's kernel trace has a release, its user-space traces have none.
        if seen[0] != seen[1] and known:
            result.append(
                f"the sets come from different {what}: "
                f"{', '.join(seen[0]) or 'unknown'} and {', '.join(seen[1]) or 'unknown'}"
            )
    # What was recorded in alternation was meant to be compared, whatever it is called.
    programs = [_said(s, "recorded_program") for s in (normal, sample)]
    if all(programs) and programs[0] != programs[1] and not _sessions(normal) & _sessions(sample):
        result.append(
            f"the sets are of different programs: {', '.join(programs[0])} and "
            f"{', '.join(programs[1])}"
        )
    return result


def unlike_recordings(normal: PathSet) -> tuple[str, ...]:
    """Say in what the recordings of one set differ, and which have no execution."""
    empty = [s for i, s in enumerate(normal.sources) if not (normal.session == i).any()]
    result = [f"{source} has no execution" for source in empty]
    for key, what in _ALIKE.items():
        # A recording's kernel and user-space traces have each a tracer of its own.
        by_domain: dict[str, set[str]] = {}
        for each in (e for e in normal.environment if key in e):
            by_domain.setdefault(str(each.get("domain", "")), set()).add(str(each[key]))
        seen = max(by_domain.values(), key=len, default=set())
        if len(seen) > 1:
            listed = ", ".join(sorted(seen))
            result.append(f"the recordings come from different {what}: {listed}")
    return tuple(result)


def apart(normal: PathSet, sample: PathSet) -> bool:
    """Tell whether each set is one session, and not the same one as the other.

    What sessions of the program differ by is then in no figure.
    """
    if any(len(np.unique(s.session)) != 1 for s in (normal, sample)):
        return False
    return not _sessions(normal) & _sessions(sample)


def _sessions(path_set: PathSet) -> set[str | int]:
    return {e["recorded_session"] for e in path_set.environment if e.get("recorded_session")}


def _same(normal: PathSet, sample: PathSet) -> list[str]:
    """Say so if executions are in both sets: of one clock, with the same begin and end."""
    ours, theirs = set(_moments(normal)), _moments(sample)
    both = [moment for moment in theirs if moment in ours]
    # Where a clock's epoch is unknown, two machines may have begun at the same time once.
    if not both or (len(both) < len(theirs) and not all(epoch for epoch, *_ in both)):
        return []
    if len(both) == len(theirs):
        return ["the sample is a recording that the normal set has: nothing can differ"]
    said = f"{len(both):,} of {plural(len(theirs), 'sample execution')} are in the normal set, too"
    return [f"{said}: the same recording is on both sides"]


def _moments(path_set: PathSet) -> list[tuple[int | str, int, int, str]]:
    """Return what no execution of another recording has; nothing where clocks are not told."""
    epochs = [e["clock_epoch"] for e in path_set.environment if "clock_epoch" in e]
    if len(epochs) != len(path_set.sources):
        return []
    executions = path_set.executions
    return [
        (epochs[session], begin, end, name)
        for session, begin, end, name in zip(
            path_set.session.tolist(),
            executions.begin.tolist(),
            executions.end.tolist(),
            executions.id,
            strict=True,
        )
    ]


def _said(path_set: PathSet, key: str) -> list[str]:
    return sorted({str(e[key]) for e in path_set.environment if key in e})


def _apart(normal: PathSet, sample: PathSet) -> list[str]:
    """Say so if a recording was interleaved with one that it is not compared with."""
    # Both of a pair are of one session.
    sessions = [
        {e.get("recorded_session") for e in s.environment if "recorded_beside" in e}
        for s in (normal, sample)
    ]
    return [
        f"the {name} set was recorded in alternation with "
        f"{', '.join(map(repr, _said(path_set, 'recorded_beside')))}: compare it with that"
        for name, path_set, mine, others in (
            ("normal", normal, sessions[0], sessions[1]),
            ("sample", sample, sessions[1], sessions[0]),
        )
        if mine - others
    ]


# -----------------------------------------------------------------------------
# How much of the normal set a comparison rests on.


# Beyond this the comparison is about the smaller part of what was given as normal.
_MOST_LEFT: Final = 0.5
_SHOWN: Final = 4


def partly(normal_type: I64, sample_type: I64) -> str:
    """Say so if most normal executions are of types that no sample execution is of.

    Parameters
    ----------
    normal_type : int64 [n]
        Type of every normal execution.
    sample_type : int64 [m]
        The normal type that every sample execution is compared with.

    Returns
    -------
    str
        One sentence, "" where at least half of the normal set takes part.

    Notes
    -----
    Like is compared with like, so normal executions of a type that the sample has not
    take no part, and the mean of the sample is held against those of the others alone.
    That is right for a mix that changed, and up to half of a set it commonly is one: of
    two usual kinds of requests the sample has one.  Where more than half are left out,
    what is called normal in the result is not what the normal set usually does, and the
    likelier reason is that something split it (a few executions with a little UNKNOWN
    time are a type of their own, and the sample is paired with these).
    """
    types, count = np.unique(normal_type, return_counts=True)
    used = np.isin(types, sample_type)
    left = int(count[~used].sum())
    if not used.any() or left <= _MOST_LEFT * len(normal_type):
        return ""
    unused = sorted(
        zip(types[~used].tolist(), count[~used].tolist(), strict=True), key=lambda x: (-x[1], x[0])
    )
    shown = [f"n{kind} ({size:,})" for kind, size in unused[:_SHOWN]]
    beyond = len(unused) - len(shown)
    named = ", ".join(f"n{kind}" for kind in types[used].tolist()[:_SHOWN])
    named += ", ..." * (int(used.sum()) > _SHOWN)
    return (
        f"compared with {len(normal_type) - left:,} of "
        f"{plural(len(normal_type), 'normal execution')} "
        f"(type{'s' * (int(used.sum()) > 1)} {named}): no sample execution is of the "
        f"type{'s' * (len(unused) > 1)} {', '.join(shown)}"
        + (f" and {beyond:,} more" if beyond else "")
    )
