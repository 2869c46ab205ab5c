"""All that writes what is kept: run by ``trying.py``, which says what is right."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
TESTS: Final = HERE.parents[1]
PATIENCE: Final = 60  # seconds for what takes less than one
_FIXTURES: Final = TESTS.parent / "fixtures"
sys.path[:0] = [
    str(HERE),
    str(TESTS / "fuzz"),
    *(str(TESTS / "pure" / name) for name in ("known", "store", "incidents")),
    str(TESTS / "process" / "record"),
]


from failing import Switch  # noqa: E402 - found by the path above


@dataclass(frozen=True)
class Writer:
    """Something that writes: what stands there before, and what it does.

    Attributes
    ----------
    work : callable
        Is given a directory; returns an exit code.
    before : callable
        Makes the old state in that directory.
    done : set of int
        Exit codes with which it was done.
    group : callable, optional
        It writes several things one by one: of which a path is ("" of one that has states in
        between).  Each is the old one or the new one, and when it is tried again, without a
        fault, all are the new ones.
    again : bool
        Whether it is: what adds to a file adds once more.
    silent : bool
        What cannot be written is no failure of its own: others can do without.
    own : bool
        It looks at what it made itself, and ends with 99 where that is wrong.
    """

    name: str
    work: Callable[[Path], int]
    before: Callable[[Path], object] = lambda _: None
    done: frozenset[int] = frozenset({0})
    group: Callable[[str], str] | None = None
    again: bool = True
    silent: bool = False
    own: bool = False


def state_of(place: Path) -> dict[str, bytes | None]:
    """Return all below a directory, and what is in it."""
    return {
        str(path.relative_to(place)): path.read_bytes() if path.is_file() else None
        for path in sorted(place.rglob("*"))
    }


def restore(place: Path, state: dict[str, bytes | None]) -> None:
    """Make a directory what it was."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    for name, content in state.items():
        if content is None:
            (place / name).mkdir(parents=True, mode=0o700)
        else:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)


def command(*words: str | Path) -> int:
    """Run critpath."""
    from critpath import steward  # noqa: PLC0415 - in the other process
    from critpath.commands import main  # noqa: PLC0415 - as above

    try:
        return main([str(word) for word in words], alone=bool(_confining))
    finally:
        steward.finish()


_confining: Final[list[bool]] = []


def confined(writer: Writer) -> Writer:
    """Return a writer whose command confines its process, as it does that of a user."""

    def work(place: Path) -> int:
        _confining.append(True)  # in a child that does nothing else
        return writer.work(place)

    return dataclasses.replace(writer, name=f"confined: {writer.name}", work=work)


def ended(work: Callable[[], object]) -> int:
    """Do what a command does; return its exit code."""
    from critpath.errors import CritpathError  # noqa: PLC0415 - in the other process

    try:
        work()
    except CritpathError as error:
        sys.stderr.write(f"critpath: {error.what}\n  {error.do}\n")
        return error.exit_code
    except OSError as error:  # as `critpath.commands` says it
        sys.stderr.write(f"critpath: the system refused: {error}\n  make room\n")
        return 125
    return 0


def make_writers(given: Path) -> Iterator[Writer]:
    """Make what writers read below a directory, and yield them."""
    from file_seeds import make_seeds  # noqa: PLC0415 - in the other process

    for _ in make_seeds(given):
        pass
    from critpath.confined import is_offered  # noqa: PLC0415 - as above

    for writer in chain(_paths(given), _reports(given), _conversions(given), _known()):
        yield writer
        # Processes of its own that read for it find no place to note their calls.
        if is_offered() and not re.search(r"of recordings|^known add", writer.name):
            yield confined(writer)
    yield from _beside(given)
    yield from _incidents(given)
    yield from _shipped()
    yield from _hosts(given)
    yield from _flights(given)


def _of(
    name: str,
    first: Sequence[str | Path],
    second: Sequence[str | Path],
    to: str,
    **more: Any,
) -> Iterator[Writer]:
    """Yield a command that writes to a new place, and one that replaces what another wrote."""

    def write(words: Sequence[str | Path]) -> Callable[[Path], int]:
        return lambda place: command(*(str(w).replace("{to}", str(place / to)) for w in words))

    yield Writer(name, write(second), **more)
    yield Writer(f"{name}, again", write(second), write(first), **more)


