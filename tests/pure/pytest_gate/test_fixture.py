"""``critpath_gate`` in a project of its own: green, red, skipped, updated."""

from __future__ import annotations

import ast
import json
import os
import shutil
import sys
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "hosts"))

from record import write_split

from critpath import flow
from critpath.commands import main
from critpath.commands.parser import build_parser, given_settings
from critpath.commands.settings import FLYING
from critpath.model.recording import HOSTS_FORMAT
from critpath.pytest_gate import gate
from critpath.schema.parameters import list_parameters
from critpath.store import save_paths
from critpath.store.reading import load_paths
from critpath_record import preflight
from critpath_record.recorder import Requirement

pytest_plugins = ["pytester"]

HOSTS = Path(__file__).parents[3] / "fixtures/hosts"


@pytest.fixture(scope="module")
def recordings(extracted, tmp_path_factory):
    place = tmp_path_factory.mktemp("extracted")
    for name in ("normal", "sample-lock"):
        paths = load_paths(extracted(name))
        # One type of request: the tests compare a dozen times.
        rows = np.flatnonzero([label == "cpu" for label in paths.executions.label])
        paths = paths.take(rows)
        save_paths(paths, place / f"{name}.parquet")
    # Equal to the normal set, but some other recording: an hour later.
    normal = load_paths(place / "normal.parquet")
    hour = 3600 * 10**9
    executions, of = normal.executions, normal.paths
    later = replace(
        normal,
        executions=replace(executions, begin=executions.begin + hour, end=executions.end + hour),
        paths=replace(of, begin=of.begin + hour, end=of.end + hour),
        sources=("normal-later",),
    )
    save_paths(later, place / "later.parquet")
    save_paths(replace(normal, warnings=("\x1b[31m::error::evil",)), place / "hostile.parquet")
    # pytester forgets what a run imports, and numpy cannot be imported twice: import all of
    # it before, with a comparison and at the top.
    sets = [str(place / f"{name}.parquet") for name in ("normal", "sample-lock")]
    assert main(["compare", *sets, "--html", str(place / "x")]) == 1
    assert main(["baseline", "save", sets[0], "-o", str(place / "b")]) == 0
    update = ["baseline", "update", str(place / "b"), str(place / "later.parquet")]
    assert main([*update, "--least", "100%"]) == 0
    return place


@pytest.fixture
def project(pytester, recordings, monkeypatch):
    """A directory with the recordings, and a way to run one test that is given as text."""
    # What stands next to this Python is found first.
    first = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", os.pathsep.join([first, os.environ["PATH"]]))
    # Where these are set, pytest does not cut the lines of its summary: it prints all twice.
    for name in ("CI", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)
    for file in recordings.iterdir():
        (pytester.path / file.name).symlink_to(file)
    (pytester.path / "critpath.toml").write_text('permutations = 499\nleast = "100%"\n')

    def run(body, *options):
        pytester.makepyfile(f"def test_it(critpath_gate, tmp_path):\n    {body}\n")
        return pytester.runpytest("-p", "no:cacheprovider", *options)

    return run


# Numbers are declared once; what is first imported within a run of pytester is forgotten after it.
list_parameters()


@pytest.fixture
def recorder(monkeypatch, recordings):
    """Replace the recorder by one that copies a recording; return the choice and the calls."""
    state = {"from": "later", "code": 0, "calls": [], "obstacles": {"ftrace": ()}}

    def record(arguments):
        state["calls"].append(arguments)
        parsed = build_parser({"record": "record"}).parse_args(["record", *arguments])
        assert not {*FLYING} & {*given_settings(parsed)}, "of the flight recorder"
        output = Path(arguments[arguments.index("-o") + 1])
        if state["code"] != 125:
            output.mkdir()
            (output / "p.parquet").symlink_to(recordings / f"{state['from']}.parquet")
        return state["code"], "critpath: what went wrong\n"

    extract = flow.extract_each

    def from_inside(sources, **options):
        inside = [s / "p.parquet" if (s / "p.parquet").exists() else s for s in sources]
        return extract(inside, **options)

    monkeypatch.setattr(gate, "record_in_child", record)
    monkeypatch.setattr(flow, "extract_each", from_inside)
    monkeypatch.setattr(
        preflight,
        "doctor",
        lambda _: preflight.Preflight(
            recorders=state["obstacles"], obstacles=(), host={"free_bytes": 1}
        ),
    )
    return state


