"""Builds field classes from CTF 2's JSON (CTF2-SPEC-2.0, chapter 5.3).

Every field class is built where it is used, so what it refers to is resolved on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from critpath.read.ctf2_properties import (
    Ctf2Fault,
    Ranges,
    alignment,
    big_endian,
    bit_reversed,
    display_base,
    encoding,
    get,
    mappings_of,
    no_extensions,
    objects,
    positive,
    ranges_of,
    roles_of,
    shorten,
)
from critpath.read.schema import (
    ArrayClass,
    FieldClass,
    FloatClass,
    IntegerClass,
    Member,
    Option,
    StringClass,
    StructureClass,
    TextClass,
    VariantClass,
    VarintClass,
)

Path = tuple[str, ...]
Built = tuple[FieldClass, int]

SCOPES: Mapping[str, str] = {
    "packet-header": "packet-header",
    "packet-context": "packet-context",
    "event-record-header": "event-header",
    "event-record-common-context": "event-common-context",
    "event-record-specific-context": "event-specific-context",
    "event-record-payload": "event-payload",
}
_TIMES = frozenset(("default-clock-timestamp", "packet-end-default-clock-timestamp"))
_NO_ORIGIN = ""

# Far beyond any tracer; they bound what aliases of aliases can grow to.
_MAX_DEPTH = 64
_MAX_FIELDS = 200_000
_MAX_VISITS = 20_000_000


class FieldBuilder:
    """Builds the structures of the scopes.

    Parameters
    ----------
    aliases : mapping of str to Any
        Field class aliases as written.
    """

    def __init__(self, aliases: Mapping[str, Any]) -> None:
        self._aliases = aliases
        self._built = 0  # where aliases stand; else the text's length bounds them
        self._in_aliases = 0
        self._visited = 0
        self._depth = 0
        self._scopes: Mapping[str, StructureClass | None] = {}
        self._clock = ""
        # For each structure being built: its path, and its members so far.
        self._frames: list[tuple[Path, dict[str, FieldClass]]] = []

    def scope(
        self,
        scope: str,
        of: Any,
        scopes: Mapping[str, StructureClass | None],
        clock: str = "",
    ) -> StructureClass | None:
        """Build the structure of one scope; None where there is none.

        Parameters
        ----------
        scope : str
            One of `critpath.read.schema.SCOPES`.
        of : Any
            The field class as written, or None.
        scopes : mapping of str to StructureClass
            The scopes decoded before it.
        clock : str
            The default clock of the stream.

        Raises
        ------
        Ctf2Fault
        """
        if of is None:
            return None
        self._scopes = scopes
        self._clock = clock
        self._frames = []
        self._depth = self._in_aliases = 0
        field, _ = self._build(of, (scope,))
        if not isinstance(field, StructureClass):
            raise Ctf2Fault(f"the {scope} is no structure")
        return field

    def _build(self, of: Any, path: Path) -> Built:
        self._built += self._in_aliases > 0
        self._depth += 1
        if self._built > _MAX_FIELDS:
            raise Ctf2Fault(f"more than {_MAX_FIELDS} fields by aliases")
        if self._depth > _MAX_DEPTH:
            raise Ctf2Fault(f"field classes nest deeper than {_MAX_DEPTH}")
        if isinstance(of, str):
            if of not in self._aliases:
                raise Ctf2Fault(f"unknown field class alias {shorten(of)}")
            self._in_aliases += 1
            built = self._build(self._aliases[of], path)
            self._in_aliases -= 1
        elif isinstance(of, dict):
            try:
                built = self._of_type(get(of, "type", str), of, path)
            except Ctf2Fault as fault:
                fault.place = fault.place or ".".join(path)
                raise
        else:
            raise Ctf2Fault(f"{shorten(of)} is no field class")
        self._depth -= 1
        return built

    def _of_type(self, kind: str, of: dict[str, Any], path: Path) -> Built:
        built: Built
        match kind.split("-"):
            case ["fixed", "length", "floating", "point", "number"]:
                built = _float(of)
            case ["fixed", "length", *number]:
                built = self._integer("-".join(number), of)
            case ["variable", "length", *number]:
                built = self._varint("-".join(number), of), 8
            case ["null", "terminated", "string"]:
                built = StringClass(encoding(of)), 8
            case ["static" | "dynamic", "length", "array"]:
                built = self._array(of, path)
            case ["static" | "dynamic", "length", "string" | "blob" as what]:
                built = self._text(of, blob=what == "blob"), 8
            case ["structure"]:
                built = self._structure(of, path)
            case ["variant"]:
                built = self._variant(of, path), 1
            case ["optional"]:
                built = self._optional(of, path), 1
            case _:
                raise Ctf2Fault(f"unknown field class {shorten(kind)}")
        return built

    def _integer(self, number: str, of: dict[str, Any]) -> Built:
        if number not in _FIXED:
            raise Ctf2Fault(f"unknown field class 'fixed-length-{number[:40]}'")
        bits = positive(of, "length", 64)
        align = alignment(of, "alignment")
        roles = roles_of(of)
        big_end = big_endian(of)
        integer = IntegerClass(
            bits,
            number.startswith("signed"),
            big_end,
            align,
            display_base(of),
            mappings=mappings_of(of, "flags" if number == "bit-map" else "mappings"),
            clock=self._clock if roles & _TIMES else "",
            roles=roles,
            bit_reversed=bit_reversed(of, big_end),
        )
        return integer, align

    def _varint(self, number: str, of: dict[str, Any]) -> VarintClass:
        if number not in _VARIABLE:
            raise Ctf2Fault(f"unknown field class 'variable-length-{number[:40]}'")
        roles = roles_of(of)
        return VarintClass(
            number.startswith("signed"),
            display_base(of),
            mappings_of(of, "mappings"),
            self._clock if roles & _TIMES else "",
            roles,
        )

    def _text(self, of: dict[str, Any], *, blob: bool) -> TextClass:
        if blob:
            return TextClass(self._length(of), blob=True, roles=roles_of(of))
        return TextClass(self._length(of), encoding=encoding(of))

    def _array(self, of: dict[str, Any], path: Path) -> Built:
        length = self._length(of)
        element, align = self._build(get(of, "element-field-class", object), path)
        align = max(align, alignment(of, "minimum-alignment"))
        return ArrayClass(element, length, align), align

    def _length(self, of: dict[str, Any]) -> int | Path:
        if "length" in of:
            length: int = get(of, "length", int)
            if not 0 <= length < 1 << 63:
                raise Ctf2Fault(f"the length is {shorten(length)}")
            return length
        path, target = self._locate(of, "length-field-location")
        if target.signed:
            raise Ctf2Fault(f"the length {'.'.join(path)!r} is signed")
        return path

    def _structure(self, of: dict[str, Any], path: Path) -> Built:
        align = alignment(of, "minimum-alignment")
        earlier: dict[str, FieldClass] = {}
        self._frames.append((path, earlier))
        members = []
        for member in objects(of, "member-classes"):
            name: str = get(member, "name", str)
            no_extensions(member)
            if name in earlier:
                raise Ctf2Fault(f"two members are called {shorten(name)}")
            field, its = self._build(get(member, "field-class", object), (*path, name))
            align = max(align, its)
            earlier[name] = field
            members.append(Member(name, field))
        self._frames.pop()
        return StructureClass(tuple(members), align), align

    def _variant(self, of: dict[str, Any], path: Path) -> VariantClass:
        selector, _ = self._locate(of, "selector-field-location")
        options = []
        for index, option in enumerate(objects(of, "options")):
            no_extensions(option)
            name: str = get(option, "name", str, str(index))
            ranges = ranges_of(get(option, "selector-field-ranges", list))
            field, _ = self._build(get(option, "field-class", object), path)
            options.append(Option(name, ranges, field))
        if not options:
            raise Ctf2Fault("a variant without options")
        return VariantClass(selector, tuple(options))

    def _optional(self, of: dict[str, Any], path: Path) -> VariantClass:
        selector, _ = self._locate(of, "selector-field-location")
        ranges: Ranges = ()
        if "selector-field-ranges" in of:
            ranges = ranges_of(get(of, "selector-field-ranges", list))
        field, _ = self._build(get(of, "field-class", object), path)
        return VariantClass(selector, (Option("", ranges, field),), optional=True)

    def _locate(self, of: dict[str, Any], key: str) -> tuple[Path, IntegerClass | VarintClass]:
        """Return the path and class of the field at a location.

        A location without origin starts in the innermost structure, and ``null``
        leads to the one around it; the options of variants have no step.
        """
        location = of.get(key)
        if isinstance(location, list):  # release candidates before CTF2-SPECRC-6.0
            scoped = bool(location) and isinstance(location[0], str) and location[0] in SCOPES
            origin = location[0] if scoped else _NO_ORIGIN
            steps = location[1:] if scoped else location
        elif isinstance(location, dict):
            origin = get(location, "origin", str, _NO_ORIGIN)
            steps = get(location, "path", list)
        else:
            raise Ctf2Fault(f"the property {key!r} is {shorten(location)}")
        named = [step for step in steps if step is not None]
        if not named or len(steps) > _MAX_DEPTH or not all(isinstance(s, str) for s in named):
            raise Ctf2Fault(f"the location {shorten(location)} leads to no field")
        if origin and origin not in SCOPES:
            raise Ctf2Fault(f"unknown origin {shorten(origin)}")
        found = self._walk(SCOPES.get(origin, ""), steps)
        if found is None:
            raise Ctf2Fault(f"the location {shorten(location)} leads to no earlier integer")
        return found

    def _walk(self, scope: str, steps: list[Any]) -> tuple[Path, IntegerClass | VarintClass] | None:
        if not self._frames:
            return None
        if scope and self._frames[0][0] != (scope,):
            path: Path = (scope,)
            target = self._descend(self._scopes.get(scope), steps)
        else:
            level = 0 if scope else len(self._frames) - 1
            while steps:
                following = self._frames[level + 1][0] if level + 1 < len(self._frames) else ()
                if steps[0] is None:
                    level -= 1
                elif following == (*self._frames[level][0], steps[0]):
                    level += 1
                else:
                    break
                if level < 0:
                    return None
                steps = steps[1:]
            path, members = self._frames[level]
            target = self._descend(members.get(steps[0]), steps[1:]) if steps else None
        return None if target is None else ((*path, *steps), target)

    def _descend(
        self, of: FieldClass | None, steps: list[str]
    ) -> IntegerClass | VarintClass | None:
        """Return the integer at the end of some steps, through any option of a variant."""
        self._visited += 1
        if self._visited > _MAX_VISITS:
            raise Ctf2Fault("locations too many and too far")
        found = None
        match of:
            case IntegerClass() | VarintClass():
                found = of if not steps else None
            case VariantClass():
                for option in of.options:
                    found = found or self._descend(option.field, steps)
            case StructureClass() if steps:
                self._visited += len(of.members)
                member = next((m for m in of.members if m.name == steps[0]), None)
                if member is not None:
                    found = self._descend(member.field, steps[1:])
        return found


# Names of fixed- and variable-length numbers; enumerations are of release candidates.
_FIXED = frozenset(
    (
        "bit-array",
        "bit-map",
        "boolean",
        "unsigned-integer",
        "signed-integer",
        "unsigned-enumeration",
        "signed-enumeration",
    )
)
_VARIABLE = frozenset(
    ("unsigned-integer", "signed-integer", "unsigned-enumeration", "signed-enumeration")
)


def _float(of: dict[str, Any]) -> Built:
    bits = get(of, "length", int)
    if bits not in {16, 32, 64, 128}:
        raise Ctf2Fault(f"no floating-point number has {shorten(bits)} bits")
    align = alignment(of, "alignment")
    big_end = big_endian(of)
    return FloatClass(bits, big_end, align, bit_reversed(of, big_end)), align
