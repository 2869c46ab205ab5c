"""The section of the HTML report that says what the two sets are, side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from critpath.documents import ComparisonDocument, LossSummary, SetEntry, Window
from critpath.report.html.elements import items, said, table, text
from critpath.units import format_ns, plural, shorten

SETS: Final = ("normal", "sample")
_MOST_LOSSES: Final = 30
_MOST_NAMES: Final = 12

# What should be the same in both sets, so that only the program can differ.
_ALIKE: Final = (
    ("executions found by", lambda s: [s.specification]),
    ("host", lambda s: s.hosts),
    ("recorded on", lambda s: s.machines),
    ("processor", lambda s: s.processors),
    ("number of cpus", lambda s: s.cpus),
    ("kernel", lambda s: s.kernels),
    ("tracer", lambda s: s.tracers),
    ("recording profile", lambda s: s.profiles),
)

# What may well differ, or always does.
_OWN: Final[tuple[tuple[str, Callable[[SetEntry], str]], ...]] = (
    ("recordings", lambda s: _names(s.sources)),
    ("recorded", lambda s: _names(_when(s))),
    ("command", lambda s: _names([shorten(c) for c in s.commands] or ["not known"])),
    ("executions", lambda s: f"{s.executions:,}"),
    ("without begin or end", lambda s: f"{s.incomplete:,}"),
    ("events", lambda s: f"{s.events:,}"),
    ("first begin to last end", lambda s: _window(s.window)),
)

_LOST: Final[tuple[tuple[str, Callable[[SetEntry], int]], ...]] = (
    ("events lost", lambda s: s.loss.events),
    ("packets lost", lambda s: s.loss.packets),
    ("executions touched by loss", lambda s: s.lossy),
)


def sets(document: ComparisonDocument) -> str:
    """Return the warnings, what the two sets are, and what was lost in them."""
    both = [document.sets[which] for which in SETS]
    commands = any(one.commands for one in both)
    own = [(name, say) for name, say in _OWN if commands or name != "command"]
    rows = [[text(name), *(text(say(s)) for s in both), ""] for name, say in own]
    for name, known in _ALIKE:
        values = [known(s) for s in both]
        if any(values) or name in {"host", "kernel", "tracer"}:
            shown = [text(_names(v) or "not known") for v in values]
            rows.append(_marked([text(name), *shown], _difference(values)))
    for name, count in _LOST:
        counts = [count(s) for s in both]
        rows.append(
            _marked([text(name), *(f"{n:,}" for n in counts)], "loss" if any(counts) else "")
        )
    warnings = items((f"Warning: {w}" for w in document.warnings), kind="warnings")
    # The document's warnings have those of both sets already.
    told = " ".join(document.warnings)
    notes = [
        f"{which}: {note}"
        for which, one in zip(SETS, both, strict=True)
        for note in dict.fromkeys(one.warnings + one.notes)
        if note not in told
    ]
    caption = "Where and how each set was recorded; the last column says what differs"
    return (
        (warnings or said("No warning about these sets."))
        + table(caption, ["", *SETS, "compared"], rows, kind="sets", heads=True)
        + "".join(_losses(which, one.loss) for which, one in zip(SETS, both, strict=True))
        + items(notes, kind="notes")
    )


def _marked(cells: list[str], word: str) -> list[str]:
    """Return a row that says how the sets compare, set off where that matters."""
    matters = word in {"differs", "loss"}
    return [*(["*"] if matters else []), *cells, f"<mark>{word}</mark>" if matters else word]


def _difference(values: list[list[str]]) -> str:
    if not all(values):
        return "not known"
    return "same" if values[0] == values[1] else "differs"


def _names(values: list[str]) -> str:
    beyond = len(values) - _MOST_NAMES
    return ", ".join(values[:_MOST_NAMES]) + (f" and {beyond:,} more" if beyond > 0 else "")


def _when(one: SetEntry) -> list[str]:
    known = sorted({moment for moment in one.recorded if moment})
    if not known:
        return ["not known"]
    shown = [moment.replace("T", " ").replace("Z", " UTC") for moment in known]
    return shown if len(shown) < 3 else [f"{shown[0]} to {shown[-1]}"]


def _window(window: Window | None) -> str:
    return "-" if window is None else format_ns(window.end - window.begin)


def _losses(which: str, loss: LossSummary) -> str:
    if not loss.places:
        return ""
    rows = [
        [
            text(f"{one.begin / 1e9:.6f} s"),
            text(format_ns(one.end - one.begin)),
            "-" if one.cpu < 0 else str(one.cpu),
            f"{one.events:,}",
            f"{one.packets:,}",
            text(one.reason),
        ]
        for one in loss.places[:_MOST_LOSSES]
    ]
    beyond = len(loss.places) - _MOST_LOSSES
    beyond = max(0, beyond) + loss.places_left_out
    headers = [">from", ">for", ">cpu", ">events", ">packets", "reason"]
    listed = table(f"Losses in the {which} set", headers, rows)
    rest = said(f"{plural(beyond, 'loss place')} left out." if beyond else "")
    return f"<details><summary>Losses in the {which} set</summary>{listed}{rest}</details>"