def save(recordings, file, name="normal"):
    assert main(["baseline", "save", str(recordings / f"{name}.parquet"), "-o", str(file)]) == 0


CALL = 'critpath_gate(["./app", "--once"], baseline="b.json")'


def test_compare_of_recordings(project):
    done = project('critpath_gate.compare("normal.parquet", "later.parquet")')
    done.assert_outcomes(passed=1)
    done = project('critpath_gate.compare("normal.parquet", "sample-lock.parquet")')
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "critpath: SLOWER: *",
            "total is +8.03 ms *",
            "1. 4 of 5 `cpu` requests*",
            "report: *critpath-1.html",
        ]
    )
    assert "Traceback" not in done.stdout.str()
    [line] = [x for x in done.outlines if x.startswith("report: ")]
    assert Path(line.removeprefix("report: ")).read_text().startswith("<!DOCTYPE html>")


@pytest.fixture(scope="module")
def hosts(unpack, tmp_path_factory):
    """Two sets of the same hosts: the second asks another server besides, and is slower."""
    place = tmp_path_factory.mktemp("hosts")
    for name, archive in (("before", "sleep-5-8"), ("after", "outer-3-8")):
        recorded = place / archive
        shutil.copytree(unpack(HOSTS / f"{archive}.tar.xz") / archive, recorded)
        write_split(recorded, 1)
        (recorded / "hosts").rename(place / name)
        listed = [{"name": p.name, "recording": p.name} for p in (place / name).iterdir()]
        written = json.dumps({"format": HOSTS_FORMAT, "hosts": listed})
        (place / name / "hosts.json").write_text(written)
    extract = place / "before.parquet"
    assert (
        main(["export", "--format", "paths", str(place / "before"), "-o", str(extract), *ASKED])
        == 0
    )
    assert main(["baseline", "save", str(extract), "-o", str(place / "kept")]) == 0
    return place


ASKED = ("--execution", "requests:web:8080")
OVER_HOSTS = 'critpath_gate.compare(f"{place}/{name}", f"{place}/{other}", execution=asked)'


def over_hosts(hosts, normal, sample):
    return (
        f"place, name, other, asked = {str(hosts)!r}, {normal!r}, {sample!r}, {ASKED[1]!r}\n"
        f"    assert {OVER_HOSTS}['verdict'] == 'ok'"
    )


def test_sets_of_hosts_and_their_baselines(project, hosts):
    project(over_hosts(hosts, "kept", "before.parquet")).assert_outcomes(passed=1)
    done = project(over_hosts(hosts, "before.parquet", "after"))
    done.assert_outcomes(failed=1)
    # What is usual is no warning, and nothing is said twice.
    done.stdout.no_fnmatch_line("*aligned with*")
    lines = [line.removeprefix("warning: ").lower() for line in done.outlines if line]
    said = lines[: next(i for i, line in enumerate(lines) if line.startswith("report: "))]
    assert len(said) == len({*said})
    done.stdout.fnmatch_lines(["critpath: SLOWER: *nginx@web:8080*", "*uvicorn@app*"])


def test_a_baseline_of_requests_says_how_the_others_are_found(project, hosts):
    done = project(f'critpath_gate.compare("{hosts}/kept", "{hosts}/before")')
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "critpath: runs before are requests:web:8080, those after are processes",
            "  --execution requests:web:8080 chooses the same of both",
        ]
    )


def test_settings_of_the_call_win_over_the_file(project, pytester):
    sets = '"normal.parquet", "sample-lock.parquet"'
    (pytester.path / "critpath.toml").write_text('[gate.states]\n"*" = "off"\n')
    project(f"critpath_gate.compare({sets})").assert_outcomes(passed=1)
    done = project(f'critpath_gate.compare({sets}, level={{"*": "error"}}, rule="gate")')
    done.assert_outcomes(failed=1)
    done = project(f"critpath_gate.compare({sets}, alhpa=1)")
    done.stdout.fnmatch_lines(["critpath: critpath_gate has no setting alhpa"])
    done = project(f"critpath_gate.compare({sets}, alpha=7.5)")
    done.stdout.fnmatch_lines(["critpath: alpha=7.5 is not a level above 0*"])
    done = project('critpath_gate.compare("nowhere", "nowhere")')
    done.stdout.fnmatch_lines(["critpath: nowhere does not exist"])


