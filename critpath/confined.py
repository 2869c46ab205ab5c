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
from pathlib import Path
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

# linux/landlock.h; the numbers of the calls are those of every processor.
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_ABI_ONLY, _BENEATH = 1, 1
_LEAST: Final = 2  # before it nothing is moved between directories
_RIGHTS: Final = {2: 14, 3: 15, 4: 15, 5: 16}  # how many rights of files an ABI knows
_READ_FILE, _READ_DIR, _WRITE_FILE, _TRUNCATE = 1 << 2, 1 << 3, 1 << 1, 1 << 14
_REMOVE, _MAKE, _REFER = 1 << 4 | 1 << 5, 1 << 7 | 1 << 8, 1 << 13
_OF_FILES: Final = _READ_FILE | _WRITE_FILE | _TRUNCATE
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
# By processor: AUDIT_ARCH, and the calls.
_CALLS: Final = {"x86_64": (0xC000_003E, _X86_64), "aarch64": (0xC000_00B7, _AARCH64)}
_X32: Final = 0x4000_0000
_EPERM: Final = 0x0005_0001  # SECCOMP_RET_ERRNO
_ALLOW, _KILL = 0x7FFF_0000, 0x8000_0000


def restrict(read: Iterable[Path], write: Iterable[Path]) -> None:
    """Confine the calling thread for good: it reads beneath `read`, writes beneath `write`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return
    _confine_files(libc, [*_own_places(), *read], list(write))
    _confine_calls(libc)


def is_offered() -> bool:
    """Tell whether this kernel confines what may be opened."""
    return _abi(ctypes.CDLL(None, use_errno=True)) >= _LEAST


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
        if place and os.path.isdir(place):  # noqa: PTH112 - texts
            yield Path(place)
    yield Path(__file__).resolve().parent
    for name in ("/dev/null", "/dev/urandom", "/etc/localtime", "/proc/self"):
        yield Path(name)


def _abi(libc: Any) -> int:
    return int(libc.syscall(_CREATE, None, ctypes.c_size_t(0), _ABI_ONLY))


def _confine_files(libc: Any, read: list[Path], write: list[Path]) -> None:
    abi = _abi(libc)
    if abi < _LEAST:
        return
    every = (1 << _RIGHTS.get(abi, _RIGHTS[5])) - 1
    more = (_TCP if abi >= 4 else 0, _SCOPES if abi >= 6 else 0)
    sizes = 8 * (1 + (abi >= 4) + (abi >= 6))
    rules = struct.pack("<3Q", every, *more)[:sizes]
    ruleset = libc.syscall(_CREATE, rules, ctypes.c_size_t(sizes), 0)
    if ruleset < 0:
        return
    looking = _READ_FILE | _READ_DIR
    changing = looking | _WRITE_FILE | _TRUNCATE | _REMOVE | _MAKE | _REFER
    try:
        for places, rights in ((read, looking), (write, changing)):
            for place in places:
                _allow(libc, ruleset, place, rights & every)
        libc.syscall(_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(libc: Any, ruleset: int, place: Path, rights: int) -> None:
    with contextlib.suppress(OSError):  # what is not there is not read
        descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
        try:
            if not os.path.isdir(place):  # noqa: PTH112 - a rule of a file names no others
                rights &= _OF_FILES
            libc.syscall(_ADD, ruleset, _BENEATH, struct.pack("<Qi", rights, descriptor), 0)
        finally:
            os.close(descriptor)


def _confine_calls(libc: Any) -> None:
    found = _CALLS.get(platform.machine())
    if found is None or sys.byteorder != "little" or struct.calcsize("P") != 8:
        return
    arch, calls = found
    # Load what the call is of, then its number; compare it with each (linux/filter.h).
    steps = [(0x20, 0, 0, 4), (0x15, 1, 0, arch), (0x06, 0, 0, _KILL), (0x20, 0, 0, 0)]
    steps += [(0x35, len(calls) + 1, 0, _X32)] if arch == 0xC000_003E else []
    steps += [(0x15, len(calls) - at, 0, number) for at, number in enumerate(calls)]
    steps += [(0x06, 0, 0, _ALLOW), (0x06, 0, 0, _EPERM)]
    text = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
    program = struct.pack("<HxxxxxxQ", len(steps), ctypes.addressof(text))
    libc.prctl(_PR_SET_SECCOMP, _FILTER, program, 0, 0)
