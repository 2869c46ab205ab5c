"""What an exploration says: conditions as people say them, and the answer to a question.

The page counts anew after every selection, with these same sentences: each is a template whose
gaps are names between braces, filled by `fill` here and by its twin in the page's script.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

from critpath.documents.base import as_float
from critpath.model.exploration import (
    FEWEST,
    FEWEST_SELECTED,
    Fact,
    FactTable,
    Question,
    Ranked,
    Test,
)
from critpath.schema.kinds import STATES, State
from critpath.text.phrases import state_words
from critpath.text.requests import CROSSINGS
from critpath.units import format_ns, in_plural

# How a condition on a column is said: in a list, and after "requests" in a headline; a "^" at its
# begin: after "In ... requests,".  {v} is the value, {s} what the column is about.
_PHRASES: Final[dict[str, tuple[str, str]]] = {
    "thread": ("thread `{v}`", "went to thread `{v}`"),
    "process": ("process `{v}`", "went to process `{v}`"),
    "cpu@": ("`{s}` began on CPU {v}", "^`{s}` began on CPU {v}"),
    "cpu": ("ran on CPU {v}", "ran on CPU {v}"),
    "cpus": ("used {v} CPUs or more", "used {v} CPUs or more"),
    "concurrent": ("{v} or more others under way", "began with {v} or more others under way"),
    "pool.waiting": (
        "{v} or more others waiting for a connection",
        "began while {v} or more others waited for a connection",
    ),
    "queue.before": (
        "{v} or more messages before it in a queue",
        "had {v} or more messages before them in a queue",
    ),
    "queue.waited": ("{v} or more in a queue", "lay in a queue for {v} or more"),
    "idle_before": (
        "thread idle for {v} or more before",
        "came to a thread that was idle for {v} or more",
    ),
    "waited_for_cpu_of": ("waited behind `{v}`", "waited behind `{v}` for a CPU"),
    "loop_worked_for": (
        "waited for a loop that worked for `{v}`",
        "waited for a loop that worked for `{v}`",
    ),
    "loop_blocked_by": (
        "waited for a loop that was blocked in a call to `{v}`",
        "waited for a loop that was blocked in a call to `{v}`",
    ),
    "preemptions": ("preempted {v} times or more", "were preempted {v} times or more"),
    "connection": ("connection {v}", "came over connection {v}"),
    "peer": ("from `{v}`", "came from `{v}`"),
    "client": ("asked by `{v}`", "were asked by `{v}`"),
    "bytes_in": ("{v} bytes or more received", "brought {v} bytes or more"),
    "bytes_out": ("{v} bytes or more answered", "were answered with {v} bytes or more"),
    "threads": ("{v} threads or more", "were worked on by {v} threads or more"),
    "cluster": ("cluster {v}", "are in cluster {v}"),
    "service": ("service `{v}`", "are of `{v}`"),
    "message": ("called `{v}`", "are `{v}`"),
    "label": ("label `{v}`", "are `{v}`"),
    "recording": ("recording `{v}`", "are of recording `{v}`"),
    "set": ("{v} set", "are of the {v} set"),
    "hour": ("begun in hour {v} (UTC)", "began in hour {v} (UTC)"),
    "meets": ("met `{v}`", "met `{v}`"),
    "calls.": ("calls `{s}` {v} times or more", "call `{s}` {v} times or more"),
    "asks.": ("asks `{s}` {v} times or more", "ask `{s}` {v} times or more"),
    "latency": ("latency {v} or more", "take {v} or more"),
    "true": ("true latency {v} or more", "take {v} or more themselves"),
    "asked": ("{v} or more in sub-requests", "spend {v} or more in sub-requests"),
    "queued": ("queued {v} or more", "were queued for {v} or more"),
    "parent.latency": ("of a request of {v} or more", "are of a request of {v} or more"),
    "idle.mean": ("waits of {v} or more on average", "have waits of {v} or more on average"),
    "idle.variance": (
        "waits that vary by {v} ns² or more",
        "have waits that vary by {v} ns² or more",
    ),
}
WORDS: Final[dict[str, str]] = {
    "chip.found": "● IN COMMON",
    "chip.more": "● MORE OFTEN",
    "chip.less": "● LESS OFTEN",
    "chip.nothing": "= NOTHING IN COMMON",
    "chip.few": "? TOO FEW",
    "chip.counting": "… COUNTING",
    "some": "{a} of the {m}",
    "every": "all {m}",
    "none": "none of the {m}",
    "slow": "slow",
    "selected": "selected",
    "found": "{amount} {which} {who}{noun} {verb}",
    "found.subject": "In {amount} {which} {who}{noun}, {verb}",
    "few": "{m} of {n} {who}{noun} selected: too few to judge",
    "nothing": "The {m} {which} {who}{noun} have nothing in common that chance would not show",
    "counting": "{m} of {n} {who}{noun}: {what}",
    "asked": "selected: {m} of {n} with {what}",
    "asked of": "selected: {m} with {what} of the {n} with {among}",
    "why": "Of the {n1} with it {p1} {take}, of the {n0} without it{among} {p0}: {r} times as "
    "often (95 % interval {lo} to {hi}).",
    "why.less": "Of the {n1} with it {p1} {take}, of the {n0} without it{among} {p0}: {r} times "
    "less often (95 % interval {lo} to {hi}).",
    "why.never": "Of the {n1} with it {p1} {take}, of the {n0} without it{among} none: at least "
    "{lo} times as often.",
    "among": " that met `{s}`",
    "among.known": " of which that is known",
    "why.few": "Shares are shown; chance is judged from {fewest} {noun} with {least} selected.",
    "why.counting": "Shares are below; chance is being judged.",
    "why.nothing": "{k} conditions were looked at. The largest difference, {condition}, is as "
    "common by chance (p = {p}).",
    "why.nothing.none": "No condition that {least} or more have, and as many have not, was there "
    "to look at.",
    "take": "take {x} or more",
    "are selected": "are selected",
    "times": "{r}\N{MULTIPLICATION SIGN}",
    "times.least": "≥ {r}\N{MULTIPLICATION SIGN}",
    "times.less": "1/{r}",
    "never else": "never else",
    "less often": "less often",
    "as often": "as often",
    "begin": "Known at its begin",
    "begin.more": "or at that of a sub-request",
    "way": "Happened on the way",
    "way.more": "a longer {one} meets more of it",
    "also": "= also {condition}",
    "also.more": "= also {condition}, {k} more",
    "not": "not {condition}",
    "and": "{one} and {other}",
    "more": "{k} more",
    "no difference": "{k} no difference shown",
    "rare": "{k} too rare (fewer than {least})",
    "left out": "{k} not looked at",
    "note": "p: how often chance shows so large a difference in any of these {k} conditions, with "
    "all that happened at a time kept together.",
    "note.few": "Fewer than {fewest} {noun}, or fewer than {least} selected: shares only, chance "
    "is not judged.",
    "note.often": "This is step {k}: who asks often finds something by chance.",
    "part": "Part of the latency: not ranked",
    "part.other": "Part of the selection: not ranked",
    "none.part": "none",
    "foot": "A condition is a difference, not a culprit: it tells where to look next.",
    "all": "all {noun}",
    "announce": "{m} of {n} {noun} selected",
    "typical": "Typical of the selection:",
    "typical.others": "Typical of the others:",
    "chosen": "Chosen, selected:",
    "chosen.others": "Chosen, not selected:",
    "added": "Added:",
    "sketch": "{one} {id}, {latency}, begun at {begin}",
    "no script": "Time, processes, clusters and sketches are drawn by the page's script.",
    "sketch.none": "The page has no sketch of this {one}: it has those of {k}.",
    "trace.none": "no request of the trace {id} is in this page",
    "beneath": ", its thread meanwhile {did},",
    "doubtful": "doubtful: whose work this was, or whom it asked",
    "lanes.more": "and {k} more threads",
    "link": "leads there",
    "band": "to another host: the band is as wide as the time may be wrong",
    "dashed": "inferred",
    **CROSSINGS,
    "true of": "true {true} of {latency}",
    "box": "{y} {lo} to {hi}, begun {from} to {to}",
    "bound": "{y} {lo} or more",
    "threads": "{lo} to {hi} in {k} threads",
    "thread": "{lo} to {hi} in thread {k}",
    "or": "{one} or {other}",
    "without": "{one} without {other}",
    "cluster.cpus": "{k} CPUs",
    "cluster.cpu": "1 CPU",
    "cluster.waits": "{lo} to {hi} waits for a CPU",
    "cluster.wait": "{lo} waits for a CPU",
    "cluster.rest": "no kind of its own",
    "clusters": "by label and type",
    "clusters.none": "(no label)",
    "clusters.type": "type {k}",
    "clusters.cpu": "waits for a CPU ± sd",
    "clusters.idle": "one wait, mean ± sd",
}
_ONCE: Final = re.compile(r"\b1 (?:separate )?times or more")
_GAP: Final = re.compile(r"\{([a-z0-9]+)\}")


def fill(template: str, facts: Mapping[str, object]) -> str:
    """Fill the gaps of a template; what fills one is not looked at again."""
    return _GAP.sub(lambda gap: str(facts.get(gap[1], "")), template)


def say(name: str, **facts: object) -> str:
    """Return a sentence by its name, its gaps filled."""
    return fill(WORDS[name], facts)


def say_condition(template: str, fact: Fact, value: str) -> str:
    """Fill a phrase; explore.js does it alike."""
    return _ONCE.sub("at least once", fill(template, {"v": value, "s": fact.subject}))


def phrases_of(fact: Fact) -> tuple[str, str]:
    """Return how conditions on a column are said: in a list, and in a headline."""
    for name in (fact.name, fact.name.partition("@")[0] + "@", fact.name.partition(".")[0] + "."):
        if name in _PHRASES:
            return _PHRASES[name]
    kind, _, symbol = fact.name.partition(".")
    state, _, role = symbol.partition("@")
    if kind in {"count", "time"} and state in STATES:
        doing = state_words(State[state])
        if role:  # somebody else's: he is the subject
            much = "for {v} or more" if kind == "time" else "{v} separate times or more"
            return f"`{{s}}` {doing}, {much}", f"^`{{s}}` was {doing}, {much}"
        if kind == "time":
            return f"{doing} {{v}} or more", f"spend {{v}} or more {doing}"
        return f"{doing} {{v}} separate times or more", f"were {doing} {{v}} separate times or more"
    value = "`{v}`" if fact.kind == "text" else "{v}"
    if fact.each or fact.kind == "text":
        return f"{fact.name} {value}", f"have {fact.name} {value}"
    return f"{fact.name} {value} or more", f"have {fact.name} {value} or more"


def value_text(fact: Fact, test: Test) -> str:
    """Return the value of a condition as people read it."""
    if isinstance(test.value, str):
        return test.value or "(none)"
    number = float(test.value[0])
    return format_ns(number) if fact.kind == "time" else number_text(number)


def number_text(value: float) -> str:
    """Return a number of things: whole ones as they are, others with three digits."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else f"{value:.3g}"


