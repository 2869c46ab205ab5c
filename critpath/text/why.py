"""Why an answer is what it is: what it rests on, what would have turned it, numbers used."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from critpath.schema.parameters import (
    CORPORA,
    Chosen,
    Number,
    Paper,
    Parameter,
    list_parameters,
    read_sensitivities,
)
from critpath.schema.parameters.localize import CAUSES
from critpath.text.explanation import describe_because, describe_origins
from critpath.text.page import noun_of
from critpath.units import format_ns, format_share, plural, safe_text

if TYPE_CHECKING:
    from critpath.documents import ComparisonDocument
    from critpath.model import Analysis, Ground, Weight

_SIGNS: Final = {
    "count": ("something is done more often", "machine.more_often"),
    "new": ("something that was not there before", "machine.new"),
    "share": ("longer than the pace of the others makes it", "machine.apart"),
    "kind": ("one kind is slower than the pace of the others makes it", "machine.kind"),
    "quota": ("a quota that held a group back", "machine.other"),
    "clients": ("waits behind requests of new clients", "machine.other"),
    "blocked": ("loops that slept while requests waited for them", "machine.other"),
}
_SAID: Final = {
    "ok": "OK",
    "anomaly": "SLOWER",
    "by_machine": "SLOWER, BY THE MACHINE",
    "inconclusive": "INCONCLUSIVE",
}
_SETS: Final = {"normal": "before", "sample": "after"}
_TESTED: Final = frozenset({"level", "floor", "sure"})
_SHOWN: Final = 3  # technical: changes
_CAUSES: Final = 5  # technical: of which the weight is shown
_ALWAYS: Final = (
    *("causes.shared", "causes.unsure", "causes.unseen"),
    *("causes.minor", "findings.ordinary"),
)


def explain_answer(analysis: Analysis, document: ComparisonDocument) -> list[str]:
    """Return the lines of ``compare --why``."""
    used = dict.fromkeys(_used_by(analysis.grounds))
    grounds = list(_describe_grounds(analysis, document))
    said = grounds or [f"  {reason}" for reason in analysis.reasons]
    lines = [f"Why {_SAID[analysis.verdict]}", *said]
    due = describe_because(document.because)
    if due:
        lines += [f"  the mean differs because of {due}"]
    weights = [cause.weight for cause in analysis.causes]
    if any(weights):
        lines += ["", "Why the causes are in this order", *_order(document, weights)]
        used.update(dict.fromkeys(_ALWAYS))
    lines += ["", "Numbers used (all of them: docs/parameters.md)"]
    parameters = list_parameters()
    for name in used:
        lines += [f"  {line}" for line in describe_parameter(parameters[name])]
    return lines


def _describe_grounds(analysis: Analysis, document: ComparisonDocument) -> Iterator[str]:
    """Yield what the verdict rests on, and what would have turned it."""
    sets = [g for g in analysis.grounds if g.kind == "executions" or (g.kind == "lost" and g.value)]
    yield from _describe_alone(sets, document)
    changes: list[list[Ground]] = []
    for ground in analysis.grounds:
        if ground.kind == "level":
            changes.append([])
        if ground.kind in _TESTED and changes:
            changes[-1].append(ground)
    for mine in changes[:_SHOWN]:
        facts = ", ".join(describe_ground(ground, document)[0] for ground in mine)
        marked = "yes" if all(ground.holds for ground in mine) else "no "
        of = f" of {safe_text(mine[0].label)}" if mine[0].label else ""
        yield f"  {marked} {safe_text(mine[0].name)}{of}: {facts}"
    if changes[_SHOWN:]:
        yield f"      and so {plural(len(changes) - _SHOWN, 'further change')}"
    yield from _turn_tests(analysis, [ground for mine in changes for ground in mine])
    apart = {"percentile", "sign", "signs", "recordings"}
    rest = [g for g in analysis.grounds if g.kind in apart or (g.kind == "floor" and not changes)]
    yield from _describe_alone(rest, document)


def _describe_alone(grounds: Sequence[Ground], document: ComparisonDocument) -> Iterator[str]:
    for ground in grounds:
        fact, turn = describe_ground(ground, document)
        yield f"  {_mark(ground)} {fact}"
        if turn:
            yield f"      {turn}"


def _mark(ground: Ground) -> str:
    return "yes" if ground.holds else "no "


def _turn_tests(analysis: Analysis, tests: Sequence[Ground]) -> Iterator[str]:
    """Yield at which level and floor the gate would have decided otherwise."""
    levels = [ground for ground in tests if ground.kind == "level"]
    floors = [ground for ground in tests if ground.kind == "floor"]
    if analysis.verdict == "anomaly" and levels and floors:
        p = min(ground.value for ground in levels)
        share = max(
            ground.value / ground.limit * analysis.detection.floor_share
            for ground in floors
            if ground.limit > 0
        )
        floor = format_share(share)
        yield f"      at a level below {p:.4g}, or a floor above {floor}, it would be {_SAID['ok']}"
    elif analysis.verdict == "ok" and len(levels) == 1:
        failing = [ground for ground in tests if not ground.holds]
        if failing == levels and levels[0].value < 1:
            yield f"      at a level of {levels[0].value:.4g} the answer would be another"
        if failing == floors and floors[0].value > 0:
            yield f"      with a floor of {format_ns(floors[0].value)} it would be another"


def _used_by(grounds: Sequence[Ground]) -> Iterator[str]:
    for ground in grounds:
        if ground.parameter:
            yield ground.parameter
        if ground.kind == "sign":
            yield _SIGNS[ground.name][1]


def describe_ground(ground: Ground, document: ComparisonDocument) -> tuple[str, str]:
    """Return what was held against what, and what would have turned the answer, "" for nothing."""
    value, limit = _shown(ground.value, ground.unit), _shown(ground.limit, ground.unit)
    noun = noun_of(document)
    lost, won = f"above {value}", f"below {value}"
    if ground.kind == "level":
        fact = f"{'' if ground.holds else 'not '}certain (p = {value}, at most {limit})"
    elif ground.kind == "floor":
        fact = f"{'' if ground.holds else 'not '}large enough ({value}, at least {limit})"
    elif ground.kind == "sure":
        fact = (
            f"{'' if ground.holds else 'not '}surely above nothing "
            f"({value} standard errors, at least {limit})"
        )
    elif ground.kind == "lost":
        fact = f"{value} of the {noun} {_SETS[ground.name]} overlap a loss, at most {limit} may"
        lost = f"if fewer than {value} might"
    elif ground.kind == "executions":
        fact = f"{value} {noun} on the smaller side, at least {limit} are needed"
        lost = f"if more than {value} were needed"
    elif ground.kind == "percentile":
        fact = f"the interval of the difference of {safe_text(ground.name)} begins at {value}"
        lost = "if it began below 0"
    elif ground.kind == "sign":
        fact = f"a sign that the program changed: {_SIGNS[ground.name][0]}, {value} of the increase"
        lost = "without it"
    elif ground.kind == "signs":
        fact, won = "a sign that the program changed, and not the machine: none", "with one"
    else:
        fact = f"{value} slower; recordings of the program differ by {limit}"
        lost, won = f"if they differed by {value}", f"if they differed by less than {value}"
    if not ground.otherwise:
        return fact, ""
    return fact, f"{lost if ground.holds else won} it would be {_SAID[ground.otherwise]}"


def _shown(value: float, unit: str) -> str:
    if unit == "ns":
        return format_ns(value)
    if unit == "share":
        return format_share(value) if math.isfinite(value) else "any"
    return f"{value:.4g}"


def _order(document: ComparisonDocument, weights: Sequence[Weight | None]) -> Iterator[str]:
    """Yield what each cause weighs, and how far it is from being the first."""
    first, *others = (weight for weight in weights if weight is not None)
    for number, (cause, weight) in enumerate(zip(document.causes, weights, strict=True), 1):
        if weight is None or number > _CAUSES:
            continue
        yield f"  {number}. {cause.sentence}"
        due = describe_origins(cause)
        if due:
            yield f"     because of {due}"
        yield f"     weighs {format_ns(weight.value)}: {', '.join(_factors(weight, document))}"
        if weight is first:
            if others and not (first.decisive and not others[0].decisive):
                yield f"     first as long as it weighs more than {format_ns(others[0].value)}"
        elif first.decisive and not weight.decisive:
            yield "     after what the verdict rests on, whatever it weighs"
        elif weight.value > 0:
            yield f"     first if it weighed {first.value / weight.value:,.1f} times as much"
    if weights[_CAUSES:]:
        yield f"  and {plural(len(weights) - _CAUSES, 'further cause')}, which weigh less"


def _factors(weight: Weight, document: ComparisonDocument) -> Iterator[str]:
    """Yield what a weight is made of."""
    yield f"{format_ns(weight.whole)} in all"
    if weight.told != weight.whole:
        yield (
            f"of which {format_ns(weight.told)} count (what normal {noun_of(document)} do as well "
            "times findings.ordinary, waits for a CPU that all share times causes.shared)"
        )
    if weight.moved:
        yield f"less {format_ns(weight.moved)} that may only have moved"
    if weight.executions > 1:
        noun = noun_of(document, weight.executions)
        yield f"times {math.sqrt(weight.executions):.3g}, the root of {weight.executions} {noun}"
    if weight.value > 0 and weight.seen != 1:
        yield f"times {weight.seen:g}, as it was not observed (causes.unseen)"
    if weight.value > 0 and weight.trust != 1:
        least = " (causes.unsure is the least)" if weight.trust == CAUSES.unsure else ""
        yield f"times {weight.trust:.2g}, as far as they are apart from normal ones{least}"
    if weight.decisive:
        yield "and before all on which the verdict does not rest"


def describe_parameter(parameter: Parameter[Number]) -> list[str]:
    """Return a number's name, value, unit, meaning, source, and what changes with it."""
    value = (
        " and ".join(f"{one:g}" for one in parameter.value)
        if isinstance(parameter.value, tuple)
        else f"{parameter.value:g}"
    )
    return [
        f"{parameter.name} = {value} {parameter.unit}: {parameter.what}",
        f"  {describe_source(parameter)}; {describe_flips(parameter)}",
    ]


def describe_source(parameter: Parameter[Number]) -> str:
    """Return where a number is from."""
    source = parameter.source
    if isinstance(source, Chosen):
        return f"chosen on {CORPORA[source.source]}"
    return f"{'from' if isinstance(source, Paper) else 'derived:'} {source.source}"


def describe_flips(parameter: Parameter[Number]) -> str:
    """Return which recorded answers change if a number is halved or doubled."""
    known: Any = read_sensitivities()["parameters"].get(parameter.name)
    if known is None:
        return "no recorded answer reads it"
    told = []
    for factor, word in (("0.5", "halved"), ("2", "doubled")):
        counts = [
            plural(len(known[factor][kind]), noun)
            for kind, noun in (("verdict", "verdict"), ("cause", "first cause"), ("error", "error"))
            if known[factor].get(kind)
        ]
        told.append(f"{word}, {' and '.join(counts)}" if counts else "")
    flips = "; ".join(filter(None, told))
    guard = f", guards {parameter.guards}" if parameter.guards else ""
    of = plural(known["read"], "recorded answer")
    return f"of {of} change, {flips}" if flips else f"none of {of} changes either way{guard}"
