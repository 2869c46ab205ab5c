"""The answer in the words that people share: the headline, why, what else is to know.

A sentence and the picture beside it come from the same figures of the document.  Names of a
trace stand between backticks; they are not yet safe to show.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from critpath.model.comparison import is_surely_faster
from critpath.schema.kinds import MACHINE_STATES
from critpath.schema.parameters.detect import COMPARABILITY
from critpath.schema.parameters.shared import DEFAULTS, KINDS
from critpath.schema.parameters.text import ANSWERS, WORDS
from critpath.text.explanation import (
    describe_cause,
    describe_cost,
    due_to,
    find_effect,
    find_examined,
    find_whose_code,
    peer_name,
)
from critpath.text.page import noun_of
from critpath.text.phrases import in_place, listed, name_kind, quoted
from critpath.text.recognized import find_level, kind_of, warnings_with_levels
from critpath.units import format_ns, format_pair, format_share, plural

if TYPE_CHECKING:
    from critpath.documents import (
        CauseEntry,
        CauseFacts,
        ComparisonDocument,
        KindEntry,
        StateEntry,
        WeatherEntry,
    )
    from critpath.documents.base import SetName
    from critpath.schema.causes import CauseKind
    from critpath.schema.notes import Remark

SIGNS: Final = {"SLOWER": "▲", "FASTER": "▼", "OK": "✓", "INCONCLUSIVE": "?"}
_SEVERAL: Final = 3  # technical
_RIVALS: Final = 3  # technical: that are named
_MACHINE_STATES: Final = frozenset(state.name for state in MACHINE_STATES)

_OWN_TIMERS: Final = frozenset({"hrtimer", "process_timeout", "TIMER", ""})


class Headline(Struct, frozen=True):
    """What became of the requests, in a line.

    Attributes
    ----------
    word, sign : str
        SLOWER, FASTER, OK or INCONCLUSIVE, and the character before it.
    sentence : str
        Without a full stop.
    label : str or None
        The kind of request that it is about; None for none, or for several.
    before, after : float or None
        The two durations in it (ns).
    positions : frozenset of int
        Of the sample's requests that it is about.
    by_machine : bool
        Strangers made them slower.
    """

    word: str
    sentence: str
    label: str | None = None
    before: float | None = None
    after: float | None = None
    positions: frozenset[int] = frozenset()
    by_machine: bool = False

    @property
    def title(self) -> str:
        """The word, and whose doing it is where that is not the program's."""
        return f"{self.word}, BY THE MACHINE" if self.by_machine else self.word

    @property
    def sign(self) -> str:
        """The character that stands for the word."""
        return SIGNS[self.word]


def describe_headline(document: ComparisonDocument) -> Headline:
    """Return what became of the requests."""
    if document.verdict == "inconclusive":
        return Headline("INCONCLUSIVE", _sentence(_doubt(document)[0]))
    if document.verdict == "anomaly":
        return _slower(document)
    if document.verdict == "by_machine":
        return replace(_slower_by_machine(document), by_machine=True)
    faster = changed_kinds(document, "faster")
    if faster and _faster_in_all(document):
        return _by_mean("FASTER", document, faster)
    total = _total(document)
    slight = _slight(document)
    if slight is not None and total is not None and total.normal_mean:
        share = format_share(slight / total.normal_mean)
        within = _limit(document, (document.detection.floor or 0.0) / total.normal_mean)
        return Headline("OK", f"{_requests(document)} are {share} slower, within {within}")
    kinds = [kind for kind in _kinds(document) if kind.label]
    if len(kinds) > 1:
        return Headline("OK", f"No slowdown found in any kind of {noun_of(document, 1)}")
    subject = _requests(document, kinds[0].label) if kinds else _requests(document).lower()
    return Headline("OK", f"No slowdown found in {subject}")


def describe_why(document: ComparisonDocument) -> str:
    """Return the second line: the first cause, or what could have been seen, or what to do."""
    headline = describe_headline(document)
    if headline.word == "INCONCLUSIVE":
        return _doubt(document)[1]
    weather = document.detection.weather
    if headline.by_machine and weather is not None:
        return describe_weather(weather)
    cause = first_cause(document, headline.word)
    if cause is not None:
        they = is_same(headline, cause)
        return f"{describe_cause(document, cause, they=they)}{describe_cost(cause)}."
    if headline.word == "SLOWER":
        return "No single step explains it: it is spread over small differences."
    return _seen(document)


