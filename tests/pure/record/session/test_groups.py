"""The manifest says what the containers are called that were there at begin and end."""

from __future__ import annotations

import json

from critpath.model.containers import ControlGroup
from critpath.read.manifest import read_manifest

ID = "3f" * 32
PATH = f"/docker/{ID}"


def put(place, content):
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(content, "utf-8")


def test_the_manifest_names_groups(session):
    put(session.machine / "proc/7/cgroup", f"4:memory:{PATH}\n0::/init.scope\n")
    about = json.dumps({"Name": "/db", "Config": {"Image": "postgres:15"}})
    put(session.machine / f"var/lib/docker/containers/{ID}/config.v2.json", about)
    assert session.record("true").code == 0
    found = read_manifest(session.output)
    assert found.groups == (
        ControlGroup(PATH, "docker", ID, "db", image="postgres:15"),
        ControlGroup("/init.scope", "systemd", unit="init.scope"),
    )


def test_without_groups_it_is_as_it_was(session):
    assert session.record("true").code == 0
    assert "groups" not in session.manifest()