@pytest.mark.parametrize(
    ("how", "outcome"), [("fail", "failed"), ("skip", "skipped"), ("xfail", "xfailed")]
)
def test_no_verdict(project, pytester, how, outcome):
    pytester.makeini(f"[pytest]\ncritpath_inconclusive = {how}\n")
    body = 'critpath_gate.compare("normal.parquet", "later.parquet", minimum_executions=500)'
    done = project(body, "-rsxf")
    done.assert_outcomes(**{outcome: 1})
    assert "and 500 are wanted" in done.stdout.str()


def test_a_wrong_ini_setting(project, pytester):
    pytester.makeini("[pytest]\ncritpath_inconclusive = maybe\n")
    assert project("pass").ret == pytest.ExitCode.USAGE_ERROR


def test_a_command_against_its_baseline(project, pytester, recorder, recordings):
    save(recordings, pytester.path / "b.json")
    before = (pytester.path / "b.json").read_bytes()
    done = project("print(" + CALL.replace("b.json", "b.json") + '["verdict"]); ' + "pass", "-s")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["*ok*"])
    [arguments] = recorder["calls"]
    assert arguments[-3:] == ["--", "./app", "--once"]
    assert "-n30" in arguments
    assert not Path(arguments[arguments.index("-o") + 1]).exists()
    recorder["from"] = "sample-lock"
    done = project(CALL)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["critpath: SLOWER: *"])
    assert Path(recorder["calls"][-1][3]).exists()  # to look at
    assert (pytester.path / "b.json").read_bytes() == before


def test_without_a_baseline(project, pytester, recorder):
    done = project(CALL)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*there is no baseline *b.json", "*pytest --critpath-update*"])
    assert recorder["calls"] == []
    done = project(CALL, "--critpath-update")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["*critpath baselines*", "*b.json: made of 15 runs*"])
    assert (pytester.path / "b.json").exists()


def test_update_and_accept(project, pytester, recorder, recordings):
    def sources():
        sessions = json.loads((pytester.path / "b.json").read_text())["sessions"]
        return [source for session in sessions for source in session["sources"]]

    save(recordings, pytester.path / "b.json")
    project(CALL, "--critpath-update").assert_outcomes(passed=1)
    assert sources() == ["normal", "normal-later"]
    recorder["from"] = "sample-lock"
    refused = project(CALL, "--critpath-update")
    refused.assert_outcomes(failed=1)
    refused.stdout.fnmatch_lines(["*b.json stays as it is; *: pytest --critpath-accept"])
    assert sources() == ["normal", "normal-later"]
    done = project(CALL, "--critpath-accept")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["*b.json: begun anew with 5 runs of 1 recording"])
    assert sources() == ["sample-lock"]


def test_a_command_that_fails(project, pytester, recorder, recordings):
    save(recordings, pytester.path / "b.json")
    recorder["code"] = 3
    done = project(CALL)
    done.stdout.fnmatch_lines(["critpath: the command exited with 3: ./app --once"])
    recorder["code"] = 125
    done = project(CALL)
    done.stdout.fnmatch_lines(["critpath: recording failed: *", "critpath: what went wrong"])


def test_a_machine_that_may_not_record(project, pytester, recorder, recordings):
    save(recordings, pytester.path / "b.json")
    recorder["obstacles"] = {"ftrace": (Requirement("root", "only root may trace", "sudo"),)}
    done = project(CALL, "-rs")
    done.assert_outcomes(skipped=1)
    done.stdout.fnmatch_lines(["*this machine may not record: only root may trace*"])
    project(CALL, "--critpath-require").assert_outcomes(failed=1)
    pytester.makeini("[pytest]\ncritpath_require = true\n")
    project(CALL).assert_outcomes(failed=1)


def test_text_of_a_trace_is_safe(project):
    done = project('critpath_gate.compare("hostile.parquet", "sample-lock.parquet")')
    assert "::error::evil" in done.stdout.str()
    assert "\x1b[31m::error" not in done.stdout.str()


def test_it_costs_nothing_until_it_is_used():
    [found] = [e for e in entry_points(group="pytest11") if e.name == "critpath"]
    assert found.value == "critpath.pytest_gate"
    tree = ast.parse(Path(str(gate.__file__)).with_name("__init__.py").read_text(encoding="utf-8"))
    tops = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert tops == {"__future__", "pathlib", "typing", "pytest"}


def test_rows_are_not_those_of_the_baseline(recordings):
    later = load_paths(recordings / "later.parquet")
    assert np.all(later.paths.begin > 3600 * 10**9)
