"""Kernel functions: which there are, by the kernel's own description."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError, UsageError
from critpath.units import safe_text
from critpath_record.btf import BTF, Types
from critpath_record.counts.events import Counted

MOST: Final = 4000  # attaching takes the kernel some ms for each
# What a program that counts is made of itself, and what runs where no program may.
_NEVER: Final = (
    *("__bpf*", "bpf_*", "*_bpf_*", "__rcu*", "rcu_*", "preempt_count_*", "migrate_*"),
    *("*_nmi*", "nmi_*", "exc_*", "irqentry_*", "ftrace_*", "__traceiter_*", "trace_*"),
)


def find_functions(patterns: Sequence[str], place: Path = BTF) -> list[Counted]:
    """Return the kernel's functions whose names match, once each; raises CritpathError."""
    try:
        functions = dict(Types(place.read_bytes()).list_functions())
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
