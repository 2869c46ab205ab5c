"""The command critpath bisect: in small repositories, from outside."""

from __future__ import annotations

import os
import subprocess

import pytest

# So far apart that what a busy machine adds to both hides no half of it.
FAST, SLOW = "sleep 0.004", "sleep 0.1"


@pytest.fixture
def repository(tmp_path):
    """Return a function that makes a repository, a commit for every text of `work`."""
    place = tmp_path / "repository"
    place.mkdir()

    def git(*arguments):
        names = {
            f"GIT_{who}_{what}": "x@y"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        done = subprocess.run(
            ["git", "-C", place, *arguments], env={**os.environ, **names},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    def make(*works):
        git("init", "--quiet", "--initial-branch", "main")
        for number, work in enumerate(works):
            (place / "work.sh").write_text(f"{work}\n# {number}\n")
            git("add", "work.sh")
            git("commit", "--quiet", "-m", f"change {number}")
            git("tag", f"v{number}")
        return place, git

    return make


def bisect(critpath, place, *arguments):
    return critpath(
        "bisect", "--slot", "1", "--until", "50%", *arguments, "--", "sh", "{}/work", cwd=place
    )


BUILD = ("--build", "! grep broken work.sh && cp work.sh work")


def test_the_first_slower_revision_is_found(critpath, repository):
    place, git = repository(FAST, FAST, SLOW, SLOW, f"{SLOW};true")
    (place / "work.sh").write_text("what I am at\n")
    before = git("status", "--porcelain"), git("for-each-ref"), git("rev-parse", "HEAD")
    done = bisect(critpath, place, "--good", "v0", *BUILD)
    assert done.returncode == 1, done.stderr
    assert "SLOWER SINCE " in done.stdout
    assert "change 2: B takes " in done.stdout
    assert "each wrong in at most 1 %" in done.stdout
    assert "change 4: slower" in done.stderr
    # Nothing is left, and the checkout is as it was.
    assert (git("status", "--porcelain"), git("for-each-ref"), git("rev-parse", "HEAD")) == before
    assert len(git("worktree", "list").splitlines()) == 1
    assert (place / "work.sh").read_text() == "what I am at\n"
    assert not (place / "work").exists()


def test_a_revision_that_cannot_be_built_is_left_out(critpath, repository):
    place, _ = repository(FAST, "broken", f"{SLOW}", SLOW)
    done = bisect(critpath, place, "--good", "v0", "--bad", "v3", *BUILD)
    assert done.returncode == 3, done.stderr
    assert "change 1: left out: the build of" in done.stderr
    assert "UNDECIDED: the first slower revision is one of 2" in done.stdout
    assert "change 1" in done.stdout
    assert "change 2" in done.stdout


def test_nothing_to_bisect(critpath, repository):
    place, git = repository(SLOW, FAST)
    done = bisect(critpath, place, "--good", "v0", *BUILD)
    assert done.returncode == 0, done.stderr
    # One stall among the slots, and that it is faster is not shown: neither is that it is slower.
    assert done.stdout.startswith(("FASTER", "NOT SLOWER"))
    assert "there is nothing to bisect" in done.stdout
    assert len(git("worktree", "list").splitlines()) == 1


def test_wrong_uses(critpath, repository, tmp_path):
    place, git = repository(FAST, "broken")
    done = critpath("bisect", "--good", "v0", "--", "sh", "work", cwd=place)
    assert done.returncode == 2
    assert "no {} in the command" in done.stderr
    done = bisect(critpath, place, "--good", "v9", *BUILD)
    assert done.returncode == 2
    assert "'v9' is no revision" in done.stderr
    assert bisect(critpath, tmp_path, "--good", "v0").returncode == 2
    done = bisect(critpath, place, "--good", "v0", *BUILD)
    assert done.returncode == 4
    assert "the build of" in done.stderr
    assert len(git("worktree", "list").splitlines()) == 1
