"""Makes stacks of copied memory: ``unwind PERF WAKES OWN DATA FRAMES SAMPLES [ELSEWHERE...]``.

WAKES is where a wake has whom it woke, and the numbers of events that are wakes, OWN are the
recorder's processes, whose stacks are left out, the next three are descriptors; then come files of
containers, as ``major:minor:inode:descriptor``.  It is a process of its own, and runs as the
user whose programs were recorded: perf opens these programs' files to unwind, and both they and
what perf prints are hostile.  Whatever they make of it, here is no more than a wrong name,
bounded in number and length.

``frames.json`` has every frame and every distinct stack once, innermost frame first;
``samples.bin`` has a row per event: time (int64), thread, woken thread, stack (int32 each; -1 for
none) and kind (uint8), little-endian.  A sample holds until the thread's next.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import re
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import IO, Final, NamedTuple

from critpath_record.builds import read_build_id

FORMAT: Final = "critpath/stacks/1"
SLEEP, WAKE, RUN, SAMPLE = 0, 1, 2, 3
ROW: Final = struct.Struct("<qiiiB")

# As `critpath_record.stacks.events` has them for perf.
_KINDS: Final = {"context-switches": SLEEP, "cpu-migrations": WAKE}
_HEAD: Final = re.compile(
    r"\s*(-?\d{1,10})/(-?\d{1,10})\s+(\d{1,10})\.(\d{9}):\s+(\d{1,10})\s+([\w-]+):"
)
_FRAME: Final = re.compile(r"\t\s*([0-9a-f]{1,16}) (.*) \((.*)\)$")
_OFFSET: Final = re.compile(r"\+0x[0-9a-f]{1,16}$")
_LOST: Final = re.compile(r".*PERF_RECORD_LOST\S* lost (\d{1,12})\s*$")
_PYTHON: Final = re.compile(r"py::(.*):([^:]*)$")
# As Node.js writes it: how it was compiled, function, file, line and column.
_JAVASCRIPT: Final = re.compile(
    r"(?:JS|LazyCompile|Function):[~^*+]*([^ ]*) (.+?):(\d{1,8})(?::\d+)?$"
)
_MAP: Final = re.compile(r"(?:.*/)?perf-\d+\.map$")
_END: Final = "f" * 16  # what stands where a stack could not be followed any further
_FRAMES: Final = 128  # of one stack
_NAMED_FRAMES: Final = 1024  # with inlined ones, as `critpath.read.stacks` takes them
_LETTERS: Final = 400  # of a function's or a file's name
_LINE: Final = 8192  # letters that perf prints in a line
_MOST_SAMPLES: Final = 20_000_000
_MOST_STACKS: Final = 500_000
_MOST_FRAMES: Final = 500_000
_MEMORY: Final = 4 << 30  # of perf and addr2line
_INSTALLED: Final = re.compile(r"/(?:usr/)?lib(?:64)?/|.*/(?:(?:site|dist)-packages|lib-dynload)/")
_OF_A_FILE: Final = re.compile(r"/(?!/anon)")
_MADE: Final = re.compile(r"//anon|\[anon|.*/perf-\d+\.map$")  # code that a program made in memory
_UNNAMED: Final = 20  # stripped programs that are named
_SEEN: Final = 0.05  # technical: share of stacks from which on a program without names is told of
_PATIENCE: Final = 120  # s for the lines of one file
_SOURCE: Final = 4 << 20  # bytes of a Python file that is looked through


class Frame(NamedTuple):
    """A frame; ``inlined`` into the one after it."""

    function: str
    file: str
    line: int
    module: str
    inlined: bool = False


class Address(NamedTuple):
    """A place in a file as perf prints it; ``call``: where a call returns to."""

    module: str
    offset: int
    function: str
    call: bool


@dataclass
class Unwound:
    """What perf printed: events, and stacks of addresses, each distinct one once."""

    addresses: dict[Address, int] = field(default_factory=dict)
    stacks: dict[tuple[int, ...], int] = field(default_factory=dict)
    samples: int = 0
    lost: int = 0
    elsewhere: Mapping[str, Elsewhere] = field(default_factory=dict)

    def shown(self, address: Address) -> Address:
        """Return an address with the path that its file has where it runs."""
        file = self.elsewhere.get(address.module)
        return address if file is None else address._replace(module=file.path)

    def commonest(self) -> list[Address]:
        """Return addresses, those of most stacks first; not of a bystander, which few stacks have.

        Whoever else woke a thread once is nobody's to build anew.
        """
        often = Counter(chain.from_iterable(map(set, self.stacks)))
        places = list(self.addresses)
        modules = Counter(m for stack in self.stacks for m in {places[at].module for at in stack})
        least = _SEEN * len(self.stacks)
        kept = (address for address in places if modules[address.module] >= least)
        return sorted(kept, key=lambda address: -often[self.addresses[address]])

    def has_unnamed_java(self) -> bool:
        """Tell whether a JVM ran code that it made, of which no map gives the names."""
        unnamed = any(
            _MADE.match(address.module) and address.function in {"", "[unknown]"}
            for address in self.addresses
        )
        return unnamed and any(one.module.endswith("/libjvm.so") for one in self.addresses)

    def add(self, lines: Sequence[str]) -> int:
        """Add a stack as perf prints it, innermost frame first; return its number or -1."""
        found: list[int] = []
        for line in lines[:_FRAMES]:
            match = _FRAME.match(line)
            if match and match[1] != _END:
                function = _OFFSET.sub("", match[2])[:_LETTERS]
                address = Address(match[3][:_LETTERS], int(match[1], 16), function, bool(found))
                if address not in self.addresses and len(self.addresses) >= _MOST_FRAMES:
                    self.lost += 1
                    return -1
                found.append(self.addresses.setdefault(address, len(self.addresses)))
        if not found:
            return -1
        if tuple(found) not in self.stacks and len(self.stacks) >= _MOST_STACKS:
            self.lost += 1
            return -1
        return self.stacks.setdefault(tuple(found), len(self.stacks))


def main(arguments: Sequence[str]) -> int:
    """Unwind; the last line on stderr counts what there is, as JSON."""
    perf, own = arguments[0], frozenset(map(int, arguments[2].split(",")))
    data, frames, samples = map(int, arguments[3:6])
    woken_at, *wakes = map(int, arguments[1].split(","))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not os.geteuid():  # perf would look for files in the mounts of a process that still runs
        ctypes.CDLL(None).prctl(_DROP, _CAP_SYS_ADMIN, 0, 0, 0)
    forget_replaced_programs(data)
    note_woken(data, woken_at, frozenset(wakes))
    elsewhere = rename_programs(data, [tuple(map(int, a.split(":"))) for a in arguments[6:]])
    replaced = refuse_replaced(data)
    elsewhere |= replaced
    with os.fdopen(samples, "wb", closefd=False) as rows:
        found = read_perf(_run_perf(perf, data, elsewhere), rows, own)
    found.elsewhere = elsewhere
    with os.fdopen(frames, "w", encoding="ascii", closefd=False) as stream:
        cut = write_frames(found, stream)
    counted: dict[str, object] = {"samples": found.samples, "stacks": len(found.stacks)}
    counted["stripped"], counted["absent"] = find_unnamed(found.commonest(), elsewhere)
    counted["java"] = int(found.has_unnamed_java())
    met = {address.module for address in found.addresses}
    counted["replaced"] = [_clean(of.path) for name, of in replaced.items() if name in met]
    sys.stderr.write("\n" + json.dumps({**counted, "lost": found.lost, "cut": cut}) + "\n")
    return 0


_HEADER: Final = struct.Struct("<8sQQQQQQ")  # magic, size, size of attributes; where they, data are
_RECORD: Final = struct.Struct("<IHH")
_COMM, _WAS_TAKEN, _MMAP2, _EXEC, _BUILD_ID = 3, 9, 10, 1 << 13, 1 << 14
_NUMBER, _THREAD = struct.Struct("<Q"), struct.Struct("<i")
IDENTITY_AT, PERIOD_AT = 8, 48  # of a sample: the number of its event, and its period
_FILE, _FILE_AT = struct.Struct("<IIQ"), 40  # major, minor, inode of a MMAP2 record
_MAPPED: Final = struct.Struct("<IIQQQ")  # pid, tid; address, length, offset
_NAMED: Final = 72  # where a MMAP2 record has its name
_DATA: Final = 1 << 13  # of one of what is not executed
_TIME_FROM_END: Final = 24
_DROP, _CAP_SYS_ADMIN = 24, 21  # of prctl: PR_CAPBSET_DROP
_SPACE: Final = (0x1000, 0x7FFF_FFFF_E000)


def forget_replaced_programs(data: int) -> None:
    """Have perf forget what a process had mapped before it executed another program.

    perf keeps the old mappings beside the new ones (its fork has the C library elsewhere), and
    then follows no stack where the old one lies lower, as in every other process.  A new program
    begins with its stack's mapping: as one of the whole space it replaces all others.
    """
    with mmap.mmap(data, 0) as content:
        executed: set[int] = set()
        for kind, flags, at, size in _records(content):
            if kind == _COMM and flags & _EXEC and size >= 16:
                executed.add(int.from_bytes(content[at + 8 : at + 12], "little"))
            elif kind == _MMAP2 and size >= _NAMED + 8:
                pid, tid, *_ = _MAPPED.unpack_from(content, at + 8)
                name = content[at + _NAMED : at + _NAMED + 8]
                if pid in executed and name == b"[stack]\0":
                    executed.remove(pid)
                    _MAPPED.pack_into(content, at + 8, pid, tid, *_SPACE, 0)
                    content[at + _NAMED : at + _NAMED + 8] = b"//anon\0\0"


def note_woken(data: int, at: int, wakes: Collection[int]) -> None:
    """Let each wake's period be the thread that it woke: perf prints that."""
    with mmap.mmap(data, 0) as content:
        for kind, _, place, size in _records(content):
            if kind == _WAS_TAKEN and size >= at + _THREAD.size:
                (number,) = _NUMBER.unpack_from(content, place + IDENTITY_AT)
                if number in wakes:
                    (woken,) = _THREAD.unpack_from(content, place + at)
                    _NUMBER.pack_into(content, place + PERIOD_AT, max(woken, 0))


