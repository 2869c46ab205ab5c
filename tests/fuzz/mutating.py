"""Changes an input as what it is: a JSON text as a tree, or several of them.

libFuzzer changes bytes; nearly all that comes of JSON then is no JSON any more.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any, Final

ODD: Final = (
    *(None, True, False, 0, -1, 1, 2, 8, 64, 65, 127, 255, 1 << 31, 1 << 32, (1 << 63) - 1),
    *(1 << 63, -(1 << 63), 1 << 64, -(1 << 63) - 1, 10**30, 0.5, -1.5, 1e30, 1e308),
    *("", "a", "\u2028", "\x1b[31m", "</script>", "\ud800", "x" * 300, "/", "../../x", "0"),
    *([], {}, [[]], [0], [[0, 1]], {"": 0}),
)
SEPARATOR: Final = "\x1e"


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place in a tree as its container and the key or index there."""
    found, todo = [], [value]
    while todo:
        at = todo.pop()
        keys = list(at) if isinstance(at, dict) else range(len(at))
        for key in keys:
            found.append((at, key))
            if isinstance(at[key], dict | list):
                todo.append(at[key])
    return found


def change(value: Any, rng: random.Random) -> Any:
    """Return a tree with something changed in it."""
    if not isinstance(value, dict | list):
        return copy.deepcopy(rng.choice(ODD))
    at = places(value)
    if not at:
        return {rng.choice(["format", "type", "parts"]): copy.deepcopy(rng.choice(ODD))}
    inside, key = rng.choice(at)
    how = rng.random()
    other_inside, other_key = rng.choice(at)
    other = copy.deepcopy(other_inside[other_key])
    if how < 0.3:
        inside[key] = copy.deepcopy(rng.choice(ODD))
    elif how < 0.45:
        old = inside[key]
        inside[key] = nudged(old, rng) if not isinstance(old, dict | list) else other
    elif how < 0.6:
        inside[key] = other
    elif how < 0.75:
        del inside[key]
    elif isinstance(inside, list):
        inside.insert(key, copy.deepcopy(inside[key]) if how < 0.9 else other)
    else:
        inside[f"{key}" if how < 0.8 else rng.choice([k for _, k in at if isinstance(k, str)])] = (
            other
        )
    return value


def nudged(old: Any, rng: random.Random) -> Any:
    """Return a value near one."""
    if isinstance(old, bool) or old is None:
        return not old
    if isinstance(old, int | float):
        return rng.choice([old + 1, old - 1, -old, old * 2, old * 1000, str(old)])
    if not old:
        return "0"
    at = rng.randrange(len(old))
    return old[:at] + rng.choice(["", old, chr(rng.randrange(256)), old[at:][::-1]]) + old[at + 1 :]


def changed_text(text: str, rng: random.Random) -> str:
    """Return JSON, or fragments of CTF 2, with some changes.

    Raises
    ------
    ValueError, RecursionError
        If it is none to begin with.
    """
    several = text.startswith(SEPARATOR)
    trees = [json.loads(part) for part in text.split(SEPARATOR)[several:]]
    whole: Any = trees if several else trees[0]
    for _ in range(rng.choice([1, 1, 2, 4])):
        whole = change(whole, rng)
    if several and isinstance(whole, list):
        return "".join(f"{SEPARATOR}{json.dumps(tree)}\n" for tree in whole)
    return json.dumps(whole)


def mutator(
    bytewise: Callable[[bytes, int], bytes], begins: Callable[[bytes], int]
) -> Callable[[bytes, int, int], bytes]:
    """Return what atheris calls for a new input.

    Parameters
    ----------
    bytewise : callable
        libFuzzer's own mutation: data, most bytes.
    begins : callable
        From an input to where its JSON begins, -1 if it is none.
    """

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)  # noqa: S311 - not for secrets
        at = begins(data)
        if at >= 0 and rng.random() < 0.8:
            try:
                made = changed_text(data[at:].decode("utf-8"), rng).encode("utf-8", "surrogatepass")
            except (ValueError, RecursionError, TypeError):
                return bytewise(data, most)
            if at + len(made) <= most:
                return data[:at] + made
        return bytewise(data, most)

    return mutate
