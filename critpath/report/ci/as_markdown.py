"""A comparison as GitHub-flavoured Markdown: a job's summary, or a comment on a request.

Nothing in it acts: no markup of a trace, no mention, no link.  Backslashes and character
references are not enough: mentions, issue references and e-mail addresses are looked for
in the text that they leave, and only code is left out of that.  So a word either is
harmless - letters and digits with our own sentences' punctuation - or stands in a code
span.  So do states, and names that a sentence has between backticks, harmless or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from critpath.documents import ComparisonDocument, StateEntry
from critpath.report.palette import LOOKS
from critpath.text import sentences, verdict
from critpath.units import plural, safe_text

# A comment may have 65,536 characters, a job's summary 1 MiB: this fits both.
MOST_BYTES: Final = 60_000
_MOST_SENTENCES: Final = 10


@dataclass(frozen=True)
class _Size:
    """How much of everything is shown."""

    causes: int
    states: int
    executions: int
    aligned: int
    findings: int
    pairs: int


_SIZES: Final = (
    _Size(causes=20, states=70, executions=30, aligned=5, findings=10, pairs=20),
    _Size(causes=8, states=20, executions=10, aligned=3, findings=5, pairs=8),
    _Size(causes=3, states=5, executions=3, aligned=1, findings=2, pairs=0),
)


def render_markdown(document: ComparisonDocument, *, most: int = MOST_BYTES) -> str:
    """Render a comparison as Markdown.

    Parameters
    ----------
    document : dict
        From `comparison_document` or `load_document`.
    most : int
        Bytes of UTF-8 that it may have.

    Returns
    -------
    str
        The verdict, the causes, the states (flagged ones first), the anomalous executions;
        findings of the worst of them and how it was decided, folded.  What there is no room
        for is counted where it would stand; a text that would still be too long ends with a
        line that says so.  "" where there is no room even for the verdict.
    """
    for size in _SIZES:
        text = "\n\n".join(_blocks(document, size)) + "\n"
        if len(text.encode()) <= most:
            return text
    return _fitting(list(_blocks(document, _SIZES[-1])), most)


def _fitting(blocks: list[str], most: int) -> str:
    """Return the first blocks, as many as there is room for, and how many are left out."""
    for kept in range(len(blocks) - 1, 0, -1):
        rest = verdict.left_out(len(blocks) - kept, "section")
        text = "\n\n".join([*blocks[:kept], rest]) + "\n"
        if len(text.encode()) <= most:
            return text
    return ""


def _blocks(document: ComparisonDocument, size: _Size) -> Iterator[str]:
    yield f"### critpath: {document.verdict}"
    yield inert(verdict.headline(document))
    said = verdict.further_reasons(document)
    said += [sentences.set_in_short(document, which, quoted) for which in ("normal", "sample")]
    yield from _list(said + [f"warning: {warning}" for warning in sentences.warnings_of(document)])
    yield from _causes(document, size)
    yield from _states(document, size)
    yield from _durations(document, size)
    yield from _executions(document, size)
    yield from _findings(document, size)
    yield from _clusters(document, size)
    yield from _decided(document)


def _list(texts: list[str]) -> Iterator[str]:
    if not texts:
        return
    lines = [f"- {inert(text)}" for text in texts[:_MOST_SENTENCES]]
    beyond = len(texts) - _MOST_SENTENCES
    lines += [f"- {verdict.left_out(beyond, 'line')}"] if beyond > 0 else []
    yield "\n".join(lines)


def _heading(text: str) -> str:
    return f"#### {text}"


def _left_out(count: int, noun: str) -> Iterator[str]:
    if count > 0:
        yield verdict.left_out(count, noun)


def _causes(document: ComparisonDocument, size: _Size) -> Iterator[str]:
    shown = verdict.main_causes(document, size.causes)
    account = verdict.account_sentence(document, len(shown))
    if not shown and not account:
        return
    yield _heading("Causes")
    lines = [f"{i}. {inert(verdict.cause_sentence(cause))}" for i, cause in enumerate(shown, 1)]
    yield from ["\n".join(lines)] if lines else []
    rest = verdict.other_causes(document, len(shown))
    yield from [f"{inert(rest)}; the JSON has them all."] if rest else []
    yield from [inert(account)] if account else []


def _states(document: ComparisonDocument, size: _Size) -> Iterator[str]:
    states = verdict.states_by_weight(document)
    flagged = [s for s in states if s.flagged]
    total = [
        structs.replace(s, state=verdict.name_of(document, s))
        for s in document.states
        if s.state == "total"
    ]
    if not states and not total:
        return
    yield _heading("States, mean per execution")
    yield _state_table(total + flagged[: size.states], flags=True)
    yield from _left_out(len(flagged) - size.states, "flagged state")
    others = [s for s in states if not s.flagged]
    if others:
        yield from _folded(
            f"{plural(len(others), 'state')} not flagged",
            [
                _state_table(others[: size.states], flags=False),
                *_left_out(len(others) - size.states, "state"),
            ],
        )


def _durations(document: ComparisonDocument, size: _Size) -> Iterator[str]:
    rows = sentences.durations_by_label(document)
    if not rows:
        return
    yield _heading("Durations, before -> after")
    first, *others = sentences.DURATIONS
    shown = [(quoted(row[0]), *row[1:]) for row in rows[1 : size.states]]
    yield table((first, *(f">{name}" for name in others)), [rows[0], *shown])
    yield from _left_out(len(rows) - 1 - len(shown), "kind")


def _state_table(states: list[StateEntry], *, flags: bool) -> str:
    rows = [
        (
            state.state if state.state == "total" else quoted(state.state),
            verdict.duration(state.normal_mean),
            verdict.duration(state.sample_mean),
            verdict.duration(state.effect, sign=True),
            sentences.counts_of(state),
            verdict.interval(state),
            verdict.probability(state.p_value),
            *([verdict.flag(state)] if flags else []),
        )
        for state in states
    ]
    headers = ("state", ">normal", ">sample", ">effect", ">times", ">95 % interval", ">p")
    return table((*headers, "flagged") if flags else headers, rows)


def _folded(summary: str, blocks: list[str]) -> Iterator[str]:
    """Fold blocks under a line of fixed words: it is HTML, where Markdown does not escape."""
    yield "\n\n".join([f"<details><summary>{summary}</summary>", *blocks, "</details>"])


def _executions(document: ComparisonDocument, size: _Size) -> Iterator[str]:
    rows = verdict.anomalous(document)
    if not rows:
        return
    yield _heading("Anomalous executions")
    cells = [
        (
            row.id + (f" {row.label}" if row.label else ""),
            verdict.duration(row.end - row.begin),
            verdict.duration(row.excess, sign=True),
            verdict.probability(row.p_value),
            verdict.mostly(document, row, quoted),
        )
        for row in rows[: size.executions]
    ]
    yield table(("execution", ">duration", ">excess", ">p", "mostly"), cells)
    yield from _left_out(len(rows) - size.executions, "anomalous execution")


def _findings(document: ComparisonDocument, size: _Size) -> Iterator[str]:
    aligned = verdict.by_excess(document.aligned)
    blocks = []
    for one in aligned[: size.aligned]:
        found = verdict.findings_of(document, one.position)
        if not found:
            continue
        blocks.append(f"Execution {inert(one.execution)}:")
        cells = [
            (
                verdict.what_differs(one, finding, quoted),
                sentences.thread_of(finding, quoted),
                verdict.place_of(finding),
                verdict.duration(finding.observed),
                verdict.duration(finding.expected),
                verdict.duration(finding.contribution, sign=True),
                verdict.share(finding.share),
            )
            for finding in found[: size.findings]
        ]
        headers = ("what", "thread", ">at", ">here", ">normal", ">difference", ">share")
        blocks += [table(headers, cells), *_left_out(len(found) - size.findings, "finding")]
    if blocks:
        blocks += _left_out(len(aligned) - size.aligned, "examined execution")
        yield from _folded("Where the worst of them differ", blocks)


def _clusters(document: ComparisonDocument, size: _Size) -> Iterator[str]:
    pairs = document.clusters.pairs
    if not pairs or not size.pairs:
        return
    sizes = {
        which: {c.cluster: c for c in document.clusters[which].clusters}
        for which in ("normal", "sample")
    }
    cells = []
    for pair in pairs[: size.pairs]:
        row = []
        for which in ("sample", "normal"):
            cluster = sizes[which].get(getattr(pair, which))
            row += [f"{which[0]}{getattr(pair, which)}"]
            row += [f"{cluster.size:,}" if cluster else "-"]
            row += [verdict.duration(cluster.mean_duration) if cluster else "-"]
        cells.append((*row, ", ".join(word for word in ("weak", "novel") if getattr(pair, word))))
    headers = ("sample type", ">size", ">mean", "normal type", ">size", ">mean", "note")
    yield from _folded(
        "Types of executions and their pairs",
        [table(headers, cells), *_left_out(len(pairs) - size.pairs, "pair")],
    )


def _decided(document: ComparisonDocument) -> Iterator[str]:
    settings = sorted(document.settings.items())
    said = [
        verdict.difference(document),
        verdict.sensitivity(document),
        verdict.by_the_paper(document) if document.states else "",
        *(f"note: {note}" for note in document.detection.notes),
        "settings: " + ", ".join(f"{name} {_setting(value)}" for name, value in settings),
    ]
    yield from _folded("How it was decided", list(_list([text for text in said if text])))


def _setting(value: object) -> str:
    """Return a setting as people write it; what would be JSON as a whole, in code."""
    if isinstance(value, list):
        # A list of pairs is an option that may be repeated: STATE=LEVEL.
        said = ["=".join(map(str, one)) if isinstance(one, list) else str(one) for one in value]
        return ", ".join(map(quoted, said)) or "none"
    return quoted(sentences.setting(value)) if isinstance(value, dict) else sentences.setting(value)


MOST_LETTERS: Final = 600

# A name that a sentence quotes, or a word.
_UNITS: Final = re.compile(r"`[^`]+`|[^\s`]+|`")
_WORD: Final = re.compile(r"(\(?'?)(.*?)('?[),.:;%]*)")
# Not a hyphen before a digit: a repository may turn TICKET-1 into a link.
_HARMLESS: Final = re.compile(
    r"[+-]?[A-Za-z0-9]+(?:(?:[.,'_]|-(?=[A-Za-z]))[A-Za-z0-9]+)*"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
)
_STATE: Final = re.compile(f"(?:{'|'.join(LOOKS)})(?:@.*)?")
# Of harmless characters, but an address or a commit.
_LINKED: Final = re.compile(r"www\..*|.*[0-9a-f]{7}.*", re.IGNORECASE)
# What may stand between words, but not begin a line.
_BETWEEN: Final = frozenset({"", "-", "=", "...", "/"})
_NUMBERED: Final = re.compile(r"\d+[.)]+")


def inert(text: str, *, most: int = MOST_LETTERS) -> str:
    """Return one line of Markdown that shows a text and does nothing else."""
    text = safe_text(text.replace("\n", " "))
    if len(text) > most:
        text = f"{text[:most]} ..."
    result = ""
    end = 0
    for match in _UNITS.finditer(text):
        shown = _unit(match.group(), first=not result)
        apart = match.start() > end
        end = match.end()
        # Two spans of code next to each other would be read as one.
        joined = result.endswith("`") and shown.startswith("`")
        result += (" " if result and (apart or joined) else "") + shown
    return result


def _unit(unit: str, *, first: bool) -> str:
    if len(unit) > 2 and unit[0] == unit[-1] == "`":
        return code(unit[1:-1])
    found = _WORD.fullmatch(unit)
    if found is None or (first and _NUMBERED.fullmatch(unit)):
        return code(unit)
    before, word, after = found.groups()
    if word in _BETWEEN and not first:
        return unit
    if _is_plain(word):
        return unit
    return f"{before}{code(word)}{after}" if word else code(unit)


def _is_plain(word: str) -> bool:
    harmless = _HARMLESS.fullmatch(word) and not _LINKED.fullmatch(word)
    return bool(harmless) and not _STATE.fullmatch(word)


def quoted(name: str) -> str:
    """Return a name as sentences quote it, so that `inert` has it in code whatever it is."""
    return name if "`" in name or not name else f"`{name}`"


def code(text: str) -> str:
    """Return a code span that holds a text, whatever backticks are in it."""
    text = safe_text(text.replace("\n", " "))
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    # A backtick at an end would join the fence; one space at both ends is taken off.
    padded = text.startswith(("`", " ")) or text.endswith(("`", " ")) or not text.strip()
    return f"{fence} {text} {fence}" if padded else f"{fence}{text}{fence}"


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of inert cells; a header with ``>`` in front is right-aligned."""
    names = [header.removeprefix(">") for header in headers]
    rule = ["---:" if header.startswith(">") else "---" for header in headers]
    lines = [" | ".join(names), " | ".join(rule)]
    lines += [" | ".join(map(_cell, row)) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def _cell(text: str) -> str:
    # A bar ends a cell even in code, unless a backslash is before it; one that is there
    # already would be taken for that, or not, as the reader goes.
    return inert(text).replace("\\|", "\\ |").replace("|", "\\|")
