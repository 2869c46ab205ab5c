"""Records Python functions inside the program that calls them: Python 3.12 and later.

Runs in the interpreter of the recorded program, which need not be that of critpath: this file
imports nothing of critpath, and is what ``critpath record --functions`` puts before the script.
What it writes goes into the directory that the recorder hands down; without one the program runs
as ever.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import CodeType, ModuleType
    from typing import Any

    Counts = list[tuple[int, int, int, int]]

DIRECTORY = "CRITPATH_FUNCTIONS"  # where to write; a path, or that of an inherited descriptor
SHARE = "CRITPATH_FUNCTIONS_SHARE"  # of the program's cpu time that recording may take
NATIVE = "CRITPATH_FUNCTIONS_NATIVE"  # where the extension is, if not beside this file

# Where a flight recorder has programs write that begin while it runs, and how much of each thread
# is kept there: windows of events, the newest.
FLIGHT = "/dev/shm/critpath-functions"  # noqa: S108 - root's, or it is not used
FLIGHT_SHARE = "share"
FLIGHT_WINDOWS = 64

OLDEST = (3, 12)
_monitoring: Any = getattr(sys, "monitoring", None)
TOOL, FINDER = 3, 4  # of sys.monitoring: what records, and what sees every function once
DEFAULT_SHARE = 0.03
_NAME = "critpath"
_LOOK_NS = 100_000_000
_KAPPA = 1.2  # a program's caches are colder than those of the loop that measures
_HALF_LIFE = 2.0  # s, of what a function's demand is averaged over
_SHORT_NS = 10_000  # mean duration below which a function that wants too much is switched off
_LONGEST_OFF = 60.0  # s
_CALIBRATED = 400, 4  # calls, and how often: fewer than a window has room for
_EVENT = 16  # bytes
_FILE = (lambda: 0).__code__.co_filename
_WINDOW = 4096  # events
_HEADER = 4096  # bytes
_HIGH = 800  # of critpath_marks.channels


class PythonRing:
    """What `_ring` does, in Python: where that cannot be loaded, and to compare it with."""

    def __init__(self) -> None:
        from array import array
        from threading import get_native_id, local

        self._words, self._thread_id, self._array = local(), get_native_id, array
        self._numbers: dict[CodeType, int] = {}
        self._totals: list[list[int]] = [[0, 0, 0, 0]]  # entries, exits, time, known
        self._slots: list[Any] = []
        self._left, self._most = 1 << 62, 0
        self._next, self._interval, self._events = 1 << 62, _LOOK_NS, 1 << 62

    def set_up(
        self,
        directory: int,
        discover: Callable[[CodeType, str], object],
        adjust: Callable[[], object],
        disable: object,
    ) -> None:
        """Write into a directory from now on."""
        import atexit

        self._directory, self._discover, self._adjust = directory, discover, adjust
        self._disable = disable
        atexit.register(self._flush_all)

    def keep_newest(self, most: int) -> None:
        """Keep so many full windows of each thread from now on, the newest; 0 for all."""
        self._most = most

    def add(self, code: CodeType) -> int:
        """Return the number of a function; 0 is none."""
        if code not in self._numbers:
            self._numbers[code] = len(self._totals)
            self._totals.append([0, 0, 0, 0])
        return self._numbers[code]

    def on_entry(self, code: CodeType, *_: object) -> None:
        """Note that a function begins, or goes on."""
        self._note(code, 0)

    def on_exit(self, code: CodeType, *_: object) -> None:
        """Note that a function ends, or pauses."""
        self._note(code, 1)

    def on_first(self, code: CodeType, *_: object) -> object:
        """Note a function's first call."""
        if code not in self._numbers:
            self._discover(code, str(sys._getframe(1).f_globals.get("__name__")))  # noqa: SLF001
            self._note(code, 0)
        return self._disable

    def _note(self, code: CodeType, exit_: int) -> None:
        number = self._numbers.get(code)
        if number is None:
            return
        try:
            slot = self._words.slot
        except AttributeError:
            slot = self._words.slot = [self._array("Q"), self._thread_id(), -1]
            self._slots.append(slot)
        now = time.monotonic_ns()
        words = slot[0]
        words.append(now)
        words.append(2 * number + exit_ | slot[1] << 32)
        total = self._totals[number]
        total[exit_] += 1
        total[2] += now if exit_ else -now
        if len(words) >= 2 * _WINDOW:
            self._flush(slot)
        self._left -= 1
        if now >= self._next or self._left < 0:
            self._next, self._left = now + self._interval, self._events
            self._adjust()

    def _flush(self, slot: Any) -> None:
        """Write a slot as the extension does: an empty window, and full ones behind it."""
        words = slot[0]
        if slot[2] < 0:
            name = f"{os.getpid()}-p{slot[1]}.slot"
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            slot[2] = os.open(name, flags, 0o600, dir_fd=self._directory)
            slot.append(0)
        at = _HEADER + _EVENT * _WINDOW * (1 + (slot[3] % self._most if self._most else slot[3]))
        whole = len(words) == 2 * _WINDOW
        os.pwrite(slot[2], words.tobytes(), at if whole else _HEADER)
        slot[3] += whole
        count = 0 if whole else len(words) // 2
        head = self._array("Q", [int.from_bytes(b"critfun1", "little")])
        head.extend((os.getpid() | count << 32, slot[3], 0, self._most))
        os.pwrite(slot[2], head.tobytes(), 0)
        del words[:]

    def _flush_all(self) -> None:
        for slot in self._slots:
            if slot[0]:
                self._flush(slot)

    def take_counts(self) -> Counts:
        """Return what was called since: number, events, calls that ended, their time."""
        now, found = time.monotonic_ns(), []
        for number, total in enumerate(self._totals):
            events = total[0] + total[1]
            if events != total[3]:
                duration = total[2] + (total[0] - total[1]) * now
                found.append((number, events - total[3], total[1], duration))
                total[3] = events
        return found

    def look_every(self, ns: int, events: int) -> None:
        """Ask for an adjustment so often."""
        self._interval, self._events = ns, events
        self._next, self._left = time.monotonic_ns() + ns, events

    def forget(self) -> None:
        """Forget what was noted."""
        del self._slots[:]
        self._words.__dict__.clear()
        self._totals = [[0, 0, 0, 0] for _ in self._totals]

    def after_fork(self) -> None:
        """Start afresh in a child."""
        self.forget()


