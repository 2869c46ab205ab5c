"""What runtimes say of their tasks where a recording asks, and that they say nothing elsewhere."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import textwrap
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest

import critpath_marks
from critpath.model import Workers
from critpath.requests.tasks import MADE, read_tasks

AGENTS = Path(critpath_marks.__file__).parent
ASYNCIO = """
    import asyncio
    async def child():
        await asyncio.sleep(0)
        return await asyncio.to_thread(lambda: 3)
    async def main():
        return await asyncio.create_task(child(), name="mine")
    print(asyncio.run(main()))
"""
NODE = """
    const http = require("http"), server = http.createServer((request, response) => {
        setImmediate(() => response.end("3"));
    }).listen(0, () => http.get({port: server.address().port}, (answer) => {
        answer.on("data", (text) => console.log(String(text)));
        answer.on("end", () => server.close());
    }));
"""


@pytest.fixture
def ask(tmp_path):
    def run(*command, asked=True):
        marker = tmp_path / "trace_marker"
        marker.write_bytes(b"")
        variables = {
            "PYTHONPATH": str(AGENTS / "started"),
            "NODE_OPTIONS": f'--require "{AGENTS}/tasks.js"',
            "CRITPATH_MARKER": str(marker),
        }
        variables |= {"CRITPATH_TASKS": "1"} if asked else {}
        done = subprocess.run(
            command, env={**os.environ, **variables}, capture_output=True, text=True, check=True
        )
        assert (done.stdout, done.stderr) == ("3\n", "")
        return marker.read_text().splitlines(keepends=True)

    return run


def read(lines):
    """Return the numbers of all notes, in order of time."""
    none = np.zeros(0, np.int64)
    workers = Workers(*(none,) * 3, none.astype(np.int32), *(none,) * 4, none.astype(np.int32))
    found = []
    for line in lines:
        data = b64decode(line.split()[-1])
        [last] = struct.unpack_from("<Q", data, len(data) - 12)  # a mark comes after its notes
        found += read_tasks([(last, 0, 1, line)], workers)[3].tolist()
    return found


def test_tasks_of_asyncio_and_their_helpers(ask):
    numbers = read(ask(sys.executable, "-c", textwrap.dedent(ASYNCIO)))
    made = [n - MADE for n in numbers if n >= MADE]
    assert made[:2] == [1, 2]  # main, and what it makes while it runs
    assert numbers.index(2 + MADE) > numbers.index(1)
    assert numbers.count(2) >= 3  # it goes on twice, and a thread works for it
    assert ask(sys.executable, "-c", textwrap.dedent(ASYNCIO), asked=False) == []


@pytest.mark.skipif(not shutil.which("node"), reason="there is no Node.js")
def test_requests_of_node(ask):
    assert {0, 1} <= {*read(ask("node", "-e", textwrap.dedent(NODE)))}
    assert ask("node", "-e", textwrap.dedent(NODE), asked=False) == []


def test_a_sitecustomize_behind_it_runs_too(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print(3)")
    paths = f"{AGENTS / 'started'}:{tmp_path}"
    done = subprocess.run(
        [sys.executable, "-c", ""], env={**os.environ, "PYTHONPATH": paths}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("3\n", "")
