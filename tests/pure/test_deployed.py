"""Examples of units, images and manifests say what critpath and the docs understand."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from critpath.commands import VERBS
from critpath.commands.parser import build_parser

DOCS = Path(__file__).resolve().parents[2] / "docs"
UNITS = sorted(DOCS.glob("*.service"))
TABLE = (DOCS / "containers/README.md").read_text(encoding="utf-8")


def understood(words: list[str]) -> None:
    """Parse a command's words as critpath would."""
    build_parser(VERBS).parse_args(words)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_commands_of_units_are_understood(unit: Path) -> None:
    lines = unit.read_text(encoding="utf-8").splitlines()
    commands = [line.partition("=")[2] for line in lines if line.startswith("Exec")]
    assert commands
    for command in commands:
        program, *words = shlex.split(command.replace("%%", "%"))
        if program == "/bin/sh":
            program, *words = shlex.split(words[1].removesuffix(" >/dev/null"))
        assert program == "/usr/local/lib/critpath/bin/critpath"
        understood(words)
    keys = [line.partition("=")[0] for line in lines if re.match("[A-Z][A-Za-z]+=", line)]
    assert {"CapabilityBoundingSet", "NoNewPrivileges", "MemoryMax"} <= {*keys}
    assert "Restart" in keys or "Type=oneshot" in lines


def test_the_image_begins_a_flight_recorder() -> None:
    text = (DOCS / "containers/Containerfile").read_text(encoding="utf-8")
    [entry] = re.findall(r"^ENTRYPOINT (\[.*\])$", text, re.MULTILINE)
    [command] = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    assert json.loads(entry) == ["critpath"]
    understood(json.loads(command))


def test_the_daemon_set_asks_for_what_is_argued_and_no_more() -> None:
    yaml = pytest.importorskip("yaml")
    text = (DOCS / "containers/daemonset.yaml").read_text(encoding="utf-8")
    [of] = [one for one in yaml.safe_load_all(text) if one["kind"] == "DaemonSet"]
    pod = of["spec"]["template"]["spec"]
    assert not pod.get("hostNetwork")
    volumes = {one["name"] for one in pod["volumes"]}
    for container in pod["containers"]:
        understood(container["args"])
        may = container["securityContext"]
        assert not may["privileged"]
        assert not may["allowPrivilegeEscalation"]
        assert may["readOnlyRootFilesystem"]
        assert may["capabilities"]["drop"] == ["ALL"]
        for name in may["capabilities"].get("add", ()):
            assert f"`CAP_{name}`" in TABLE
        for mount in container["volumeMounts"]:
            assert mount["name"] in volumes
            own = {"tracefs", "run", "state", "tmp"}
            assert mount.get("readOnly") or mount["name"] in own


def test_the_example_for_podman_gives_what_is_argued() -> None:
    [command] = re.findall(r"^podman run (.*?)^```", TABLE, re.MULTILINE | re.DOTALL)
    words = shlex.split(command.replace("\\\n", " "))
    given = [words[at + 1] for at, word in enumerate(words) if word == "--cap-add"]
    assert given
    assert all(f"| `CAP_{name}` |" in TABLE for name in given)
    assert "--privileged" not in words