def describe_weather(weather: WeatherEntry) -> str:
    """Return who had the CPUs, where and for how long, and how much of a slowdown that is."""
    cpu = f"CPU {weather.cpus[0]}" if len(weather.cpus) == 1 else ""
    names = [
        f"`{one.name}`{in_place(one.place)} {format_share(one.share)}"
        for one in weather.rivals[:_RIVALS]
    ]
    first = weather.rivals[0] if weather.rivals else None
    if first is not None and first.share >= WORDS.mostly:
        others = f" ({format_share(first.share)} of it)" if first.share < ANSWERS.same else ""
        whose = f"{cpu or 'a CPU'}, which `{first.name}`{in_place(first.place)} had{others}"
    else:
        whose = f"{cpu or 'CPUs'} that others had ({', '.join(names)})" if names else "a CPU"
    one, other = (" ".join(part) for part in format_pair(weather.before, weather.after))
    share = format_share(min(weather.explains, 1.0))
    return f"They wait {other} instead of {one} for {whose}: {share} of the slowdown."


def describe_hints(document: ComparisonDocument) -> list[str]:
    """Return which other profile would tell more of the first cause, as sentences."""
    cause = first_cause(document, describe_headline(document).word)
    facts = cause.facts if cause else None
    known = {*document.sets.normal.profiles, *document.sets.sample.profiles}
    if cause is None or facts is None or not known or (cause.contribution or 0.0) < 0:
        return []
    main = document.findings[cause.main]
    # A timer of another name is one that the kernel runs for somebody.
    if main.state == "WAIT_TIMER" and main.detail not in _OWN_TIMERS and not facts.call:
        return []
    wanted = _choose_options(kind_of(document, cause, facts), facts, known)
    if any(one.facts and _has_places(one.facts) for one in document.causes):
        wanted = [option for option in wanted if option in _PROFILES]
    options = dict.fromkeys(part for option in wanted for part in _OPTIONS[option][0].split(", "))
    if not options:
        return []
    told = listed([_OPTIONS[option][1] for option in wanted])
    return [f"Record again with `{' '.join(options)}`: it {told}."]


# What an option of a recording adds, as it is given and what it tells.
_OPTIONS: Final = {
    "io": ("--profile io", "names the disk, and whose requests kept it busy"),
    "locks": ("--profile locks", "names who has the lock, if the sleeps are for one"),
    "syscalls": ("--profile syscalls", "tells system calls from their own code"),
    "calls": ("--profile syscalls, --files", "names the call that they sleep in, and its peer"),
    "functions": ("--stacks auto", "names the functions"),
    "files": ("--stacks auto, --files", "names the code, and the file"),
    "peers": ("--stacks auto, --files", "names the code, and whom the call is for"),
}
_PROFILES: Final = frozenset({"io", "locks", "syscalls", "calls"})
# Calls that sleep for as long as they were told: nobody has a lock.
_SLEEPING_CALLS: Final = re.compile(r"p?poll|p?select6?|_?newselect|epoll_\w+|\w*nanosleep|pause")


def _choose_options(kind: CauseKind, facts: CauseFacts, known: set[str]) -> list[str]:
    """Return what else would tell more of a cause than the profiles that are known."""
    calls = bool(known & {"syscalls", "full"})
    own = bool(known & {kind.profile, "full"})
    if kind.id == "own-code":
        asked = find_whose_code(facts) in {"", "kernel"} and not (calls or facts.location)
        return [*(["syscalls"] if asked else []), "functions"]
    if kind.id == "system-call":
        return ["functions"]
    if kind.id == "disk":
        return [*([] if own else ["io"]), "files"]
    if kind.id == "sleep" and (facts.call or not calls):
        if _SLEEPING_CALLS.fullmatch(facts.call):
            return ["peers"]
        if not calls:
            return ["calls"]
    return [kind.profile] if kind.profile and not own else []


def _has_places(facts: CauseFacts) -> bool:
    """Tell whether something is known of where in the code a cause is: stacks were recorded."""
    return bool(facts.location or facts.locations or facts.waits_at or facts.waker_location)


