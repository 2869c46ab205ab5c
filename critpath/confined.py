"""What reads bytes that others wrote opens nothing else: Landlock and seccomp, where they are.

The kernel holds to it whatever the bytes make of the reader: no program starts, no socket opens,
nothing written but beneath what was named, nothing read but that and what Python is made of.  Both
are system calls, made here by `ctypes` (docs/decisions/27-confined.md says why).  A kernel without
them reads as before.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

# linux/landlock.h; the numbers of the calls are those of every processor.
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_ABI_ONLY, _BENEATH = 1, 1
_LEAST: Final = 2  # before it nothing is moved between directories
_RIGHTS: Final = {2: 14, 3: 15, 4: 15, 5: 16}  # how many rights of files an ABI knows
_READ_FILE, _READ_DIR, _WRITE_FILE, _TRUNCATE = 1 << 2, 1 << 3, 1 << 1, 1 << 14
_REMOVE, _MAKE, _REFER, _EXECUTE = 1 << 4 | 1 << 5, 1 << 7 | 1 << 8, 1 << 13, 1
_OF_FILES: Final = _READ_FILE | _WRITE_FILE | _TRUNCATE | _EXECUTE
_LOOKING: Final = _READ_FILE | _READ_DIR
_CHANGING: Final = _LOOKING | _WRITE_FILE | _TRUNCATE | _REMOVE | _MAKE | _REFER
WRITE: Final = _WRITE_FILE | _TRUNCATE  # of a file that is there
_TCP, _SCOPES = 3, 3  # bind and connect; signals and abstract sockets beyond
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2

# Calls that no reader of files makes: other programs, other processes, networks, the kernel itself.
_X86_64: Final = (
    *(41, 42, 43, 44, 46, 49, 50, 53, 59, 62, 101, 103, 134, 139, 155, 161, 163, 165, 166, 167),
    *(168, 169, 170, 171, 172, 173, 175, 176, 179, 248, 249, 250, 272, 288, 298, 299, 300, 304),
    *(307, 308, 310, 311, 313, 320, 321, 322, 323, 424, 425, 426, 427, 428, 429, 430, 431, 432),
    *(246, 433, 438, 440, 442),
)
_AARCH64: Final = (
    *(39, 40, 41, 51, 60, 89, 97, 104, 105, 106, 112, 116, 117, 129, 142, 161, 162, 198, 199, 200),
    *(201, 202, 203, 206, 211, 217, 218, 219, 221, 224, 225, 241, 242, 243, 262, 265, 268, 269),
    *(270, 271, 273, 280, 281, 282, 294, 424, 425, 426, 427, 428, 429, 430, 431, 432, 433, 438),
    *(440, 442),
)
# Those of them that some need: to start programs of ours and talk to them, to ask the internet.
_RUNNING: Final = ("execve", "accept", "accept4", "sendmsg", "kill")
_ASKING: Final = ("connect", "sendto", "sendmsg", "sendmmsg", "bind")
_NAMES: Final = ("socket", "socketpair", "connect", "accept", "sendto", "sendmsg", "bind", "listen",
    "execve", "kill", "accept4", "sendmmsg")  # fmt: skip
_NUMBERS: Final = {
    "x86_64": (41, 53, 42, 43, 44, 46, 49, 50, 59, 62, 288, 307),
    "aarch64": (198, 199, 203, 202, 206, 211, 200, 201, 221, 129, 242, 269),
}
_CAPABILITIES_VERSION, _PR_CAPBSET_DROP = 0x2008_0522, 24
_FILES: Final = 0b11111  # CAP_CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID
# By processor: AUDIT_ARCH, the calls, and the numbers of some.
_CALLS: Final = {
    machine: (arch, calls, dict(zip(_NAMES, _NUMBERS[machine], strict=True)))
    for machine, arch, calls in (
        ("x86_64", 0xC000_003E, _X86_64),
        ("aarch64", 0xC000_00B7, _AARCH64),
    )
}
_AF_UNIX, _STREAM, _INTERNET = 1, 1, (2, 10, 16)  # netlink: which addresses this machine has
_X32: Final = 0x4000_0000
_EPERM: Final = 0x0005_0001  # SECCOMP_RET_ERRNO
_ALLOW, _KILL = 0x7FFF_0000, 0x8000_0000
_YES, _NO = (0x06, 0, 0, _ALLOW), (0x06, 0, 0, _EPERM)
_LOAD_CALL: Final = (0x20, 0, 0, 0)
_LOAD_FIRST: Final = ((0x20, 0, 0, 16),)  # the low half of an argument
_LOAD_SECOND: Final = ((0x20, 0, 0, 24), (0x54, 0, 0, 15))  # without flags


def restrict(
    read: Iterable[Path],
    write: Iterable[Path],
    *,
    more: Iterable[tuple[Path, int]] = (),
    run: Iterable[Path] = (),
    network: bool = False,
) -> None:
    """Confine the calling thread, and what it starts, for good: it reads and writes beneath these.

    Parameters
    ----------
    read, write : iterable of Path
    more : iterable of (Path, int)
        Other rights beneath a place, as the kernel has them.
    run : iterable of Path
        Programs that it may start, which are confined as it is; it may then have sockets of this
        machine that are connected already, to talk to them.  Where the kernel confines no files,
        it may start others, too.
    network : bool
        Whether it may ask the internet.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    run = list(run)
    rules = [(place, _LOOKING) for place in (*_own_places(), *read)]
    rules += [(place, _CHANGING) for place in write]
    rules += [(place, _READ_FILE | _EXECUTE) for place in run]
    for confine in (
        partial(_drop_capabilities, libc),
        partial(_gain_nothing, libc),
        partial(_confine_files, libc, [*rules, *more], network=network),
        partial(_confine_calls, libc, run=bool(run), network=network),
    ):
        try:
            confine()
        except OSError as error:
            # Whatever else confines does; and never in silence, as this kernel offers it.
            text = f"{error.filename}: {error.strerror}"
            sys.stderr.write(f"critpath: warning: what is read is not confined by {text}\n")


