"""One state, one cause, one set in a sentence: shared by the outputs that list them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from critpath.text import verdict
from critpath.text.phrases import KINDS
from critpath.units import format_ns, plural, safe_text

if TYPE_CHECKING:
    from critpath.documents import (
        CauseEntry,
        ComparisonDocument,
        FindingEntry,
        OnThread,
        SetEntry,
        StateEntry,
    )

_MOST_NAMES = 3
_TID: Final = re.compile(r" \(\d+\)$")
_NUMBER: Final = re.compile(r"\d+")


def level_of(state: StateEntry) -> str:
    """Return what a flagged state counts as: ``error``, ``warn`` or ``off``."""
    return state.level


DURATIONS: Final = ("of", "executions", "p50", "p95", "p99")


def durations_by_label(document: ComparisonDocument) -> list[tuple[str, ...]]:
    """Return the rows of a table of `DURATIONS`, before and after: of all, then by label."""
    rows: dict[str, dict[str, str]] = {}
    for one in document.detection.percentiles:
        before, after = one.executions
        row = rows.setdefault(one.label, {"of": one.label or "all"})
        row["executions"] = f"{before:,} -> {after:,}"
        row[one.name] = f"{verdict.duration(one.normal)} -> {verdict.duration(one.sample)}"
    return [tuple(row.get(name, "-") for name in DURATIONS) for row in rows.values()]


def state_sentence(state: StateEntry) -> str:
    """Return one state's test in a sentence: difference, interval, p, both means."""
    effect = verdict.duration(state.effect, sign=True)
    between = verdict.interval(state)
    between = f" (95 % interval {between})" if between != "-" else ""
    normal, sample = map(verdict.duration, (state.normal_mean, state.sample_mean))
    return (
        f"{state.state} is {effect} an execution{between}, "
        f"p {verdict.probability(state.p_value)}: {normal} normally, {sample} here"
    )


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
    """Return how often executions are in a state, normally and now: ``2.4 -> 22.6``."""
    if state.normal_count is None or state.sample_count is None:
        return "-"
    normal, sample = (f"{count:.3g}" for count in (state.normal_count, state.sample_count))
    return normal if normal == sample else f"{normal} -> {sample}"


def sentences_about(document: ComparisonDocument, state: StateEntry) -> list[str]:
    """Return the causes whose main finding is of a state; of the total, the main ones."""
    causes = verdict.main_causes(document, _MOST_NAMES)
    if state.state != "total":
        causes = [c for c in document.causes if _state_of(document, c) == state.state]
    return [verdict.cause_sentence(cause) for cause in causes[:_MOST_NAMES]]


def cause_names(document: ComparisonDocument, causes: Sequence[CauseEntry]) -> list[str]:
    """Return what to call causes from one comparison to the next, no two the same."""
    names: list[str] = []
    for cause in causes:
        name = safe_text(_cause_name(document, cause))
        same = sum(other == name or other.startswith(f"{name} (") for other in names)
        names.append(f"{name} ({same + 1})" if same else name)
    return names


def _cause_name(document: ComparisonDocument, cause: CauseEntry) -> str:
    finding = _main_finding(document, cause)
    if finding is None:
        return "cause"
    name = _state_of(document, cause)
    # Time on another thread is one cause whatever that did, and so is running.
    if not finding.role and not finding.state.startswith("RUN") and finding.detail:
        # A thread's id is its instance's, like the numbers in its name.
        name += f" {_NUMBER.sub('#', _TID.sub('', finding.detail))}"
    return f"{name}, {KINDS.get(finding.kind, finding.kind)}"


def _main_finding(document: ComparisonDocument, cause: CauseEntry) -> FindingEntry | None:
    findings: list[FindingEntry] = document.findings
    return findings[cause.main] if 0 <= cause.main < len(findings) else None


def _state_of(document: ComparisonDocument, cause: CauseEntry) -> str:
    """Return the symbol of a cause's main finding, named as the states' table does."""
    finding = _main_finding(document, cause)
    if finding is None:
        return ""
    return str(finding.state) + (f"@{finding.role}" if finding.role else "")


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
    one = document.sets[which]
    parts = [
        f"{which}: {plural(one.executions, 'execution')} from {_several(one.sources, name)}",
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
            lost.append(f"{which} set: {what} lost")
    return [*lost, *document.warnings]


def _several(names: list[str], name: Callable[[str], str]) -> str:
    shown = ", ".join(map(name, names[:_MOST_NAMES]))
    beyond = len(names) - _MOST_NAMES
    return f"{shown} and {beyond} more" if beyond > 0 else shown or "nowhere"