def first_cause(document: ComparisonDocument, word: str) -> CauseEntry | None:
    """Return the cause that the second line tells, None for none."""
    if word not in {"SLOWER", "FASTER"}:
        return None
    way = 1 if word == "SLOWER" else -1
    told = [c for c in document.causes if way * (c.contribution or 0.0) > 0]
    if document.detection.flagged and not document.detection.slow:
        # One execution of many is not what two sets differ by.
        least = min(2, document.sets.sample.executions)
        told = [c for c in told if len(c.positions) >= least]
    return told[0] if told else None


def listed_causes(document: ComparisonDocument, most: int) -> list[tuple[int, CauseEntry]]:
    """Return the causes to list with their numbers on the page: those of the answer's direction.

    Where nothing is decided, those of a slowdown: none of them is decided (`is_decided`).
    """
    word = describe_headline(document).word
    if word == "OK" or (word == "INCONCLUSIVE" and not document.detection.flagged):
        return []
    way = -1 if word == "FASTER" else 1
    numbered = enumerate((one for one in document.causes if not one.minor), 1)
    told = [(n, one) for n, one in numbered if way * (one.contribution or 0.0) > 0]
    return keep_largest(told, most)


def keep_largest(causes: list[tuple[int, CauseEntry]], most: int) -> list[tuple[int, CauseEntry]]:
    """Return the first of some causes, and always the one with most time, in place of the last."""

    def time_in_all(numbered: tuple[int, CauseEntry]) -> float:
        return abs(numbered[1].contribution or 0.0) * len(numbered[1].positions)

    kept = causes[:most]
    largest = max(causes, key=time_in_all, default=None)
    if largest is None or largest in kept or most < 2:
        return kept
    return [*kept[:-1], largest]


def is_decided(document: ComparisonDocument) -> bool:
    """Tell whether causes are of a change that the answer states."""
    return document.verdict != "inconclusive"


def first_peer(document: ComparisonDocument) -> str:
    """Return the thread that the first cause waits for, as pictures name it; "" for none."""
    cause = first_cause(document, describe_headline(document).word)
    facts = cause.facts if cause else None
    return peer_name(facts) if facts and facts.role else ""


def first_figures(document: ComparisonDocument, executions: int) -> tuple[float | None, str]:
    """Return what the first cause comes to, and what it is due to, as its sentence has it.

    None where it is of other requests than so many slow ones, or takes less time.
    """
    cause = first_cause(document, describe_headline(document).word)
    of = len(find_examined(document)) or executions
    if cause is None or cause.facts is None or len(cause.positions) != of:
        return None, ""
    lost = find_effect(cause)
    if lost <= 0:
        return None, ""
    return lost, f"for {due}" if (due := due_to(cause.facts.because)) else ""


def mean_of(document: ComparisonDocument, executions: int) -> str:
    """Return ``mean of 5`` where the first cause's times are of fewer requests, else ""."""
    cause = first_cause(document, describe_headline(document).word)
    # Where some were examined for all, a cause of all these stands for all.
    of = len(find_examined(document)) or executions
    fewer = cause is not None and len(cause.positions) < of
    return f"mean of {executions:,}" if fewer else ""


def is_same(headline: Headline, cause: CauseEntry) -> bool:
    """Tell whether a cause's requests are nearly all that the headline is about."""
    return bool(headline.positions) and (
        len(headline.positions & {*cause.positions}) >= ANSWERS.same * len(headline.positions)
    )


def tells_of_few(document: ComparisonDocument, kind: KindEntry) -> bool:
    """Tell whether a kind's slow requests are a part of it, and lost most of what it lost.

    Where others were examined with them, these have the same causes.
    """
    examined = {one.position for one in document.aligned}
    marked = document.rows("sample", "position", "label", "anomalous", of=examined)
    if any(label == kind.label and not slow for _, label, slow in marked):
        return False
    before, after = (float(mean or 0.0) for mean in kind.mean)
    lost = kind.slow * (float(kind.usual[1] or 0.0) - before)
    few = 0 < kind.slow < ANSWERS.most_of_kind * kind.executions[1]
    return few and lost >= ANSWERS.mostly * (after - before) * kind.executions[1]


def is_usual(remark: Remark) -> bool:
    """Tell whether a note is of normal operation, and no warning."""
    return find_level(remark) == "usual"


