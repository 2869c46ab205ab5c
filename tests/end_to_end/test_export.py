"""``critpath export`` of a comparison that was really made."""

from __future__ import annotations

import json
import tarfile
from io import StringIO
from pathlib import Path

from Bio import Align, Phylo

# Python has the filter from 3.11.4 on; Debian 12 ships 3.11.2.
DATA_ONLY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
RECORDINGS = Path(__file__).resolve().parents[2] / "fixtures" / "lttng-guest"


def test_alignments_and_trees_of_a_comparison(critpath, tmp_path):
    for name in ("normal", "sample-lock"):
        with tarfile.open(RECORDINGS / f"{name}.tar.xz") as tar:
            tar.extractall(tmp_path, **DATA_ONLY)  # noqa: S202 - archives of our own
    saved = tmp_path / "c.json"
    how = ("--execution", "events:app:request_begin,app:request_end,key=id", "--quiet")
    done = critpath("compare", tmp_path / "normal", tmp_path / "sample-lock", "--json", saved, *how)
    assert done.returncode == 1
    document = json.loads(saved.read_text(encoding="utf-8"))
    aligned, letters = document["aligned"], [s["letter"] for s in document["symbols"]]
    assert len(aligned) > 1
    text = critpath("export", saved, "--format", "stockholm").stdout
    for one, read in zip(aligned, Align.parse(StringIO(text), "stockholm"), strict=True):
        for row, shown in zip(one["rows"], read, strict=True):
            assert shown == "".join("-" if s < 0 else letters[s] for s in row["symbols"])
        assert read.sequences[-1].annotations["id"] == one["execution"]
        assert {len(track) for track in read.column_annotations.values()} == {one["columns"]}
    trees = StringIO(critpath("export", saved, "--format", "newick").stdout)
    for one, tree in zip(aligned, Phylo.parse(trees, "newick"), strict=True):
        leaves = [leaf.name for leaf in tree.get_terminals()]
        assert len(set(leaves)) == len(leaves) == len(one["rows"])
        assert f"s_{one['execution']}" in leaves
    # The same comparison, the same bytes.
    assert critpath("export", saved, "--format", "stockholm", hash_seed="1").stdout == text
