"""``critpath known``: the team's store of what was seen before."""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from critpath import __version__
from critpath.commands.declared import JSON, SubVerb, flag, option
from critpath.commands.output import (
    STDOUT,
    Progress,
    check_outputs,
    hint,
    make_console,
    warn,
    write_output,
)
from critpath.commands.settings import SIGNING, Settings, whole
from critpath.commands.sources import check_inputs
from critpath.errors import (
    EXIT_ANOMALY,
    EXIT_INCONCLUSIVE,
    EXIT_OK,
    InconclusiveError,
    UsageError,
    name_places,
    with_sudo,
)
from critpath.extras import require
from critpath.units import NS_PER_S, plural, safe_text

if TYPE_CHECKING:
    from critpath.documents import CheckDocument, KnownEntry
    from critpath.known import Store
    from critpath.model import Counts, Manifest
    from critpath.signatures import SignSettings, Watch

# Exit codes of a search: nothing like it is 1, as `grep` has it.
CODES: Final[Mapping[str, int]] = {
    "known": EXIT_OK,
    "unknown": EXIT_ANOMALY,
    "inconclusive": EXIT_INCONCLUSIVE,
    "not comparable": EXIT_INCONCLUSIVE,
}
_MOST_WAITING: Final = 64  # intervals that were counted and are not looked up yet
_POLL: Final = 0.2  # s
_STALE: Final = 3  # intervals without a line
_READING: Final = ("execution", "reader", *(name for name in SIGNING if name != "weights"))


def _open(arguments: argparse.Namespace, settings: Settings) -> Store:
    from critpath.known import open_store  # noqa: PLC0415 - start-up time

    store = open_store(arguments.store, skip_bad=arguments.skip_bad)
    warn(store.notes, quiet=settings["quiet"])
    return store


def _sign_settings(arguments: argparse.Namespace, settings: Settings) -> SignSettings:
    from critpath.signatures import SignSettings  # noqa: PLC0415 - start-up time

    given = settings.origins["interval"] != "default"
    return SignSettings(
        by=arguments.by,
        interval=round(settings["interval"] * NS_PER_S) if given else 0,
        scope=settings["scope"],
        specification=settings["execution"],
        reader=settings["reader"],
    )


def _read(
    source: Path, arguments: argparse.Namespace, settings: Settings
) -> tuple[Counts | None, dict[str, float] | None, Manifest | None]:
    """Return the counts of a source, or the causes of a saved comparison; and its manifest."""
    check_inputs([source])
    if source.suffix == ".json" and source.is_file():
        from critpath.documents import ComparisonDocument  # noqa: PLC0415 - start-up time
        from critpath.report.document import load_document  # noqa: PLC0415 - start-up time
        from critpath.signatures import find_causes  # noqa: PLC0415 - start-up time

        document = load_document(source.read_bytes())
        if not isinstance(document, ComparisonDocument):
            raise UsageError(f"{source}: no comparison", "make one with compare --json")
        roles = not getattr(arguments, "no_roles", False)
        return None, find_causes(document, roles=roles), None
    from critpath.flow import count_documents  # noqa: PLC0415 - start-up time
    from critpath.read import Recording  # noqa: PLC0415 - start-up time

    with Progress(quiet=settings["quiet"]) as progress:
        counts, notes = count_documents(source, _sign_settings(arguments, settings), progress)
    warn(notes, quiet=settings["quiet"])
    manifest = Recording(source).manifest if source.is_dir() else None
    return counts, None, manifest


