"""Runs an experiment and keeps what it prints as JSON, with what it was measured on.

    python evaluation/results.py [--to FILE] [--busy N] EXPERIMENT [ARGUMENT ...]
    python evaluation/results.py --publish PAGE/TABLE FILE

What the experiment prints is shown as it comes. Its file is evaluation/results/FOLDER/NAME.json
unless one is named: the command, its exit code, commit, kernel, cpus, date, and rows. A row of a
printed table is an object by the table's heads, another line one with its "text". Experiments
that know their figures better write the same document themselves (their ``--json FILE``).
--busy keeps N loops busy meanwhile, and its file is NAME-beside-N.json.

--publish takes the rows of such a file into the table of evaluation/results/PAGE.json from which
``make docs`` makes a page of docs/evaluation/: those rows that have all of its heads.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "evaluation" / "results"
_RULE: Final = re.compile(r"\|(\s*:?-+:?\s*\|)+")


def describe_machine() -> dict[str, Any]:
    """Return the commit, kernel, processors and date of what is measured now."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return {
        "commit": done.stdout.strip() or "unknown",
        "kernel": os.uname().release,
        "cpus": len(os.sched_getaffinity(0)),
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    }


def write_results(file: Path, rows: Any, **more: Any) -> None:
    """Write rows with the command that made them and what it ran on."""
    document = {"command": sys.argv, **more, **describe_machine(), "rows": rows}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def parse_rows(lines: Sequence[str]) -> list[dict[str, str]]:
    """Return rows of Markdown tables by their heads, and every other line that has words."""
    rows: list[dict[str, str]] = []
    heads: list[str] = []
    for line, following in zip_longest(lines, lines[1:], fillvalue=""):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            heads = []
        if _RULE.fullmatch(following.strip()):
            heads = cells
        elif heads and not _RULE.fullmatch(line.strip()):
            rows.append(dict(zip(heads, cells, strict=False)))
        elif not heads and line.strip():
            rows.append({"text": line.rstrip()})
    return rows


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep so many loops busy meanwhile."""
    loops: list[subprocess.Popen[bytes]] = []
    try:
        while len(loops) < count:
            loops.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
        yield
    finally:
        for one in loops:
            one.kill()
            one.wait()


def run_experiment(script: Path, arguments: Sequence[str], file: Path, busy: int = 0) -> int:
    """Run a script, show what it prints, and write its results; return its exit code."""
    command = [sys.executable, str(script), *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    lines = []
    with (
        busy_loops(busy),
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
    rows = [row for row in parse_rows(lines) if "left out" not in row.get("text", "")]
    # One that was stopped, or found nothing to measure, leaves the results of an earlier run.
    if rows and process.returncode >= 0:
        write_results(file, parse_rows(lines), code=process.returncode, busy_loops=busy)
    return process.returncode


def publish_rows(place: str, rows: Sequence[dict[str, str]], date: str, commit: str) -> None:
    """Replace the rows of a published table, named PAGE/TABLE, by those that have its heads."""
    page, _, name = place.partition("/")
    file = RESULTS / f"{page}.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    table = document["tables"][name]
    found = [[row[head] for head in table["heads"]] for row in rows if {*table["heads"]} <= {*row}]
    if not found:
        sys.exit(f"no row has {', '.join(table['heads'])}")
    table |= {"date": date[:10], "commit": commit, "rows": found}
    file.write_text(format_tables(document), encoding="utf-8")


def format_tables(document: dict[str, Any]) -> str:
    """Return published tables as JSON with a row a line, which people compare."""
    marked: list[str] = []

    def mark_row(row: Any) -> str:
        marked.append(json.dumps(row, ensure_ascii=False))
        return f"@row {len(marked) - 1}@"

    tables = {
        name: {
            key: [mark_row(row) for row in value]
            if key == "rows"
            else mark_row(value)
            if isinstance(value, list)
            else value
            for key, value in table.items()
        }
        for name, table in document["tables"].items()
    }
    text = json.dumps({**document, "tables": tables}, indent=1, ensure_ascii=False)
    return re.sub(r'"@row (\d+)@"', lambda match: marked[int(match[1])], text) + "\n"


def main(words: Sequence[str]) -> int:
    """Run what the command line names."""
    if words[:1] == ["--publish"] and len(words) == 3:
        kept = json.loads(Path(words[2]).read_text(encoding="utf-8"))
        publish_rows(words[1], kept["rows"], kept["date"], kept["commit"])
        return 0
    to = None
    if words[:1] == ["--to"]:
        to, words = Path(words[1]), words[2:]
    busy = 0
    if words[:1] == ["--busy"]:
        busy, words = int(words[1]), words[2:]
    if not words:
        sys.exit(__doc__)
    script = Path(words[0]).resolve()
    name = f"{script.stem}-beside-{busy}.json" if busy else f"{script.stem}.json"
    file = to or RESULTS / script.relative_to(ROOT / "evaluation").with_name(name)
    return run_experiment(script, words[1:], file, busy)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
