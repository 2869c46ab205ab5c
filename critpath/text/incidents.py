"""What an incident is called in one line, and what else is said of the night."""

from __future__ import annotations

from typing import TYPE_CHECKING

from critpath.text.answer import describe_headline, describe_why, first_cause
from critpath.text.explanation import describe_cause, describe_cost
from critpath.text.phrases import listed
from critpath.units import format_pair, log_text, plural, safe_text

if TYPE_CHECKING:
    from critpath.documents import ComparisonDocument, IncidentDocument


def describe_answer(document: ComparisonDocument) -> str:
    """Return an answer in one sentence, without a full stop: the cause, or that there is none."""
    headline, why = describe_headline(document), describe_why(document)
    cause = None if headline.by_machine else first_cause(document, headline.word)
    if cause is not None and cause.facts and cause.facts.executions == cause.facts.of:
        # All that were looked at: whom the line is about.
        why = describe_cause(document, cause, they=True) + describe_cost(cause)
    said = why.replace("`", "").removesuffix(".")
    if headline.word == "SLOWER":
        return f"{said[:1].lower()}{said[1:]}"
    whole = headline.sentence.replace("`", "")
    # How to record more is no advice about a night that is over.
    rest = f". {said}" if said and headline.word != "INCONCLUSIVE" else ""
    return f"{whole[:1].lower()}{whole[1:]}{rest}"


def describe_incident(one: IncidentDocument) -> str:
    """Return the line of an incident: when, whose, how much, why."""
    # Kinds of requests begin with the program: `nginx:80`.
    program = "" if one.kind.startswith(f"{one.program}:") else one.program
    container = "" if f"({one.container})" in one.kind else one.container
    who = " ".join(filter(None, (container, program, one.kind))) or one.trigger.when
    measure = _measure(one) if one.verdict in {"anomaly", "by_machine"} else ""
    whose = "by the machine: " if one.verdict == "by_machine" else ""
    head = " ".join(filter(None, (one.when, one.host, who, measure)))
    line = f"{head}: {whose}{one.sentence}"
    if one.usual.of == "before-deploy":
        line += f"; this is since {listed(one.usual.deployed)} was deployed"
    elif one.usual.of == "dump":
        line += "; it is held against the time before, as nothing usual is kept"
    if one.known:
        line += f"; seen before: {one.known}"
    if one.count > 1:
        line += f" ({plural(one.count, 'time')}, last {one.last})"
    return log_text(safe_text(line))


def _measure(one: IncidentDocument) -> str:
    """Return the highest percentile that is known and rose, before and after."""
    for name in ("p99", "p95", "p50"):
        before, after = getattr(one, name)
        if before is not None and after is not None and after > before:
            low, high = (" ".join(part) for part in format_pair(before, after))
            return f"{name} {low} → {high}"
    return ""


def describe_given_up() -> str:
    """Say that looking at a dump ended the process that did."""
    return "it could not be explained: looking at it was cut off"


def describe_full(place: str) -> str:
    """Say that dumps wait until there is room for incidents."""
    return f"the disk of {place} is full: dumps are looked at when there is room"


def describe_unread(name: str, why: str) -> str:
    """Say that a dump of what is usual is of no use."""
    return why if name in why else f"{name}: {why}"


def describe_lost_state(name: str) -> str:
    """Say that what was kept in mind is damaged."""
    return (
        f"{name} is damaged and begun anew: what was deployed before is forgotten, and dumps of "
        "which no incident is kept are looked at again"
    )


def describe_no_usual() -> str:
    """Say that nothing usual is kept yet."""
    return (
        "nothing usual is kept yet: dumps are held against what they have of the time before; "
        "critpath record --always --usual 1h, or critpath dump --reason healthy, makes some"
    )


def describe_nothing_usual() -> str:
    """Say that there is nothing to hold a dump against."""
    return "nothing usual is kept to hold it against, and it has too little of the time before"


def describe_deployed(names: list[str], when: str) -> str:
    """Say that what is usual begins anew."""
    return (
        f"{listed(names)} was deployed before {when}, or began anew: what is usual from now on is "
        "kept apart from what was usual before"
    )


def describe_new_usual(since: str) -> str:
    """Say that a change has become usual."""
    return f"what is different since {since} lasted a day: from now on it is usual"
