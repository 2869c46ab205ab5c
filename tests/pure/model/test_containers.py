"""What control groups are called, what users may call them, and where processes were when."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from critpath.model.containers import (
    ControlGroup,
    Places,
    find_group,
    index_groups,
    join_groups,
    name_in_place,
    parse_group,
    places_in,
    strip_places,
)
from critpath.units import safe_text

ID = "0123456789abcdef" * 4
POD = ControlGroup(
    f"/kubepods/pod1/{ID}", "containerd", ID, "app", "web-7d9f8b6c5d-x2x4z", "shop", "web:2"
)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("web-7d9f8b6c5d-x2x4z", "web-*"),  # a deployment's
        ("web-canary-7d9f8b6c5d-x2x4z", "web-canary-*"),
        ("node-exporter-x7k2p", "node-exporter-*"),  # a daemon set's, a job's
        ("db-0", "db-*"),  # a stateful set's
        ("web", "web"),
        ("web-proxy", "web-proxy"),
        ("web-v2", "web-v2"),
    ],
)
def test_replicas_of_a_workload_are_one(name, place):
    assert ControlGroup("/x", "cri-o", ID, "app", name, "shop").place == f"pod shop/{place}"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("shop-web-1", "shop-web-*"),  # Compose's
        ("shop_web_12", "shop_web_*"),
        ("postgres-15", "postgres-15"),  # a version
        ("db1", "db1"),
        ("", ID[:12]),
    ],
)
def test_replicas_of_compose_are_one(name, place):
    assert ControlGroup("/x", "docker", ID, name).place == f"container {place}"


@pytest.mark.parametrize(
    "wanted",
    [
        *("app", "web-7d9f8b6c5d-x2x4z", "shop/web-7d9f8b6c5d-x2x4z", "web-*", "shop/web-*"),
        *("web-7d9f8b6c5d-x2x4z/app", "shop/web-7d9f8b6c5d-x2x4z/app", ID, ID[:8], "shop/*"),
        "pod shop/web-*",
    ],
)
def test_any_of_its_names_will_do(wanted):
    assert POD.matches(wanted)


@pytest.mark.parametrize("wanted", ["", "*x", "web", "shop", ID[:7], "web-7d9f8b6c5d", "/", "-*"])
def test_other_names_are_others(wanted):
    assert not POD.matches(wanted)


def test_a_unit_may_be_called_without_its_kind():
    unit = ControlGroup("/system.slice/nginx.service", "systemd", unit="nginx.service")
    assert unit.matches("nginx")
    assert unit.matches("nginx.service")
    assert not unit.matches("nginx.")


@given(st.text(max_size=100), st.text(max_size=100), st.booleans())
@example("a) (container b", "", False)
@example("a → b, c", "x\n\x1b[2J", True)
def test_a_place_is_found_again_in_a_label_whatever_its_name_is(name, namespace, in_pod):
    """Else `share` would not replace it, and rows of other containers would be one."""
    group = ControlGroup("/x", "docker", ID, *(("", name, namespace) if in_pod else (name,)))
    place = group.place
    label = f"{name_in_place('web:80', place)} → {name_in_place('db:5432', place)}"
    assert places_in(label) == [place, place]
    assert strip_places(label) == "web:80 → db:5432"
    assert safe_text(place) == place


@given(st.text(max_size=300))
def test_any_path_is_somebodys_or_nobodys(path):
    for of in parse_group(path):
        assert path.startswith(of.path)
        assert of.place
        assert of.runtime
    find_group(path, {})


def test_who_was_named_is_found_by_any_group_below():
    named = {POD.path: POD}
    assert find_group(f"{POD.path}/init.scope", named) is POD
    assert find_group(f"/other/docker-{ID}.scope", named).runtime == "docker"
    assert find_group("/user.slice", named) is None


def test_a_container_is_known_by_its_id_where_a_recorder_in_one_sees_another_path():
    """In a control group namespace of its own, paths of others lead up first."""
    seen = replace(POD, path=f"/../../cri-containerd-{ID}.scope")
    named = index_groups([seen, ControlGroup("/system.slice/x.service", unit="x.service")])
    assert find_group(f"/kubepods/cri-containerd-{ID}.scope/init", named) is seen
    assert find_group(f"/kubepods/cri-containerd-{ID[::-1]}.scope", named).name == ""
    assert find_group("/user.slice", named) is None


def test_what_any_look_knew_stays():
    bare = ControlGroup(POD.path, "containerd", ID)
    assert join_groups([POD], [bare]) == join_groups([bare], [POD]) == (POD,)
    assert join_groups([bare], [bare]) == (bare,)


def test_labels_with_places():
    label = name_in_place("nginx:80", POD.place)
    assert label == "nginx:80 (pod shop/web-*)"
    assert name_in_place("nginx:80", "") == "nginx:80"
    text = f"{label} (multiplexed) GET /a (b) → redis:6379 (container cache), db:5432"
    assert strip_places(text) == "nginx:80 (multiplexed) GET /a (b) → redis:6379, db:5432"
    assert places_in(text) == ["pod shop/web-*", "container cache"]


def test_where_a_process_was():
    places = Places([(0, 7, 10, ""), (0, 7, 20, "container a"), (0, 7, 30, "container a")])
    assert [places.at(0, 7, time) for time in (5, 10, 19, 20, 99)] == ["", "", ""] + [
        "container a"
    ] * 2
    assert places.at(1, 7, 20) == places.at(0, 8, 20) == ""
    assert places.last(0, 7) == "container a"
    assert places
    assert not Places()
    each = np.array([0, 0, 1]), np.array([7, 7, 7]), np.array([15, 25, 25])
    assert places.list_all(*each) == ["", "container a", ""]
