"""``critpath baseline``: save, show, update, and compare with what was saved."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from critpath import flow
from critpath.commands import main
from critpath.schema.environment import Environment, read_environment
from critpath.store import save_paths
from critpath.store.reading import load_paths
from critpath.store.sessions import stratified_sample

SPECIFICATION = "events:app:request_begin,app:request_end,key=id"
# A level that normal-2 does not reach by chance, and what it takes to reach it.
STRICTLY = ("--alpha", "0.001", "--permutations", "2500")
NAMES = ("normal", "normal-2", "sample-lock")


@pytest.fixture
def run(extracted, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.critpath]\npermutations = 499\nleast = "100%"\n'
    )
    for name in NAMES:
        (tmp_path / name).symlink_to(extracted(name))

    def call(*arguments):
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return SimpleNamespace(code=code, out=captured.out, err=captured.err)

    return call


def test_save_compare_show(run):
    done = run("baseline", "save", "normal", "-o", "b.json")
    assert (done.code, done.out) == (0, "")
    assert "105 runs of 1 recording saved to b.json; next: critpath compare" in done.err
    assert run("compare", "b.json", "sample-lock").code == 1
    assert run("compare", "b.json", "normal-2").code == run("compare", "normal", "normal-2").code
    shown = run("baseline", "show", "b.json")
    assert shown.code == 0
    assert "runs        105 (events:app:request_begin" in shown.out
    assert "kernel 6.1.0" in shown.out
    document = json.loads(run("baseline", "show", "b.json", "--json").out)
    assert document["format"] == "critpath/baseline-summary/1"
    [session] = document["sessions"]
    assert (session["executions"], session["left_out"], session["labels"]["cpu"]) == (105, 0, 15)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", session["recorded"][0])


def test_the_same_bytes_every_time(run, tmp_path):
    run("baseline", "save", "normal", "normal-2", "-o", "a.json")
    run("baseline", "save", "normal", "normal-2", "-o", "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_save_does_not_overwrite(run, tmp_path):
    (tmp_path / "b.json").write_text("mine")
    assert run("baseline", "save", "normal", "-o", "b.json").code == 2
    assert (tmp_path / "b.json").read_text() == "mine"
    assert run("baseline", "save", "normal", "-o", "b.json", "--force").code == 0
    assert run("baseline", "save", "normal", "-o", "-").code == 2
    assert run("baseline", "save", "nowhere", "-o", "c.json").code == 4


def test_fewer_executions_are_said_everywhere(run):
    done = run("baseline", "save", "normal", "-o", "b.json", "--executions", "35")
    assert "70 left out (--executions)" in done.err
    assert "35, 70 more left out" in run("baseline", "show", "b.json").out
    assert "70 of 105 requests are not in the baseline" in run("compare", "b.json", "normal").out


def test_every_command_that_reads_paths_reads_a_baseline(run, tmp_path):
    run("baseline", "save", "normal", "-o", "b.json")
    assert run("export", "--format", "paths", "b.json", "-o", "p.parquet").code == 0
    assert run("compare", "p.parquet", "sample-lock").code == 1
    assert run("compare", "sample-lock", "b.json").code == 0
    assert run("report", "b.json").out == run("report", "normal").out
    one = ("--id", "8")
    assert run("path", "b.json", *one).out == run("path", "normal", *one).out
    assert run("baseline", "save", "b.json", "-o", "c.json").code == 0
    ours = json.loads((tmp_path / "b.json").read_text())
    again = json.loads((tmp_path / "c.json").read_text())
    assert again == ours


@pytest.mark.deep
def test_calibrate_reads_a_baseline(run):
    run("baseline", "save", "normal", "-o", "b.json")
    assert run("calibrate", "b.json", "--splits", "20", "--permutations", "499").code in {0, 1}


def test_interrupts_must_agree(run):
    run("baseline", "save", "normal", "-o", "b.json", "--no-interrupts")
    done = run("compare", "b.json", "sample-lock")
    assert (done.code, "without interrupt work" in done.err) == (2, True)
    assert run("report", "b.json").code == 0


def test_update_adds_what_is_as_before(run, tmp_path):
    run("baseline", "save", "normal", "-o", "b.json")
    before = (tmp_path / "b.json").read_text()
    done = run("baseline", "update", "b.json", "normal-2", "--rule", "gate", *STRICTLY)
    assert done.code == 0, done.out
    assert done.out.startswith("✓ OK  ")
    assert "b.json has 210 runs of 2 recordings now" in done.err
    sessions = json.loads((tmp_path / "b.json").read_text())["sessions"]
    assert [s["sources"] for s in sessions] == [["normal"], ["normal-2"]]
    kept = before.partition("[\n")[2].partition('\n],\n"digest"')[0]
    assert kept in (tmp_path / "b.json").read_text()
    done = run("baseline", "update", "b.json", "normal-2")
    assert (done.code, "is in b.json already" in done.err) == (2, True)


def test_the_oldest_make_way(run, tmp_path):
    run("baseline", "save", "normal", "-o", "b.json")
    done = run("baseline", "update", "b.json", "normal-2", *STRICTLY, "--sessions", "1")
    assert (done.code, "made way: normal" in done.err) == (0, True)
    sessions = json.loads((tmp_path / "b.json").read_text())["sessions"]
    assert [s["sources"] for s in sessions] == [["normal-2"]]


def test_update_refuses_what_is_slower(run, tmp_path):
    run("baseline", "save", "normal", "-o", "b.json")
    before = (tmp_path / "b.json").read_bytes()
    done = run("baseline", "update", "b.json", "sample-lock")
    assert done.code == 1
    assert done.out.startswith("▲ SLOWER  cpu requests ")
    assert "stays as it is" in done.err
    assert (tmp_path / "b.json").read_bytes() == before
    done = run("baseline", "update", "b.json", "sample-lock", "--accept")
    assert done.code == 0
    assert "made way: normal" in done.err
    sessions = json.loads((tmp_path / "b.json").read_text())["sessions"]
    assert [s["sources"] for s in sessions] == [["sample-lock"]]


def test_update_refuses_what_cannot_be_judged(run, tmp_path):
    run("baseline", "save", "normal", "-o", "b.json")
    before = (tmp_path / "b.json").read_bytes()
    done = run("baseline", "update", "b.json", "sample-lock", "--minimum-executions", "50")
    assert done.code == 3
    assert done.out.startswith(
        "? INCONCLUSIVE  Not enough requests to decide: 11, and 50 are needed"
    )
    assert (tmp_path / "b.json").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if "partial" in p.name] == []


def test_a_missing_baseline(run, tmp_path):
    done = run("compare", "b.json", "normal")
    assert done.code == 4
    assert "the baseline b.json does not exist" in done.err
    assert "critpath baseline save normal -o b.json" in done.err
    done = run("compare", "b.json", "normal", "--allow-missing-baseline", "--html", "r.html")
    assert (done.code, done.out) == (0, "")
    assert "nothing was compared" in done.err
    assert not (tmp_path / "r.html").exists()
    assert run("compare", "b.json", "nowhere", "--allow-missing-baseline").code == 4
    assert run("baseline", "update", "b.json", "normal").code == 4


def test_a_damaged_baseline(run, tmp_path):
    run("baseline", "save", "normal", "-o", "b.json")
    text = (tmp_path / "b.json").read_text()
    (tmp_path / "b.json").write_text(text.replace('"events"', '<<<<<<< ours\n"events"', 1))
    for arguments in (
        ("compare", "b.json", "normal"),
        ("baseline", "show", "b.json"),
        ("baseline", "update", "b.json", "normal-2"),
        ("report", "b.json"),
    ):
        done = run(*arguments)
        assert (done.code, "b.json:10: no valid JSON" in done.err) == (4, True), done.err


def test_other_machines_are_a_warning_and_strictly_no_verdict(run, tmp_path, extracted):
    from critpath.store.reading import load_paths  # noqa: PLC0415 - near its use

    other = load_paths(extracted("normal-2"))
    environment = tuple(
        e if e.kernel_release is None else e.with_texts(kernel_release="9.9")
        for e in other.environment
    )
    save_paths(replace(other, environment=environment), tmp_path / "other.parquet")
    run("baseline", "save", "normal", "-o", "b.json")
    done = run("compare", "b.json", "other.parquet")
    said = " ".join(done.out.split())
    assert "⚠ Before and after come from different kernels: 6.1.0-50-cloud-amd64 and 9.9" in said
    assert "; another kernel; " in said
    done = run("compare", "b.json", "other.parquet", "--strict-environment")
    assert done.code == 3
    assert done.out.startswith("? INCONCLUSIVE  The recordings are from different machines: ")
    assert run("compare", "b.json", "sample-lock", "--strict-environment").code == 1


def test_show_config_of_an_action(run):
    Path("critpath.toml").write_text("alpha = 0.2\n")
    assert "alpha = 0.2" in run("baseline", "update", "--show-config").out
    assert run("baseline").code == 2


def test_show_is_safe_on_a_terminal(run, tmp_path, extracted):
    hostile = "\x1b[2J\u202e::error::\n</ScRiPt>"
    paths = flow.load_saved_paths(extracted("sample-lock"))
    executions = replace(paths.executions, label=(hostile,) * len(paths))
    environment = tuple(
        read_environment(dict.fromkeys(e.saved(), hostile)) for e in paths.environment[:-1]
    )
    paths = replace(
        paths, executions=executions, environment=environment, warnings=(hostile,), sources=("e",)
    )
    save_paths(paths, tmp_path / "p.parquet")
    assert run("baseline", "save", "p.parquet", "-o", "b.json").code == 0
    text = (tmp_path / "b.json").read_text()
    assert not set(text) & set("\x1b\u202e")
    shown = run("baseline", "show", "b.json")
    assert shown.code == 0
    assert not set(shown.out) & set("\x1b\u202e")
    assert "\n::error" not in shown.out


def test_update_refuses_what_only_levels_let_pass(run, tmp_path):
    run("baseline", "save", "normal", "-o", "b.json")
    before = (tmp_path / "b.json").read_bytes()
    assert run("compare", "b.json", "sample-lock", "--level", "*=off").code == 0
    done = run("baseline", "update", "b.json", "sample-lock", "--level", "*=off")
    assert (done.code, "stays as it is" in done.err) == (1, True)
    assert "⚠ The levels of states let this pass a gate" in " ".join(done.out.split())
    assert (tmp_path / "b.json").read_bytes() == before
    done = run("baseline", "update", "b.json", "sample-lock", "--level", "*=off", "--accept")
    assert done.code == 0


def test_a_recording_given_twice_is_refused(run, tmp_path):
    done = run("baseline", "save", "normal", "normal", "-o", "b.json")
    assert (done.code, "normal is given twice" in done.err) == (2, True)
    assert not (tmp_path / "b.json").exists()
    run("baseline", "save", "normal", "-o", "b.json")
    before = (tmp_path / "b.json").read_bytes()
    done = run("baseline", "update", "b.json", "normal-2", "normal-2")
    assert (done.code, "normal-2 is given twice" in done.err) == (2, True)
    assert (tmp_path / "b.json").read_bytes() == before


def test_a_baseline_of_a_baseline_counts_all_that_is_left_out(run, tmp_path):
    run("baseline", "save", "normal", "-o", "one.json", "--executions", "50")
    run("baseline", "save", "one.json", "-o", "two.json", "--executions", "25")
    session = json.loads((tmp_path / "two.json").read_text())["sessions"][0]
    assert session["left_out"] == 80
    assert not any("not in the baseline" in text for text in session["warnings"])
    assert not any("left_out" in each for each in session["environment"])
    done = run("compare", "two.json", "sample-lock", "--json", "c.json")
    told = [w for w in json.loads((tmp_path / "c.json").read_text())["warnings"] if "not in" in w]
    assert told == ["before: normal: 80 of 105 requests are not in the baseline (--executions)"]
    assert done.code in {0, 1}


def test_a_baseline_where_the_sample_belongs_is_asked_about(run):
    run("baseline", "save", "normal", "-o", "b.json")
    assert "is the order wrong? critpath compare b.json normal-2" in " ".join(
        run("compare", "normal-2", "b.json").out.split()
    )
    assert "is the order wrong" not in run("compare", "b.json", "normal-2").out


def test_show_of_a_directory(run, tmp_path):
    (tmp_path / "d").mkdir()
    done = run("baseline", "show", "d")
    assert (done.code, "d is a directory, no baseline" in done.err) == (4, True)


def test_a_baseline_is_exported_as_a_recording_is(run):
    run("baseline", "save", "normal", "-o", "b.json")
    assert run("export", "b.json", "-o", "p.speedscope.json").code == 0
    done = run("export", "b.json", "--format", "newick", "-o", "p.nwk")
    assert (done.code, "a baseline, no comparison" in done.err) == (4, True)


def test_a_program_is_known_by_its_name_alone(run, tmp_path, extracted):
    paths = load_paths(extracted("normal"))
    said = Environment(recorded_command="/srv/me/shop --token hush", recorded_program="shop")
    told = replace(paths, environment=(*paths.environment, said))
    save_paths(told, tmp_path / "shop.parquet")
    run("baseline", "save", "shop.parquet", "-o", "b.json")
    text = (tmp_path / "b.json").read_text()
    assert "hush" not in text
    assert "/srv" not in text
    assert '"recorded_command":"shop"' in text
    other = Environment(recorded_command="./cart", recorded_program="cart")
    paths = load_paths(extracted("normal-2"))
    save_paths(replace(paths, environment=(*paths.environment, other)), tmp_path / "cart.parquet")
    done = run("compare", "b.json", "cart.parquet", "--json", "c.json", *STRICTLY)
    document = json.loads((tmp_path / "c.json").read_text())
    assert "before and after are of different programs: shop and cart" in document["warnings"]
    assert document["sets"]["normal"]["commands"] == ["shop"]
    assert document["sets"]["sample"]["commands"] == ["./cart"]
    assert done.code == 0
    assert run("compare", "b.json", "cart.parquet", "--strict-environment").code == 3


@pytest.mark.parametrize("period", [2, 3, 4])
@pytest.mark.parametrize("count", [600, 900, 1200])
def test_what_is_kept_does_not_beat_with_the_program(period, count):
    rows = stratified_sample([""] * count, 300, 7)
    assert len(set(rows.tolist())) == 300
    assert [300 * r // count for r in rows.tolist()] == list(range(300))
    kept = np.bincount(rows % period, minlength=period)
    share = 300 / period
    assert np.abs(kept - share).max() < 5 * share**0.5
    assert stratified_sample([""] * count, 300, 7).tolist() == rows.tolist()
