"""The kernel's description of its types (BTF): its functions, and where structures have what."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

BTF: Final = Path("/sys/kernel/btf/vmlinux")
_HEADER: Final = struct.Struct("<HBBIIIII")  # magic, version, flags, its size; types, texts
_MAGIC: Final = 0xEB9F
_TYPE: Final = struct.Struct("<III")
_MEMBER: Final = struct.Struct("<III")
_STRUCT, _UNION, _TYPEDEF, _FUNCTION, _PROTOTYPE = 4, 5, 8, 12, 13
_POINTER: Final = 2
_NAMES: Final = {_TYPEDEF, 9, 10, 11, 18}  # what only says how a type is used
# Bytes behind a type: of a kind, and for each of its members.
_MORE: Final = {1: 4, 3: 12, 14: 4, 17: 4}
_EACH: Final = {_STRUCT: 12, _UNION: 12, 6: 8, _PROTOTYPE: 8, 15: 12, 19: 12}


class Types:
    """The types of a kernel."""

    def __init__(self, data: bytes) -> None:
        self._data, self._places = data, array("L", [0])
        magic, _, _, header, types, size, texts, _ = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise ValueError("no BTF")
        self._texts = header + texts
        at, end = header + types, header + types + size
        unpack, add = struct.Struct("<4xI").unpack_from, self._places.append
        more, each = [_MORE.get(k, 0) for k in range(32)], [_EACH.get(k, 0) for k in range(32)]
        while at < end:
            (info,) = unpack(data, at)
            add(at)
            kind = info >> 24 & 31
            at += 12 + more[kind] + each[kind] * (info & 0xFFFF)

    def list_functions(self) -> Iterator[tuple[str, int]]:
        """Yield the name and number of every function."""
        for number in range(1, len(self._places)):
            if self._kind(number) == _FUNCTION:
                yield self._name(number), number

    def find_offsets(self, wanted: Mapping[str, Collection[str]]) -> dict[str, int]:
        """Return where structures have members, by ``structure.member``, in bytes.

        `wanted`: by structure, members as ``d_name.name``.  What is not there is left out.
        """
        found = {}
        for number in self._find(_STRUCT, wanted):
            name = self._name(number)
            for path in wanted[name]:
                if (at := self._follow(number, path.split("."))) is not None:
                    found[f"{name}.{path}"] = at
        return found

    def count_arguments(self, typedef: str) -> int:
        """Return how many arguments a kind of function takes, 0 if there is none of that name."""
        for number in self._find(_TYPEDEF, {typedef}):
            at = self._places[self._leave_names(number, {*_NAMES, _POINTER})]
            kind, count = self._info(at)
            return count if kind == _PROTOTYPE else 0
        return 0

    def _find(self, kind: int, names: Collection[str]) -> Iterator[int]:
        """Yield the first type of a kind with each of some names."""
        texts = {self._data.find(f"\0{name}\0".encode(), self._texts) + 1 for name in names}
        texts = {place - self._texts for place in texts if place}
        unpack = struct.Struct("<II").unpack_from
        for number, at in enumerate(self._places):
            name, info = unpack(self._data, at)
            if number and name in texts and info >> 24 & 31 == kind:
                texts.remove(name)
                yield number

    def _info(self, at: int) -> tuple[int, int]:
        _, info, _ = _TYPE.unpack_from(self._data, at)
        return info >> 24 & 31, info & 0xFFFF

    def _kind(self, number: int) -> int:
        return self._info(self._places[number])[0]

    def _name(self, number: int) -> str:
        (name,) = struct.unpack_from("<I", self._data, self._places[number])
        return self._text(name)

    def _text(self, name: int) -> str:
        first = self._texts + name
        return self._data[first : self._data.index(b"\0", first)].decode("ascii", "replace")

    def _leave_names(self, number: int, kinds: Collection[int] = _NAMES) -> int:
        """Return the type behind other names of it; 0 for none."""
        while number and self._kind(number) in kinds:
            _, _, number = _TYPE.unpack_from(self._data, self._places[number])
        return number

    def _follow(self, number: int, path: list[str]) -> int | None:
        """Return where a structure has a member of a member, also of one without a name."""
        at = self._places[number]
        kind, count = self._info(at)
        if not number or kind not in {_STRUCT, _UNION}:
            return None
        for member in range(count):
            name, of, bits = _MEMBER.unpack_from(self._data, at + 12 + 12 * member)
            offset = int(bits & 0xFFFFFF) // 8
            if not name:
                inner = self._follow(self._leave_names(of), path)
            elif self._text(name) != path[0]:
                continue
            else:
                inner = self._follow(self._leave_names(of), path[1:]) if path[1:] else 0
            if inner is not None:
                return offset + inner
        return None