def serious_warnings(document: ComparisonDocument) -> list[str]:
    """Return the warnings that change what one may believe: what is normal operation is none."""
    said = []
    for side, name in (("normal", "before"), ("sample", "after")):
        one = document.sets[side]
        if one.loss.events or one.loss.packets:
            lost = plural(
                one.loss.events or one.loss.packets, "event" if one.loss.events else "packet"
            )
            touched = f": {one.lossy:,} of {one.executions:,} {noun_of(document)} touched"
            said.append(f"The recording before lost {lost}{touched}.".replace("before", name, 1))
    hosts = {of.host for side in ("normal", "sample") for of in document.sets[side].clocks}
    said += [
        warning if warning.partition(":")[0] in hosts else _sentence(warning)
        for warning, level in warnings_with_levels(document)
        if level != "usual"
    ]
    return said


def left_out(document: ComparisonDocument) -> list[str]:
    """Return what says that requests are not compared which somebody who counts them would miss."""
    return [said for said, level in warnings_with_levels(document) if level == "left-out"]


def unusual_warnings(document: ComparisonDocument) -> list[str]:
    """Return the warnings without what is of normal operation."""
    return [said for said, level in warnings_with_levels(document) if level != "usual"]


def changed_kinds(document: ComparisonDocument, change: str) -> list[KindEntry]:
    """Return the kinds of request that became slower, or faster: what lost most comes first."""
    return [kind for kind in _kinds(document) if kind.change == change]


def describe_chance(p: float) -> str:
    """Say how often chance alone makes as large a difference."""
    if p >= ANSWERS.common:
        return f"Differences as large are common by chance here (p = {p:.2g})."
    often = f"{round(1 / p, 1 - len(str(int(1 / p)))):,.0f}"
    few, digits = ("fewer than", 1) if p < ANSWERS.least_chance else ("about", 2)
    return (
        f"Chance alone would show a difference as large in {few} 1 of {often} comparisons "
        f"(p = {p:.{digits}g})."
    )


# The headline, case by case.


def _kinds(document: ComparisonDocument) -> Sequence[KindEntry]:
    return document.pictures.kinds if document.pictures else ()


def _requests(document: ComparisonDocument, label: str = "") -> str:
    """Return what is compared, in the plural, as a sentence begins."""
    several = noun_of(document)
    called = name_kind(label, several)
    return called.capitalize() if called == several else called


def _positions(document: ComparisonDocument, label: str, *, slow: bool) -> frozenset[int]:
    mine = document.column("sample", "label") == label
    if slow:
        mine &= document.column("sample", "anomalous")
    return frozenset(document.column("sample", "position")[mine].tolist())


def _everybody(document: ComparisonDocument) -> frozenset[int]:
    return frozenset(document.column("sample", "position").tolist())


def _slower(document: ComparisonDocument) -> Headline:
    slower = changed_kinds(document, "slower")
    tail = _tail(document)
    if tail is not None:
        return tail
    if not slower:
        return (
            _work(document)
            or _step(document)
            or Headline("SLOWER", f"Some {_requests(document).lower()} became slower")
        )
    main = slower[0]
    of = main.executions[1]
    times = _times(document)
    if min(main.executions) < KINDS.fewest and len(_kinds(document)) > 1 and times:
        # No kind has enough to be judged by itself.
        everybody = _everybody(document)
        return _said("SLOWER", _requests(document), None, times, everybody)
    # Means, as the bars below have them; of files of earlier versions, medians.
    few = main.usual if main.slow_mean is None else [main.mean[0], main.slow_mean]
    if tells_of_few(document, main) and None not in few:
        before, after = float(few[0] or 0), float(few[1] or 0)
        if after > before:
            one, other = (" ".join(part) for part in format_pair(before, after))
            noun = _requests(document, main.label)
            take = "takes" if _count_slow(main) == "1" else "take"
            subject = f"{_count_slow(main)} of {of:,} {noun[0].lower()}{noun[1:]}"
            positions = _positions(document, main.label, slow=True)
            sentence = f"{subject} {take} {other} instead of {one}"
            return Headline("SLOWER", sentence, main.label, before, after, positions)
    step = _step(document) if len(_kinds(document)) == 1 else None
    return _work(document) or step or _by_mean("SLOWER", document, slower)


