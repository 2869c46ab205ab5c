"""The command line of the installed command, with nothing replaced behind it."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from critpath.commands import VERBS, main
from critpath.errors import EXIT_INTERNAL


def test_help_names_every_verb(critpath):
    done = critpath("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for verb in VERBS:
        assert verb in done.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(critpath, verb):
    done = critpath(verb, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"usage: critpath {verb}" in done.stdout
    assert "--debug" in done.stdout


@pytest.mark.parametrize("verb", ["record", "compare"])
def test_help_is_one_screen_and_the_rest_is_one_option_away(critpath, verb, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    brief, whole = (critpath(verb, option).stdout for option in ("--help", "--help-all"))
    lines = brief.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert f"critpath {verb} --help-all" in brief
    # Every option that there is is named, and each is explained.
    for name in set(re.findall(r"(?<![\w-])--(?!no-)[a-z][\w-]+", whole)) - {"--help-all"}:
        assert name in brief
        assert re.search(rf"^  .*{name}\b.*", whole, re.MULTILINE), name


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "required: COMMAND"),
        (("comapre",), "did you mean compare?"),
        (("compare",), "required: NORMAL, SAMPLE"),
        (("compare", "a", "b", "--alpha", "2"), "'2' is not a level"),
        (("compare", "a", "b", "--rul", "gate"), "unrecognized arguments"),
        (("path", "\x1b[31m", "--bad"), "unrecognized"),
        (("export", "--format", "paths", "a"), "-o"),
    ],
)
def test_wrong_usage_is_two_lines_and_exit_2(critpath, arguments, says):
    done = critpath(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("critpath: ")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert "\x1b" not in done.stderr


def test_an_input_that_is_not_there_is_exit_4(critpath):
    done = critpath("compare", "no-normal", "no-sample")
    assert done.returncode == 4
    assert done.stderr.splitlines()[0] == "critpath: no-normal does not exist"
    done = critpath("path", "x\x1b[31m")
    assert done.returncode == 4
    assert "\x1b" not in done.stderr


def test_an_event_that_one_of_two_recordings_lacks_is_told_with_the_recording(critpath, guest):
    normal, sample = guest("normal"), guest("sample-lock")
    events = "events:app:request_begin,app:request_ending,key=id"
    done = critpath("compare", normal, sample, "--execution", events)
    assert done.returncode == 2
    assert done.stderr.startswith(f"critpath: {normal}: no event app:request_ending among the ")
    assert len(done.stderr.splitlines()) == 2


def test_a_comparison_of_a_recording_in_every_form(critpath, extracted, monkeypatch, tmp_path):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary")
    outputs = ("--junit", "j.xml", "--markdown", "m.md", "--github")
    done = critpath(
        "compare", extracted("normal"), extracted("sample-lock"), *outputs, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert not [line for line in done.stdout.splitlines() if line != line.rstrip()]
    commands = [line for line in done.stdout.splitlines() if line.startswith("::")]
    assert commands[0].startswith("::error title=critpath%3A ▲ SLOWER::cpu requests ")
    assert 2 < len(commands) <= 10
    assert '<testcase classname="critpath" name="duration" ' in (tmp_path / "j.xml").read_text(
        encoding="utf-8"
    )
    text = (tmp_path / "m.md").read_text(encoding="utf-8")
    assert text == (tmp_path / "summary").read_text(encoding="utf-8")
    assert "1. 4 of 5 `cpu` requests " in text


def test_a_module_that_was_not_built_is_no_fault_of_critpath(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkout finds new modules after ``make build`` only."""
    monkeypatch.setitem(sys.modules, "critpath.commands.path", None)
    assert main(["path", "."]) == EXIT_INTERNAL
    said = capsys.readouterr().err
    assert "it has no critpath.commands.path" in said
    assert "make build" in said


def test_what_a_thread_still_imports_is_left_alone(monkeypatch, tmp_path, capsys):
    """``top`` ends while its thread, which walks a dump, is in the middle of an import."""
    for name in ("critpath.stores", "critpath.convert.opened"):
        half, whole = ModuleType(name), vars(import_module(name))
        vars(half).update({key: whole[key] for key in whole.keys() - {"close", "OPENED"}})
        half.__spec__ = ModuleSpec(name, None)
        half.__spec__._initializing = True
        monkeypatch.setitem(sys.modules, name, half)
    assert main(["report", str(tmp_path / "nothing.json")]) == 4
    assert "internal error" not in capsys.readouterr().err