def _records(content: mmap.mmap) -> Iterator[tuple[int, int, int, int]]:
    """Yield kind, flags, place and size of each record that perf wrote."""
    if len(content) < _HEADER.size:
        return
    magic, _, _, _, _, at, length = _HEADER.unpack_from(content)
    if magic != b"PERFILE2":
        return
    end = min(at + length, len(content))
    while at + _RECORD.size <= end:
        kind, flags, size = _RECORD.unpack_from(content, at)
        if size < _RECORD.size or at + size > end:
            return
        yield kind, flags, at, size
        at += size


@dataclass(frozen=True)
class Elsewhere:
    """A file of a container, or one that is there no longer, of which there is no descriptor."""

    path: str  # there
    descriptor: int = -1

    @property
    def open_path(self) -> str:
        """Where this process and its children open it."""
        return f"/proc/self/fd/{self.descriptor}"


def rename_programs(data: int, files: Sequence[Sequence[int]]) -> dict[str, Elsewhere]:
    """Give mappings of files that lie elsewhere a name of their own, which perf looks up.

    Here another file may be where they are there.  Returns them by these names.
    """
    descriptors = {(major, minor, inode): at for major, minor, inode, at in files}
    numbers = {key: number for number, key in enumerate(descriptors)}
    found: dict[str, Elsewhere] = {}
    if not files:
        return found
    with mmap.mmap(data, 0) as content:
        for kind, flags, at, size in _records(content):
            if kind != _MMAP2 or flags & _BUILD_ID or size < _NAMED + 8:
                continue
            key = _FILE.unpack_from(content, at + _FILE_AT)
            end = content.find(b"\0", at + _NAMED, at + size)
            if key in descriptors and end > at + _NAMED:
                path = content[at + _NAMED : end].decode("utf-8", "replace")
                path = path.removesuffix(" (deleted)")
                name = f"/{numbers[key]}"
                found.setdefault(name, Elsewhere(path, descriptors[key]))
                content[at + _NAMED : at + _NAMED + 8] = name.encode().ljust(8, b"\0")
    return found


