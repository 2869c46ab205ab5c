"""What the page says beside headline and causes: small print, one line for two recordings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from critpath.model.paths import kind_of
from critpath.schema.parameters.text import ANSWERS
from critpath.text.phrases import quoted
from critpath.units import NS_PER_S, format_ns, format_share, in_plural, plural

if TYPE_CHECKING:
    from critpath.documents import ComparisonDocument, KindEntry, SetEntry
    from critpath.model import PathSet

_NOUNS: Final = {
    "process": "process",
    "thread": "thread",
    "windows": "window",
    "slices": "slice",
}
NOISE: Final = "within noise"  # what became of a kind that did not clearly change
_NAMED: Final = 2  # technical: kinds that are told one by one


def noun_of(document: ComparisonDocument, count: int = 2) -> str:
    """Return what an execution is called, in the plural unless there is one."""
    return noun_of_set(document.sets.sample, count)


def noun_of_set(one: SetEntry, count: int = 2) -> str:
    """Return what an execution of a set is called, in the plural unless there is one."""
    return _name(one.specification, count, commands=any(one.commands))


def noun_of_paths(paths: PathSet, count: int = 2) -> str:
    """Return what an execution of paths is called, in the plural unless there is one."""
    recorded = any(about.recorded_command for about in paths.environment)
    return _name(paths.specification, count, commands=recorded)


def _name(specification: str, count: int, *, commands: bool) -> str:
    noun = noun_of_kind(specification)
    if noun == "process" and commands:
        noun = "run"
    return noun if count == 1 else in_plural(noun)


def noun_of_kind(specification: str) -> str:
    """Return what an execution is called by what it is."""
    return _NOUNS.get(kind_of(specification), "request")


def small_print(document: ComparisonDocument) -> list[str]:
    """Return what stands below the answer: other kinds, what chance does, who else was there."""
    kinds = document.pictures.kinds if document.pictures else []
    said = [*_other_kinds(document, kinds), *_chance(document)]
    recorder = [
        one.machine.recorder_cpu or 0.0
        for one in (document.sets.normal, document.sets.sample)
        if one.machine
    ]
    if recorder and max(recorder) > ANSWERS.seen:
        said.append(f"The recorder itself used {format_share(max(recorder))} of the CPUs.")
    return said


def _other_kinds(document: ComparisonDocument, kinds: Sequence[KindEntry]) -> list[str]:
    from critpath.documents import SLOWER  # noqa: PLC0415 - start-up time

    told = kinds[:1] if kinds and kinds[0].change in {"slower", "faster"} else []
    rest = [one for one in kinds if one not in told and one.label]
    noun = noun_of(document)
    said = []
    for change in ("slower", "faster"):
        found = [one for one in rest if one.change == change]
        for one in found[:_NAMED]:
            before, after = (float(mean or 0) for mean in one.mean)
            said.append(
                f"{quoted(one.label)} {noun}: {format_ns(after - before, sign=True)} on average."
            )
        beyond = len(found) - _NAMED
        if beyond > 0:
            said.append(f"{plural(beyond, 'more kind')} became {change}.")
    if not told and document.verdict not in SLOWER:
        return said
    same = [one for one in rest if one.change == "same"]
    if same:
        other = "other " if told else ""
        said.append(
            f"The {other}kind of {noun} stayed within noise."
            if len(same) == 1
            else f"The {other}{len(same):,} kinds of {noun} stayed within noise."
        )
    few = [one for one in rest if one.change == "few"]
    if few:
        kinds_ = "kind has" if len(few) == 1 else f"{len(few):,} kinds have"
        said.append(f"The other {kinds_} too few {noun} to judge.")
    return said


def find_deciding_p(document: ComparisonDocument) -> float | None:
    """Return the p of the whole time; where states alone were flagged, the least of theirs.

    Of an answer that is not decided none: beside it a small one would read as if it were.
    """
    if document.verdict in {"inconclusive", "by_machine"}:
        return None
    total = next((s for s in document.states if s.state == "total"), None)
    flagged = [s.p_value for s in document.states if s.flagged and s.p_value is not None]
    if total and (total.flagged or not flagged):
        return total.p_value
    return min(flagged, default=None)


def _chance(document: ComparisonDocument) -> list[str]:
    p = find_deciding_p(document)
    if p is None or not document.detection.flagged:
        return []
    shown = "< 0.0001" if p < 0.0001 else f"= {p:.2g}"  # technical: how a number is rounded
    if p > ANSWERS.often:
        return [f"Chance alone would show a difference as large in {p:.0%} of comparisons."]
    about = round(1 / max(p, 1e-4))  # technical: how a number is rounded
    scale = 10 ** max(len(str(about)) - 1, 0)
    about = round(about / scale) * scale
    often = f"about 1 of {about:,} comparisons (p {shown})"
    return [f"Chance alone would show a difference as large in {often}."]


def decision(document: ComparisonDocument) -> str:
    """Return what counts as a slowdown here, and what would have been detected."""
    found, noun = document.detection, noun_of(document, 1)
    said = []
    if found.floor is not None and found.alpha is not None:
        said.append(
            f"A slowdown counts if it is larger than {format_ns(found.floor)} a {noun} and chance "
            f"alone would show one as large in fewer than {found.alpha:.2g} of comparisons."
        )
    if found.detectable is not None and document.verdict != "anomaly":
        said.append(
            "This comparison would have detected a mean slowdown of "
            f"{format_ns(found.detectable)} four times in five."
        )
    return " ".join(said)


_ALIKE: Final = (
    ("host", "hosts"),
    ("kernel", "kernels"),
    ("CPU", "processors"),
    ("number of CPUs", "cpus"),
    ("recorder", "tracers"),
    ("profile", "profiles"),
)


def recordings_line(document: ComparisonDocument) -> str:
    """Return how alike two recordings are, in one line."""
    both = document.sets.normal, document.sets.sample
    same: list[str] = []
    other: list[str] = []
    for name, key in _ALIKE:
        values = [getattr(one, key) for one in both]
        if all(values):
            (same if values[0] == values[1] else other).append(name)
    said = [f"same {_listed(same)}"] if same else []
    said += [f"another {_listed(other)}"] if other else []
    said += _apart(both)
    others = [one.machine.others_cpu for one in both if one.machine and one.machine.others_cpu]
    if others:
        said.append(f"others used {max(others):.0%} of the machine".replace("%", " %"))
    lost = sum(one.loss.events for one in both)
    packets = sum(one.loss.packets for one in both)
    if lost or packets:
        said.append(f"{plural(lost, 'event')} and {plural(packets, 'packet')} lost")
    else:
        said.append("no events lost")
    said += _count_left_out(document)
    line = "; ".join(said)
    return f"{line[:1].upper()}{line[1:]}."


def _count_left_out(document: ComparisonDocument) -> list[str]:
    """Return how many requests gaps leave out of each set, of how many."""
    counts = []
    for side, name in (("normal", "before"), ("sample", "after")):
        account = document.sets[side].requests
        of = account.left_out.values() if account else ()
        if gone := sum(one.requests + one.unsure for one in of):
            seen = sum(one.whole - one.unsure for one in of)
            counts.append(f"{gone:,} of {gone + seen:,} {name}")
    return [f"gaps leave out {' and '.join(counts)}"] if counts else []


def _apart(both: tuple[SetEntry, SetEntry]) -> list[str]:
    """Return how long after the first set the second was recorded."""
    spans = []
    for one in both:
        if one.window is None or not one.epochs or not all(one.epochs):
            return []
        if max(one.epochs) - min(one.epochs) < NS_PER_S:  # of one boot: to the nanosecond
            epoch = one.epochs[0]
            spans.append((one.window.begin + epoch, one.window.end + epoch))
            continue
        moments = sorted(_moment(text) for text in one.recorded if text)
        if not moments:
            return []
        spans.append((moments[0], moments[-1]))
    (first, last), (begin, end) = spans
    gap = abs(begin - first) / NS_PER_S
    if gap < 1 or (begin < last and first < end):
        return ["recorded in turns"]
    return [f"recorded {_long(gap)} apart"]


def _moment(text: str) -> int:
    """Return a date of a recording in ns since 1970."""
    from datetime import datetime  # noqa: PLC0415 - start-up time

    return int(datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z").timestamp()) * NS_PER_S


def _long(seconds: float) -> str:
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= 2 * size:
            return plural(round(seconds / size), name)
    return format_ns(round(seconds) * NS_PER_S) if seconds < 1 else f"{seconds:.0f} s"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