def _add(arguments: argparse.Namespace, settings: Settings) -> int:
    from critpath.known import add_entry, check_label, is_store, open_store  # noqa: PLC0415 - start-up time
    from critpath.signatures import make_entry  # noqa: PLC0415 - start-up time

    check_label(arguments.label)
    if not arguments.store.name.endswith(".known") and not is_store(arguments.store):
        raise UsageError(
            f"{arguments.store}: a store's name ends in .known", f"{arguments.store}.known"
        )
    store = (
        open_store(arguments.store, skip_bad=arguments.skip_bad)
        if (is_store(arguments.store))
        else None
    )
    counts, causes, manifest = _read(arguments.source, arguments, settings)
    normal = None
    if arguments.normal is not None:
        if counts is None:
            raise UsageError("a saved comparison has its normal side", "leave --normal out")
        normal = _read(arguments.normal, arguments, settings)[0]
        if normal is None:
            raise UsageError(f"{arguments.normal}: no recording", "name a recording")
    entry = make_entry(
        arguments.label,
        counts,
        note=arguments.note,
        link=arguments.link,
        normal=normal,
        causes=causes,
        manifest=manifest,
        anonymous=arguments.anonymous,
    )
    if not len(entry.counts) and not entry.causes:
        raise InconclusiveError(
            f"{arguments.source}: nothing in it to keep", "record for longer, or without loss"
        )
    added = add_entry(arguments.store, entry, store, force=arguments.force)
    sessions = 1 + sum(e.label == entry.label for e in (store.entries if store else ()))
    what = f"{plural(len(entry.counts), 'interval' if entry.counts.interval else 'document')}"
    if entry.normal is not None:
        of = name_places(str(arguments.normal))
        what += f", difference to {of} ({plural(len(entry.normal), 'interval')})"
    if entry.causes:
        what = f"{plural(len(entry.causes), 'term')} of causes"
    print(
        f"{safe_text(name_places(str(arguments.store)))}: {entry.label}, session {sessions}: {what}"
    )
    hint(f"kept as {safe_text(added.name)}", quiet=settings["quiet"])
    return EXIT_OK


def _search(arguments: argparse.Namespace, settings: Settings) -> int:
    from critpath.documents.known import KNOWN_FORMAT, KnownDocument  # noqa: PLC0415 - as above
    from critpath.signatures import search  # noqa: PLC0415 - start-up time
    from critpath.text.known import describe_answer  # noqa: PLC0415 - as above

    require("known search", "known")
    check_outputs([arguments.json], [arguments.source])
    store = _open(arguments, settings)
    counts, causes, _ = _read(arguments.source, arguments, settings)
    normal = None
    if arguments.normal is not None:
        normal = _read(arguments.normal, arguments, settings)[0]
    entry = search(
        *(store, counts, normal, causes),
        level=settings["known-level"],
        best=arguments.best,
        classifier=arguments.classifier,
    )
    if arguments.json:
        from critpath.report.document import to_json  # noqa: PLC0415 - start-up time

        document = KnownDocument(KNOWN_FORMAT, __version__, str(arguments.source), entry)
        write_output(arguments.json, to_json(document) + "\n")
    if arguments.json != STDOUT:
        for line in describe_answer(entry):
            print(line)
        _print_matches(entry)
        if entry.answer == "unknown":
            hint(
                f"label it with: critpath known add {arguments.store} {arguments.source} "
                "--label NAME",
                quiet=settings["quiet"],
            )
    return CODES[entry.answer]


def _watch(arguments: argparse.Namespace, settings: Settings) -> int:
    """Count until a signal comes, the group is gone, or the label is there that must not be."""
    from critpath.errors import CritpathError  # noqa: PLC0415 - with what follows
    from critpath_record import COMMAND, doctor  # noqa: PLC0415 - start-up time

    require("known watch", "known")
    check_outputs([arguments.json], [])
    store = _open(arguments, settings)
    labels = {entry.label for entry in store.entries if entry.kind == "state"}
    if not labels:
        raise InconclusiveError(
            f"{arguments.store}: has no states to look up",
            "add recordings: critpath known add STORE SOURCE --label NAME",
        )
    if arguments.fail_on and arguments.fail_on not in labels:
        raise UsageError(
            f"{arguments.store}: no label {safe_text(arguments.fail_on)!r:.80} of a state",
            f"see critpath known list {arguments.store}",
        )
    if settings["scope"] == COMMAND:
        raise UsageError("no command is run to be counted", "give machine, or a control group")
    lacking = [need for need in doctor(Path.cwd()).recorders["counts"] if need.fatal]
    if lacking and arguments.events != "free":
        raise CritpathError(lacking[0].what, f"{with_sudo('known watch ...')}, or --events free")
    stopping = threading.Event()
    with contextlib.ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.signal(number, lambda *_: stopping.set())
            stack.callback(signal.signal, number, before)
        write = stack.enter_context(_open_lines(arguments.json))
        return _count_and_say(arguments, settings, store, stopping, write)