def refuse_replaced(data: int) -> dict[str, Elsewhere]:
    """Give mappings of files in whose place others are by now a name that nothing has.

    What these have at an address is not what was executed.  Returns them by these names.
    """
    found: dict[tuple[str, tuple[int, ...]], str] = {}
    there: dict[str, tuple[tuple[int, ...], int]] = {}
    with mmap.mmap(data, 0) as content:
        for kind, flags, at, size in _records(content):
            end = content.find(b"\0", at + _NAMED, at + size)
            if kind != _MMAP2 or flags & (_BUILD_ID | _DATA) or size < _NAMED + 40:
                continue
            path = os.fsdecode(content[at + _NAMED : max(end, at + _NAMED)])
            if not _OF_A_FILE.match(path) or len(path) < 7:  # one of ours
                continue
            key = _FILE.unpack_from(content, at + _FILE_AT)
            if path not in there:
                there[path] = _identify(path)
            now, changed = there[path]
            (when,) = _NUMBER.unpack_from(content, at + size - _TIME_FROM_END)
            if now and (now != key or 0 < when < changed) and key[2]:
                name = found.setdefault((path, key), f"/r{len(found)}")
                content[at + _NAMED : at + _NAMED + 8] = name.encode().ljust(8, b"\0")
    return {name: Elsewhere(path) for (path, _), name in found.items()}


