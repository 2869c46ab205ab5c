"""docs/tutorial-known.md, typed as it stands on shipped sessions: words, not figures."""

from __future__ import annotations

import importlib.util
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def typed(critpath):
    """Return the page as it is now, and its commands; those of critpath run in this process."""
    place = importlib.util.spec_from_file_location("renew", ROOT / "docs" / "renew.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    in_shell = module.transcripts._shell

    def run(command, before, directory):
        program, *words = shlex.split(command)
        if program != "critpath":
            return in_shell(command, before, directory)
        done = critpath(*words, cwd=directory)
        done.stdout += done.stderr
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.transcripts, "_shell", run)
        patch.setenv("COLUMNS", str(module.transcripts.WIDTH))
        return module.type_signatures()


def of(typed, *words):
    return next(step for step in typed[1] if all(word in step.command for word in words))


def test_every_command_ends_as_the_page_says(typed):
    for step in typed[1]:
        wanted = 1 if "search" in step.command and "unknown" in step.command else 0
        assert step.code == wanted, f"{step.command}\n{step.output}"
    assert [s.output for s in typed[1] if s.command == "echo $?"] == ["0", "1"]


def test_what_is_known_is_found_with_its_note_and_what_is_not_without_any(typed):
    known = of(typed, "search", "today").output
    assert known.startswith("like pg-async (3 sessions, last 2026-11-27; similarity ")
    assert "note: the same with synchronous_commit = off" in known
    unknown = of(typed, "search", "unknown").output
    assert unknown.startswith("like nothing in seen/team.known: the nearest is gcc")
    assert "note:" not in unknown


def test_what_was_added_is_there(typed):
    assert of(typed, "add", "today").output.startswith("seen/team.known: pg-async, session 4")
    assert of(typed, "add", "unknown").output.startswith("seen/team.known: forks, session 1")
    assert of(typed, "show").output.count("synchronous_commit = off") == 1
    assert of(typed, "list").output.count(" state ") == 6
    groups = of(typed, "groups").output.splitlines()
    assert "alike: pg, pg-async" in groups
    assert "alike: pipe-4k, pipe-64k" in groups
    checked = of(typed, "check").output
    assert "7 labels, 20 sessions, 240 intervals" in checked
    assert "one session only, not judged: forks" in checked


def test_the_shipped_sessions_are_small():
    files = [path for path in (ROOT / "fixtures" / "known").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 300_000
