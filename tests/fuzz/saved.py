"""Target: what critpath saves itself, as if anybody had written it.

The first byte of an input says what the rest is (`KINDS`): a recording's manifest, a file
of paths, a dataset's list, a baseline, a document of ``--json`` that ``critpath report``
renders, counts, a store's own file and an entry of one.  A file of paths also comes as changes
to the columns of a good one, because bytes of Parquet seldom get as far as to be wrong.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import struct
import sys
from functools import cache
from pathlib import Path
from typing import Final
from zlib import crc32

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

import pyarrow as pa
import pyarrow.parquet as pq
from contract import CODES, ContractError, hold, scratch
from reading import Way, check_paths, read_all

from critpath import flow
from critpath.commands import main
from critpath.errors import EXIT_ANOMALY, EXIT_OK
from critpath.known.entries import STORE_FORMAT, open_store
from critpath.read.counts import read_counts
from critpath.store.dataset import MANIFEST as LIST
from critpath.store.dataset import part_name

HERE: Final = Path(__file__).resolve().parent

ENTRY: Final = "2026-05-03T14-02-11Z-9f3c01.json"
GIVEN: Final = HERE / "saved"
KINDS: Final = (
    *("manifest", "paths", "columns", "list", "baseline", "document"),
    *("counts", "known", "entry"),
)
# Inputs whose rest is JSON: `mutating.py` changes it as such.
JSON: Final = frozenset({0, 3, 4, 5, 7, 8})
_CHANGE: Final = struct.Struct("<BBq")
_TEXTS: Final = ("", "worker", "RUN", "\x1b[31m", "a\u2028b", "x" * 200, "WAIT_DISK", "\u202eevil")


@cache
def recording() -> Path:
    """Make the directory of a recording whose manifest is what is tried."""
    place = scratch() / "recording"
    (place / "kernel").mkdir(parents=True)
    shutil.copy(HERE / "metadata" / "lttng-2.13.tsdl", place / "kernel" / "metadata")
    shutil.copy(HERE / "metadata" / "lttng-2.13.stream", place / "kernel" / "channel_0")
    return place


@cache
def directory() -> Path:
    """Make the directory of a dataset whose list is what is tried."""
    place = scratch() / "dataset"
    place.mkdir()
    shutil.copy(GIVEN / "paths.parquet", place / part_name(0))
    return place


@cache
def table() -> pa.Table:
    """Return the columns of a good file of paths."""
    return pq.read_table(GIVEN / "paths.parquet")


def command(*words: str) -> None:
    """Run critpath as a command line.

    Raises
    ------
    ContractError
        If it ends with a code that blames neither the input nor the words.
    """
    code, said = _run(*words)
    if code not in CODES | {EXIT_OK, EXIT_ANOMALY}:
        raise ContractError(f"critpath {words[0]} exits with {code}: {_run('--debug', *words)[1]}")
    if code in CODES and said.startswith("critpath: ") and len(said.rstrip("\n").split("\n")) != 2:
        raise ContractError(f"critpath {words[0]} does not say two lines: {said!r}")


def _run(*words: str) -> tuple[int, str]:
    shown, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(said):
        code = main(words)
    return code, said.getvalue()


def use_paths(source: Path, how: int) -> None:
    """Do with saved paths what commands do with them, the costly ones in turn."""
    command("report", str(source), "--format", ("text", "json")[how % 2])
    paths = flow.extract([source], specification=None)
    check_paths(paths)
    if how % 16 < 2 and len(paths) and len(paths.paths.begin) < 2000:
        command("compare", str(source), str(source), "--json", "-")


def changed(data: bytes) -> pa.Table:
    """Return the good columns with some of their values changed.

    Ten bytes are a change: column, row (or segment), value.
    """
    good = table()
    columns = {name: good.column(name).to_pylist() for name in good.column_names}
    names = list(columns)
    segments = columns["segments"]
    inner = list(segments[0][0])
    for at in range(0, len(data) - _CHANGE.size + 1, _CHANGE.size):
        column, row, value = _CHANGE.unpack_from(data, at)
        if column & 128:
            mine = segments[row % len(segments)]
            if not mine or column & 64:
                del mine[value % (len(mine) + 1) :]
                continue
            name = inner[column % len(inner)]
            one = mine[value % len(mine)]
            one[name] = _like(one[name], value >> 8)
        else:
            name = names[column % (len(names) - 1)]
            columns[name][row % len(segments)] = _like(columns[name][row % len(segments)], value)
    for mine in segments:
        for one in mine:
            one["cpu"] = (one["cpu"] + (1 << 31)) % (1 << 32) - (1 << 31)
    return pa.table(columns, schema=good.schema)


def _like(old: object, value: int) -> object:
    if isinstance(old, bool):
        return bool(value & 1)
    return _TEXTS[value % len(_TEXTS)] if isinstance(old, str) else value


def use_document(file: Path, how: int) -> None:
    """Render a document in every way there is, one of the costly ones at a time."""
    out = str(file.with_name("rendered"))
    if how % 5 == 4:
        command("report", str(file))
    else:
        command("report", str(file), ("--html", "--markdown", "--junit", "--json")[how % 5], out)


@cache
def store() -> Path:
    """Make the directory of a store whose own file or entry is what is tried."""
    place = scratch() / "seen.known"
    (place / "entries" / "nginx").mkdir(parents=True)
    return place


def use_store(kind: str, rest: bytes, how: int) -> None:
    """Do with a store what its readers do, with one of its two files as it is given."""
    own, entry = store() / "known.json", store() / "entries" / "nginx" / ENTRY
    own.write_bytes(rest if kind == "known" else json.dumps({"format": STORE_FORMAT}).encode())
    entry.unlink(missing_ok=True)
    if kind == "entry":
        entry.write_bytes(rest)
    open_store(store())
    command("known", ("list", "check", "groups")[how % 3], str(store()))


def one(data: bytes) -> str:
    """Try one input."""
    if not data or data[0] >= len(KINDS):
        return "nothing"
    kind, rest = KINDS[data[0]], data[1:]
    # Any number of the input will do; one that is another for nearly every input.
    how = crc32(rest)
    if kind == "manifest":
        (recording() / "critpath.json").write_bytes(rest)
        return hold(lambda: read_all(recording(), Way(5)))
    if kind == "list":
        (directory() / LIST).write_bytes(rest)
        return hold(lambda: use_paths(directory(), how))
    file = scratch() / kind
    if kind == "columns":
        pq.write_table(changed(rest), file)
    else:
        file.write_bytes(rest)
    use = {
        "document": lambda: use_document(file, how),
        "counts": lambda: read_counts(file),
        "known": lambda: use_store(kind, rest, how),
        "entry": lambda: use_store(kind, rest, how),
    }
    return hold(use.get(kind, lambda: use_paths(file, how)))


def json_begins(data: bytes) -> int:
    """Return where an input's JSON begins, -1 if it has none."""
    return 1 if data and data[0] in JSON else -1
