"""Baselines that somebody made by hand, as a CI cache or a merge request may bring: refused."""

from __future__ import annotations

import copy
import json
import re

import pytest

from critpath.errors import UnreadableError
from critpath.store.baseline import load_baseline

MIB = 1 << 20
EXECUTION = {"id": "a", "thread": 0, "begin": 0, "path": [0, 0, -1, 5]}
SESSION = {
    "sources": ["one"],
    "recorded": [""],
    "specification": "",
    "events": 1,
    "incomplete": 0,
    "notes": [],
    "warnings": [],
    "losses": [],
    "environment": [],
    "left_out": 0,
    "origin": 0,
    "means": [["total", 5, 5], ["RUN", 5, 5]],
    "kinds": [["RUN", ""]],
    "threads": [[1, 0, "a"]],
    "executions": [EXECUTION],
}
WHOLE = {
    "format": "critpath/baseline/1",
    "critpath": "0",
    "interrupts": False,
    "sessions": [SESSION],
}


def forged(tmp_path, keys=(), value=None):
    """Write a baseline in which one place has another value."""
    document = copy.deepcopy(WHOLE)
    at = document
    for key in keys[:-1]:
        at = at[key]
    if keys:
        at[keys[-1]] = value
    file = tmp_path / "b.json"
    file.write_text(json.dumps(document))
    return file


def test_the_forger_can_write_what_is_read(tmp_path):
    assert len(load_baseline(forged(tmp_path)).sessions) == 1


def places(of, at=()):
    """Yield every place in a document: of a list its first and its last."""
    if isinstance(of, dict):
        steps = [*of]
    else:
        steps = sorted({0, len(of) - 1}) if isinstance(of, list) and of else []
    for step in steps:
        yield (*at, step)
        yield from places(of[step], (*at, step))


def test_whatever_is_changed_is_told_by_the_digest(tmp_path):
    file = tmp_path / "b.json"
    load_baseline(forged(tmp_path)).save(file)
    whole = json.loads(file.read_text())
    assert re.fullmatch(r"[0-9a-f]{64}", whole["digest"])
    # Broken into lines in another way it is the same; without a digest it is an earlier one.
    file.write_text(json.dumps(whole, indent=8).replace("\n", "\r\n"))
    assert len(load_baseline(file).sessions) == 1
    file.write_text(json.dumps({k: v for k, v in whole.items() if k != "digest"}))
    assert len(load_baseline(file).sessions) == 1
    tried = [*places(whole)]
    assert len(tried) > 40
    for place in tried:
        document = copy.deepcopy(whole)
        at = document
        for key in place[:-1]:
            at = at[key]
        value = at[place[-1]]
        at[place[-1]] = value + 1 if type(value) is int else f"{value}x"
        file.write_text(json.dumps(document))
        with pytest.raises(UnreadableError):
            load_baseline(file)
    # What nothing else tells.
    for place, value in ((("critpath",), "9"), (("interrupts",), True), ((*X, "id"), "b")):
        document = copy.deepcopy(whole)
        at = document
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] = value
        file.write_text(json.dumps(document))
        with pytest.raises(UnreadableError, match="its digest is another one"):
            load_baseline(file)


