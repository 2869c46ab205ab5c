"""Text as GitHub-flavoured Markdown in which nothing acts: no markup, mention or link.

Backslashes and character references are not enough: mentions, issue references and e-mail
addresses are looked for in the text that they leave, and only code is left out of that.  So
a word either is harmless - letters and digits with our own sentences' punctuation - or stands
in a code span.  So do states, and names that a sentence has between backticks, harmless or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from critpath.report.palette import LOOKS
from critpath.units import safe_text

MOST_LETTERS: Final = 600

# A name that a sentence quotes, or a word.
_UNITS: Final = re.compile(r"`[^`]+`|[^\s`]+|`")
_WORD: Final = re.compile(r"(\(?'?)(.*?)('?[),.:;%]*)")
# Not a hyphen before a digit: whoever owns a repository may make a link of TICKET-1.
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
    """Return one line of Markdown that shows a text and does nothing else.

    Parameters
    ----------
    text : str
        A sentence with names of the trace in it; a name between backticks stays whole.
    most : int
        Characters to keep; ``...`` stands where it is cut.

    Returns
    -------
    str
        Never begins a block of its own; empty only for a text without a visible character.
    """
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
