"""Marks in a recording: where an execution begins and where it ends.

A mark is one message of text, ``critpath:begin NAME [KEY]`` or ``critpath:end NAME [KEY]``.
Blanks separate its words, so a blank in a name or key, ``%``, a leading ``@`` and everything
that is not printable ASCII is written as ``%XX`` per byte of UTF-8.

A begin that was admitted to a recording under a budget has a last word, ``@chance=P``.

Without a key, marks pair by name in one thread.  Where that would mix them up (nested
executions of one name, tasks of an event loop, generators) they get a key of their own.
"""

from __future__ import annotations

import os
from _thread import _local, get_ident
from itertools import count
from sys import modules, version_info
from typing import TYPE_CHECKING

from critpath_marks.channels import find_channel, forget_channel

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Hashable
    from types import TracebackType
    from typing import Any, Final, Literal, Self, TypeVar

    from critpath_marks.gate import Gate

    Function = TypeVar("Function", bound=Callable[..., Any])
    Passed = tuple[Gate, list[int], bool]  # a gate, what it wants back, whether it admitted

__all__ = ["execution", "mark"]

# Tracers cut what is longer than 1024 bytes; a name and a key have to fit.
LONGEST: Final = 400

_MOST: Final = 1000  # names whose messages are kept


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
_messages: dict[str, tuple[bytes, bytes]] = {}
_numbers = count(1)
_process = ""


def mark(what: Literal["begin", "end"], name: str, key: object = None) -> bool:
    """Mark where an execution begins or ends, in the current recording, if any.

    For an execution that is not a scope of the program; else `execution` is simpler.
    Costs about one ``write``, and next to nothing while nothing records; never fails.

    Parameters
    ----------
    what : {"begin", "end"}
    name : str
        The kind of execution, such as ``checkout``.
    key : object, optional
        Tells it from others at the same time (``str`` of it), such as a request's id.
        Without a key, begin and end must be in the same thread.

    Returns
    -------
    bool
        Whether a recording took it.

    Raises
    ------
    ValueError
        If ``what`` is neither, or the name is empty.
    """
    if what not in {"begin", "end"}:
        raise ValueError(f"a mark is begin or end, not {what!r}")
    if not name:
        raise ValueError("a run needs a name")
    to = find_channel()
    if to is None:
        return False
    if key is None:
        return to.write(_plain_messages(name)[what == "end"])
    return to.write(format_mark(what, name, key))


def _plain_messages(name: str) -> tuple[bytes, bytes]:
    """Return begin and end without a key; names are few, so they are made once."""
    found = _messages.get(name)
    if found is None:
        found = format_mark("begin", name), format_mark("end", name)
        if len(_messages) < _MOST:  # unless a program puts its keys into names
            _messages[name] = found
    return found


def format_mark(what: str, name: str, key: object = None, thread: str = "") -> bytes:
    """Return a mark as it is written.

    Parameters
    ----------
    what, name, key
        As for `mark`.
    thread : str
        ``TID`` of the thread that is marked, as the kernel numbers it, if it is not the
        one that writes; ``NAMESPACE:TID`` where only its number in a container is known.
    """
    words = [f"critpath:{what}", escape_word(name)]
    text = "" if key is None else str(key)
    if text:
        words.append(escape_word(text))
    if thread:
        words.append(f"@{thread}")
    return " ".join(words).encode("ascii") + b"\n"


def escape_word(text: str) -> str:
    """Return a text as one word of printable ASCII; `urllib.parse.unquote` reads it back.

    The end of a text longer than `LONGEST` becomes its SHA-1, so that it stays distinct.
    """
    harmless = text.isascii() and text.isprintable() and " " not in text and "%" not in text
    if harmless and len(text) <= LONGEST and not text.startswith("@"):
        return text
    pieces = [
        c
        if "!" <= c <= "~" and c != "%" and (c != "@" or place)
        else "".join(f"%{b:02X}" for b in c.encode("utf-8", "surrogatepass"))
        for place, c in enumerate(text)
    ]
    whole = "".join(pieces)
    if len(whole) <= LONGEST:
        return whole
    import hashlib  # noqa: PLC0415 - rarely needed

    if version_info >= (3, 9):
        digest = hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest()
    else:
        digest = hashlib.sha1(whole.encode()).hexdigest()  # noqa: S324 - no such keyword
    head = ""
    for piece in pieces:
        if len(head) + len(piece) + len(digest) >= LONGEST:
            break
        head += piece
    return f"{head}~{digest}"


