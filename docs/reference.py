"""The parts of the reference that are made from the program itself."""  # noqa: INP001 - a script's part

from __future__ import annotations

import dataclasses
import inspect
from importlib import import_module
from typing import Final

# What a notebook calls, in the order in which it does.
CALLS: Final = (
    "critpath.pipeline.extract",
    "critpath.pipeline.compare",
    "critpath.pipeline.CompareSettings",
    "critpath.pipeline.calibrate",
    "critpath.pipeline.thread_paths",
    "critpath.store.save_paths",
    "critpath.store.load_paths",
    "critpath.report.document.comparison_document",
    "critpath.report.as_html.render_html",
    "critpath.report.as_json.to_json",
    "critpath.report.as_json.load_document",
    "critpath.execution",
    "critpath.mark",
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
        shown.append(f"{parameter.name}{default}")
    return ", ".join(shown)
