"""What is said of signatures: whether something was seen before, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from critpath.schema.parameters.signatures import LOOKUP
from critpath.units import format_ns, plural, safe_text

if TYPE_CHECKING:
    from critpath.documents import ComparisonDocument
    from critpath.documents.known import (
        CheckDocument,
        CheckedLabel,
        KnownEntry,
        MatchedTermEntry,
        MatchEntry,
    )
    from critpath.model.signatures import Entry


def quiet_entry(name: str) -> str:
    """Return what is left out: an entry without a document to judge."""
    return f"{safe_text(name)}: too little happened in it to say what it is"


def not_comparable_entry(name: str) -> str:
    """Return what is left out: an entry of other events."""
    return f"{safe_text(name)}: counted too few of the same events to be compared"


def nothing_comparable(states: int) -> str:
    """Return why nothing in the store can be compared with what was asked about."""
    if not states:
        return "the store has no states, which are recordings that were added without --normal"
    return "no entry counted enough of the same events: record with the same --events"


def too_few_documents(judged: int, wanted: int, quiet: int) -> str:
    """Return why there is too little to judge."""
    also = f", {quiet:,} in which too little happened" if quiet else ""
    return f"{plural(judged, 'interval')} to judge, {wanted} are needed{also}"


def not_calibrated(judged: int) -> str:
    """Return that too few sessions tell how strange something is."""
    return (
        f"not calibrated: {plural(judged, 'interval')} could be judged by another session of its "
        "label; add more sessions"
    )


def by_interval(sessions: int) -> str:
    """Return what a p-value rests on where sessions are few."""
    return (
        "not calibrated: p is over intervals, which are alike within a session: "
        f"{plural(sessions, 'session')} could be judged, 19 are needed for it to be over sessions"
    )


def level_raised(level: float, wanted: float) -> str:
    """Return that the level is higher than asked for."""
    return f"at level {level:g}: fewer than 200 to compare with cannot show {wanted:g}"


def few_sessions(sessions: float) -> str:
    """Return why the level may not be kept."""
    return f"not calibrated: labels have {sessions:g} sessions as a rule, 3 are needed"


def near_level(p: float, level: float) -> str:
    """Return why an answer could go either way."""
    return f"p = {p:.2g} is within twice the level of {level:g}"


def no_incidents() -> str:
    """Return that the store has none."""
    return "the store has no incidents"


def few_incidents(judged: int, needed: int, like: float) -> str:
    """Return that too few incidents were seen again to tell how strange one is."""
    return (
        f"not calibrated: {plural(judged, 'incident')} could be judged by another of its label, "
        f"{needed} are needed; below a similarity of {like:g} nothing is like another"
    )


# Answers


def describe_answer(known: KnownEntry, *, tables: bool = False) -> list[str]:
    """Return the answer of a store in sentences, the first by itself.

    With ``tables`` terms and notes stand in tables beside it.
    """
    store = safe_text(known.store)
    if known.answer == "not comparable" or not known.matches:
        lines = [f"{_ANSWERS[known.answer]} {store}"]
        return [*lines, *known.reasons, *_few(known.left_out)]
    first = known.matches[0]
    near = f"similarity {first.similarity:.2f}"
    second = _second(known)
    also = f", next best {_name(second)} {second.similarity:.2f}" if second else ""
    sure = f"; p {known.p:.2g}" if known.p is not None else ""
    if known.answer == "unknown":
        head = f"like nothing in {store}: the nearest is {_name(first)} ({near}{sure})"
    else:
        when = f"{plural(first.sessions, 'session')}, last {first.recorded[:10]}"
        word = "like" if known.answer == "known" else "perhaps like"
        head = f"{word} {_name(first)} ({when}; {near}{also}{sure})"
    lines = [head]
    if first.terms and known.answer != "unknown" and not tables:
        lines.append(f"both: {', '.join(describe_term(first, term) for term in first.terms)}")
    if known.agreement < LOOKUP.agree and known.timeline:
        share = f"{100 * known.agreement:.0f} % of the intervals agree"
        lines.append(f"{share}: {', '.join(_stretches(known))}")
    elif known.agreement < LOOKUP.agree:
        lines.append(f"{100 * known.agreement:.0f} % of the intervals agree")
    if known.quiet:
        lines.append(
            f"{known.quiet:,} of {plural(known.documents, 'interval')} not judged: "
            "too little happened"
        )
    if known.lossy:
        lines.append(f"{known.lossy:,} of {plural(known.documents, 'interval')} lossy")
    if (first.note or first.link) and known.answer != "unknown" and not tables:
        lines.append(f"note: {'   '.join(safe_text(t) for t in (first.note, first.link) if t)}")
    return [*lines, *known.reasons, *_few(known.left_out)]


def _few(lines: Sequence[str]) -> list[str]:
    """Return the first of many lines, and how many more there are: JSON has all."""
    more = len(lines) - _LINES
    return [*lines[:_LINES], *[f"and {more:,} more"] * (more > 0)]


_STRETCHES = 6  # technical
_LINES = 5  # technical
_ANSWERS = {
    "known": "known to",
    "unknown": "like nothing in",
    "inconclusive": "cannot be judged by",
    "not comparable": "not comparable with",
}


def _name(match: MatchEntry) -> str:
    """Return a label, with those that cannot be told from it."""
    return safe_text(" or ".join([match.label, *(t for t in match.labels if t != match.label)]))


def _second(known: KnownEntry) -> MatchEntry | None:
    """Return the next label that is not one with the first."""
    together = set(known.matches[0].labels)
    return next((match for match in known.matches if match.label not in together), None)


def describe_term(match: MatchEntry, term: MatchedTermEntry) -> str:
    """Return a term with what it comes to here."""
    name = safe_text(term.term)
    if match.part == "causes":
        return f"{name} {format_ns(term.here)}"
    sign = "+" if match.kind == "incident" and term.here > 0 else ""
    return f"{name} {sign}{term.here:,.0f}/s"


def _stretches(known: KnownEntry) -> list[str]:
    first = known.timeline[0].begin
    shown = known.timeline[:_STRETCHES]
    lines = [
        f"{_clock(s.begin - first)}-{_clock(s.end - first)} {safe_text(s.label) or 'unknown'}"
        for s in shown
    ]
    rest = len(known.timeline) - len(shown)
    return [*lines, f"and {rest:,} more"] if rest else lines


def _clock(ns: int) -> str:
    minutes, seconds = divmod(round(ns / 1e9), 60)
    return f"{minutes:02}:{seconds:02}"


def describe_gone(scope: str) -> str:
    """Return that a control group was removed while it was counted."""
    return f"{safe_text(scope)} is gone: nothing is counted of it any more"


def describe_stale(seconds: float) -> str:
    """Return that the last answer is old: no interval came since."""
    return f"nothing was counted for {seconds:.0f} s: the last answer is as old"


def describe_watched(seen: Mapping[str | None, int], lossy: int, left_out: int) -> str:
    """Return what a watch has seen, in one line."""
    total = sum(seen.values())
    order = sorted(seen, key=lambda name: (name is None, -seen[name], name or ""))
    names = {None: "without an answer", "": "like nothing known"}
    said = {name: names.get(name) or f"like {safe_text(name or '')}" for name in order}
    parts = [f"{seen[name]:,} {said[name]}" for name in order]
    parts += [f"{lossy:,} lossy"] * bool(lossy)
    parts += [f"{left_out:,} left out: this machine is too busy to look them up"] * bool(left_out)
    return f"{plural(total, 'interval')}{': ' * bool(parts)}{', '.join(parts)}"


def describe_seen(document: ComparisonDocument) -> list[str]:
    """Return what a comparison says of what was seen before; nothing where it was not asked."""
    if document.known is None:
        return []
    lines = describe_answer(document.known)
    return [f"Seen before: {lines[0]}.", *lines[1:]]


def describe_check(found: CheckDocument) -> list[str]:
    """Return what a store can tell apart."""
    lines = [f"{safe_text(found.store)}: {count_checked(found)}"]
    if any(one.judged for one in found.labels):
        lines.append(f"Across sessions: {describe_shares(found)}")
    lines += [f"cannot be told apart: {', '.join(of)} ({wrong})" for of, wrong in _twins(found)]
    single = [safe_text(one.label) for one in found.labels if one.sessions < 2]
    if single:
        lines.append(f"one session only, not judged: {', '.join(single)}")
    if not found.calibrated:
        lines.append(_not_calibrated(found))
    quiet = sum(one.quiet for one in found.labels)
    if quiet:
        lines.append(f"{plural(quiet, 'interval')} not judged: too little happened")
    lines += [f"nearer to another label than to its own: {safe_text(n)}" for n in found.doubtful]
    return [*lines, *found.notes]


def _not_calibrated(found: CheckDocument) -> str:
    """Return why the level need not hold: intervals are alike within a session, so these count."""
    judged = f"{plural(found.judged_sessions, 'session')} could be judged by another of its label"
    if found.judged_sessions < found.needed_sessions:
        return (
            f"not calibrated: {judged}, a level of {found.level:g} takes "
            f"{found.needed_sessions:,}: what is known may be called unknown more often"
        )
    return (
        "not calibrated: with fewer than 3 sessions of most labels the level of "
        f"{found.level:g} need not hold"
    )


def count_checked(found: CheckDocument) -> str:
    """Return how much a store has."""
    sessions = sum(one.sessions for one in found.labels)
    documents = sum(one.documents for one in found.labels)
    return (
        f"{plural(len(found.labels), 'label')}, {plural(sessions, 'session')}, "
        f"{plural(documents, 'interval')}"
    )


def describe_shares(found: CheckDocument) -> str:
    """Return how often a store is right, across sessions; some of it must be judged."""
    judged = sum(one.judged for one in found.labels)
    right = 100 * sum(one.right for one in found.labels) / judged
    unknown = 100 * sum(one.unknown for one in found.labels) / judged
    rest = "no stranger to recognise"
    if found.strangers:
        rest = f"strangers recognised {100 * found.recognised / found.strangers:.0f} %"
    return f"{right:.1f} % right, {unknown:.1f} % called unknown; {rest}"


def _twins(found: CheckDocument) -> list[tuple[list[str], str]]:
    """Return labels that cannot be told apart, and the share of their intervals that is wrong."""
    every = []
    for labels in found.twins:
        of = [one for one in found.labels if one.label in labels]
        judged = sum(one.judged for one in of)
        wrong = 100 * (judged - sum(one.right for one in of)) / max(1, judged)
        every.append((list(map(safe_text, labels)), f"{wrong:.0f} %"))
    return every


def head_check(found: CheckDocument) -> tuple[str, str]:
    """Return what a check found in one sentence, and what that lies in, in another."""
    judged = sum(one.judged for one in found.labels)
    if not judged:
        return (
            "Nothing can be judged yet",
            "A label is judged by its other sessions, and none has two in which enough happened.",
        )
    right = sum(one.right for one in found.labels)
    head = f"{100 * right / judged:.1f} % of the intervals are nearest to their own label"
    if found.doubtful:
        nearer = "is nearer to another label than to its own"
        if len(found.doubtful) > 1:
            nearer = "are nearer to another label than to their own"
        return head, f"{plural(len(found.doubtful), 'session')} {nearer}."
    if found.twins:
        (names, wrong), *more = _twins(found)
        also = f"; {plural(len(more), 'other group')} likewise" if more else ""
        joined = f"{', '.join(f'`{n}`' for n in names[:-1])} and `{names[-1]}`"
        return head, f"{joined} cannot be told apart: {wrong} of theirs are wrong{also}."
    if not found.calibrated:
        return head, f"What is unknown is not sure: {_not_calibrated(found)}."
    return head, "Every label is told from the others by sessions that it was not judged with."


def advise_label(one: CheckedLabel, found: CheckDocument) -> list[str]:
    """Return what to do so that a label is judged better; nothing where it is good."""
    store, label = safe_text(found.store), safe_text(one.label)
    if one.documents and one.quiet == one.documents:
        return ["Too little happened: record it while it is busy, or with `--events broad`."]
    if one.sessions < 2:
        return ["Record it again on another day, and add that: one session cannot be judged."]
    advice = []
    for entry in found.doubtful:
        if entry.startswith(f"{one.label}/"):
            name = safe_text(entry)
            advice.append(
                f"`{name}` is nearer to another label. Was it mislabelled? "
                f"`critpath known relabel {store} {name} LABEL`, or `remove`"
            )
    others = [safe_text(n) for of in found.twins if one.label in of for n in of if n != one.label]
    if others:
        advice.append(
            f"Cannot be told from {', '.join(f'`{n}`' for n in others)}: record all of them with "
            f"`--events broad`, or make them one: `critpath known relabel {store} {label} "
            f"{others[0]}`"
        )
    elif not advice and one.judged and one.right < LOOKUP.right * one.judged:
        advice.append("Its sessions differ too much from each other: add more of them.")
    elif not advice and one.judged and one.unknown > 2 * found.level * one.judged:
        advice.append("Often like nothing known, even to its own sessions: add more of them.")
    if one.sessions < _SESSIONS:
        advice.append(f"Add sessions: it has {one.sessions}, {_SESSIONS} are needed.")
    return advice


_SESSIONS = 3  # technical: that calibration needs


# Labels and groups


def label_line(label: str, entries: Sequence[Entry]) -> str:
    """Return what is kept of a label."""
    documents = sum(len(entry.counts) for entry in entries)
    last = max(entry.recorded for entry in entries)[:10]
    kind = entries[0].kind
    return (
        f"{safe_text(label)}: {kind}, {plural(len(entries), 'session')}, last {last}, "
        f"{plural(documents, 'document')}"
    )


def note_line(entry: Entry) -> str:
    """Return what people wrote of a session."""
    said = "   ".join(safe_text(text) for text in (entry.note, entry.link) if text)
    return f"  {entry.recorded[:10]}: {said}"


def usual_term(term: str, weight: float, usual: float) -> str:
    """Return a term of a label beside the mean of all."""
    return f"  {weight:.3f}  (mean of all {usual:.3f})  {safe_text(term)}"


def cause_term(term: str, cost: float) -> str:
    """Return what a term of an incident costs."""
    return f"  {format_ns(cost):>9}  {safe_text(term)}"


def group_line(labels: Sequence[str]) -> str:
    """Return labels that are alike."""
    return f"alike: {', '.join(map(safe_text, labels))}"


def joined_line(one: str, other: str, similarity: float) -> str:
    """Return where two branches of the tree meet."""
    return f"  {similarity:.3f}  {safe_text(one)} | {safe_text(other)}"


def purity_line(purity: float, rand: float) -> str:
    """Return how well groups fit the labels."""
    return f"purity {purity:.3f}, adjusted Rand index {rand:.3f} against the labels"


def members_line(group: int, members: Mapping[str, int]) -> str:
    """Return what is in a group of documents."""
    name = f"group {group + 1}" if group >= 0 else "in none"
    return f"{name}: {', '.join(f'{safe_text(label)} {n:,}' for label, n in members.items())}"
