"""Each verb: what it asks of the analysis, what it prints and writes, how it ends."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from critpath.commands.demo import MARKER
from critpath.errors import InconclusiveError, UnreadableError
from critpath.model import Loss, PathSet
from critpath.store import save_paths
from critpath.store.reading import load_paths

# -------------------------------------------------------------------- compare


@pytest.mark.parametrize(
    ("verdict", "code"), [("ok", 0), ("anomaly", 1), ("inconclusive", 3), ("by_machine", 3)]
)
def test_the_verdict_is_the_exit_code(run, fake, verdict, code):
    fake.verdict = verdict
    done = run("compare", "normal", "sample")
    assert done.code == code
    assert done.out == "comparison 1 [b]\n"
    if verdict == "by_machine":
        assert run("compare", "normal", "sample", "--fail-on-machine").code == 1


def test_compare_passes_every_setting_on(run, fake):
    run(
        *("compare", "normal", "sample", "--execution", "thread", "--rule", "paper"),
        *("--alpha", "5%", "--floor", "0", "--t1", "2", "--t2", "1.5", "--outlier-k", "3"),
        *(
            "--no-interrupts",
            "--reader",
            "native",
            "--permutations",
            "999",
            "--cluster-method",
            "raw",
            "--msa",
            "joint",
            "--aligner",
            "muscle",
        ),
    )
    reads = fake.called("extract")
    assert [args for args, _ in reads] == [([Path("normal")],), ([Path("sample")],)]
    for _, options in reads:
        assert options["specification"] == "thread"
        assert (options["reader"], options["interrupts"]) == ("native", False)
        assert callable(options["progress"])
    (((normal, sample, settings), _),) = fake.called("compare")
    assert isinstance(normal, PathSet)
    assert isinstance(sample, PathSet)
    assert vars(settings) == {
        "rule": "paper",
        "alpha": 0.05,
        "floor": 0.0,
        "t1": 2.0,
        "t2": 1.5,
        "y_reference": "a1",
        "outlier_k": 3.0,
        "outlier_level": 0.05,
        "permutations": 999,
        "cluster_method": "raw",
        "msa": "joint",
        "aligner": "muscle",
        "interrupts": False,
        "level": (),
        "minimum_executions": 0,
        "strict_environment": False,
        "least": 0.25,
        "fail_on_machine": False,
        "percentile": None,
        "session_spread": None,
        "sessions": True,
        # No option sets these.
        "alphabet": "thread",
        "group_limit": 50,
        "explain_limit": 50,
    }


def test_compare_without_options(run, fake):
    run("compare", "normal", "sample")
    settings = fake.called("compare")[0][0][2]
    assert settings.t2 is None
    assert fake.called("extract")[0][1]["specification"] is None


def test_compare_writes_files_and_still_prints(run, tmp_path):
    done = run("compare", "normal", "sample", "--html", "r.html", "--json", "c.json")
    assert done.out == "comparison 1 [b]\n"
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == "<p>1 \N{GREEK SMALL LETTER MU}</p>"
    assert json.loads((tmp_path / "c.json").read_text()) == {
        "format": "critpath/comparison/1",
        "a": 1,
        "subject": {},
    }


@pytest.mark.parametrize("option", ["--html", "--json"])
def test_a_document_on_stdout_is_alone_there(run, option):
    done = run("compare", "normal", "sample", option, "-")
    assert "comparison 1" not in done.out
    assert done.out.startswith("<p>1" if option == "--html" else '{\n "a"')


def test_warnings_are_said_once_on_stderr_and_not_with_quiet(run, fake):
    fake.warnings = ("kernels differ \x1b[31m",)
    done = run("compare", "normal", "sample", "--json", "-")
    lines = done.err.splitlines()
    assert lines == ["critpath: warning: kernels differ \N{REPLACEMENT CHARACTER}[31m"]
    # The text says them itself.
    assert run("compare", "normal", "sample").err == ""
    assert run("compare", "normal", "sample", "--quiet").err == ""
    assert run("--quiet", "compare", "normal", "sample", "--json", "-").err == ""


@pytest.mark.parametrize("error", [UnreadableError("no", "do"), ValueError("x"), MemoryError()])
def test_nothing_is_written_when_it_fails(run, fake, tmp_path, error):
    fake.error = error
    done = run("compare", "normal", "sample", "--html", "r.html", "--json", "c.json")
    assert done.code == (4 if isinstance(error, UnreadableError) else 125)
    fake.error, fake.render_error = None, error
    done = run("compare", "normal", "sample", "--html", "r.html", "--json", "c.json")
    assert done.code == (4 if isinstance(error, UnreadableError) else 125)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["normal", "sample"]


def test_no_execution_is_inconclusive(run, fake, no_paths):
    fake.paths = no_paths
    for command in (
        ("compare", "normal", "sample"),
        ("export", "--format", "paths", "normal", "-o", "x.parquet"),
        ("export", "--format", "paths", "normal", "-o", "x"),
        ("path", "normal"),
    ):
        done = run(*command)
        assert done.code == 3, command
        assert "no complete run in normal: 1 begin without an end" in done.err
    # What was lost may be why.
    fake.paths = replace(no_paths, losses=(Loss(0, 10, 0, 0, 5, 0, "discarded"),))
    assert "in normal: 5 events and 0 packets lost or damaged; 1 begin" in run("path", "normal").err
    done = run("path", "normal", "--tid", "5")
    assert done.code == 2
    assert "no thread 5 in normal" in done.err


# --------------------------------------------------------- inputs and outputs


def test_outputs_are_checked_before_the_work(run, fake, tmp_path):
    (tmp_path / "there").write_text("x")
    save_paths(fake.paths, tmp_path / "p.parquet")
    for arguments, says in (
        (("compare", "normal", "absent"), "absent does not exist"),
        (("compare", "normal", "sample", "--html", "no/dir/r.html"), "is not a directory"),
        (("compare", "normal", "sample", "--json", "normal"), "both input and output"),
        (("compare", "normal", "sample", "--json", "/"), "is a directory"),
        (("compare", "normal", "sample", "--html", "a", "--json", "./a"), "two outputs"),
        (("compare", "normal", "sample", "--html", "-", "--json", "-"), "two outputs to stdout"),
        (("export", "--format", "paths", "normal", "-o", "there"), "exists already"),
        (
            ("export", "--format", "paths", "p.parquet", "-o", "p.parquet", "--force"),
            "both input and output",
        ),
        (("export", "--format", "paths", "normal", "-o", "-"), "cannot go to stdout"),
        (("report", "p.parquet", "--html", "p.parquet"), "both input and output"),
    ):
        done = run(*arguments)
        assert done.code in {2, 4}, arguments
        assert says in done.err
        assert len(done.err.splitlines()) == 2
    assert fake.calls == []
    assert (tmp_path / "there").read_text() == "x"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission(run, fake, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    assert run("compare", "normal", "sample", "--html", "locked/r.html").code == 2
    assert fake.calls == []


# -------------------------------------------------------------------- extract


def test_extract_saves_what_can_be_loaded(run, fake, tmp_path):
    done = run(
        "export",
        "--format",
        "paths",
        "normal",
        "sample",
        "-o",
        "p.parquet",
        "--execution",
        "thread",
    )
    assert done.code == 0
    assert done.out == ""
    assert "2 threads of 1 recording saved to p.parquet" in done.err
    assert len(load_paths(tmp_path / "p.parquet")) == 2
    assert fake.called("extract")[0][0] == ([Path("normal"), Path("sample")],)
    assert run("export", "--format", "paths", "normal", "-o", "p.parquet").code == 2
    assert run("export", "--format", "paths", "normal", "-o", "p.parquet", "--force").code == 0


# ----------------------------------------------------------------------- path


def test_path_of_a_thread(run, fake):
    done = run("path", "normal", "--tid", "42", "--from", "5", "--to", "9", "--format", "json")
    assert done.code == 0
    assert [json.loads(line)["a"] for line in done.out.splitlines()] == [0, 1]
    (((source,), options),) = fake.called("thread_paths")
    assert source == Path("normal")
    assert options == {
        "tid": 42,
        "comm": None,
        "begin": 5,
        "end": 9,
        "reader": "auto",
        "interrupts": True,
        "max_memory": 0,
    }


def test_path_of_executions_as_text(run, fake):
    done = run("path", "normal", "--execution", "process", "--no-interrupts", "--segments")
    assert done.out == "path 7\npath 7\n"
    ((_, options),) = fake.called("extract")
    assert (options["specification"], options["interrupts"]) == ("process", False)


def test_path_is_a_summary_by_default(run):
    done = run("path", "normal")
    assert done.out == "summary of 2\n"
    assert "--segments" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--tid", "1", "--comm", "x"),
        ("--tid", "0"),
        ("--tid", "-1"),
        ("--tid", "1e3"),
        ("--from", "9", "--to", "9"),
        ("--from", "x"),
        ("--execution", "process", "--tid", "1"),
        ("--execution", "process", "--to", "1"),
        ("--execution", ""),
        ("--format", "xml"),
        ("--reader", "bt3"),
    ],
)
def test_path_refuses(run, fake, arguments):
    done = run("path", "normal", *arguments)
    assert done.code == 2
    assert len(done.err.splitlines()) == 2
    assert fake.calls == []


def test_a_configured_execution_gives_way_to_a_thread(run, fake, tmp_path):
    (tmp_path / "critpath.toml").write_text('execution = "process"')
    assert run("path", "normal", "--tid", "1").code == 0
    assert not fake.called("extract")
    run("path", "normal")
    assert fake.called("extract")[0][1]["specification"] == "process"


# --------------------------------------------------------------------- report


def test_report_of_a_comparison(run, tmp_path):
    (tmp_path / "c.json").write_text("12345")
    assert run("report", "c.json").out == "comparison 5 [b]\n"
    done = run("report", "c.json", "--html", "-")
    assert done.out.startswith("<p>5")
    assert "comparison" not in done.out
    run("report", "c.json", "--html", "r.html")
    assert (tmp_path / "r.html").exists()
    assert json.loads(run("report", "c.json", "--format", "json").out)["a"] == 5


def test_report_of_paths(run, fake, tmp_path):
    save_paths(fake.paths, tmp_path / "p.parquet")
    assert run("report", "p.parquet").out == "summary of 2\n"
    assert run("report", "p.parquet", "--segments").out == "path 7\npath 7\n"
    assert len(run("report", "p.parquet", "--format", "json").out.splitlines()) == 2
    done = run("report", "p.parquet", "--html", "r.html")
    assert (done.code, "holds paths" in done.err) == (2, True)
    fake.document.format, fake.document.subject = "critpath/path/1", {"tid": 7}
    (tmp_path / "one.json").write_text("{}")
    assert run("report", "one.json").out == "path 7\n"
    assert run("report", "one.json", "--html", "r.html").code == 2


def test_report_from_stdin(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"123")))
    assert run("report", "-").out == "comparison 3 [b]\n"


def test_report_of_something_else(run, tmp_path):
    (tmp_path / "x").write_bytes(b"\xff\x00")
    done = run("report", "x")
    assert (done.code, "neither JSON nor" in done.err) == (4, True)
    assert run("report", "normal").code == 4
    (tmp_path / "p").write_bytes(b"PAR1 and no more")
    assert run("report", "p").code == 4


# ----------------------------------------------------------------------- demo


@pytest.fixture
def package(monkeypatch, tmp_path_factory):
    """A package with the demo's two archives."""
    home = tmp_path_factory.mktemp("package")
    (home / "demo").mkdir()
    for name in ("normal", "sample-lock"):
        with tarfile.open(home / "demo" / f"{name}.tar.xz", "w:xz") as tar:
            info = tarfile.TarInfo(f"{name}/trace/metadata")
            info.size = 4
            tar.addfile(info, io.BytesIO(b"data"))
    monkeypatch.setattr("importlib.resources.files", lambda _: home)
    return home