def _paths(given: Path) -> Iterator[Writer]:
    """What is saved: paths, datasets, baselines, and what is made of them for other programs."""
    from test_dataset import a_set  # noqa: PLC0415 - in the other process

    from critpath.store import save_paths  # noqa: PLC0415 - as above

    one, two = given / "one.parquet", given / "two.parquet"
    save_paths(a_set([1, 2, 3]), one)
    save_paths(a_set([2] * 30, name="other"), two)
    trace = given / "lttng-2.13"
    export = ("export", "--force", "--quiet")
    for name, to in (("paths", "a.parquet"), ("dataset", "set")):
        words = (*export, "--format", "paths", "-o", "{to}")
        yield from _of(f"export {name}", (*words, one), (*words, two), to)
        more = (*words, "--execution", "thread", "--jobs", "2", trace, given / "big-endian")
        yield Writer(
            f"export {name} of recordings",
            lambda p, w=more, to=to: command(  # type: ignore[misc]
                *(str(word).replace("{to}", str(p / to)) for word in w)
            ),
            done=frozenset({0, 3}),
        )
    for kind in ("collapsed", "speedscope", "segments", "vectors", "perfetto"):
        words = (*export, "--format", kind, "-o", "{to}")
        yield from _of(f"export {kind}", (*words, one), (*words, two), "made")
    words = ("baseline", "save", "--quiet", "--force", "-o", "{to}")
    yield from _of("baseline save", (*words, one), (*words, two), "b.baseline.json")
    words = ("baseline", "update", "--quiet", "{to}", given / "more.parquet")
    for name in ("usual", "more"):
        save_paths(a_set([2] * 30, name=name), given / f"{name}.parquet")
    yield Writer(
        "baseline update",
        lambda place: command(*(str(w).replace("{to}", str(place / "b")) for w in words)),
        lambda place: command(
            *("baseline", "save", "--quiet", given / "usual.parquet", "-o", place / "b")
        ),
        frozenset({0, 1, 3}),
    )
    for kind in ("parquet", "json", "csv"):
        words = ("query", "--quiet", "--force", "--format", kind, "-o", "{to}")
        asked = "SELECT * FROM facts"
        yield from _of(f"query {kind}", (*words, one, asked), (*words, two, asked), "made")


def _reports(given: Path) -> Iterator[Writer]:
    """Pages, JSON and what else a comparison is told in."""
    done = frozenset({0, 1, 3})
    kinds = {"html": "a.html", "json": "a.json", "markdown": "a.md", "junit": "a.xml"}

    def all_to(place: Path, *words: str | Path) -> int:
        options = (word for k, to in kinds.items() for word in (f"--{k}", place / to))
        return command(*words, *options)

    for name, more in (("report", ()), ("report, redacted", ("--redact",))):
        yield Writer(
            f"{name}: page, JSON, Markdown and JUnit",
            lambda place, more=more: all_to(place, "report", given / "factory.json", *more),  # type: ignore[misc]
            lambda place, more=more: all_to(place, "report", given / "ok.json", *more),  # type: ignore[misc]
            done,
        )
    yield Writer(
        "compare, and what GitHub shows",
        lambda place: _on_github(place, all_to, given / "one.parquet", given / "two.parquet"),
        lambda place: [(place / name).write_text("before\n") for name in ("summary", "outputs")],
        done,
        group=str,
        again=False,
    )
    yield Writer(
        "view",
        lambda place: command("view", given / "lttng-2.13", "-o", place / "view.html"),
        done=done,
    )
    yield Writer(
        "explore, a page and JSON",
        lambda place: command(
            *("explore", given / "one.parquet", "-o", place / "a.html", "--json", place / "a.json")
        ),
        done=done,
    )
    yield Writer(
        "signature",
        lambda place: command(
            *(
                "signature",
                "--force",
                given / "counted",
                "-o",
                place / "a.parquet",
                "--json",
                place / "a.json",
            )
        ),
        done=done,
        group=str,
    )
    yield Writer(
        "known check",
        lambda place: command(
            *(
                "known",
                "check",
                _FIXTURES / "known/team.known",
                "--json",
                place / "a",
                "--html",
                place / "b",
            )
        ),
        done=done,
        group=str,
    )
    words = ("trend", "--force", "--quiet", given / "answers", "--html", "{to}")
    yield Writer(
        "trend page",
        lambda place: command(*(str(w).replace("{to}", str(place / "t.html")) for w in words)),
        done=done,
    )


