"""Notes what interpreters are given to run while a whole machine is recorded.

A trace has no arguments: ``python3 a.py`` and ``python3 b.py`` are both ``python3``.  The kernel
tells of every exec (the process connector, filtered before it wakes anybody); who executed an
interpreter is asked for its arguments at once.  They may hold secrets: of them only the name of
a script, module or class is kept, and nothing of what is not understood.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from critpath.model.recording import Script, is_interpreter
from critpath.units import plural
from critpath_record._pulse import name_thread
from critpath_record.ftrace.drain import raise_priority

MOST: Final = 50_000  # rows, of 5 MB in the manifest
_BYTES: Final = 4096  # of a process's arguments
_UNKNOWN: Final = "what interpreters ran is not known"
_PATIENCE: Final = 1.0  # s that a process whose memory cannot be read may take at the end


# What the arguments of an interpreter name


@dataclass(frozen=True)
class _Grammar:
    """Options before the script, as whole words.  After any other nothing is kept."""

    alone: re.Pattern[str]
    valued: re.Pattern[str]  # its value is the next word
    names: re.Pattern[str]  # its value, here or the next word, is what is run


def _grammar(alone: str, valued: str, names: str = "(?!)") -> _Grammar:
    return _Grammar(re.compile(alone), re.compile(valued), re.compile(names))


_SHELL: Final = _grammar(
    r"[-+][aefhiklmnprtuvxBCDEHPT]+|--(login|noprofile|norc|posix|restricted|verbose)",
    r"[-+][aefhiklmnprtuvxBCDEHPT]*[oO][aefhiklmnprtuvxBCDEHPT]*|--(rcfile|init-file)",
)
_GRAMMARS: Final[Mapping[str, _Grammar]] = {
    "python": _grammar(
        r"-[bBdEhiIOPqRsSuvx]+|-[bBdEhiIOPqRsSuvx]*[WX].+|--[\w-]+=.*",
        r"-[bBdEhiIOPqRsSuvx]*[WX]|--check-hash-based-pycs",
        r"(-)[bBdEhiIOPqRsSuvx]*(m)(.*)",
    ),
    "perl": _grammar(
        r"-([acfnpsStTuUvwWX]|[l0][0-7]*)+|-[acfnpsStTuUvwWX]*([MmxDi].*|dt?:.*|I.+)", "-I"
    ),
    "ruby": _grammar(
        r"-([acdlnpsSUvw]|0[0-7]*|[TW][0-9]?)+|-[acdlnpsSUvw]*([ixF].*|W:.*|[ICrE].+)|--[\w-]+=.*",
        "-[ICrE]",
    ),
    "node": _grammar(
        r"--[\w-]+=.*|--(no-warnings|enable-source-maps|expose-gc|trace-[a-z]+|inspect(-brk)?)",
        r"-[rC]|--(require|import|loader|env-file|conditions)",
    ),
    "java": _grammar(
        r"-(D|X|ea|da|esa|dsa|server|client|verbose|javaagent:|agentlib:|agentpath:).*"
        r"|--[\w-]+=.*|--enable-preview",
        r"-(cp|classpath|p)|--(class-path|module-path|patch-module|add-[a-z]+)",
        r"(-)(jar|m|-module)()",
    ),
    **dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh"), _SHELL),
}
# Not code, a password or a line of text.
_NAME: Final = re.compile(r"[A-Za-z0-9_][\w.+-]{0,79}")


def name_script(program: str, arguments: Sequence[str]) -> str:
    """Return the last part of what an interpreter runs; "" for code, and where it is not sure."""
    grammar = _GRAMMARS.get(program.rstrip("0123456789."))
    words = iter(arguments if grammar else ())
    for word in words:
        if word == "--" or not word.startswith(("-", "+")):
            return _keep(next(words, "") if word == "--" else word)
        if grammar is None:
            break
        if named := grammar.names.fullmatch(word):
            dash, option, rest = named.groups()
            return _keep(rest or next(words, ""), dash + option)
        if grammar.valued.fullmatch(word):
            next(words, "")
        elif not grammar.alone.fullmatch(word):
            break
    return ""


def split_python(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options of a Python and what it runs: a script, or ``-m`` or ``-c`` and its name.

    What it runs is empty where that is not sure, and for an interactive one.
    """
    grammar = _GRAMMARS["python"]
    options: list[str] = []
    words = iter(enumerate(arguments))
    for at, word in words:
        if not word.startswith("-") or word == "-":
            return options, [] if word == "-" else [*arguments[at:]]
        if named := re.fullmatch(r"-([bBdEhiIOPqRsSuvx]*)([mc])(.*)", word, re.DOTALL):
            before, option, rest = named.groups()
            options += [f"-{before}"] * bool(before)
            return options, [f"-{option}", *([rest] * bool(rest)), *arguments[at + 1 :]]
        options.append(word)
        if grammar.valued.fullmatch(word):
            options += [value for _, value in [next(words, (0, ""))]]
        elif not grammar.alone.fullmatch(word):
            break
    return options, []


def _keep(path: str, option: str = "") -> str:
    name = path.rpartition("/")[2]
    return f"{option} {name}".lstrip() if _NAME.fullmatch(name) else ""


