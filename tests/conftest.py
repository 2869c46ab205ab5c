"""Fixtures every test may use: real traces, unpacked once per run of pytest."""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import gc
import hashlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from critpath.documents import ComparisonDocument
    from critpath.model import PathSet
    from critpath.schema.parameters import Number

# Python has the filter from 3.11.4 on; Debian 12 ships 3.11.2.
DATA_ONLY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
FIXTURES = ROOT / "fixtures"
SHARED = ROOT.parent / "shared"

# What is drawn is the same in every run: a find of a fresh seed says nothing about a change.
# `make test-deep` draws anew, and more; a find of it becomes an example of its test.
# On a busy machine Hypothesis makes its inputs slowly; that is no failure of the test.
settings.register_profile(
    "ci",
    derandomize=True,
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("deep", settings.get_profile("ci"), derandomize=False, max_examples=400)
settings.load_profile("ci")

Completed = subprocess.CompletedProcess[str]
MakeOnce = Callable[[str, Callable[[Path], object]], Path]
# What an execution is in the recordings of fixtures/lttng-guest.
REQUESTS = "events:app:request_begin,app:request_end,key=id"


def digest_of(*words: str) -> str:
    """Return a name for what words ask for."""
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]


class Answer:
    """What ``critpath compare`` said, and what it wrote into ``--json``."""

    def __init__(self, place: Path) -> None:
        self.code = int((place / "code").read_text())
        self.stdout = (place / "stdout").read_text(encoding="utf-8")
        self.stderr = (place / "stderr").read_text(encoding="utf-8")
        # Where the command could not answer, it wrote none.
        self.json = (place / "json").read_bytes() if (place / "json").exists() else b""

    @cached_property
    def document(self) -> ComparisonDocument:
        """The document, as a reader of it has it."""
        from critpath.report.document.as_json import load_document  # noqa: PLC0415

        return load_document(self.json.decode())

    @cached_property
    def plain(self) -> dict[str, Any]:
        """The document as the JSON that it is."""
        return json.loads(self.json)

    @cached_property
    def html(self) -> str:
        """The page, which ``--html`` writes."""
        from critpath.report.html.as_html import render_html  # noqa: PLC0415

        return render_html(self.document)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--update``: what golden tests find is what they expect from now on."""
    parser.addoption("--update", action="store_true", help="accept new golden outputs")


HANG = 900  # seconds of a file of tests, after which it is shown where it hangs


class Watchdog:
    """Shows where a file of tests hangs; pytest's own is a thread for each test."""

    def __init__(self, stderr: int) -> None:
        self._stderr, self._file = stderr, ""

    def pytest_runtest_logstart(self, location: tuple[str, int | None, str]) -> None:
        """Begin the time of a file."""
        if location[0] != self._file:
            self._file = location[0]
            faulthandler.dump_traceback_later(HANG, file=self._stderr)


def pytest_configure(config: pytest.Config) -> None:
    """Let signals act as they do in a terminal.

    A shell starts what runs in the background, and nohup what it runs, with signals ignored; a
    recording keeps them so, and tests of signals would test nothing.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            default = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if default else signal.SIG_DFL)
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        config.pluginmanager.register(Watchdog(os.dup(2)))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from thousands of tests that live until the end.

    It would look at all of them again and again: that was a sixth of a run.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def quarantined() -> dict[str, dict[str, str]]:
    """Return the tests that do not fail a run for now, by id, with why and since when."""
    return tomllib.loads((TESTS / "quarantine.toml").read_text(encoding="utf-8"))


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the marks in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file in one worker of pytest-xdist, as they share fixtures.

    What traces this kernel is one group, which one worker runs: a recorder removes what dead ones
    left on the machine, those of other tests too.
    """
    quarantine = quarantined()
    for item in items:
        if (known := quarantine.get(item.nodeid)) is not None:
            reason = f"in quarantine since {known['since']}: {known['reason']}"
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))
        if item.get_closest_marker("xdist_group") is None:
            place = item.path.relative_to(TESTS)
            kernel = place.parts[0] in {"kernel", "record"}
            group = "kernel" if kernel else place.as_posix()
            item.add_marker(pytest.mark.xdist_group(group))


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
def wait_for() -> Callable[..., Any]:
    """Return a function that waits until a condition holds, and returns its value.

    It is the only place where tests of processes sleep, and look at a clock to give up.
    """

    def wait(condition: Callable[[], Any], seconds: float = 300.0) -> Any:
        end = time.monotonic() + seconds
        while not (value := condition()):
            if time.monotonic() > end:
                pytest.fail(f"it did not happen within {seconds:.0f} s")
            time.sleep(0.01)
        return value

    return wait


