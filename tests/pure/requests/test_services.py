"""Which calls lead to hosts that were not recorded."""

from __future__ import annotations

import numpy as np

from critpath.model.requests import Endpoints
from critpath.requests.find import find_topmost
from critpath.requests.services import _leads_elsewhere


def test_a_call_to_an_address_of_ones_own_is_not_to_another_host():
    strings = ("", "10.0.0.1", "127.0.0.1", "::1", "10.0.0.9", "/run/x")
    remote = [4, 2, 3, 1, 0, 4, 0]  # elsewhere; loopbacks; its own; not known; found; by a path
    nothing = np.zeros(7, np.int32)
    columns = dict.fromkeys(Endpoints.__dataclass_fields__, nothing)
    columns |= {"local_address": np.ones(7, np.int32), "remote_address": np.array(remote)}
    columns |= {"peer": np.array([-1, -1, -1, -1, -1, 3, -1]), "path": np.array([0] * 6 + [5])}
    found = _leads_elsewhere(Endpoints(**{**columns, "strings": strings}))
    assert found.tolist() == [True, *[False] * 6]


def test_requests_of_nobody_s_to_a_service_that_others_ask_are_not_topmost() -> None:
    """A query whose request is not known is no client's; a cron job beside is."""
    service = np.array([1, 1, 1, 2, 2, 2, 2, 3])
    parent = np.array([-1, -1, 7, 0, 1, -1, 0, -1])
    assert find_topmost(service, parent).tolist() == [1, 1, 0, 0, 0, 0, 0, 1]
    assert not len(find_topmost(service[:0], parent[:0]))