def condition_text(tests: Sequence[Test], facts: Mapping[str, Fact]) -> str:
    """Return a condition as a list has it."""
    shown = [
        say_condition(phrases_of(fact)[0], fact, value_text(fact, test))
        for test in tests
        for fact in (facts[test.field],)
    ]
    return shown[0] if len(shown) == 1 else say("and", one=shown[0], other=shown[1])


def describe_clusters(table: FactTable) -> dict[int, str]:
    """Return what tells each type from the others, as people say it."""
    return {number: condition_text([test], table.facts) for number, test in table.telling.items()}


def command_of(test: Test, facts: Mapping[str, Fact]) -> str:
    """Return a condition as ``--given`` takes it."""
    fact = facts[test.field]
    field = test.field if re.fullmatch(r"[^\W\d][\w.@#:/*+-]*", test.field) else f"`{test.field}`"
    if isinstance(test.value, str):
        return f"{field} {test.operator} {quoted_text(test.value)}"
    return f"{field} {test.operator} {exact_number(float(test.value[0]), time=fact.kind == 'time')}"


def command_text(tests: Sequence[Test], facts: Mapping[str, Fact]) -> str:
    """Return one or two conditions as ``--given`` takes them."""
    return " and ".join(command_of(test, facts) for test in tests)


def quoted_text(text: str) -> str:
    """Return a text as conditions quote it."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def exact_number(value: float, *, time: bool) -> str:
    """Return a number that is read back as it was; times in the largest unit that is exact."""
    if not time:
        return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
    if value != int(value):
        return f"{value!r}ns"
    whole = int(value)
    for scale, unit in ((1_000_000, "ms"), (1_000, "us")):
        if whole % scale == 0:
            return f"{whole // scale}{unit}"
    return f"{whole}ns"


def percent(share: float) -> str:
    """Return a share as a percentage; none and all are said only where they are."""
    if 0 < share < 0.005:  # technical: how a number is rounded
        return "<1 %"
    if 0.995 < share < 1:  # technical: how a number is rounded
        return ">99 %"
    return f"{math.floor(share * 100 + 0.5)} %"


def figure(value: float) -> str:
    """Return a ratio with two digits."""
    if not math.isfinite(value):
        return "–"
    if value < 1:
        return f"{value:.2g}"
    # technical: how a number is rounded
    return f"{value:.1f}" if value < 9.95 else f"{math.floor(value + 0.5):,}"


def chance(p: float | None) -> str:
    """Return a p-value with three digits and no 0 before the point."""
    if p is None:
        return "–"
    if p < 0.001:  # technical: how a number is rounded
        return "<.001"
    return f"{p:.3f}"[1:] if p < 0.9995 else "1.00"  # technical: how a number is rounded


def describe_question(question: Question, table: FactTable) -> tuple[str, str, str]:
    """Return a question's answer: the chip, the headline, the line below it."""
    who = f"`{question.label}` " if question.label else ""
    slow = question.bound is not None
    facts = {
        "m": f"{question.selected:,}",
        "n": f"{question.executions:,}",
        "who": who,
        "noun": in_plural(table.noun),
        "which": WORDS["slow" if slow else "selected"],
        "fewest": FEWEST,
        "least": FEWEST_SELECTED,
    }
    best = question.best
    if question.answer == "few":
        return say("chip.few"), say("few", **facts), say("why.few", **facts)
    if best is None:
        return say("chip.nothing"), say("nothing", **facts), _nothing(question)
    count = best.having.count
    amount = "every" if count == question.selected else "some" if count else "none"
    fact = table.facts[best.tests[0].field]
    verb = say_condition(phrases_of(fact)[1], fact, value_text(fact, best.tests[0]))
    if len(best.tests) > 1:
        verb = f"^{best.words}"
    subject = verb.startswith("^")
    sentence = say(
        "found.subject" if subject else "found",
        **{**facts, "amount": say(amount, a=f"{count:,}", **facts), "verb": verb.removeprefix("^")},
    )
    bound = question.bound
    take = say("are selected") if bound is None else say("take", x=format_ns(bound))
    # What fewer than half of them have they do not have in common.
    most = 2 * count >= question.selected
    chip = "chip.less" if best.z < 0 else "chip.found" if most else "chip.more"
    return say(chip), sentence[0].upper() + sentence[1:], _why(best, take, table)