def _identify(path: str) -> tuple[tuple[int, ...], int]:
    """Return device and inode of a file as mappings have them, and when it was changed (ns).

    That is on the clock of the recording.  Nothing for what cannot be mapped.
    """
    stream = _open_regular(path)
    if stream is None:
        return (), 0
    with stream:
        before = {*_own_maps()}
        try:
            mapped = mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ)
        except (OSError, ValueError):
            return (), 0
        with mapped:
            new = [line.split(None, 5) for line in _own_maps() if line not in before]
        changed = os.fstat(stream.fileno()).st_mtime_ns
    since = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.monotonic_ns()
    for words in new:
        if len(words) == 6 and words[4] != b"0":
            major, minor = (int(number, 16) for number in words[3].split(b":"))
            return (major, minor, int(words[4])), changed - since
    return (), 0


def _own_maps() -> list[bytes]:
    with open("/proc/self/maps", "rb") as stream:  # noqa: PTH123
        return stream.read().splitlines()


@contextlib.contextmanager
def _file_system(elsewhere: Mapping[str, Elsewhere]) -> Iterator[list[str]]:
    """Make a directory with what ``/`` has and these files; yield the variables that perf reads."""
    if not elsewhere:
        yield []
        return
    with tempfile.TemporaryDirectory(prefix="critpath-") as place:
        for name in os.listdir("/"):  # noqa: PTH208
            os.symlink(f"/{name}", f"{place}/{name}")  # noqa: PTH211
        for name, file in elsewhere.items():
            with contextlib.suppress(FileExistsError):
                os.symlink(file.open_path, place + name)  # noqa: PTH211
        yield ["--symfs", place]


