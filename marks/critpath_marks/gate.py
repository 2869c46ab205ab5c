"""The gate of a recording under a budget: who is admitted opens it, before its first mark.

``critpath record --overhead`` gives a program descriptors, named in ``CRITPATH_GATE``: chances,
which only the recorder writes; counts, in which every process has a row of its own; a pipe; and the
switches of what is recorded.  Who may trace the machine finds the same in `PLACE` without having
inherited it.  An execution that a coin admits is counted, and writes ``1`` to the switches where
they are off.  The recorder turns them off again when nobody is counted any more.  What is written
to the counts is a claim to the recorder, nothing else.
"""

from __future__ import annotations

import os
from _thread import RLock
from contextlib import suppress
from time import monotonic_ns
from typing import TYPE_CHECKING

from critpath_marks.sessions import start_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Final

GATE: Final = "CRITPATH_GATE"
SUFFIX: Final = ".gate"  # of a file that says the same
CHANCES: Final = "critpath-chances"
COUNTS: Final = "critpath-counts"
MOST_SWITCHES: Final = 80
_GET_SEALS: Final = 1034  # an interpreter that was built with old headers lacks the names
_SEALS: Final = 1 | 2 | 4  # no more seals, neither smaller nor larger
TRACEFS: Final = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")

# Chances, in words of 8 bytes: whether it is open, whether the last to end says so, the seed of
# all coins, the chance of other kinds, the number of kinds, how often it was closed; then each kind
# and its chance, in parts of `WHOLE`.  A kind keeps its place.
OPEN, TELL, SEED, OTHERS, KINDS, CLOSINGS, FIRST_KIND = 0, 1, 2, 3, 4, 5, 8
WHOLE: Final = 1 << 32
MOST_KINDS: Final = 500
CHANCES_BYTES: Final = 8192

# Counts, in words: how many are open, a word for each process; the processes; then a row for each,
# with a place for each kind of execution.
PROCESSES: Final = 256
FIRST_ROW: Final = 2 * PROCESSES
OPENINGS, OPENING, OPENED, FIRST_PLACE = 0, 1, 2, 8
KIND, SEEN, ADMITTED, TOOK, PLACE_WORDS = 0, 1, 2, 3, 4
PLACES: Final = 62
ROW_WORDS: Final = FIRST_PLACE + PLACE_WORDS * PLACES
COUNTS_BYTES: Final = 8 * (FIRST_ROW + PROCESSES * ROW_WORDS)


