"""What containers, pods and units are called: from the files that their runtimes keep.

They are read and never written, no runtime is asked, and all in them is taken for hostile: only
what is a regular file below a runtime's own directory, of root or of that directory's owner, no
link on the way, of bounded size; names without control characters.  docs/security.md lists them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final

from critpath.model.containers import (
    LONGEST_NAME,
    MOST_GROUPS,
    SYSTEMD,
    ControlGroup,
    find_pod,
    join_groups,
    parse_group,
)
from critpath.units import safe_text
from critpath.untrusted import load_json, read_regular
from critpath_record.dirfd import open_dir
from critpath_record.proc import list_pids, read_text

_LARGEST: Final = 16 << 20  # bytes of one file
_ROOM: Final = 64 << 20  # bytes that it may take in memory
_ENTRIES: Final = 20_000  # of a directory
_PARTS: Final = 100_000  # of a list of containers
_USER: Final = re.compile(r"/user-(\d{1,10})\.slice(?:/|$)")
_HEX: Final = re.compile(r"[0-9a-f]{32}|[0-9a-f]{64}")
_UID: Final = re.compile(r"[0-9a-f-]{32,36}")

_DOCKER: Final = "var/lib/docker"
_STORAGE: Final = "var/lib/containers/storage"
_USERS_DOCKER, _USERS_STORAGE = ".local/share/docker", ".local/share/containers/storage"
# Where containerd keeps the bundles of what runs, by namespace and id.
_TASKS: Final = (
    "run/containerd/io.containerd.runtime.v2.task",
    "run/k3s/containerd/io.containerd.runtime.v2.task",
    "run/containerd/io.containerd.runtime.v1.linux",
)
_RUNS: Final = ("run/containers/storage", _STORAGE)  # of CRI-O: while it runs, and all
_PODS: Final = "var/log/pods"
# What runtimes call the same things, in annotations and labels: name, pod, namespace, image.
_WORDS: Final = (
    (
        *("io.kubernetes.cri.container-name", "io.kubernetes.cri.sandbox-name"),
        *("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri.image-name"),
    ),
    (
        *("io.kubernetes.container.name", "io.kubernetes.pod.name"),
        *("io.kubernetes.pod.namespace", "io.kubernetes.cri-o.ImageName"),
    ),
    ("nerdctl/name", "", "", ""),
)
_KINDS: Final = ("io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType")
_SANDBOX: Final = "sandbox"


def list_runtimes(root: Path = Path("/")) -> list[Path]:
    """Return where runtimes keep names here, as far as nobody has moved it."""
    known = (root / place for place in (_DOCKER, *_TASKS, *_RUNS, _PODS))
    return [place for place in known if _list_names(place)]


class GroupNames:
    """Names control groups, and keeps what was found: at each look it knows more.

    `root`: of the machine's files.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._found: tuple[ControlGroup, ...] = ()
        self._seen: set[str] = set()
        self._known: set[str] = set()  # paths whose names were found: they stay as they are

    @property
    def found(self) -> tuple[ControlGroup, ...]:
        """Return all groups that were seen, each with what is known of it."""
        return self._found

    def look(self) -> None:
        """Name the groups of all processes that there are."""
        self.add(read_groups(self._root))

    def add(self, groups: Mapping[str, int]) -> None:
        """Name groups, by path: of a process's owner each, where a runtime is a user's."""
        files = RuntimeFiles(self._root)
        named = []
        for path, owner in islice(groups.items(), MOST_GROUPS):
            self._seen.add(path)
            if path not in self._known and (one := files.name_group(path, owner)):
                named.append(one)
                self._known |= {path} if one.is_named else set()
        self._found = join_groups(self._found, named)

    def note_birth(self, path: str) -> None:
        """Name a group that has just been seen, if it is a container's and was not seen before."""
        if path in self._seen or len(self._seen) >= MOST_GROUPS:
            return
        self._seen.add(path)
        if any(of.runtime != SYSTEMD for of in parse_group(path)):
            self.add({path: 0})


