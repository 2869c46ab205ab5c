"""What a command that reads what others wrote may do: decided by its words, before it reads."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, Any, Final

from critpath import confined, files, steward, stores
from critpath.errors import CritpathError

if TYPE_CHECKING:
    import argparse

    from critpath.commands.settings import Settings

_OUTPUTS: Final = ("output", "json", "html", "markdown", "junit", "explore")
_SCRATCH: Final = ".critpath."
_NO_INPUTS: Final = frozenset({"typed", "verb", "action", "command", "engine"})
# What is asked of the machine: by the C library, by numpy, Arrow and DuckDB, by `engines.limits`.
_MACHINE: Final = (
    # Who may not look into another process does not by this: the kernel asks again there.
    *("/proc", "/sys/fs/cgroup", "/sys/devices/system", "/etc/machine-id", "/etc/ld.so.cache"),
)
# Where libraries of object stores, of TLS and of dask look for names and credentials.
_NETWORK: Final = ("/etc", "~/.aws", "~/.config/gcloud", "~/.config/fsspec", "~/.config/dask")
_NAMED: Final = (
    *("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "GOOGLE_APPLICATION_CREDENTIALS"),
    *("AWS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "DASK_CONFIG"),
    *("AWS_WEB_IDENTITY_TOKEN_FILE",),
)
_LOADERS: Final = (
    *("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"),
    *("/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1"),
)
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where locks of processes are made


def confine(arguments: argparse.Namespace, settings: Settings) -> None:
    """Confine this process for good."""
    given = {**vars(arguments), "known": settings["known"], "learn": settings["learn"]}
    words = [*_words(given), *_named_by(settings["execution"])]
    engine = str(getattr(arguments, "engine", ""))
    outputs = [getattr(arguments, name, None) or "" for name in _OUTPUTS]
    network = engine.startswith("dask:") or any(map(_is_url, [*words, *outputs]))
    inputs = [place for word in words for place in _follow(Path(word))]
    if settings["hosts"] == "apart":  # who else is beside says whether they are hosts
        inputs += [place.parent for place in inputs]
    write = [*_written_in_place(arguments)]
    with ExitStack() as locks:
        direct, rooms = _make_rooms(arguments, locks)
        made = [room for room in rooms.values() if isinstance(room, Path)]
        trees = [room / steward.TREE for room in made if arguments.verb == "export"]
        try:
            for tree in trees:
                tree.mkdir()
            if scratch := _make_scratch(locks):
                made.append(scratch)
            steward.begin(rooms, scratch, partial(_discard_all, made))
        except BaseException:
            _discard_all(made)
            raise
    if scratch:
        tempfile.tempdir = os.environ["TMPDIR"] = str(scratch)
    several = settings["jobs"] != 1 or settings["reader"] == "babeltrace2"
    if several:
        write.append(_SHARED_MEMORY)
    confined.restrict(
        [*map(Path, _MACHINE), *inputs, *rooms, *(_asked_of_network() if network else ())],
        [*write, *made, *trees],
        more=[(place, confined.WRITE) for place in (*direct, Path(os.devnull))],
        run=_programs() if several else (),
        network=network,
    )


def _is_url(word: str | Path) -> bool:
    """Tell whether a store is asked for it; who reads it says what is wrong with it."""
    try:
        return stores.find_url(word) is not None
    except CritpathError:
        return False


def _words(given: dict[str, Any]) -> Iterator[str | Path]:
    """Yield what may name an input: of a URL, a path is another text."""
    for name, value in given.items():
        if name not in _NO_INPUTS and name not in _OUTPUTS:
            for word in value if isinstance(value, list | tuple) else [value]:
                if isinstance(word, str | Path) and str(word):
                    yield word


def _named_by(specification: str | None) -> Iterator[str]:
    """Yield what says which runs are meant: a file of windows, a recording to learn from."""
    if not specification or not {*":="} & {*specification}:
        return  # it names nothing, as mostly: who reads no recording needs no syntax of these
    from critpath.executions import parse_specification  # noqa: PLC0415 - start-up time

    with suppress(CritpathError):  # said where it is used
        of = parse_specification(specification)
        yield from filter(None, (of.file, of.requests.learn))


def _follow(place: Path) -> Iterator[Path]:
    """Yield what is named and is there; of a directory, also where links in it lead."""
    with suppress(OSError, ValueError):
        mode = place.stat().st_mode
        yield place
        if S_ISDIR(mode):
            with os.scandir(place) as entries:
                yield from [Path(one.path) for one in entries if one.is_symlink()]


def _outputs(arguments: argparse.Namespace) -> Iterator[Path]:
    values = [getattr(arguments, name, None) for name in _OUTPUTS]
    if getattr(arguments, "action", "") == "update":
        values.append(arguments.file)
    for value in values:
        if not isinstance(value, str | Path) or str(value) in {"", "-", "inline"}:
            continue
        if not _is_url(value):
            yield Path(value)


def _written_in_place(arguments: argparse.Namespace) -> Iterator[Path]:
    """Yield directories that a command changes where they are: a store, the user's cache."""
    if arguments.verb == "known" and arguments.action in {"add", "remove", "relabel"}:
        with suppress(OSError):
            Path(arguments.store).mkdir()  # removed again by a command that adds nothing
        yield Path(arguments.store)
    if arguments.verb in {"known", "compare"}:
        given = os.environ.get("XDG_CACHE_HOME", "")
        with suppress(RuntimeError):
            yield (Path(given) if given.startswith("/") else Path.home() / ".cache") / "critpath"


