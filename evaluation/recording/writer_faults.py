"""Every system call of all that writes fails once, with each error that it can have.

    python evaluation/recording/writer_faults.py [PART] [PATTERN]

So many as PART, or all of them (0), of the calls of each writer that PATTERN is found in:
``^known``.  ``tests/process/store/trying.py`` says what is right after each, ``writers.py`` what
writes: saved paths and datasets, exports, reports, baselines, known stores, incidents and what is
usual, dumps of a flight recorder, metrics, costs, caches, conversions, what a wheel brings; and
``asking.py`` what writes to an object store, where it is a request that fails.  All of them take
some hours of a cpu; ``test_faults.py`` and ``test_asking.py`` try a few.  A line for each writer,
and one for all.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import chain
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "process" / "store"))
from asking import try_askers
from trying import Row, try_writers


def describe(rows: list[Row]) -> str:
    """Return the line that says it all."""
    calls, pairs, tried, met, wrong = (
        sum(column)
        for column in zip(
            *((r.calls, r.pairs, r.tried, r.met, len(r.wrong)) for r in rows), strict=True
        )
    )
    return (
        f"{len(rows)} writers, {calls:,} calls, {pairs:,} errors of them, {tried:,} tried, "
        f"{met:,} met: {wrong:,} third states or wrong answers"
    )


def main() -> int:
    """Try all, and print what was found."""
    part = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    pattern = sys.argv[2] if len(sys.argv) > 2 else ""
    memory = "/dev/shm"  # noqa: S108 - a directory of its own is made below it
    inside = memory if Path(memory).is_dir() else None
    rows = []
    with (
        tempfile.TemporaryDirectory(prefix="critpath-faults-", dir=inside) as place,
        tempfile.TemporaryDirectory(prefix="critpath-asking-") as beside,
    ):
        for row in chain(
            try_writers(Path(place), part, pattern), try_askers(Path(beside), part, pattern)
        ):
            rows.append(row)
            print(describe([row]).replace("1 writers", row.writer), flush=True)
            for one in row.wrong:
                print(f"  {one}", flush=True)
    print(describe(rows))
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    sys.exit(main())
