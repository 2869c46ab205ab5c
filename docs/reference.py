"""The parts of the reference that are made from the program itself."""  # noqa: INP001 - a script's part

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

from critpath.model import PathSet
from critpath.report.document.json_schema import file_names, json_schema, schema_text
from critpath.schema.causes import CATALOGUE
from critpath.schema.kinds import Kind, State
from critpath.schema.notes import LEVELS, NOTES, SAID, OfSet
from critpath.schema.parameters import list_parameters
from critpath.text.explanation import SAID as SAID_OF_CAUSES
from critpath.text.explanation import VERBS

# What a notebook calls, in the order in which it does.
CALLS: Final = (
    *("critpath.extract", "critpath.compare", "critpath.calibrate"),
    "critpath.look",
    *("critpath.load", "critpath.load_comparison", "critpath.CompareSettings"),
    *("critpath.explore", "critpath.requests", "critpath.query", "critpath.view"),
    *("critpath.record", "critpath.ab"),
    *("critpath.execution", "critpath.mark"),
)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    shown = [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (head, *rows)
    ]
    return [shown[0], f"|{'---|' * len(head)}", *shown[1:]]


def calls() -> str:
    """Return what Python programs call, with parameters and the first line of the docstring."""
    rows = []
    for name in CALLS:
        module, _, attribute = name.rpartition(".")
        called = inspect.unwrap(getattr(import_module(module), attribute))
        said = (inspect.getdoc(called) or "").partition("\n\n")[0].replace("\n", " ")
        rows.append((f"`{name}({_parameters(called)})`", said))
    return "\n".join(table(("call", "what it does"), rows))


def _parameters(called: object) -> str:
    if dataclasses.is_dataclass(called):
        return "..."
    shown = []
    starred = False
    for parameter in inspect.signature(called).parameters.values():  # type: ignore[arg-type]
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        shown.append(f"{stars}{parameter.name}{default}")
    return ", ".join(shown)


def states() -> str:
    """Return what a thread on a path does, and what its detail tells, from the declarations."""
    rows = [(f"`{state.name}`", state.meaning, state.detail) for state in State]
    return "\n".join(table(("state", "the thread on the path", "detail"), rows))


def segments() -> str:
    """Return the columns of a table of segments, from the declarations."""
    rows = [(f"`{name}`", meaning) for name, meaning in PathSet.meanings().items()]
    return "\n".join(table(("column", "what it is"), rows))


def events() -> str:
    """Return what events mean, from the declarations."""
    rows = [(f"`{kind.name}`", kind.meaning) for kind in Kind]
    return "\n".join(table(("kind", "what it tells"), rows))


# The numbers that decide most answers, in the order in which docs/how-it-decides.md comes to them.
DECISIVE: Final = (
    *("comparability.lossy", "comparability.doubtful", "effects.whole", "gate.sigmas"),
    *("machine.explains", "machine.more_often", "machine.least_rise", "machine.new"),
    *("machine.kind", "machine.apart", "machine.pace", "machine.sleep", "machine.disk"),
    *("outliers.own", "segments.alike", "enough.first", "findings.ordinary"),
    *("causes.weather", "causes.unseen", "causes.minor"),
)


def numbers() -> str:
    """Return the numbers that decide most answers, from their declarations."""
    rows = []
    for one in map(list_parameters().__getitem__, DECISIVE):
        origin = f"{type(one.source).__name__.lower()}: {one.source.source}"
        value = f"{one.value:.3g}" if isinstance(one.value, float) else f"{one.value}"
        rows.append((f"`{one.name}`", f"{value} {one.unit}", one.what, origin))
    return "\n".join(table(("name", "number", "what it is", "from"), rows))


# What stands for facts in the sentences of docs/what-next.md; others are left out.
_FACTS: Final = {
    **{name: f"`{name.upper()}`" for name in ("rival", "device", "softirq")},
    "time": "5 ms",
    "lasting": " 5 ms",
    "in_the_code": "in their own code",
    "cpu_that_was": "a CPU that was",
    "one_cpu": "a CPU",
    "own_threads": "other threads of their own process (`RIVAL`)",
    "system_call": "system call `CALL`",
    "quota": "the CPU quota of `GROUP`",
    "disk": "the disk `DISK`",
    "network": "the network",
    "timer": "TCP's keep-alive timer",
}


