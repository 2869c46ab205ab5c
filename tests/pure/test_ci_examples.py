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


def test_what_is_to_be_copied_is_what_there_is():
    yaml = pytest.importorskip("yaml")
    root = DOCS.parent
    action = yaml.safe_load((root / "action.yml").read_text(encoding="utf-8"))
    *_, step = yaml.safe_load(block("github-action"))["jobs"]["gate"]["steps"]
    assert set(step["with"]) <= set(action["inputs"])
    assert {name for name, one in action["inputs"].items() if one.get("required")} <= set(
        step["with"]
    )
    template = yaml.safe_load((root / "ci" / "gitlab.yml").read_text(encoding="utf-8"))
    copied = yaml.safe_load(block("gitlab-template"))
    assert copied["performance"]["extends"] in template
    assert (root / copied["include"][0]["file"]).is_file()


def test_the_commands_of_the_script_are_understood():
    lines = block("performance.sh").replace("\\\n", " ").splitlines()
    ours = [line.replace("$base", "b").replace("$head", "h") for line in lines]
    ours = [line for line in ours if line.startswith("critpath ")]
    assert len(ours) == 2
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
