"""Whose recordings are of one set of hosts: processes that read them are told as well."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "hosts"))

from record import write_split

ARCHIVE = Path(__file__).parents[3] / "fixtures/hosts/select1-2-8.tar.xz"


def test_what_the_user_says_of_hosts_is_known_in_every_process(critpath, unpack, tmp_path):
    """Of one machine twice, by its manifests: only the user can know."""
    recorded = shutil.copytree(unpack(ARCHIVE) / "select1-2-8", tmp_path / "recorded")
    write_split(recorded, 5)
    for run in ("run-1", "run-2"):
        for name in ("app", "web"):
            place = shutil.copytree(recorded / "hosts" / name, tmp_path / "normal" / run / name)
            manifest = json.loads((place / "critpath.json").read_text())
            manifest["host"] = {"name": "box", "machine_id": "1"}
            (place / "critpath.json").write_text(json.dumps(manifest))
    words = (
        "export",
        "--format",
        "paths",
        "normal",
        "--execution",
        "requests",
        "--hosts-together",
        "--jobs",
    )
    for jobs in ("1", "2"):
        done = critpath(*words, jobs, "-o", jobs, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "of the hosts app, web are taken as one" in done.stderr
    assert (tmp_path / "1").is_dir() == (tmp_path / "2").is_dir()
    for file in [*(tmp_path / "1").rglob("*")] or [tmp_path / "1"]:
        twin = tmp_path / "2" / file.relative_to(tmp_path / "1")
        assert file.read_bytes() == twin.read_bytes()
