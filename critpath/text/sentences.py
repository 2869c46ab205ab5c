"""One state, one cause, one set in a sentence: shared by the outputs that list them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from critpath.model import State
from critpath.text import verdict
from critpath.text.notes import side
from critpath.text.page import noun_of
from critpath.text.phrases import quoted, state_words
from critpath.units import format_ns, format_share, plural

if TYPE_CHECKING:
    from critpath.documents import (
        ComparisonDocument,
        OnThread,
        PathSegment,
        SetEntry,
        StateEntry,
    )
    from critpath.model.requests import Tier, Untold

_MOST_NAMES = 3  # technical
_MOST_BENEATH = 3  # technical
_TID: Final = re.compile(r" \(\d+\)$")
_NUMBER: Final = re.compile(r"\d+")


def level_of(state: StateEntry) -> str:
    """Return what a flagged state counts as: ``error``, ``warn`` or ``off``."""
    return state.level


DURATIONS: Final = ("of", "count", "p50", "p95", "p99")


def durations_by_label(document: ComparisonDocument) -> list[tuple[str, ...]]:
    """Return the rows of a table of `DURATIONS`, before and after: of all, then by label."""
    rows: dict[str, dict[str, str]] = {}
    for one in document.detection.percentiles:
        before, after = one.executions
        row = rows.setdefault(one.label, {"of": one.label or "all"})
        row["count"] = f"{before:,} → {after:,}"
        row[one.name] = f"{verdict.duration(one.normal)} → {verdict.duration(one.sample)}"
    return [tuple(row.get(name, "-") for name in DURATIONS) for row in rows.values()]


def state_sentence(state: StateEntry) -> str:
    """Return one state's test in a sentence: difference, interval, p, both means."""
    effect = verdict.duration(state.effect, sign=True)
    between = verdict.interval(state)
    between = f" (95 % interval {between})" if between != "-" else ""
    normal, sample = map(verdict.duration, (state.normal_mean, state.sample_mean))
    p = verdict.probability(state.p_value)
    return f"{state.state}: {normal} before, {sample} after, {effect}{between}, p {p}"


def machine_line(one: SetEntry) -> str:
    """Return what the machine was like while a set was recorded, "" where nobody measured."""
    if one.machine is None:
        return ""
    shares = [
        ("cpu pressure", one.machine.pressure.get("cpu")),
        ("others' cpu", one.machine.others_cpu),
        ("recorder's cpu", one.machine.recorder_cpu),
        ("steal", one.machine.steal),
    ]
    said = [f"{name} {100 * share:.1f} %" for name, share in shares if share is not None]
    said += [f"{kind} {format_ns(time)}" for kind, time in sorted(one.machine.probes.items())]
    return ", ".join(said)


def counts_of(state: StateEntry) -> str:
    """Return how often executions are in a state, normally and now: ``2.4 → 22.6``."""
    if state.normal_count is None or state.sample_count is None:
        return "-"
    normal, sample = (f"{count:.3g}" for count in (state.normal_count, state.sample_count))
    return normal if normal == sample else f"{normal} → {sample}"


def setting(value: object) -> str:
    """Return a setting as text."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def thread_of(one: OnThread, name: Callable[[str], str] = str) -> str:
    """Return the thread of an execution, a segment or a finding: its name, its id if known.

    ``name`` is how names of the trace are to stand in it.
    """
    if one.tid < 0:
        return name(one.comm) if one.comm else "unknown thread"
    return f"{name(one.comm)} {one.tid}" if one.comm else str(one.tid)


def set_in_short(document: ComparisonDocument, which: str, name: Callable[[str], str] = str) -> str:
    """Return one of the two sets in a line: how many, from where, of what kernel, when.

    ``name`` is how names of files, hosts and kernels are to stand in it.
    """
    one, noun = document.sets[which], noun_of(document, 1)
    parts = [
        f"{side(which)}: {plural(one.executions, noun)} from {_several(one.sources, name)}",
        *([f"on {_several(one.hosts, name)}"] if one.hosts else []),
        *([f"kernel {_several(one.kernels, name)}"] if one.kernels else []),
    ]
    moments = [moment for moment in one.recorded if moment]
    if moments:
        parts.append(f"recorded {min(moments)}")
    return ", ".join(parts)


def warnings_of(document: ComparisonDocument) -> list[str]:
    """Return everything to be warned of: what a set has lost, then the document's warnings."""
    lost = []
    for which in ("normal", "sample"):
        loss = document.sets[which].loss
        if loss.events or loss.packets:
            what = f"{plural(loss.events, 'event')} and {plural(loss.packets, 'packet')}"
            lost.append(f"the recording {side(which)} lost {what}")
    return [*lost, *document.warnings]


