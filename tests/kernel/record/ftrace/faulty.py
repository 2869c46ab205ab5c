"""Recordings of numbered work to which something happens, on this machine's own kernel.

Each case is a function that takes a `Bench` and returns a `Result`; ``test_faults.py`` asks
whether it held, ``evaluation/recording/recording_faults.py`` makes a table of them.  Needs root.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from numbered import Numbers, Seen, build, compile_c

from critpath.commands import main

CRITPATH = (sys.executable, "-P", "-m", "critpath")
RECORD = (*CRITPATH, "record", "--recorder", "ftrace")
INSTANCES = Path("/sys/kernel/tracing/instances")
CODE, RATE = 7, 100_000
_NAMES = itertools.count(100_000 + os.getpid() * 1000, 10)
_DETACH = 2  # MNT_DETACH
HERE = Path(__file__).resolve().parent


@dataclass
class Result:
    """What came of a recording.

    Attributes
    ----------
    code : int
        Of ``critpath record``; negative if it was killed.
    own : int or None
        The command's own exit code, as the recording has it; None if it has none.
    wrote : bool
        Whether the command's own file is as it should be.
    whole : bool
        Whether the command did all its work.
    seconds : float
        How long the work took; 0 if it was killed.
    seen : Seen or None
        What the recording has of the numbers, None without a recording.
    state : str
        Of the manifest, "" without a recording.
    reads : bool
        Whether ``critpath export --format paths`` and ``critpath path`` answer.
    said : str
        What critpath wrote on stderr.
    left : tuple of str
        What the recorder left in the kernel in the end, or as processes.
    """

    code: int = 0
    own: int | None = None
    wrote: bool = False
    whole: bool = False
    seconds: float = 0.0
    seen: Seen | None = None
    state: str = ""
    reads: bool = False
    said: str = ""
    left: tuple[str, ...] = ()
    notes: dict[str, object] = field(default_factory=dict)


class Bench:
    """A place to record in.

    Parameters
    ----------
    place : Path
        A directory on a disk.
    program : Path
        From `numbered.build`.
    rate : int
        Calls a second, on every cpu.
    profile : str
        What is recorded.
    """

    def __init__(
        self, place: Path, program: Path, rate: int = RATE, profile: str = "syscalls"
    ) -> None:
        self.place, self.program, self.rate, self.profile = place, program, rate, profile
        self._count = 0
        self.shared: list[Path] = []

    def numbers(self) -> Numbers:
        """Return numbered work that has not begun."""
        self._count += 1
        shared = Path("/dev/shm") / f"critpath-faults-{self.place.name}-{os.getpid()}-{self._count}"  # noqa: S108
        self.shared.append(shared)
        return Numbers(self.program, shared, next(_NAMES))

    def close(self) -> None:
        for shared in self.shared:
            shared.unlink(missing_ok=True)

    def script(self, calls: Sequence[str], after: str = "") -> tuple[str, ...]:
        """Return a command: an execution of its own, numbered work, a file, an exit code."""
        own = shlex.quote(str(self.place / "own"))
        text = f"/bin/true; {shlex.join(calls)} || exit 99; {after} echo out >{own}; exit {CODE}"
        return "/bin/sh", "-c", text

    def start(
        self, command: Sequence[str], *options: str, output: str = "rec", before: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """Start a recording; its messages go to a file beside it."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
        what = () if "--profile" in options else ("--profile", self.profile)
        words = (*RECORD, *what, "-o", str(self.place / output), *options)
        with (self.place / "said").open("a", encoding="utf-8") as said:
            return subprocess.Popen(
                [*before, *words, "--", *command],
                cwd=self.place.parent,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                text=True,
            )

    def result(
        self,
        recorder: subprocess.Popen[str],
        numbers: Numbers,
        wanted: int | None,
        output: str = "rec",
    ) -> Result:
        """Wait for a recording and look at what it left; `wanted` calls are all its work."""
        found = Result(recorder.wait(timeout=900))
        recording = self.place / output
        own = self.place / "own"
        found.said = (self.place / "said").read_text(encoding="utf-8")
        found.wrote = own.exists() and own.read_text(encoding="utf-8") == "out\n"
        if numbers.cpus:
            found.whole = wanted is None or numbers.done == [wanted] * len(numbers.cpus)
        found.seconds = numbers.seconds
        found.left = tuple(left_by(recorder.pid))
        self.look(found, recording, numbers)
        return found

    def look(self, found: Result, recording: Path, numbers: Numbers) -> None:
        """Look at a recording, now that there should be one."""
        if not (recording / "critpath.json").exists():
            return
        manifest = json.loads((recording / "critpath.json").read_text(encoding="utf-8"))
        found.state = manifest["state"]
        if found.state == "recording":
            return
        found.own = manifest["runs"][-1]["exit_code"] if manifest["runs"] else None
        if numbers.cpus:
            found.seen = numbers.seen(recording)
        saved = self.place / "saved.parquet"
        each = ("--execution", "process,comm=true")
        extracted = critpath("export", "--format", "paths", recording, *each, "-o", saved)
        # 3: the one run did not end within what was recorded; and of processes where events were
        # lost, as their begin or end may be among those.
        lost = found.seen is not None and found.seen.reported > 0
        found.reads = extracted.returncode in ({0, 3} if lost else {0}) and critpath(
            "path", recording
        ).returncode in {0, 3}
        if not found.reads:
            found.notes["extract"] = extracted.returncode, extracted.stderr
        saved.unlink(missing_ok=True)


