"""What TLS hides from the kernel: bytes as a library of OpenSSL's kind has them in clear.

Asked for by name (``--labels-from bytes,tls``).  Small programs of the kernel (bpf) at the begin
and end of ``SSL_read`` and ``SSL_write`` do what those for sockets do with what is received and
sent.  Which socket a session is of the kernel does not say there: a session is known by when it
was first used, and the analysis finds its socket by what the thread received and sent then.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Self

from critpath.errors import CritpathError
from critpath_record import _pulse, bpf
from critpath_record._pulse import name_thread
from critpath_record.ftrace import frames, received
from critpath_record.ftrace.received import Probe
from critpath_record.proc import list_pids, read_text
from critpath_record.symbols import find_functions

# What a probe tells its programs of a function, and how each is told apart.
_WRITES, _BY_POINTER, _ENDS = 1, 2, 4
FUNCTIONS: Final = {
    "SSL_read": 0,
    "SSL_read_ex": _BY_POINTER,
    "SSL_write": _WRITES,
    "SSL_write_ex": _WRITES | _BY_POINTER,
    "SSL_free": _ENDS,
}
_THREADS, _SESSIONS = 1 << 12, 1 << 15  # of which is known what they call; longest unused go
# Of struct pt_regs: the result and the arguments.
_RESULT, _ARGUMENTS = 80, (112, 104, 96, 88)
_EVEN: Final = -2
# A call that is not over: session, where the bytes are, where their number will be, begin, what.
_CALL: Final = 40
_MOST: Final = 1 << 30  # technical: bytes of one call
_RING: Final = 1 << 22  # bytes
_TIMES, _BATCHES = 100, 9  # calls that are measured
_USUAL_COST: Final = 4e-6  # s of a call, where it cannot be measured
_PAUSE: Final = 1.0  # s between looks at what processes have loaded
_MOST_FILES: Final = 256  # technical: libraries that are probed at once
# Of a line of maps: what is executed, where, and its file's device and number.
_MAPPED: Final = re.compile(r"^0*(\S+-)0*(\S+) r.x. \S+ (\S+) ([1-9]\d*) +/", re.MULTILINE)
_PLACES: Final = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/lib/x86_64-linux-gnu")
_NAME: Final = re.compile(r"libssl\.so[.\d]*")
_WHAT: Final = "the programs that read what TLS hides"
_DO: Final = "leave tls out of --labels-from; services and what they ask are found all the same"


def assemble_begin(calls: int, sessions: int, count: int) -> bytes:
    """Return the program for a function's begin: it notes who calls what; 7 is what it is."""
    a = bpf.Assembler()
    a.copy(6, 1)
    a.map_value(1, count, 0)
    a.set(2, 1)
    a.put(bpf.ADD_ATOMIC, 1, 2)
    a.copy(1, 6)
    a.call(bpf.COOKIE)
    a.copy(7, 0)
    a.call(bpf.PID_TGID)
    a.put(bpf.STORE64, 10, 0, -8)
    a.put(bpf.SHIFT_RIGHT, 0, value=32)
    a.put(bpf.STORE64, 10, 0, -24)
    a.put(bpf.LOAD64, 1, 6, _ARGUMENTS[0])
    a.put(bpf.STORE64, 10, 1, -16)
    _use(a, sessions, -24, bpf.LOOKUP)
    a.jump_if(0, 0, "known", code=bpf.NOT_EQUAL)
    a.jump_if(7, _ENDS, "out", code=bpf.ANY_BIT)
    a.call(bpf.NOW)
    a.mask(0, _EVEN)
    a.put(bpf.STORE64, 10, 0, -24 - _CALL)
    _use(a, sessions, -24, bpf.UPDATE, value=-24 - _CALL)
    a.jump("noted")
    a.name("known")
    a.put(bpf.LOAD64, 1, 0, 0)
    a.put(bpf.STORE64, 10, 1, -24 - _CALL)
    a.jump_if(7, _ENDS, "ended", code=bpf.ANY_BIT)
    a.name("noted")
    for place, register in ((8, _ARGUMENTS[1]), (16, _ARGUMENTS[3])):
        a.put(bpf.LOAD64, 1, 6, register)
        a.put(bpf.STORE64, 10, 1, place - 24 - _CALL)
    a.call(bpf.NOW)
    a.put(bpf.STORE64, 10, 0, 24 - 24 - _CALL)
    a.put(bpf.STORE64, 10, 7, 32 - 24 - _CALL)
    _use(a, calls, -8, bpf.UPDATE, value=-24 - _CALL)
    a.jump("out")
    a.name("ended")
    _use(a, sessions, -24, bpf.DELETE)
    a.name("out")
    a.set(0, 0)
    a.put(bpf.END)
    return a.bytes()


