"""A shell can read every line of docs/ci.md, action.yml and ci/gitlab.yml that it is to run."""

from __future__ import annotations

import subprocess

import pytest

from tests.pure.test_ci_examples import DOCS, block


def scripts(value: object) -> list[str]:
    """Return the lines of every script in a CI configuration."""
    if isinstance(value, dict):
        own = [value.get("run", ""), *value.get("script", []), *value.get("after_script", [])]
        inner = [line for each in value.values() for line in scripts(each)]
        return [line for text in own for line in str(text).splitlines()] + inner
    if isinstance(value, list):
        return [line for each in value for line in scripts(each)]
    return []


def test_a_shell_reads_what_ci_systems_run():
    yaml = pytest.importorskip("yaml")
    files = (DOCS.parent / "action.yml", DOCS.parent / "ci" / "gitlab.yml")
    lines = [x for file in files for x in scripts(yaml.safe_load(file.read_text(encoding="utf-8")))]
    assert len(lines) > 8
    text = "\n".join([*lines, block("performance.sh")])
    done = subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
