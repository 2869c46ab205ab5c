"""The pytest fixture ``critpath_gate``: a test that fails where a program became slower.

pytest imports this module whenever it starts, in every project of an environment in which
critpath is installed: it imports nothing but pytest, until a test asks for the fixture.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from critpath.pytest_gate.gate import Gate

INCONCLUSIVE: Final = ("fail", "skip", "xfail")
NOTES: Final = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and ini settings of the fixture."""
    group = parser.getgroup("critpath", "critpath_gate: is a program slower than its baseline")
    group.addoption(
        "--critpath-update",
        action="store_true",
        help="make baselines that are missing, and add recordings that are not slower",
    )
    group.addoption(
        "--critpath-accept",
        action="store_true",
        help="begin baselines anew where something is slower",
    )
    group.addoption(
        "--critpath-require",
        action="store_true",
        help="fail where this machine may not record, instead of skipping",
    )
    parser.addini("critpath_require", "as --critpath-require", type="bool", default=False)
    parser.addini(
        "critpath_inconclusive",
        f"what becomes of a test without a verdict: {', '.join(INCONCLUSIVE)}",
        default=INCONCLUSIVE[0],
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a wrong setting at once."""
    given = config.getini("critpath_inconclusive")
    if given not in INCONCLUSIVE:
        raise pytest.UsageError(f"critpath_inconclusive = {given}: {', '.join(INCONCLUSIVE)}")
    config.stash[NOTES] = []


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say which baselines were made or changed: they are to be committed."""
    notes = config.stash[NOTES]
    if notes:
        terminalreporter.section("critpath baselines")
        for note in notes:
            terminalreporter.write_line(note)


@pytest.fixture
def critpath_gate(request: pytest.FixtureRequest, tmp_path: Path) -> Gate:
    """Fail a test where a command is slower than its baseline, and say why.

    Call it with a command and the name of a baseline beside the test's file; see
    `critpath.pytest_gate.gate.Gate`.
    """
    from critpath.pytest_gate.gate import Gate  # noqa: PLC0415 - numpy, only where it is used

    config = request.config
    return Gate(
        directory=request.path.parent,
        place=tmp_path,
        accept=config.getoption("--critpath-accept"),
        update=config.getoption("--critpath-update"),
        require=config.getoption("--critpath-require") or config.getini("critpath_require"),
        inconclusive=config.getini("critpath_inconclusive"),
        note=config.stash[NOTES].append,
    )
