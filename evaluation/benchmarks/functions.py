"""What an entry or exit of a Python function costs: native callbacks, and those in Python.

``python evaluation/benchmarks/functions.py [ROUNDS [MOST]]`` asks every Python from 3.12 on that
is here, or so many of them, in alternation: a loop that does nothing but call, which is what the
agent measures at start, and a program (an encoder that makes text of nested lists), whose caches
are colder.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

AGENT, NATIVE = (
    importlib.util.find_spec(f"critpath.functions.{name}").origin for name in ("agent", "_ring")
)
PROGRAM = """
import json, sys, time
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("agent", {agent!r})
agent = module_from_spec(spec)
sys.modules["agent"] = agent
spec.loader.exec_module(agent)
def called(): pass
def loop():
    for _ in range(200_000): called()
    return 400_000
tree = [[[str(i) * (i % 7) for i in range(j % 9)] for j in range(30)] for _ in range(60)]
events = 0
def encode(node):
    global events
    events += 2
    return quote(node) if isinstance(node, str) else "[" + ", ".join(map(encode, node)) + "]"
def quote(text):
    global events
    events += 2
    return '"' + text.replace("\\\\", "\\\\\\\\").replace('"', '\\\\"') + '"'
def program():
    global events
    events = 0
    for _ in range(20): encode(tree)
    return events
def took(work):
    before = time.process_time_ns()
    done = work()
    return (time.process_time_ns() - before), done
result = {{}}
for work in (loop, program): took(work)
for work in (loop, program): result[work.__name__] = [min(took(work)[0] for _ in range(3))]
assert agent.start()
for work in (loop, program): took(work)
for work in (loop, program):
    with_ = min(took(work) for _ in range(3))
    result[work.__name__] += with_
print(json.dumps(result))
"""


def find_pythons() -> list[str]:
    """Return a Python of each version from 3.12 on that is here."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found: dict[int, str] = {}
    for minor in (12, 13):
        for place in (*pyenv.glob(f"3.{minor}.*/bin/python"), shutil.which(f"python3.{minor}")):
            code = "import sys; print(sys.version_info[1])"
            if place is None or minor in found:
                continue
            done = subprocess.run([place, "-c", code], capture_output=True, text=True, check=False)
            if done.stdout == f"{minor}\n":  # pyenv's stand-ins end in an error
                found[minor] = str(place)
    return list(found.values())


def measure(python: str, ring: str) -> dict[str, float]:
    """Return ns an event, by what was called."""
    with tempfile.TemporaryDirectory() as place:
        env = {
            **os.environ,
            "CRITPATH_FUNCTIONS": place,
            "CRITPATH_FUNCTIONS_NATIVE": ring,
            "CRITPATH_FUNCTIONS_SHARE": "100",
        }
        done = subprocess.run(
            [python, "-c", PROGRAM.format(agent=AGENT)],
            env=env, check=True, capture_output=True, text=True,
        )  # fmt: skip
    found = json.loads(done.stdout)
    return {
        name: (recorded - without) / events for name, (without, recorded, events) in found.items()
    }


def main(rounds: int = 7, most: int = 9) -> None:
    """Print what an event costs, by interpreter, ring and program."""
    rings = {"native": NATIVE, "python": "python"}
    pythons = find_pythons()[:most]
    rows: dict[tuple[str, str, str], list[float]] = {}
    for _ in range(rounds):
        for python in pythons:
            for ring, place in rings.items():
                for name, ns in measure(python, place).items():
                    rows.setdefault((Path(python).parts[-3], ring, name), []).append(ns)
    print(f"ns an event, {rounds} rounds: median (least to most); load {os.getloadavg()[0]:.1f}")
    for (python, ring, name), values in rows.items():
        spread = f"{min(values):.0f} to {max(values):.0f}"
        print(f"{python:8} {ring:7} {name:8} {statistics.median(values):6.0f} ({spread})")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
