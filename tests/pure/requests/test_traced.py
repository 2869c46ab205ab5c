"""Whose calls are by the trace that both are part of."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import simulate

from critpath.model import Workers
from critpath.model.requests import Certainty, Rule
from critpath.requests.exact import settle_traced


def settle(requests, calls):
    """Return whose calls are.

    Requests are (trace, received, answered), calls (trace, begin); all of one thread.
    """
    served = simulate.fill(
        simulate.RequestTable,
        len(requests) + len(calls),
        endpoint=[0] * len(requests) + [2] * len(calls),
        received_ns=[of[1] for of in requests] + [of[1] for of in calls],
        answered_ns=[of[2] for of in requests] + [of[1] + 1 for of in calls],
        reader_tid=[7] * len(requests) + [8] * len(calls),
        trace_id=[of[0] for of in (*requests, *calls)],
        strings=("", "a", "b"),
    )
    ends = simulate.fill(simulate.Endpoints, 3, strings=("",))
    asked = simulate.fill(
        simulate.Subrequests,
        len(calls),
        endpoint=[1] * len(calls),
        begin_ns=[of[1] for of in calls],
        tid=[7] * len(calls),
        request=[-1] * len(calls),
        attribution=[Certainty.DOUBTFUL] * len(calls),
        child=np.arange(len(calls)) + len(requests),
        probability=[0] * len(calls),
    )
    none, tids = np.zeros(2, np.int64), np.array([7, 8])
    workers = Workers(none, tids, tids, *[none] * 6)
    return settle_traced(workers, ends, served, asked)


@pytest.mark.parametrize(
    ("requests", "calls", "owners"),
    [
        ([(1, 10, 50), (2, 10, 50)], [(2, 20), (1, 30)], [1, 0]),
        # The same trace asks again later: that which is under way is meant.
        ([(1, 10, 50), (1, 60, 90)], [(1, 20), (1, 70)], [0, 1]),
        # Two of one trace at once: it says nothing.
        ([(1, 10, 50), (1, 20, 90)], [(1, 30)], [-1]),
        # Who answers first and works later has answered.
        ([(1, 10, 20), (2, 10, 90)], [(1, 30)], [0]),
        # Before it was received nobody asks for it; no trace says nothing.
        ([(1, 40, 50)], [(1, 30), (0, 45)], [-1, -1]),
    ],
)
def test_whose_a_call_is_by_its_trace(requests, calls, owners):
    found = settle(requests, calls)
    assert found.request.tolist() == owners
    known = found.request >= 0
    assert (found.how[known] == Rule.TRACED).all()
    assert (found.attribution[known] == Certainty.CERTAIN).all()
    assert found.probability.tolist() == [float(own >= 0) for own in owners]
