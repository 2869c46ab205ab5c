"""``critpath mark``, as what records sees it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest

from critpath.commands import main
from critpath_marks import channels


@pytest.fixture
def written(monkeypatch, tmp_path) -> Callable[[], str]:
    """Return what marks write, where only LTTng's logger file takes them."""
    logger = tmp_path / "logger"
    logger.touch()
    monkeypatch.delenv(channels.MARKER, raising=False)
    monkeypatch.delenv(channels.DESCRIPTOR, raising=False)
    monkeypatch.setenv(channels.RECORDER, "lttng")
    monkeypatch.setattr(channels, "LOGGER_FILE", str(logger))
    monkeypatch.setattr(channels, "_chosen", None)
    return logger.read_text


def test_a_mark_names_the_shell(written):
    assert main(["mark", "begin", "nightly backup", "7"]) == 0
    assert main(["mark", "end", "nightly backup", "--strict"]) == 0
    parent = rf"@(\d+:)?{os.getppid()}"
    assert re.fullmatch(
        rf"critpath:begin nightly%20backup 7 {parent}\ncritpath:end nightly%20backup {parent}\n",
        written(),
    )


def test_nothing_records(monkeypatch, capsys):
    for name in (channels.MARKER, channels.DESCRIPTOR, channels.RECORDER):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(channels, "INSTANCES", ())
    monkeypatch.setattr(channels, "LOGGER_FILE", "/nowhere/logger")
    monkeypatch.setattr(channels, "_chosen", None)
    assert main(["mark", "begin", "job"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["mark", "begin", "job", "--strict"]) == 125
    assert "critpath record" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["begin"], ["start", "x"], ["begin", ""], ["end", "x", "1", "2"], []]
)
def test_wrong_usage(arguments, capsys):
    assert main(["mark", *arguments]) == 2
    assert capsys.readouterr().err.startswith("critpath: ")
