"""Changed files of every format, a few of the campaign of `tests/fuzz/mutate_files.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CAMPAIGN = Path(__file__).resolve().parents[2] / "fuzz" / "mutate_files.py"
INPUTS = 400


def test_no_changed_file_is_an_exception_a_hang_or_another_answer(tmp_path: Path) -> None:
    command = [sys.executable, str(CAMPAIGN), "--inputs", str(INPUTS), "--campaign", "2"]
    figures = tmp_path / "figures.json"
    done = subprocess.run(
        [*command, "--json", str(figures)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    found = json.loads(figures.read_text())
    assert found["findings"] == []
    assert found["inputs"] == INPUTS
    # Neither all nor nothing is refused, and every kind of file is tried.
    assert found["outcomes"]["read"] > INPUTS // 20
    assert all(sum(of.values()) for of in found["kinds"].values())
