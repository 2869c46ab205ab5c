"""Marks that a program makes in whatever records it: where an execution begins and ends.

One message of text per mark, ``critpath:begin NAME [KEY]`` and ``critpath:end NAME
[KEY]``, which `critpath.executions.marker` reads.  A blank separates its words, so a
blank in a name or key, ``%``, ``@`` in front and whatever is not printable ASCII is
written as ``%XX`` per byte of UTF-8, and read back as it was.

Without a key, marks pair by name in one thread.  Where that would mix them up (nested
executions of one name, tasks of an event loop, generators) they get a key of their own.
"""

from __future__ import annotations

import os
from _thread import _local, get_ident
from itertools import count
from sys import modules
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from critpath.record.channels import channel, forget

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from types import TracebackType
    from typing import Self

    Function = TypeVar("Function", bound=Callable[..., Any])

__all__ = ["execution", "mark"]

# Tracers cut what is longer than 1024 bytes; a name and a key have to fit.
LONGEST: Final = 400

_CUT: Final = 40  # hexadecimal digits that stand for the rest of a longer text


class _Thread(_local):
    """What one thread has open.

    Attributes
    ----------
    plain : set of str
        Names of executions without a key.
    """

    def __init__(self) -> None:
        self.plain: set[str] = set()


_thread = _Thread()
_numbers = count(1)
_process = ""


def mark(what: Literal["begin", "end"], name: str, key: object = None) -> bool:
    """Mark where an execution begins or ends, for the recording there is, if any.

    For what has no scope in the program; else `execution` is simpler.  Costs about one
    ``write``, and next to nothing while nobody records; fails never.

    Parameters
    ----------
    what : {"begin", "end"}
    name : str
        What kind of execution: ``checkout``.
    key : object, optional
        What tells it from others at the same time (``str`` of it): a request's id.
        Without, begin and end must be in the same thread.

    Returns
    -------
    bool
        Whether something took it.

    Raises
    ------
    ValueError
        If ``what`` is neither, or the name is empty.
    """
    if what not in {"begin", "end"}:
        raise ValueError(f"a mark is begin or end, not {what!r}")
    if not name:
        raise ValueError("an execution needs a name")
    to = channel()
    return to is not None and to.write(message(what, name, key))


def message(what: str, name: str, key: object = None, thread: str = "") -> bytes:
    """Return a mark as it is written.

    Parameters
    ----------
    what, name, key
        As for `mark`.
    thread : str
        ``TID`` of the thread it is about, as the kernel numbers it, if not the
        writer's own; ``NAMESPACE:TID`` where only the number inside is known.
    """
    words = [f"critpath:{what}", word(name)]
    text = "" if key is None else str(key)
    if text:
        words.append(word(text))
    if thread:
        words.append(f"@{thread}")
    return " ".join(words).encode("ascii") + b"\n"


def word(text: str) -> str:
    """Return a text as one word of printable ASCII; `urllib.parse.unquote` reads it back.

    Of a text longer than `LONGEST`, the end becomes its SHA-1: it stays distinct.
    """
    if not text.isascii() or not text.isprintable() or " " in text or "%" in text:
        text = "".join(
            c
            if "!" <= c <= "~" and c != "%"
            else "".join(f"%{b:02X}" for b in c.encode("utf-8", "surrogatepass"))
            for c in text
        )
    if text.startswith("@"):
        text = "%40" + text[1:]
    if len(text) > LONGEST:
        import hashlib  # noqa: PLC0415 - rarely needed

        digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        head = text[: LONGEST - _CUT - 1]
        text = f"{head[: head.rfind('%')] if '%' in head[-2:] else head}~{digest}"
    return text


class execution:  # noqa: N801 - used like a function, as contextlib.suppress is
    """Mark what happens within as an execution: a context manager and a decorator.

    ``with critpath.execution("checkout", key=order): ...`` or
    ``@critpath.execution("render")`` above a function, a coroutine function, a
    generator or an asynchronous generator; these last from the first step to the last.
    One object can be used again, nested, and by several threads and tasks at once.
    Exceptions pass.  While nobody records, it costs next to nothing.

    Parameters
    ----------
    name : str
        What kind of execution: ``checkout``.
    key : object, optional
        What tells it from others at the same time (``str`` of it): becomes the
        execution's id.
    alone : bool
        False where another of its name may begin in this thread before it ends, by
        cooperation that is not asyncio's (greenlets, generators): it then gets a key of
        its own if it has none.  Tasks of asyncio and nesting are seen without.

    Raises
    ------
    ValueError
        If the name is empty.
    """

    __slots__ = ("_alone", "_key", "_name", "_open", "_plain")

    def __init__(self, name: str, key: object = None, *, alone: bool = True) -> None:
        if not name:
            raise ValueError("an execution needs a name")
        self._name = name
        self._key = key
        self._alone = alone
        # By thread or task: what its own entries still have to write, the last one last.
        self._open: dict[Hashable, list[tuple[bytes, bool]]] = {}
        self._plain: tuple[bytes, bytes] | None = None

    def __enter__(self) -> Self:
        """Mark the begin."""
        to = channel()
        if to is None:
            if self._open:  # an outer entry was written: this one must not end it
                self._open.setdefault(_owner(), []).append((b"", False))
            return self
        owner = _owner()
        name = self._name
        plain = (
            self._key is None and self._alone and type(owner) is int and name not in _thread.plain
        )
        if plain:
            if self._plain is None:
                self._plain = message("begin", name), message("end", name)
            begin, end = self._plain
        else:
            key = _own_key() if self._key is None else self._key
            begin, end = message("begin", name, key), message("end", name, key)
        if not to.write(begin):
            end, plain = b"", False
        if plain:
            _thread.plain.add(name)
        self._open.setdefault(owner, []).append((end, plain))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Mark the end."""
        if not self._open:
            return
        owner = _owner()
        try:
            entries = self._open[owner] if owner in self._open else self._open.popitem()[1]
            end, plain = entries.pop()
        except (KeyError, IndexError):  # somebody else's: left where it was not entered
            return
        if not entries:
            self._open.pop(owner, None)
        if plain:
            _thread.plain.discard(self._name)
        if end:
            to = channel()
            if to is not None:
                to.write(end)

    def __call__(self, function: Function) -> Function:
        """Decorate a function of any kind."""
        from critpath.record.decorated import decorated  # noqa: PLC0415 - inspect is slow to import

        wrapper: Function = decorated(function, self._name, self._key)
        return wrapper


def _owner() -> Hashable:
    """Return who enters: the task that an event loop runs in this thread, else the thread."""
    asyncio = modules.get("asyncio")
    # While asyncio is just being imported by another thread it has no such name yet.
    running = getattr(asyncio, "_get_running_loop", None)
    if asyncio is None or running is None or running() is None:
        return get_ident()
    task: Hashable = asyncio.current_task()
    return get_ident() if task is None else task


def _own_key() -> str:
    """Return a key that no other execution has."""
    global _process  # noqa: PLW0603 - once per process
    if not _process:
        _process = os.urandom(4).hex()
    return f"{_process}.{next(_numbers)}"


def _after_fork() -> None:
    """Start anew in a child: its keys must differ, its channel may have to."""
    global _process  # noqa: PLW0603 - as above
    _process = ""
    forget()


os.register_at_fork(after_in_child=_after_fork)
