"""Compiles an event's format file to its CTF class and to a program that converts records.

A program is a list of small steps which the page decoder (`_pages.pyx`) runs for every
record of the event; see `Step`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final

from critpath_record.ctf.trace import (
    SOCKADDR,
    CtfEventClass,
    declare_address,
    declare_characters,
    declare_integer,
)
from critpath_record.ftrace.events import (
    DROPPED,
    MAX_RT_PRIO,
    PRIORITIES,
    RENAMED,
    lttng_name,
)
from critpath_record.ftrace.formats import EventFormat, FormatField


class Step(IntEnum):
    """What a step does with a, b, c; offsets are from the begin of the record, or from a base."""

    END = 0
    COPY = 1  # b bytes from offset a
    ADD32 = 2  # the 32-bit integer at offset a, plus b
    TEXT_AT = 3  # text whose place is at offset a with base b, ended by a zero
    CHARS_AT = 4  # the same as c bytes, cut or filled with zeros
    SEQUENCE_AT = 5  # bytes whose place is at a with base b, after their number / c (u32)
    TEXT_REST = 6  # text from offset a to the record's end, without one newline if b
    SEQUENCE_REST = 7  # bytes from offset a to the record's end, after their number (u32)
    CONSTANT32 = 8  # a
    BESIDE = 9  # b bytes at offset a of the record beside (`ConversionResult` fields of forks)
    NEXT_BESIDE = 10  # the next record beside, a bytes further
    SWAP = 11  # b bytes from offset a, the bytes of each c of them in the other order


# Words in front of a program: id in the trace, bytes a record must have, bytes of output
# without what is located, number of steps whose output is as long as their content.
HEAD: Final = 4
WIDTH: Final = 4
# A located text or sequence adds at most this to its content: a count or a zero.
LOCATED_EXTRA: Final = 8

# parent's TGID and pid namespace, child's TGID and pid namespace
FORK_BESIDE: Final = 16

_ELEMENT: Final = {
    **dict.fromkeys(("char", "signed char", "unsigned char", "u8", "s8", "__u8", "__s8"), 1),
    **dict.fromkeys(("bool", "uint8_t", "int8_t"), 1),
    **dict.fromkeys(("short", "unsigned short", "u16", "s16", "__u16", "__s16", "__be16"), 2),
    **dict.fromkeys(("int", "unsigned int", "unsigned", "u32", "s32", "__u32", "__s32"), 4),
    **dict.fromkeys(("__be32", "pid_t", "uint32_t", "int32_t"), 4),
    **dict.fromkeys(("u64", "s64", "__u64", "__s64", "long long", "unsigned long long"), 8),
}
_TEXT: Final = {"char", "const char"}
_ADDRESSES: Final = frozenset(("saddr", "daddr", "saddr_v6", "daddr_v6"))  # arrays of bytes
# System calls' arguments are recorded as machine words, whatever they are.
_NARROW: Final = {
    **dict.fromkeys(("int", "pid_t", "clockid_t", "timer_t", "mqd_t", "key_serial_t"), (4, True)),
    **dict.fromkeys(("unsigned int", "unsigned", "uid_t", "gid_t", "u32", "__u32"), (4, False)),
    "__s32": (4, True),
    "umode_t": (2, False),
}


class _Compiler:
    """Collects the declarations and steps of one event; `swap`: of the other byte order."""

    def __init__(self, group: str, event: str, *, swap: bool = False) -> None:
        self.swap = swap
        self.name = lttng_name(group, event)
        self.group = group
        self.fields: list[str] = []
        self.steps: list[tuple[int, int, int, int]] = []
        self._renamed = RENAMED.get(self.name, {})

    def copy(self, offset: int, size: int, element: int = 1) -> None:
        """Copy numbers of `element` bytes each."""
        if self.swap and element > 1:
            self.steps.append((Step.SWAP, offset, size, element))
            return
        if self.steps and self.steps[-1][0] == Step.COPY:
            _, begin, length, _ = self.steps[-1]
            if begin + length == offset:
                self.steps[-1] = (Step.COPY, begin, length + size, 0)
                return
        self.steps.append((Step.COPY, offset, size, 0))

    def add(self, field: FormatField) -> None:
        """Add one field of the format file."""
        name = self._renamed.get(field.name, field.name)
        if field.located:
            self._add_located(field, name)
        elif field.size == 0:
            self._add_rest(field, name)
        elif field.array is not None or field.size not in {1, 2, 4, 8}:
            self._add_array(field, name)
        elif name in PRIORITIES and field.size == 4 and self.name.startswith("sched_"):
            self.fields.append(declare_integer(name, 4, signed=True))
            self.steps.append((Step.ADD32, field.offset, -MAX_RT_PRIO, 0))
        else:
            size, signed = field.size, field.signed
            if self.group == "syscalls" and size == 8:
                size, signed = _NARROW.get(field.type, (size, signed))
            base = 16 if field.pointer else 10
            self.fields.append(declare_integer(name, size, signed=signed, base=base))
            # What is narrowed is at the end of what the machine wrote, where that is big-endian.
            self.copy(field.offset + (field.size - size if self.swap else 0), size, size)
        if self.name == "sched_process_fork" and field.size == 4:
            self._add_fork(field.name)

    def _add_fork(self, field: str) -> None:
        """Add the fields that LTTng has for both sides of a fork and ftrace lacks."""
        for offset, side in ((0, "parent"), (8, "child")):
            if field == f"{side}_pid":
                self.fields.append(declare_integer(f"{side}_pid", 4, signed=True))
                self.fields.append(declare_integer(f"{side}_ns_inum", 4, signed=False))
                self.steps.append((Step.BESIDE, offset, 8, 0))

    def _add_located(self, field: FormatField, name: str) -> None:
        base = field.offset + field.size if field.located == "rel" else 0
        if field.type not in _TEXT:
            element = _ELEMENT.get(field.type, 8 if field.type.endswith("long") else 1)
            self._add_sequence(name, element, signed=field.signed)
            self.steps.append((Step.SEQUENCE_AT, field.offset, base, element))
        elif name.endswith("comm") and self.name.startswith("sched_process_"):
            self.fields.append(declare_characters(name, 16))
            self.steps.append((Step.CHARS_AT, field.offset, base, 16))
        else:
            self.fields.append(f"string _{name};")
            self.steps.append((Step.TEXT_AT, field.offset, base, 0))

    def _add_sequence(self, name: str, element: int, *, signed: bool) -> None:
        self.fields.append(declare_integer(f"_{name}_length", 4, signed=False))
        self.fields.append(
            declare_integer(name, element, signed=signed, base=16, suffix=f"[ __{name}_length ]")
        )

    def _add_rest(self, field: FormatField, name: str) -> None:
        if field.type in _TEXT and self.name in {"print", "bputs"}:
            self.fields.append(f"string _{name};")
            self.steps.append((Step.TEXT_REST, field.offset, 1, 0))
        else:
            self._add_sequence(name, 1, signed=False)
            self.steps.append((Step.SEQUENCE_REST, field.offset, 0, 0))

    def _add_array(self, field: FormatField, name: str) -> None:
        element = 1
        if field.type in _TEXT:
            self.fields.append(declare_characters(name, field.size))
        elif name in _ADDRESSES and field.size in {4, 16, SOCKADDR}:
            self.fields += declare_address(name, field.size)
        else:
            count = int(field.array) if field.array and field.array.isdecimal() else 0
            element = field.size // count if count and field.size % count == 0 else 1
            if element not in {1, 2, 4, 8}:
                element = 1
            base = 16 if element == 1 or field.pointer else 10
            signed = field.signed and element > 1
            suffix = f"[{field.size // element}]"
            self.fields.append(
                declare_integer(name, element, signed=signed, base=base, suffix=suffix)
            )
        self.copy(field.offset, field.size, element)


def compile_event(
    group: str, form: EventFormat, number: int, *, swap: bool = False
) -> CtfEventClass:
    """Return the class of a group's event, by its id in the trace, and its records' program.

    `swap`: they are of a machine of the other byte order.
    """
    compiler = _Compiler(group, form.name, swap=swap)
    need = max((f.offset + f.size for f in form.common.values()), default=8)
    for field in form.fields:
        if group == "syscalls" and field.name in DROPPED:
            continue
        compiler.add(field)
        need = max(need, field.offset + field.size)
    if compiler.name == "sched_process_fork":
        compiler.steps.append((Step.NEXT_BESIDE, FORK_BESIDE, 0, 0))
    return CtfEventClass(
        compiler.name, number, tuple(compiler.fields), form.number, need, tuple(compiler.steps)
    )


def _output_size(step: tuple[int, int, int, int]) -> tuple[int, int]:
    """Return the bytes that a step writes, and 1 if its content comes on top."""
    kind, _, b, c = step
    if kind in {Step.COPY, Step.SWAP, Step.BESIDE}:
        return b, 0
    if kind in {Step.ADD32, Step.CONSTANT32}:
        return 4, 0
    if kind == Step.CHARS_AT:
        return c, 0
    return (0, 0) if kind in {Step.END, Step.NEXT_BESIDE} else (LOCATED_EXTRA, 1)


def compile_programs(classes: Sequence[CtfEventClass]) -> tuple[array[int], array[int]]:
    """Return the programs in the form that the page decoder takes."""
    starts, words = array("i", [-1]) * (1 << 16), array("i")
    for one in classes:
        if one.number < 0:
            continue
        starts[one.number] = len(words)
        outputs = [_output_size(step) for step in one.steps]
        words.extend((one.id, one.need, sum(o[0] for o in outputs), sum(o[1] for o in outputs)))
        for step in one.steps:
            words.extend(step)
        words.extend((Step.END, 0, 0, 0))
    return starts, words


def make_names_unique(classes: Sequence[tuple[str, CtfEventClass]]) -> Iterator[CtfEventClass]:
    """Prefix the group to the name of events that share one with another group's."""
    seen: set[str] = set()
    for group, one in classes:
        name = one.name if one.name not in seen else f"{group}:{one.name}"
        seen.add(name)
        yield CtfEventClass(name, one.id, one.fields, one.number, one.need, one.steps)