def _drop_capabilities(libc: Any) -> None:
    """Keep, of what makes root root, only that it opens files: for what it starts as well."""
    header = struct.pack("<Ii", _CAPABILITIES_VERSION, 0)
    now = ctypes.create_string_buffer(24)
    if libc.capget(header, now) != 0:
        raise _refusal("capabilities")
    kept = [value & (_FILES if at < 3 else 0) for at, value in enumerate(struct.unpack("<6I", now))]
    if os.geteuid() == 0:
        for number in range(64):
            if not _FILES >> number & 1 and libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) != 0:
                break
    if libc.capset(header, struct.pack("<6I", *kept)) != 0:
        raise _refusal("capabilities")


def _gain_nothing(libc: Any) -> None:
    """Have no program that is started gain rights, which Landlock and seccomp ask for."""
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise _refusal("no_new_privs")


def _refusal(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), what)


def is_offered() -> bool:
    """Tell whether this kernel confines what may be opened."""
    return _abi(ctypes.CDLL(None, use_errno=True)) >= _LEAST


def name_means() -> str:
    """Return by what this kernel confines."""
    abi = _abi(ctypes.CDLL(None, use_errno=True))
    files = f"Landlock {abi}" if abi >= _LEAST else "no Landlock"
    return f"{files}, {'' if platform.machine() in _CALLS else 'no '}seccomp"


def run_confined(work: Callable[[], _T], read: Iterable[Path], write: Iterable[Path]) -> _T:
    """Do something in a thread that may open nothing else; return what it does."""
    done: list[_T] = []
    wrong: list[BaseException] = []

    def run() -> None:
        try:
            restrict(read, write)
            done.append(work())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            wrong.append(error)

    thread = threading.Thread(target=run, name="critpath-confined")
    thread.start()
    thread.join()
    if wrong:
        raise wrong[0]
    return done[0]


