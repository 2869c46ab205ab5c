"""Datasets from the command line, and the same bytes whatever the number of jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from critpath.flow import extract_dataset, extract_file
from critpath.model import ExtractSettings

# A module that tells when it is imported.
TRAP = "open({!r}, 'w').close()\nraise SystemExit('imported')\n"
REQUESTS = "events:app:request_begin,app:request_end,key=id"


@pytest.fixture(scope="module")
def here(tmp_path_factory, guest) -> Path:
    place = tmp_path_factory.mktemp("datasets")
    for name in ("normal", "sample-lock"):
        (place / name).symlink_to(guest(name))
    return place


def tree(place: Path) -> dict[str, bytes]:
    if place.is_file():
        return {"": place.read_bytes()}
    return {file.name: file.read_bytes() for file in place.iterdir()}


def test_the_same_bytes_with_one_job_and_with_two(critpath, here):
    """Of a comparison test_determinism.py shows it."""
    for out in ("set{}", "file{}.parquet"):
        for jobs in (1, 2):
            done = critpath(
                *(
                    "export",
                    "--format",
                    "paths",
                    "normal",
                    "sample-lock",
                    "sample-lock",
                    "--execution",
                    REQUESTS,
                ),
                *("--jobs", jobs, "-o", out.format(jobs)),
                cwd=here,
            )
            assert done.returncode == 0, done.stderr
        assert tree(here / out.format(1)) == tree(here / out.format(2))


def test_a_dataset_is_compared_as_its_recordings_are(critpath, here):
    for name in ("normal", "sample-lock"):
        done = critpath(
            "export",
            "--format",
            "paths",
            name,
            "--execution",
            REQUESTS,
            "-o",
            f"{name}.set/",
            cwd=here,
        )
        assert done.returncode == 0, done.stderr
        assert f"saved to {name}.set (a dataset of 1 file); next: critpath" in done.stderr
        assert f"critpath compare {name}.set SAMPLE" in done.stderr
    direct = critpath(
        "compare", "normal", "sample-lock", "--execution", REQUESTS, "--json", "-", cwd=here
    )
    again = critpath("compare", "normal.set", "sample-lock.set", "--json", "-", cwd=here)
    assert (again.returncode, again.stdout) == (direct.returncode, direct.stdout)
    assert again.returncode == 1
    shown = critpath("report", "normal.set", cwd=here)
    assert shown.returncode == 0
    assert shown.stdout
    merged = critpath(
        "export", "--format", "paths", "normal.set", "sample-lock.set", "-o", "both", cwd=here
    )
    assert merged.returncode == 0, merged.stderr
    parts = json.loads((here / "both" / "_critpath.json").read_text())["parts"]
    assert [part["recordings"] for part in parts] == [["normal"], ["sample-lock"]]


def test_what_stands_there_is_replaced_only_when_that_is_asked_for(critpath, here, tmp_path):
    run = ("export", "--format", "paths", here / "sample-lock", "--execution", REQUESTS)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("years of work")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    assert critpath(*run, "-o", "empty", cwd=tmp_path).returncode == 0
    for out, force, says in (
        ("empty", (), "exists already"),
        ("file", (), "exists already"),
        ("other", (), "other things in it"),
        ("other", ("--force",), "other things in it"),
        ("no/such", (), "is not a directory"),
        (here / "sample-lock", ("--force",), "both input and output"),
        (here, ("--force",), "other things in it"),
    ):
        done = critpath(*run, "-o", out, *force, cwd=tmp_path)
        assert (done.returncode, says in done.stderr) == (2, True), (out, done.stderr)
    assert (tmp_path / "other" / "thesis.txt").read_text() == "years of work"
    before = tree(tmp_path / "empty")
    for out in ("empty", "file"):
        assert critpath(*run, "-o", out, "--force", cwd=tmp_path).returncode == 0
        assert tree(tmp_path / out) == before
    again = critpath("export", "--format", "paths", "empty", "-o", "empty", "--force", cwd=tmp_path)
    assert "both input and output" in again.stderr
    assert sorted(f.name for f in tmp_path.iterdir()) == ["empty", "file", "other"]


def test_a_part_that_is_missing_is_said_with_exit_code_4(critpath, here, tmp_path):
    saved = critpath(
        *(
            "export",
            "--format",
            "paths",
            here / "normal",
            here / "sample-lock",
            "--execution",
            REQUESTS,
            "-o",
            "d",
        ),
        cwd=tmp_path,
    )
    assert saved.returncode == 0
    (tmp_path / "d" / "part-00001.parquet").unlink()
    done = critpath("compare", "d", "d", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.splitlines()[0] == "critpath: d: part-00001.parquet is missing"


def test_nothing_is_left_where_no_execution_is(critpath, here, tmp_path):
    done = critpath(
        *(
            "export",
            "--format",
            "paths",
            here / "normal",
            "--execution",
            "windows:w.csv",
            "-o",
            "d",
        ),
        cwd=tmp_path,
    )
    assert done.returncode != 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["o.csv", "o.JSON", "o.arrow", "o.gz", "o.feather", "o.txt", ""])
def test_a_name_that_means_another_format_is_refused(critpath, here, tmp_path, name):
    done = critpath("export", "--format", "paths", here / "normal", "-o", name, cwd=tmp_path)
    says = (
        f"critpath: {name}: critical paths are saved as Parquet"
        if name
        else "critpath: -o names nothing"
    )
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, says)
    assert ".parquet" in done.stderr.splitlines()[1]
    assert list(tmp_path.iterdir()) == []


def test_who_waits_is_told_which_of_how_many(here, tmp_path):
    told: list[str] = []
    normal = here / "sample-lock"
    for name in ("d", "f.parquet"):
        save = extract_file if name.endswith("parquet") else extract_dataset
        save(
            [normal, normal],
            tmp_path / name,
            ExtractSettings(REQUESTS),
            require=lambda _: None,
            progress=told.append,
        )
        assert [f"reading {normal} ({n} of 2)" for n in (1, 2)] == [
            line for line in told if line.startswith("reading")
        ]
        told.clear()


@pytest.mark.parametrize("alone", [True, False])
def test_what_a_killed_extraction_left_is_removed(critpath, wait_for, here, alone):
    """By its steward at once; by the next where that was killed, too."""

    def run(count: int) -> tuple[str, ...]:
        options = ("--execution", REQUESTS, "--jobs", "1", "--force", "-o", "killed/")
        return ("export", "--format", "paths", *["normal"] * count, *options)

    # It is stopped at the first sight of what it writes, long before the last recording.
    with subprocess.Popen(
        [sys.executable, "-m", "critpath", *run(200)], cwd=here, stderr=subprocess.DEVNULL
    ) as process:
        wait_for(
            lambda: list(here.glob(".killed.*.partial/*.partial/*")) or process.poll() is not None
        )
        started = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for steward in [] if alone else started:
            os.kill(int(steward), signal.SIGKILL)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    if alone:
        wait_for(lambda: not list(here.glob(".killed.*")))
    else:
        assert list(here.glob(".killed.*"))
    done = critpath(*run(2), cwd=here)
    assert done.returncode == 0, done.stderr
    assert [f.name for f in here.iterdir() if "killed" in f.name] == ["killed"]


def test_nothing_is_imported_from_the_current_directory(guest, tmp_path):
    """What lies there is data, whatever it is called: other processes are of the same mind."""
    met = tmp_path / "met"
    here = tmp_path / "here"
    for name in ("critpath", "numpy", "pyarrow", "multiprocessing", "signal", "json"):
        (here / name).mkdir(parents=True)
        (here / name / "__init__.py").write_text(TRAP.format(str(met)))
    command = Path(sys.executable).parent / "critpath"
    done = subprocess.run(
        [
            *(
                command,
                "export",
                "--format",
                "paths",
                guest("normal"),
                guest("sample-lock"),
                "--execution",
                REQUESTS,
            ),
            *("--jobs", "2", "-o", tmp_path / "out.parquet"),
        ],
        check=False,
        capture_output=True,
        text=True,
        cwd=here,
    )
    assert (done.returncode, met.exists()) == (0, False), done.stderr
