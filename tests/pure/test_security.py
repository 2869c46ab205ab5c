"""docs/promises.md promises what a test holds, and nothing else."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "promises.md"
REFERENCES = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE.read_text("utf-8"))))


def names_in(path: Path) -> set[str]:
    """Return the tests of a file that are run: none that is always skipped, or may fail."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and not any(
            re.search(r"mark\.(skip\b|xfail)", ast.unparse(of)) for of in node.decorator_list
        )
    }


@pytest.mark.parametrize(("file", "name"), REFERENCES)
def test_every_promise_names_a_test_that_there_is(file, name):
    assert (ROOT / file).is_file()
    assert not name or name.startswith("test_")
    assert not name or name in names_in(ROOT / file)


def test_no_test_of_a_promise_may_fail():
    known = tomllib.loads((ROOT / "tests" / "quarantine.toml").read_text("utf-8"))
    held = {f"{file}::{name}" for file, name in REFERENCES}
    assert not held & {each.partition("[")[0] for each in known}


def test_every_promise_names_a_test():
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    assert len(REFERENCES) > 40
    promises = False
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if cells[-1] in {"test", "meets"}:
            promises = cells[-1] == "test"
        elif promises:
            assert "`tests/" in cells[-1], row


# What has none of these words in its text has none in its tree: few files are parsed.
SUSPECT = re.compile(r"\bshell\s*=|\b(?:system|popen|getoutput|yaml|ruamel|pty)\b|/bin/sh")


def test_no_shell_and_no_yaml():
    """A line for a shell is only ever the user's own: --prepare, --build, and what is fixed."""
    found = []
    for path in sorted(
        p for house in ("critpath", "critpath_record") for p in (ROOT / house).rglob("*.py")
    ):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if SUSPECT.search(text) else ():
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                shell = any(k.arg == "shell" for k in node.keywords)
                if shell or called in {"os.system", "os.popen", "subprocess.getoutput"}:
                    found.append(f"{path.name}:{node.lineno}")
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [getattr(node, "module", None) or "", *(a.name for a in node.names)]
                if {n.split(".")[0] for n in names} & {"yaml", "ruamel", "pty"}:
                    found.append(f"{path.name}:{node.lineno}")
            if isinstance(node, ast.Constant) and node.value in {"/bin/sh", b"/bin/sh"}:
                found.append(path.name)
    assert found == ["bisect.py", "tracefs.py", "daemon.py", "session.py", "slots.py", "user.py"]