def read_groups(root: Path) -> dict[str, int]:
    """Return the groups that processes are in, each with the user id of one of these."""
    found: dict[str, int] = {}
    for pid in list_pids(root / "proc"):
        place = root / "proc" / str(pid)
        try:
            owner = place.stat().st_uid
        except OSError:
            continue
        for line in read_text(place / "cgroup").splitlines():
            path = line.partition(":")[2].partition(":")[2]
            if path and path != "/":
                found.setdefault(path, owner)
    return found


class RuntimeFiles:
    """Reads the files of runtimes, each once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._read_list = cache(self._list_containers)
        self.name_group = cache(self._name_group)

    def _name_group(self, path: str, owner: int = 0) -> ControlGroup | None:
        """Return whose group a path is, with its name; of nested ones the innermost that has one.

        None where it is nobody's.
        """
        found = [self._name_one(of, path, owner) for of in parse_group(path)]
        return next((of for of in found if of.is_named), found[0] if found else None)

    def _name_one(self, group: ControlGroup, path: str, owner: int) -> ControlGroup:
        if group.is_named:
            return group
        of_path = _USER.search(path)
        user = int(of_path[1]) if of_path else owner
        known: Iterator[ControlGroup | None] = iter(())
        if _HEX.fullmatch(group.id):
            if group.runtime == "docker":
                known = (self._ask_docker(group, of) for of in self._places(_DOCKER, user))
            elif group.runtime == "podman":
                known = (self._ask_podman(group, of) for of in self._places(_STORAGE, user))
            else:
                known = (self._ask_bundle(group, of) for of in self._bundles(group.id))
        named = next(filter(None, known), group)
        uid = find_pod(path)
        if not named.pod and uid:
            named = self._ask_logs(named, uid)
        return named

    # Where runtimes keep what they know.

    def _places(self, default: str, user: int) -> Iterator[Path]:
        """Yield the directories of a runtime: the machine's, and a user's."""
        docker = default == _DOCKER
        moved = self._moved_docker if docker else self._moved_storage
        yield self._below_root(moved) if moved else self._root / default
        if home := self._homes.get(user) if user else None:
            yield self._below_root(home) / (_USERS_DOCKER if docker else _USERS_STORAGE)

    def _below_root(self, place: str) -> Path:
        return self._root / place.lstrip("/")

    @cached_property
    def _homes(self) -> dict[int, str]:
        """Return the homes of this machine's own users; nobody else is asked."""
        lines = _read(self._root / "etc", "passwd").decode("utf-8", "replace").splitlines()
        rows = (line.split(":") for line in lines)
        return {int(of[2]): of[5] for of in rows if len(of) > 5 and of[2].isdecimal()}

    @cached_property
    def _moved_docker(self) -> str:
        told = _read_object(self._root / "etc/docker", "daemon.json")
        return _clean(told.get("data-root") or told.get("graph"))

    @cached_property
    def _moved_storage(self) -> str:
        import tomllib  # noqa: PLC0415 - of Podman's storage only

        content = _read(self._root / "etc/containers", "storage.conf")
        with contextlib.suppress(ValueError, RecursionError):  # of TOML and of UTF-8
            told = tomllib.loads(content.decode("utf-8")).get("storage", {})
            return _clean(told.get("graphroot")) if isinstance(told, dict) else ""
        return ""

    def _bundles(self, identity: str) -> Iterator[tuple[Path, str]]:
        """Yield where a container's bundle may be: a directory, and the file below it."""
        for tasks in _TASKS:
            for namespace in _list_names(self._root / tasks):
                yield self._root / tasks, f"{namespace}/{identity}/config.json"
        for storage in _RUNS:
            for driver in _list_names(self._root / storage, "-containers"):
                yield self._root / storage, f"{driver}/{identity}/userdata/config.json"

    # What is in their files.

    def _ask_docker(self, group: ControlGroup, place: Path) -> ControlGroup | None:
        told = _read_object(place, f"containers/{group.id}/config.v2.json")
        config = _object(told.get("Config"))
        if not told:
            return None
        made = replace(
            group, name=_clean(told.get("Name")).lstrip("/"), image=_clean(config.get("Image"))
        )
        return _take_words(made, _object(config.get("Labels")))

    def _ask_podman(self, group: ControlGroup, place: Path) -> ControlGroup | None:
        name, image = self._read_list(place).get(group.id, ("", ""))
        return replace(group, name=name, image=image) if name else None

    def _list_containers(self, place: Path) -> dict[str, tuple[str, str]]:
        """Return name and image of each container of a storage, by id."""
        found: dict[str, tuple[str, str]] = {}
        for driver in _list_names(place, "-containers"):
            for file in ("containers.json", "volatile-containers.json"):
                told = _load(_read(place, f"{driver}/{file}"))
                for one in told[:_PARTS] if isinstance(told, list) else ():
                    of = _object(one)
                    names, identity = of.get("names"), of.get("id")
                    name = _clean(names[0]) if isinstance(names, list) and names else ""
                    about = of.get("metadata")
                    text = about.encode("utf-8", "replace") if isinstance(about, str) else b""
                    image = _clean(_object(_load(text)).get("image-name"))
                    if isinstance(identity, str) and name:
                        found[identity] = name, image
        return found

    def _ask_bundle(self, group: ControlGroup, place: tuple[Path, str]) -> ControlGroup | None:
        notes = _object(_read_object(*place).get("annotations"))
        named = _take_words(group, notes)
        if any(notes.get(key) == _SANDBOX for key in _KINDS):
            named = replace(named, name="pause")
        return named if named.is_named else None

    def _ask_logs(self, group: ControlGroup, uid: str) -> ControlGroup:
        """Name the pod of a group by the directory of its logs."""
        if not _UID.fullmatch(uid):
            return group
        for name in _list_names(self._root / _PODS, f"_{uid}"):
            namespace, _, pod = name.removesuffix(f"_{uid}").partition("_")
            if pod:
                inside = _list_names(self._root / _PODS / name)
                # Which container it is is known where there is one only.
                only = group.name or (inside[0] if len(inside) == 1 else "")
                only = only if group.id != uid else ""
                return replace(
                    group, name=_clean(only), pod=_clean(pod), namespace=_clean(namespace)
                )
        return group


