"""critpath with a recorder that records nothing: ``python with_fake_recorder.py record ...``.

What it does is set in the environment: FAKE_LOG (a file that its calls go to) and FAKE_STOPS, a
step in which it waits for an end that never comes, but by a signal.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from critpath.commands import entry, record
from critpath_record import registry

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tests.played.recorder import Plan, install


def wait() -> None:
    while True:
        signal.pause()


LOG = Path(os.environ["FAKE_LOG"])
stops = os.environ.get("FAKE_STOPS")
threads = 2 if os.geteuid() == 0 else 0  # which may raise their priority
plan = Plan(LOG, threads=threads, on={stops: wait} if stops else {})
install(plan)
registry._ROOT = LOG.with_suffix(".registry")  # type: ignore[misc]
record.survey_recorded = lambda _: ()  # what a fake writes is no trace

if __name__ == "__main__":
    entry()