def _count_slow(kind: KindEntry) -> str:
    """Return how many of a kind are slow: ``12``, or ``10 to 14`` where that is not sure."""
    if kind.affected is None or kind.affected_low == kind.affected_high:
        return f"{kind.slow:,}"
    return f"{kind.affected_low:,} to {kind.affected_high:,}"


def _slower_by_machine(document: ComparisonDocument) -> Headline:
    """Tell of the kinds that strangers hit; of all of each, as who was unlucky is chance."""
    weather = document.detection.weather
    named = weather.kinds if weather else []
    kinds = _kinds(document)
    hit = [kind for kind in kinds if kind.label in named]
    times = _times(document)
    if not named and times:
        everybody = _everybody(document)
        only = kinds[0].label if len(kinds) == 1 else ""
        return _said("SLOWER", _requests(document, only), only or None, times, everybody)
    return _by_mean("SLOWER", document, hit) if hit else _slower(document)


def _work(document: ComparisonDocument) -> Headline | None:
    """Tell of work that surely takes longer where others' time hides that in the whole."""
    work, times = document.detection.work, _times(document)
    if work is None or not work.decides or not times or not work.mean:
        return None
    labels = {kind.label for kind in _kinds(document)}
    label = labels.pop() if len(labels) == 1 else None
    everybody = _everybody(document)
    both = work.mean, work.mean + work.effect
    said = _said("SLOWER", _requests(document, label or ""), label, both, everybody)
    what, _, figures = said.sentence.partition(": ")
    before, after = (" ".join(part) for part in format_pair(*times))
    within = f"the whole, {before} → {after}, is within noise"
    return replace(said, sentence=f"{what} in their own work, {figures}; {within}")


def _step(document: ComparisonDocument) -> Headline | None:
    """Tell of states that became surely longer where the whole time may as well have not."""
    total, times = _total(document), _times(document)
    flagged = [one for one in document.states if one.flagged and one.state != "total"]
    longer = max((one.effect or 0.0 for one in flagged), default=0.0)
    if total is None or total.flagged or (total.effect_low or 0.0) > 0 or longer <= 0 or not times:
        return None
    before, after = (" ".join(part) for part in format_pair(*times))
    labels = {kind.label for kind in _kinds(document)}
    label = labels.pop() if len(labels) == 1 else None
    return Headline(
        "SLOWER",
        f"A step of {_lower(_requests(document, label or ''))} takes {format_ns(longer)} longer; "
        f"the whole, {before} → {after}, is within noise",
        label,
        positions=_everybody(document),
    )


def _by_mean(word: str, document: ComparisonDocument, kinds: list[KindEntry]) -> Headline:
    """Tell a change by the means of the kind that lost or won most, or of all kinds.

    Means before are in the mix of types of after, so that they differ by the effect.
    """
    main = kinds[0]
    ratios = [_ratio(kind) for kind in kinds]
    judged = [kind for kind in _kinds(document) if kind.change != "few"]
    several = len(kinds) >= _SEVERAL and len(kinds) == len(judged)
    positions = _positions(document, main.label, slow=False)
    label: str | None = main.label
    before, after = (float(mean or 0.0) for mean in main.mean)
    subject = _requests(document, main.label)
    times = _times(document)
    if several and max(ratios) <= ANSWERS.alike * min(ratios) and times:
        subject = f"All {len(kinds)} kinds of {_requests(document).lower()}"
        before, after = times
        positions, label = frozenset(), None
    return _said(word, subject, label, (before, after), positions)


def _said(
    word: str,
    subject: str,
    label: str | None,
    times: tuple[float, float],
    positions: frozenset[int],
) -> Headline:
    before, after = times
    one, other = (" ".join(part) for part in format_pair(before, after))
    ratio = after / before if before else math.inf
    if ratio <= 1 and word == "SLOWER":
        return Headline(
            word, f"A step of {_lower(subject)} takes longer, the whole does not", label
        )
    if ratio >= ANSWERS.times:
        what = f"take {_count(ratio)} times as long"
    else:
        share = format_share(abs(ratio - 1)) if math.isfinite(ratio) else "much"
        what = f"are {share} {'slower' if ratio > 1 else 'faster'}"
    return Headline(word, f"{subject} {what}: {one} → {other}", label, before, after, positions)