def _bound_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _run_perf(perf: str, data: int, elsewhere: Mapping[str, Elsewhere]) -> Iterator[str]:
    """Yield what ``perf script`` prints."""
    with _file_system(elsewhere) as words:
        files = [file.descriptor for file in elsewhere.values() if file.descriptor >= 0]
        yield from _lines_of_perf(perf, words, [data, *files])


def _lines_of_perf(perf: str, words: Sequence[str], descriptors: Sequence[int]) -> Iterator[str]:
    command = [
        *(perf, "script", "-f", "-i", f"/proc/self/fd/{descriptors[0]}", "--ns", "--no-inline"),
        *("--max-stack", str(_FRAMES), "--show-lost-events"),
        *("-F", "pid,tid,time,period,event,ip,sym,symoff,dso", *words),
    ]
    variables = {**os.environ, "PERF_CONFIG": os.devnull, "PERF_BUILDID_DIR": "/nonexistent"}
    process = subprocess.Popen(  # noqa: S603 - the program that root trusts
        command,
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=variables,
        preexec_fn=_bound_memory,  # noqa: PLW1509 - no thread runs here
    )
    assert process.stdout is not None  # noqa: S101 - for mypy
    with process, process.stdout as stdout:
        while line := stdout.readline(_LINE):
            yield line.decode("utf-8", "replace")
    if process.returncode < 0 and -process.returncode != signal.SIGPIPE:
        sys.exit(f"perf script was ended by signal {-process.returncode}")
    if process.returncode:
        sys.exit("perf script could not read what perf record wrote")


def read_perf(lines: Iterable[str], rows: IO[bytes], own: Collection[int] = frozenset()) -> Unwound:
    """Read what ``perf script`` prints; write a row for every event of processes but `own`."""
    found = Unwound()
    head: tuple[int, int, int, int] | None = None
    stack: list[str] = []

    def end() -> None:
        nonlocal head
        if head is not None and found.samples < _MOST_SAMPLES:
            number = found.add(stack)
            time, thread, woken, kind = head
            # One without a stack, too: that there was a sleep tells that it is not an earlier one.
            rows.write(ROW.pack(time, thread, woken, number, kind))
            found.samples += 1
        elif head is not None:
            found.lost += 1
        head = None
        stack.clear()

    for line in lines:
        text = line.rstrip("\n")
        if text.startswith("\t"):
            if len(stack) < _FRAMES:
                stack.append(text)
        elif lost := _LOST.match(text):
            found.lost += int(lost[1])
        elif match := _HEAD.match(text):
            end()
            head = None if int(match[1]) in own else _head(match)
        elif not text:
            end()
    end()
    return found


def _head(match: re.Match[str]) -> tuple[int, int, int, int] | None:
    """Return time, thread, woken thread and kind of an event."""
    kind = _KINDS.get(match[6], RUN)
    woken = int(match[5]) if kind == WAKE else 0
    thread = int(match[2])
    time = int(match[3]) * 1_000_000_000 + int(match[4])
    if not (0 < thread < 2**31 and 0 <= woken < 2**31 and time < 2**62):
        return None
    return time, thread, woken, kind


def find_unnamed(
    addresses: Iterable[Address], elsewhere: Mapping[str, Elsewhere] = MappingProxyType({})
) -> tuple[list[str], list[str]]:
    """Return the programs and libraries of whose functions none has a name: stripped, and absent.

    Those that were installed are none of the user's to build, nor has what a program made in its
    memory (``//anon``) a file.  What runs in a container has its files elsewhere.
    """
    named: dict[str, bool] = {}
    there = {file.path for file in elsewhere.values()}
    for address in addresses:
        module = elsewhere[address.module].path if address.module in elsewhere else address.module
        if _OF_A_FILE.match(module) and not _INSTALLED.match(module):
            known = address.function not in {"", "[unknown]"}
            named[module] = known or named.get(module, False)
    replaced = {file.path for file in elsewhere.values() if file.descriptor < 0}
    unnamed = [module for module, known in named.items() if not known and module not in replaced]
    there |= {module for module in unnamed if os.path.isfile(module)}  # noqa: PTH113 - any text
    return (
        [_clean(module) for module in unnamed if module in there][:_UNNAMED],
        [_clean(module) for module in unnamed if module not in there][:_UNNAMED],
    )


