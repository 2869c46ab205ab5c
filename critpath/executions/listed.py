"""What there is of executions of a kind, where that is asked for instead of one."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from critpath.errors import UsageError


class ListAskedError(UsageError):
    """What ``requests:?``, ``slices:?`` and ``slice:?`` ask for; ``critpath path`` shows it.

    Elsewhere it is no execution.
    """

    def __init__(self, what: str, do: str, rows: Sequence[ListedRow], noun: str) -> None:
        super().__init__(what, do)
        self.rows, self.noun = rows, noun

    def __reduce__(self) -> tuple[type[ListAskedError], tuple[object, ...]]:
        """Go from one process to another."""
        return ListAskedError, (self.what, self.do, self.rows, self.noun)


class ListedRow(Struct, frozen=True):
    """A service, a marker or a name of slices: what ``requests:?`` and the others list.

    Attributes
    ----------
    name : str
    count, incomplete : int
    median_ns, slow_ns : int
        The middle one, and what 99 % do not exceed.
    threads : int
        Threads that answered, or have slices.
    remark : str
        Of requests how sure begins and ends are, of most of them; of slices whose most are.
    """

    name: str
    count: int
    incomplete: int
    median_ns: int
    slow_ns: int
    threads: int
    remark: str
