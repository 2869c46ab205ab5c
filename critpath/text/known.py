"""What is said of signatures: whether something was seen before, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from critpath.units import format_ns, plural, safe_text

if TYPE_CHECKING:
    from critpath.documents import ComparisonDocument
    from critpath.documents.known import (
        CheckDocument,
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
        return [*lines, *known.reasons, *known.left_out]
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
    if known.agreement < _AGREE and known.timeline:
        share = f"{100 * known.agreement:.0f} % of the intervals agree"
        lines.append(f"{share}: {', '.join(_stretches(known))}")
    elif known.agreement < _AGREE:
        lines.append(f"{100 * known.agreement:.0f} % of the intervals agree")
    if known.quiet:
        lines.append(
            f"{known.quiet:,} of {plural(known.documents, 'interval')} not judged: "
            "too little happened"
        )
    if known.lossy:
        lines.append(f"{known.lossy:,} of {plural(known.documents, 'interval')} lossy")
    if (first.note or first.link) and not tables:
        lines.append(f"note: {'   '.join(safe_text(t) for t in (first.note, first.link) if t)}")
    return [*lines, *known.reasons, *known.left_out]


_AGREE = 0.8
_STRETCHES = 6
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
    sessions = sum(one.sessions for one in found.labels)
    documents = sum(one.documents for one in found.labels)
    judged = sum(one.judged for one in found.labels)
    store = safe_text(found.store)
    head = f"{store}: {plural(len(found.labels), 'label')}, {plural(sessions, 'session')}, "
    lines = [f"{head}{plural(documents, 'interval')}"]
    if judged:
        right = 100 * sum(one.right for one in found.labels) / judged
        unknown = 100 * sum(one.unknown for one in found.labels) / judged
        rest = f"strangers recognised {100 * found.recognised / found.strangers:.0f} %"
        lines.append(
            f"Across sessions: {right:.1f} % right, {unknown:.1f} % called unknown; "
            f"{rest if found.strangers else 'no stranger to recognise'}"
        )
    for labels in found.twins:
        of = [one for one in found.labels if one.label in labels]
        total = sum(one.judged for one in of)
        wrong = sum(n for one in of for label, n in one.nearest.items() if label != one.label)
        names = ", ".join(map(safe_text, labels))
        lines.append(f"cannot be told apart: {names} ({100 * wrong / max(1, total):.0f} %)")
    single = [safe_text(one.label) for one in found.labels if one.sessions < 2]
    if single:
        lines.append(f"one session only, not judged: {', '.join(single)}")
    if not found.calibrated:
        lines.append(
            "not calibrated: with fewer than 3 sessions of most labels the level of "
            f"{found.level:g} need not hold"
        )
    quiet = sum(one.quiet for one in found.labels)
    if quiet:
        lines.append(f"{plural(quiet, 'interval')} not judged: too little happened")
    lines += [f"nearer to another label than to its own: {safe_text(n)}" for n in found.doubtful]
    return [*lines, *found.notes]


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
