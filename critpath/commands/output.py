"""What commands write: documents, files, warnings."""

from __future__ import annotations

import os
import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self, cast

from critpath.errors import CritpathError, UsageError, name_places
from critpath.units import log_text, plural, safe_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status
    from rich.text import Text

    from critpath.commands.settings import Settings
    from critpath.schema.notes import Remark
    from critpath.text.notes import Words

STDOUT = "-"
_TRAILING = re.compile(r"[ \t]+$", re.MULTILINE)
SHOWN_WARNINGS = 20
_FORMULA = re.compile(r"[=+@-](?![0-9.e+-]*\Z)")  # a number is none
_WIDTH = 120  # of text that goes to no terminal: a CI system's log, a file


def write_output(place: str, text: str) -> None:
    """Write to a file, whole or not at all, or to stdout for ``-``."""
    from critpath.files import write_text  # noqa: PLC0415 - numpy

    text = name_places(text)
    if place == STDOUT:
        # Bytes: an HTML page is UTF-8 whatever the terminal's encoding.
        sys.stdout.flush()
        binary = getattr(sys.stdout, "buffer", None)
        if binary is None:
            sys.stdout.write(text)
        else:
            binary.write(text.encode("utf-8", "replace"))
            binary.flush()
    else:
        write_text(Path(place), text)


def write_rows(rows: Iterable[Iterable[object]]) -> str:
    """Return rows as CSV whose texts do nothing: in a terminal, in a CI system's log, in a sheet.

    A text that a spreadsheet takes for a formula begins with an apostrophe, as it has it itself.
    """
    import csv  # noqa: PLC0415 - start-up time
    from io import StringIO  # noqa: PLC0415 - as above

    from critpath.units import safe_text  # noqa: PLC0415 - as above

    def cell(value: object) -> object:
        if not isinstance(value, str):
            return "" if value is None else value
        text = safe_text(value)
        return f"'{text}" if _FORMULA.match(text) else text

    written = StringIO()
    csv.writer(written, lineterminator="\n").writerows(map(cell, row) for row in rows)
    return log_text(written.getvalue())


def write_pieces(place: str, pieces: Iterable[bytes | bytearray]) -> None:
    """Write to a file, whole or not at all, or to stdout for ``-``.

    What renders the pieces is asked for them one at a time: a large export is never in
    memory as a whole.
    """
    from critpath.files import atomic  # noqa: PLC0415 - numpy

    if place != STDOUT:
        with atomic(Path(place)) as stream:
            for piece in pieces:
                stream.write(piece)
        return
    sys.stdout.flush()
    binary = getattr(sys.stdout, "buffer", None)
    for piece in pieces:
        if binary is None:
            sys.stdout.write(piece.decode("utf-8", "replace"))
        else:
            binary.write(piece)
    sys.stdout.flush()


def write_together(texts: Mapping[str, str]) -> None:
    """Write files, all or none of them.

    Each is whole and on the disk under another name before the first gets its own; where one
    does not get it, those before it are what they were.
    """
    from critpath.files import atomic, given_back  # noqa: PLC0415 - numpy

    with given_back(map(Path, texts)) as keep, ExitStack() as stack:
        written = []
        for place, text in texts.items():
            stream = stack.enter_context(atomic(Path(place)))
            try:
                stream.write(name_places(text).encode("utf-8", "replace"))
                stream.flush()
                with suppress(OSError):  # a device or a pipe has none
                    os.fsync(stream.fileno())
                written.append(os.fstat(stream.fileno()))
            except OSError as error:
                # Here, as the contexts of the other files would say that it was theirs.
                raise UsageError(
                    f"cannot write {place}: {error.strerror or error}",
                    "choose a place that you may write to and that has room",
                ) from error
        keep(written)


def attempt(*steps: Callable[[], None]) -> None:
    """Do every step although one before it failed, then say what failed."""
    failed: list[CritpathError] = []
    for step in steps:
        try:
            step()
        except CritpathError as error:
            failed.append(error)
    if len(failed) > 1:
        first = failed[0]
        raise type(first)("; ".join(error.what for error in failed), first.do) from first
    if failed:
        raise failed[0]


def check_terminal(place: str, what: str, *, binary: bool) -> None:
    """Refuse to write what is no text to a terminal."""
    if binary and place == STDOUT and sys.stdout.isatty():
        raise UsageError(
            f"{what} is no text, and stdout is a terminal", "name a file with -o FILE, or pipe it"
        )


def check_outputs(
    places: Sequence[str | None], inputs: Iterable[Path] = (), *, force: bool = True
) -> None:
    """Refuse places that cannot be written, before any work."""
    wanted = [place for place in places if place is not None]
    real = [os.path.realpath(place) if place != STDOUT else STDOUT for place in wanted]
    sources = {os.path.realpath(path) for path in inputs}
    for place, target in zip(wanted, real, strict=True):
        shown = "stdout" if place == STDOUT else place
        if real.count(target) > 1:
            raise UsageError(f"two outputs to {shown}", "give each its own file")
        if place == STDOUT:
            continue
        if target in sources:
            raise UsageError(f"{place} is both input and output", "give the output another name")
        try:
            _check_output(place, Path(target), force=force)
        except OSError as error:  # a directory that may not be searched, a disk that fails
            raise UsageError(
                f"{place} cannot be written: {error.strerror or error}",
                "choose a place that you may write to",
            ) from None