class _WithFacts(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return name if name in VERBS else ""


def causes() -> str:
    """Return every kind of cause, what is said of it and what to do next, from the catalogue."""
    rows = []
    for kind in CATALOGUE:
        said = SAID_OF_CAUSES[kind.id].own.format_map(_WithFacts(_FACTS))
        headings = dict.fromkeys(filter(None, (kind.next, kind.their_next)))
        links = ", ".join(f"[{one}](#{anchor(one)})" for one in headings)
        rows.append((f"`{kind.id}`", said, kind.sure, links))
    return "\n".join(table(("kind", "they", "how sure", "what next"), rows))


def anchor(heading: str) -> str:
    """Return what a link to a heading ends in."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def notes() -> str:
    """Return the ids of reasons and warnings with their level, from their declarations."""
    rows = [
        (f"`{name}`", note.level, str(note.__doc__).splitlines()[0].replace("`ENVIRONMENT`", "it"))
        for name, note in sorted(NOTES.items())
        if note is not OfSet and note.level != "note"
    ]
    rows += [(f"`{name}`", LEVELS[name], meaning) for name, meaning in SAID.items()]
    return "\n".join(table(("id", "level", "what it says"), rows))


def schemas() -> dict[str, str]:
    """Return the published schemas by the name of their file."""
    return {file: schema_text(name) for name, file in file_names().items()}


def formats() -> str:
    """Return what every key of every JSON document means, from the schemas; shared shapes once."""
    schemas = {name: json_schema(name) for name in file_names()}
    shapes = _Shapes(schemas)
    parts: list[str] = []
    for name, file in file_names().items():
        schema = schemas[name]
        parts += [f"## {name.split('/')[1]}", ""]
        parts += [f"{schema['title']}: `{name}`. Schema: [{file}](schema/{file}).", ""]
        parts += [*_keys(shapes.name_headings(name), schema), ""]
        for defined in shapes.list_own(name):
            parts += _shape(shapes.name_headings(name), defined, schema["$defs"][defined])
    parts += ["## Shapes that several formats have", ""]
    for defined, name in shapes.shared.items():
        parts += _shape(shapes.name_headings(name), defined, schemas[name]["$defs"][defined])
    return "\n".join(parts).rstrip("\n")


class _Shapes:
    """Named shapes of all formats: which are shared, and what their headings are."""

    def __init__(self, schemas: dict[str, dict[str, Any]]) -> None:
        self.schemas = schemas
        self.shared: dict[str, str] = {}
        bodies: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        for name, schema in schemas.items():
            for defined in self.find_reached(schema):
                bodies.setdefault(defined, []).append((name, schema["$defs"][defined]))
        self.ambiguous = set()
        for defined, found in sorted(bodies.items()):
            if defined != _STATE and len(found) > 1:
                if all(body == found[0][1] for _, body in found):
                    self.shared[defined] = found[0][0]
                else:
                    self.ambiguous.add(defined)

    @staticmethod
    def find_reached(schema: dict[str, Any]) -> set[str]:
        """Return the shapes that a document can have; a schema may define more."""
        found: set[str] = set()
        keys = {k: v for k, v in schema["properties"].items() if k not in _DRAWN}
        pending = [keys]
        while pending:
            used = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(pending.pop()))) - found
            found |= used
            pending += [schema["$defs"][name] for name in used]
        return found

    def list_own(self, name: str) -> list[str]:
        """Return the shapes that stand below a format."""
        schema = self.schemas[name]
        reached = self.find_reached(schema) - {_STATE, *self.shared}
        return [defined for defined in schema["$defs"] if defined in reached]

    def name_headings(self, name: str) -> Callable[[str], str]:
        """Return what gives the heading of a shape of this format."""
        format_name = name.split("/")[1]
        return lambda shape: f"{format_name} {shape}" if shape in self.ambiguous else shape


_STATE: Final = "StateName"
# What only critpath's own page and exports draw: shapes that the schema alone has.
_DRAWN: Final = {"pictures", "aligned", "plane"}


def _shape(title: Callable[[str], str], defined: str, body: dict[str, Any]) -> list[str]:
    parts = [f"### {title(defined)}", ""]
    parts += [body["description"], ""] if "description" in body else []
    if "properties" in body:
        return [*parts, *_keys(title, body), ""]
    return [*parts, f"{_type(title, body)}.", ""]


def _keys(title: Callable[[str], str], body: dict[str, Any]) -> list[str]:
    return table(("key", "type", "meaning"), list(_rows(title, body, "")))


def _rows(
    title: Callable[[str], str], body: dict[str, Any], before: str
) -> Iterator[tuple[str, str, str]]:
    """Return a row for each key of an object, and for the keys of objects within."""
    for key, value in body["properties"].items():
        path = f"{before}{key}"
        if path in {"format", "version"} and value["description"] in _EVERYWHERE:
            continue
        optional = "" if key in body["required"] else "?"
        kind = "in the schema" if path in _DRAWN else _type(title, value)
        yield f"`{path}`{optional}", kind, value["description"]
        for inner in (value, *value.get("anyOf", ())):
            if "properties" in inner:
                yield from _rows(title, inner, f"{path}.")
            elif "properties" in inner.get("items", {}):
                yield from _rows(title, inner["items"], f"{path}[].")


_EVERYWHERE: Final = {
    "name and version of this format",
    "version of critpath that wrote it",
}


def _type(title: Callable[[str], str], value: dict[str, Any]) -> str:
    """Return the type of a value in a few words, named shapes as links."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        if name == _STATE:
            return "[state](critical-path.md#states)"
        return f"[{title(name)}](#{title(name).replace(' ', '-').lower()})"
    if "anyOf" in value:
        return " or ".join(_type(title, inner) for inner in value["anyOf"])
    if "enum" in value:
        return ", ".join(f"`{choice}`" for choice in value["enum"])
    if value["type"] == "array":
        least, most = value.get("minItems"), value.get("maxItems")
        size = f"{most} " if least == most and most else ""
        return f"list of {size}{_type(title, value['items'])}"
    if "additionalProperties" in value:
        return f"object of {_type(title, value['additionalProperties'])}"
    kinds = [value["type"]] if isinstance(value["type"], str) else value["type"]
    return " or ".join(kinds)
