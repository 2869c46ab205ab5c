"""docs/ci.md does what it says: the script runs as it stands, the rest is understood."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from critpath.commands import VERBS
from critpath.commands.parser import build_parser
from critpath.commands.settings import effective
from critpath.errors import UsageError

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("ab.md", "ci.md"))


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