# Names of addresses


def write_frames(found: Unwound, stream: IO[str]) -> int:
    """Write frames and stacks; return how many stacks end where none does by itself."""
    frames: dict[Frame, int] = {}
    of_address: list[list[int]] = [[]] * len(found.addresses)
    lines = find_lines(found.addresses, found.elsewhere)
    sources: dict[tuple[str, str], int] = {}
    for address, number in found.addresses.items():
        named = name_frames(found.shown(address), lines.get(address, ()), sources)
        of_address[number] = [frames.setdefault(frame, len(frames)) for frame in named]
    whole = ([f for a in stack for f in of_address[a]] for stack in found.stacks)
    stacks = [stack[:_NAMED_FRAMES] for stack in whole]
    outermost = {"_start", "__clone3", "clone3", "clone", "__clone", "thread_start"}
    names = list(frames)
    cut = [
        i for i, stack in enumerate(stacks) if stack and names[stack[-1]].function not in outermost
    ]
    document: dict[str, object] = {"format": FORMAT, "frames": names, "stacks": stacks, "cut": cut}
    document["builds"] = find_builds(found)
    json.dump({**document, "lost": found.lost}, stream, separators=(",", ":"))
    return len(cut)


def find_builds(found: Unwound) -> dict[str, str]:
    """Return which build each module is that stacks have, by its name as frames have it."""
    builds: dict[str, str] = {}
    for module in {address.module for address in found.addresses}:
        file = found.elsewhere.get(module)
        stream = _open_regular(module if file is None else file.open_path)
        if stream is not None and _OF_A_FILE.match(module):
            with stream:
                build = read_build_id(stream.fileno())
            builds |= {_clean(module if file is None else file.path): build} if build else {}
    return dict(sorted(builds.items()))


def name_frames(
    address: Address, lines: Sequence[tuple[str, str, int]], sources: dict[tuple[str, str], int]
) -> list[Frame]:
    """Return the frames of an address, inlined ones first."""
    # A map is of one process, what it names is in all of them.
    module = "perf.map" if _MAP.match(address.module) else _clean(address.module)
    if match := _PYTHON.match(address.function):
        function, file = match[1], match[2]
        if (key := (function, file)) not in sources:
            sources[key] = find_definition(function, file)
        return [Frame(_clean(function), _clean(file), sources[key], module)]
    if match := _JAVASCRIPT.match(address.function):
        file = _clean(match[2].removeprefix("file://"))
        return [Frame(_clean(match[1]) or "(anonymous)", file, int(match[3]), module)]
    if not lines:
        return [Frame(_clean(address.function), "", 0, module)]
    last = len(lines) - 1
    return [
        Frame(_clean(function or address.function), _clean(file), line, module, i < last)
        for i, (function, file, line) in enumerate(lines)
    ]


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[-_LETTERS:])


def find_definition(function: str, file: str) -> int:
    """Return the line in which a Python file defines a function, 0 where that is not clear."""
    stream = _open_regular(file) if file.endswith(".py") else None
    if stream is None:
        return 0
    with stream:
        text = stream.read(_SOURCE)
    *around, name = function.replace(".<locals>", "").split(".")
    lines = text.decode("utf-8", "replace").splitlines()
    if name == "<module>":
        return 1
    at = 0
    for outer in around:
        at = _defined(lines, outer, at)
        if not at:
            return 0
    places = [*_all_defined(lines, name, at)]
    return places[0] if len(places) == 1 or (places and around) else 0


def _defined(lines: Sequence[str], name: str, after: int) -> int:
    return next(_all_defined(lines, name, after), 0)


