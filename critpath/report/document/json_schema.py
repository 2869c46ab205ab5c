"""The shapes of documents as JSON Schemas (draft 2020-12), as docs/schema/ publishes them."""

from __future__ import annotations

import json
from typing import Any, Final

from critpath.report.document.schema import SHAPES
from critpath.report.document.shapes import Choice, Each, Field, Items, Named

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_TYPES: Final = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    type(None): "null",
}
_TITLES: Final = {
    "comparison": "What critpath compare --json writes",
    "path": "What critpath path --format json writes, one object a line",
    "calibration": "What critpath calibrate --json writes",
}
_COMMENT: Final = (
    "Times are ns of the trace's clock and durations ns, as 64-bit integers where the schema "
    "says integer (critpath reads no 1.0 there); what is not defined is null. Keys may be added "
    "within this version. What parts of a document must agree on beyond this schema, for instance "
    "as many durations as columns, critpath checks as it reads."
)


def file_names() -> dict[str, str]:
    """Return the name of every schema's file by the format it is of."""
    return {name: f"{_stem(name)}-{name.rpartition('/')[2]}.schema.json" for name in SHAPES}


def schema_text(name: str) -> str:
    """Return the schema of a format, such as ``critpath/comparison/1``, as a file holds it."""
    return json.dumps(json_schema(name), indent=1, ensure_ascii=True) + "\n"


def json_schema(name: str) -> dict[str, Any]:
    """Return the schema of a format.

    Parameters
    ----------
    name : str
        One of `SHAPES`.

    Returns
    -------
    dict
        A JSON Schema; every key of a document has its meaning as ``description``.
    """
    definitions: dict[str, Any] = {}
    body = _schema(SHAPES[name], definitions)
    return {
        "$schema": _DRAFT,
        "$id": f"urn:critpath:{name.removeprefix('critpath/').replace('/', ':')}",
        "title": _TITLES[_stem(name)],
        "$comment": _COMMENT,
        **body,
        "$defs": dict(sorted(definitions.items())),
    }


def _stem(name: str) -> str:
    return name.split("/")[1]


def _schema(shape: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if isinstance(shape, Named):
        if shape.name not in definitions:
            definitions[shape.name] = {}  # holds the place, should a shape contain itself
            definitions[shape.name] = _schema(shape.shape, definitions)
        return {"$ref": f"#/$defs/{shape.name}"}
    if isinstance(shape, dict):
        return _object(shape, definitions)
    if isinstance(shape, list | Items):
        return _array(shape, definitions)
    if isinstance(shape, tuple):
        return _any_of(shape, definitions)
    if isinstance(shape, Each):
        inner = _schema(shape.shape, definitions)
        return {"type": "object", "additionalProperties": inner}
    choice = {"enum": list(shape.values)} if isinstance(shape, Choice) else {}
    return {"type": "string" if choice else _TYPES[shape], **choice}


def _array(shape: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    sized = shape if isinstance(shape, Items) else Items(shape[0], 0)
    limits = {"minItems": sized.least, "maxItems": sized.most}
    items = _schema(sized.shape, definitions)
    return {"type": "array", "items": items, **{k: n for k, n in limits.items() if n}}


def _object(shape: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    described = {k: f if isinstance(f, Field) else Field(f, "") for k, f in shape.items()}
    properties = {}
    for key, field in described.items():
        inner = _schema(field.shape, definitions)
        properties[key] = {"description": field.meaning, **inner}
    required = [key for key, field in described.items() if not field.optional]
    return {"type": "object", "required": required, "properties": properties}


def _any_of(shapes: tuple[Any, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    if all(isinstance(shape, type) for shape in shapes):
        names = [_TYPES[shape] for shape in shapes]
        # An integer is a number.
        kept = [name for name in names if name != "integer" or "number" not in names]
        return {"type": kept[0] if len(kept) == 1 else kept}
    return {"anyOf": [_schema(shape, definitions) for shape in shapes]}