def _make_rooms(
    arguments: argparse.Namespace, locks: ExitStack
) -> tuple[list[Path], dict[Path, Path | OSError]]:
    """Return outputs that are written as they are, and directories beside the others."""
    direct: list[Path] = []
    if getattr(arguments, "github", False):
        from critpath.commands.reports import files as appended  # noqa: PLC0415 - rare

        direct += map(Path, appended())
    rooms: dict[Path, Path | OSError] = {}
    for output in _outputs(arguments):
        target = output
        try:
            target = files.resolve_safely(output)
            mode = target.stat().st_mode if target.exists() else 0
            if mode and not (S_ISREG(mode) or S_ISDIR(mode)):
                direct.append(target)
            elif target not in rooms and target.parent.is_dir():
                files.remove_abandoned(target)
                rooms[target] = locks.enter_context(files.claimed_directory(target))
        except OSError as error:
            rooms[target] = error
        except CritpathError:  # said where it is written
            continue
    return direct, rooms


def _make_scratch(locks: ExitStack) -> Path | None:
    """Make a directory for temporary files; it is locked as long as its steward lives."""
    above = Path(tempfile.gettempdir())
    with suppress(OSError):
        for name in os.listdir(above):  # noqa: PTH208 - texts
            if name.startswith(_SCRATCH) and len(name) == len(_SCRATCH) + 8:
                with suppress(OSError):
                    files.remove_unclaimed(above / name)
        # Short: names of sockets below it have at most 108 bytes.
        place = above / f"{_SCRATCH}{os.urandom(4).hex()}"
        locks.enter_context(files.claimed_directory(place, place))
        place.chmod(0o700)
        return place
    return None


def _discard_all(places: Iterable[Path]) -> None:
    for place in places:
        files.discard(place)


def _programs() -> Iterator[Path]:
    """Yield Python, which processes of ours are, with what loads it."""
    for program in {sys.executable, "/usr/bin/python3"}:
        if program and os.path.exists(program):  # noqa: PTH110 - texts
            yield Path(program)
    yield from map(Path, _LOADERS)


def _asked_of_network() -> Iterator[Path]:
    for place in _NETWORK:
        yield Path(place).expanduser()
    for name in _NAMED:
        if value := os.environ.get(name):
            yield Path(value)