def _tail(document: ComparisonDocument) -> Headline | None:
    """Tell a verdict that a percentile gave."""
    gate = document.detection.gate
    if gate is None or gate.normal is None or gate.sample is None:
        return None
    one, other = (" ".join(part) for part in format_pair(gate.normal, gate.sample))
    noun = _requests(document, gate.label)
    sentence = (
        f"The slowest {format_share(1 - gate.q).replace('.0 %', ' %')} of {_lower(noun)} "
        f"take {other} or more instead of {one}"
    )
    return Headline("SLOWER", sentence, gate.label or None, gate.normal, gate.sample)


def _ratio(kind: KindEntry) -> float:
    before, after = kind.mean
    return (after or 0.0) / before if before else math.inf


def _lower(text: str) -> str:
    return text if text.startswith("`") else f"{text[0].lower()}{text[1:]}"


def _sentence(text: str) -> str:
    return text if text.startswith("`") else f"{text[:1].upper()}{text[1:]}"


def _count(value: float) -> str:
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"  # technical: how a number is rounded


def _total(document: ComparisonDocument) -> StateEntry | None:
    return next((s for s in document.states if s.state == "total"), None)


def _times(document: ComparisonDocument) -> tuple[float, float] | None:
    """Return the mean durations before and after, whatever states decide; None if unknown."""
    test = document.detection.whole or _total(document)
    if test is None or not test.normal_mean:
        return None
    return float(test.normal_mean), float(test.normal_mean) + float(test.effect or 0.0)


def _faster_in_all(document: ComparisonDocument) -> bool:
    if document.detection.faster is not None:
        return document.detection.faster
    total = _total(document)
    if total is None or total.effect_high is None:
        return False
    return is_surely_faster(
        total.effect_high,
        -(total.effect or 0.0),
        total.normal_mean or 0.0,
        (
            (-(one.effect or 0.0), one.normal_mean or 0.0)
            for symbol, one in zip(document.symbols, document.states, strict=False)
            if one.level == "error" and symbol.state in _MACHINE_STATES
        ),
        floor=document.detection.floor or 0.0,
        apart=document.detection.apart,
    )


def _faster_by_machine(document: ComparisonDocument) -> float:
    """Return by how much the mean fell, where the machine alone may do so; 0 for not at all."""
    total = _total(document)
    if total is None or not total.effect or not total.normal_mean or not document.detection.apart:
        return 0.0
    return max(-total.effect / total.normal_mean, 0.0)


def _slight(document: ComparisonDocument) -> float | None:
    """Return a slowdown that is certain and below the limit (ns), None for none."""
    total = _total(document)
    if total is None or not total.effect or total.effect <= 0 or total.level != "error":
        return None
    sure = total.p_value is not None and total.p_value <= (document.detection.alpha or 0.0)
    below = total.effect < (document.detection.floor or 0.0)
    return float(total.effect) if sure and below else None


def _limit(document: ComparisonDocument, floor: float) -> str:
    """Return which limit holds (share): the setting's, or a higher one of recordings before."""
    limit = document.settings.get("floor")
    if not isinstance(limit, float):
        return "your limit"
    if floor <= ANSWERS.raised * limit:
        return f"your limit of {format_share(limit)}"
    return f"the {format_share(floor)} that recordings before may differ by"


def _describe_shown(document: ComparisonDocument) -> str:
    """Say which slowdown would have been detected; "" where that is not known."""
    detection, total = document.detection, _total(document)
    mean = total.normal_mean if total else None
    if detection.detectable is None:
        return ""
    share = f" ({format_share(detection.detectable / mean)})" if mean else ""
    kinds = [kind for kind in _kinds(document) if kind.label]
    of_all = ", on average over all kinds," if len(kinds) > 1 else ""
    whole = f"{format_ns(detection.detectable)}{share}"
    work = detection.work
    if work is not None and work.detectable and mean and work.mean:
        # Where strangers hide more of the whole than of what was done without them.
        shown = work.detectable / work.mean
        if shown < ANSWERS.clearer * detection.detectable / mean:
            own = f"{format_ns(work.detectable)} ({format_share(shown)}) or more{of_all}"
            return (
                f"A slowdown of {own} would have been detected, the time that others had the CPUs "
                f"left out; with it, {whole}."
            )
    return f"A slowdown of {whole} or more{of_all} would have been detected."


