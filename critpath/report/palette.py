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
from string import ascii_lowercase, ascii_uppercase, digits
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from critpath.model import State
from critpath.text.phrases import PHRASES

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


class Look(Struct, frozen=True):
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


_LOOKS: Final[dict[State, tuple[str, str, str]]] = {
    State.RUN: ("R", GREEN, "solid"),
    State.RUN_USER: ("U", GREEN, "dots"),
    State.RUN_SYSCALL: ("K", GREEN, "diagonal"),
    State.IRQ: ("I", PURPLE, "solid"),
    State.SOFTIRQ: ("S", PURPLE, "diagonal"),
    State.WAIT_IPI: ("J", PURPLE, "dots"),
    State.WAIT_CPU: ("C", ORANGE, "solid"),
    State.WAIT_STOPPED: ("Z", ORANGE, "diagonal"),
    State.WAIT_QUOTA: ("H", ORANGE, "bars"),
    State.QUEUED: ("B", ORANGE, "dots"),
    State.SHARED: ("E", YELLOW, "diagonal"),
    State.WAIT_POOL: ("A", ORANGE, "dots"),
    State.WAIT_QUEUE: ("Ω", YELLOW, "dots"),  # all of A to Z are taken
    State.RECLAIM: ("Y", GREEN, "bars"),
    State.WAIT_TASK: ("W", SKY, "solid"),
    State.WAIT_FUTEX: ("F", SKY, "diagonal"),
    State.WAIT_PIPE: ("P", SKY, "dots"),
    State.WAIT_POLL: ("L", SKY, "bars"),
    State.WAIT_DISK: ("D", VERMILLION, "solid"),
    State.WAIT_DEVICE: ("V", VERMILLION, "diagonal"),
    State.WAIT_SOFTIRQ: ("O", VERMILLION, "dots"),
    State.WAIT_NET: ("N", BLUE, "solid"),
    State.NET_TRANSIT: ("X", BLUE, "diagonal"),
    State.WAIT_TIMER: ("T", YELLOW, "solid"),
    State.WAIT_UNEXPLAINED: ("Q", GREY, "diagonal"),
    State.NOT_RECORDED: ("G", GREY, "bars"),
    State.UNKNOWN: ("M", GREY, "solid"),
}
LOOKS: Final = {state.name: Look(*look, PHRASES[state].legend) for state, look in _LOOKS.items()}


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
