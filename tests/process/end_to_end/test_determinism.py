"""The same input gives the same bytes, in every format, whatever surrounds critpath.

Every output of every command is made in a plain process and again in processes that differ
in one thing (``make test-deep``) or in all of them (``make test``): hash seed, locale, time
zone, home, terminal, order of directories, times of files, number of processors that
critpath and the linear algebra library use, what the processor can do, memory limit.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

REQUESTS = "events:app:request_begin,app:request_end,key=id"
NAMES = ("normal", "sample-lock")
REQUEST = "8"  # one that took the lock

# What they write is compared file by file; stdout becomes STDOUT-N.
COMMANDS = (
    ("compare", *NAMES, "@reading", "--json", "c.json", "--html", "c.html", "--junit", "c.xml",
     "--markdown", "c.md", "--github"),
    ("report", "c.json", "--html", "again.html"),
    ("export", "--format", "paths", *NAMES, "@reading", "-o", "set"),
    ("export", "--format", "paths", "set", "-o", "paths.parquet"),
    ("baseline", "save", "normal", "@reading", "-o", "baseline.json"),
    ("baseline", "show", "baseline.json", "--json"),
    *(("path", "sample-lock", "@memory", "--format", name, "-o", f"path.{name}")
      for name in ("text", "json", "perfetto", "speedscope", "segments", "vectors")),
    ("path", "sample-lock", "@memory", "--id", REQUEST, "--format", "graphml", "-o", "p.graphml"),
    ("export", "c.json", "-o", "c.sto"),
    ("export", "c.json", "-o", "c.nwk"),
    ("export", "c.json", "--id", REQUEST, "-o", "c.fasta"),
    ("export", "c.json", "--id", REQUEST, "-o", "c.aln"),
)  # fmt: skip
# What takes a minute or more, and another comparison.
LONG = (
    *(command for command in COMMANDS if "paths" in command or command[0] == "baseline"),
    ("compare", "baseline.json", "set", "--json", "b.json"),
    ("compare", *NAMES, "@reading", "--msa", "joint", "--rule", "paper", "--json", "j.json"),
    ("calibrate", *NAMES, "@reading", "--json", "calibration.json"),
)

DRIVER = """
import json, os, sys
from critpath.commands import main

codes = []
for number, argv in enumerate(json.loads(sys.argv[1])):
    for stream, name in ((1, f"STDOUT-{number}"), (2, f"STDERR-{number}")):
        file = os.open(name, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(file, stream)
        os.close(file)
    codes.append(main(argv))
    sys.stdout.flush()
    sys.stderr.flush()
open("CODES", "w").write(json.dumps(codes))
"""
# Directories are listed in the opposite order, in every process that Python starts.
REVERSED = """
import os

listdir, scandir = os.listdir, os.scandir


class Entries:
    def __init__(self, entries):
        self.entries = iter(entries)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.entries)

    def close(self):
        self.entries = iter(())


def opposite(path="."):
    with scandir(path) as entries:
        return Entries(list(entries)[::-1])


