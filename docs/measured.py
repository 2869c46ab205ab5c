"""The tables of docs/evaluation/, made from evaluation/results/*.json."""  # noqa: INP001 - a script's part

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from reference import table

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "evaluation" / "results"
PAGES: Final = ROOT / "docs" / "evaluation"
# <!-- table PAGE/TABLE --> or, for some columns of it, <!-- table PAGE/TABLE: HEAD | HEAD -->
_NUMBER: Final = re.compile(r"|-|–|[-+±~<]? ?[\d.,]+( ?(%|s|ms|µs|times|of [\d,]+))?")  # or nothing
_MARKER: Final = re.compile(r"<!-- table ([^>]*?) -->\n.*?<!-- end of table -->", re.DOTALL)


def read_results(page: str) -> dict[str, Any]:
    """Return the tables of a page by their names."""
    text = (RESULTS / f"{page}.json").read_text(encoding="utf-8")
    tables: dict[str, Any] = json.loads(text)["tables"]
    return tables


def render_table(found: dict[str, Any], heads: list[str], told: str = "") -> str:
    """Return some columns of a table, and what measured it when, unless a text has told it."""
    columns = [found["heads"].index(head) for head in heads]
    rows = [tuple(row[column] for column in columns) for row in found["rows"]]
    shown = table(tuple(heads), rows)
    numbers = [all(_NUMBER.fullmatch(row[place]) for row in rows) for place in range(len(heads))]
    shown[1] = "|" + "".join("---:|" if number else "---|" for number in numbers)
    command = "" if found["command"] in told else f"`{found['command']}`, "
    return "\n".join([*shown, "", f"{command}{found['date']} ({found['commit']})"])


def fill_page(text: str) -> str:
    """Return a page with what stands between its markers made anew."""
    told = _MARKER.sub("", text)

    def fill(match: re.Match[str]) -> str:
        place, _, heads = match[1].partition(": ")
        page, _, name = place.partition("/")
        found = read_results(page)[name]
        columns = heads.split(" | ") if heads else found["heads"]
        shown = render_table(found, columns, told)
        return f"<!-- table {match[1]} -->\n{shown}\n\n<!-- end of table -->"

    return _MARKER.sub(fill, text)


def tables_page(page: str) -> str | None:
    """Return the page of the tables that the page of the question leaves out, if there are any."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    shown = {place.partition(":")[0] for place in re.findall(r"<!-- table (.*?) -->", text)}
    title = text.partition("\n")[0]
    found = read_results(page)
    left = {name: one for name, one in found.items() if f"{page}/{name}" not in shown}
    if not left:
        return None
    file = f"evaluation/results/{page}.json"
    parts = [f"# Tables: {page.replace('-', ' ')}", ""]
    parts += [f"[{title[2:]}]({page}.md) in short. Every row and column: `{file}`.", ""]
    before = ""
    for one in left.values():
        if heads := one.get("page", one["heads"]):
            parts += [f"## {one['title']}", "", render_table(one, heads, before), ""]
            before = one["command"]
    if kept := [one["title"] for one in left.values() if one.get("page") is False]:
        parts += [f"Only there: {'; '.join(kept)}.", ""]
    return "\n".join(parts)


def pages() -> dict[Path, str]:
    """Return every page of the evaluation as it should be."""
    made = {}
    for file in sorted(RESULTS.glob("*.json")):
        page = PAGES / f"{file.stem}.md"
        made[page] = fill_page(page.read_text(encoding="utf-8"))
        if text := tables_page(file.stem):
            made[PAGES / f"{file.stem}-tables.md"] = text
    return made