def _use(a: bpf.Assembler, table: int, key: int, helper: int, value: int = 0) -> None:
    a.map(1, table)
    a.copy(2, 10)
    a.add(2, key)
    if value:
        a.copy(3, 10)
        a.add(3, value)
        a.set(4, 0)
    a.call(helper)


def _find_decrypted(a: bpf.Assembler, calls: int) -> None:
    """At a function's end find its bytes: 6 the call, 7 how many, 8 where."""
    a.put(bpf.LOAD64, 7, 1, _RESULT)
    a.call(bpf.PID_TGID)
    a.put(bpf.STORE64, 10, 0, -8)
    _use(a, calls, -8, bpf.LOOKUP)
    a.jump_if(0, 0, "out")
    a.copy(6, 0)
    a.put(bpf.LOAD64, 1, 6, 32)
    a.mask(1, _BY_POINTER)
    a.jump_if(1, 0, "counted")
    a.jump_if(7, 1, "out", code=bpf.NOT_EQUAL32)
    a.copy(1, 10)
    a.add(1, -16)
    a.set(2, 8)
    a.put(bpf.LOAD64, 3, 6, 16)
    a.call(bpf.READ_USER)
    a.jump_if(0, 0, "out", code=bpf.NOT_EQUAL)
    a.put(bpf.LOAD64, 7, 10, -16)
    a.name("counted")
    # Through memory, so that nothing is known of it by which ways: else too many are checked.
    a.put(bpf.STORE64, 10, 7, -16)
    a.put(bpf.LOAD32, 7, 10, -16)
    a.jump_if(7, _MOST, "out", code=bpf.MORE)
    a.jump_if(7, 0, "out")
    a.put(bpf.LOAD64, 8, 6, 8)


def _find_framed(a: bpf.Assembler, calls: int) -> None:
    """Find the same for frames: what is written was said at the begin, what is read is now."""
    _find_decrypted(a, calls)
    frames.clear_stack(a)
    a.put(bpf.LOAD64, 4, 6, 32)
    a.mask(4, _WRITES)
    a.put(bpf.LOAD64, 3, 6, 24)
    a.put(bpf.MULTIPLY_REGISTERS, 3, 4)
    a.put(bpf.LOAD64, 2, 6, 0)
    a.add_register(2, 4)
    frames.tell_bytes(a, when=3, of=2, size=7)
    a.copy(6, 8)


