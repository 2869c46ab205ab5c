"""Every line of a script in docs/ci.md and docs/ab.md is something that a shell can read."""

from __future__ import annotations

import subprocess

import pytest

from tests.pure.test_ci_examples import block, scripts


def test_a_shell_reads_what_ci_systems_run():
    yaml = pytest.importorskip("yaml")
    names = ("github", "gitlab", "github-ab", "gitlab-ab")
    lines = [line for name in names for line in scripts(yaml.safe_load(block(name)))]
    text = "\n".join([*lines, block("performance.sh")])
    done = subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
