"""What the manifest says of the host."""

from __future__ import annotations

import os
import socket
from dataclasses import replace

import pytest

from critpath.model import Manifest
from critpath.read.manifest import find_addresses
from critpath_record.manifests import end_facts, find_execution, host_facts
from critpath_record.networks import network_facts
from critpath_record.profiles import records_network

TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 127.0.0.0
        /8 host LOCAL
     |-- 127.0.0.1
        /32 host LOCAL
     |-- 10.0.0.{n}
        /32 host LOCAL
     |-- 10.0.0.255
        /32 link BROADCAST
"""
DEVICES = """Inter-|   Receive                          |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes
    lo:       1   0
 {name}: 5 0
"""


def process(proc, pid, namespace, n, name):
    (proc / pid / "ns").mkdir(parents=True)
    (proc / pid / "ns/net").symlink_to(f"net:[{namespace}]")
    (proc / pid / "net").mkdir()
    (proc / pid / "net/fib_trie").write_text(TRIE.format(n=n))
    (proc / pid / "net/if_inet6").write_text(f"fd{n:030x} 04 40 00 82     {name}\n")
    (proc / pid / "net/dev").write_text(DEVICES.format(name=name))


def test_addresses_and_devices_are_those_of_every_network_namespace(tmp_path):
    process(tmp_path, "self", 1, 2, "eth0")
    process(tmp_path, "17", 1, 3, "eth9")  # of the same namespace: not read again
    process(tmp_path, "18", 7, 4, "veth1")
    (tmp_path / "19").mkdir()  # it has ended
    (tmp_path / "18/net/tcp").write_text(
        "  sl  local_address rem_address   st\n"
        "   0: 0200000A:1F90 00000000:0000 0A\n"
        "   1: 0200000A:1F90 0300000A:D431 01\n"
    )
    (tmp_path / "18/net/tcp6").write_text(
        "  sl  local_address rem_address   st\n   0: 0:1 0000000000000000FFFF00000400000A:0050 01\n"
    )
    facts = network_facts(tmp_path)
    assert facts == {
        "addresses": ["10.0.0.2", "10.0.0.4", "127.0.0.1", "fd00::2", "fd00::4"],
        "net_devices": ["eth0", "lo", "veth1"],
        "peers": ["10.0.0.3", "10.0.0.4"],
    }


def test_this_host_has_its_loopback():
    facts = host_facts(network=True)
    assert facts["kernel"] == os.uname().release
    assert "127.0.0.1" in facts["addresses"]
    assert {name for _, name in socket.if_nameindex()} <= set(facts["net_devices"])


def test_without_sockets_nothing_of_the_network_is_kept():
    facts = host_facts(network=False)
    assert not {"addresses", "net_devices", "peers", "machine_id", "network"} & facts.keys()
    manifest = Manifest("complete", "", (), "", (), {}, "", {}, facts, 0, 0)
    assert end_facts(manifest, []).host == facts
    known = replace(manifest, host={**facts, "peers": ["192.0.2.1"]})
    assert "192.0.2.1" in end_facts(known, []).host["peers"]
    said = {name: records_network(name) for name in ("minimal", "syscalls", "io", "locks")}
    assert not any(said.values())
    assert all(records_network(name) for name in ("network", "requests", "full"))


def test_of_a_hostile_manifest_only_addresses_are_taken():
    odd = ["10.0.0.1", "fd00::2", "10.0.0.1.1", 17, None, ["10.0.0.2"], "x" * 1000]
    host = {"addresses": odd}
    values = ("complete", "", (), "", (), {}, "", {}, host, 0, 0)
    assert find_addresses(Manifest(*values)) == {0x0A000001}
    assert find_addresses(Manifest(*values[:8], {"addresses": "10.0.0.1"}, 0, 0)) == frozenset()


@pytest.mark.parametrize(
    ("way", "profile", "marks", "found"),
    [
        ("sockets", "full", 0, "requests"),
        ("sockets", "requests", 2, ""),
        ("calls", "requests", None, "requests"),
        ("calls", "full", None, ""),
        ("", "requests", 0, ""),
    ],
)
def test_executions_are_requests_where_sockets_tell_of_them(way, profile, marks, found):
    empty = Manifest("complete", "", (), "", (), {}, "", {}, {}, 0, 0)
    recorder = {"name": "ftrace", "requests": way, **({} if marks is None else {"marks": marks})}
    manifest = replace(empty, recorder=recorder, profile=profile)
    assert find_execution(manifest) == found
    assert find_execution(replace(manifest, execution="process")) == "process"
    assert find_execution(replace(manifest, trigger={"when": "asked"})) == ""
