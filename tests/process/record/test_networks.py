"""Devices of network namespaces that no process is in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from critpath_record.networks import read_networks

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "hosts"))

import spaces


def test_bridges_are_found_in_namespaces_without_a_process():
    if lacks := spaces.missing():
        pytest.skip(lacks)
    with spaces.Spaces(("client", "server")) as made:
        subprocess.run(
            ["ip", "-n", made.space("client"), "link", "set", "to-client", "mtu", "1400"],
            check=True,
        )
        found = {(of["namespace"], of["name"]): of for of in read_networks()}
    switch = {name: of["kind"] for (_, name), of in found.items() if name in {"br0", "server"}}
    assert switch == {"br0": "bridge", "server": "bridged_veth"}
    [client] = [of for (_, name), of in found.items() if name == "to-client"]
    assert (client["kind"], client["mtu"]) == ("veth", 1400)