os.listdir = lambda path=".": listdir(path)[::-1]
os.scandir = opposite
"""

PLAIN = {
    "PYTHONHASHSEED": "1",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "OPENBLAS_NUM_THREADS": "1",
}
# What surrounds a run, one thing at a time.
DIFFERENCES: Mapping[str, Mapping[str, str]] = {
    "hash seed": {"PYTHONHASHSEED": "77"},
    "locale": {"LC_ALL": "", "LANG": "tr_TR.UTF-8", "LANGUAGE": "tr"},
    "time zone": {"TZ": "Pacific/Kiritimati"},
    "home": {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent", "USER": "somebody"},
    "terminal": {"LINES": "10", "TERM": "xterm-256color", "COLORTERM": "truecolor"},
    "optimization": {"PYTHONOPTIMIZE": "2"},
    "linear algebra": {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"},
    "directory order": {"PYTHONPATH": "@reversed"},
    "jobs": {"@jobs": "2"},
    "memory": {"@memory": "1G"},
    "files": {"@copy": "1"},
}
# The same bits come out of numpy's and OpenBLAS' plainest code, or not: a processor without
# AVX2 is what these make of one that has it.
PROCESSOR = {
    "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL"
    " AVX512_ICL AVX512_SPR X86_V3 X86_V4",
    "OPENBLAS_CORETYPE": "Nehalem",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F,-FMA4",
}


def copied(recording: Path, place: Path) -> None:
    """Copy a recording last file first, all of one other time: directories list them so."""
    directories = sorted(p for p in recording.rglob("*") if p.is_dir())
    for directory in (recording, *directories[::-1]):
        (place / directory.relative_to(recording)).mkdir(parents=True, exist_ok=True)
    for file in sorted((p for p in recording.rglob("*") if p.is_file()), reverse=True):
        copy = place / file.relative_to(recording)
        shutil.copyfile(file, copy)
        os.utime(copy, (1e9, 1e9))


@pytest.fixture(scope="module")
def outputs(guest, tmp_path_factory):
    """Return a function from what surrounds a run to all that it wrote, by name."""
    done: dict[object, Mapping[str, bytes]] = {}
    reversed_order = tmp_path_factory.mktemp("reversed")
    (reversed_order / "sitecustomize.py").write_text(REVERSED)

    def run(
        different: Mapping[str, str] | None = None, commands: Sequence[Sequence[str]] = COMMANDS
    ) -> Mapping[str, bytes]:
        settings = {**PLAIN, **(different or {})}
        if (key := (tuple(sorted(settings.items())), commands)) in done:
            return done[key]
        place = tmp_path_factory.mktemp("run")
        for name in NAMES:
            if settings.get("@copy"):
                copied(guest(name), place / name)
            else:
                (place / name).symlink_to(guest(name))
        limits = ["--execution", REQUESTS, "--max-memory", settings.get("@memory", "0")]
        words = {"@memory": limits, "@reading": [*limits, "--jobs", settings.get("@jobs", "1")]}
        argv = [[part for word in c for part in words.get(word, [word])] for c in commands]
        environment = {
            name: value.replace("@reversed", str(reversed_order))
            for name, value in {**os.environ, **settings}.items()
            if not name.startswith("@") and (name in settings or name != "COLUMNS")
        }
        for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
            environment[name] = str(place / name)
        # What stands next to this Python is found first.
        path = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
        child = subprocess.run(
            [sys.executable, "-c", DRIVER, json.dumps(argv)],
            cwd=place,
            env={**environment, "PATH": os.pathsep.join(path)},
            capture_output=True,
            check=False,
        )
        assert child.returncode == 0, (place / "STDERR-0").read_text()
        done[key] = {
            str(file.relative_to(place)): file.read_bytes()
            for file in sorted(place.rglob("*"))
            if file.is_file() and file.relative_to(place).parts[0] not in NAMES
        }
        return done[key]

    return run


def assert_same(ours: Mapping[str, bytes], theirs: Mapping[str, bytes]) -> None:
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []


def test_everything_is_written(outputs):
    plain = outputs()
    # The first tells of an anomaly; every other command went well.
    assert json.loads(plain["CODES"]) == [1, *[0] * (len(COMMANDS) - 1)]
    assert {"c.html", "c.xml", "c.md", "set/part-00001.parquet", "c.nwk"} <= plain.keys()
    assert plain["again.html"] == plain["c.html"]
    assert plain["STDOUT-0"]
    assert all(content for name, content in plain.items() if not name.startswith("STD"))
    for content in plain.values():  # nothing of where and when it was run
        assert b"/run" not in content
        assert b"pytest-of" not in content


def together(*without: str) -> Mapping[str, str]:
    chosen = (different for name, different in DIFFERENCES.items() if name not in without)
    return {n: v for different in chosen for n, v in different.items()}


def files(outputs: Mapping[str, bytes]) -> Mapping[str, bytes]:
    return {name: content for name, content in outputs.items() if not name.startswith("STD")}


def test_the_same_bytes_whatever_surrounds_it(outputs):
    """All at once but one, with which Python compiles all modules anew; ``make test-deep`` tells
    which it is.
    """
    ours, theirs = outputs(together("optimization")), outputs()
    # Of the window of a graph it is said that a limit of memory was not heeded.
    said = {name: content for name, content in ours.items() if not name.startswith("STDERR")}
    assert_same(said, {name: theirs[name] for name in said})


@pytest.mark.deep
def test_how_wide_a_terminal_is_changes_stdout_and_no_file(outputs):
    few = tuple(c for c in COMMANDS if "c.json" in c or "path.text" in c)
    narrow, plain = outputs({"COLUMNS": "40"}, few), outputs(None, few)
    assert narrow["STDOUT-0"] != plain["STDOUT-0"]
    assert_same(files(narrow), files(plain))


@pytest.mark.deep
@pytest.mark.parametrize("name", DIFFERENCES)
def test_the_same_bytes_with_another(outputs, name):
    assert_same(files(outputs(DIFFERENCES[name])), files(outputs()))


@pytest.mark.deep
def test_the_same_bytes_of_what_takes_long(outputs):
    assert_same(files(outputs(together(), LONG)), files(outputs(None, LONG)))


@pytest.mark.deep
def test_the_same_bytes_on_a_processor_without_wide_registers(outputs):
    assert_same(files(outputs(PROCESSOR)), files(outputs()))
