"""critpath view, from outside: what it shows, what it refuses, where the page goes."""

from __future__ import annotations

import json
import re

import pytest

EXECUTION = ("--execution", "events:app:request_begin,app:request_end,key=id")


@pytest.fixture(scope="module")
def recording(guest):
    return guest("sample-lock")


def data_of(page):
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    return json.loads(found[1])


def test_a_request_is_shown_with_a_tenth_more_on_either_side(critpath, recording):
    paths = critpath("path", recording, *EXECUTION, "--id", "7", "--format", "json")
    path = json.loads(paths.stdout)
    run = critpath("view", recording, *EXECUTION, "--around", "7", "-o", "-")
    assert run.returncode == 0, run.stderr
    data = data_of(run.stdout)
    length = path["end"] - path["begin"]
    assert int(data["begin"]) == path["begin"] - length // 10
    assert data["length"] == length + 2 * (length // 10)
    assert "<h1>Request <code>7</code> takes 17.0\xa0ms</h1>" in run.stdout
    assert data["command"].endswith(
        "--around 7 --execution events:app:request_begin,app:request_end,key=id"
    )


def test_any_window_is_shown_and_a_thread_s_path_in_it(critpath, recording, tmp_path):
    window = ("--from", "41991531668", "--to", "42011948062")
    plain = critpath("view", recording, *window, cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    page = (tmp_path / "view.html").read_text("utf-8")
    assert "view.html: open it in a browser" in plain.stderr
    assert data_of(page)["length"] == 42011948062 - 41991531668
    assert data_of(page)["onPath"] == 0
    lit = critpath("view", recording, *window, "--tid", "332", "-o", "lit.html", cwd=tmp_path)
    assert lit.returncode == 0, lit.stderr
    page = (tmp_path / "lit.html").read_text("utf-8")
    assert "<h1>Thread <code>332" in page
    assert data_of(page)["names"][0] == "worker-0 332"


def test_a_window_beside_the_request_lights_nothing(critpath, recording):
    window = ("--from", "41640000000", "--to", "41641000000")
    run = critpath("view", recording, *EXECUTION, "--around", "7", *window, "-o", "-")
    assert run.returncode == 0, run.stderr
    assert data_of(run.stdout)["onPath"] == 0
    assert 'id="path"' not in run.stdout


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--from", "9", "--to", "5"), "--from is not before --to"),
        (("--around", "7", "--tid", "5"), "--around together with --tid"),
        (("--from", "1", "--to", "2"), "nothing was recorded between 1 and 2"),
        (("--around", "none"), "has no run none"),
        (("--tid", "99"), "no thread with tid 99"),
    ],
)
def test_what_cannot_be_shown_is_refused(critpath, recording, tmp_path, words, what):
    execution = EXECUTION if "--around" in words else ()
    run = critpath("view", recording, *words, *execution, cwd=tmp_path)
    assert run.returncode == 2
    assert what in run.stderr
    assert not list(tmp_path.iterdir())


def test_saved_paths_are_no_trace(critpath, recording, tmp_path):
    saved = critpath(
        *("export", recording, *EXECUTION, "--format", "paths", "-o", tmp_path / "saved.paths")
    )
    assert saved.returncode == 0, saved.stderr
    run = critpath("view", tmp_path / "saved.paths", "--around", "7")
    assert run.returncode == 2
    assert "holds paths alone" in run.stderr
