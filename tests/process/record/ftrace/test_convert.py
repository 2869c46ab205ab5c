"""babeltrace2, in a process of its own, reads what conversion writes as we do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from critpath.errors import CritpathError
from critpath_record.ftrace.convert import convert

ARCHIVE = Path(__file__).resolve().parents[4] / "fixtures" / "ftrace-raw" / "minimal.tar.xz"


def test_babeltrace2_reads_the_same(unpack, rows, tmp_path):
    raw = tmp_path / "raw"
    shutil.copytree(unpack(ARCHIVE) / "minimal", raw)
    begin = json.loads((raw / "statedump.json").read_text())[-1][0]
    groups = [[begin + 5, 1, 0, "/a\u202e b"], [begin + 3, 2, 7, "/c"]]
    (raw / "cgroups.json").write_text(json.dumps(groups))
    six = "fe80" + "00" * 13 + "01"
    sockets = [
        [begin + 9, 1, 7, 10, 6, 1, six, 80, "0" * 31 + "1", 9, 1 << 63, ""],
        [begin + 8, 4026531833, 6, 2, 6, 10, "7f000001", 65535, "00000000", 0, 0, ""],
        [begin + 9, 1, 8, 1, 1, 10, "", 0, "", 0, 0, "/a\0b\u202e\n"],
    ]
    (raw / "sockets.json").write_text(json.dumps(sockets))
    convert(raw, tmp_path / "trace", lambda _: None)
    ours, events = rows(tmp_path / "trace")
    try:
        theirs, of_theirs = rows(tmp_path / "trace", "babeltrace2")
    except CritpathError as error:
        pytest.skip(str(error))
    assert sorted(map(repr, theirs)) == sorted(map(repr, ours))
    assert of_theirs.losses == events.losses