class execution:  # noqa: N801 - used like a function, as contextlib.suppress is
    """Mark a block or a function as an execution: a context manager and a decorator.

    ``with critpath.execution("checkout", key=order): ...`` or
    ``@critpath.execution("render")`` above a function, a coroutine function, a
    generator or an asynchronous generator; these last from the first step to the last.
    One object can be used again, nested, and by several threads and tasks at once.
    Exceptions pass.  While nothing records, it costs next to nothing.

    Parameters
    ----------
    name : str
        The kind of execution, such as ``checkout``.
    key : object, optional
        Tells it from others at the same time (``str`` of it); becomes the execution's id.
    alone : bool
        False where another of its name may begin in this thread before it ends, through
        greenlets or generators: it then gets a key of its own if it has none.  Tasks of
        asyncio and nested executions need no such hint.

    Raises
    ------
    ValueError
        If the name is empty.
    """

    __slots__ = ("_alone", "_key", "_name", "_open")

    def __init__(self, name: str, key: object = None, *, alone: bool = True) -> None:
        if not name:
            raise ValueError("a run needs a name")
        self._name = name
        self._key = key
        self._alone = alone
        # By thread or task: the messages that its entries still have to write, newest last.
        self._open: dict[Hashable, list[tuple[bytes, bool, Passed | None]]] = {}

    def __enter__(self) -> Self:
        """Mark the begin."""
        to = find_channel()
        if to is None:
            if self._open:  # an outer entry was written: this one must not end it
                self._open.setdefault(_current_owner(), []).append((b"", False, None))
            return self
        owner = _current_owner()
        name = self._name
        passed = None
        plain = (
            self._key is None and self._alone and type(owner) is int and name not in _thread.plain
        )
        if plain:
            begin, end = _plain_messages(name)
        else:
            key = _new_key() if self._key is None else self._key
            begin, end = format_mark("begin", name, key), format_mark("end", name, key)
        gate = to.gate  # once: another thread may take it away
        if gate is not None:
            chance, *token = gate.enter(name)
            passed = gate, token, chance > 0
            if chance:
                begin = b"%s @chance=%.9g\n" % (begin[:-1], chance)
        if not to.write(begin):
            end, plain = b"", False
        if plain:
            _thread.plain.add(name)
        self._open.setdefault(owner, []).append((end, plain, passed))
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
        owner = _current_owner()
        try:
            entries = self._open[owner] if owner in self._open else self._open.popitem()[1]
            end, plain, passed = entries.pop()
        except (KeyError, IndexError):  # entered in another thread or task
            return
        if not entries:
            self._open.pop(owner, None)
        if plain:
            _thread.plain.discard(self._name)
        if end:
            to = find_channel()
            if to is not None:
                to.write(end)
        if passed is not None:
            gate, token, admitted = passed
            gate.leave(*token, admitted=admitted)

    def __call__(self, function: Function) -> Function:
        """Decorate a function of any kind."""
        wrapper: Function = _decorate(function, self._name, self._key)
        return wrapper


def _current_owner() -> Hashable:
    """Return the task that an event loop runs in this thread, else the thread."""
    asyncio = modules.get("asyncio")
    # While another thread is importing asyncio, it has no such name yet.
    running = None if asyncio is None else getattr(asyncio, "_get_running_loop", None)
    if asyncio is None or running is None or running() is None:
        return get_ident()
    task: Hashable = asyncio.current_task()
    return get_ident() if task is None else task


def _new_key() -> str:
    """Return a key that no other execution has."""
    global _process  # noqa: PLW0603 - once per process
    if not _process:
        _process = os.urandom(4).hex()
    return f"{_process}.{next(_numbers)}"


def _after_fork() -> None:
    """Start afresh in a child: its keys must differ, and its channel may."""
    global _process  # noqa: PLW0603 - as above
    _process = ""
    forget_channel()


if hasattr(os, "register_at_fork"):  # not where there is no fork
    os.register_at_fork(after_in_child=_after_fork)


def _decorate(function: Any, name: str, key: object) -> Any:
    """Return a function that does the same, with every call marked as an execution.

    A coroutine lasts until it returns; a generator from its first step until it is
    exhausted, closed or collected.  Raises TypeError for a class or what is not callable.
    """
    import functools  # noqa: PLC0415 - not for programs that decorate nothing
    import inspect  # noqa: PLC0415 - slow to import

    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(_decorate(function.__func__, name, key))
    if isinstance(function, type) or not callable(function):
        raise TypeError(f"a run is a call of a function, not {function!r}")
    # A new object per call: steps of several generators may alternate in one thread.
    if inspect.iscoroutinefunction(function):
        wrapper = _coroutine(function, name, key)
    elif inspect.isasyncgenfunction(function):
        wrapper = _asynchronous_generator(function, name, key)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator(function, name, key)
    else:
        wrapper = _function(function, name, key)
    return functools.update_wrapper(wrapper, function)


def _function(function: Callable[..., Any], name: str, key: object) -> Callable[..., Any]:
    shared = execution(name, key)  # enters and leaves in one thread: one object will do

    def call(*args: Any, **kwargs: Any) -> Any:
        with shared:
            return function(*args, **kwargs)

    return call


def _coroutine(function: Callable[..., Any], name: str, key: object) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        with execution(name, key, alone=False):
            return await function(*args, **kwargs)

    return call


def _generator(function: Callable[..., Any], name: str, key: object) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with execution(name, key, alone=False):
            return (yield from function(*args, **kwargs))

    return call


def _asynchronous_generator(
    function: Callable[..., Any], name: str, key: object
) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        with execution(name, key, alone=False):
            inner: AsyncGenerator[Any, Any] = function(*args, **kwargs)
            # As `yield from` does for a generator.
            try:
                value = await inner.__anext__()
                while True:
                    try:
                        sent = yield value
                    except GeneratorExit:  # noqa: PERF203 - one step a turn
                        raise
                    except BaseException as error:  # noqa: BLE001 - the inner one decides
                        value = await inner.athrow(error)
                    else:
                        value = await inner.asend(sent)
            except StopAsyncIteration:
                return
            finally:
                await inner.aclose()

    return call