def _describe_usual(document: ComparisonDocument) -> str:
    """Say how much longer the usual one may take, where only that is known; else ""."""
    detection, total = document.detection, _total(document)
    usual, work = detection.usual, detection.work
    if usual is None or total is None or not total.normal_mean:
        return ""
    shown = [(detection.detectable or math.inf) / total.normal_mean]
    shown += [(work.detectable or math.inf) / work.mean] if work and work.mean else []
    if min(shown) <= _least(document):
        return ""
    noun = noun_of(document, 1)
    said = f"the usual {noun} takes at most {format_share(max(usual.high, 0.0))} longer"
    if work is None:
        return f"{_sentence(said)}."
    more = f" They had them for {format_ns(work.taken)} longer a {noun}, which may be chance."
    return (
        f"Without the time that others had the CPUs, {said}."
        f"{more if work.taken > (detection.floor or 0.0) else ''}"
    )


def _seen(document: ComparisonDocument) -> str:
    """Say of an answer of OK what would have been seen."""
    detection, total = document.detection, _total(document)
    slight = _slight(document)
    if slight is not None:
        limit = format_ns(detection.floor or 0.0)
        return f"+{format_ns(slight)} a {noun_of(document, 1)}; the limit is {limit}."
    if detection.detectable is None:
        return document.reasons[0] if document.reasons else ""
    moved = (total.effect if total else None) or 0.0
    if total is not None and moved > detection.detectable and total.p_value is not None:
        return f"The mean moved by {format_ns(moved, sign=True)}. {describe_chance(total.p_value)}"
    said = _describe_usual(document) or _describe_shown(document)
    if changed_kinds(document, "faster") and (fell := _faster_by_machine(document)):
        said += f" The mean is {format_share(fell)} lower, as the machine alone may make it."
    return said


def _least(document: ComparisonDocument) -> float:
    """Return the share of the mean of which a slowdown has to show before the answer is OK."""
    setting = document.settings.get("least")
    return float(setting) if isinstance(setting, float) else DEFAULTS.least


# Inconclusive: what is missing, and what to type.


def _doubt(document: ComparisonDocument) -> tuple[str, str]:
    """Return what keeps an answer from being given, and what to do."""
    looks = (
        *(_lost, _nothing_in_common, _too_few, _different_machines, _machine_may),
        *(_stranger_came, _too_noisy),
    )
    for look in looks:
        if found := look(document):
            return found
    first = document.reasons[0] if document.reasons else "the recordings do not tell"
    return first.removesuffix(": record more runs"), "Record more runs."


def _lost(document: ComparisonDocument) -> tuple[str, str] | None:
    sides: tuple[tuple[SetName, str], ...] = (("normal", "before"), ("sample", "after"))
    for side, name in sides:
        one = document.sets[side]
        torn = (document.column(side, "lossy") & document.column(side, "anomalous")).any()
        if one.lossy > COMPARABILITY.lossy * one.executions or torn:
            lost = one.loss.events
            share = lost / (lost + one.events) if lost else one.lossy / max(one.executions, 1)
            # Packets lost are counted, not what was in them.
            what = f"{format_share(share)} of its events"
            if not lost:
                what = f"packets in {format_share(share)} of its {noun_of(document)}"
            do = "with larger buffers, `--buffer-size`, or fewer events, `--profile minimal`"
            said = f"the {name} recording lost {what}"
            return said, f"Record {name} again {do}."
    return None


def _nothing_in_common(document: ComparisonDocument) -> tuple[str, str] | None:
    detection = document.detection
    known = [kind for kind in _kinds(document) if kind.label]
    if detection.enough or detection.needed or any(all(kind.executions) for kind in known):
        return None
    said = f"the recordings have no kind of {noun_of(document, 1)} in common"
    has = [listed([quoted(k.label) for k in known if k.executions[i]]) for i in (0, 1)]
    named = f"Before has {has[0]}, after has {has[1]}. " if all(has) else ""
    return said, f"{named}Were the same programs recorded?"


def _too_few(document: ComparisonDocument) -> tuple[str, str] | None:
    detection = document.detection
    fewest = min(document.sets.normal.executions, document.sets.sample.executions)
    needed = max(0 if detection.enough else detection.needed, detection.minimum)
    gate = detection.gate
    if gate is not None and None in {gate.low, gate.high}:
        needed = max(needed, gate.needed)
    if needed <= fewest:
        return None
    return (
        f"not enough {noun_of(document)} to decide: {fewest:,}, and {needed:,} are needed",
        f"Record at least {needed:,} of each: `critpath record -n {needed} ...`",
    )


