"""A comparison as annotations of a GitHub workflow run: lines that its runner acts on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from critpath.report import sentences, verdict
from critpath.units import plural, safe_text

# GitHub shows ten of each kind a step and drops the others without a word.
MOST: Final = 10
_MOST_LETTERS: Final = 2_000

_DATA: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY: Final = _DATA | str.maketrans({":": "%3A", ",": "%2C"})
_LEVELS: Final = {"ok": "notice", "anomaly": "error", "inconclusive": "warning"}


@dataclass(frozen=True)
class Annotation:
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


def annotate(document: dict[str, Any]) -> list[Annotation]:
    """Return what to annotate, at most ten: the verdict, flagged states, causes, warnings.

    Parameters
    ----------
    document : dict
        From `comparison_document` or `load_document`.

    Returns
    -------
    list of Annotation
        The verdict first: an error with an anomaly, a warning where it is inconclusive, else
        a notice.  A flagged state is an error or, at level ``warn``, a warning; a cause is a
        notice.  What is over ten is counted in the last.
    """
    reasons = [verdict.headline(document), *verdict.further_reasons(document)]
    level = _LEVELS[document["verdict"]]
    found = [Annotation(level, f"critpath: {document['verdict']}", "\n".join(reasons))]
    found += [
        Annotation(
            "error" if sentences.level_of(state) == "error" else "warning",
            f"critpath: {state['state']}",
            sentences.state_sentence(state),
        )
        for state in document["states"]
        if state["flagged"] and sentences.level_of(state) != "off"
    ]
    found += [
        Annotation("notice", f"critpath: cause {number}", verdict.cause_sentence(cause))
        for number, cause in enumerate(verdict.main_causes(document, len(document["causes"])), 1)
    ]
    found += [Annotation("warning", "critpath: warning", text) for text in document["warnings"]]
    if len(found) <= MOST:
        return found
    last = found[MOST - 1]
    more = f"{last.message[: _MOST_LETTERS // 2]}\nand {_counted(found[MOST:])}"
    return [*found[: MOST - 1], Annotation(last.level, last.title, more)]


def _counted(left_out: list[Annotation]) -> str:
    return f"{plural(len(left_out), 'more annotation')} that GitHub would not show"