def _nothing(question: Question) -> str:
    if not question.ranked:
        return say("why.nothing.none", least=FEWEST_SELECTED)
    largest = question.ranked[0]
    return say(
        "why.nothing",
        k=f"{question.looked:,}",
        condition=largest.words,
        p=f"{as_float(largest.p):.2f}",
    )


def _why(best: Ranked, take: str, table: FactTable) -> str:
    ratio, (low, high) = best.ratio, best.ratio_interval
    facts: dict[str, object] = {
        "n1": f"{best.having.of:,}",
        "n0": f"{best.without.of:,}",
        "p1": percent(best.having.share),
        "p0": percent(best.without.share),
        "take": take,
        "among": _among(best, table),
    }
    if best.z < 0:
        less = {"r": figure(1 / ratio), "lo": figure(1 / high), "hi": figure(1 / low)}
        return say("why.less", **facts, **less)
    if not best.without.count:
        return say("why.never", **facts, lo=figure(max(1.0, low)))
    return say("why", **facts, r=figure(ratio), lo=figure(low), hi=figure(high))


def _among(best: Ranked, table: FactTable) -> str:
    """Say within which executions a condition is compared, "" for all of them."""
    some = [fact for fact in (table.facts[test.field] for test in best.tests) if not_all(fact)]
    if not some:
        return ""
    subjects = dict.fromkeys(fact.subject for fact in some if fact.subject)
    return "".join(say("among", s=name) for name in subjects) or say("among.known")


