"""The bench of the paper's monitors: laws in C are those in Python, monitors see what happens."""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from critpath.record.budget.account import Account
from critpath.record.budget.laws import Cascade, Global, Spent, Trim, find_level

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "evaluation" / "smco"))
import smco

# It compiles, and tests that trace this machine would see that.
pytestmark = pytest.mark.xdist_group("kernel")
MISSING = smco.what_is_missing()
needs_plugin = pytest.mark.skipif(bool(MISSING), reason=MISSING)
needs_compiler = pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is missing")


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


@needs_compiler
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


@needs_compiler
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


@needs_compiler
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


PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
int most = 0;
static int climb(int steps, int width) {
  int at = 0;
  for (int i = 0; i < steps; i++) { at += width; if (at > most) most = at; }
  return at;
}
int main(int count, char **words) {
  long sum = 0;
  int rounds = atoi(words[1]);
  for (int round = 0; round < rounds; round++) sum += climb(100 + round % 10, -3 + round % 7);
  printf("%ld %d %d\\n", sum, most, count);
  return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ranges")
    plugin = smco.build_plugin(out)
    (out / "climb.c").write_text(PROGRAM)
    monitor = smco.build_monitor(out)
    sources = ["gcc", "-O2", out / "climb.c"]
    smco.sh([*sources, "-o", out / "plain"], out)
    options = smco.with_plugin(plugin, out / "table")
    smco.sh([*sources, *options, "-c", "-o", out / "climb.o"], out)
    smco.sh(["gcc", out / "climb.o", *monitor, "-o", out / "watched"], out)
    return out


def run(out: Path, name: str, rounds: int, **env: str) -> tuple[str, dict[str, Any]]:
    result = out / f"{name}.result"
    result.unlink(missing_ok=True)
    given = {**os.environ, "SMCO_TABLE": str(out / "table"), "SMCO_RESULT": str(result), **env}
    done = subprocess.run(
        [out / name, str(rounds)], env=given, capture_output=True, text=True, check=True
    )
    return done.stdout, json.loads(result.read_text()) if result.exists() else {}


@needs_plugin
def test_ranges_of_variables_are_exact_where_all_is_monitored(program: Path) -> None:
    words = [line.split() for line in (program / "table").read_text().splitlines()]
    names = {w[3]: w[1] for w in words if w[0] == "variable"}
    said, found = run(program, "watched", 100, SMCO_CONTROLLER="all")
    assert said == run(program, "plain", 100)[0]
    climbing = sum(100 + r % 10 for r in range(100))
    assert found["ranges"][names["at"]] == [climbing + 100, -3 * 109, 3 * 109]
    assert found["ranges"][names["most"]][1:] == [1, 3 * 109]
    assert found["ranges"][names["round"]] == [101, 0, 100]


@needs_plugin
def test_a_closed_gate_runs_the_function_as_it_was(program: Path) -> None:
    said, found = run(program, "watched", 100, SMCO_CONTROLLER="none")
    assert said == run(program, "plain", 100)[0]
    assert found["events"] == 0
    assert found["calls"] == 101


@needs_plugin
@pytest.mark.parametrize("controller", smco.RANGES)
def test_what_is_charged_follows_the_target(program: Path, controller: str) -> None:
    _, found = run(program, "watched", 6_000_000, SMCO_CONTROLLER=controller, SMCO_TARGET="0.2")
    assert 0 < found["spent"] < 1.5 * 0.2 / 1.2 * found["cpu"] + 0.06


@needs_compiler
def test_allocations_that_nobody_touches_are_found_and_no_others(tmp_path: Path) -> None:
    library = smco.build_naps(tmp_path)
    program, result = tmp_path / "untouched", tmp_path / "result"
    smco.sh(["gcc", "-O2", smco.HERE / "naps/untouched.c", "-o", program], tmp_path)
    settings_ = {"SMCO_CONTROLLER": "fair", "SMCO_TARGET": "0.2", "SMCO_NAP": "0.3"}
    env = {**os.environ, **settings_, "SMCO_RESULT": str(result), "LD_PRELOAD": str(library)}
    subprocess.run([program, "0.7"], env=env, check=True, capture_output=True)
    rows = [json.loads(line) for line in result.read_text().splitlines()]
    seen = {row["allocation"] for row in rows if row.get("naps")}
    assert seen == set(range(0, 200, 10))


def test_a_missing_package_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    said = smco.what_is_missing()
    assert "apt-get install" in said
    assert "\n" not in said