def _conversions(given: Path) -> Iterator[Writer]:
    """What other tools recorded, as recordings."""
    found: dict[str, Path] = {}
    for file in sorted(given.glob("foreign-*")):
        made = given / "tried"
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            if command("convert", file, "-o", made):
                continue
        about = json.loads((made / "critpath.json").read_text(encoding="utf-8"))
        found[about["recorder"]["name"]] = file
        shutil.rmtree(made)
    words = ("convert", "--force", "--quiet", "-o", "{to}")
    for number, (kind, file) in enumerate(found.items()):
        other = [*found.values()][number - 1]
        yield from _of(f"convert {kind}", (*words, other), (*words, file), "rec")


def _known() -> Iterator[Writer]:
    """A store of known signatures."""
    from test_known import draw  # noqa: PLC0415 - in the other process

    from critpath.known.entries import add_entry, open_store  # noqa: PLC0415 - as above
    from critpath.signatures.lookup import make_entry  # noqa: PLC0415 - as above

    def add(*numbers: int) -> Callable[[Path], int]:
        def work(place: Path) -> None:
            store = place / "team.known"
            for number in numbers:
                entry = make_entry(f"work-{number % 2}", draw(number, 1, documents=3))
                entry = dataclasses.replace(entry, recorded=f"2026-05-{number + 1:02}T10:00:00Z")
                known = open_store(store) if (store / "known.json").exists() else None
                add_entry(store, entry, known)

        return lambda place: ended(lambda: work(place))

    def change(verb: str, *more: str) -> Callable[[Path], int]:
        return lambda place: command("known", verb, place / "team.known", *more)

    yield Writer("known add, the first", add(0))
    yield Writer("known add, a label", add(1), add(0))
    yield Writer("known add, a session", add(2), add(0))
    yield Writer("known remove", change("remove", "work-0"), add(0, 1, 2))
    yield Writer("known relabel", change("relabel", "work-0", "other"), add(0, 1, 2))
    yield Writer("known relabel, merged", change("relabel", "work-0", "work-1"), add(0, 1, 2))


def _on_github(place: Path, all_to: Callable[..., int], *sources: Path) -> int:
    """Compare as an action does."""
    files = {"GITHUB_STEP_SUMMARY": "summary", "GITHUB_OUTPUT": "outputs"}
    os.environ |= {name: str(place / file) for name, file in files.items()}
    return all_to(place, "compare", *sources, "--github")