def _own_places() -> Iterator[Path]:
    """Yield what Python and this package are read from, also while they run."""
    for place in {*sys.path, sys.prefix, sys.base_prefix, "/usr", "/lib", "/lib64"}:
        with contextlib.suppress(OSError):
            # A package may be a link to where it is.
            links = [entry.path for entry in os.scandir(place or ".") if entry.is_symlink()]
            yield from map(Path, [place or ".", *links])
    yield Path(__file__).resolve().parent
    for name in ("/dev/null", "/dev/urandom", "/etc/localtime", "/proc/self"):
        yield Path(name)


def _abi(libc: Any) -> int:
    return int(libc.syscall(_CREATE, None, ctypes.c_size_t(0), _ABI_ONLY))


def _confine_files(libc: Any, rules: list[tuple[Path, int]], *, network: bool) -> None:
    abi = _abi(libc)
    if abi < _LEAST:
        return
    every = (1 << _RIGHTS.get(abi, _RIGHTS[5])) - 1
    handled = (every, 0 if network else _TCP, _SCOPES)[: 1 + (abi >= 4) + (abi >= 6)]
    text = struct.pack(f"<{len(handled)}Q", *handled)
    ruleset = libc.syscall(_CREATE, text, ctypes.c_size_t(len(text)), 0)
    if ruleset < 0:
        raise _refusal("Landlock")
    try:
        for place, rights in rules:
            _allow(libc, ruleset, place, rights & every)
        if libc.syscall(_RESTRICT, ruleset, 0) != 0:
            raise _refusal("Landlock")
    finally:
        os.close(ruleset)


def _allow(libc: Any, ruleset: int, place: Path, rights: int) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        # What is not there is not read.
        descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
        try:
            if not os.path.isdir(place):  # noqa: PTH112 - a rule of a file names no others
                rights &= _OF_FILES
            libc.syscall(_ADD, ruleset, _BENEATH, struct.pack("<Qi", rights, descriptor), 0)
        finally:
            os.close(descriptor)


def _confine_calls(libc: Any, *, run: bool, network: bool) -> None:
    found = _CALLS.get(platform.machine())
    if found is None or sys.byteorder != "little" or struct.calcsize("P") != 8:
        return
    arch, calls, talking = found
    allowed = {*(_RUNNING if run else ()), *(_ASKING if network else ())}
    free = {talking[name] for name in allowed}
    # Whom sockets that may be made talk to: programs of ours by streams, or the internet.
    unix = [*_LOAD_FIRST, (0x15, 0, 5, _AF_UNIX), *_LOAD_SECOND, (0x15, 0, 1, _STREAM), _YES, _NO]
    families = [*_LOAD_FIRST]
    families += [each for family in _INTERNET for each in ((0x15, 0, 1, family), _YES)]
    kinds = {"socket": (False, network), "socketpair": (run or network, False)}
    steps = [_LOAD_CALL]
    for name, (local, far) in kinds.items():
        if not (local or far):
            continue
        block = [*(unix if local else ()), *(families if far else ()), _NO]
        steps += [(0x15, 0, len(block), talking[name]), *block]
    refused = [number for number in calls if number not in free]
    steps += [(0x35, len(refused) + 1, 0, _X32)] if arch == 0xC000_003E else []
    steps += [(0x15, len(refused) - at, 0, number) for at, number in enumerate(refused)]
    # Load what the call is of, compare it (linux/filter.h); then its number.
    steps = [(0x20, 0, 0, 4), (0x15, 1, 0, arch), (0x06, 0, 0, _KILL), *steps, _YES, _NO]
    text = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
    program = struct.pack("<HxxxxxxQ", len(steps), ctypes.addressof(text))
    if libc.prctl(_PR_SET_SECCOMP, _FILTER, program, 0, 0) != 0:
        raise _refusal("seccomp")
