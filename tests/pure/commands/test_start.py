"""Help, which is made without the parser."""

from __future__ import annotations

import sys

import pytest

from critpath.commands import VERBS, main
from critpath.commands.overview import help_text
from critpath.commands.parser import build_parser


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="argparse shows colours there")
def test_help_is_what_argparse_makes_of_the_grammar(monkeypatch, capsys):
    parser = build_parser(VERBS)
    for width in (*range(50, 130), 200, 500):
        monkeypatch.setenv("COLUMNS", str(width + 2))
        assert help_text(width) == parser.format_help(), width
        assert main(["--help"]) == 0
        assert capsys.readouterr().out == parser.format_help()


def test_help_for_a_narrow_terminal_is_argparse_s_own(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "30")
    assert help_text(28) is None
    assert main(["-h"]) == 0
    assert "COMMAND" in capsys.readouterr().out