def critpath(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command of critpath's in this process."""
    words, out, err = [str(a) for a in arguments], io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def left_by(pid: int) -> Iterator[str]:
    """Yield what a recorder left in the kernel, and its processes."""
    yield from (p.name for p in INSTANCES.glob(f"critpath-*-{pid}-*"))
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            marked = b"CRITPATH_SESSION=critpath-" in (entry / "environ").read_bytes()
            if marked and f"-{pid}-".encode() in (entry / "environ").read_bytes():
                yield f"process {entry.name}"
            if str((entry / "cwd").readlink()).startswith(f"{INSTANCES}/critpath-") and (
                f"-{pid}-" in str((entry / "cwd").readlink())
            ):
                yield f"process {entry.name} watches"


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def counting(numbers: Numbers, least: int = 1000) -> Callable[[], bool]:
    """Return whether so many numbers are counted already, by every process."""
    return lambda: numbers.shared.exists() and min(numbers.done, default=0) > least


@contextlib.contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    """Have a file system of so many bytes; raises OSError where none can be mounted."""
    place.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    where = os.fsencode(place)
    if libc.mount(b"x", where, b"tmpfs", 0, f"size={size}".encode()):
        raise OSError(ctypes.get_errno(), "no file system can be mounted here")
    try:
        yield
    finally:
        libc.umount2(where, _DETACH)


@contextlib.contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep so many processes computing."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


# ------------------------------------------------------------------------------- the cases


def undisturbed(
    bench: Bench, seconds: float = 1.0, rate: int = 0, options: Sequence[str] = ()
) -> Result:
    numbers, rate = bench.numbers(), rate or bench.rate
    recorder = bench.start(bench.script(numbers.calls(seconds, rate)), *options)
    return bench.result(recorder, numbers, int(seconds * rate))


def unrecorded(bench: Bench, seconds: float = 1.0, rate: int = 0, processes: int = 0) -> Result:
    """What the work is without a recorder: calls, or so many processes."""
    numbers = bench.numbers()
    work = bench.script(numbers.calls(seconds, rate or bench.rate))
    if processes:
        work = numbers.processes(processes, "/bin/true")
    done = subprocess.run(work, check=False)
    return Result(done.returncode, done.returncode, True, True, numbers.seconds)


def too_small_buffers(bench: Bench, seconds: float = 1.0) -> Result:
    """As many events as can be, and next to no room for them."""
    numbers = bench.numbers()
    script = bench.script(numbers.calls(seconds, 0))
    small = ("--buffer-size", "4K", "--keep-raw")
    recorder = bench.start(("chrt", "-f", "50", *script), *small)
    return bench.result(recorder, numbers, None)


def full_disk(bench: Bench, seconds: float = 1.5, size: str = "20m") -> Result:
    """The recording fills its disk; the command needs room there, too."""
    own = bench.place / "disk" / "block"
    with small_disk(bench.place / "disk", size):
        numbers = bench.numbers()
        after = f"dd if=/dev/zero of={own} bs=64k count=16 status=none || exit 98;"
        script = bench.script(numbers.calls(seconds, RATE), after)
        recorder = bench.start(script, output="disk/rec")
        found = bench.result(recorder, numbers, int(seconds * RATE), "disk/rec")
        found.wrote &= own.stat().st_size == 1 << 20
        return found


def disk_filled_by_others(bench: Bench, seconds: float = 5.0) -> Result:
    """Somebody else takes all the room: there is none for a trace until that is gone."""
    disk = bench.place / "disk"
    with small_disk(disk, "60m"):
        numbers = bench.numbers()
        recorder = bench.start(bench.script(numbers.calls(seconds, bench.rate)), output="disk/rec")
        # More than fits into the room that a recorder keeps.
        until(counting(numbers))
        until(lambda: sum(f.stat().st_size for f in disk.rglob("raw/cpu*")) > 3 << 20)
        fill(disk / "other")
        found = bench.result(recorder, numbers, int(seconds * bench.rate), "disk/rec")
        found.notes["state before"] = found.state
        (disk / "other").unlink()
        found.notes["clean"] = critpath("doctor", "--clean", disk / "rec").returncode
        bench.look(found, disk / "rec", numbers)
        return found


def fill(file: Path) -> None:
    """Write to a file until its disk is full."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as stream:
        while stream.write(bytes(1 << 20)):
            pass


def output_removed(bench: Bench) -> Result:
    numbers = bench.numbers()
    remove = f"rm -rf {shlex.quote(str(bench.place / 'rec'))};"
    recorder = bench.start(bench.script(numbers.calls(0.5, bench.rate), remove))
    return bench.result(recorder, numbers, bench.rate // 2)


def unmounted_before(bench: Bench) -> Result:
    """Only for this recording: in a mount namespace of its own."""
    numbers = bench.numbers()
    script = 'umount -l /sys/kernel/tracing && exec "$@"'
    before = ("unshare", "-m", "sh", "-c", script, "sh")
    recorder = bench.start(bench.script(numbers.calls(0.5, bench.rate)), before=before)
    return bench.result(recorder, numbers, bench.rate // 2)


def unmounted_meanwhile(bench: Bench) -> Result:
    numbers = bench.numbers()
    calls = shlex.join(numbers.calls(0.5, bench.rate))
    script = bench.script(("sh", "-c", f"umount -l /sys/kernel/tracing && {calls}"))
    recorder = bench.start(script, before=("unshare", "-m"))
    return bench.result(recorder, numbers, bench.rate // 2)


def recorder_killed(bench: Bench, options: Sequence[str] = ()) -> Result:
    """SIGKILL, as the kernel sends it when memory runs out."""
    numbers = bench.numbers()
    recorder = bench.start(bench.script(numbers.calls(60.0, bench.rate)), *options)
    until(counting(numbers, 10_000))
    until(lambda: any(f.stat().st_size for f in (bench.place / "rec/raw").glob("cpu*")))
    recorder.kill()
    recorder.wait()
    return _after_kill(bench, recorder, numbers)


def _after_kill(bench: Bench, recorder: subprocess.Popen[str], numbers: Numbers) -> Result:
    instance = next(INSTANCES.glob(f"critpath-*-{recorder.pid}-*"), INSTANCES / "gone")
    off = []

    def is_off() -> bool:
        try:
            events = (instance / "set_event").read_text(encoding="ascii")
            off.append((instance / "tracing_on").read_text(encoding="ascii").strip() == "0")
        except OSError:  # as above: it is off, and gone
            return True
        return not events

    until(is_off, 30)
    # Another recorder of this machine may have been there first.
    told = critpath("doctor").returncode == 1 or not instance.exists()
    critpath("doctor", "--clean")
    cleaned = not instance.exists()
    found = bench.result(recorder, numbers, 0)
    found.notes.update(off=all(off[-1:]), told=told, cleaned=cleaned)
    return found


def watch_killed(bench: Bench) -> Result:
    """The recorder's helper is killed: the recording needs none."""
    numbers = bench.numbers()
    recorder = bench.start(bench.script(numbers.calls(1.0, bench.rate)))
    until(counting(numbers))
    watch = [x.split()[1] for x in left_by(recorder.pid) if x.endswith("watches")]
    for pid in watch:
        os.kill(int(pid), signal.SIGKILL)
    found = bench.result(recorder, numbers, bench.rate)
    found.notes["killed"] = len(watch)
    return found


def command_killed(bench: Bench) -> Result:
    numbers = bench.numbers()
    recorder = bench.start(bench.script(numbers.calls(0.5, bench.rate), "kill -9 $$;"))
    return bench.result(recorder, numbers, bench.rate // 2)


def at_load(bench: Bench, processes: int = 20, seconds: float = 0.5) -> Result:
    """With so many others computing, and as many events as a processor alone can take."""
    numbers = bench.numbers()
    with load(processes):
        recorder = bench.start(bench.script(numbers.calls(seconds, 250_000)))
        recorder.wait(timeout=900)
        uptime = os.getloadavg()[0]
    found = bench.result(recorder, numbers, int(seconds * 250_000))
    found.notes["load"] = uptime
    return found


def a_million_events_a_second(bench: Bench, seconds: float = 60.0) -> Result:
    """Each call is two events."""
    cpus = len(os.sched_getaffinity(0))
    return undisturbed(bench, seconds, 500_000 // cpus)


def short_processes(bench: Bench, count: int = 10_000) -> Result:
    from critpath.model import Kind  # noqa: PLC0415 - what is not needed elsewhere
    from critpath.read.event_names import KERNEL_EVENTS  # noqa: PLC0415
    from critpath.read.traces import read_events  # noqa: PLC0415

    numbers = bench.numbers()
    work = numbers.processes(count, "/bin/true")
    recorder = bench.start(bench.script(work), "--profile", "minimal")
    found = bench.result(recorder, numbers, count)
    events = read_events(bench.place / "rec", KERNEL_EVENTS)
    for kind in (Kind.FORK, Kind.EXEC, Kind.EXIT):
        of = [i for i, c in enumerate(events.classes) if c.kind == kind]
        found.notes[kind.name.lower()] = int(sum((events.event_class == i).sum() for i in of))
    begun = [events.strings[v] for v in _files_of(events)]
    found.notes["true"] = sum(name.endswith("/true") for name in begun)
    told = sum(loss.events for loss in events.losses)
    # One that the script runs itself, and the others.
    silent = max(0, count + 1 - int(str(found.notes["true"])) - told)
    found.seen = Seen(events.total, count + 1, count + 1 - silent, told, silent)
    found.whole = int(numbers._numbers(0, 1)[0]) == count
    return found


def _files_of(events: object) -> Iterator[int]:
    from critpath.model import Events, Kind  # noqa: PLC0415

    assert isinstance(events, Events)
    for number, of in enumerate(events.classes):
        if of.kind == Kind.EXEC:
            place = next(i for i, kind in enumerate(of.types) if kind == "str")
            for offset in events.offset[events.event_class == number]:
                yield int(events.values[offset + place])


def two_at_once(bench: Bench, seconds: float = 3.0, *, kill: bool = False) -> tuple[Result, Result]:
    """Return the first's result, and that of the second, which may be killed."""
    first, second = bench.numbers(), bench.numbers()
    other = Bench(bench.place.with_name(f"{bench.place.name}-other"), bench.program, bench.rate)
    other.profile = bench.profile
    other.place.mkdir()
    one = bench.start(bench.script(first.calls(seconds, bench.rate // 2)))
    two = other.start(other.script(second.calls(60.0 if kill else seconds, bench.rate // 2)))
    until(counting(first))
    until(counting(second))
    if kill:
        two.kill()
        two.wait()
        # Cleans up after the second while the first records.
        killed = _after_kill(other, two, second)
    else:
        killed = other.result(two, second, int(seconds * bench.rate // 2))
    return bench.result(one, first, int(seconds * bench.rate // 2)), killed


def clock_set_back(bench: Bench) -> Result:
    """The wall clock is an hour slow from the middle on, for recorder and command only."""
    library = compile_c(HERE / "set_back.c", bench.place / "set_back.so", "-shared", "-fPIC")
    numbers = bench.numbers()
    moment = time.monotonic_ns() + 1_500_000_000
    before = ("env", f"LD_PRELOAD={library}", f"SET_BACK_FROM={moment}")
    recorder = bench.start(bench.script(numbers.calls(2.0, bench.rate)), before=before)
    found = bench.result(recorder, numbers, 2 * bench.rate)
    manifest = json.loads((bench.place / "rec/critpath.json").read_text(encoding="utf-8"))
    found.notes["seconds"] = (manifest["end"] - manifest["begin"]) / 1e9
    return found


__all__ = ["Bench", "Result", "build"]