class Shares:
    """Switches functions off that are short, hot, and want more than their fair share.

    Parameters
    ----------
    share : float
        Of cpu time, for all of them.
    cost : float
        Of an event (s).
    switch : callable
        Takes a number, and whether to record it from now on.
    """

    def __init__(self, share: float, cost: float, switch: Callable[[int, bool], object]) -> None:
        self.share, self._cost, self._switch = share, cost, switch
        self.demands: dict[int, float] = {}
        self._calls: dict[int, tuple[int, int]] = {}
        self._mean: dict[int, float] = {}
        self.off: dict[int, float] = {}  # until when (s)
        self._waits: dict[int, float] = {}
        self._probation: set[int] = set()

    def adjust(self, now: float, busy: float, counts: Counts) -> None:
        """Take in what was called in a stretch that had so much cpu time (s)."""
        self._learn(busy, counts)
        level = find_level(list(self.demands.values()), self.share)
        long = sum(d for n, d in self.demands.items() if not self._is_short(n))
        for number, events, _, _ in counts:
            if number in self.off or self.demands[number] <= level:
                continue
            if self._is_short(number) or long > self.share:
                self._switch_off(number, now, events * self._cost / level - busy)
        for number in [n for n, until in self.off.items() if until <= now]:
            del self.off[number]
            self._probation.add(number)
            self._switch(number, True)
        # What came back and behaves begins anew.
        for number, *_ in counts:
            if number in self._probation and number not in self.off:
                self._probation.discard(number)
                if self.demands[number] <= level:
                    self._waits.pop(number, None)

    def _learn(self, busy: float, counts: Counts) -> None:
        part = busy / (_HALF_LIFE / 0.6931 + busy)
        for number in self.demands.keys() - self.off.keys() - {row[0] for row in counts}:
            self.demands[number] *= 1 - part
        for number, events, calls, duration in counts:
            wanted = min(events * self._cost / max(busy, 1e-6), 1.0)
            if number in self.demands:
                self.demands[number] += part * (wanted - self.demands[number])
            else:
                self.demands[number] = wanted
            before, then = self._calls.get(number, (0, 0))
            if calls > before:
                self._mean[number] = (duration - then) / (calls - before)
            self._calls[number] = calls, duration

    def _is_short(self, number: int) -> bool:
        return self._mean.get(number, _SHORT_NS) < _SHORT_NS

    def _switch_off(self, number: int, now: float, delay: float) -> None:
        wait = min(max(delay, 2 * self._waits.get(number, 0.0), 0.1), _LONGEST_OFF)
        self._waits[number] = wait
        self.off[number] = now + wait
        self._probation.discard(number)
        self._switch(number, False)


