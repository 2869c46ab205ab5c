"""What shells complete, in shells; every command and option is known to each, and has a page."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from critpath.commands import VERBS
from critpath.commands.parser import build_parser

SHARE = Path(__file__).resolve().parents[3] / "share"
BASH = SHARE / "bash-completion/completions/critpath"
ZSH = SHARE / "zsh/site-functions/_critpath"
FISH = SHARE / "fish/vendor_completions.d/critpath.fish"
CASES = [
    ("critpath reco", "record"),
    ("critpath compare --htm", "--html"),
    ("critpath completion f", "fish"),
    ("critpath export --format pat", "paths"),
    ("critpath baseline sa", "save"),
    ("critpath report an", "answer.json"),
]
IN_BASH = """
source "$1"; shift
COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_LINE=$1; COMP_POINT=${#1}
$(complete -p critpath | sed 's/.*-F \\([^ ]*\\).*/\\1/') critpath "${COMP_WORDS[-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def run(*words: object, cwd: Path) -> list[str]:
    done = subprocess.run(
        [*map(str, words)], capture_output=True, text=True, check=True, cwd=cwd, timeout=600
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(("typed", "found"), CASES)
def test_bash_completes(typed, found, tmp_path):
    (tmp_path / "answer.json").touch()
    lines = run("bash", "--norc", "-c", IN_BASH, "bash", BASH, typed, cwd=tmp_path)
    assert found in [line.strip() for line in lines]


@pytest.mark.skipif(not shutil.which("fish"), reason="there is no fish")
@pytest.mark.parametrize(("typed", "found"), CASES)
def test_fish_completes(typed, found, tmp_path):
    (tmp_path / "answer.json").touch()
    lines = run("fish", "--no-config", "-c", f"source {FISH}; complete -C '{typed}'", cwd=tmp_path)
    assert found in [line.partition("\t")[0] for line in lines]


@pytest.mark.skipif(not shutil.which("zsh"), reason="there is no zsh")
def test_zsh_reads_what_it_completes_by(tmp_path):
    load = 'fpath=("$1" $fpath); autoload -Uz compinit; compinit -u -D; print $_comps[critpath]'
    assert run("zsh", "-f", "-c", load, "zsh", ZSH.parent, cwd=tmp_path) == ["_critpath"]
    run("zsh", "-n", ZSH, cwd=tmp_path)


def options_of(verb: str) -> set[str]:
    parser = build_parser(VERBS)
    choices = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return {name for a in choices.choices[verb]._actions for name in a.option_strings}


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_is_known_and_has_its_place_in_a_page(verb):
    """Else: make docs."""
    page = (SHARE / "man/man1" / f"critpath-{verb}.1").read_text(encoding="utf-8")
    texts = {place: place.read_text(encoding="utf-8") for place in (BASH, ZSH, FISH)}
    for name in options_of(verb) - {"-h", "--help"}:
        in_fish = f" -{'l' if name.startswith('--') else 's'} {name.lstrip('-')} "
        assert in_fish in texts[FISH], name
        assert all(re.search(rf"{name}(?![\w-])", texts[place]) for place in (BASH, ZSH)), name
        assert name in page.replace("\\-", "-"), name


def test_no_page_is_of_a_command_that_is_not_there():
    pages = {place.stem for place in (SHARE / "man/man1").iterdir()}
    assert pages == {"critpath", *(f"critpath-{verb}" for verb in VERBS)}
