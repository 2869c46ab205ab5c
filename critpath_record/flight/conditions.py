"""Conditions of ``--when``: parsed, never evaluated."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import Final

from critpath.errors import UsageError
from critpath.units import NS_PER_S, safe_text

LATENCY, RATE, SLOWER, LOSS, SIGNAL, EXIT, PRESSURE, OVERHEAD = (
    *("latency", "rate", "slower", "loss", "signal", "exit", "pressure", "overhead"),
)
COMMAND: Final = "command"  # critpath dump: always works
USUAL: Final = "usual"  # every so often, to know what is usual
# What goes on when it is noticed: a while later more of it is held.
LASTING: Final = frozenset({LATENCY, RATE, SLOWER, PRESSURE})

_UNITS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": NS_PER_S, "min": 60 * NS_PER_S}
_SPAN: Final = r"(\d{1,9}(?:\.\d{1,6})?)\s*(ns|us|ms|s|min)"
_MOST: Final = 3600 * NS_PER_S
# The kernel's own limits of a window of pressure.
_WINDOW: Final = (NS_PER_S // 2, 10 * NS_PER_S)

# What each word takes.
CONDITIONS: Final = {
    LATENCY: "latency [KIND] [p99] > 250ms [over 30s]",
    RATE: "rate KIND < 5/s over 30s",
    SLOWER: "slower than usual [by 25%] [at most 1/day]",
    LOSS: "loss",
    SIGNAL: "signal USR1",
    EXIT: "exit != 0",
    PRESSURE: "pressure cpu|io|memory some 150ms/1s",
    OVERHEAD: "overhead > 2x",
}
_FORMS: Final = {
    LATENCY: re.compile(
        rf"latency(?:\s+(?!p\d{{1,2}}(?:\.\d{{1,3}})?\s)(\S.{{0,199}}?))??(?:\s+p(\d{{1,2}}(?:\.\d{{1,3}})?))?\s*>\s*{_SPAN}"
        rf"(?:\s+over\s+{_SPAN})?",
        re.ASCII,
    ),
    RATE: re.compile(
        rf"rate\s+(\S.{{0,199}}?)\s*<\s*(\d{{1,9}}(?:\.\d{{1,6}})?)\s*/\s*s\s+over\s+{_SPAN}",
        re.ASCII,
    ),
    SLOWER: re.compile(
        r"slower than usual(?: by (\d{1,4})\s*%)?(?: at most (\d{1,4}(?:\.\d{1,3})?)\s*/\s*day)?",
        re.ASCII,
    ),
    LOSS: re.compile(r"loss", re.ASCII),
    SIGNAL: re.compile(r"signal\s+(USR1|USR2)", re.ASCII),
    EXIT: re.compile(r"exit\s*!=\s*0", re.ASCII),
    PRESSURE: re.compile(rf"pressure\s+(cpu|io|memory)\s+some\s+{_SPAN}\s*/\s*{_SPAN}", re.ASCII),
    OVERHEAD: re.compile(r"overhead\s*>\s*(\d{1,4}(?:\.\d{1,3})?)\s*x", re.ASCII),
}


@dataclass(frozen=True)
class Condition:
    """One condition."""

    word: str  # of `CONDITIONS`
    text: str  # as it was given, in one line
    # The kind of execution or request, the signal, or the resource; "" for none, and for any.
    name: str = ""
    # Ns of latency or of pressure, requests a second, how many times the target, or by which share
    # slower; 0 for none.
    limit: float = 0.0
    window: int = 0  # ns of pressure, and over which requests are counted; 0 looks at each
    # Of the requests at most so many are shorter than the limit; alarms a day by chance.
    part: float = 0.0

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
            return cls._parse_latency(given, found)
        if word == RATE:
            window = _ns(found[3], found[4])
            if not (float(found[2]) > 0 and NS_PER_S <= window <= _MOST):
                raise _wrong(given, "a rate is above 0, over 1s to an hour")
            return cls(word, given, found[1], float(found[2]), window)
        if word == SLOWER:
            least, most = (float(found[n] or 0) for n in (1, 2))
            if (found[1] and not least) or (found[2] and not most):
                raise _wrong(given, "neither is 0")
            return cls(word, given, limit=least / 100, part=most)
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

    @classmethod
    def _parse_latency(cls, given: str, found: re.Match[str]) -> Condition:
        """Return a condition of each execution, or of a percentile over some time."""
        name, part, limit = found[1] or "", float(found[2] or 0) / 100, _ns(found[3], found[4])
        window = _ns(found[5], found[6]) if found[5] else 0
        if not 0 < limit <= _MOST:
            raise _wrong(given, "a latency is above 0 and at most an hour")
        if bool(found[2]) != bool(found[5]):
            raise _wrong(given, "a percentile is over some time, and only that")
        if found[2] and not (0 < part < 1 and NS_PER_S <= window <= _MOST):
            raise _wrong(given, "p1 to p99.999, over 1s to an hour")
        if not (name or window):
            raise _wrong(given, "name the kind, or a percentile over some time")
        return cls(LATENCY, given, name, limit, window, part)


def _ns(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit])


def _wrong(given: str, why: str) -> UsageError:
    return UsageError(
        f"--when {safe_text(given[:200])!r}: no such condition" + f", {why}" * bool(why),
        f"one of: {'; '.join(CONDITIONS.values())}",
    )
