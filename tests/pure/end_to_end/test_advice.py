"""What commands advise next is what then works."""

from __future__ import annotations

import shlex
import tarfile
from pathlib import Path

# Python has the filter from 3.11.4 on.
DATA_ONLY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
FIXTURES = Path(__file__).parents[3] / "fixtures/requests"


def test_executions_after_are_asked_for_as_those_before(critpath, tmp_path):
    """A trace without a manifest says of nothing that it is an execution."""
    with tarfile.open(FIXTURES / "memcached.tar.xz") as archive:
        archive.extractall(tmp_path, **DATA_ONLY)  # noqa: S202 - of this repository
    asked = "requests:port=22004"
    for save in (("export", "--format", "paths"), ("baseline", "save")):
        words = (*save, "memcached", "-o", save[0], "--execution", asked)
        run = critpath(*words, cwd=tmp_path)
        assert run.returncode == 0, run.stderr
        assert f"next: critpath compare {save[0]} SAMPLE --execution {asked}" in run.stderr
        run = critpath("compare", save[0], "memcached/trace", cwd=tmp_path)
        assert run.returncode == 2
        what, do = run.stderr.splitlines()[-2:]
        assert what == "critpath: memcached/trace: nothing says what a run is"
        assert do == f"  --execution {asked} chooses the same as before"
        advised = shlex.split(do)[:2]
        run = critpath("compare", save[0], "memcached/trace", *advised, cwd=tmp_path)
        assert run.returncode in {0, 1, 3}, run.stderr
