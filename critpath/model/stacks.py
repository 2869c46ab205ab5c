"""User stacks: where in the code a thread slept, woke another, or ran."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Final, NamedTuple

from critpath.model.table import I32, I64, U8, Bool, FlatTable, col
from critpath.records import dataclass

# Kinds of stacks, by their numbers in a recording.
KINDS: Final = ("sleep", "wake", "run", "sample")
SLEEP, WAKE, RUN, SAMPLE = range(len(KINDS))


class Frame(NamedTuple):
    """One function of a stack.

    Attributes
    ----------
    function : str
    file : str
        Its source, "" where that is not known.
    line : int
        Where it was in that; of Python, where the function is defined; 0 where not known.
    module : str
        The program or library that it is of.
    own : bool or None
        Whether the user says that it is the program's own; None: as the tables here say.
    """

    function: str
    file: str
    line: int
    module: str
    own: bool | None = None


Stack = tuple[Frame, ...]  # the innermost first


@dataclass(frozen=True, eq=False)
class Frames(FlatTable):
    """The frames of a recording's stacks, each once."""

    function: Sequence[str] = field(metadata=col("what it is called"))
    file: Sequence[str] = field(metadata=col("its source"))
    line: I32 = field(metadata=col("in that", least=1))
    module: Sequence[str] = field(metadata=col("the program or library"))
    inlined: Bool = field(metadata=col("within another"))


@dataclass(frozen=True, eq=False)
class Stacks(FlatTable):
    """The events at which a recording has stacks, in order of time.

    Attributes
    ----------
    distinct : sequence of Stack
        Each once, of the frames of the recording.
    frames : Frames
    complete : bool
        Every sleep of a thread that has events after its first is among them.
    period : int
        Of samples: how far apart they are (ns).
    """

    time: I64 = field(metadata=col("when, of the recording's clock", "time_ns"))
    tid: I64 = field(metadata=col("in which thread"))
    woken: I64 = field(metadata=col("which thread that woke", least=1))
    kind: U8 = field(metadata=col("a sample is until the thread's next one", words=KINDS))
    stack: I32 = field(metadata=col("a line per frame", words="words_of_stacks", least=0))
    distinct: Sequence[Stack]
    frames: Frames
    complete: bool = False
    period: int = 0

    @property
    def words_of_stacks(self) -> tuple[str, ...]:
        """The stacks as texts."""
        return tuple(map(word_stack, self.distinct))


# A stack as files and tables have it: a line per frame, its parts with tabs between.


def word_stack(stack: Stack) -> str:
    """Return a stack as text; names have neither tabs nor line breaks."""
    marks = {None: "", True: "\t+", False: "\t-"}
    return "\n".join(f"{f.function}\t{f.file}\t{f.line}\t{f.module}{marks[f.own]}" for f in stack)


def read_stack(text: str) -> Stack:
    """Return the stack that a file has as text; of a malformed one what can be read."""
    return tuple(map(_read_frame, text.split("\n")))


@lru_cache(maxsize=1 << 14)  # stacks are many, of few frames
def _read_frame(line: str) -> Frame:
    function, file, number, module, mark = (*line.split("\t"), "", "", "", "", "")[:5]
    plain = number.isascii() and number.isdecimal() and len(number) < 10
    own = {"+": True, "-": False}.get(mark)
    return Frame(function, file, int(number) if plain else 0, module, own)


_EXACT: Final = "perf.map"  # module of functions that a language itself names to perf


def join_stacks(inner: Stack, outer: Stack) -> Stack:
    """Return a stack whose outer frames were found apart: a call's, or those of a sampled Python.

    What perf knows of Python is of that very moment, and stays if it reaches the program's own;
    else the sampled functions stand where the interpreter is that runs them.
    """
    if any(f.module == _EXACT and is_own(f) for f in inner):
        return inner
    runs = [f.module == _EXACT or f.function.startswith("_PyEval_") for f in inner]
    at = runs.index(True) if any(runs) else len(inner)
    return (*inner[:at], *outer, *(f for f in inner[at:] if f.module != _EXACT))