@pytest.mark.usefixtures("package")
def test_demo_unpacks_compares_and_reports(run, fake, tmp_path):
    fake.verdict = "anomaly"
    (tmp_path / "critpath.toml").write_text('execution = "process"')
    done = run("demo", "--shipped")
    assert done.code == 0
    assert "comparison 1 [b]" in done.out
    assert "nothing of this machine was recorded" in done.err
    assert "critpath-demo/report.html" in done.err
    assert (
        "next: critpath compare critpath-demo/shipped/normal critpath-demo/shipped/sample-lock"
        in done.err
    )
    assert (tmp_path / "critpath-demo/report.html").exists()
    assert (tmp_path / "critpath-demo/comparison.json").exists()
    assert (tmp_path / "critpath-demo/shipped/normal/trace/metadata").read_text() == "data"
    for _, options in fake.called("extract"):
        assert options["specification"] == "events:app:request_begin,app:request_end,key=id"
    assert run("demo", "--shipped").code == 0  # its own directory may be used again


@pytest.mark.usefixtures("package")
def test_demo_leaves_other_directories_alone(run, fake, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("x")
    (tmp_path / "plain").write_text("x")
    for name in ("mine", "plain"):
        done = run("demo", "--shipped", name)
        assert done.code == 2
        assert "not of an earlier demo" in done.err
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["file"]
    assert fake.calls == []
    (tmp_path / "empty").mkdir()
    assert run("demo", "--shipped", "empty").code == 0
    assert (tmp_path / "empty" / MARKER).exists()


def test_demo_says_if_its_recordings_are_missing_or_damaged(run, package, tmp_path):
    (package / "demo" / "normal.tar.xz").write_bytes(b"not xz")
    done = run("demo", "--shipped", "damaged")
    assert done.code == 125
    assert "normal.tar.xz is damaged" in done.err
    (package / "demo" / "normal.tar.xz").unlink()
    done = run("demo", "--shipped")
    assert done.code == 125
    assert "lacks the demo's recording" in done.err
    assert not (tmp_path / "critpath-demo").exists()


# --------------------------------------------------------------------- errors


def test_an_unexpected_error_is_two_lines_unless_debugged(run, fake):
    fake.error = ValueError("odd\n\x1b[2Jthing")
    done = run("compare", "normal", "sample")
    assert done.code == 125
    assert len(done.err.splitlines()) == 2
    assert "\x1b" not in done.err
    assert "Traceback" not in done.err
    assert "Traceback" in run("compare", "normal", "sample", "--debug").err


def test_our_errors_pass_safe_text_and_keep_their_code(run, fake):
    fake.error = InconclusiveError("comm \x1b]0;x\x07 is\nodd", "do this")
    done = run("compare", "normal", "sample")
    assert done.code == 3
    assert done.err == "critpath: comm \ufffd]0;x\ufffd is\ufffdodd\n  do this\n"


def test_an_interrupt(run, fake):
    fake.error = KeyboardInterrupt()
    assert run("compare", "normal", "sample").code == 130


def test_a_document_that_is_no_json_is_our_fault_and_not_written(run, fake, tmp_path):
    fake.document.a = float("nan")
    assert run("compare", "normal", "sample", "--json", "c.json").code == 125
    assert not (tmp_path / "c.json").exists()