def _check_output(place: str, path: Path, *, force: bool) -> None:
    parent = path.parent
    if path.is_dir():
        raise UsageError(f"{place} is a directory", "name a file")
    if not parent.is_dir():
        raise UsageError(f"{parent} is not a directory", f"make it first: mkdir -p {parent}")
    if not os.access(path if path.exists() else parent, os.W_OK):
        raise UsageError(f"{place} cannot be written", "choose a place that you may write to")
    if path.is_file() and not force:
        raise UsageError(f"{place} exists already", "use --force to replace it")


def warn(messages: Iterable[Remark], *, quiet: bool, words: Words | None = None) -> None:
    """Print warnings on stderr, a line each, repeated ones once."""
    if quiet:
        return
    from critpath.text.answer import is_usual  # noqa: PLC0415 - start-up time
    from critpath.text.notes import AS_IT_IS, word  # noqa: PLC0415 - as above

    distinct = list(dict.fromkeys(messages))
    for message in distinct[:SHOWN_WARNINGS]:
        how, said = "" if is_usual(message) else "warning: ", word(message, words or AS_IT_IS)
        print(f"critpath: {how}{log_text(safe_text(name_places(said)))}", file=sys.stderr)
    if len(distinct) > SHOWN_WARNINGS:
        rest = plural(len(distinct) - SHOWN_WARNINGS, "more warning")
        print(f"critpath: warning: {rest}, see the --json output", file=sys.stderr)


def hint(message: str, *, quiet: bool) -> None:
    """Print what was done, or what to do next, on stderr."""
    if not quiet:
        sys.stdout.flush()  # in a log that has both, it stands below what it speaks of
        print(log_text(safe_text(name_places(message))), file=sys.stderr)


def say_what_was_opened(*, quiet: bool) -> None:
    """Say which files of other tools were converted to be read, and what was asked of stores."""
    opened = sys.modules.get("critpath.convert.opened")
    for path, converted in opened.OPENED.converted if opened else ():
        took = f"{converted.seconds:.1f} s"
        hint(
            f"{path}: converted from {converted.kind} in {took}; critpath convert keeps it",
            quiet=quiet,
        )
    stores = sys.modules.get("critpath.stores")
    if stores is None or not stores.LEDGER.requests:
        return
    ledger = stores.LEDGER
    warn(ledger.take_notes(), quiet=quiet)
    read = f"{ledger.moved / 1e6:,.1f} of {ledger.listed / 1e6:,.1f} MB read"
    wrote = f", {ledger.written / 1e6:,.1f} MB written" * bool(ledger.written)
    hint(f"object store: {read}{wrote}, {plural(ledger.requests, 'request')}", quiet=quiet)


def make_console(stream: IO[str] | None = None) -> Console:
    """Return a console on stdout, or another stream, in which text from a trace is only text.

    stdout is as wide as the terminal or as COLUMNS says; where there is neither, and in any
    file, wide enough for every column of a comparison.
    """
    from rich.console import Console  # noqa: PLC0415 - start-up time

    class Pipe(Console):
        """A console that leaves a reader who is gone to `critpath.commands.main`."""

        def on_broken_pipe(self) -> None:
            """Let the error through: rich would exit with 1, which here means an anomaly."""
            raise BrokenPipeError

    file = cast("IO[str]", _LogStream(stream or sys.stdout))
    # A file is for any screen: it is not as wide as the one that it was made on.
    as_shown = stream is None and ("COLUMNS" in os.environ or _is_any_terminal())
    width = None if as_shown else _WIDTH
    return Pipe(file=file, width=width, highlight=False, markup=False, emoji=False)


def _is_any_terminal() -> bool:
    """Tell whether somebody reads along: of ``critpath ... | less`` stderr is a terminal."""
    return any(os.isatty(descriptor) for descriptor in range(3))


class _LogStream:
    """A stream whose lines mean nothing to a CI system: a name may stand at a line's begin.

    A table's cells are filled with blanks, which a pipe's reader need not have at the end.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write whole lines, as a console does."""
        if not self._stream.isatty():
            text = _TRAILING.sub("", text)
        return self._stream.write(log_text(name_places(text)))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


# Progress of long work, on a terminal only.


DELAY = 1.0  # seconds after which work counts as long


class Progress:
    """One line on stderr with the latest message, rewritten; silent if that is no terminal.

    It comes with work that takes long and is gone at its end.  Call it with a message:
    ``with Progress(quiet=False) as progress: progress("reading")``.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._on = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._lock = threading.Lock()
        self._message = "working"
        self._status: Status | None = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        if self._on:
            self._timer = threading.Timer(DELAY, self._start)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._on = False
            if self._status is not None:
                self._status.stop()
                self._status = None

    def __call__(self, message: str) -> None:
        """Show what is being done now."""
        with self._lock:
            self._message = safe_text(name_places(message))
            if self._status is not None:
                self._status.update(_line(self._message, self._status.console))

    def _start(self) -> None:
        from rich.console import Console  # noqa: PLC0415 - only for long work

        with self._lock:
            if self._on:
                console = Console(stderr=True)
                self._status = console.status(_line(self._message, console))
                self._status.start()


def _line(message: str, console: Console) -> Text:
    from rich.text import Text  # noqa: PLC0415 - only for long work

    text = Text(message)  # not a string: that would be read as markup
    # Beside the spinner; more would be a second line.
    text.truncate(max(console.width - 3, 1), overflow="ellipsis")
    return text


def as_asked(settings: Settings) -> str:
    """Return what a later command needs for its executions to be the same; "" for nothing."""
    given = settings.origins["execution"] == "command line"
    return f" --execution {shlex.quote(settings['execution'])}" if given else ""
