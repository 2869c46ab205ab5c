"""Input that cannot be read: two lines on stderr, exit 4 or 2, nothing written.

The kernel's view, the program's and a file of ours: each absent, empty, damaged, or
something else altogether.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

UNREADABLE, USAGE, INCONCLUSIVE = 4, 2, 3
REQUESTS = "events:app:request_begin,app:request_end,key=id"


@pytest.fixture(scope="module")
def inputs(guest, extracted, tmp_path_factory):
    """A directory with one bad input of each kind; ``good.parquet`` is a good one."""
    home = tmp_path_factory.mktemp("inputs")
    (home / "empty").mkdir()
    kernel = guest("sample-lock") / "trace" / "kernel"
    (home / "streams").mkdir()
    for stream in kernel.iterdir():
        if stream.is_file() and stream.name != "metadata":
            shutil.copy(stream, home / "streams")
    assert any((home / "streams").iterdir())
    shutil.copytree(kernel, home / "cut-metadata")
    metadata = home / "cut-metadata" / "metadata"
    metadata.write_bytes(metadata.read_bytes()[:5000])
    shutil.copytree(kernel, home / "other-metadata")
    (home / "other-metadata" / "metadata").write_text("this is no TSDL\n", encoding="utf-8")
    (home / "text").write_text("hello\nworld\n", encoding="utf-8")
    (home / "zeros.parquet").write_bytes(bytes(4096))
    (home / "nothing.parquet").touch()
    shutil.copy(extracted("sample-lock"), home / "good.parquet")
    good = (home / "good.parquet").read_bytes()
    (home / "cut.parquet").write_bytes(good[: len(good) // 2])
    middle = bytearray(good)
    middle[200:-200:7] = bytes(b ^ 0x55 for b in middle[200:-200:7])
    (home / "flipped.parquet").write_bytes(bytes(middle))
    return home


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def assert_refused(done, codes, directory: Path, before: set[str]):
    assert done.returncode in codes, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 2, done.stderr
    assert lines[0].startswith("critpath: ")
    assert lines[1].startswith("  ")
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    assert names(directory) == before, "something was written"


BAD = [
    "no-such-path",
    "empty",
    "streams",
    "cut-metadata",
    "other-metadata",
    "text",
    "zeros.parquet",
    "nothing.parquet",
    "cut.parquet",
    "flipped.parquet",
]
# Every command that reads, with what it would write.
COMMANDS = {
    "path --tid": ("path", "BAD", "--tid", "1"),
    "path": ("path", "BAD", "--format", "json"),
    "export paths": (
        "export",
        "--format",
        "paths",
        "BAD",
        "-o",
        "out.parquet",
        "--execution",
        REQUESTS,
    ),
    "compare, sample": (
        *("compare", "GOOD", "BAD", "--execution", REQUESTS),
        *("--html", "out.html", "--json", "out.json"),
    ),
    "compare, normal": ("compare", "BAD", "GOOD", "--html", "out.html", "--json", "out.json"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("bad", BAD)
def test_unreadable_input(inputs, critpath, tmp_path, bad, command):
    words = {"BAD": inputs / bad, "GOOD": inputs / "good.parquet"}
    arguments = [words.get(word, word) for word in COMMANDS[command]]
    done = critpath(*arguments, cwd=tmp_path)
    assert_refused(done, {UNREADABLE}, tmp_path, set())
    assert bad in done.stderr


@pytest.mark.parametrize("trace", ["cb-nodes-pipeline", "bt-multi-domains"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("path", "TRACE", "--tid", "1"),
        ("path", "TRACE", "--execution", "thread"),
        ("export", "--format", "paths", "TRACE", "-o", "out.parquet", "--execution", "process"),
        ("compare", "TRACE", "TRACE", "--execution", "thread", "--json", "out.json"),
    ],
)
def test_a_trace_without_scheduling(shared, critpath, tmp_path, trace, arguments):
    words = [shared(f"public/{trace}") if word == "TRACE" else word for word in arguments]
    done = critpath(*words, cwd=tmp_path)
    assert_refused(done, {UNREADABLE}, tmp_path, set())
    assert "sched_switch" in done.stderr


@pytest.mark.parametrize("trace", ["cb-nodes-pipeline", "bt-multi-domains"])
def test_a_trace_without_scheduling_and_without_specification(shared, critpath, tmp_path, trace):
    """What there is can be looked at: events and their rates, and what to record."""
    done = critpath("path", shared(f"public/{trace}"), cwd=tmp_path)
    assert done.returncode == 0
    assert "no sched_switch event" in done.stderr
    assert names(tmp_path) == set()


@pytest.mark.parametrize(
    ("specification", "says"),
    [
        ("events:app:request_start,app:request_end", "app:request_start"),
        ("events:app:request_begin,nonsense", "nonsense"),
        ("events:app:request_begin", "app:request_begin"),
        ("events:app:request_begin,app:request_end,key=nofield", "nofield"),
        ("events:app:request_begin,app:request_end,colour=red", "colour"),
        ("events:app:request_begin[id~(],app:request_end", "regular expression"),
        ("bogus", "bogus"),
        ("events:", "events"),
    ],
)
@pytest.mark.parametrize("verb", ["path", "export", "compare"])
def test_a_wrong_execution_specification(guest, critpath, tmp_path, specification, says, verb):
    trace = guest("sample-lock")
    rest = {
        "path": (trace,),
        "export": (trace, "--format", "paths", "-o", "out.parquet"),
        "compare": (trace, trace, "--html", "out.html", "--json", "out.json"),
    }[verb]
    done = critpath(verb, *rest, "--execution", specification, cwd=tmp_path)
    assert_refused(done, {USAGE}, tmp_path, set())
    assert says in done.stderr


@pytest.mark.parametrize("contents", [None, "", "a,b\n1,2\n", "begin_ns,end_ns,tid\nx,y,z\n"])
def test_windows_that_cannot_be_read(guest, critpath, tmp_path, contents):
    windows = tmp_path / "windows.csv"
    if contents is not None:
        windows.write_text(contents, encoding="utf-8")
    before = names(tmp_path)
    done = critpath(
        *("export", "--format", "paths", guest("sample-lock"), "--execution", f"windows:{windows}"),
        *("-o", "out.parquet"),
        cwd=tmp_path,
    )
    assert_refused(done, {UNREADABLE, USAGE}, tmp_path, before)
    assert "windows.csv" in done.stderr


@pytest.mark.parametrize("specification", ["marker", "windows:none.csv", "windows:elsewhere.csv"])
def test_no_execution_at_all_is_no_verdict(guest, critpath, tmp_path, specification):
    header = "begin_ns,end_ns,tid,label\n"
    (tmp_path / "none.csv").write_text(header, encoding="utf-8")
    (tmp_path / "elsewhere.csv").write_text(f"{header}1,5,7,x\n", encoding="utf-8")
    before = names(tmp_path)
    trace = guest("sample-lock")
    done = critpath(
        *("compare", trace, trace, "--execution", specification, "--json", "out.json"), cwd=tmp_path
    )
    assert_refused(done, {INCONCLUSIVE}, tmp_path, before)


def test_a_thread_that_is_not_there(guest, critpath, tmp_path):
    for who in (("--tid", "999999"), ("--comm", "nobody")):
        done = critpath("path", guest("sample-lock"), *who, cwd=tmp_path)
        assert_refused(done, {USAGE}, tmp_path, set())
        assert who[1] in done.stderr


@pytest.mark.parametrize("bad", ["no-such-path", "text", "cut.parquet", "zeros.parquet", "empty"])
def test_report_of_something_else(inputs, critpath, tmp_path, bad):
    done = critpath("report", inputs / bad, cwd=tmp_path)
    assert_refused(done, {UNREADABLE}, tmp_path, set())


def test_a_file_that_exists_survives_a_failure(inputs, critpath, tmp_path):
    (tmp_path / "out.html").write_text("mine", encoding="utf-8")
    done = critpath(
        *("compare", inputs / "good.parquet", inputs / "cut.parquet", "--html", "out.html"),
        cwd=tmp_path,
    )
    assert_refused(done, {UNREADABLE}, tmp_path, {"out.html"})
    assert (tmp_path / "out.html").read_text(encoding="utf-8") == "mine"


def test_a_window_outside_the_recording_is_refused(guest, critpath):
    done = critpath("path", guest("plain"), "--tid", 1, "--from", 1, "--to", 5)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 2
    assert "the recording lasts from" in done.stderr