# What is not the program's own: the C library, language runtimes, their standard libraries, and
# what was installed.  By the name of the module, by the path of a source file, by the function.
_MODULES: Final = re.compile(
    r"\[.*\]|(?:ld-linux|ld-musl|libc|libm|libdl|librt|libpthread|libresolv|libnss_\w+|libstdc\+\+"
    r"|libgcc_s|libgomp|libasan|libtsan|libpython\d|libcrypto|libssl|libuv|libnode|libjvm|libz"
    r"|libpq|libsqlite3|libuuid|libffi)(?:[.-].*)?|(?:python\d?(?:\.\d+)?|node|java|perl|ruby)"
)
_FILES: Final = re.compile(
    r"(?:^|.*/)(?:site-packages|dist-packages|lib/python\d(?:\.\d+)?|lib-dynload)/.*|<[^/]*"
    r"|(?:^|.*/)(?:sysdeps|nptl|csu|bits|c\+\+/\d+)/.*|/rustc/.*|/usr/(?:lib|include|local/go)/.*"
    r"|node:.*|(?:^|.*/)node_modules/.*"
)
_INSTALLED: Final = re.compile(
    r".*/(?:site-packages|dist-packages|lib/python\d(?:\.\d+)?|lib-dynload)/.*"
)
_FUNCTIONS: Final = re.compile(
    r"(?:__|_Py|Py[A-Z]|std::|__gnu_cxx::|core::|alloc::|runtime\.|tokio::).*|_start|start_thread"
    r"|(?:Builtin|BytecodeHandler|RegExp|Stub):.*"
    r"|\[unknown\]|main\.constprop.*|pthread_\w+"
)


def is_own(frame: Frame) -> bool:
    """Tell whether a frame is of the program itself, not of what it stands on."""
    if frame.own is not None:
        return frame.own
    if frame.file.endswith(".py"):
        return not _FILES.fullmatch(frame.file)
    module = frame.module.rpartition("/")[2]
    if _INSTALLED.fullmatch(frame.module):
        return False
    if _MODULES.fullmatch(module) or _FUNCTIONS.fullmatch(frame.function):
        return False
    return not (frame.file and _FILES.fullmatch(frame.file)) and bool(frame.function)


@lru_cache(maxsize=1 << 14)
def location_of(stack: Stack, *, lines: bool = True) -> str:
    """Return where in the user's own code a stack is: ``flush_log (app/audit.py:42)``.

    Without a source file the program stands for it: ``flush_log (app)``; "" where no frame is
    the user's own.  With files, before it what the thread slept for: ``fsync(audit.log)``.
    """
    said = []
    for frame in filter(is_own, stack):
        said.append(frame_name(frame, lines=lines))
        if not is_call(frame):
            break
    return " in ".join(said)


def own_functions(stack: Stack) -> list[str]:
    """Return the program's own functions of a stack, without lines, the innermost first."""
    return [name for frame in stack if (name := _own_function(frame))]


@lru_cache(maxsize=1 << 14)  # stacks are many, of few functions
def _own_function(frame: Frame) -> str:
    return frame_name(frame, lines=False) if is_own(frame) else ""


def frame_name(frame: Frame, *, lines: bool = True) -> str:
    """Return a frame as a place in the code: ``flush_log (app/audit.py:42)``."""
    if is_call(frame):
        return frame.function
    place = _short(frame.file) if frame.file else frame.module.rpartition("/")[2]
    if lines and frame.file and frame.line:
        place += f":{frame.line}"
    return f"{frame.function} ({place})"


def is_call(frame: Frame) -> bool:
    """Tell whether a frame is a system call with the file or peer that it is about."""
    return frame.function.endswith(")") and not (frame.file or frame.module)


# Threads of the kernel that work for others: of its queues, file systems and block devices.
_HELPERS: Final = re.compile(
    r"(?:kworker|jbd2|ksoftirqd|irq|xfsaild|xfs-\w+|btrfs-\w+|kcopyd|dm[_-]\w+|nfsiod|bcache\w*)/.*"
    r"|(?:loop|nbd|md)\d+(?:_\w+)?|btrfs-\w+|z_(?:rd|wr|fr)_\w+|txg_sync|kblockd|kcryptd.*"
)


def is_helper(name: str) -> bool:
    """Tell whether a thread of that name, or role, is one of the kernel that works for others."""
    return _HELPERS.fullmatch(name) is not None


def mark_frames(stack: Stack, own: Collection[str], not_own: Collection[str]) -> Stack:
    """Return a stack in which frames that the user names are the program's own, or not.

    A frame is named by its function, or a directory, file or program, with or without its ending.
    What is named on both sides is not the program's own.
    """

    def named(frame: Frame, names: Collection[str]) -> bool:
        parts = [frame.function, *frame.file.split("/"), frame.module.rpartition("/")[2]]
        return any(part in names or part.partition(".")[0] in names for part in parts if part)

    return tuple(
        f._replace(own=False if named(f, not_own) else True if named(f, own) else f.own)
        for f in stack
    )


def own_stack(stack: Stack) -> Stack:
    """Return a stack of the program's own frames alone, without directories of the machine.

    Its location is that of the whole.
    """
    short = [
        f._replace(file=_short(f.file), module=f.module.rpartition("/")[2])
        for f in filter(is_own, stack)
    ]
    # What the shorter name would be taken for is not what it is.
    return tuple(f if is_own(f) else f._replace(own=True) for f in short)


def _short(file: str) -> str:
    """Return the last two parts of a path."""
    return "/".join(part for part in file.split("/")[-2:] if part not in {"", "."})
