"""The parts of the reference that are made from the program itself."""  # noqa: INP001 - a script's part

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

from critpath.report.document.json_schema import file_names, json_schema, schema_text
from critpath.schema.kinds import Kind, State

# What a notebook calls, in the order in which it does.
CALLS: Final = (
    *("critpath.extract", "critpath.compare", "critpath.calibrate"),
    *("critpath.load", "critpath.load_comparison", "critpath.CompareSettings"),
    *("critpath.execution", "critpath.mark"),
)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    lines = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines]


def calls() -> str:
    """Return what Python programs call, with parameters and the first line of the docstring."""
    rows = []
    for name in CALLS:
        module, _, attribute = name.rpartition(".")
        called = getattr(import_module(module), attribute)
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


def events() -> str:
    """Return what events mean, from the declarations."""
    rows = [(f"`{kind.name}`", kind.meaning) for kind in Kind]
    return "\n".join(table(("kind", "what it tells"), rows))


def schemas() -> dict[str, str]:
    """Return the published schemas by the name of their file."""
    return {file: schema_text(name) for name, file in file_names().items()}


def formats() -> str:
    """Return what every key of every JSON document means, from the schemas."""
    parts: list[str] = []
    for name, file in file_names().items():
        schema = json_schema(name)
        parts += [f"## {name.split('/')[1]}", ""]
        parts += [f"{schema['title']}: `{name}`. Schema: [{file}](schema/{file}).", ""]
        parts += [*_keys(name, schema), ""]
        for defined, body in schema["$defs"].items():
            parts += [f"### {_title(name, defined)}", ""]
            parts += [body["description"], ""] if "description" in body else []
            if "properties" in body:
                parts += [*_keys(name, body), ""]
            else:
                parts += [f"{_type(name, body)}.", ""]
    return "\n".join(parts).rstrip("\n")


def _keys(name: str, body: dict[str, Any]) -> list[str]:
    return table(("key", "type", "meaning"), list(_rows(name, body, "")))


def _rows(name: str, body: dict[str, Any], before: str) -> Iterator[tuple[str, str, str]]:
    """Return a row for each key of an object, and for the keys of objects within."""
    for key, value in body["properties"].items():
        path = f"{before}{key}"
        optional = "" if key in body["required"] else "; may be missing"
        yield f"`{path}`", _type(name, value), value["description"] + optional
        for inner in (value, *value.get("anyOf", ())):
            if "properties" in inner:
                yield from _rows(name, inner, f"{path}.")
            elif "properties" in inner.get("items", {}):
                yield from _rows(name, inner["items"], f"{path}[].")


def _type(name: str, value: dict[str, Any]) -> str:
    """Return the type of a value in a few words, named shapes as links."""
    if "$ref" in value:
        title = _title(name, value["$ref"].rpartition("/")[2])
        return f"[{title}](#{title.replace(' ', '-').lower()})"
    if "anyOf" in value:
        return " or ".join(_type(name, inner) for inner in value["anyOf"])
    if "enum" in value:
        return ", ".join(f"`{choice}`" for choice in value["enum"])
    if value["type"] == "array":
        least, most = value.get("minItems"), value.get("maxItems")
        size = f"{most} " if least == most and most else ""
        return f"list of {size}{_type(name, value['items'])}"
    if "additionalProperties" in value:
        return f"object of {_type(name, value['additionalProperties'])}"
    kinds = [value["type"]] if isinstance(value["type"], str) else value["type"]
    return " or ".join(kinds)


def _title(name: str, defined: str) -> str:
    """Return the heading of a named shape; formats share names, so it says of which."""
    return f"{name.split('/')[1]} {defined}"