class Decrypted:
    """Probes at libraries of TLS, wherever they are loaded; gone with the descriptors.

    Raises CritpathError where the kernel does not let functions of programs be probed.
    """

    def __init__(self, *, headers: bool, streams: bool = True) -> None:
        self._probed: set[tuple[int, int]] = set()
        self._files: set[tuple[str, ...]] = set()
        self._looks: dict[int, int] = {}
        self._links: list[int] = []
        self._stopping = threading.Event()
        with contextlib.ExitStack() as opened:
            opened.callback(self._detach)
            try:
                calls = bpf.make_map(bpf.NEWEST, 8, _CALL, _THREADS)
                opened.callback(os.close, calls)
                sessions = bpf.make_map(bpf.NEWEST, 16, 8, _SESSIONS)
                opened.callback(os.close, sessions)
                self._count = bpf.make_array(8)
                opened.callback(os.close, self._count)
                code = assemble_begin(calls, sessions, self._count)
                begin = bpf.load(code, b"critpath_tls", kind=bpf.FUNCTIONS)
                opened.callback(os.close, begin)
            except OSError as error:
                raise _refuse(error) from None
            make = partial(Probe.make, what=_WHAT, do=_DO, kind=bpf.FUNCTIONS)
            reads = partial(
                received.assemble, headers=headers, find=partial(_find_decrypted, calls=calls)
            )
            self.labels = opened.enter_context(make(_RING, reads, b"critpath_tls_l"))
            self._programs = [(self.labels.program, True, _WRITES | _ENDS)]
            if streams:
                states = frames.make_states()
                opened.callback(os.close, states)
                follows = partial(
                    frames.assemble, states=states, find=partial(_find_framed, calls=calls)
                )
                self.frames = opened.enter_context(make(_RING, follows, b"critpath_tls_f"))
                self._programs.append((self.frames.program, True, _ENDS))
            self._programs.append((begin, False, 0 if streams else _WRITES))
            self._find_installed()
            self._look()
            self._thread = threading.Thread(target=self._run, name="tls", daemon=True)
            self._thread.start()
            self._closing = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()
        self._closing.close()

    @property
    def libraries(self) -> int:
        """How many files are probed."""
        return len(self._probed)

    def count_calls(self) -> int:
        """Return how often what is probed was called so far."""
        return int.from_bytes(bpf.read_element(self._count, 8), "little")

    def measure(self) -> float:
        """Return what a probed call takes more at least (s), by one of ours that does nothing."""
        file = os.open(_pulse.__file__, os.O_RDONLY | os.O_CLOEXEC)
        try:
            [(name, place)] = find_functions(file, ("PyInit__pulse",)).items()
            function = getattr(ctypes.PyDLL(_pulse.__file__), name)
            without = _measure(function)
            links = [
                bpf.attach_functions(
                    b"/proc/self/fd/%d" % file, [(place, 0)], program, at_return=end
                )
                for program, end, _ in self._programs
            ]
            try:
                return max(_measure(function) - without, 0.0)
            finally:
                for link in links:
                    os.close(link)
        except (OSError, ValueError):
            return _USUAL_COST
        finally:
            os.close(file)

    def detach(self) -> None:
        """Probe nothing more; idempotent."""
        self._stopping.set()
        self._thread.join()
        self._detach()

    def _detach(self) -> None:
        while self._links:
            os.close(self._links.pop())

    def _run(self) -> None:
        name_thread(b"critpath-tls")
        while not self._stopping.wait(_PAUSE):
            self._look()

    def _find_installed(self) -> None:
        """Probe libraries that programs which begin later will load."""
        for place in dict.fromkeys(map(os.path.realpath, _PLACES)):
            with contextlib.suppress(OSError):
                for name in filter(_NAME.fullmatch, os.listdir(place)):  # noqa: PTH208 - names
                    self._probe(os.open(f"{place}/{name}", os.O_RDONLY | os.O_CLOEXEC), 0)

    def _look(self) -> None:
        """Look at what processes have loaded: at each now and then, less and less often."""
        there = list_pids()
        self._looks = {pid: self._looks.get(pid, 0) + 1 for pid in there}
        for pid, times in self._looks.items():
            if times & (times - 1) or len(self._probed) >= _MOST_FILES:
                continue
            for begin, end, *file in _MAPPED.findall(read_text(f"/proc/{pid}/maps")):
                if (*file,) not in self._files:
                    self._files.add((*file,))
                    with contextlib.suppress(OSError):
                        owner = os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116 - of many
                        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
                        self._probe(os.open(f"/proc/{pid}/map_files/{begin}{end}", flags), owner)

    def _probe(self, file: int, owner: int) -> None:
        """Probe a file's functions, if it has them and is its user's or root's; close it."""
        with contextlib.ExitStack() as opened:
            opened.callback(os.close, file)
            about = os.fstat(file)
            if about.st_uid not in {0, owner} or (about.st_dev, about.st_ino) in self._probed:
                return
            found = find_functions(file, FUNCTIONS)
            if not {"SSL_read", "SSL_write"} <= found.keys():
                return
            self._attach(file, found)
            self._probed.add((about.st_dev, about.st_ino))

    def _attach(self, file: int, found: dict[str, int]) -> None:
        for program, at_return, leaves_out in self._programs:
            places = [(at, FUNCTIONS[name]) for name, at in found.items()]
            chosen = [one for one in places if not one[1] & leaves_out]
            path = b"/proc/self/fd/%d" % file
            self._links.append(bpf.attach_functions(path, chosen, program, at_return=at_return))


def _measure(function: Callable[[], object]) -> float:
    """Return what a call takes at least (s of this thread's cpu time)."""
    best = float("inf")
    for _ in range(_BATCHES):
        before = time.thread_time()
        for _ in range(_TIMES):
            function()
        best = min(best, (time.thread_time() - before) / _TIMES)
    return best


def _refuse(error: OSError) -> CritpathError:
    return CritpathError(f"the kernel refuses {_WHAT} ({error.strerror})", _DO)
