"""The demo as a newcomer meets it where it may record."""

from __future__ import annotations

import json

import pytest

from critpath.commands import demo as demo_live


@pytest.mark.skipif(bool(demo_live.why_not()), reason=demo_live.why_not() or "can record")
def test_where_it_may_record_the_demo_records_and_says_so(critpath_process, tmp_path):
    done = critpath_process("demo", "--fault", "delay", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("▲ SLOWER")
    assert "recorded on this machine" in done.stderr
    for name in ("normal", "sample-delay"):
        manifest = json.loads((tmp_path / "critpath-demo" / name / "critpath.json").read_text())
        assert manifest["state"] == "complete"
    again = critpath_process("demo", "--fault", "delay", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
