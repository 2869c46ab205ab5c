"""Fixtures every test may use: real traces, unpacked once per session."""

from __future__ import annotations

import os
import signal
import subprocess
import tarfile
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path

import pytest

# Python has the filter from 3.11.4 on; Debian 12 ships 3.11.2.
DATA_ONLY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "fixtures"
SHARED = ROOT.parent / "shared"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--update``: what golden tests find is what they expect from now on."""
    parser.addoption("--update", action="store_true", help="accept new golden outputs")


def pytest_configure() -> None:
    """Mount tracefs, which nobody has on a fresh machine; what needs it skips without.

    Before the first test is even collected, and not by our own code: a recorder says
    once, in the process that did it, that it did.
    """
    place = Path("/sys/kernel/tracing")
    if os.geteuid() == 0 and place.is_dir() and not (place / "instances").exists():
        command = ["mount", "-t", "tracefs", "nodev", str(place)]
        subprocess.run(command, check=False, capture_output=True)
    # A shell starts what runs in the background, and nohup what it runs, with signals
    # ignored; a recording keeps them so, and tests of signals would test nothing.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            default = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if default else signal.SIG_DFL)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Return a function that compares a text with a golden file.

    Where they differ, what was found is kept beside it (``*.actual``) to be looked at;
    ``pytest --update`` accepts it.
    """

    def compare(expected: Path, found: str) -> None:
        actual = expected.with_name(f"{expected.name}.actual")
        if request.config.getoption("--update"):
            expected.parent.mkdir(exist_ok=True)
            expected.write_text(found, encoding="utf-8")
        known = expected.read_text(encoding="utf-8") if expected.exists() else ""
        if found == known:
            actual.unlink(missing_ok=True)
            return
        actual.write_text(found, encoding="utf-8")
        lines = zip_longest(known.splitlines(), found.splitlines(), fillvalue="(no line)")
        number, (was, now) = next(
            (i, pair) for i, pair in enumerate(lines, 1) if pair[0] != pair[1]
        )
        pytest.fail(
            f"{expected.name} line {number}: expected {was[:300]!r}, found {now[:300]!r}; "
            f"compare {actual} with it, accept with: pytest --update {request.node.nodeid}",
            pytrace=False,
        )

    return compare


@pytest.fixture(scope="session")
def unpack(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Return a function that unpacks an archive once and returns its directory."""
    done: dict[Path, Path] = {}

    def unpack_once(archive: Path) -> Path:
        if archive not in done:
            target = tmp_path_factory.mktemp(archive.name.split(".")[0])
            with tarfile.open(archive) as tar:
                tar.extractall(target, **DATA_ONLY)  # noqa: S202 - archives of our own
            done[archive] = target
        return done[archive]

    return unpack_once


@pytest.fixture(scope="session")
def guest(unpack: Callable[[Path], Path]) -> Callable[[str], Path]:
    """Return a function from a guest recording's name to its directory.

    The recordings shipped in ``fixtures/`` serve a lone checkout; the others need
    ``../shared`` and skip without it.
    """

    def find(name: str) -> Path:
        for home in (FIXTURES / "lttng-guest", SHARED / "traces" / "lttng-guest"):
            archive = home / f"{name}.tar.xz"
            if archive.exists():
                return unpack(archive) / name
        pytest.skip(f"guest recording {name} is neither in fixtures/ nor in ../shared")

    return find


@pytest.fixture(scope="session")
def shared(unpack: Callable[[Path], Path]) -> Callable[[str], Path]:
    """Return a function from an archive below ``../shared/traces`` to its directory.

    ``public/tc-many-threads`` gives the directory ``tc-many-threads``; archives
    with another top directory give the directory they were unpacked in.
    """

    def find(name: str) -> Path:
        archive = SHARED / "traces" / f"{name}.tar.xz"
        if not archive.exists():
            pytest.skip(f"../shared/traces/{name}.tar.xz is not here")
        top = unpack(archive)
        inner = top / Path(name).name
        return inner if inner.exists() else top

    return find
