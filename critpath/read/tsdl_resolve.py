"""Resolves what sequences and variants refer to, once a type has its place in a scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeGuard

from critpath.read.records import replace
from critpath.read.schema import (
    SCOPES,
    ArrayClass,
    FieldClass,
    IntegerClass,
    Member,
    Option,
    StructureClass,
    VariantClass,
)
from critpath.read.tsdl_lexer import SyntaxFault

Path = tuple[str, ...]
Labels = dict[str, tuple[tuple[int, int], ...]]

# The roles of the names that CTF 1.8 reserves (chapters 5 and 6), as CTF 2 calls them.
_ROLES: Mapping[str, Mapping[str, str]] = {
    "packet-header": {
        "magic": "packet-magic-number",
        "uuid": "metadata-stream-uuid",
        "stream_id": "data-stream-class-id",
        "stream_instance_id": "data-stream-id",
    },
    "packet-context": {
        "timestamp_begin": "default-clock-timestamp",
        "timestamp_end": "packet-end-default-clock-timestamp",
        "content_size": "packet-content-length",
        "packet_size": "packet-total-length",
        "packet_seq_num": "packet-sequence-number",
        "events_discarded": "discarded-event-record-counter-snapshot",
    },
    "event-header": {
        "id": "event-record-class-id",
        "timestamp": "default-clock-timestamp",
    },
}
_TIMES = frozenset(("default-clock-timestamp", "packet-end-default-clock-timestamp"))


def assign_roles(scope: str, structure: StructureClass, clock: str) -> StructureClass:
    """Give the fields whose names CTF 1.8 reserves their roles.

    Parameters
    ----------
    scope : str
        One of `SCOPES`.
    structure : StructureClass
    clock : str
        Clock of timestamps that map none.
    """
    roles = _ROLES.get(scope, {})

    def rewrite(structure: StructureClass, *, deep: bool) -> StructureClass:
        members = []
        for member in structure.members:
            of = member.field
            role = roles.get(member.name)
            if role is not None and isinstance(of, IntegerClass) and role != "metadata-stream-uuid":
                timed = of.clock or (clock if role in _TIMES else "")
                of = replace(of, roles=frozenset([role]), clock=timed)
            elif role == "metadata-stream-uuid" and _is_uuid(of):
                of = replace(of, roles=frozenset([role]))
            elif deep and isinstance(of, StructureClass):
                of = rewrite(of, deep=True)
            elif deep and isinstance(of, VariantClass):
                of = replace(
                    of,
                    options=tuple(
                        replace(option, field=rewrite(option.field, deep=True))
                        if isinstance(option.field, StructureClass)
                        else option
                        for option in of.options
                    ),
                )
            members.append(member if of is member.field else Member(member.name, of))
        return replace(structure, members=tuple(members))

    # In the event header, the extended id and timestamp are inside a variant.
    return rewrite(structure, deep=scope == "event-header")


def _is_uuid(of: FieldClass) -> TypeGuard[ArrayClass]:
    """Tell whether a field is 16 bytes one after the other."""
    return (
        isinstance(of, ArrayClass)
        and of.length == 16
        and isinstance(of.element, IntegerClass)
        and (of.element.bits, of.element.align) == (8, 8)
    )


class Resolver:
    """Replaces the selectors in one scope's structure by absolute paths.

    Parameters
    ----------
    environment : mapping
        Integers in it can be lengths.
    fault : callable
        Returns the fault to raise at a field class, from it and a message.
    """

    def __init__(
        self,
        environment: Mapping[str, str | int],
        fault: Callable[[FieldClass, str], SyntaxFault],
    ) -> None:
        self._environment = environment
        self._fault = fault
        self._scopes: Mapping[str, StructureClass | None] = {}
        # By identity: hostile metadata may ask for the same ones any number of times.
        self._members: dict[int, tuple[StructureClass, dict[str, FieldClass]]] = {}
        self._labels: dict[int, tuple[IntegerClass, tuple[Labels, Labels]]] = {}
        # For each structure we are inside of: its path, and its members so far.
        self._frames: list[tuple[Path, dict[str, FieldClass]]] = []

    def resolve(
        self,
        scope: str,
        structure: StructureClass,
        scopes: Mapping[str, StructureClass | None],
    ) -> StructureClass:
        """Return the structure with every selector resolved.

        Parameters
        ----------
        scope : str
        structure : StructureClass
        scopes : mapping of str to StructureClass
            The scopes decoded before this one, already resolved.

        Raises
        ------
        SyntaxFault
            If a selector names no earlier field, or one of the wrong kind.
        """
        self._scopes = scopes
        self._frames = []
        return self._structure(structure, (scope,))

    def _structure(self, structure: StructureClass, path: Path) -> StructureClass:
        earlier: dict[str, FieldClass] = {}
        self._frames.append((path, earlier))
        members = []
        for member in structure.members:
            of = self._field(member.field, (*path, member.name))
            earlier[member.name] = of
            members.append(member if of is member.field else Member(member.name, of))
        self._frames.pop()
        return replace(structure, members=tuple(members))

    def _field(self, of: FieldClass, path: Path) -> FieldClass:
        match of:
            case StructureClass():
                return self._structure(of, path) if of.members else of
            case ArrayClass():
                return self._array(of, path)
            case VariantClass():
                return self._variant(of, path)
        return of

    def _array(self, of: ArrayClass, path: Path) -> ArrayClass:
        element = self._field(of.element, path)
        length = of.length
        if not isinstance(length, int):
            if length[0] == "env":
                value = self._environment.get(".".join(length[1:]))
                if not isinstance(value, int) or value < 0:
                    raise self._fault(of, f"{'.'.join(length)!r} is no length")
                length = value
            else:
                length, target = self._find(of, length)
                if target.signed:
                    raise self._fault(of, f"the length {'.'.join(length[1:])!r} is signed")
        if element is of.element and length == of.length:
            return of
        return replace(of, element=element, length=length)

    def _variant(self, of: VariantClass, path: Path) -> VariantClass:
        if not of.selector:
            raise self._fault(of, f"the variant {path[-1]!r} has no tag")
        if of.selector[0] == "env":
            raise self._fault(of, "the environment cannot select a variant's option")
        selector, target = self._find(of, of.selector)
        if not target.mappings:
            raise self._fault(of, f"the tag {'.'.join(selector[1:])!r} is no enumeration")
        ranges, bare = self._spans(target)
        options = []
        for option in of.options:
            # An option that no label selects stays, and is never decoded.
            spans = ranges.get(option.name) or bare.get(option.name.removeprefix("_"), ())
            field = self._field(option.field, (*path, option.name))
            options.append(Option(option.name, spans, field))
        return VariantClass(selector, tuple(options))

    def _spans(self, target: IntegerClass) -> tuple[Labels, Labels]:
        """Return the ranges of each label, as it stands and without underscore.

        LTTng puts one before the names of fields, not always before labels.
        """
        known = self._labels.get(id(target))
        if known is None:
            bare = {label.removeprefix("_"): spans for label, spans in target.mappings}
            known = self._labels[id(target)] = (target, (dict(target.mappings), bare))
        return known[1]

    def _of(self, structure: StructureClass | None) -> dict[str, FieldClass]:
        """Return the members of a structure by name."""
        if structure is None:
            return {}
        known = self._members.get(id(structure))
        if known is None:
            members = {member.name: member.field for member in structure.members}
            known = self._members[id(structure)] = (structure, members)
        return known[1]

    def _descend(self, members: Mapping[str, FieldClass], names: list[str]) -> IntegerClass | None:
        """Return the integer at a path below some members, None if there is none."""
        of = members.get(names[0])
        for name in names[1:]:
            match of:
                case StructureClass():
                    of = self._of(of).get(name)
                case VariantClass():
                    of = next((o.field for o in of.options if o.name == name), None)
                case _:
                    return None
        return of if isinstance(of, IntegerClass) else None

    def _find(self, of: FieldClass, path: Path) -> tuple[Path, IntegerClass]:
        """Return the absolute path and class of the integer that a selector names.

        A relative name is looked up from the innermost structure outwards, then in
        the scopes decoded earlier, the latest first (CTF 1.8, 7.3.2).
        """
        scope, *names = path
        if scope:
            for prefix, earlier in reversed(self._frames):
                if path[: len(prefix)] == prefix and len(path) > len(prefix):
                    found = self._descend(earlier, names[len(prefix) - 1 :])
                    if found is not None:
                        return path, found
            found = self._descend(self._of(self._scopes.get(scope)), names)
            if found is not None:
                return path, found
        else:
            for prefix, earlier in reversed(self._frames):
                found = self._descend(earlier, names)
                if found is not None:
                    return (*prefix, *names), found
            for other in reversed(SCOPES):
                found = self._descend(self._of(self._scopes.get(other)), names)
                if found is not None:
                    return (other, *names), found
        raise self._fault(of, f"{'.'.join(names)!r} names no integer decoded earlier")
