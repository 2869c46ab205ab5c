"""Devices of network namespaces, as the kernel tells of them."""

from __future__ import annotations

import struct

from critpath.model import Manifest
from critpath.read.manifest import find_bridges, find_device_kinds
from critpath_record.networks import describe_device, read_networks


def attribute(kind, data):
    size = 4 + len(data)
    return struct.pack("=HH", size, kind) + data + bytes(-size % 4)


def link(hardware, *attributes):
    return struct.pack("=BxHiII", 0, hardware, 3, 0, 0) + b"".join(attributes)


def test_a_device_is_described_by_its_kind_and_what_it_is_a_port_of():
    name, mtu = attribute(3, b"eth0\0"), attribute(4, struct.pack("=I", 1400))
    card = {"name": "eth0", "kind": "physical", "mtu": 1400}
    assert describe_device(link(1, name, mtu)) == card
    assert describe_device(link(772, name, mtu)) == {**card, "kind": "loopback"}
    veth = attribute(1, b"veth\0")
    assert describe_device(link(1, name, mtu, attribute(18, veth)))["kind"] == "veth"
    port = attribute(18 | 0x8000, veth + attribute(4, b"bridge\0"))
    assert describe_device(link(1, name, mtu, port))["kind"] == "bridged_veth"


def test_what_is_malformed_tells_nothing():
    assert describe_device(link(1, b"\x01\0\x03\0"))["name"] == ""
    assert describe_device(link(1, b"\xff\xff\x03\0e"))["mtu"] == 0


def test_this_namespace_has_its_loopback_and_what_is_no_namespace_is_left_out(tmp_path):
    kinds = {of["kind"] for of in read_networks()}
    assert "loopback" in kinds
    (tmp_path / "x").write_text("")
    assert read_networks(tmp_path, (str(tmp_path),)) == []


def manifest(*devices):
    return Manifest("complete", "", (), "", (), {}, "", {}, {"network": list(devices)}, 0, 0)


def test_a_port_is_of_the_only_bridge_of_its_namespace():
    def of(space, **names):
        return [{"name": n, "kind": k, "namespace": space} for n, k in names.items()]

    one = of(1, br0="bridge", a="bridged_veth", b="bridged_physical", c="veth")
    two = of(2, br1="bridge", br2="bridge", d="bridged_veth")
    alone = of(3, e="bridged_veth")
    assert find_bridges([manifest(*one, *two, *alone)]) == {"a": "br0", "b": "br0"}
    other = of(4, br9="bridge", a="bridged_veth")  # of another host: a name alone does not tell
    assert find_bridges([manifest(*one), manifest(*other)]) == {"b": "br0"}
    odd = [None, 3, {"name": 3, "kind": "bridge", "namespace": 1}, {"name": "x", "kind": "bridge"}]
    assert find_bridges([manifest(*odd)]) == {}


def test_a_name_of_several_kinds_tells_none_and_hostile_ones_are_left_out():
    of = [{"name": n, "kind": k} for n, k in (("a", "veth"), ("b", "veth"), ("b", "physical"))]
    odd = [{"name": "c", "kind": "x y"}, {"name": 3, "kind": "veth"}, {"kind": []}, "veth", None]
    assert find_device_kinds([manifest(*of), manifest(*odd)]) == {"a": "veth"}
    assert find_device_kinds([Manifest("", "", (), "", (), {}, "", {}, {"network": 3}, 0, 0)]) == {}
