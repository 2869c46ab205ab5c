"""Containers are named from their runtimes' own files, which are hostile, and only looked at."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from critpath.model.containers import ControlGroup
from critpath_record.group_names import GroupNames, RuntimeFiles

ID = "3f" * 32
OTHER = "a7" * 32
UID = "0f4b8a52-9c1e-4d7b-8a36-5e2d1c0b9a87"


def put(place: Path, content: object) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")


def put_docker(root: Path, below: str = "var/lib/docker", **config: object) -> Path:
    """Write what Docker keeps of a container."""
    place = root / below / "containers" / ID / "config.v2.json"
    put(
        place,
        {
            "State": {"Running": True, "Pid": 4242},
            "ID": ID,
            "Image": "sha256:" + OTHER,
            "Name": "/db",
            "Config": {"Hostname": ID[:12], "Image": "postgres:15", "Labels": {}, **config},
        },
    )
    return place


def put_podman(root: Path, below: str, *names: tuple[str, str], driver: str = "overlay") -> Path:
    """Write what containers/storage keeps of Podman's containers."""
    place = root / below / f"{driver}-containers" / "containers.json"
    about = {"image-name": "docker.io/library/postgres:15", "image-id": OTHER}
    put(
        place,
        [
            {"id": one, "names": [name], "image": OTHER, "metadata": json.dumps(about)}
            for one, name in names
        ],
    )
    return place


def name(root: Path, path: str, owner: int = 0) -> ControlGroup | None:
    return RuntimeFiles(root).name_group(path, owner)


DOCKER = f"/system.slice/docker-{ID}.scope"


@pytest.mark.parametrize("path", [DOCKER, f"/docker/{ID}", f"{DOCKER}/init.scope"])
def test_docker(tmp_path, path):
    put_docker(tmp_path)
    found = name(tmp_path, path)
    assert found is not None
    assert found.path == path.removesuffix("/init.scope")
    assert (found.runtime, found.id, found.name) == ("docker", ID, "db")
    assert found.image == "postgres:15"
    assert found.place == "container db"


def test_docker_that_was_moved(tmp_path):
    put(tmp_path / "etc/docker/daemon.json", {"data-root": "/data/docker"})
    put_docker(tmp_path, "data/docker")
    assert name(tmp_path, DOCKER).name == "db"


def test_a_pod_by_dockers_labels(tmp_path):
    labels = {
        "io.kubernetes.container.name": "web",
        "io.kubernetes.pod.name": "web-7d9f8b6c5d-x2x4z",
        "io.kubernetes.pod.namespace": "shop",
    }
    put_docker(tmp_path, Labels=labels)
    found = name(tmp_path, DOCKER)
    assert (found.name, found.pod, found.namespace) == ("web", "web-7d9f8b6c5d-x2x4z", "shop")
    assert found.place == "pod shop/web-*"


@pytest.mark.parametrize(
    "path",
    [
        f"/machine.slice/libpod-{ID}.scope",
        f"/machine.slice/libpod-{ID}.scope/container",
        f"/libpod_parent/libpod-{ID}",
        f"/machine.slice/machine-libpod_pod_{OTHER}.slice/libpod-{ID}.scope",
    ],
)
@pytest.mark.parametrize("driver", ["overlay", "vfs"])
def test_podman(tmp_path, path, driver):
    put_podman(tmp_path, "var/lib/containers/storage", (OTHER, "no"), (ID, "db"), driver=driver)
    found = name(tmp_path, path)
    assert (found.runtime, found.name) == ("podman", "db")
    assert found.image == "docker.io/library/postgres:15"


def test_podman_of_a_user(tmp_path):
    put(tmp_path / "etc/passwd", "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/srv/ann:/bin/sh\n")
    put_podman(tmp_path, "srv/ann/.local/share/containers/storage", (ID, "db"))
    above = "/user.slice/user-1000.slice/user@1000.service/user.slice"
    assert name(tmp_path, f"{above}/libpod-{ID}.scope").name == "db"
    # Where the path does not say whose it is, who runs it does.
    assert name(tmp_path, f"/libpod_parent/libpod-{ID}", 1000).name == "db"
    assert name(tmp_path, f"/libpod_parent/libpod-{ID}", 1001).place == f"container {ID[:12]}"