def kind_number(name: str) -> int:
    """Return the number of a kind of execution, which is never 0."""
    from hashlib import sha256  # noqa: PLC0415 - only under a budget

    digest = sha256(name.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little") | 1


class Gate:
    """The part of this process in a recording under a budget.

    Parameters
    ----------
    chances, counts, wake : int
        Descriptors, which the gate keeps.
    switches : sequence of int, or of str
        To each ``1`` is written to open.  Paths are opened for that alone: a file that is held
        keeps the recorder from removing what it made.
    """

    def __init__(self, chances: int, counts: int, wake: int, switches: Sequence[int | str]) -> None:
        import mmap  # noqa: PLC0415 - only under a budget
        from _random import Random  # noqa: PLC0415 - as above

        self._wake, self._switches, self._file = wake, switches, counts
        # Closing any other descriptor of this file would end the lock on the row.
        self._descriptors = (chances, wake, *(s for s in switches if isinstance(s, int)), counts)
        self._chances = memoryview(
            mmap.mmap(chances, CHANCES_BYTES, mmap.MAP_SHARED, mmap.PROT_READ)
        ).cast("Q")
        self._counts = memoryview(mmap.mmap(counts, COUNTS_BYTES)).cast("Q")
        self._lock = RLock()  # a signal's handler may mark, too
        self._pid = os.getpid()
        self._process = self._claim()
        self._row = FIRST_ROW + ROW_WORDS * self._process
        self._draw = Random(self._chances[SEED] ^ os.getpid()).random
        self._open, self._closed = 0, False
        self._turned_on = -1  # after how many closings
        self._places: dict[str, list[int]] = {}  # of a kind: number, place, place of its chance

    def _claim(self) -> int:
        """Take a row that no living process has: the lock on its byte ends with the process."""
        import fcntl  # noqa: PLC0415 - only under a budget

        first = os.getpid() % PROCESSES
        for number in range(first, first + PROCESSES):
            process = number % PROCESSES
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, process)
            except OSError:
                continue
            row = FIRST_ROW + ROW_WORDS * process
            self._counts[process] = 0
            self._counts[row : row + ROW_WORDS] = memoryview(bytes(8 * ROW_WORDS)).cast("Q")
            self._counts[PROCESSES + process] = os.getpid()
            return process
        raise OSError("no row is left")

    def enter(self, name: str) -> tuple[float, int, int]:
        """Toss the coin for an execution, and open the gate if it is admitted.

        Returns its chance, 0 if it is not admitted, and what `leave` wants.
        """
        counts, chances = self._counts, self._chances
        with self._lock:
            if self._closed:  # another thread found that the recording has ended
                return 0.0, 0, 0
            kind, place, at = self._places.get(name) or self._add(name)
            counts[place + SEEN] += 1
            if not at:
                at = self._look_up(name, kind)
            chance = chances[at + 1] if at else chances[OTHERS]
            if self._draw() * WHOLE >= chance:
                return 0.0, place, monotonic_ns()
            # Counted first: who closes looks afterwards whether anybody came.
            self._open += 1
            counts[self._process] = self._open
            if not chances[OPEN] and not self._turn_on():
                self._end()
                return 0.0, place, monotonic_ns()
            counts[place + ADMITTED] += 1
        return chance / WHOLE, place, monotonic_ns()

    def leave(self, place: int, begin: int, *, admitted: bool) -> None:
        """Note that an execution has ended."""
        if self._closed:  # of a parent's gate, too, in a child that was forked meanwhile
            return
        with self._lock:
            if self._closed:
                return
            self._counts[place + TOOK] = max(1, monotonic_ns() - begin)
            if admitted:
                self._end()

    def _turn_on(self) -> bool:
        closings = self._chances[CLOSINGS]
        if closings == self._turned_on:  # and the recorder has not seen it yet
            return True
        counts, row = self._counts, self._row
        counts[row + OPENED] = 0
        counts[row + OPENING] = monotonic_ns()
        counts[row + OPENINGS] += 1
        try:
            for switch in self._switches:
                if isinstance(switch, int):
                    os.pwrite(switch, b"1", 0)
                else:
                    _write(switch)
        except OSError:  # the recording has ended
            return False
        counts[row + OPENED] = monotonic_ns()
        self._turned_on = closings
        return True

    def _end(self) -> None:
        self._open -= 1
        self._counts[self._process] = self._open
        if not self._open and self._chances[TELL]:
            with suppress(OSError):  # it is full, or the recorder has ended
                os.write(self._wake, b"1")

    def _add(self, name: str) -> list[int]:
        """Give a kind a place; those that come late share the last."""
        kind = kind_number(name)
        number = min(len(self._places), PLACES - 1)
        found = [kind, self._row + FIRST_PLACE + PLACE_WORDS * number, 0]
        if number < PLACES - 1:
            self._counts[found[1] + KIND] = kind
            self._places[name] = found
        return found

    def _look_up(self, name: str, kind: int) -> int:
        """Return where a kind has its chance, 0 until the recorder knows it."""
        for number in range(min(self._chances[KINDS], MOST_KINDS)):
            at = FIRST_KIND + 2 * number
            if self._chances[at] == kind:
                if name in self._places:
                    self._places[name][2] = at
                return at
        return 0

    def close(self) -> None:
        """Close every descriptor; what is mapped goes with the object.  Idempotent."""
        if os.getpid() != self._pid:  # a child, without the thread that may have held the lock
            self._pid, self._lock = os.getpid(), RLock()
        with self._lock:
            if self._closed:  # the numbers may be of other files
                return
            self._closed = True
            for descriptor in self._descriptors:
                with suppress(OSError):  # the program closed it
                    os.close(descriptor)


