"""Kernel functions: which there are, by the kernel's own description of its types (BTF)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError, UsageError
from critpath.units import safe_text
from critpath_record.counts.events import Counted

BTF: Final = Path("/sys/kernel/btf/vmlinux")
MOST: Final = 4000  # attaching takes the kernel some ms for each
_HEADER: Final = struct.Struct("<HBBIIIII")  # magic, version, flags, its size; types, texts
_MAGIC: Final = 0xEB9F
_TYPE: Final = struct.Struct("<III")
_FUNCTION: Final = 12
# Bytes behind a type: of a kind, and for each of its members.
_MORE: Final = {1: 4, 3: 12, 14: 4, 17: 4}
_EACH: Final = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}
# What a program that counts is made of itself, and what runs where no program may.
_NEVER: Final = (
    *("__bpf*", "bpf_*", "*_bpf_*", "__rcu*", "rcu_*", "preempt_count_*", "migrate_*"),
    *("*_nmi*", "nmi_*", "exc_*", "irqentry_*", "ftrace_*", "__traceiter_*", "trace_*"),
)


def find_functions(patterns: Sequence[str], place: Path = BTF) -> list[Counted]:
    """Return the kernel's functions whose names match, once each.

    Raises CritpathError if the kernel does not describe its functions.  Raises UsageError if a
    pattern matches none, or all of them together too many.
    """
    try:
        functions = dict(_read_functions(place.read_bytes()))
    except (OSError, ValueError, struct.error) as error:
        raise CritpathError(
            f"this kernel does not describe its functions ({error})",
            "boot a kernel with CONFIG_DEBUG_INFO_BTF=y, or leave --kernel-functions out",
        ) from None
    found: dict[str, int] = {}
    for pattern in patterns:
        matching = {
            name: number
            for name, number in functions.items()
            if fnmatchcase(name, pattern)
            and (name == pattern or not any(fnmatchcase(name, never) for never in _NEVER))
        }
        if not matching:
            raise UsageError(
                f"--kernel-functions: this kernel has no function {safe_text(pattern)}",
                "names are those of /proc/kallsyms, with * for any text",
            )
        found |= matching
    if len(found) > MOST:
        raise UsageError(
            f"--kernel-functions: {len(found):,} functions, at most {MOST:,} are counted",
            "choose fewer",
        )
    return [
        Counted(f"fn/{name}", (f"fn:{name}",), function=number)
        for name, number in sorted(found.items())
    ]


def _read_functions(data: bytes) -> Iterator[tuple[str, int]]:
    """Yield the name and number of every function."""
    magic, _, _, header, types, size, texts, _ = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError("no BTF")
    at, end, texts = header + types, header + types + size, header + texts
    number = 0
    while at < end:
        name, info, _ = _TYPE.unpack_from(data, at)
        number += 1
        kind, members = info >> 24 & 31, info & 0xFFFF
        if kind == _FUNCTION:
            first = texts + name
            yield data[first : data.index(b"\0", first)].decode("ascii", "replace"), number
        at += _TYPE.size + _MORE.get(kind, 0) + _EACH.get(kind, 0) * members
