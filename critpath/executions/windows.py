"""Executions that a file lists: ``begin_ns,end_ns,tid,label``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from critpath.errors import UnreadableError
from critpath.executions.scheduling import Scheduling
from critpath.model import Events, Executions
from critpath.units import plural, safe_text

REQUIRED: Final = ("begin_ns", "end_ns", "tid")
OPTIONAL: Final = ("label", "id", "host")
DO: Final = "write a CSV file with the header begin_ns,end_ns,tid,label (also: id, host)"

_LEAST = {"begin_ns": -(2**63), "end_ns": -(2**63), "tid": 1}


def find_windows(events: Events, file: Path) -> Executions:
    """Read the executions that a CSV file (RFC 4180, with a header) lists.

    Columns ``begin_ns``, ``end_ns`` (of the trace's clock) and ``tid`` are needed;
    ``label``, ``id`` and ``host`` (a host's name, needed if there are several) are
    optional; others are ignored and named in the notes.  A window that is not
    within the recording is left out and counted as incomplete.
    """
    rows, ignored = _read_file(file)
    notes = [f"{file.name}: columns ignored: {', '.join(ignored)}"] if ignored else []
    inside = []
    outside = 0
    hosts = {name: index for index, name in enumerate(events.hosts)}
    for line, row in rows:
        begin, end, tid = (_number(file, line, row, column) for column in REQUIRED)
        if end <= begin:
            raise _file_error(file, line, f"end_ns {end} is not after begin_ns {begin}")
        host = _host(file, line, row, hosts)
        if events.end > events.begin and not events.begin <= begin < end <= events.end:
            outside += 1
            continue
        inside.append((begin, end, tid, host, row.get("id") or "", row.get("label") or ""))
    if outside:
        notes.append(
            f"{plural(outside, 'window')} of {file.name} left out: not within the recording "
            f"({events.begin} to {events.end})"
        )
    inside.sort(key=lambda window: window[:4])
    table = np.array([window[:4] for window in inside], np.int64).reshape(-1, 4)
    # The last event before each window: its thread is called what it was called then.
    begin_rows = np.searchsorted(events.timestamp, table[:, 0]) - 1
    return Executions(
        id=tuple(window[4] or f"{window[2]}@{window[0]}" for window in inside),
        begin=table[:, 0],
        end=table[:, 1],
        tid=table[:, 2],
        host=table[:, 3],
        comm=tuple(Scheduling(events).names(table[:, 3], table[:, 2], begin_rows)),
        label=tuple(window[5] for window in inside),
        incomplete=outside,
        notes=tuple(notes),
    )


def _read_file(file: Path) -> tuple[list[tuple[int, dict[str, str]]], list[str]]:
    """Return every row with its line number, and the ignored columns."""
    import csv  # noqa: PLC0415 - start-up time

    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            header = [name.strip() for name in next(reader, [])]
            missing = [name for name in REQUIRED if name not in header]
            if missing:
                raise _file_error(file, 1, f"no column {', '.join(missing)} in the header")
            if len(set(header)) != len(header):
                raise _file_error(file, 1, "a column twice in the header")
            rows = []
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    problem = f"{len(cells)} cells, but {len(header)} columns in the header"
                    raise _file_error(file, reader.line_num, problem)
                rows.append((reader.line_num, dict(zip(header, cells, strict=True))))
            return rows, [name for name in header if name not in {*REQUIRED, *OPTIONAL}]
    except csv.Error as error:
        raise _file_error(file, reader.line_num, str(error)) from None
    except UnicodeDecodeError:
        raise UnreadableError(f"{file} is not UTF-8 text", DO) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UnreadableError(f"cannot read {file}: {reason}", DO) from None


def _file_error(file: Path, line: int, problem: str) -> UnreadableError:
    return UnreadableError(f"{file}:{line}: {problem}", DO)


def _number(file: Path, line: int, row: dict[str, str], column: str) -> int:
    text = row[column].strip()
    # int() would also take "1_000" and other scripts' digits.
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise _file_error(file, line, f"{column} is not an integer: {safe_text(text[:40])}")
    value = int(text)
    if not _LEAST[column] <= value < 2**63 or (column == "tid" and value >= 2**31):
        raise _file_error(file, line, f"{column} is out of range: {text}")
    return value


def _host(file: Path, line: int, row: dict[str, str], hosts: dict[str, int]) -> int:
    if "host" not in row:
        if len(hosts) > 1:
            raise _file_error(
                file, 1, "the recording has several hosts; the file has no column host"
            )
        return 0
    if row["host"] not in hosts:
        raise _file_error(file, line, f"no host {safe_text(row['host'][:64])} in the recording")
    return hosts[row["host"]]