def find_level(demands: Sequence[float], total: float) -> float:
    """Return the largest share that anybody gets: `critpath_record.budget.laws.find_level`."""
    left, wanted = total, sorted(demands)
    for number, demand in enumerate(wanted):
        level = left / (len(wanted) - number)
        if demand >= level:
            return level
        left -= demand
    return total


class Agent:
    """Records the functions of this process and of those that it forks."""

    def __init__(
        self, directory: int, share: float, ring: Any, *, flight: tuple[str, str] | None = None
    ) -> None:
        from _json import encode_basestring_ascii  # the C part alone

        self._directory, self.ring, self._flight = directory, ring, flight
        self._looked = time.monotonic()
        ring.keep_newest(FLIGHT_WINDOWS if flight else 0)
        self._quote: Callable[[str], str] = encode_basestring_ascii
        self._codes: list[CodeType | None] = [None]
        self._names: list[bytes] = []
        self._file = -1
        self._unwritten = b""
        self._directory_is = self._file_is = _identify(directory)
        self._here = os.getcwd()
        # The longest first: what is below several is of the innermost.
        self._roots = sorted({os.path.abspath(p or ".") for p in sys.path}, key=len, reverse=True)
        # The user's own: below where the program was started, or where its script is.
        script = next((p for p in sys.path[:1] if p), self._here)
        self._project = tuple({f"{self._here}/", f"{script}/"} - {"//"})
        self._paths: dict[str, str] = {}
        events = _monitoring.events
        self._mine = events.PY_START | events.PY_RETURN | events.PY_YIELD | events.PY_RESUME
        ring.set_up(directory, self.discover, self.adjust, _monitoring.DISABLE)
        for event in (events.PY_START, events.PY_RESUME, events.PY_THROW):
            _monitoring.register_callback(TOOL, event, ring.on_entry)
        for event in (events.PY_RETURN, events.PY_YIELD, events.PY_UNWIND):
            _monitoring.register_callback(TOOL, event, ring.on_exit)
        _monitoring.register_callback(FINDER, events.PY_START, ring.on_first)
        self.cost = self._calibrate()
        self.shares = Shares(share, _KAPPA * self.cost / 1e9, self._switch)
        self._busy = time.process_time()

    def start(self) -> None:
        """Record from now on."""
        # No more between two looks than a tenth of a second may cost.
        most = max(2000, int(self.shares.share * _LOOK_NS / max(self.cost, 1.0)))
        self.ring.look_every(_LOOK_NS, most)
        os.register_at_fork(after_in_child=self._after_fork)
        # Not local events before Python 3.15.
        _monitoring.set_events(TOOL, _monitoring.events.PY_UNWIND | _monitoring.events.PY_THROW)
        _monitoring.set_events(FINDER, _monitoring.events.PY_START)

    def _calibrate(self) -> float:
        """Return what an event costs (ns), with all that the interpreter does for it."""

        def called() -> None:
            pass

        def loop() -> int:
            before = time.perf_counter_ns()
            for _ in calls:
                called()
            return time.perf_counter_ns() - before

        number, times = _CALIBRATED
        calls = range(number)
        without = min(loop() for _ in range(2 * times))
        self.ring.add(called.__code__)
        self._codes.append(None)
        self._names.append(b"")
        _monitoring.set_local_events(TOOL, called.__code__, self._mine)
        found = min(loop() for _ in range(times))
        _monitoring.set_local_events(TOOL, called.__code__, 0)
        self.ring.forget()
        return max((found - without) / (2 * number), 1.0)

    def discover(self, code: CodeType, module: str | None) -> None:
        """Record a function from now on, unless it is the interpreter's own or critpath's."""
        file = code.co_filename
        if file == _FILE or file.startswith("<frozen importlib"):
            return
        number = self.ring.add(code)
        if number != len(self._codes):
            return  # too many, or another thread was first
        self._codes.append(code)
        words = (module or "?", code.co_qualname, self._name_file(file))
        own = file.startswith(self._project) and "-packages/" not in file
        own = own or not file.startswith(("/", "<"))
        line = f'{{"number": {number}, "line": {code.co_firstlineno}, "project": {int(own)}, '
        line += '"words": ['
        line += ", ".join(map(self._quote, words)) + "]}\n"
        self._names.append(line.encode("ascii"))
        self._write(self._names[-1])
        _monitoring.set_local_events(TOOL, code, self._mine)

    def _name_file(self, file: str) -> str:
        """Return a file's name, relative to the project or to where modules are found."""
        if file not in self._paths:
            found = file
            if file.startswith(self._here + "/"):
                found = file[len(self._here) + 1 :]
            elif file.startswith("/"):
                root = next((r for r in self._roots if file.startswith(r + "/")), None)
                found = file[len(root) + 1 :] if root else file.rpartition("/")[2]
            self._paths[file] = found
        return self._paths[file]

    def _write(self, text: bytes) -> None:
        """Add to the list of this process's functions; what does not fit is tried again later."""
        text = self._unwritten + text
        try:
            if self._file < 0 or _identify(self._file) != self._file_is:  # the program closed it
                self._file = -1
                if _identify(self._directory) == self._directory_is:
                    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
                    name = f"{os.getpid()}.names"
                    file = os.open(name, flags, 0o600, dir_fd=self._directory)
                    self._file = _move_high(file)
                    self._file_is = _identify(self._file)
                    text = f'{{"cost": {self.cost:.1f}}}\n'.encode() + text
            if self._file >= 0:
                text = text[os.write(self._file, text) :]
        except OSError:  # a full disk: the program goes on
            pass
        self._unwritten = text

    def adjust(self) -> None:
        """Share what recording may cost among the functions; end with the flight recorder."""
        if self._flight and time.monotonic() > self._looked + 1:
            self._looked = time.monotonic()
            if not _is_there(*self._flight):
                self.stop()
                return
        busy = time.process_time()
        stretch, self._busy = busy - self._busy, busy
        self.shares.adjust(time.monotonic(), stretch, self.ring.take_counts())

    def stop(self) -> None:
        """Record nothing more."""
        for tool in (FINDER, TOOL):
            _monitoring.set_events(tool, 0)
        for code in filter(None, self._codes):
            _monitoring.set_local_events(TOOL, code, 0)
        self.ring.look_every(1 << 62, 1 << 62)

    def _switch(self, number: int, on: bool) -> None:
        code = self._codes[number]
        if code is not None:
            _monitoring.set_local_events(TOOL, code, self._mine if on else 0)
            self._write(f'{{"{"on" if on else "off"}": {number}}}\n'.encode())

    def _after_fork(self) -> None:
        """Write files of its own in a child."""
        self.ring.after_fork()
        file, self._file, self._unwritten = self._file, -1, b""
        if file >= 0 and _identify(file) == self._file_is:
            os.close(file)
        self._write(b"".join(self._names))


