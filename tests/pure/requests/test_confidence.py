"""``min_confidence``: requests are left out, counted, and too many of them are no verdict."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from critpath.detect.comparability import doubtful_requests
from critpath.errors import UsageError
from critpath.executions.specification import parse_specification
from critpath.requests.links import find_confidence
from critpath.schema.environment import read_environment
from critpath.text.notes import word_all

ARCHIVES = Path(__file__).resolve().parents[3] / "fixtures/hosts"


def test_a_request_is_as_sure_as_all_that_it_led_to():
    subs = SimpleNamespace(
        request=np.array([0, 0, 1, -1, 0]),
        child=np.array([1, -1, -1, -1, -1]),
        connects=np.array([0, 0, 0, 0, 1]),
        begin_ns=np.array([10, 30, 20, 25, 5]),
        probability=np.array([0.9, 0.5, 0.8, 0.1, 0.1]),
    )
    assert find_confidence(3, subs) == pytest.approx([0.9 * 0.5 * 0.8, 0.8, 1.0])


@pytest.mark.parametrize("text", ["2", "-1", "high", "0.9.9", "1e-3", "nan", "1.5", "\u0661"])
def test_what_is_no_share_is_refused(text):
    with pytest.raises(UsageError, match="min_confidence"):
        parse_specification(f"requests:min_confidence={text}")


@pytest.mark.parametrize(("text", "share"), [("0.9", 0.9), ("1", 1), ("0", 0), (".25", 0.25)])
def test_shares(text, share):
    assert parse_specification(f"requests:min_confidence={text}").requests.sure == share


def test_requests_are_left_out_and_counted(unpack, critpath):
    recording = unpack(ARCHIVES / "select1-2-8.tar.xz") / "select1-2-8/recording"

    def count(more):
        asked = f"requests:port=8000{more}"
        done = critpath("path", recording, "--execution", asked)
        assert done.returncode == 0, done.stderr
        return int(re.search(r"requests: (\d+) of", done.stderr)[1]), done.stderr

    every, said = count("")
    assert "below min_confidence" not in said
    sure, said = count(",min_confidence=0.99")
    assert 0 < sure <= every
    assert ("below min_confidence" in said) == (sure < every)


@pytest.mark.parametrize(("unsure", "said"), [(20, 0), (30, 1)])
def test_a_set_that_loses_more_than_a_fifth_is_no_verdict(unsure, said):
    fine = SimpleNamespace(environment=[read_environment({"requests": 100})])
    told = read_environment({"requests": 100 - unsure, "requests_unsure": unsure})
    lost = SimpleNamespace(environment=[told])
    found = doubtful_requests(fine, lost)
    assert len(found) == said
    assert all("min_confidence" in line and "after" in line for line in word_all(found))
