"""The tables of docs/parameters.md: every number that judges, as critpath/schema declares it."""  # noqa: INP001

from __future__ import annotations

import inspect
from collections import Counter
from pathlib import Path
from typing import Any, Final

from critpath.schema.parameters import (
    CORPORA,
    Chosen,
    Derived,
    Group,
    Number,
    Parameter,
    list_parameters,
    read_sensitivities,
)

PAGE: Final = Path(__file__).with_name("parameters.md")


def tables() -> str:
    """Return a table for each group of numbers, with what changes where one is another."""
    parameters = list_parameters()
    known = read_sensitivities()
    kinds = Counter(_kind(one) for one in parameters.values())
    summary = (
        f"{len(parameters)} numbers: {kinds['chosen']} chosen, {kinds['derived']} derived, "
        f"{kinds['from a paper']} from a paper or specification. Tried on "
        f"{len(known['cases'])} recorded answers."
    )
    lines = [
        summary,
        "",
        "| chosen on | numbers | what that is |",
        "|---|---:|---|",
    ]
    chosen = Counter(
        one.source.source for one in parameters.values() if isinstance(one.source, Chosen)
    )
    lines += [f"| {name} | {chosen[name]} | {what} |" for name, what in CORPORA.items()]
    groups = {group.name: group for group in Group.groups}
    for stage in sorted({group.__module__ for group in groups.values()}):
        lines += ["", f"## {stage.rpartition('.')[2].capitalize()}"]
        for group in (g for g in groups.values() if g.__module__ == stage):
            mine = [p for p in parameters.values() if p.name.startswith(f"{group.name}.")]
            guards = next((f" Guards {p.guards}." for p in mine if p.guards), "")
            lines += ["", f"**{group.name}**: {inspect.getdoc(group)}{guards}", ""]
            lines += ["| number | value | what it is | from | halved | doubled |"]
            lines += ["|---|---:|---|---|---|---|"]
            lines += [_row(one, known["parameters"].get(one.name)) for one in mine]
    return "\n".join(lines)


def _kind(parameter: Parameter[Number]) -> str:
    source = parameter.source
    if isinstance(source, Chosen):
        return "chosen"
    return "derived" if isinstance(source, Derived) else "from a paper"


def _row(parameter: Parameter[Number], known: Any) -> str:
    source = parameter.source
    where = source.source if isinstance(source, Chosen) else f"{_kind(parameter)}: {source.source}"
    name = parameter.name.partition(".")[2]
    cells = [f"`{name}`", f"{_value(parameter.declared)} {parameter.unit}", parameter.what, where]
    cells += [_flips(known, "0.5"), _flips(known, "2")]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _value(value: Number) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"{one:.6g}" for one in value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def _flips(known: Any, factor: str) -> str:
    """Say which answers change: nothing if none reads the number."""
    if known is None:
        return ""
    told = known[factor]
    counts = [
        f"{len(told[kind])} {word}"
        for kind, word in (("verdict", "verdicts"), ("cause", "causes"), ("error", "errors"))
        if told.get(kind)
    ]
    if counts:
        return f"{', '.join(counts)} of {known['read']}"
    if told.get("words"):
        return "words"
    return "figures" if told.get("figures") else "-"