def _different_machines(document: ComparisonDocument) -> tuple[str, str] | None:
    """Tell in what the machines differ where no verdict may rest on that."""
    if not document.settings.get("strict_environment"):
        return None
    sides = document.sets.normal, document.sets.sample
    for key in ("hosts", "machines", "processors", "cpus", "kernels", "tracers"):
        one, other = (getattr(side, key) for side in sides)
        if one and other and one != other:
            what = f"{', '.join(map(quoted, one))} and {', '.join(map(quoted, other))}"
            do = "Record both on one machine, in turns: `critpath record --interleave A B`."
            return f"the recordings are from different machines: {what}", do
    return None


def _stranger_came(document: ComparisonDocument) -> tuple[str, str] | None:
    """Tell who came and has a CPU, though others gave way to it."""
    came = document.detection.came
    if came is None:
        return None
    one, other = (" ".join(part) for part in format_pair(came.before, came.after))
    cpu = f"CPU {came.cpus[0]}" if came.cpus else "CPUs"
    who = listed([_lower(_requests(document, kind)) for kind in came.kinds])
    who = _sentence(who or noun_of(document))
    said = f"{who} wait {other} instead of {one} for {cpu}, which `{came.rivals[0].name}` had"
    return said, (
        "Others had it for about as long before, so whether that made them slower is not known. "
        "Record in turns: `critpath record --interleave A B`, or run `critpath ab`."
    )


def _too_noisy(document: ComparisonDocument) -> tuple[str, str] | None:
    """Tell that a slowdown of the least share would not have shown, and how many would do."""
    detection, total = document.detection, _total(document)
    if not detection.would_do or total is None or not total.normal_mean:
        return None
    limit = _least(document)
    least = format_share(limit)
    noun, gate = noun_of(document), detection.gate
    do = f"Record more: about {detection.would_do:,} {noun} of each would do."
    fewest = min(document.sets.normal.executions, document.sets.sample.executions)
    if detection.would_do > ANSWERS.many_more * fewest:
        do = (
            "More of the same would hardly do: keep others from its CPUs (`taskset`), or run "
            "`critpath ab`, which goes on in short blocks until it is known."
        )
    if gate is not None:
        return f"{gate.name} of these {noun} may have risen by {least} or more, or not at all", do
    shown = detection.detectable
    if total.p_value is not None and total.p_value <= (detection.alpha or 0.0):
        said = f"something differs, and whether {noun} became {least} slower is not known"
        return said, f"{describe_chance(total.p_value)} {do}"
    said = f"these {noun} vary too much to see a slowdown of {least}"
    if shown is not None and shown <= limit * total.normal_mean:
        said = f"{noun} may have become {least} slower, or not at all"
    return said, f"{_describe_shown(document)} {do}".strip()


def _machine_may(document: ComparisonDocument) -> tuple[str, str] | None:
    """Tell that the machine alone may have made a slowdown of recordings made apart."""
    total = _total(document)
    if not (document.detection.apart and document.detection.flagged):
        return None
    machines = document.sets.normal.machine, document.sets.sample.machine
    before, after = (one.others_cpu if one else None for one in machines)
    do = "Record in turns: `critpath record --interleave A B`, or run `critpath ab`."
    said = document.reasons[0].split(": `critpath ab`")[0] if document.reasons else ""
    why = f"{_sentence(said)}. " if said else ""
    if before is not None and after is not None and after - before >= ANSWERS.busier:
        shares = f"{format_share(after)} of the CPUs, before {format_share(before)}"
        return f"the machine was busier: other programs used {shares}", f"{why}{do}"
    if total is None or not total.effect or total.effect < 0 or not total.normal_mean:
        return None
    ratio = 1 + total.effect / total.normal_mean
    slower = f"are {format_share(ratio - 1)} slower"
    if ratio >= ANSWERS.times:
        slower = f"take {_count(ratio)} times as long"
    said = f"{noun_of(document)} {slower}, and the machine alone may have made them so"
    return said, f"{why}{do}"