# The kernel's word of every exec: linux/cn_proc.h, linux/connector.h, linux/filter.h


_CONNECTOR, _PROCESSES = 11, 1
_LISTEN: Final = 1
_EXEC: Final = 2
_WHAT: Final = 36  # where an event says what it is: after both headers
_EVENT: Final = struct.Struct("=IIQII")  # what, cpu, time, thread, process
_ATTACH_FILTER, _BUFFER_FORCE = 26, 33
_BUFFER: Final = 1 << 20


def listen(wanted_event: int = _EXEC) -> socket.socket:
    """Return a socket that receives an event of every exec, or of another kind; raises OSError."""
    source = socket.socket(
        socket.AF_NETLINK,
        socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK,
        _CONNECTOR,
    )
    try:
        # if what != wanted_event: drop.  A filter's words are big-endian.
        what = struct.unpack(">I", struct.pack("=I", wanted_event))[0]
        code = ctypes.create_string_buffer(
            struct.pack("=HBBI", 0x20, 0, 0, _WHAT)
            + struct.pack("=HBBI", 0x15, 0, 1, what)
            + struct.pack("=HBBI", 0x06, 0, 0, 1 << 16)
            + struct.pack("=HBBI", 0x06, 0, 0, 0)
        )
        program = struct.pack("@HP", 4, ctypes.addressof(code))
        source.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
        with contextlib.suppress(OSError):
            source.setsockopt(socket.SOL_SOCKET, _BUFFER_FORCE, _BUFFER)
        source.bind((0, _PROCESSES))
        wanted = struct.pack("=IIIIHHI", _PROCESSES, 1, 0, 0, 4, 0, _LISTEN)
        source.send(struct.pack("=IHHII", 16 + len(wanted), 3, 0, 0, 0) + wanted)
    except BaseException:
        source.close()
        raise
    return source


class ScriptWatch:
    """Notes what interpreters are given to run, from `start` to `stop`."""

    def __init__(self) -> None:
        self._source: socket.socket | None = None
        self._wake = -1
        self._thread = threading.Thread(target=self._run, name="critpath-script", daemon=True)
        self._found: list[Script] = []
        self._beyond = 0
        self._overflows = 0
        self._why = ""

    def start(self) -> None:
        """Begin to listen; where the kernel refuses, `stop` says so."""
        try:
            self._source = listen()
        except OSError as error:
            self._why = error.strerror or "the kernel refuses"
            return
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread.start()

    def stop(self) -> tuple[tuple[Script, ...], tuple[str, ...]]:
        """Return what was found, and what is to be said of what was not; idempotent."""
        source, self._source = self._source, None
        said = []
        if source is not None:
            os.eventfd_write(self._wake, 1)
            self._thread.join(_PATIENCE)
            if self._thread.is_alive():  # it has the descriptors still
                said.append(f"{_UNKNOWN} to the end: a process withheld its arguments")
            else:
                os.close(self._wake)
                source.close()
        if self._why:
            said.append(f"{_UNKNOWN}: the kernel tells of no exec ({self._why})")
        if self._overflows:
            said.append(f"{_UNKNOWN} of all: too many programs began at once")
        if self._beyond:
            said.append(f"{_UNKNOWN} of {plural(self._beyond, 'interpreter')}: they are too many")
        return tuple(self._found), tuple(said)

    def _run(self) -> None:
        name_thread(b"critpath-script")
        raise_priority()
        source = self._source
        if source is None:
            return
        poll = select.poll()
        poll.register(source, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        ending = False
        while not ending:
            ending = self._wake in dict(poll.poll())
            while True:
                try:
                    message = source.recv(256)
                except BlockingIOError:
                    break
                except OSError as error:
                    if error.errno != errno.ENOBUFS:
                        self._why = error.strerror or "the kernel refuses"
                        return
                    self._overflows += 1
                    continue
                self._take(message)

    def _take(self, message: bytes) -> None:
        """Note an exec, if it is of an interpreter that is still there."""
        if len(message) < _WHAT + _EVENT.size:
            return
        what, _, begin, _, pid = _EVENT.unpack_from(message, _WHAT)
        if what != _EXEC or pid <= 0:
            return
        found = read_script(pid)
        if found is None:
            return
        if len(self._found) >= MOST:
            self._beyond += 1
        else:
            self._found.append(Script(pid, begin, time.monotonic_ns(), found))


def read_script(pid: int, proc: Path = Path("/proc")) -> str | None:
    """Return what a process's interpreter runs; None if it is gone, or no interpreter."""
    try:
        # Without an object for the path: a shell lives for a millisecond.
        program = os.readlink(f"{proc}/{pid}/exe").rpartition("/")[2]  # noqa: PTH115 - as said
        if not is_interpreter(program):
            return None
        with open(f"{proc}/{pid}/cmdline", "rb", buffering=0) as stream:  # noqa: PTH123 - as said
            text = stream.read(_BYTES) or b""
    except OSError:
        return None
    # The last one may be cut off, and none is there without its end.
    words = [word.decode("utf-8", "replace") for word in text.split(b"\0")[1:-1]]
    return name_script(program, words)
