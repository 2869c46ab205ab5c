"""The line of an incident says whose, how much and why, each once."""

from __future__ import annotations

from typing import Any

import pytest

from critpath.documents import IncidentDocument
from critpath.documents.incidents import DumpEntry, TriggerEntry, UsualEntry
from critpath.text.incidents import describe_incident


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (
            {"program": "web", "kind": "GET /cart", "p99": [38e6, 1.9e9]},
            "NOW h web GET /cart p99 38.0 ms → 1.90 s: they wait",
        ),
        (
            {"program": "web", "kind": "web:80", "p95": [1e6, 2e6], "p99": [9e6, 8e6]},
            "NOW h web:80 p95 1.00 ms → 2.00 ms: they wait",
        ),
        (
            {"container": "shop", "program": "web", "verdict": "by_machine"},
            "NOW h shop web: by the machine: they wait",
        ),
        (
            {"container": "pod shop/web-*", "program": "web", "kind": "web:80 (pod shop/web-*)"},
            "NOW h web:80 (pod shop/web-*): they wait",
        ),
        ({"verdict": "inconclusive", "p99": [1e6, 9e6]}, "NOW h loss: they wait"),
        (
            {"known": "lock", "count": 2},
            "NOW h loss: they wait; seen before: lock (2 times, last T)",
        ),
        (
            {"when": "::error::\x1b[31m", "sentence": "a\n::stop::"},
            ": :error::\ufffd[31m h loss: a\ufffd::stop::",
        ),
    ],
)
def test_lines(more: dict[str, Any], line: str) -> None:
    one = IncidentDocument(
        **{
            "format": "critpath/incident/1",
            "version": "1",
            "id": "a",
            "when": "NOW",
            "last": "T",
            "count": 1,
            "host": "h",
            "trigger": TriggerEntry("loss"),
            "verdict": "anomaly",
            "code": 1,
            "sentence": "they wait",
            "usual": UsualEntry("usual"),
            "dump": DumpEntry("/d", 1),
            **more,
        }
    )
    assert describe_incident(one) == line
