"""What a manifest names is text: a trace is looked for in the recording alone."""

from __future__ import annotations

import json
import shutil

import pytest


@pytest.mark.parametrize("trace", ["/etc", "../elsewhere", "link", "", "\0"])
def test_a_manifest_does_not_say_where_the_trace_is(critpath, tmp_path, guest, trace):
    """Traces are looked for in the recording's own directory, without links."""
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(guest("plain"), elsewhere)
    recording = tmp_path / "rec"
    recording.mkdir()
    (recording / "link").symlink_to(elsewhere)
    manifest = {"format": "critpath/recording/1", "trace": trace, "state": "complete"}
    (recording / "critpath.json").write_text(json.dumps(manifest))
    done = critpath("path", recording)
    assert done.returncode == 4
    assert "holds no CTF trace, and links to directories are not followed" in done.stderr