def _beside(given: Path) -> Iterator[Writer]:
    """What is kept beside the work: metrics, costs, caches, what runs, what a budget left out."""
    import numpy as np  # noqa: PLC0415 - in the other process

    from critpath.commands.metrics import _File  # noqa: PLC0415 - as above
    from critpath.metrics.families import Family, Report, Sample  # noqa: PLC0415 - as above
    from critpath.signatures import library  # noqa: PLC0415 - as above
    from critpath_marks.sessions import new_session_name  # noqa: PLC0415 - as above
    from critpath_record import registry  # noqa: PLC0415 - as above
    from critpath_record.budget import calibrate, gaps  # noqa: PLC0415 - as above
    from critpath_record.flight import state  # noqa: PLC0415 - as above

    def tell(value: float) -> Callable[[Path], int]:
        report = Report((Family("up", "gauge", "", "up", (Sample(value),)),), 1, 2)
        return lambda place: ended(_File(place / "critpath.prom", None, lambda: report).write)

    yield Writer("metrics", tell(1), tell(0))

    def measure(each: float) -> Callable[[Path], int]:
        def work(place: Path) -> int:
            calibrate.time = SimpleNamespace(time=lambda: 1e9)  # type: ignore[attr-defined]
            costs = dataclasses.replace(
                calibrate.TABLE, events=dict.fromkeys(calibrate.TABLE.events, each), measured=True
            )
            gate = SimpleNamespace(name="base", state="soft")
            calibrate.machine_key = lambda _: f"a machine at {each}"
            calibrate.find_costs("always", [gate], 0, place / "costs.json", lambda *_: costs)  # type: ignore[list-item]
            return 0

        return work

    yield Writer("costs of a budget", measure(300), measure(200), silent=True)

    def keep(key: str) -> Callable[[Path], int]:
        def work(place: Path) -> int:
            os.environ["XDG_CACHE_HOME"] = str(place)
            library.keep_derived(key, np.arange(100.0))
            return 0

        return work

    yield Writer("what a store's calibration is", keep("b"), keep("a"), silent=True)
    session = new_session_name()

    def run(verb: Callable[[str], object]) -> Callable[[Path], int]:
        def work(place: Path) -> int:
            registry._ROOT = place  # type: ignore[misc]
            verb(session)
            return 0

        return work

    noted = run(lambda name: registry.register(name, Path("/rec"), "ftrace"))
    yield Writer("what runs: noted", noted, silent=True)
    yield Writer("what runs: over", run(registry.unregister), noted, silent=True)
    once = run(lambda _: registry.once_a_boot("found", lambda: "this"))
    yield Writer("what is found once a boot", once, silent=True)
    for at in (1, 2):
        yield Writer(
            f"a flight's state, {at}",
            lambda place: ended(lambda: state.write_state(place, {"state": "ended"})),
            (lambda place: state.write_state(place, {"state": "running"})) if at > 1 else _nothing,
        )
    kept = given / "budgeted-raw"
    kept.mkdir()
    rows = (
        '{"layer":"base","begin":5,"closed":6,"why":"budget"}',
        '{"layer":"base","opening":8,"end":9}',
    )
    (kept / gaps.JOURNAL).write_text("".join(f"{row}\n" for row in rows))
    (kept / gaps.SELECTED).write_text("{}\n" * 3000)
    yield Writer(
        "what a budget left out",
        lambda place: ended(lambda: gaps.finish_gaps(kept, place, 1, 99, ())),
        group=str,
    )


def _nothing(_: Path) -> None:
    """There is nothing before."""


def _incidents(given: Path) -> Iterator[Writer]:
    """Incidents, and what is usual."""
    from test_looking import HOUR, Host  # noqa: PLC0415 - in the other process

    from critpath.errors import CritpathError  # noqa: PLC0415 - as above

    def look(*, alarm: bool) -> Callable[[Path], int]:
        return lambda place: ended(lambda: _look(place, alarm=alarm))

    def _look(place: Path, *, alarm: bool) -> None:
        top = given.parent / "host"
        shutil.rmtree(top, ignore_errors=True)
        top.mkdir()
        host = object.__new__(Host)
        Host.__init__(host, _Top(top, place))  # type: ignore[arg-type]
        for _ in range(4 if alarm else 3):
            host.dump("usual")
            host.pass_time(HOUR)
        if alarm:
            host.dump("latency GET /cart > 5ms", asks=22, before=40)
        host.looker.look()
        if full := [line for line in host.said if "is full" in line]:
            raise CritpathError(full[0], "make room")  # it is looked at again when there is

    yield Writer(
        "incidents and what is usual", look(alarm=True), look(alarm=False),
        group=lambda name: (
            "" if name == "state.json" else name.partition("/")[0] if name[0].isdigit() else name
        ),
    )  # fmt: skip


class _Top:
    """Where `Host` puts a flight, and incidents elsewhere."""

    def __init__(self, top: Path, place: Path) -> None:
        self._top, self._place = top, place

    def __truediv__(self, name: str) -> Path:
        return self._place if name == "incidents" else self._top / name


def _shipped() -> Iterator[Writer]:
    """What a wheel brings, unpacked."""

    def unpacked(name: str) -> str:
        """A recording is there as a whole."""
        return "/".join(Path(name).parts[:2]) if name.startswith("shipped/") else name

    yield Writer(
        "demo of what is shipped",
        lambda place: command("demo", "--shipped", "--quiet", place),
        group=unpacked,
    )


