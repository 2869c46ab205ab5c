"""docs/ci.md does what it says: the script runs as it stands, the rest is understood."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from critpath.commands import VERBS
from critpath.commands.parser import build_parser
from critpath.commands.settings import effective
from critpath.errors import UsageError
from critpath.record import preflight

pytestmark = pytest.mark.xdist_group("kernel")

DOCS = Path(__file__).resolve().parent.parent / "docs"
TEXT = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("ab.md", "ci.md"))
WORK = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done"


def block(name: str) -> str:
    """Return the fenced block between two markers."""
    found = re.search(
        rf"<!-- {name} -->\n```\w+\n(.*?)```\n<!-- end of {name} -->", TEXT, re.DOTALL
    )
    return found[1]


def understood(line: str) -> None:
    """Parse one command of a job as critpath would; what a shell does after it is not its."""
    words = shlex.split(line)
    if words[:2] == ["sudo", "env"]:
        words = words[3:]
    assert words[0] == "critpath", line
    end = min((words.index(word) for word in ("||", "|") if word in words), default=len(words))
    words = words[1:end]
    build_parser(VERBS).parse_args(words)


def scripts(value: object) -> list[str]:
    """Return the lines of every script in a CI configuration."""
    if isinstance(value, dict):
        own = [value.get("run", ""), *value.get("script", []), *value.get("after_script", [])]
        inner = [line for each in value.values() for line in scripts(each)]
        return [line for text in own for line in str(text).splitlines()] + inner
    if isinstance(value, list):
        return [line for each in value for line in scripts(each)]
    return []


@pytest.mark.parametrize(
    ("name", "least"), [("github", 2), ("gitlab", 2), ("github-ab", 1), ("gitlab-ab", 1)]
)
def test_the_commands_of_ci_systems_are_understood(name, least):
    yaml = pytest.importorskip("yaml")
    document = yaml.safe_load(block(name))
    assert isinstance(document, dict)
    lines = [line.strip() for line in scripts(document)]
    ours = [x for x in lines if re.match(r'(sudo env "PATH=\$PATH" )?critpath ', x)]
    assert len(ours) >= least
    for line in ours:
        understood(line)
    # Every line is something that a shell can read.
    done = subprocess.run(
        ["sh", "-n"], input="\n".join(lines), text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_wrong_command_would_be_noticed():
    with pytest.raises(UsageError):
        understood('sudo env "PATH=$PATH" critpath compare a b --jnuit x.xml || code=$?')


def test_the_settings_are_settings(tmp_path):
    [text] = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    tomllib.loads(text)
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    found = effective({}, None, tmp_path)
    assert found["floor"] == 0.08
    assert found["minimum-executions"] == 30
    assert dict(found["level"])["RUN@kworker/*"] == "off"


def test_exit_codes_are_those_of_the_program():
    from critpath import errors  # noqa: PLC0415 - near its use

    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)}
    assert codes == {v for n, v in vars(errors).items() if n.startswith("EXIT_")}


@pytest.fixture
def programs(tmp_path):
    """Write three programs: two that are equal, and one that sleeps besides."""
    if preflight.check_machine(tmp_path).recorder is None:
        pytest.skip("this machine may not record")
    for name, more in (("base", ""), ("equal", ""), ("slow", "sleep 0.03\n")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{WORK}\n{more}")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "performance.sh").write_text(block("performance.sh"))
    return tmp_path


def performance(place: Path, head: str, name: str) -> tuple[int, Path]:
    directory = place / name
    directory.mkdir()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", str(place / "performance.sh"), str(place / "base"), str(place / head)],
        cwd=directory,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    (directory / "said").write_text(done.stdout + done.stderr)
    return done.returncode, directory


def test_the_script_as_it_stands(programs):
    """Green for an equal build, red for one that sleeps 30 ms, with every file."""
    code, place = performance(programs, "equal", "green")
    assert code == 0, (place / "said").read_text()
    code, place = performance(programs, "slow", "red")
    assert code == 1, (place / "said").read_text()
    assert {p.name for p in place.iterdir()} == {
        *("recordings", "report.html", "comparison.json", "junit.xml", "summary.md", "said"),
    }
    suites = ET.parse(place / "junit.xml").getroot()  # noqa: S314 - our own file
    assert [case for case in suites.iter("testcase") if case.find("failure") is not None]
    assert (
        "`sleep`" in (place / "summary.md").read_text()
        or "sleep" in (place / "summary.md").read_text()
    )


def test_a_program_that_fails_ends_the_script(programs):
    (programs / "equal").write_text("#!/bin/sh\nexit 7\n")
    code, place = performance(programs, "equal", "failing")
    assert code == 7
    assert not (place / "report.html").exists()
