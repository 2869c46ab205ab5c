"""How a state looks: one letter, one colour, one pattern, everywhere the same.

The colours are those of Okabe and Ito (2008), made to be told apart with any kind
of colour vision; states of one family share a colour and differ in pattern, and
the letter repeats it all for whoever sees no colour.  Time on the subject's own
thread has a capital letter; on another thread a small one, or where two helpers
would have the same, any that is free: a letter means one symbol in every report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase, digits
from typing import TYPE_CHECKING, Final

from critpath.model import State

if TYPE_CHECKING:
    from critpath.documents import AlignedEntry, FindingEntry, SymbolEntry

GREEN = "#009e73"
SKY = "#56b4e9"
BLUE = "#0072b2"
ORANGE = "#e69f00"
YELLOW = "#f0e442"
VERMILLION = "#d55e00"
PURPLE = "#cc79a7"
GREY = "#8c8c8c"

# Text on a cell: what has the larger contrast with the cell's colour.
_DARK_CELLS = frozenset({BLUE, GREEN, VERMILLION})


@dataclass(frozen=True)
class Look:
    """How one state is drawn.

    Attributes
    ----------
    letter : str
        One capital letter, unique among the states.
    colour : str
        ``#rrggbb``.
    pattern : str
        ``solid``, ``diagonal``, ``dots`` or ``bars``; unique within the colour.
    words : str
        What the state means, for legends.
    """

    letter: str
    colour: str
    pattern: str
    words: str

    @property
    def ink(self) -> str:
        """Colour of a letter on the cell."""
        return "#ffffff" if self.colour in _DARK_CELLS else "#000000"


LOOKS: Final[dict[str, Look]] = {
    State.RUN.name: Look("R", GREEN, "solid", "running"),
    State.RUN_USER.name: Look("U", GREEN, "dots", "running its own code"),
    State.RUN_SYSCALL.name: Look("K", GREEN, "diagonal", "running in a system call"),
    State.IRQ.name: Look("I", PURPLE, "solid", "interrupted by a device"),
    State.SOFTIRQ.name: Look("S", PURPLE, "diagonal", "interrupted by deferred work"),
    State.WAIT_IPI.name: Look("J", PURPLE, "dots", "waiting for another processor"),
    State.WAIT_CPU.name: Look("C", ORANGE, "solid", "waiting for a processor"),
    State.WAIT_STOPPED.name: Look("Z", ORANGE, "diagonal", "stopped or traced"),
    State.WAIT_QUOTA.name: Look("H", ORANGE, "bars", "held back by a cpu quota"),
    State.QUEUED.name: Look("B", ORANGE, "dots", "waiting behind other requests"),
    State.SHARED.name: Look("E", YELLOW, "diagonal", "on a loop shared with other requests"),
    State.RECLAIM.name: Look("Y", GREEN, "bars", "freeing memory"),
    State.WAIT_TASK.name: Look("W", SKY, "solid", "waiting for another thread"),
    State.WAIT_FUTEX.name: Look("F", SKY, "diagonal", "waiting for a lock"),
    State.WAIT_PIPE.name: Look("P", SKY, "dots", "waiting for a pipe"),
    State.WAIT_POLL.name: Look("L", SKY, "bars", "waiting for one of several things"),
    State.WAIT_DISK.name: Look("D", VERMILLION, "solid", "waiting for a disk"),
    State.WAIT_DEVICE.name: Look("V", VERMILLION, "diagonal", "waiting for a device"),
    State.WAIT_SOFTIRQ.name: Look("O", VERMILLION, "dots", "waiting for deferred work"),
    State.WAIT_NET.name: Look("N", BLUE, "solid", "waiting for the network"),
    State.NET_TRANSIT.name: Look("X", BLUE, "diagonal", "a packet in flight"),
    State.WAIT_TIMER.name: Look("T", YELLOW, "solid", "waiting for a timer"),
    State.WAIT_UNEXPLAINED.name: Look("Q", GREY, "diagonal", "blocked, cause not in the trace"),
    State.NOT_RECORDED.name: Look("G", GREY, "bars", "not recorded"),
    State.UNKNOWN.name: Look("M", GREY, "solid", "not observed"),
}


# All of the model's, small ones first: they stand for other threads.
_FREE: Final = ascii_lowercase + digits + ascii_uppercase + "@%"


def choose_letters(
    symbols: Iterable[SymbolEntry], aligned: Iterable[AlignedEntry]
) -> list[SymbolEntry]:
    """Give every symbol of a document its letter, the same in every report of it."""
    from critpath.documents import SymbolEntry  # noqa: PLC0415 - start-up time

    symbols = list(symbols)
    seen = Counter(code for one in aligned for code in one.rows[-1].symbols)
    taken: dict[int, str] = {
        code: LOOKS[symbol.state].letter
        for code, symbol in enumerate(symbols)
        if not symbol.role and not symbol.place
    }
    helpers = [code for code in range(len(symbols)) if code not in taken]
    for code in sorted(helpers, key=lambda code: (-seen[code], code)):
        small = LOOKS[symbols[code].state].letter.lower()
        if small not in taken.values():
            taken[code] = small
    free = iter([letter for letter in _FREE if letter not in taken.values()])
    letters = [taken.get(code) or next(free, "") for code in range(len(symbols))]
    return [
        SymbolEntry(name=s.name, state=s.state, role=s.role, place=s.place, letter=letter)
        for s, letter in zip(symbols, letters, strict=True)
    ]


def letter_of(symbol: SymbolEntry) -> str:
    """Return the letter of a document's symbol."""
    return symbol.letter


def words_of(symbol: SymbolEntry | FindingEntry) -> str:
    """Return what a document's symbol means; the role is text of the trace."""
    words = LOOKS[symbol.state].words
    words = f"{words} in {symbol.place}" if symbol.place else words
    return f"{words} (in {symbol.role})" if symbol.role else words