def _hosts(given: Path) -> Iterator[Writer]:
    """What hosts send as archives; what fails is here, and not with them."""
    from test_remote import CRITPATH, SSH  # noqa: PLC0415 - in the other process

    from critpath import __version__  # noqa: PLC0415 - as above

    hosts = given / "away"
    hosts.mkdir()
    away = f"#!/bin/sh\nunset LD_PRELOAD\nTMPDIR={hosts}; export TMPDIR\n"
    for name, text in (("ssh", SSH), ("critpath", CRITPATH)):
        made = text.replace("#!/bin/sh\n", away).replace("@BIN@", str(hosts))
        (hosts / name).write_text(made.replace("@IS@", __version__))
        (hosts / name).chmod(0o755)

    def work(place: Path) -> int:
        os.environ["PATH"] = f"{hosts}{os.pathsep}{os.environ['PATH']}"
        words = ("--hosts", "web,app", "--no-probes", "--duration", "0.01")
        return command("record", "--quiet", *words, "-o", place / "rec")

    def of_host(name: str) -> str:
        """A host's recording is there as a whole."""
        parts = Path(name).parts
        return "/".join(parts[:2]) if len(parts) > 2 else ""

    yield Writer("record, of hosts", work, group=of_host, again=False)


def _flights(given: Path) -> Iterator[Writer]:
    """Dumps of a flight recorder of a played kernel."""
    sys.path[:0] = [str(TESTS / "played")]
    import pytest  # noqa: PLC0415 - in the other process
    import tracefs as played  # noqa: PLC0415 - as above
    from flown import Flown  # noqa: PLC0415 - as above

    from critpath.errors import CritpathError  # noqa: PLC0415 - as above

    def fly(place: Path) -> int:
        # Not below what fails: the kernel's own files are no files.
        before, tempfile.tempdir = tempfile.tempdir, str(given.parent / "kernel")
        shutil.rmtree(tempfile.tempdir, ignore_errors=True)
        Path(tempfile.tempdir).mkdir()
        with pytest.MonkeyPatch.context() as patch:
            kernel = played.play_kernel(patch)
            tempfile.tempdir = before
            flown = object.__new__(Flown)
            try:
                answers = _ask_for_dumps(flown, Flown, patch, kernel, place / "flight")
            finally:
                kernel.close()
        wrong = [*_find_wrong_dumps(place / "flight", answers)]
        failure = getattr(flown, "failure", None)
        if failure is not None and not isinstance(failure, (CritpathError, OSError)):
            wrong.append(f"{failure!r}")
        if wrong:
            sys.stderr.write(f"{answers}: {wrong}\n")
            return 99
        if failure is None and all("dump" in one for one in answers):
            return 0
        sys.stderr.write(f"critpath: {failure or answers}\n  try again\n")
        return 125

    yield Writer("a dump of a flight", fly, own=True)


def _ask_for_dumps(
    flown: Any, made: Any, patch: Any, kernel: Any, place: Path
) -> list[dict[str, Any]]:
    """Let a recorder run and ask it for two dumps; return its answers, as far as it lives."""
    answers: list[dict[str, Any]] = []
    try:
        made.__init__(flown, patch, kernel, place)
        for name in ("first", "second"):
            flown.switch()
            flown.time.pass_time(0.1)
            answers.append(flown.ask(dump=name))
        os.write(flown.signals, bytes([signal.SIGINT]))
        flown.thread.join(PATIENCE)
        Switch.of_this_process().rest()  # it has ended: what follows is the test's own
        flown.end()
    except (AssertionError, OSError, ValueError):
        if flown.failure is None:
            raise
        Switch.of_this_process().rest()
        flown._short.cleanup()
    return answers


def _find_wrong_dumps(place: Path, answers: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what is wrong with the dumps of a recorder that has ended, and its answers."""
    saved = [Path(one["dump"]).name for one in answers if "dump" in one]
    there = sorted(path.name for path in place.iterdir()) if place.exists() else []
    if sorted(saved) != [name for name in there if name != "flight.json"]:
        yield f"{there} are there, and it said {saved}"
    for name in saved:
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            code = command("doctor", place / name)
        if code:
            yield f"{name} is not whole: {code}: {shown.getvalue()}"
    if len(answers) > 1 and "dump" not in answers[1] and "dump" not in answers[0]:
        yield "two dumps are refused for one call that failed"