def _count_and_say(
    arguments: argparse.Namespace,
    settings: Settings,
    store: Store,
    stopping: threading.Event,
    write: Callable[[str], None],
) -> int:
    from critpath.signatures import Watch  # noqa: PLC0415 - start-up time
    from critpath.text import known as words  # noqa: PLC0415 - as above
    from critpath_record import (  # noqa: PLC0415 - start-up time
        MACHINE,
        Counting,
        CountsRequest,
    )

    lines: queue.Queue[Mapping[str, Any]] = queue.Queue(maxsize=_MOST_WAITING)
    left_out: list[int] = [0]

    def keep(line: Mapping[str, Any]) -> None:
        try:
            lines.put_nowait(line)
        except queue.Full:
            left_out[0] += 1

    interval = settings["interval"]
    scope = settings["scope"] or MACHINE
    counting = Counting(
        CountsRequest(round(interval * NS_PER_S), arguments.events, scope), keep, ""
    )
    counting.open()
    code: int | None = None
    try:
        warn(counting.warnings, quiet=settings["quiet"])
        watch = Watch(store, lines.get(), level=settings["known-level"], fail_on=arguments.fail_on)
        heard, stale = time.monotonic(), False
        while not stopping.is_set() and code is None:
            with contextlib.suppress(queue.Empty):
                _say_watched(watch, lines.get(timeout=_POLL), arguments, write)
                heard, stale = time.monotonic(), False
                code = EXIT_ANOMALY if arguments.fail_on and watch.must_fail else None
            silent = time.monotonic() - heard
            if counting.failure is not None:
                raise counting.failure
            if counting.gone:
                warn([words.describe_gone(watch.scope)], quiet=False)
                code = EXIT_INCONCLUSIVE
            elif not stale and silent > _STALE * interval + 1:
                stale = True
                warn([words.describe_stale(silent)], quiet=False)
    finally:
        counting.abort()
    if arguments.json != STDOUT:
        print(words.describe_watched(watch.seen, watch.lossy, left_out[0]), flush=True)
    return EXIT_OK if code is None else code


@contextlib.contextmanager
def _open_lines(place: str | None) -> Iterator[Callable[[str], None]]:
    """Yield what writes a line at once; nothing where none is wanted."""
    if place is None:
        yield lambda _: None
    elif place == STDOUT:
        yield lambda line: print(line, flush=True)
    else:
        with Path(place).open("w", encoding="utf-8", buffering=1) as stream:
            yield lambda line: print(line, file=stream)


def _say_watched(
    watch: Watch,
    line: Mapping[str, Any],
    arguments: argparse.Namespace,
    write: Callable[[str], None],
) -> None:
    from critpath.documents.known import KNOWN_FORMAT, KnownDocument  # noqa: PLC0415 - start-up time
    from critpath.report.document import to_plain  # noqa: PLC0415 - start-up time
    from critpath.text.known import describe_answer  # noqa: PLC0415 - as above

    entry, changed = watch.add(line)
    now = datetime.now(UTC)
    if arguments.json:
        when = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        document = KnownDocument(KNOWN_FORMAT, __version__, watch.scope, entry, when)
        write(json.dumps(to_plain(document), separators=(",", ":")))
    if changed and arguments.json != STDOUT:
        head, *more = describe_answer(entry)
        said = f"{head}: {more[0]}" if more and not entry.matches else head
        print(f"{now.astimezone():%H:%M:%S} {said}", flush=True)


