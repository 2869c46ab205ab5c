"""``critpath doctor`` from outside: what it says of this machine, and its exit codes."""

from __future__ import annotations

import json

from critpath.commands import main


def test_json_has_everything(capsys):
    code = main(["doctor", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["format"] == "critpath/doctor/1"
    assert set(document["recorders"]) == {"lttng", "ftrace", "counts"}
    assert document["can_record"] == (document["recorder"] is not None)
    assert code == (0 if document["can_record"] and not document["leftovers"] else 1)
    for recorder in document["recorders"].values():
        fatal = any(o["fatal"] for o in [*recorder["obstacles"], *document["obstacles"]])
        assert recorder["usable"] != fatal
        assert all(o["what"] and o["do"] for o in recorder["obstacles"])


def test_text_names_both_recorders(capsys):
    main(["doctor"])
    out = capsys.readouterr().out
    assert out.startswith("This machine can")
    assert "lttng: " in out
    assert "ftrace: " in out


def test_what_is_no_recording_is_refused(tmp_path, capsys):
    assert main(["doctor", "--clean", str(tmp_path)]) == 4
    assert "is not a recording" in capsys.readouterr().err
