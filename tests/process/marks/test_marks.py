"""Marks in a program of their own: what it imports, and what LTTng's agent sees."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

AGENT = """
    import logging
    class Handler(logging.Handler):
        def emit(self, record):
            print("agent", record.name, record.levelname, record.getMessage())
    logging.getLogger().setLevel(logging.NOTSET)
    logging.getLogger().addHandler(Handler())
"""


def test_lttngs_agent_alone_sees_marks(tmp_path):
    (tmp_path / "lttngust").mkdir()
    (tmp_path / "lttngust" / "__init__.py").write_text(textwrap.dedent(AGENT))
    program = """
        import logging, critpath
        logging.basicConfig(level=logging.WARNING)
        with critpath.execution("job", key="a b"):
            logging.getLogger("app").info("not shown")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "CRITPATH_RECORDER": "lttng"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "agent critpath INFO critpath:begin job a%20b",
        "agent critpath INFO critpath:end job a%20b",
    ]
    assert done.stderr == ""


def test_the_import_is_cheap():
    """No numpy, and none of the slow modules of the standard library."""
    program = "import sys, critpath; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip("the package needs the site module here")
    slow = {"numpy", "inspect", "logging", "asyncio", "dataclasses", "pathlib", "secrets"}
    assert slow & set(done.stdout.split()) == set()