def _identify(descriptor: int) -> tuple[int, int]:
    """Return which file a descriptor is of: programs close those that they do not know."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return -1, -1
    return found.st_dev, found.st_ino


def _is_there(process: str, began: str) -> bool:
    """Return whether a process is there that began then: it may be another of its number."""
    try:
        with open(f"/proc/{int(process)}/stat", "rb") as stream:
            return stream.read().rpartition(b")")[2].split()[19] == began.encode()
    except (OSError, ValueError, IndexError):
        return False


def find_flight() -> tuple[int, float, tuple[str, str]] | None:
    """Return where programs write for a flight recorder, opened, their share, and its process."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        directory = os.open(FLIGHT, flags)
    except OSError:
        return None
    try:
        file = os.open(FLIGHT_SHARE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=directory)
        try:
            # Anybody might have made either.
            if not (os.fstat(directory).st_uid or os.fstat(file).st_uid):
                share, *process = os.read(file, 256).decode("ascii").split()
                if len(process) == 2 and _is_there(*process):
                    whose = process[0], process[1]
                    return directory, min(max(float(share), 0.0), DEFAULT_SHARE), whose
        finally:
            os.close(file)
    except (OSError, ValueError):
        pass
    os.close(directory)
    return None


def _move_high(descriptor: int) -> int:
    """Move a descriptor to where daemons do not close it."""
    import fcntl

    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    except OSError:  # beyond the limit
        return descriptor
    os.close(descriptor)
    return moved


