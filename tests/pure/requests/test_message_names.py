"""Requests are called by the labels of what was received for them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import simulate

from critpath.model.requests import Activity, Collected
from critpath.requests.endpoints import EndpointColumn
from critpath.requests.links import name_labels
from critpath.requests.turns import MOST_LABELS, keep_common, name_messages

TRACE = (0x4BF92F3577B34DA6, 0xA3CE929D0E0E4736 - (1 << 64))  # as a trace has them: signed


def requests_of(sockets, spans):
    """Requests of endpoints 0, 1, ... with these sockets, each (endpoint, begin, end)."""
    endpoints = np.zeros((len(sockets), len(EndpointColumn)), np.int64)
    endpoints[:, EndpointColumn.SOCKET] = sockets
    columns = np.array(spans, np.int64).reshape(-1, 3)
    zeros = np.zeros(len(columns), np.int32)
    table = simulate.fill(
        simulate.RequestTable,
        len(columns),
        endpoint=columns[:, 0],
        begin_ns=columns[:, 1],
        end_ns=columns[:, 2],
        service=zeros + 1,
        label=zeros + 1,
        message=zeros,
        trace_id=zeros,
        strings=("", "app:80"),
    )
    return table, endpoints


def collected(endpoints, messages):
    none = np.zeros(0, np.int64)
    acts = Activity(none, none.astype(np.uint8), none, none, none, none)
    return Collected(acts, endpoints, (), 0, messages)


def called(table):
    return [table.strings[code] for code in table.message.tolist()]


def test_a_request_is_called_by_the_first_label_within_it():
    table, endpoints = requests_of(
        [70, 71, 70], [(0, 100, 200), (0, 300, 400), (1, 100, 200), (2, 500, 600), (0, 700, 800)]
    )
    messages = [
        (90, 0, 70, 0, 0, "GET /before"),
        (110, 0, 70, *TRACE, "GET /a"),
        (110, 0, 71, 0, 0, "SET"),
        (110, 1, 71, 0, 0, "of another host"),
        (120, 0, 70, 0, 0, "GET /its/body"),
        (250, 0, 70, 0, 0, "GET /between"),
        (350, 0, 70, 0, 0, "GET /b"),
        (510, 0, 70, 0, 0, "GET /of/the/next/life"),
    ]
    named = name_messages(table, collected(endpoints, messages))
    assert called(named) == ["GET /a", "GET /b", "SET", "GET /of/the/next/life", ""]
    assert [named.strings[code] for code in named.trace_id.tolist()] == [
        *("4bf92f3577b34da6a3ce929d0e0e4736", "", "", "", "")
    ]


def test_without_labels_nothing_changes():
    table, endpoints = requests_of([70], [(0, 100, 200)])
    assert name_messages(table, collected(endpoints, ())) is table


def test_labels_are_the_service_and_what_it_was_asked():
    table, endpoints = requests_of([70, 71], [(0, 100, 200), (1, 100, 200)])
    messages = [(110, 0, 70, 0, 0, "GET /a")]
    named = name_messages(table, collected(endpoints, messages))
    asked = simulate.fill(simulate.Subrequests, 0)
    ends = simulate.fill(simulate.Endpoints, 2)
    label, strings = name_labels(ends, named, asked)
    assert [strings[code] for code in label.tolist()] == ["app:80 GET /a", "app:80"]


def test_of_many_labels_the_rare_ones_are_their_first_word():
    many = [f"GET /user/{number}" for number in range(500)]
    labels = ["GET /home"] * 50 + many + ["SET"] * 3
    kept = keep_common(labels, [1] * len(labels))
    assert kept[:50] == ["GET /home"] * 50
    assert kept[-3:] == ["SET"] * 3
    assert len(set(kept)) == MOST_LABELS + 1
    assert set(kept) - set(labels) == {"GET …"}
    # What has no label gets none, however many others there are.
    assert keep_common(labels * 2 + [""] * 3, [1] * (2 * len(labels) + 3))[-3:] == [""] * 3
