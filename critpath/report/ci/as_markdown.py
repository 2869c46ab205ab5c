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
from typing import Final

from msgspec import Struct, structs

from critpath.documents import ComparisonDocument, KindEntry
from critpath.report.palette import LOOKS
from critpath.report.text.answer import answer_parts, cause_line, kind_rows
from critpath.text import sentences, verdict
from critpath.text.answer import (
    describe_headline,
    describe_hints,
    describe_why,
    is_decided,
    listed_causes,
    serious_warnings,
)
from critpath.text.explanation import describe_other_causes, explained
from critpath.text.known import describe_seen
from critpath.text.page import recordings_line, small_print
from critpath.units import safe_text

# A comment may have 65,536 characters, a job's summary 1 MiB: this fits both.
MOST_BYTES: Final = 60_000
_MOST_NAMES: Final = 6


class _Size(Struct, frozen=True):
    """How much of everything is shown."""

    causes: int
    kinds: int
    states: int
    said: int
    bars: bool


_SIZES: Final = (
    _Size(causes=6, kinds=8, states=8, said=6, bars=True),
    _Size(causes=3, kinds=4, states=5, said=4, bars=True),
    _Size(causes=2, kinds=2, states=2, said=2, bars=False),
)


def render_markdown(document: ComparisonDocument, *, most: int = MOST_BYTES) -> str:
    """Render a comparison as Markdown, in fewer than 60 lines.

    Parameters
    ----------
    document : dict
        From `comparison_document` or `load_document`.
    most : int
        Bytes of UTF-8 that it may have.

    Returns
    -------
    str
        The answer in the first line, why, bars, kinds of request, causes; the states and how it
        was decided, folded.  What there is no room for is counted where it would stand; a
        text that would still be too long ends with a line that says so.  "" where there is no
        room even for the answer.
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
    headline = describe_headline(document)
    word = headline.word if headline.word == "OK" else headline.title.capitalize()
    yield f"**{headline.sign} {word}: {inert(_ended(headline.sentence))}**"
    yield inert(describe_why(document))
    warned = serious_warnings(document)
    yield from _list([f"⚠ {_ended(warning)}" for warning in warned], size.said)
    bars, _, _ = answer_parts(document)
    if bars and size.bars:
        yield _drawn(["".join(words for words, _ in line).rstrip() for line in bars])
    yield from _kinds(document, size)
    yield from _causes(document, size)
    yield from [inert(line) for line in describe_seen(document)[:1]]
    small = [*small_print(document), *describe_hints(document)]
    yield from [inert(" ".join(map(_ended, small)))] if small else []
    yield from _states(document, size)
    yield from _decided(document, size)
    yield f"{inert(recordings_line(document))} · critpath {inert(document.version)}"


def _ended(said: str) -> str:
    """Return a sentence with its full stop: on a terminal the line is its end."""
    return said if said.endswith((".", "?", "!", ":")) else f"{said}."


def _drawn(lines: list[str]) -> str:
    """Return lines as they are, in a fence that none of them can close."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *map(safe_text, lines), fence])


def _list(texts: list[str], most: int) -> Iterator[str]:
    if not texts:
        return
    lines = [f"- {inert(text)}" for text in texts[:most]]
    beyond = len(texts) - most
    lines += [f"- {verdict.left_out(beyond, 'line')}"] if beyond > 0 else []
    yield "\n".join(lines)


def _kinds(document: ComparisonDocument, size: _Size) -> Iterator[str]:
    rows, rest = kind_rows(document, size.kinds)
    if rows:
        headers, *cells = rows
        shown = [(quoted(row[0]), *row[1:]) for row in cells]
        yield table((headers[0], *(f">{name}" for name in headers[1:])), shown)
    lines = [f"{_names(kinds)}: {what}." for kinds, what in rest]
    yield from ["\n".join(lines)] if lines else []


def _names(kinds: Sequence[KindEntry]) -> str:
    named = ", ".join(code(kind.label) for kind in kinds[:_MOST_NAMES])
    beyond = len(kinds) - _MOST_NAMES
    return f"{named} and {beyond:,} more" if beyond > 0 else named


def _causes(document: ComparisonDocument, size: _Size) -> Iterator[str]:
    listed = listed_causes(document, size.causes)
    if not listed and describe_headline(document).word not in {"SLOWER", "FASTER"}:
        return
    lines = [f"{i}. {inert(_ended(cause_line(document, cause)))}" for i, cause in listed]
    shown = [cause for _, cause in listed]
    rest = [cause for cause in document.causes if cause not in shown]
    other = describe_other_causes(document, rest)
    said = [_ended(f"{other[0].upper()}{other[1:]}")] if other else []
    said += [explained(document, document.causes)] if is_decided(document) else []
    yield from ["\n".join(lines)] if lines else []
    yield from [" ".join(inert(one) for one in said if one)] if any(said) else []


def _states(document: ComparisonDocument, size: _Size) -> Iterator[str]:
    states = verdict.states_by_weight(document)
    total = [
        structs.replace(s, state=verdict.name_of(document, s))
        for s in document.states
        if s.state == "total"
    ]
    if not states and not total:
        return
    rows = [
        (
            state.state if state in total else quoted(state.state),
            f"{verdict.duration(state.normal_mean)} → {verdict.duration(state.sample_mean)}",
            verdict.duration(state.effect, sign=True),
            sentences.counts_of(state),
            verdict.interval(state),
            verdict.probability(state.p_value),
            verdict.flag(state),
        )
        for state in [*total, *states[: size.states]]
    ]
    headers = ("state", ">mean", ">change", ">times", ">95 % interval", ">p", "flagged")
    yield from _folded(
        "States and their tests",
        [table(headers, rows), *_left_out(len(states) - size.states, "state")],
    )


def _left_out(count: int, noun: str) -> Iterator[str]:
    if count > 0:
        yield verdict.left_out(count, noun)


def _folded(summary: str, blocks: list[str]) -> Iterator[str]:
    """Fold blocks under a line of fixed words: it is HTML, where Markdown does not escape."""
    yield "\n\n".join([f"<details><summary>{summary}</summary>", *blocks, "</details>"])


def _decided(document: ComparisonDocument, size: _Size) -> Iterator[str]:
    settings = sorted(document.settings.items())
    paper = document.states and document.detection.rule == "paper"
    said = [
        *verdict.further_reasons(document)[: size.said // 2],
        verdict.difference(document),
        verdict.sensitivity(document),
        verdict.by_the_paper(document) if paper else "",
        *(f"note: {note}" for note in document.detection.notes[: size.said // 4]),
    ]
    lines = [text for said_ in said if (text := said_ or "")][: size.said]
    lines.append("settings: " + ", ".join(f"{name} {_setting(value)}" for name, value in settings))
    yield from _folded("How it was decided", list(_list(lines, size.said + 1)))


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
    r"[+-]?[A-Za-z0-9]+(?:(?:[.,'_]|-(?=[A-Za-z]))[A-Za-z0-9]+)*|µs"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
)
_STATE: Final = re.compile(f"(?:{'|'.join(LOOKS)})(?:@.*)?")
# Of harmless characters, but an address or a commit.
_LINKED: Final = re.compile(r"www\..*|.*[0-9a-f]{7}.*", re.IGNORECASE)
# What may stand between words, but not begin a line.
_BETWEEN: Final = frozenset({"", "-", "=", "...", "/", "→", "⚠", "–"})
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
    if word in _BETWEEN and (not first or word in {"⚠", "–"}):
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
