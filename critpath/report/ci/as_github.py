"""A comparison as annotations of a GitHub workflow run: lines that its runner acts on."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from critpath.documents import ComparisonDocument, StateEntry
from critpath.report.text.answer import cause_line
from critpath.text import sentences, verdict
from critpath.text.answer import describe_headline, describe_why, serious_warnings
from critpath.units import plural, safe_text

# GitHub shows ten of each kind a step and drops the others without a word.
MOST: Final = 10
_MOST_LETTERS: Final = 2_000
_MOST_WARNINGS: Final = 3
_MOST_WARNING: Final = 300

_DATA: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY: Final = _DATA | str.maketrans({":": "%3A", ",": "%2C"})
_LEVELS: Final = {
    "ok": "notice",
    "anomaly": "error",
    "by_machine": "warning",
    "inconclusive": "warning",
}


class Annotation(Struct, frozen=True):
    """One annotation.

    Attributes
    ----------
    level : str
        ``error``, ``warning`` or ``notice``.
    title, message : str
        As they are to be shown; text of the trace in them is not yet safe.
    """

    level: str
    title: str
    message: str

    def __str__(self) -> str:
        title = safe_text(self.title).translate(_PROPERTY)
        lines = [safe_text(line) for line in self.message[:_MOST_LETTERS].split("\n")]
        message = "\n".join(lines).translate(_DATA)
        return f"::{self.level} title={title}::{message}"


def annotate(document: ComparisonDocument) -> list[Annotation]:
    """Return what to annotate, at most ten: the verdict, causes, flagged states, warnings.

    Parameters
    ----------
    document : dict
        From `comparison_document` or `load_document`.

    Returns
    -------
    list of Annotation
        The verdict first: an error with an anomaly, a warning where it is inconclusive, else
        a notice.  Then the causes, notices; then flagged states, with an anomaly an error or, at
        level ``warn``, a warning, else notices.  Everything to be warned of is one notice, the
        last.  States have five places at most where causes need the others; what there is
        no place for is counted in the last.
    """
    headline = describe_headline(document)
    level = "error" if document.fails_build() else _LEVELS[document.verdict]
    answer = f"{headline.sentence}\n{describe_why(document)}".replace("`", "")
    first = Annotation(level, f"critpath: {headline.sign} {headline.title}", answer)
    causes = [
        Annotation(
            "notice", f"critpath: cause {number}", cause_line(document, cause).replace("`", "")
        )
        for number, cause in enumerate(verdict.main_causes(document, len(document.causes)), 1)
    ]
    states = [_state(document, state) for state in document.states if _told(state)]
    last = _warnings(document)
    room = MOST - 1 - len(last)
    kept = max(room - len(states), room // 2)
    body = [*causes[:kept], *states[: room - len(causes[:kept])]]
    left_out = len(causes) + len(states) - len(body)
    found = [first, *body, *last]
    if left_out:
        end = found.pop()
        more = f"and {plural(left_out, 'more annotation')} that GitHub would not show"
        message = f"{end.message[: _MOST_LETTERS // 2]}\n{more}"
        found.append(Annotation(end.level, end.title, message))
    return found


def _told(state: StateEntry) -> bool:
    return bool(state.flagged) and sentences.level_of(state) != "off"


def _state(document: ComparisonDocument, state: StateEntry) -> Annotation:
    sentence = sentences.state_sentence(state)
    if document.fails_build():
        level = "error" if sentences.level_of(state) == "error" else "warning"
    else:
        level = "notice"  # it decided nothing
    if document.verdict == "inconclusive":
        sentence += "; not judged"
    return Annotation(level, f"critpath: {state.state}", sentence)


def _warnings(document: ComparisonDocument) -> list[Annotation]:
    """Return all warnings as one annotation: they are no result, and places are few."""
    warnings = serious_warnings(document)
    if not warnings:
        return []
    shown = [text[:_MOST_WARNING] for text in warnings[:_MOST_WARNINGS]]
    beyond = len(warnings) - len(shown)
    if beyond:
        shown.append(f"and {plural(beyond, 'more warning')}; the JSON has them all")
    title = f"critpath: {plural(len(warnings), 'warning')}"
    return [Annotation("notice", title, "\n".join(shown))]