S = ("sessions", 0)
X = (*S, "executions", 0)
FORGED = {
    "a negative duration": ((*X, "path"), [0, 0, -1, -5]),
    "a duration that overflows": ((*X, "path"), [0, 0, -1, 2**63 - 1]),
    "durations whose sum overflows": ((*X, "path"), [0, 0, -1, 2**62, 0, 0, -1, 2**62]),
    "more time than there is": ((*X, "path"), [0, 0, -1, 2**61]),
    "a sum over runs that overflows": (
        (*S, "executions"),
        [{**EXECUTION, "path": [0, 0, -1, 2**56]}] * 300,
    ),
    "an origin that overflows": ((*S, "origin"), 2**63 - 1),
    "an origin beyond integers": ((*S, "origin"), -(10**30)),
    "a begin beyond": ((*X, "begin"), 2**62),
    "a kind beyond the table": ((*X, "path"), [1, 0, -1, 5]),
    "a kind before the table": ((*X, "path"), [-1, 0, -1, 5]),
    "a thread beyond the table": ((*X, "path"), [0, 9**15, -1, 5]),
    "a cpu beyond": ((*X, "path"), [0, 0, 2**31, 5]),
    "a fraction": ((*X, "path"), [0, 0, -1, 5.0]),
    "no number": ((*X, "path"), [0, 0, -1, float("nan")]),
    "an endless number": ((*X, "begin"), float("inf")),
    "true for a number": ((*X, "begin"), True),
    "columns of unequal length": ((*X, "path"), [0, 0, -1]),
    "a mark beyond the path": ((*X, "lossy_segments"), [10**12]),
    "a wait longer elsewhere than here": ((*X, "elsewhere_idle"), [0, 10**12]),
    "half a pair": ((*X, "elsewhere_idle"), [0]),
    "half a pair of how surely": ((*X, "confidence"), [0]),
    "more than sure": ((*X, "confidence"), [0, 1.5]),
    "as sure as nothing": ((*X, "confidence"), [0, float("nan")]),
    "sure beyond the path": ((*X, "confidence"), [10**12, 0.5]),
    "a doubt of no time": ((*X, "uncertainty_ns"), [0, "x"]),
    "a doubt beyond times": ((*X, "uncertainty_ns"), [0, 2**62]),
    "a state beneath that is none": ((*X, "beneath"), {"SLEEPING": [0]}),
    "beneath beyond the path": ((*X, "beneath"), {"RUN": [10**12]}),
    "beneath without a state": ((*X, "beneath"), [0]),
    "a host that is an index of gigabytes": ((*S, "threads"), [[1, 2**40, "a"]]),
    "a thread beyond integers": ((*S, "threads"), [[2**64, 0, "a"]]),
    "a text as long as a book": ((*X, "id"), "x" * 100_001),
    "a loss at a time that none holds": (
        (*S, "losses"),
        [{"begin": 2**62, "end": 2**63 - 1, "host": 0, "cpu": 0, "events": 1, "packets": 0,
          "reason": ""}],
    ),
    "means of other executions": ((*S, "means"), [["total", 4, 4], ["RUN", 4, 4]]),
    "a state that is none": ((*S, "kinds"), [["SLEEP", ""]]),
    "a detail that is none": ((*S, "kinds"), [["RUN", {"others": True}]]),
    "a detail of no text": ((*S, "kinds"), [["RUN", {"call": 3}]]),
    "a thread that is none": ((*S, "kinds"), [["WAIT_CPU", {"peer_tid": 2**70}]]),
    "no sessions": (("sessions",), []),
    "a session that is none": (("sessions",), [[]]),
    "a later version": (("format",), "critpath/baseline/3"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_forged_numbers_and_texts(tmp_path, name):
    refused(forged(tmp_path, *FORGED[name]))


def refused(file):
    with pytest.raises(UnreadableError) as caught:
        load_baseline(file)
    assert caught.value.what.startswith(str(file))
    assert len(caught.value.what) < 500
    assert "\n" not in caught.value.what + caught.value.do
    return caught.value


@pytest.mark.parametrize(
    "text",
    [
        '{"format": "critpath/baseline/1", "format": "critpath/baseline/1"}',
        '{"format": ' + "[" * 200_000,
        '{"format": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"format": ' + "9" * 1_000_000 + "}",
        '{"format": "critpath/baseline/1", "sessions": ' * 5_000,
        "\ufeff{}",
        "[]",
        "null",
    ],
)
def test_json_that_is_none_or_more_than_json(tmp_path, text):
    (tmp_path / "b.json").write_text(text)
    refused(tmp_path / "b.json")


# What is small as a file, and was large in memory; a test of processes reads them.
BOMBS = {
    name: lambda file, many=many, text=text: file.write_text(
        f'{{"format": "critpath/baseline/1", "a": [{text * many}0]}}'
    )
    for name, many, text in (
        ("objects", 2_000_000, '{"a":1},'),
        ("lists", 5_000_000, "[],"),
        ("numbers", 6_000_000, "999,"),
    )
}