def _take_words(group: ControlGroup, words: Mapping[str, object]) -> ControlGroup:
    """Return a group with what annotations or labels call it."""
    for keys in _WORDS:
        name, pod, namespace, image = (_clean(words.get(key)) if key else "" for key in keys)
        if name or pod:
            return replace(
                group,
                name=name or group.name,
                pod=pod,
                namespace=namespace if pod else "",
                image=image or group.image,
            )
    return group


# Reading what others wrote.


def _clean(value: object) -> str:
    """Return a text as a name: without what could act on a terminal, and not too long."""
    return safe_text(value.strip())[:LONGEST_NAME] if isinstance(value, str) else ""


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _load(content: bytes) -> object:
    try:
        return load_json(content, room=_ROOM) if content else None
    except (ValueError, RecursionError):
        return None


def _read_object(place: Path, below: str) -> Mapping[str, Any]:
    return _object(_load(_read(place, below)))


def _read(place: Path, below: str) -> bytes:
    """Return a file below a runtime's directory, b"" where it is none that may be read.

    No part of the way is a link or leads up; the file is root's or of the directory's owner.
    """
    *directories, name = below.split("/")
    if any(part in {"", ".", ".."} for part in (*directories, name)):
        return b""
    opened: list[int] = []
    try:
        # The directory itself an administrator may have moved, with a link.
        opened.append(os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        owners = {0, os.fstat(opened[0]).st_uid}
        for part in directories:
            opened.append(open_dir(part, dir_fd=opened[-1]))
        return read_regular(name, _LARGEST, dir_fd=opened[-1], owners=owners)
    except (OSError, ValueError):  # ValueError: a null character
        return b""
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _list_names(place: Path, ending: str = "") -> list[str]:
    """Return the directories below one, by name: those with an ending."""
    try:
        with os.scandir(place) as entries:
            found = (e.name for _, e in zip(range(_ENTRIES), entries, strict=False) if _is_dir(e))
            return sorted(name for name in found if name.endswith(ending))
    except OSError:
        return []


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