def _all_defined(lines: Sequence[str], name: str, after: int) -> Iterator[int]:
    pattern = re.compile(rf"\s*(?:async\s+def|def|class)\s+{re.escape(name)}\b")
    for number, line in enumerate(lines[after:], after + 1):
        if pattern.match(line[:_LETTERS]):
            yield number


def _open_regular(file: str) -> IO[bytes] | None:
    """Open a regular file, whatever a name leads to."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    return None


# Lines of C, C++, Rust and Go, by addr2line


def find_lines(
    addresses: Iterable[Address], elsewhere: Mapping[str, Elsewhere] = MappingProxyType({})
) -> dict[Address, list[tuple[str, str, int]]]:
    """Return functions, files and lines of addresses, inlined ones first, where a file has them."""
    program = shutil.which("addr2line", path="/usr/bin:/bin")
    if program is None:
        return {}
    of_module: defaultdict[str, list[Address]] = defaultdict(list)
    for address in addresses:
        if address.module.startswith("/") and not address.function.startswith("py::"):
            of_module[address.module].append(address)
    found: dict[Address, list[tuple[str, str, int]]] = {}
    for module, mine in of_module.items():
        file = elsewhere.get(module)
        path = module if file is None else file.open_path
        if file is not None and file.descriptor < 0:
            continue
        if segments := read_segments(path):
            inherited = [] if file is None else [file.descriptor]
            found |= _ask([program, "-a", "-f", "-i", "-C", "-e", path], mine, segments, inherited)
    return found


def _ask(
    command: Sequence[str],
    mine: Sequence[Address],
    segments: Sequence[tuple[int, int, int]],
    inherited: Sequence[int],
) -> dict[Address, list[tuple[str, str, int]]]:
    """Ask addr2line for the lines of a file's addresses."""
    asked: defaultdict[int, list[Address]] = defaultdict(list)
    for address in mine:
        for offset, length, virtual in segments:
            if offset <= address.offset < offset + length:
                # A call returns behind itself, perhaps already to the next line.
                asked[address.offset - offset + virtual - address.call].append(address)
    try:
        done = subprocess.run(  # noqa: S603 - of the system, with an argument list
            command,
            pass_fds=inherited,
            input="".join(f"{at:#x}\n" for at in asked),
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
            encoding="utf-8",
            errors="replace",
            preexec_fn=_bound_memory,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    result: dict[Address, list[tuple[str, str, int]]] = {}
    for at, group in _groups(done.stdout):
        for address in asked.get(at, ()):
            result[address] = group
    return result


def _groups(text: str) -> Iterator[tuple[int, list[tuple[str, str, int]]]]:
    """Yield each address with the functions, files and lines that addr2line prints for it."""
    for part in re.split(r"^0x(?=[0-9a-f]{16}$)", text, flags=re.MULTILINE)[1:]:
        at, *rest = part.splitlines()
        group = []
        for function, place in zip(rest[::2], rest[1::2], strict=False):
            file, _, line = place.split(" (discriminator", 1)[0].rpartition(":")
            if file not in {"", "??"} and line.isdecimal() and len(line) < 9:
                group.append(("" if function == "??" else function[:_LETTERS], file, int(line)))
        if group:
            yield int(at, 16), group


def read_segments(module: str) -> list[tuple[int, int, int]]:
    """Return offset, length and address of what an ELF file has loaded for execution."""
    stream = _open_regular(module)
    if stream is None:
        return []
    with stream:
        head = stream.read(64)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
            return []
        (table,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        if size != 56 or table > 1 << 40:
            return []
        stream.seek(table)
        rows = stream.read(size * count)
    found = []
    for at in range(0, len(rows) - size + 1, size):
        kind, flags, offset, virtual, _, length = struct.unpack_from("<IIQQQQ", rows, at)
        if kind == 1 and flags & 1:
            found.append((offset, length, virtual))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
