"""Files made to break readers: refused or salvaged, by a command that takes little memory.

All of a kind are read by one process: what they take together is at least what any of them does.
"""

from __future__ import annotations

import pytest
from pure.baseline.test_forged import BOMBS as BASELINES
from pure.store.test_forged import BOMBS as EXTRACTS

MIB = 1 << 20
# What babeltrace2 did with a trace: crashed, hung or ran out of memory.
CRASHES = {"134", "136", "139", "124", "137"}


def test_every_malformed_trace_is_refused_or_salvaged(shared, peak):
    root = shared("malformed")
    rows = [r.split("\t") for r in (root / "babeltrace2.tsv").read_text().splitlines()]
    crashed = [r[0] for r in rows[1:] if CRASHES & {w.split("=")[-1].strip() for w in r[1:3]}]
    cases = [m.parent for m in sorted(root.rglob("metadata")) if m.is_file()]
    assert len(cases) >= 91
    assert len(crashed) >= 13
    cases += [root / name for name in crashed if root / name not in cases]
    ended, most = peak(*(("path", case, "--execution", "thread", "--quiet") for case in cases))
    for case, (code, said) in zip(cases, ended, strict=True):
        assert code in {0, 2, 3, 4}, (case, said)
        assert "Traceback" not in said, case
        if code == 4:
            assert len(said.splitlines()) == 2, case  # what, and what to do
    assert most < 512 * MIB


@pytest.mark.parametrize("bombs", [BASELINES, EXTRACTS], ids=["baselines", "extracts"])
def test_small_files_do_not_become_large_ones(peak, tmp_path, bombs):
    files = [tmp_path / name for name in bombs]
    for file in files:
        bombs[file.name](file)
        assert file.stat().st_size < 32 * MIB
    ended, most = peak(*(("compare", file, file) for file in files))
    for file, (code, said) in zip(files, ended, strict=True):
        assert code == 4, (file.name, said)
        assert len(said.splitlines()) == 2, said
    assert most < 512 * MIB
