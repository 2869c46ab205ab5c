"""Tests stand in the folder of what they need, and what they may cost is counted."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).resolve().parents[1]
SUITES: Final = ("pure", "process", "kernel", "guest")
# What tests share, and programs that they start or fuzz; no tests, but for those of fuzzing.
SUPPORT: Final = ("oracle", "fuzz", "hosts", "played")

CLOCKS: Final = {
    f"time.{name}{unit}"
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    for unit in ("", "_ns")
} | {"time.clock_gettime", "time.clock_gettime_ns", "datetime.now", "date.today"}
SLEEPS: Final = {"time.sleep", "asyncio.sleep"}
STARTS: Final = {
    *(f"subprocess.{name}" for name in ("run", "Popen", "call", "check_call", "check_output")),
    *(f"os.{name}" for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system")),
    *("multiprocessing.Process", "context.Process", "ProcessPoolExecutor", "pty.fork"),
    # fixtures, which do the same
    *("critpath_process", "peak", "box.record", "box.popen"),
}
# Of all tests together, less the programs that are recorded (`hosts`, `guest/jobs`).
MOST_STARTS: Final = 160
MOST_SLEEPS: Final = 15


COUNTED: Final = STARTS | SLEEPS | CLOCKS


def name_of(node: ast.expr) -> str:
    """Return ``module.function`` or ``function`` of what is called."""
    if isinstance(node, ast.Attribute):
        before = name_of(node.value).rpartition(".")[2]
        return f"{before}.{node.attr}" if before else node.attr
    return node.id if isinstance(node, ast.Name) else ""


def imported_as(nodes: list[ast.AST]) -> dict[str, str]:
    """Return what names stand for that were imported: ``sleep`` for ``time.sleep``."""
    found = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {each.asname: each.name for each in node.names if each.asname}
        elif isinstance(node, ast.ImportFrom):
            found |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return found


@cache
def counted_calls(path: Path) -> list[tuple[int, str]]:
    """Return the calls that are counted: line, and the function's whole name."""
    text = path.read_text(encoding="utf-8")
    # Whatever it is called there, the words of its name stand in the file: few are parsed.
    words = {*re.findall(r"\w+", text)}
    if not any(words.issuperset(name.split(".")) for name in COUNTED):
        return []
    nodes = [*ast.walk(ast.parse(text))]
    names = imported_as(nodes)
    found = []
    for node in nodes:
        if isinstance(node, ast.Call):
            name = name_of(node.func)
            first, _, rest = name.partition(".")
            whole = f"{names.get(first, first)}.{rest}" if rest else names.get(name, name)
            if whole in COUNTED:
                found.append((node.lineno, whole))
    return found


def calls(path: Path, wanted: set[str]) -> list[str]:
    return [f"{path.name}:{line}: {name}" for line, name in counted_calls(path) if name in wanted]


def files_of(*folders: str) -> list[Path]:
    return sorted(p for folder in folders for p in (TESTS / folder).rglob("*.py"))


def test_every_test_has_a_suite():
    found = {p.relative_to(TESTS).parts[0] for p in TESTS.rglob("test_*.py")}
    assert found <= {*SUITES, "fuzz"}
    there = {p.name for p in TESTS.iterdir() if p.is_dir() and any(p.rglob("*.py"))}
    assert there <= {*SUITES, *SUPPORT}


def test_pure_tests_start_nothing_sleep_never_and_look_at_no_clock():
    wanted = STARTS | SLEEPS | CLOCKS
    assert [c for p in files_of("pure") for c in calls(p, wanted)] == []


def test_process_tests_look_at_no_clock():
    """They wait for what happens; only the one place that waits knows when to give up."""
    # Whether a test was in quarantine for too long is asked of today's date.
    files = [p for p in files_of("process") if p.name not in {"conftest.py", "test_quarantine.py"}]
    assert [c for p in files for c in calls(p, CLOCKS)] == []


@pytest.mark.parametrize(("wanted", "most"), [(STARTS, MOST_STARTS), (SLEEPS, MOST_SLEEPS)])
def test_what_all_tests_start_and_how_often_they_sleep_is_counted(wanted, most):
    files = [p for p in files_of(*SUITES, "oracle", "fuzz", "played") if p.parent.name != "jobs"]
    found = [c for p in [*files, TESTS / "conftest.py"] for c in calls(p, wanted)]
    assert len(found) <= most, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import time\ntime.sleep(1)", True),
        ("from time import sleep\nsleep(1)", True),
        ("import time as clock\nclock.sleep(1)", True),
        ("from subprocess import run as start\nstart([])", True),
        ("import os\nos.fork()", True),
        ("def test(critpath_process):\n    critpath_process('path')", True),
        ("def run(): pass\nrun()", False),
        ("text = 'time.sleep(1)'", False),
    ],
)
def test_these_tests_can_fail(tmp_path, text, found):
    place = tmp_path / "test_x.py"
    place.write_text(text)
    assert bool(calls(place, STARTS | SLEEPS)) == found
