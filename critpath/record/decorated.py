"""Functions of every kind whose calls are executions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, cast

from critpath.record.marks import execution


def decorated(function: Any, name: str, key: object) -> Any:
    """Return a function that does the same, every call within `execution`.

    Parameters
    ----------
    function : callable
        A coroutine lasts until it returns; a generator from its first step until it
        is exhausted, closed or collected.
    name : str
    key : object

    Raises
    ------
    TypeError
        For a class or what cannot be called.
    """
    if isinstance(function, staticmethod | classmethod):
        return type(function)(decorated(function.__func__, name, key))
    if isinstance(function, type) or not callable(function):
        raise TypeError(f"an execution is a call of a function, not {function!r}")
    wrapper: Callable[..., Any]
    # A new object per call, as steps of several generators may alternate in one thread.
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
            inner = cast("AsyncGenerator[Any, Any]", function(*args, **kwargs))
            # What `yield from` does for a generator.
            try:
                value = await anext(inner)
                while True:
                    try:
                        sent = yield value
                    except GeneratorExit:
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
