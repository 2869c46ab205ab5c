"""Laws of overhead control in C, for the paper's monitors, are those in Python."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from critpath_record.budget.account import Account
from critpath_record.budget.laws import Cascade, Global, Spent, Trim, find_level

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "evaluation" / "smco"))
import smco

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is missing")


shares = st.floats(0.001, 0.6)
parts = st.floats(0, 1)


class CAccount(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_double) for name in ("share", "horizon", "credit", "last")),
        ("slots", ctypes.c_double * 20),
        ("slot", ctypes.c_long),
        ("first", ctypes.c_long),
        ("unit", ctypes.c_double),
    )


class CTrim(ctypes.Structure):
    _fields_ = (("total", ctypes.c_double), ("extra", ctypes.c_double))


class CPrimary(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_double) for name in ("share", "gain", "errors"))


@pytest.fixture(scope="module")
def laws(tmp_path_factory: pytest.TempPathFactory) -> Any:
    library = tmp_path_factory.mktemp("laws") / "controllers.so"
    source = smco.HERE / "controllers.c"
    subprocess.run(
        ["gcc", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-o", library, source], check=True
    )
    loaded = ctypes.CDLL(str(library))
    real = ctypes.c_double
    for name, result, arguments in (
        ("account_start", None, [ctypes.c_void_p, real, real]),
        ("account_size", real, [ctypes.c_void_p]),
        ("account_note", None, [ctypes.c_void_p, real, real, real]),
        ("account_decide", ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]),
        ("find_level", real, [ctypes.c_void_p, ctypes.c_int, real]),
        ("trim_adjust", None, [ctypes.c_void_p, real, ctypes.c_void_p, ctypes.c_int]),
        ("global_open", ctypes.c_int, [real, real, real]),
        ("secondary_delay", real, [real, real, real]),
        ("primary_adjust", None, [ctypes.c_void_p, real]),
        ("primary_level", real, [ctypes.c_void_p, ctypes.c_int]),
    ):
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def array(values: list[float]) -> Any:
    return (ctypes.c_double * len(values))(*values)


@settings(deadline=None)
@given(
    shares,
    st.floats(1, 20),
    st.floats(0, 0.3),
    st.lists(st.tuples(st.floats(-0.1, 9), parts, parts), max_size=60),
)
def test_an_account_in_c_is_the_account(
    laws: Any, share: float, horizon: float, unit: float, polls: list[tuple[float, float, float]]
) -> None:
    account, twin, now = Account(share, horizon), CAccount(), 0.0
    laws.account_start(ctypes.byref(twin), share, horizon)
    account.unit = twin.unit = unit
    for passed, part, rate in polls:
        now = max(0.0, now + passed)
        account.note(now, passed * part, passed * rate)
        laws.account_note(ctypes.byref(twin), now, passed * part, passed * rate)
        assert twin.credit == pytest.approx(account.credit, rel=1e-12, abs=1e-15)
        assert laws.account_size(ctypes.byref(twin)) == pytest.approx(account.size, rel=1e-12)
        assert laws.account_decide(ctypes.byref(twin), 1) == (twin.credit > 0)


@settings(deadline=None)
@given(shares, st.lists(st.floats(-0.1, 1), min_size=1, max_size=70), st.lists(parts, max_size=20))
def test_shares_in_c_are_the_shares(
    laws: Any, total: float, demands: list[float], observed: list[float]
) -> None:
    count, values = len(demands), array(demands)
    level = find_level(demands, total)
    assert laws.find_level(values, count, total) == level
    trim, twin = Trim(total), CTrim(total, 0.0)
    for part in observed:
        trim.adjust(part, demands)
        laws.trim_adjust(ctypes.byref(twin), part, values, count)
        assert twin.extra == trim.extra


@settings(deadline=None)
@given(
    shares,
    st.lists(st.tuples(st.floats(0.01, 0.5), st.lists(parts, min_size=3, max_size=3)), max_size=60),
)
def test_the_papers_laws_in_c_are_the_papers_laws(
    laws: Any, share: float, polls: list[tuple[float, list[float]]]
) -> None:
    names, chance = ("first", "second", "third"), random.Random(0)  # noqa: S311 - no secret
    globally = Global(share, 1.0, names, [1.0], chance)
    cascade = Cascade(share, 1.0, names, [1.0], chance)
    primary = CPrimary(share, 0.1 if share < 0.41 else 0.5, 0.0)
    now = since = all_busy = all_cost = busy_in = cost_in = 0.0
    closed = [0.0, 0.0, 0.0]
    opened: frozenset[str] = frozenset()
    for busy, rates in polls:
        now += busy
        costs = [
            busy * rate / 3 if n in opened else 0.0 for n, rate in zip(names, rates, strict=True)
        ]
        layers = {name: [cost] for name, cost in zip(names, costs, strict=True)}
        spent = Spent(now, busy, [busy], [sum(costs)], layers)
        all_busy, all_cost = all_busy + busy, all_cost + sum(costs)
        on = globally.decide(spent, opened)
        assert bool(on) == bool(laws.global_open(all_cost, all_busy, share))
        busy_in, cost_in = busy_in + busy, cost_in + sum(costs)
        if now - since >= 0.4:
            laws.primary_adjust(ctypes.byref(primary), cost_in / busy_in)
            since, busy_in, cost_in = now, 0.0, 0.0
        before = opened
        opened = cascade.decide(spent, opened)
        level = laws.primary_level(ctypes.byref(primary), 3)
        assert level == cascade.own_share
        for i, name in enumerate(names):
            closed[i] = max(0.0, closed[i] - busy)
            if name in before:
                closed[i] = laws.secondary_delay(costs[i], busy, level)
        wanted = {name for name, left in zip(names, closed, strict=True) if not left}
        assert opened == (wanted if "first" in wanted else set())


def test_a_missing_package_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    said = smco.what_is_missing()
    assert "apt-get install" in said
    assert "\n" not in said
