"""critpath-core alone: with its own dependencies and nothing else, the same bytes as with all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest

import critpath
import critpath_marks
import critpath_record
from critpath.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXECUTION = ("--execution", "events:app:request_begin,app:request_end,key=id")
ENTRY = "import sys; sys.argv[0] = 'critpath'; from critpath.commands import entry; entry()"


def named(line):
    return re.match(r"[\w.-]+", line)[0]


def closure(lines):
    """Return the distributions that some requirements bring, with what they require."""
    found, pending = {}, [named(line) for line in lines]
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = distribution(name)
            pending += [named(r) for r in found[name].requires or () if "extra ==" not in r]
    return found.values()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return a directory with critpath and what its core depends on."""
    place = tmp_path_factory.mktemp("alone")
    for package in (critpath, critpath_record, critpath_marks):
        home = Path(package.__file__).parent
        (place / home.name).symlink_to(home)
    for of in closure(PROJECT["dependencies"]):
        tops = {file.parts[0] for file in of.files if file.parts[0] not in {"..", "__pycache__"}}
        for top in tops:
            (place / top).symlink_to(Path(of.locate_file(top)))
    return place


@pytest.fixture
def run(alone, tmp_path):
    """Return a function that runs critpath, with its core's libraries alone or with all."""

    def call(*words, core, cwd=tmp_path):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "CRITPATH"))}
        # Without `site`, Python finds what PYTHONPATH names and itself.
        python = [sys.executable, "-S"] if core else [sys.executable, "-P"]
        path = {"PYTHONPATH": str(alone)} if core else {}
        return subprocess.run(
            [*python, "-c", ENTRY, *map(str, words)],
            cwd=cwd,
            env={**clean, **path, "XDG_CACHE_HOME": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=False,
        )

    return call


def test_of_extras_nothing_is_there(alone):
    modules = sorted({module for of in EXTRAS.values() for module in of})
    code = "import sys, importlib.util as u; print([m for m in sys.argv[1:] if u.find_spec(m)])"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, *modules],
        env={**os.environ, "PYTHONPATH": str(alone)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_the_extras_are_the_projects():
    declared = set(PROJECT["optional-dependencies"])
    assert set(EXTRAS) == declared - {"all"}


@pytest.fixture
def places(guest, unpack):
    recordings = {name: guest(name) for name in ("normal", "normal-2", "sample-lock")}
    archive = ROOT / "fixtures" / "requests" / "memcached.tar.xz"
    return {**recordings, "memcached": unpack(archive) / "memcached"}


SAME = {
    "compare": (
        *("compare", "normal", "sample-lock", *EXECUTION, "-v"),
        *("--json", "out.json", "--html", "out.html", "--markdown", "out.md"),
    ),
    "path": ("path", "normal", *EXECUTION, "--segments"),
    "calibrate": ("calibrate", "normal", "normal-2", *EXECUTION, "--json", "out.json"),
    "requests": ("compare", "memcached", "memcached", "--execution", "requests", "--json", "-"),
    "top": ("top", "memcached", "--duration", "1", "--json"),
}


@pytest.mark.parametrize("words", SAME.values(), ids=SAME)
def test_core_says_the_same_bytes(run, places, tmp_path, words):
    answers = []
    for core in (True, False):
        place = tmp_path / f"{core}"
        place.mkdir()
        for name, recording in places.items():
            (place / name).symlink_to(recording)
        done = run(*words, core=core, cwd=place)
        assert done.returncode in {0, 1, 3}, done.stderr
        files = {p.name: p.read_bytes() for p in place.iterdir() if p.is_file()}
        answers.append((done.returncode, done.stdout, done.stderr, files))
    assert answers[0] == answers[1]
    assert answers[0][1] or answers[0][3]


def test_core_reports_and_computes_ab_anew_as_all_do(run, places, tmp_path):
    commands = ("--", "true", "--", "true")
    run("ab", "--slot", "1", "--max-blocks", "3", "-o", tmp_path / "kept", *commands, core=False)
    made = run(
        *("compare", places["normal"], places["sample-lock"], *EXECUTION, "--json", "made.json"),
        core=False,
    )
    assert made.returncode == 1, made.stderr
    for words in (
        ("ab", "--again", tmp_path / "kept", "--json", "-"),
        ("report", "made.json", "--html", "-"),
    ):
        core, whole = (run(*words, core=core) for core in (True, False))
        assert len(core.stdout) > 500, core.stderr
        assert (core.returncode, core.stdout) == (whole.returncode, whole.stdout)


LACKING = {
    "parquet": [
        ("extract", "normal", *EXECUTION, "-o", "out.parquet"),
        ("export", "normal", "--format", "segments", "-o", "out.parquet"),
        ("export", "memcached", "--format", "sketches", "-o", "out"),
        ("compare", "shop.paths", "shop.paths"),
        ("compare", "normal", "normal", "--execution", "requests:label=~GET"),
        ("signature", "normal", "-o", "out.parquet"),
    ],
    "stats": [
        ("compare", "normal", "sample-lock", *EXECUTION, "--cluster-method", "linkage"),
    ],
    "known": [
        ("compare", "normal", "normal", "--known", "out"),
        ("known", "check", "out"),
        ("known", "search", "normal", "out"),
        ("known", "groups", "out"),
    ],
    "graph": [("path", "normal", "--from", "0", "--to", "1", "--format", "graphml")],
    "alignments": [("export", "made.json", "--format", "fasta")],
    "query": [("query", "normal", "select 1")],
    "dask": [("extract", "normal", "-o", "out", "--engine", "dask:tcp://127.0.0.1:1")],
    "metrics": [("metrics", "file:out.prom")],
    "fleet": [("path", "s3://bucket/normal"), ("extract", "normal", "-o", "gs://bucket/out")],
}


@pytest.mark.parametrize("extra", LACKING)
def test_what_needs_an_extra_says_so_in_a_line_with_the_command(run, places, tmp_path, extra):
    for name, recording in places.items():
        (tmp_path / name).symlink_to(recording)
    (tmp_path / "shop.paths").symlink_to(ROOT / "fixtures" / "requests" / "shop.paths")
    (tmp_path / "made.json").touch()
    before = sorted(p.name for p in tmp_path.iterdir())
    for words in LACKING[extra]:
        done = run(*words, core=True)
        assert done.returncode == 2, (words, done.stderr)
        what, do = done.stderr.splitlines()[-2:]
        assert re.fullmatch(r"critpath: .+ needs [\w.-]+, which is not installed", what), words
        assert re.fullmatch(r"  pip install 'critpath-core\[\w+\]'", do)
        named = do.partition("[")[2].partition("]")[0]
        assert named == extra or (extra == "dask" and named == "parquet"), words
        assert {p.name for p in tmp_path.iterdir()} - {*before, "cache"} == set(), words


def test_every_extra_is_asked_for():
    assert set(LACKING) == set(EXTRAS)


def test_doctor_says_which_extras_are_there(run):
    core, whole = (run("doctor", core=core).stdout for core in (True, False))
    assert "extras: none\n" in core
    assert "pip install 'critpath-core[all]'" in core
    assert f"extras: {', '.join(EXTRAS)}\n" in whole