def _print_matches(entry: KnownEntry) -> None:
    from rich.table import Table  # noqa: PLC0415 - start-up time

    if len(entry.matches) < 2:
        return
    table = Table(box=None, pad_edge=False, header_style="")
    for name in ("label", "by"):
        table.add_column(name)
    for name in ("similarity", "distance", "sessions"):
        table.add_column(name, justify="right")
    table.add_column("last")
    for match in entry.matches:
        table.add_row(
            *(safe_text(match.label), match.part, f"{match.similarity:.2f}"),
            *(f"{match.distance:.2f}", f"{match.sessions:,}", match.recorded[:10]),
        )
    make_console().print(table)


def _list(arguments: argparse.Namespace, settings: Settings) -> int:
    from rich.table import Table  # noqa: PLC0415 - start-up time

    store = _open(arguments, settings)
    table = Table(box=None, pad_edge=False, header_style="")
    if arguments.label:
        table.add_column("session")
        table.add_column("kind")
        table.add_column("documents", justify="right")
        table.add_column("note")
        mine = [entry for entry in store.entries if entry.label == arguments.label]
        if not mine:
            raise UsageError(
                f"{store.path}: no label {safe_text(arguments.label)!r:.80}",
                f"see critpath known list {store.path}",
            )
        for entry in mine:
            table.add_row(
                *(safe_text(entry.name), entry.kind, f"{len(entry.counts):,}"),
                safe_text(entry.note),
            )
    else:
        for name in ("label", "kind"):
            table.add_column(name)
        for name in ("sessions", "documents"):
            table.add_column(name, justify="right")
        table.add_column("last")
        table.add_column("note")
        for label in dict.fromkeys(entry.label for entry in store.entries):
            mine = [entry for entry in store.entries if entry.label == label]
            note = next((e.note for e in mine[::-1] if e.note), "")
            table.add_row(
                *(label, mine[0].kind, f"{len(mine):,}"),
                *(f"{sum(len(e.counts) for e in mine):,}", max(e.recorded for e in mine)[:10]),
                safe_text(note),
            )
    make_console().print(table)
    return EXIT_OK


def _show(arguments: argparse.Namespace, settings: Settings) -> int:
    from critpath.signatures import describe_label  # noqa: PLC0415 - start-up time

    store = _open(arguments, settings)
    for line in describe_label(store, arguments.label):
        print(line)
    return EXIT_OK


def _check(arguments: argparse.Namespace, settings: Settings) -> int:
    from critpath.report.document import to_json  # noqa: PLC0415 - start-up time
    from critpath.signatures import check  # noqa: PLC0415 - start-up time
    from critpath.text.known import describe_check  # noqa: PLC0415 - as above

    require("known check", "known")
    check_outputs([arguments.json, arguments.html], [])
    store = _open(arguments, settings)
    document = check(store, level=settings["known-level"])
    if document is None:
        raise InconclusiveError(
            f"{arguments.store}: has no states to tell apart",
            "add recordings: critpath known add STORE SOURCE --label NAME",
        )
    if arguments.json:
        write_output(arguments.json, to_json(document) + "\n")
    if arguments.html:
        from critpath.report.html import render_check  # noqa: PLC0415 - start-up time

        write_output(arguments.html, render_check(document))
    if STDOUT not in {arguments.json, arguments.html}:
        for line in describe_check(document):
            print(line)
        _print_confusion(document)
    return EXIT_OK


def _print_confusion(document: CheckDocument) -> None:
    from rich.table import Table  # noqa: PLC0415 - start-up time

    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("label")
    for name in ("sessions", "judged", "right", "unknown", "quiet"):
        table.add_column(name, justify="right")
    table.add_column("nearest, where it is wrong")
    for one in document.labels:
        wrong = sorted(
            ((n, label) for label, n in one.nearest.items() if label != one.label), reverse=True
        )
        table.add_row(
            *(one.label, f"{one.sessions:,}", f"{one.judged:,}"),
            f"{100 * one.right / one.judged:.1f} %" if one.judged else "–",
            f"{100 * one.unknown / one.judged:.1f} %" if one.judged else "–",
            f"{one.quiet:,}",
            ", ".join(f"{label} {n:,}" for n, label in wrong[:3]),
        )
    make_console().print(table)


