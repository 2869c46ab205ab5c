"""Parses TSDL type declarations (CTF 1.8, chapter 7) into field classes.

Selectors of sequences and variants stay as written, marked by a first element ``""``
(relative) or the scope's name (absolute), until `tsdl_resolve` knows where in an
event their field stands.
"""

from __future__ import annotations

from collections.abc import Sequence

from critpath.read.records import replace
from critpath.read.schema import (
    ArrayClass,
    FieldClass,
    Member,
    Option,
    StringClass,
    StructureClass,
    VariantClass,
)
from critpath.read.tsdl_cursor import COMPOUND, KEYWORDS, MAX_DEPTH, SPECIFIERS, Cursor, Shape
from critpath.read.tsdl_leaves import Attributes, Leaves, constant, enum_labels
from critpath.read.tsdl_lexer import SyntaxFault, Tokens, number_value

_DECLARATIONS = ("typedef", "typealias")

# Far beyond any tracer; it bounds what hostile metadata can make of a few lines.
_MAX_WEIGHT = 100_000


class TypeParser(Cursor):
    """A recursive-descent parser over tokens, with scopes of named types.

    Parameters
    ----------
    tokens : Tokens
    big_endian : bool
        The trace's own byte order.
    outer : TypeParser, optional
        Has parsed the top level, whose types this one may name.
    """

    def __init__(
        self, tokens: Tokens, *, big_endian: bool, outer: TypeParser | None = None
    ) -> None:
        super().__init__(tokens)
        self.warnings: dict[str, None] = {}
        # Where an unresolved selector stands; the field class is kept, so its id stays its own.
        self.places: dict[int, tuple[FieldClass, int]] = {}
        self.leaves = Leaves(tokens, big_endian, self.warnings)
        self.integers: dict[str, Shape] = {}
        self.members_known: dict[tuple[str, int], tuple[Member, Shape]] = {}
        # Types by their text, as named at the top level.
        self.plain_types: dict[str, Shape] = {}
        if outer is not None:
            self.warnings = self.leaves.warnings = outer.warnings
            self.leaves.clocks = outer.leaves.clocks
            self.plain_types = outer.plain_types
            self.integers, self.members_known = outer.integers, outer.members_known
            self.scopes = [outer.scopes[0]]

    # ------------------------------------------------------ declarations

    def declaration(self) -> bool:
        """Parse a typedef, a typealias or a type by itself; False if it is none."""
        word = self.words[self.at]
        if word == "typedef":
            self.at += 1
            shape = self.type()
            while True:
                at = self.at
                name, declared = self._declarator(shape)
                self.define(name, declared, at)
                if self.words[self.at] != ",":
                    break
                self.at += 1
            self.expect(";")
        elif word == "typealias":
            self.at += 1
            shape = self.dimensions(self.type())
            self.expect(":=")
            at = self.at
            self.define(self._alias(), shape, at)
            self.expect(";")
        elif word in COMPOUND:
            self.type()
            if self.words[self.at] == ";":  # babeltrace also does without
                self.at += 1
        else:
            return False
        return True

    def _alias(self) -> str:
        """Return the key of the name that a typealias gives."""
        if self.words[self.at] in COMPOUND:
            self.at += 1
            return f"{self.words[self.at - 1]} {self.name()}"
        return self._type_name()

    def _type_name(self) -> str:
        parts = []
        while self.words[self.at] in SPECIFIERS or self.words[self.at] == "const":
            if self.words[self.at] != "const":
                parts.append(self.words[self.at])
            self.at += 1
        if not parts:
            parts.append(self.name())
        while self.words[self.at] in {"*", "const"}:
            if self.words[self.at] == "*":
                parts.append("*")
            self.at += 1
        return " ".join(parts)

    def _declarator(self, shape: Shape) -> tuple[str, Shape]:
        name = self.name()
        return name, self.dimensions(shape) if self.words[self.at] == "[" else shape

    def dimensions(self, shape: Shape) -> Shape:
        """Wrap a type in the arrays that follow it; the first dimension is the outermost."""
        lengths: list[tuple[int | tuple[str, ...], int]] = []
        while self.words[self.at] == "[":
            at = self.at
            self.at += 1
            number = number_value(self.words[self.at])
            if number is None:
                lengths.append((self.path("]"), at))
            elif number >= 1 << 63:
                raise self.fault(f"an array of {number} elements")
            else:
                self.at += 1
                lengths.append((number, at))
            self.expect("]")
            if len(lengths) > MAX_DEPTH:
                raise self.fault(f"arrays nest deeper than {MAX_DEPTH}")
        for length, at in reversed(lengths):
            array = ArrayClass(shape.field, length, shape.align)
            shape = self._checked(
                array, shape.align, [shape], shape.open or not isinstance(length, int)
            )
            if not isinstance(length, int):
                self.places[id(array)] = (array, at)
        return shape

    # ------------------------------------------------------------- types

    def type(self) -> Shape:
        """Parse a type specifier."""
        word = self.words[self.at]
        shape = self.integers.get(word)
        if shape is not None:
            self.at += 1
            return shape
        match word:
            case "struct":
                shape = self._structure()
            case "enum":
                shape = self._enumeration()
            case "variant":
                shape = self._variant()
            case "string":
                shape = self._string()
            case "integer" | "floating_point":
                start = self.at
                attributes, self.at = Attributes.parse(self.tokens, start + 1, word)
                leaf = self.leaves.number(word, attributes, start)
                shape = Shape(leaf, leaf.align)
            case _ if word.endswith("}") and word.startswith("integer"):
                attributes, _ = Attributes.parse(self.tokens.block(self.at), 0, "integer")
                leaf = self.leaves.number("integer", attributes, self.at)
                shape = self.integers[word] = Shape(leaf, leaf.align)
                self.at += 1
            case _:
                at = self.at
                shape = self.find(self._type_name(), at)
        return shape

    def _string(self) -> Shape:
        self.at += 1
        if self.words[self.at] == "{":
            attributes, self.at = Attributes.parse(self.tokens, self.at, "string")
            self.leaves.string(attributes)
        return Shape(StringClass(), 8)

    def _title(self) -> str:
        """Step over the name of a struct, enum or variant, if it has one."""
        word = self.words[self.at]
        return self.name() if word not in {"{", ":", "<"} else ""

    def _structure(self) -> Shape:
        start = self.at
        self.at += 1
        title = self._title()
        if self.words[self.at] != "{":
            if not title:
                raise self.fault(f"expected '{{', found {self.shown()}")
            return self.find(f"struct {title}", start)
        parts = self._body()
        align = 1
        if self.words[self.at] == "align":
            self.at += 1
            self.expect("(")
            at = self.at
            align, self.at = constant(self.tokens, self.at)
            if align < 1 or align & (align - 1) or align > 1 << 32:
                raise self.fault(f"an alignment of {align} bits is no power of two", at)
            self.expect(")")
        for _, shape in parts:
            align = max(align, shape.align)
        structure = StructureClass(tuple([member for member, _ in parts]), align)
        shapes = [shape for _, shape in parts]
        made = self._checked(structure, align, shapes, any(s.open for s in shapes))
        if title:
            self.define(f"struct {title}", made, start)
        return made

    def plain_structure(self, fields: Sequence[tuple[str, str, str]]) -> Shape | None:
        """Make a structure of fields that name and describe no types, or return None.

        Parameters
        ----------
        fields : sequence of (type, name, dimensions)
            As `_scan.plain_fields` cuts them.

        Returns
        -------
        Shape or None
            None for `type` to parse it whole, for anything else and to say what is wrong.
        """
        align = weight = depth = 1
        members = {}
        for text, name, dimensions in fields:
            shape = self.plain_types.get(text + dimensions)
            if shape is None:
                shape = self._plain_type(text, dimensions)
                if shape is None:
                    return None
                self.plain_types[text + dimensions] = shape
            key = (name, id(shape))
            part = self.members_known.get(key)
            if part is None:
                part = self.members_known[key] = (Member(name, shape.field), shape)
            members[name] = part[0]
            weight += shape.weight
            align = max(align, shape.align)
            depth = max(depth, shape.depth + 1)
        if len(members) < len(fields) or weight > _MAX_WEIGHT or not KEYWORDS.isdisjoint(members):
            return None
        return Shape(StructureClass(tuple(members.values()), align), align, weight, depth)

    def _plain_type(self, text: str, dimensions: str) -> Shape | None:
        """Parse a type that depends on nothing around it; None for any other."""
        if text.startswith((*COMPOUND, *_DECLARATIONS)):
            return None
        try:
            inner = TypeParser(
                Tokens(text + dimensions), big_endian=self.leaves.big_endian, outer=self
            )
            shape = inner.dimensions(inner.type())
        except SyntaxFault:
            return None
        return None if inner.words[inner.at] or shape.open else shape

    def _body(self) -> list[tuple[Member, Shape]]:
        """Parse ``{ members }`` of a structure or a variant."""
        self.expect("{")
        self.push_scope()
        words = self.words
        members = self.members_known
        parts: list[tuple[Member, Shape]] = []
        seen = set()
        while words[self.at] != "}":
            if words[self.at] in _DECLARATIONS:
                self.declaration()
                continue
            shape = self.type()
            while words[self.at] != ";":
                at = self.at
                name, declared = self._declarator(shape)
                if name in seen:
                    raise self.fault(f"two members are called {name!r}", at)
                seen.add(name)
                # The shape is kept with the member, so its id stays its own.
                key = (name, id(declared))
                part = members.get(key)
                if part is None:
                    part = members[key] = (Member(name, declared.field), declared)
                parts.append(part)
                if words[self.at] == ",":
                    self.at += 1
                elif words[self.at] != ";":
                    raise self.fault(f"expected ';', found {self.shown()}")
            self.at += 1
        self.at += 1
        self.pop_scope()
        return parts

    def _variant(self) -> Shape:
        start = self.at
        self.at += 1
        title = self._title()
        selector: tuple[str, ...] = ()
        if self.words[self.at] == "<":
            self.at += 1
            selector = self.path(">")
            self.expect(">")
        if self.words[self.at] == "{":
            parts = self._body()
            if not parts:
                self.warnings["a variant without options is never decoded"] = None
            options = tuple([Option(member.name, (), member.field) for member, _ in parts])
            variant = VariantClass(selector, options)
            made = self._checked(variant, 1, [shape for _, shape in parts], is_open=True)
            if title:
                self.define(f"variant {title}", made, start)
        elif title:
            made = self.find(f"variant {title}", start)
            if selector and isinstance(made.field, VariantClass):
                made = replace(made, field=replace(made.field, selector=selector))
        else:
            raise self.fault(f"expected '{{', found {self.shown()}")
        self.places[id(made.field)] = (made.field, start)
        return made

    def _enumeration(self) -> Shape:
        start = self.at
        self.at += 1
        title = self._title()
        container = None
        if self.words[self.at] == ":":
            self.at += 1
            container = self.type()
        if self.words[self.at] != "{":
            if not title or container is not None:
                raise self.fault(f"expected '{{', found {self.shown()}")
            return self.find(f"enum {title}", start)
        if container is None:
            container = self.find("int", start)
        labels, self.at = enum_labels(self.tokens, self.at)
        leaf = self.leaves.enumeration(container.field, labels, start)
        made = Shape(leaf, leaf.align)
        if title:
            self.define(f"enum {title}", made, start)
        return made

    def _checked(
        self, field: FieldClass, align: int, parts: Sequence[Shape], is_open: bool
    ) -> Shape:
        """Return a compound's shape, after checking that it stays within bounds."""
        weight = 1 + sum([shape.weight for shape in parts])
        depth = 1 + max([shape.depth for shape in parts], default=0)
        if weight > _MAX_WEIGHT:
            raise self.fault(f"a type with more than {_MAX_WEIGHT} parts")
        if depth > MAX_DEPTH:
            raise self.fault(f"types nest deeper than {MAX_DEPTH}")
        return Shape(field, align, weight, depth, is_open)
