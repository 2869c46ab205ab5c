"""Inputs that fuzzing kept, and every one that broke something, with the ordinary build."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[2] / "fuzz"
TARGETS = ("metadata", "streams", "saved", "sockets", "stacks", "foreign", "told")
MIB = 1 << 20
# The promise of docs/fuzzing.md for each input; a process that replays all of them keeps it.
MOST_MEMORY = 512 * MIB
LARGEST_CORPUS = 1_500_000
# So many of the inputs that fuzzing kept are tried by day, all that broke something, and by
# night every one.
BY_DAY = 100

REPLAY = """
import importlib, json, re, sys
from collections import Counter
from pathlib import Path
sys.path[:0] = sys.argv[1:2]
told = {}
for name, files in json.loads(sys.stdin.read()).items():
    target = importlib.import_module(name)
    outcomes, broken = Counter(), {}
    for path in map(Path, files):
        try:
            outcomes[target.one(path.read_bytes())] += 1
        except Exception as error:
            broken[path.name] = f"{type(error).__name__}: {error}"
    # The resource usage of a child begins with that of its parent.
    memory = 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
    told[name] = {"outcomes": outcomes, "broken": broken, "memory": memory}
print(json.dumps(told))
"""


def inputs(kind: str, target: str) -> list[Path]:
    return sorted((HERE / kind / target).glob("*"))


@pytest.fixture(
    scope="module", params=[BY_DAY, pytest.param(10**6, marks=pytest.mark.deep)], ids=["few", "all"]
)
def replayed(request: pytest.FixtureRequest) -> dict[str, tuple[int, dict]]:
    """Return of each target how many inputs it had, and what came of them in one process."""
    files = {}
    for target in TARGETS:
        kept = inputs("corpus", target)
        files[target] = kept[:: -(-len(kept) // request.param)] + inputs("crashes", target)
    done = subprocess.run(
        [sys.executable, "-c", REPLAY, str(HERE)],
        input=json.dumps(files, default=str),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    return {target: (len(files[target]), told[target]) for target in TARGETS}


@pytest.mark.parametrize("target", TARGETS)
def test_no_input_breaks_a_promise(replayed, target):
    count, found = replayed[target]
    assert count > 3
    assert not found["broken"]
    assert found["memory"] < MOST_MEMORY
    # Neither all nor nothing is refused: there is something to find in what is tried.
    assert found["outcomes"].get("accepted", 0) > 0
    assert sum(found["outcomes"].values()) == count


def test_the_corpus_stays_small():
    kept = [path for path in HERE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sum(path.stat().st_size for path in kept) < LARGEST_CORPUS


def test_a_broken_promise_is_seen():
    """The replay is no formality: what does not hold is told."""
    code = "import contract; contract.hold(lambda: 1 / 0)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=False
    )
    assert "ZeroDivisionError" in done.stderr
    code = "import contract; contract.SECONDS = 0; contract.hold(lambda: sum(range(10**5)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=False
    )
    assert "ContractError: took" in done.stderr
