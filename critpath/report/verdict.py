"""The answer in one sentence, and how a document's figures read: shared by renderers."""

from __future__ import annotations

from typing import Any

from critpath.report.palette import KINDS
from critpath.units import format_ns, format_share, plural

_ALL = 1.05  # a share up to this is all of it: what else there is varies, too


def headline(document: dict[str, Any]) -> str:
    """Return the verdict in one sentence, for example ``OK: no anomaly in ...``.

    An anomaly is told by its largest cause, everything else by its first reason;
    text of the trace in it is not yet safe to show.
    """
    verdict = document["verdict"]
    told = [cause["sentence"] for cause in document["causes"]] if verdict == "anomaly" else []
    told += document["reasons"]
    return f"{verdict.upper()}: {told[0] if told else _without_reason(document)}"


def further_reasons(document: dict[str, Any]) -> list[str]:
    """Return the reasons that the headline does not already tell."""
    first = headline(document)
    return [reason for reason in document["reasons"] if not first.endswith(f": {reason}")]


def _without_reason(document: dict[str, Any]) -> str:
    sizes = {which: document["sets"][which]["executions"] for which in ("normal", "sample")}
    sentence = f"{plural(sizes['sample'], 'execution')} against {sizes['normal']:,}"
    if document["verdict"] == "ok":
        return f"no anomaly in {sentence}"
    if document["verdict"] == "anomaly":
        return f"{plural(document['outliers']['anomalous'], 'anomalous execution')}: {sentence}"
    return sentence


def sensitivity(document: dict[str, Any]) -> str | None:
    """Return what change these sets could have shown, None where it is not known."""
    detection = document["detection"]
    if not detection["enough"]:
        return (
            f"The smaller set needs {plural(detection['needed'], 'execution')} before the test "
            f"can decide at level {figure(detection['alpha'])}."
        )
    if detection["detectable"] is None:
        return None
    total = next((s for s in document["states"] if s["state"] == "total"), None)
    mean = total["normal_mean"] if total else None
    share = f" ({format_share(detection['detectable'] / mean)})" if mean else ""
    return (
        f"The smallest change of the mean duration that would have shown: "
        f"{format_ns(detection['detectable'], sign=True)}{share}."
    )


def difference(document: dict[str, Any]) -> str | None:
    """Return the difference of the mean durations with its interval, None if unknown."""
    total = next((s for s in document["states"] if s["state"] == "total"), None)
    if total is None or None in {total["effect"], total["effect_low"], total["effect_high"]}:
        return None
    low, high = (format_ns(total[f"effect_{end}"], sign=True) for end in ("low", "high"))
    return (
        f"Mean duration: {format_ns(total['effect'], sign=True)} "
        f"(95 % interval {low} to {high}); increases below "
        f"{duration(document['detection']['floor'])} are not judged."
    )


def by_the_paper(document: dict[str, Any]) -> str:
    """Return what the paper's rules say of the states, and what that is worth."""
    rules = ("average_fires", "probability_fires")
    fired = [s["state"] for s in document["states"] if any(s[rule] for rule in rules)]
    fired = [name for name in fired if name != "total"]
    rate = share(document["detection"]["paper_false_alarms"])
    said = f"they do in {rate} of random splits of these executions"
    if not fired:
        return f"The paper's rules fire for no state; {said}."
    return f"The paper's rules fire for {plural(len(fired), 'state')}; {said}."


def duration(ns: float | None, *, sign: bool = False) -> str:
    """Return a duration, or a dash where it is undefined."""
    return "-" if ns is None else format_ns(ns, sign=sign)


def kind_of(aligned: dict[str, Any], finding: dict[str, Any]) -> str:
    """Return how a finding differs, and that normal executions differ as much if they do.

    That is said where enough of them were aligned to tell.
    """
    kind = KINDS.get(finding["kind"], finding["kind"])
    usual = not finding["abnormal"] and not aligned["note"]
    return f"{kind} (not unusual)" if usual else kind


def figure(value: float | None) -> str:
    """Return a plain figure, or a dash where it is undefined."""
    return "-" if value is None else f"{value:g}"


def share(value: float | None) -> str:
    """Return a share as a percentage, or a dash where it is undefined."""
    return "-" if value is None else format_share(value)


def share_of_excess(value: float | None) -> str:
    """Return a cause's share in words, "" where it is no part of a whole.

    What took less time has none, and makes the others' sum larger than 1.
    """
    if value is None or value < 0:
        return ""
    if value > _ALL:
        return "more than the whole excess, as other things took less time"
    return f"{format_share(min(value, 1.0))} of the whole excess"


def main_causes(document: dict[str, Any], most: int) -> list[dict[str, Any]]:
    """Return the causes to list: the minor ones not among them, at most `most`."""
    return [cause for cause in document["causes"] if not cause.get("minor")][:most]


def cause_sentence(cause: dict[str, Any]) -> str:
    """Return a cause as every report lists it: its sentence, and its share where it has one."""
    part = share_of_excess(cause["share"])
    return f"{cause['sentence']}: {part}" if part else str(cause["sentence"])


def other_causes(document: dict[str, Any], shown: int) -> str:
    """Return what a list of causes leaves out, in one line; "" where that is nothing.

    Parameters
    ----------
    document : dict
    shown : int
        How many of `main_causes` are listed.
    """
    listed = main_causes(document, shown)
    rest = [cause for cause in document["causes"] if cause not in listed]
    if not rest:
        return ""
    executions = {position for cause in rest for position in cause["positions"]}
    total = sum((cause["contribution"] or 0.0) * len(cause["positions"]) for cause in rest)
    return (
        f"and {plural(len(rest), 'smaller difference')} in "
        f"{plural(len(executions), 'execution')}, {format_ns(total, sign=True)} in all"
    )


def unexplained(document: dict[str, Any]) -> str:
    """Return what the findings leave over, "" where nothing was examined."""
    rest = [one["unexplained"] for one in document["aligned"] if one["unexplained"] is not None]
    if not rest:
        return ""
    mean = sum(rest) / len(rest)
    where = "each of" if len(rest) > 1 else "in"
    return (
        f"unexplained: {format_ns(mean, sign=True)} {where} "
        f"{plural(len(rest), 'execution')} examined"
    )


def probability(value: float | None) -> str:
    """Return a p-value with as many digits as it carries."""
    if value is None:
        return "-"
    return "<0.0001" if value < 0.0001 else f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def left_out(count: int, noun: str) -> str:
    """Return the line that says what a table does not show."""
    return f"{plural(count, noun)} left out; the JSON has them all." if count > 0 else ""


def by_excess(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return executions or alignments, the largest excess first, then by position."""
    return sorted(rows, key=lambda r: (-(r["excess"] or 0), r["position"]))


def anomalous(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the anomalous executions, the largest excess first."""
    return by_excess([row for row in document["executions"] if row["anomalous"]])


def findings_of(document: dict[str, Any], position: int) -> list[dict[str, Any]]:
    """Return the findings of one sample execution, by rank."""
    mine = [f for f in document["findings"] if f["position"] == position]
    return sorted(mine, key=lambda f: f["rank"])