def put_bundle(root: Path, below: str, notes: dict[str, str]) -> Path:
    place = root / below / "config.json"
    put(place, {"ociVersion": "1.0.2", "process": {}, "annotations": notes})
    return place


PODS = "/kubepods.slice/kubepods-burstable.slice"
SLICE = f"{PODS}/kubepods-burstable-pod{UID.replace('-', '_')}.slice"


@pytest.mark.parametrize(
    "path",
    [
        f"{SLICE}/cri-containerd-{ID}.scope",
        f"/kubepods/burstable/pod{UID}/{ID}",
        f"/system.slice/containerd.service/kubepods-burstable-pod{UID}.slice:cri-containerd:{ID}",
    ],
)
@pytest.mark.parametrize("where", ["run/containerd", "run/k3s/containerd"])
def test_containerd(tmp_path, path, where):
    notes = {
        "io.kubernetes.cri.container-name": "web",
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.image-name": "registry.test/web:2",
        "io.kubernetes.cri.sandbox-id": OTHER,
        "io.kubernetes.cri.sandbox-name": "web-0",
        "io.kubernetes.cri.sandbox-namespace": "shop",
    }
    put_bundle(tmp_path, f"{where}/io.containerd.runtime.v2.task/k8s.io/{ID}", notes)
    found = name(tmp_path, path)
    assert (found.name, found.pod, found.namespace) == ("web", "web-0", "shop")
    assert found.image == "registry.test/web:2"
    assert not found.is_sandbox
    assert found.place == "pod shop/web-*"


def test_what_keeps_a_pod_is_no_container_of_it(tmp_path):
    notes = {
        "io.kubernetes.cri.container-type": "sandbox",
        "io.kubernetes.cri.sandbox-name": "web-0",
        "io.kubernetes.cri.sandbox-namespace": "shop",
    }
    put_bundle(tmp_path, f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}", notes)
    assert name(tmp_path, f"{SLICE}/cri-containerd-{ID}.scope").is_sandbox


@pytest.mark.parametrize("storage", ["run/containers/storage", "var/lib/containers/storage"])
def test_cri_o(tmp_path, storage):
    notes = {
        "io.kubernetes.container.name": "web",
        "io.kubernetes.pod.name": "web-0",
        "io.kubernetes.pod.namespace": "shop",
        "io.kubernetes.cri-o.ContainerType": "container",
        "io.kubernetes.cri-o.ImageName": "registry.test/web:2",
    }
    put_bundle(tmp_path, f"{storage}/overlay-containers/{ID}/userdata", notes)
    found = name(tmp_path, f"{SLICE}/crio-{ID}.scope")
    assert (found.runtime, found.name, found.pod) == ("cri-o", "web", "web-0")
    assert found.image == "registry.test/web:2"


def test_a_pod_by_its_logs(tmp_path):
    """Of a runtime that is not known the pod is: the kubelet calls its logs so."""
    (tmp_path / f"var/log/pods/shop_web-0_{UID}/web").mkdir(parents=True)
    found = name(tmp_path, f"{SLICE}/{ID}")
    assert (found.runtime, found.name, found.place) == ("kubernetes", "web", "pod shop/web-*")
    (tmp_path / f"var/log/pods/shop_web-0_{UID}/proxy").mkdir()
    assert name(tmp_path, f"{SLICE}/{ID}").name == ""  # which of the two it is nobody says
    assert name(tmp_path, SLICE).pod == "web-0"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/lxc/cache", "container cache"),
        ("/lxc.payload.cache/system.slice/redis.service", "container cache"),
        (r"/machine.slice/machine-my\x2dbox.scope", "container my-box"),
        ("/machine.slice/systemd-nspawn@box.service/payload", "container box"),
        ("/system.slice/nginx.service", "unit nginx.service"),
        ("/system.slice/system-postgresql.slice/postgresql@15-main.service",
         "unit postgresql@*.service"),
        ("/user.slice/user-0.slice/session-3.scope", "unit session-*.scope"),
        (f"/system.slice/docker-{ID}.scope", f"container {ID[:12]}"),
        (f"/libpod_parent/libpod-{ID}", f"container {ID[:12]}"),
        (SLICE, f"pod {UID[:12]}"),
    ],
)  # fmt: skip
def test_what_the_path_alone_says(tmp_path, path, place):
    assert name(tmp_path, path).place == place