def _several(names: list[str], name: Callable[[str], str]) -> str:
    shown = ", ".join(map(name, names[:_MOST_NAMES]))
    beyond = len(names) - _MOST_NAMES
    return f"{shown} and {beyond} more" if beyond > 0 else shown or "nowhere"


# Requests, tier by tier.


def tier_queued(queued: float) -> str:
    """How long requests of a service lay there before anybody received them."""
    return f"{format_ns(queued)} of its own passed before it was received" if queued else ""


def beneath(shares: Sequence[tuple[State, float]]) -> str:
    """Say what threads did while requests were queued behind others, or shared a loop with them."""
    some = [f"{state_words(one)} for {format_share(share)}" for one, share in shares]
    listed = ", ".join(some[:_MOST_BENEATH])
    return f"while requests were queued or shared a loop, the thread was {listed} of that time"


def detail_of(segment: PathSegment) -> str:
    """Return the detail of a segment, and what its thread did beneath."""
    if not segment.beneath:
        return segment.detail
    doing = f"meanwhile {state_words(State[segment.beneath])}"
    return f"{segment.detail}; {doing}" if segment.detail else doing


def tiers_untold(untold: Untold, total: int) -> str:
    """Of how many requests it is unknown what they did, and whether the others are like them."""
    said = (
        f"unknown: of {untold.requests:,} of {plural(total, 'request')} it is doubtful what they "
        "asked (--doubtful include takes it for true)"
    )
    if untold.unlike:
        said += (
            f"; the others are not like them ({format_ns(untold.told_ns)} against "
            f"{format_ns(untold.median_ns)}, medians): what is told is not true of all"
        )
    return said


def most_of_tiers(tiers: Sequence[Tier]) -> str:
    """Where most of the time of those asked from outside goes; "" where that is nowhere."""
    whole = sum(tier.latency_ns * tier.requests for tier in tiers if not tier.depth)
    roots = sum(tier.requests for tier in tiers if not tier.depth)
    parts: list[tuple[float, str]] = []
    for tier in tiers:
        name = quoted(tier.service)
        if tier.own_ns is None or tier.queued_ns is None:
            parts.append((tier.latency_ns * tier.requests, f"{name}, elsewhere, took {{}}"))
            continue
        count = "the thread" if tier.threads == 1 else f"one of the {tier.threads} threads"
        waited = f"requests waited {{}} before {count} of {name} received them"
        parts += [
            (tier.queued_ns * tier.requests, waited),
            ((tier.own_ns - tier.queued_ns) * tier.requests, f"{name} itself took {{}}"),
            (
                (tier.unknown_ns or 0) * tier.requests,
                f"what {name} did or asked is unknown of {{}}",
            ),
        ]
    time, said = max(parts, default=(0.0, ""))
    if not time or not whole:
        return ""
    if time > whole:
        together = f"{format_ns(time / roots)} in all, several at once,"
        return f"most: {said.format(together)} for each request of {format_ns(whole / roots)}"
    each = f"{format_ns(time / roots)} of {format_ns(whole / roots)}"
    return f"most: {said.format(each)} ({format_share(time / whole)})"
