"""``--execution requests``: what is understood, and what is said of what is not."""

from __future__ import annotations

import re

import pytest

from critpath.errors import UsageError
from critpath.executions.specification import parse_specification


def test_all_requests():
    found = parse_specification("requests")
    assert found.kind == "requests"
    assert found.requests.ports == frozenset()
    assert parse_specification("requests:?").requests.listing


def test_every_option():
    found = parse_specification(
        "requests:port=80|443,comm=nginx,pid=7,path=/run/x.sock,ns=4026531836,cgroup=/a/b,"
        "peer=external,top,skip=2,min=1.5ms,role=first"
    )
    asked = found.requests
    assert asked.ports == {80, 443}
    assert (asked.comm, asked.pid, asked.path) == ("nginx", 7, "/run/x.sock")
    assert (found.where.ns, found.where.cgroup) == (4026531836, "/a/b")
    assert (asked.peer, asked.top, asked.skip, asked.least) == ("external", True, 2, 1_500_000)
    assert asked.first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("requests:", "not an option of requests: (nothing)"),
        ("requests:prot=80", "not an option of requests: prot=80"),
        ("requests:port", "not an option of requests: port"),
        ("requests:top=1", "not an option of requests: top=1"),
        ("requests:port=70000", "port= is not a number of 0 to 65,535: 70000"),
        ("requests:port=80|", "port= is not a number of 0 to 65,535: (nothing)"),
        ("requests:port=-1", "port= is not a number of 0 to 65,535: -1"),
        ("requests:pid=x", "pid= is not a number of 0 to 4,194,304: x"),
        ("requests:peer=far", "peer= is none of any, external, local: far"),
        ("requests:min=5", "min= is not a duration: 5"),
        ("requests:port=1,port=2", "port is given twice"),
    ],
)
def test_what_is_not_understood(text, message):
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        parse_specification(text)
    assert caught.value.what.startswith(message)
    assert caught.value.do


def test_a_misspelt_option_is_named():
    with pytest.raises(UsageError) as caught:
        parse_specification("requests:prot=80")
    assert caught.value.do == "did you mean port=?"