def _write(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if not _is_traced(path, os.fstat(descriptor).st_dev):
            raise OSError("not the kernel's file")
        os.write(descriptor, b"1")
    finally:
        os.close(descriptor)


def open_gate(text: str, take: Callable[[int], int]) -> Gate | None:
    """Return the gate that a recorder's text names, None if these are not its files.

    The text has the recorder's process, when that started, and the descriptors; where these were
    not inherited, they are opened as the recorder's, which only those can who may trace it.  `take`
    moves a descriptor to where nobody closes it.
    """
    owner, _, rest = text.partition(":")
    owner, _, started = owner.partition(".")
    words = rest.split(",")
    numbers = [int(word) for word in (owner, *words) if word.isascii() and word.isdigit()]
    if len(numbers) != len(words) + 1 or not 4 <= len(words) <= 3 + MOST_SWITCHES:
        return None
    for place, inherited in (("self", True), (str(numbers[0]), False)):
        found: list[int] = []
        try:
            _check_recorder(place, started)
            paths = [f"/proc/{place}/fd/{number}" for number in numbers[1:]]
            links = [os.readlink(path) for path in paths]
            _check_links(links, inherited=inherited)
            modes = (os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_NONBLOCK)
            kept = len(paths) if inherited else len(modes)
            for number, path in enumerate(paths[:kept]):
                if inherited:
                    found.append(take(os.dup(numbers[1 + number])))
                else:
                    found.append(take(os.open(path, modes[number] | os.O_CLOEXEC)))
            _check_sealed(found[0], found[1])
            _check_recorder(place, started)
            return Gate(found[0], found[1], found[2], (*found[3:], *links[kept:]))
        except (OSError, ValueError):
            for descriptor in found:
                os.close(descriptor)
    return None


def _is_part(number: int, link: str) -> bool:
    if number < 3:
        return link.startswith((f"/memfd:{CHANCES}", f"/memfd:{COUNTS}", "pipe:")[number])
    return "/instances/critpath-layer-" in link and link.endswith(("/enable", "/tracing_on"))


def _check_recorder(place: str, started: str) -> None:
    """Raise OSError unless a process is still the one that started then, of root or of this user.

    Its pid may be that of another program by now.
    """
    if place != "self":
        owner = os.stat(f"/proc/{place}").st_uid  # noqa: PTH116 - pathlib is slow to import
        if owner not in {0, os.geteuid()} or started != str(start_time(int(place)) or "-"):
            raise OSError("the recorder has ended")


def _check_links(links: Sequence[str], *, inherited: bool) -> None:
    """Raise OSError if a program has closed them, and has other files of these numbers."""
    if not all(_is_part(at, link) for at, link in enumerate(links)):
        raise OSError("not the recorder's files")
    for link in links[3:]:
        if not inherited and not _is_traced(link, os.stat(link).st_dev):  # noqa: PTH116 - as above
            raise OSError("not the kernel's file")


def _check_sealed(*files: int) -> None:
    """Raise OSError unless nobody can change the files' sizes."""
    import fcntl  # noqa: PLC0415 - only under a budget

    if any(fcntl.fcntl(file, _GET_SEALS) & _SEALS != _SEALS for file in files):
        raise OSError("not the recorder's files")


def _is_traced(path: str, device: int) -> bool:
    """Return whether a file is one of a layer's instance, in the kernel's own file system."""
    return any(
        path.startswith(f"{root}/instances/critpath-layer-")
        and "/../" not in path
        and os.stat(root).st_dev == device  # noqa: PTH116 - pathlib is slow to import
        for root in TRACEFS
    )