def _groups(arguments: argparse.Namespace, settings: Settings) -> int:
    from critpath.signatures import group  # noqa: PLC0415 - start-up time

    require("known groups", "known")
    store = _open(arguments, settings)
    for line in group(store, arguments.method, arguments.clusters):
        print(line)
    return EXIT_OK


def _remove(arguments: argparse.Namespace, settings: Settings) -> int:
    gone = _open(arguments, settings).remove(arguments.names)
    print(f"removed {', '.join(map(safe_text, gone))}")
    return EXIT_OK


def _relabel(arguments: argparse.Namespace, settings: Settings) -> int:
    made = _open(arguments, settings).relabel(arguments.old, arguments.new)
    print(f"{plural(len(made), 'session')} called {arguments.new} now")
    return EXIT_OK


_STORE: Final = (
    option("store", "STORE", "a store, NAME.known", Path),
    flag("--skip-bad", "leave damaged entries out, and say which"),
)
_SOURCE: Final = option("source", "SOURCE", "a recording or trace, a file of critpath signature, "
    "or of compare --json", Path)  # fmt: skip
_BY: Final = option("--by", None, "what a document is: an interval of time, or a run",
    default="interval", choices=("interval", "execution"))  # fmt: skip

ACTIONS: Final = {
    "add": SubVerb("keep a recording, or what compare found, under a label", _add, (
        *_STORE,
        _SOURCE,
        option("--label", None, "what it is called", required=True),
        option("--note", None, "what others should know of it", default=""),
        option("--link", "URL", "where more is written of it", default=""),
        option("--normal", "SOURCE", "the same system as it is normally: what is kept is the "
            "difference, an incident", Path),
        flag("--force", "even if counted in another way"),
        flag("--anonymous", "without host and group"),
        flag("--no-roles", "causes without names of threads"),
        _BY,
    ), _READING),
    "search": SubVerb("say whether something was seen before", _search, (
        *_STORE,
        _SOURCE,
        option("--normal", "SOURCE", "look up how it differs from this", Path),
        option("-k --best", "K", "labels that are listed (5)", whole(1, 100), 5),
        option("--classifier", None, "how the label is chosen: nearest by drift distance, or a "
            "linear SVM", default="nearest", choices=("nearest", "svm")),
        JSON,
        _BY,
    ), (*_READING, "known-level")),
    "watch": SubVerb("count what the machine does now, and say when the answer changes", _watch, (
        *_STORE,
        option("--events", None, "what is counted, as of record", default="minimal",
            choices=("minimal", "broad", "all", "free")),
        option("--fail-on", "LABEL", "end with 1 once it is this, 5 times in 10", default=""),
        JSON,
    ), ("interval", "scope", "known-level")),
    "list": SubVerb("list labels, or a label's sessions", _list, (
        *_STORE, option("label", None, "of this label", default="", nargs="?"),
    )),
    "show": SubVerb("show a label's usual terms, notes and links", _show, (
        *_STORE, option("label", None, "a label"),
    )),
    "check": SubVerb("say what the store can tell apart, and how often it is wrong", _check, (
        *_STORE, JSON, option("--html", "FILE", "write a page (- for stdout)"),
    ), ("known-level",)),
    "groups": SubVerb("say which labels are alike, and which documents belong together", _groups, (
        *_STORE,
        option("--clusters", "K", "groups to make (default: where the tree has its largest gap)",
            whole(1, 1_000)),
        option("--method", None, "tree: of labels; the others group documents, and are held "
            "against the labels", default="tree",
            choices=("tree", "k-means", "ward", "single", "complete", "average", "optics")),
    )),
    "remove": SubVerb("remove a label, or a session", _remove, (
        *_STORE, option("names", "NAME", "a label, or LABEL/FILE", nargs="+"),
    )),
    "relabel": SubVerb("give a label, or a session, another name", _relabel, (
        *_STORE,
        option("old", "OLD", "a label, or LABEL/FILE"),
        option("new", "NEW", "the new label"),
    )),
}  # fmt: skip
