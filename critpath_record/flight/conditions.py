"""Conditions of ``--when``: parsed, never evaluated."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import Final

from critpath.errors import UsageError
from critpath.units import NS_PER_S, safe_text

LATENCY, LOSS, SIGNAL, EXIT, PRESSURE, OVERHEAD = (
    *("latency", "loss", "signal", "exit", "pressure", "overhead"),
)
COMMAND: Final = "command"  # critpath dump: always works
USUAL: Final = "usual"  # every so often, to know what is usual
# What goes on when it is noticed: a while later more of it is held.
LASTING: Final = frozenset({LATENCY, PRESSURE})

_UNITS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": NS_PER_S, "min": 60 * NS_PER_S}
_SPAN: Final = r"(\d{1,9}(?:\.\d{1,6})?)\s*(ns|us|ms|s|min)"
_MOST: Final = 3600 * NS_PER_S
# The kernel's own limits of a window of pressure.
_WINDOW: Final = (NS_PER_S // 2, 10 * NS_PER_S)

# What each word takes.
CONDITIONS: Final = {
    LATENCY: "latency KIND > 250ms",
    LOSS: "loss",
    SIGNAL: "signal USR1",
    EXIT: "exit != 0",
    PRESSURE: "pressure cpu|io|memory some 150ms/1s",
    OVERHEAD: "overhead > 2x",
}
_FORMS: Final = {
    LATENCY: re.compile(rf"latency\s+(\S.{{0,199}}?)\s*>\s*{_SPAN}", re.ASCII),
    LOSS: re.compile(r"loss", re.ASCII),
    SIGNAL: re.compile(r"signal\s+(USR1|USR2)", re.ASCII),
    EXIT: re.compile(r"exit\s*!=\s*0", re.ASCII),
    PRESSURE: re.compile(rf"pressure\s+(cpu|io|memory)\s+some\s+{_SPAN}\s*/\s*{_SPAN}", re.ASCII),
    OVERHEAD: re.compile(r"overhead\s*>\s*(\d{1,4}(?:\.\d{1,3})?)\s*x", re.ASCII),
}


@dataclass(frozen=True)
class Condition:
    """One condition.

    Attributes
    ----------
    word : str
        Of `CONDITIONS`.
    text : str
        As it was given, in one line.
    name : str
        The kind of execution, the signal, or the resource; "" for none.
    limit : float
        ns of latency or of pressure, or how many times the target; 0 for none.
    window : int
        ns of pressure.
    """

    word: str
    text: str
    name: str = ""
    limit: float = 0.0
    window: int = 0

    @property
    def signal(self) -> int:
        """The signal that is waited for, 0 for none."""
        return int(getattr(signal, f"SIG{self.name}")) if self.word == SIGNAL else 0

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Return what a text means; raises UsageError, with the list of what there is."""
        given = " ".join(text.split())
        word = given.partition(" ")[0]
        form = _FORMS.get(word)
        found = form.fullmatch(given) if form is not None else None
        if found is None:
            raise _wrong(given, "")
        if word == LATENCY:
            limit = _ns(found[2], found[3])
            if not 0 < limit <= _MOST:
                raise _wrong(given, "a latency is above 0 and at most an hour")
            return cls(word, given, found[1], limit)
        if word == PRESSURE:
            limit, window = _ns(found[2], found[3]), _ns(found[4], found[5])
            if not (_WINDOW[0] <= window <= _WINDOW[1] and 0 < limit < window):
                raise _wrong(
                    given, "the kernel takes windows of 500ms to 10s, and less within them"
                )
            return cls(word, given, found[1], limit, window)
        if word == OVERHEAD:
            if float(found[1]) < 1:
                raise _wrong(given, "less than once the budget is as it should be")
            return cls(word, given, limit=float(found[1]))
        return cls(word, given, found[1] if word == SIGNAL else "")


def _ns(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit])


def _wrong(given: str, why: str) -> UsageError:
    return UsageError(
        f"--when {safe_text(given[:200])!r}: no such condition" + f", {why}" * bool(why),
        f"one of: {'; '.join(CONDITIONS.values())}",
    )
