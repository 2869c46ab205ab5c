"""Help, and what is said of a command that there is not."""

from __future__ import annotations

import pytest

from critpath.commands import VERBS, main
from critpath.commands.overview import help_text


def test_help_fits_one_screen_whichever_way_it_is_asked_for(monkeypatch, capsys):
    for width in (50, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width + 2))
        assert max(map(len, help_text(width).splitlines())) <= width
        for asked in (["--help"], ["-h"], ["help"], ["--debug", "--help"]):
            assert main(asked) == 0
            assert capsys.readouterr().out == help_text(width)
    assert len(help_text(78).splitlines()) <= 50
    assert all(f"  {verb} " in help_text(78) for verb in VERBS)
    # A narrower terminal wraps by itself.
    assert help_text(20) == help_text(50)


def test_help_of_a_verb_is_what_the_verb_says(capsys):
    assert main(["help", "ab"]) == main(["ab", "--help"]) == 0
    both = capsys.readouterr().out
    assert both == 2 * both[: len(both) // 2]
    assert "--until" in both


@pytest.mark.parametrize(
    ("typed", "meant"), [("diff", "compare"), ("stat", "record --counts"), ("pth", "path")]
)
def test_what_other_tools_call_a_verb_is_understood(typed, meant, capsys):
    assert main([typed, "x"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"critpath: there is no command {typed}",
        f"  did you mean {meant}? see critpath --help",
    ]