@pytest.fixture(scope="module")
def hold_port() -> Iterator[Callable[[], int]]:
    """Return a function that returns a port of this machine, which nobody else gets meanwhile.

    A server may listen there nevertheless that reuses addresses, as all that tests start do.
    """
    with contextlib.ExitStack() as stack:

        def hold() -> int:
            one = stack.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("127.0.0.1", 0))
            return int(one.getsockname()[1])

        yield hold


@pytest.fixture
def override() -> Iterator[Callable[[str, Number], None]]:
    """Give parameters, such as ``machine.pace``, other values for the test."""
    from critpath.schema.parameters import overridden  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        yield lambda name, value: stack.enter_context(overridden(name, value))


@pytest.fixture(scope="session", autouse=True)
def away_from_the_tree(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Leave the source tree: a process started there imports it, where no module is compiled."""
    os.chdir(tmp_path_factory.mktemp("away"))


@pytest.fixture(scope="session")
def critpath(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Completed]:
    """Return a function that runs ``critpath ARGUMENT...`` in this process.

    It saves the start of a process; `critpath_process` is for where that is what is tested.
    The directory has no settings; what is written is captured as the files that stdout and
    stderr are, from processes that the command starts too.
    """
    elsewhere = tmp_path_factory.mktemp("nowhere")

    def run(*arguments: object, cwd: Path = elsewhere) -> Completed:
        from critpath.commands import main  # noqa: PLC0415 - not for every test

        words = [str(a) for a in arguments]
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.dict(os.environ))
            stack.enter_context(contextlib.chdir(cwd))
            written = []
            for number, name in ((1, "stdout"), (2, "stderr")):
                file = stack.enter_context(tempfile.TemporaryFile())
                getattr(sys, name).flush()
                kept = os.dup(number)
                stack.callback(os.close, kept)
                os.dup2(file.fileno(), number)
                stack.callback(os.dup2, kept, number)
                stream = os.fdopen(number, "w", encoding="utf-8", closefd=False)
                stack.enter_context(mock.patch.object(sys, name, stream))
                written.append((file, stream))
            code = main(words)
            texts = []
            for file, stream in written:
                stream.flush()
                file.seek(0)
                texts.append(file.read().decode())
        return subprocess.CompletedProcess(words, code, *texts)

    return run


@pytest.fixture(scope="session")
def critpath_process(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Completed]:
    """Return a function that runs ``critpath ARGUMENT...`` as a user does: in another process."""
    elsewhere = tmp_path_factory.mktemp("nowhere")

    def run(*arguments: object, cwd: Path = elsewhere, **environment: str) -> Completed:
        # What stands next to this Python is found first.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        return subprocess.run(
            [sys.executable, "-m", "critpath", *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, "PATH": path, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def tracefs_instance() -> Iterator[Path]:
    """Make a private instance of this kernel's tracefs; skips where that is not possible."""
    from critpath_marks import sessions  # noqa: PLC0415 - not for every test

    path = Path("/sys/kernel/tracing/instances") / sessions.new_session_name()
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no instance of tracefs: {error.strerror}")
    try:
        yield path
    finally:
        path.rmdir()


@pytest.fixture(scope="session")
def load() -> Callable[[str], ModuleType]:
    """Return a function that imports ``tests/NAME``, which importlib mode puts on no path.

    A name that begins with ``evaluation/`` is that of an experiment's module.
    """

    def load_module(name: str) -> ModuleType:
        place = (ROOT if name.startswith("evaluation/") else TESTS) / name
        known = f"critpath {place.relative_to(ROOT)}"
        if known not in sys.modules:
            spec = importlib.util.spec_from_file_location(known, place)
            assert spec is not None
            assert spec.loader is not None
            sys.modules[known] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[known])
        return sys.modules[known]

    return load_module


