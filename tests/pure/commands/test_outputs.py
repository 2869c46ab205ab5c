"""What compare and report write for CI systems, from saved comparisons of real renderers."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import re
import sys
from pathlib import Path

import pytest

from critpath.commands import main
from critpath.report.ci.as_junit import render_junit
from critpath.report.ci.as_markdown import render_markdown
from critpath.report.document.as_json import to_json
from critpath.report.document.comparison import comparison_document
from critpath.report.html.as_html import render_html

place = Path(__file__).parents[1] / "report" / "factory.py"
spec = importlib.util.spec_from_file_location("critpath_report_factory_2", place)


@pytest.fixture(scope="module")
def factory():

    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def saved(factory, tmp_path, monkeypatch):
    """Return the document of a comparison that stands in ``saved.json``."""
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    document = comparison_document(factory.comparison())
    Path("saved.json").write_text(to_json(document), encoding="utf-8")
    return document


@pytest.fixture
def run(capsysbinary):
    def call(*arguments):
        code = main(list(arguments))
        out, err = capsysbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


FILES = ("--html", "r.html", "--json", "c.json", "--junit", "j.xml", "--markdown", "m.md")


def test_every_output_of_one_comparison(saved, run):
    code, out, _ = run("report", "saved.json", *FILES)
    assert code == 0
    assert out.startswith("▲ SLOWER  ")
    assert Path("r.html").read_text(encoding="utf-8") == render_html(saved)
    assert Path("c.json").read_text(encoding="utf-8") == to_json(saved)
    assert Path("j.xml").read_text(encoding="utf-8") == render_junit(saved)
    assert Path("m.md").read_text(encoding="utf-8") == render_markdown(saved)


@pytest.mark.parametrize("option", ["--html", "--json", "--junit", "--markdown"])
def test_one_of_them_may_have_stdout_for_itself(saved, run, option):
    del saved
    code, out, _ = run("report", "saved.json", option, "-")
    assert code == 0
    begin = {"--html": "<!DOCTYPE", "--json": "{", "--junit": "<?xml", "--markdown": "**▲ "}
    assert out.lower().startswith(begin[option].lower())
    assert "\nCauses\n" not in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("--json", "-", "--github"),
        ("--markdown", "-", "--github"),
        ("--format", "json", "--github"),
        ("--json", "-", "--junit", "-"),
        ("--junit", "x", "--markdown", "x"),
        ("--junit", "saved.json"),
        ("--junit", "nowhere/x"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(saved, run, arguments):
    del saved
    before = sorted(Path.cwd().iterdir())
    code, out, err = run("report", "saved.json", *arguments)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 2
    assert sorted(Path.cwd().iterdir()) == before


@pytest.mark.parametrize(
    "failing",
    [
        "html.as_html",
        "ci.as_junit",
        "ci.as_markdown",
        "ci.as_github",
        "document.as_json",
        "text.as_text",
    ],
)
def test_a_failure_leaves_nothing_half_written(saved, run, monkeypatch, failing):
    del saved
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary")

    def fail(*_, **__):
        raise ValueError("no")

    names = {"as_github": "annotate", "as_json": "to_json", "as_text": "render_comparison"}
    module = failing.rpartition(".")[2]
    name = names.get(module, module.replace("as_", "render_"))
    monkeypatch.setattr(f"critpath.report.{failing}.{name}", fail)
    code, out, _ = run("report", "saved.json", *FILES, "--github")
    assert (code, out) == (125, "")
    assert [p.name for p in Path.cwd().iterdir()] == ["saved.json"]


def test_a_summary_whose_size_is_refused_is_no_empty_one(saved, run, monkeypatch):
    """Appended without a line between, it would go on in the middle of another's."""
    del saved
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary")
    Path("summary").write_text("# of an earlier command", encoding="utf-8")
    real, codes = Path.stat, []
    for allowed in range(9):
        calls = iter(range(9))

        def refuse(path, *, of=calls, until=allowed, **how):
            if path.name == "summary" and next(of) == until:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return real(path, **how)

        monkeypatch.setattr(Path, "stat", refuse)
        code, _, err = run("report", "saved.json", "--github")
        monkeypatch.setattr(Path, "stat", real)
        codes.append(code)
        if not code:  # as many as allowed are never asked
            break
        assert code in {2, 125}
        assert len(err.splitlines()) == 2
        assert "summary" in err
        assert Path("summary").read_text() == "# of an earlier command"
    assert len(codes) > 1
    assert Path("summary").read_text().startswith("# of an earlier command\n\n")


