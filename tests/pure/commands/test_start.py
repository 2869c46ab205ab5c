"""Help, and what is said of a command that there is not."""

from __future__ import annotations

import pytest

from critpath.commands import VERBS, main
from critpath.commands.overview import FOLDED, GROUPS, help_text, unfold


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
    ("typed", "meant"),
    [("diff", "compare"), ("stat", "record --counts"), ("list", "requests"), ("pth", "path")],
)
def test_what_other_tools_call_a_verb_is_understood(typed, meant, capsys):
    assert main([typed, "x"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"critpath: there is no command {typed}",
        f"  did you mean {meant}? see critpath --help",
    ]


def test_help_groups_verbs_by_what_they_are_for():
    assert list(GROUPS) == ["find out", "gate", "data", "recorder", "expert"]
    assert {"ab", "bisect", "calibrate", "baseline"} <= GROUPS["gate"].keys()
    assert not FOLDED.keys() & VERBS.keys()


@pytest.mark.parametrize(
    ("typed", "now"),
    [
        ("extract a b -o c.parquet", "export --format paths a b -o c.parquet"),
        ("--config f verify r", "--config f doctor r"),
        ("--debug verify --reader native r", "--debug doctor --reader native r"),
        ("share a.json", "report --redact a.json --html shared.html"),
        ("share a.json -o p.html --threads --force",
         "report --redact a.json --html p.html --redact-threads"),
        ("share a.json --output=p.html", "report --redact a.json --html=p.html"),
        ("share --help", "report --redact --help"),
    ],
)  # fmt: skip
def test_a_verb_of_before_does_what_it_did_and_says_its_name_of_now(typed, now):
    words, said = unfold(typed.split())
    assert words == now.split()
    old = next(word for word in typed.split() if word in FOLDED)
    assert said == f"critpath: {old} is now {' '.join(FOLDED[old])}"


def test_what_is_no_verb_of_before_is_left_alone():
    for line in ("record -- extract x", "path verify", "", "--debug", "compare share extract"):
        assert unfold(line.split()) == (line.split(), "")


def test_the_line_is_on_stderr_and_quiet_keeps_it_away(capsys):
    assert main(["help", "verify"]) == 0
    assert capsys.readouterr().err == "critpath: verify is now doctor\n"
    assert main(["verify", "--quiet", "--help"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("record -p 1234", "record -a"[7:]),
        ("record -g -- sleep 1", "--stacks auto"),
        ("record -F 99 sleep 1", "--overhead 3%"),
        ("record -f ls", "all that a command starts"),
        ("ab -w 3 x", "--warmup"),
        ("report x --export-json y", "--json FILE"),
        ("compare a b --htm x", "did you mean --html?"),
    ],
)
def test_options_of_other_tools_are_understood(line, hint, capsys):
    assert main(line.split()) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("critpath: unrecognized arguments: -")
    assert hint in second
    assert second.endswith(f"see critpath {line.split()[0]} --help")


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_is_one_screen_and_all_of_it_is_there(verb, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([verb, "--help"]) == 0
    short = capsys.readouterr().out
    assert len(short.splitlines()) <= 50
    if f"critpath {verb} --help-all" in short:
        assert main([verb, "--help-all"]) == 0
        assert len(capsys.readouterr().out) > len(short)
