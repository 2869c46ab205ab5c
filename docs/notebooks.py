"""Run the notebooks beside and put in what their cells print: ``make docs`` runs this.

A notebook's cells run one after the other, in a directory with shipped recordings; an output is
what a cell prints, and what its last line is.
"""  # noqa: INP001 - a script beside the documents, no package

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

# Python has the filter from 3.11.4 on; Debian 12 ships 3.11.2.
DATA_ONLY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
ROOT: Final = Path(__file__).resolve().parent.parent
NOTEBOOKS: Final = ROOT / "docs" / "notebooks"
RECORDINGS: Final = (
    *("lttng-guest/normal.tar.xz", "lttng-guest/sample-lock.tar.xz", "requests/memcached.tar.xz"),
)
# What they print differs from run to run.
MEASURED: Final = frozenset({"ab", "record"})


def run_cells(cells: list[str]) -> list[list[dict[str, Any]]]:
    """Run cells in one namespace; return the outputs of each."""
    namespace: dict[str, Any] = {}
    found = []
    for number, cell in enumerate(cells, 1):
        tree = ast.parse(cell)
        last = tree.body[-1] if tree.body else None
        shown = ast.Expression(last.value) if isinstance(last, ast.Expr) else None
        if shown is not None:
            tree.body.pop()
        printed = io.StringIO()
        value = None
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, f"cell {number}", "exec"), namespace)  # noqa: S102 - our own notebook
            if shown is not None:
                value = eval(compile(shown, f"cell {number}", "eval"), namespace)  # noqa: S307 - as above
        outputs: list[dict[str, Any]] = []
        if text := printed.getvalue():
            lines = text.splitlines(keepends=True)
            outputs.append({"name": "stdout", "output_type": "stream", "text": lines})
        if value is not None:
            data = {"text/plain": repr(value).splitlines(keepends=True)}
            result = {"data": data, "execution_count": number, "metadata": {}}
            outputs.append({**result, "output_type": "execute_result"})
        found.append(outputs)
    return found


def read_code(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells with code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_notebook(file: Path) -> list[list[dict[str, Any]]]:
    """Run a notebook in a process and a directory of its own; return the outputs of each cell."""
    notebook = json.loads(file.read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in read_code(notebook)]
    with tempfile.TemporaryDirectory() as place:
        for name in RECORDINGS:
            with tarfile.open(ROOT / "fixtures" / name) as tar:
                tar.extractall(place, **DATA_ONLY)  # noqa: S202 - archives of our own
        done = subprocess.run(  # noqa: S603 - ourselves
            [sys.executable, "-P", __file__],
            cwd=place,
            env={**os.environ, "COLUMNS": "100"},
            input=json.dumps(cells),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"{file.name}: {done.stderr}")
    outputs: list[list[dict[str, Any]]] = json.loads(done.stdout)
    return outputs


def renew() -> None:
    """Put into every notebook what its cells print now."""
    for file in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = json.loads(file.read_text(encoding="utf-8"))
        for number, (cell, outputs) in enumerate(
            zip(read_code(notebook), run_notebook(file), strict=True), 1
        ):
            cell["outputs"], cell["execution_count"] = outputs, number
        file.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    json.dump(run_cells(json.load(sys.stdin)), sys.stdout)
