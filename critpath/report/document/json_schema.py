"""The types of documents as JSON Schemas (draft 2020-12), as docs/schema/ publishes them."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from critpath.documents import TYPES
from critpath.schema.kinds import State

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_COMMENT: Final = (
    "Times are ns of the trace's clock and durations ns, as 64-bit integers where the schema "
    "says integer (critpath reads no 1.0 there); what is not defined is null. Keys may be added "
    "within this version. What parts of a document must agree on beyond this schema, for instance "
    "as many durations as columns, critpath checks as it reads."
)
_STATES: Final = list(State.__members__)


def file_names() -> dict[str, str]:
    """Return the name of every schema's file by the format it is of."""
    stems = {name: name.removeprefix("critpath/").replace("/", "-") for name in TYPES}
    return {name: f"{stem}.schema.json" for name, stem in stems.items()}


def schema_text(name: str) -> str:
    """Return the schema of a format, such as ``critpath/comparison/1``, as a file holds it."""
    return json.dumps(json_schema(name), indent=1, ensure_ascii=True) + "\n"


def json_schema(name: str) -> dict[str, Any]:
    """Return the schema of a format, one of `TYPES`; every key has its ``description``."""
    _, components = msgspec.json.schema_components([TYPES[name]])
    body = components.pop(TYPES[name].__name__)
    definitions = {key: _simplify(part) for key, part in sorted(components.items())}
    return {
        "$schema": _DRAFT,
        "$id": f"urn:critpath:{name.removeprefix('critpath/').replace('/', ':')}",
        "title": body["description"].removesuffix("."),
        "$comment": _COMMENT,
        **{key: _simplify(body[key]) for key in ("type", "required", "properties")},
        "$defs": {**definitions, "StateName": {"type": "string", "enum": _STATES}},
    }


def _simplify(schema: Any) -> Any:
    """Return a schema in fewer words: a type or null is one list, the states stand once.

    Null is last of several, wherever this msgspec has it.
    """
    if isinstance(schema, list):
        return [_simplify(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _simplify(value) for key, value in schema.items() if key != "title"}
    if found.get("enum") == sorted(_STATES):
        del found["enum"]
        found["$ref"] = "#/$defs/StateName"
    if "anyOf" in found:
        found["anyOf"].sort(key=lambda one: one == {"type": "null"})
    if all(list(one) == ["type"] for one in found.get("anyOf", [{}])):
        types = [one["type"] for one in found.pop("anyOf")]
        # An integer is a number.
        kept = [kind for kind in types if kind != "integer" or "number" not in types]
        found["type"] = kept[0] if len(kept) == 1 else kept
    return found