def load_ring() -> Any:
    """Return the native callbacks, or those in Python where they cannot be loaded."""
    from importlib.machinery import ExtensionFileLoader
    from importlib.util import module_from_spec, spec_from_file_location

    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_ring.abi3.so")
    place = os.environ.get(NATIVE) or beside
    try:
        loader = ExtensionFileLoader("_ring", place)
        spec = spec_from_file_location("_ring", place, loader=loader)
        if spec is None or place == "python":
            return PythonRing()
        module = module_from_spec(spec)
        loader.exec_module(module)
    except ImportError:
        return PythonRing()
    return module


_started: Agent | None = None


def start() -> bool:
    """Record the functions of this program from now on, if a recorder asked for them.

    Returns
    -------
    bool
        Whether they are recorded: ``critpath record --functions`` started the program, or a flight
        recorder with ``--functions`` runs.

    Raises
    ------
    RuntimeError
        Before Python 3.12, or where others use the same tools of ``sys.monitoring``.
    """
    global _started  # noqa: PLW0603 - the state of the process
    if _started is not None:
        return True
    where = os.environ.get(DIRECTORY)
    flight = None if where else find_flight()
    if not where and flight is None:
        return False
    if sys.version_info < OLDEST:
        raise RuntimeError(_too_old())
    for tool in (TOOL, FINDER):
        if (used := _monitoring.get_tool(tool)) is not None:
            raise RuntimeError(f"tool {tool} of sys.monitoring is used by {used}")
    share, whose = float(os.environ.get(SHARE) or DEFAULT_SHARE), None
    try:
        if flight is None:
            opened = os.open(str(where), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        else:
            opened, share, whose = flight
        directory = _move_high(opened)
    except OSError:
        return False
    for tool in (TOOL, FINDER):
        _monitoring.use_tool_id(tool, _NAME)
    _started = Agent(directory, share, load_ring(), flight=whose)
    _started.start()
    return True


def _too_old() -> str:
    return "functions are recorded from Python 3.12 on; this is " + sys.version.split()[0]


def main(words: Iterable[str] | None = None) -> None:
    """Run a script, a module (``-m``) or code (``-c``) with its functions recorded."""
    given = list(sys.argv[1:] if words is None else words)
    if not given or (given[0] in {"-m", "-c"} and len(given) < 2):
        sys.exit("usage: python -m critpath.functions SCRIPT|-m MODULE|-c CODE [ARG...]")
    if sys.version_info < OLDEST:
        sys.stderr.write(f"critpath: {_too_old()}\n  record without --functions\n")
        sys.exit(2)
    import runpy
    from types import ModuleType

    safe = sys.flags.safe_path
    if not safe and sys.path:
        del sys.path[0]  # that of this file
    kind = given[0] if given[0] in {"-m", "-c"} else ""
    sys.argv[:] = given[1:] if kind else given
    if not kind and not safe:
        sys.path.insert(0, os.path.dirname(os.path.realpath(given[0])))
    elif not safe:
        sys.path.insert(0, os.getcwd() if kind == "-m" else "")
    # This module stays, whatever takes its name.
    sys.modules[f"{_NAME}-functions"] = sys.modules["__main__"]
    try:
        start()
    except RuntimeError as error:
        sys.stderr.write(f"critpath: functions are not recorded: {error}\n")
    if kind == "-m":
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    module = ModuleType("__main__")
    module.__dict__["__builtins__"] = __builtins__
    source: str | bytes = given[1] if kind else b""
    if kind:
        sys.argv[0] = "-c"
    else:
        module.__file__ = given[0]
        try:
            import io

            with io.open_code(given[0]) as stream:
                source = stream.read()
        except OSError as error:
            sys.stderr.write(f"{sys.executable}: can't open file {given[0]!r}: {error}\n")
            sys.exit(2)
    sys.modules["__main__"] = module
    _run(module, source, "<string>" if kind else given[0])


def _run(module: ModuleType, source: str | bytes, path: str) -> None:
    """Run a program as the interpreter does that is given it."""
    from importlib.abc import InspectLoader

    class MonitoredProgram(InspectLoader):
        def get_source(self, _: str) -> str:
            return str(source)

        def get_code(self, _: str) -> CodeType:
            return self.source_to_code(source, path)

    MonitoredProgram().exec_module(module)


if __name__ == "__main__":
    main()
