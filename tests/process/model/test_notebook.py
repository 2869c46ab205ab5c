"""A notebook shows tables and comparisons, in a kernel of its own."""

from __future__ import annotations

import re

import nbclient
import nbformat
import pytest

CELLS = (
    "import critpath as cp\nnormal, sample = cp.load('normal'), cp.load('sample')\nnormal",
    "sample.executions",
    "answer = cp.compare(normal, sample, alpha=0.01)\nanswer",
    "answer.to_html('report.html'); normal.save('n.parquet'); cp.load('n.parquet')",
    "answer.causes.to_pandas()",
    "answer.to_json()[:40]",
    "import polars\npolars.DataFrame(sample).shape",
)


@pytest.mark.deep  # what is shown, the pure tests see
def test_a_notebook_really_shows_them(extracted, tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.delenv("PYTHONWARNINGS", raising=False)
    for name, of in (("normal", "normal"), ("sample", "sample-lock")):
        (tmp_path / name).symlink_to(extracted(of))
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, CELLS)))
    nbclient.NotebookClient(
        notebook, timeout=None, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    shown = [cell["outputs"][-1]["data"] for cell in notebook.cells]
    pages = [one.get("text/html", "") for one in shown]
    assert re.match(r"<p>PathSet: 3,667 rows</p><table>", pages[0])
    assert "<p>Executions: 11 rows</p>" in pages[1]
    assert pages[2].startswith("<p><strong>SLOWER: ")
    assert shown[2]["text/plain"].startswith("SLOWER: ")
    assert shown[3]["text/plain"].startswith("PathSet: 105 runs")
    assert "sentence" in pages[4]
    assert shown[5]["text/plain"].startswith("'{")
    assert re.fullmatch(r"\(\d+, 23\)", shown[6]["text/plain"])
    assert (tmp_path / "report.html").stat().st_size > 100_000