def test_the_summary_is_appended_to_and_outputs_are_set(saved, run, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary")
    monkeypatch.setenv("GITHUB_OUTPUT", "outputs")
    Path("summary").write_text("# of an earlier command", encoding="utf-8")
    Path("outputs").write_text("a=b\n", encoding="utf-8")
    for _ in range(2):
        code, out, err = run("report", "saved.json", "--github")
        assert (code, err) == (0, "")
    text = Path("summary").read_text(encoding="utf-8")
    report = render_markdown(saved)
    assert text == f"# of an earlier command\n\n{report}\n\n{report}"
    assert Path("outputs").read_text() == "a=b\n" + "verdict=anomaly\nanomalous=2\n" * 2
    commands = [line for line in out.splitlines() if line.startswith("::")]
    assert len(commands) == 6
    assert out.splitlines()[-6:] == commands
    assert out.startswith("▲ SLOWER  ")


def test_outside_of_github_it_is_said(saved, run):
    del saved
    code, out, err = run("report", "saved.json", "--github")
    assert code == 0
    assert "\n::error title=critpath%3A ▲ SLOWER::2 of 6" in out
    assert err == "critpath: GITHUB_STEP_SUMMARY is not set: no summary, only annotations\n"


@pytest.mark.parametrize(("there", "fits"), [(0, True), (1_040_000, True), (1_048_000, False)])
def test_what_is_in_the_summary_counts(saved, run, monkeypatch, there, fits):
    del saved
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary")
    Path("summary").write_bytes(b"x" * there)
    code, _, err = run("report", "saved.json", "--github")
    assert code == 0
    size = Path("summary").stat().st_size
    assert there <= size < 1_048_576
    assert (size > there) == fits
    assert ("no summary: " in err) == (not fits)


def test_a_summary_that_cannot_be_written_is_refused_before_any_work(saved, run, monkeypatch):
    del saved
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "nowhere/summary")
    code, out, err = run("report", "saved.json", "--github", "--html", "r.html")
    assert (code, out) == (2, "")
    assert "nowhere" in err
    assert not Path("r.html").exists()


FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")


@FULL
@pytest.mark.parametrize("names", [("s", "/dev/full"), ("/dev/full", "o")])
def test_the_verdict_is_printed_where_github_has_no_room(saved, run, monkeypatch, names):
    del saved
    for variable, name in zip(("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"), names, strict=True):
        monkeypatch.setenv(variable, name)
    code, out, err = run("report", "saved.json", "--github", "--html", "r.html")
    assert code == 125
    assert out.startswith("▲ SLOWER  ")
    assert "\n::error title=critpath%3A ▲ SLOWER::2 of 6" in out
    assert Path("r.html").exists()
    assert len(err.splitlines()) == 2
    assert "cannot append to /dev/full" in err
    for name in set(names) - {"/dev/full"}:
        assert Path(name).stat().st_size


@FULL
@pytest.mark.parametrize("places", [("r.html", "/dev/full"), ("/dev/full", "j.xml")])
def test_files_are_there_all_or_none_and_the_verdict_is_printed(saved, run, places):
    del saved
    page, cases = places
    code, out, err = run("report", "saved.json", "--html", page, "--junit", cases)
    assert code == 2
    assert out.startswith("▲ SLOWER  ")
    assert "cannot write /dev/full: No space left on device" in err
    assert [p.name for p in Path.cwd().iterdir()] == ["saved.json"]
    code, out, _ = run("report", "saved.json", "--json", "-", "--junit", "/dev/full")
    assert code == 2
    assert json.loads(out)["verdict"] == "anomaly"


def test_a_name_cannot_give_a_command_on_stderr(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, _, err = run("report", "##[error]x")
    assert "##[" not in err
    assert re.search(r"# #\[error\]x does not exist", err)


def test_json_that_is_printed_holds_no_command(saved, run):
    saved.warnings = ["##[error]x", "::error::x"]
    Path("saved.json").write_text(to_json(saved), encoding="utf-8")
    code, out, _ = run("report", "saved.json", "--json", "-")
    assert code == 0
    assert "##[" not in out
    assert not [line for line in out.splitlines() if line.lstrip().startswith("::")]
    assert json.loads(out)["warnings"] == saved.warnings


@pytest.mark.parametrize(("columns", "width"), [(None, 120), ("110", 110)])
def test_a_log_is_wide_enough_for_every_column(
    saved, critpath, monkeypatch, tmp_path, columns, width
):
    """Without any terminal, as in a CI system."""
    del saved
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    done = critpath("report", "saved.json", "-v", cwd=tmp_path)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    (head,) = [line for line in lines if line.startswith("state ")]
    assert "95 % interval" in head
    assert "no room for" not in done.stdout
    drawn = max(len(line) for line in lines if line.startswith(("normal ", "anomaly ")))
    assert drawn <= width