@pytest.fixture
def played(load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Play a kernel to whatever records through tracefs: ``tests/played/tracefs.py``."""
    kernel = load("played/tracefs.py").play_kernel(monkeypatch)
    yield kernel
    kernel.close()


@pytest.fixture
def rows(load: Callable[[str], ModuleType]) -> Callable[..., Any]:
    """Return a function: every event of a trace as (time, cpu, name, fields), and Events."""
    read: Callable[..., Any] = load("played/rows.py").read_rows
    return read


@pytest.fixture(scope="session")
def factory(load: Callable[[str], ModuleType]) -> ModuleType:
    """Return the factory of synthetic comparisons."""
    return load("pure/report/factory.py")


@pytest.fixture(scope="session")
def make_once(tmp_path_factory: pytest.TempPathFactory) -> MakeOnce:
    """Return a function that makes a file or a directory once, for all workers."""
    base = tmp_path_factory.getbasetemp()
    home = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make(name: str, into: Callable[[Path], object]) -> Path:
        target = home / name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with Path(f"{target}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not target.exists():
                    partial = Path(f"{target}.partial")
                    into(partial)
                    partial.rename(target)
        return target

    return make


@pytest.fixture(scope="session")
def unpack(make_once: MakeOnce) -> Callable[[Path], Path]:
    """Return a function that unpacks an archive once, for all workers, and returns its place."""

    def unpack_once(archive: Path) -> Path:
        def into(place: Path) -> None:
            with tarfile.open(archive) as tar:
                tar.extractall(place, **DATA_ONLY)  # noqa: S202 - archives of our own

        return make_once(f"unpacked/{archive.relative_to(archive.parents[2])}", into)

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


@pytest.fixture(scope="session")
def extracted(guest: Callable[[str], Path], make_once: MakeOnce) -> Callable[..., Path]:
    """Return a function from a guest recording's name to its extract, made once for all workers.

    The file is called as the recording is.
    """

    def extract_once(name: str, execution: str = REQUESTS) -> Path:
        from critpath.flow import extract  # noqa: PLC0415 - not for every test
        from critpath.store import save_paths  # noqa: PLC0415

        recording = guest(name)
        return make_once(
            f"extracted/{digest_of(execution)}/{name}",
            lambda place: save_paths(extract([recording], specification=execution), place),
        )

    return extract_once


@pytest.fixture(scope="session")
def paths_of(extracted: Callable[..., Path]) -> Callable[..., PathSet]:
    """Return a function from a guest recording's name to its executions and paths."""

    @cache
    def load_once(name: str, execution: str = REQUESTS) -> PathSet:
        from critpath.store.reading import load_paths  # noqa: PLC0415 - not for every test

        return load_paths(extracted(name, execution))

    return load_once


@pytest.fixture(scope="session")
def answer(
    critpath: Callable[..., Completed], extracted: Callable[..., Path], make_once: MakeOnce
) -> Callable[..., Answer]:
    """Return a function from a sample's name to its comparison, made once for all workers.

    ``answer("sample-lock", "--gate", "p90")`` is what the command answers with these options.
    It reads extracts: that these answer as their recordings do is a test of its own.
    """

    @cache
    def ask(
        sample: str, *options: object, normal: str = "normal", execution: str = REQUESTS
    ) -> Answer:
        place = extracted(normal, execution).parent
        extracted(sample, execution)

        def into(partial: Path) -> None:
            partial.mkdir(exist_ok=True)
            words = ("compare", normal, sample, "--json", partial / "json", *options)
            done = critpath(*words, cwd=place)
            for name in ("stdout", "stderr"):
                (partial / name).write_text(getattr(done, name), encoding="utf-8")
            (partial / "code").write_text(str(done.returncode))

        asked = (normal, sample, execution, *map(str, options))
        return Answer(make_once(f"answers/{sample}-{digest_of(*asked)}", into))

    return ask
