"""Requests of what is written to an object store fail: ``asking.py`` says what is right.

All of them, in each way, are ``evaluation/recording/writer_faults.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from asking import HOW, Store, Trials, make_askers


@pytest.fixture(scope="module")
def store():
    made = Store()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("name", "site"),
    [
        # The list of a dataset goes first and comes last; of two files one is there already.
        ("export dataset, again", "PUT /kept/set/_critpath.json   copy"),
        ("compare, page and JSON, again", "PUT /kept/a.html  "),
        ("compare, page and JSON", "PUT /kept/a.html  "),
    ],
)
def test_what_a_store_refuses_in_the_middle_leaves_what_was_there(store, tmp_path, name, site):
    [asker] = [of for of in make_askers(tmp_path) if of.name == name]
    trials = Trials(store, asker, tmp_path)
    pairs = [pair for pair in trials.pairs if (pair.site, HOW[pair.code]) == (site, "busy")]
    assert pairs, {pair.site for pair in trials.pairs}
    assert trials.judge(pairs[0]) == (True, [])