@pytest.mark.parametrize(
    "path", ["/", "/system.slice", "/init", f"/x/{ID}", f"/machine.slice/libpod-conmon-{ID}.slice"]
)
def test_groups_of_nobody(tmp_path, path):
    assert name(tmp_path, path) is None


def test_a_node_in_a_container_has_the_outer_name(tmp_path):
    """The files of what runs inside are in there: nobody here can name it."""
    put_docker(tmp_path)
    found = name(tmp_path, f"{DOCKER}/kubelet{SLICE}/cri-containerd-{OTHER}.scope")
    assert found.name == "db"
    assert found.path == DOCKER


# All of it is hostile.


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "null", "{", '{"Name": 3}', '{"Name": "/"}', '{"Config": []}', "\x00"),
        "[" * 100_000,
        '{"Config": {"Labels": ["io.kubernetes.pod.name"]}}',
        '{"Name": "' + "x" * 17_000_000 + '"}',
        "9" * 100_000,
    ],
)
def test_files_that_say_nothing(tmp_path, content):
    put(tmp_path / "var/lib/docker/containers" / ID / "config.v2.json", content)
    assert name(tmp_path, DOCKER).place == f"container {ID[:12]}"


def test_names_that_could_act(tmp_path):
    place = put_docker(tmp_path)
    put(place, {"Name": "/\x1b[31mdb\n" + "é" * 1000, "Config": {"Image": "\u202eimage"}})
    found = name(tmp_path, DOCKER)
    assert "\x1b" not in found.name
    assert "\n" not in found.name
    assert len(found.name) <= 255
    assert "\u202e" not in found.image


def test_links_lead_nowhere(tmp_path):
    secret = put_docker(tmp_path, "elsewhere")
    place = tmp_path / "var/lib/docker/containers" / ID / "config.v2.json"
    place.parent.mkdir(parents=True)
    place.symlink_to(secret)
    assert not name(tmp_path, DOCKER).name
    place.unlink()
    place.parent.rmdir()
    place.parent.symlink_to(secret.parent)
    assert not name(tmp_path, DOCKER).name


def test_a_pipe_is_not_waited_for(tmp_path):
    place = tmp_path / "var/lib/docker/containers" / ID / "config.v2.json"
    place.parent.mkdir(parents=True)
    os.mkfifo(place)
    assert not name(tmp_path, DOCKER).name


@pytest.mark.parametrize("path", ["/docker/../../etc", "/lxc/..", f"/docker/{ID[:-1]}/"])
def test_no_id_leads_out(tmp_path, path):
    put(tmp_path / "etc/config.v2.json", {"Name": "/db"})
    found = name(tmp_path, path)
    assert found is None or found.runtime == "lxc"


# What a recording keeps.


def add_process(root: Path, pid: int, *paths: str) -> None:
    lines = (f"{number}:cpu:{path}\n" for number, path in enumerate(paths))
    put(root / "proc" / str(pid) / "cgroup", "".join(lines))


def test_begin_and_end(tmp_path):
    """A container may be gone, or not be written yet: what any look knew stays."""
    add_process(tmp_path, 1, "/", "/init.scope")
    add_process(tmp_path, 20, DOCKER, "/")
    place = put_docker(tmp_path)
    names = GroupNames(tmp_path)
    names.look()
    place.unlink()
    add_process(tmp_path, 30, f"/libpod_parent/libpod-{OTHER}")
    names.look()
    assert {of.path: of.name for of in names.found} == {
        "/init.scope": "",
        DOCKER: "db",
        f"/libpod_parent/libpod-{OTHER}": "",
    }
    put_podman(tmp_path, "var/lib/containers/storage", (OTHER, "late"))
    names.look()
    assert [of.name for of in names.found if of.runtime == "podman"] == ["late"]


def test_births(tmp_path):
    (tmp_path / "proc").mkdir()
    names = GroupNames(tmp_path)
    names.look()
    put_docker(tmp_path)
    names.note_birth(DOCKER)
    names.note_birth("/system.slice/cron.service")  # of which its path says all at any time
    assert [of.name for of in names.found] == ["db"]