def not_all(fact: Fact) -> bool:
    """Tell whether some executions have no value, so that they are not compared."""
    return fact.valid is not None and not bool(fact.valid.all())


def times_text(ratio: Sequence[float], *, more: bool, never: bool) -> tuple[str, str]:
    """Return how many times as often, and its interval; ``never``: none without the condition."""
    middle, low, high = ratio
    if min(ratio) <= 0:  # of a file that others wrote
        return "–", "–"
    if more and never:
        return (say("times.least", r=figure(low)) if low > 1 else "–"), say("never else")
    if middle >= 1:
        return say("times", r=figure(middle)), f"{figure(low)}–{figure(high)}"
    return say("times.less", r=figure(1 / middle)), say("less often")


def also_text(conditions: Sequence[tuple[Sequence[Test], bool]], facts: Mapping[str, Fact]) -> str:
    """Return what else holds for the same executions, or all others, "" for nothing."""
    if not conditions:
        return ""
    tests, other = min(conditions, key=lambda one: one[1])
    shown = condition_text(tests, facts)
    shown = say("not", condition=shown) if other else shown
    if len(conditions) == 1:
        return say("also", condition=shown)
    return say("also.more", condition=shown, k=len(conditions) - 1)


def labels_left_out(labels: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    """Say which labels nothing was asked about, each with how many executions it has."""
    if not labels:
        return ()
    named = ", ".join(f"{name or '(none)'} ({n:,})" for name, n in labels[:5])
    more = f" and {len(labels) - 5:,} more" if len(labels) > 5 else ""
    return (f"not asked about, as fewer have them: {named}{more}; --given looks at one",)


def small_print(question: Question) -> tuple[str, str]:
    """Return what the list leaves out, and how chance was judged."""
    if question.answer == "few":
        note = say("note.few", fewest=FEWEST, least=FEWEST_SELECTED, noun="of them")
        return "", note
    none = sum(not one.sure for one in question.ranked)
    parts = [
        say("no difference", k=f"{none:,}"),
        say("rare", k=f"{question.rare:,}", least=FEWEST_SELECTED),
        *([say("left out", k=f"{question.left_out:,}")] if question.left_out else []),
    ]
    note = say("note", k=f"{question.looked:,}")
    return " · ".join(parts), note


def without_paths() -> str:
    """How little a saved comparison can be asked, and what can be asked all."""
    return (
        "a saved comparison has no paths but those that it explains: nothing is known of waits and "
        "CPUs; compare --explore FILE has all"
    )
