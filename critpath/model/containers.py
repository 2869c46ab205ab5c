"""Whose control groups are: containers, pods and units, by path and as recorders name them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from critpath.records import dataclass

if TYPE_CHECKING:
    from critpath.model.table import I64

SHORT: Final = 12  # technical: digits of an id that people are shown
LEAST_PREFIX: Final = 8  # technical: of an id that is enough to name a container
MOST_GROUPS: Final = 10_000  # technical: of a recording that are named
LONGEST_NAME: Final = 255  # technical: letters, of a name as runtimes allow them
SYSTEMD: Final = "systemd"
KUBERNETES: Final = "kubernetes"  # a pod whose runtime the path does not tell
_POD, _CONTAINER, _UNIT = "pod", "container", "unit"
_SANDBOXES: Final = frozenset({"POD", "pause"})  # what keeps a pod's namespaces, and does nothing


@dataclass(frozen=True)
class ControlGroup:
    """A control group that is a container's, a pod's or a unit's; what is not known is empty.

    Attributes
    ----------
    path : str
        As in ``/proc/PID/cgroup``, up to what tells whose it is: there may be groups below.
    runtime : str
        ``docker``, ``podman``, ``containerd``, ``cri-o``, ``kubernetes``, ``lxc``, ``nspawn``;
        ``systemd`` of a unit.
    id : str
        The container's, or else the pod's uid.
    name, image : str
        The container's.
    pod, namespace : str
        Of Kubernetes.
    unit : str
        As ``nginx.service``.
    """

    path: str
    runtime: str = ""
    id: str = ""
    name: str = ""
    pod: str = ""
    namespace: str = ""
    image: str = ""
    unit: str = ""

    @property
    def is_named(self) -> bool:
        """Whether more is known than its id."""
        return bool(self.name or self.pod or self.unit)

    @property
    def is_sandbox(self) -> bool:
        """Whether it only keeps a pod's namespaces."""
        return bool(self.pod) and self.name in _SANDBOXES

    @property
    def place(self) -> str:
        """What it is and how it is called, without the replica: ``pod shop/web-*``.

        Labels are taken apart where they name one: whatever else a name has is an underscore.
        """
        if self.pod:
            what, name = _POD, f"{self.namespace}/{fold_pod(self.pod)}"
        elif self.unit:
            what, name = _UNIT, fold_unit(self.unit)
        else:
            what = _POD if self.runtime == KUBERNETES and not self.name else _CONTAINER
            name = fold_container(self.name) or self.id[:SHORT]
        return f"{what} {_ODD.sub('_', name)}"

    def matches(self, wanted: str) -> bool:
        """Tell whether it is what a user calls so: any of its names, or an id's begin."""
        names = {self.name, self.pod, self.unit, self.unit.rpartition(".")[0], self.id}
        if self.pod:
            names |= {f"{self.namespace}/{self.pod}", f"{self.pod}/{self.name}"}
            names.add(f"{self.namespace}/{self.pod}/{self.name}")
        names |= {fold_pod(self.pod), self.place.partition(" ")[2], self.place}
        if wanted in names - {""}:
            return True
        if len(wanted) >= LEAST_PREFIX and self.id.startswith(wanted):
            return True
        return "*" in wanted and any(name and fnmatchcase(name, wanted) for name in names)


# What runtimes, Kubernetes and systemd let names be of, and no more.
_ODD: Final = re.compile(r"[^\w.:@/*+~-]")

# What a path says.

_ID: Final = r"[0-9a-f]{64}|[0-9a-f]{32}"
_UID: Final = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_POD_GROUP: Final = re.compile(rf"(?:.*-)?pod({_UID})(?:\.slice)?")
# A component, and whose containers are called so.
_CONTAINERS: Final = (
    (re.compile(rf"docker-({_ID})\.scope"), "docker"),
    (re.compile(rf"libpod-({_ID})(?:\.scope)?"), "podman"),
    (re.compile(rf"(?:.*:)?(?:cri-containerd|nerdctl)[-:]({_ID})(?:\.scope)?"), "containerd"),
    (re.compile(rf"crio-({_ID})(?:\.scope)?"), "cri-o"),
)
_BARE: Final = re.compile(_ID)
_BELOW: Final = {"docker": "docker", "libpod_parent": "podman"}  # whose bare ids these hold
_LXC: Final = re.compile(r"lxc\.payload\.(.+)")
_LXC_ABOVE: Final = frozenset({"lxc", "lxc.payload"})
_NSPAWN: Final = re.compile(r"machine-(.+)\.scope|systemd-nspawn@(.+)\.service")
_UNIT_NAME: Final = re.compile(r".+\.(?:service|scope)")
_ESCAPED: Final = re.compile(r"\\x([0-9a-f]{2})")


def parse_group(path: str) -> tuple[ControlGroup, ...]:
    """Return whose group a path is, the innermost container first; else its unit; () if nobody's.

    Of a pod's group it is known whose it is before there is a container in it.
    """
    parts, found, pod = path.split("/"), list[ControlGroup](), ""
    unit: ControlGroup | None = None
    for at, part in enumerate(parts):
        above, here = parts[at - 1] if at else "", "/".join(parts[: at + 1])
        if one := _parse_container(part, above, pod=pod):
            found.append(replace(one, path=here))
        elif of_pod := _POD_GROUP.fullmatch(part):
            pod = of_pod[1].replace("_", "-")
            found.append(ControlGroup(here, KUBERNETES, pod))
        elif _UNIT_NAME.fullmatch(part):
            unit = ControlGroup(here, SYSTEMD, unit=_unescape(part))
    return tuple(reversed(found)) or ((unit,) if unit else ())


def find_pod(path: str) -> str:
    """Return the uid of the pod that a group is in, "" for none."""
    found = [of[1] for part in path.split("/") if (of := _POD_GROUP.fullmatch(part))]
    return found[-1].replace("_", "-") if found else ""


def _parse_container(part: str, above: str, *, pod: str) -> ControlGroup | None:
    for pattern, runtime in _CONTAINERS:
        if of := pattern.fullmatch(part):
            return ControlGroup("", runtime, of[1])
    if _BARE.fullmatch(part) and (above in _BELOW or pod):
        return ControlGroup("", _BELOW.get(above, KUBERNETES), part)
    if of := _LXC.fullmatch(part):
        return ControlGroup("", "lxc", name=of[1])
    if above in _LXC_ABOVE and part:
        return ControlGroup("", "lxc", name=part)
    if of := _NSPAWN.fullmatch(part):
        return ControlGroup("", "nspawn", name=_unescape(of[1] or of[2]))
    return None


def _unescape(name: str) -> str:
    """Return a unit's name without systemd's escapes of bytes."""
    return _ESCAPED.sub(lambda of: chr(int(of[1], 16)), name)


# Kubernetes makes names that chance tells apart of these letters alone; words hardly are.
_RANDOM: Final = "[bcdfghjklmnpqrstvwxz2456789]"
_POD_REPLICA: Final = re.compile(
    rf"-(?:(?:{_RANDOM}{{6,10}}|[0-9a-f]{{8,10}})-)?{_RANDOM}{{5}}$|-\d{{1,6}}$"
)
_INSTANCE: Final = re.compile(r"(@)[^.]+(\.\w+)$|(-)[ru]?[0-9a-f]+(\.scope|\.service)$")


def fold_pod(name: str) -> str:
    """Return a pod's name without what tells those of one workload apart: ``web-*``."""
    return _POD_REPLICA.sub("-*", name)


def fold_container(name: str) -> str:
    """Return a container's name without the number that Compose gives: PROJECT-SERVICE-NUMBER.

    What ends in a number alone may be a version, as ``postgres-15``.
    """
    of = re.fullmatch(r"(.+[-_].+[-_])\d{1,3}", name)
    return f"{of[1]}*" if of else name


def fold_unit(name: str) -> str:
    """Return a unit's name without its instance: ``postgresql@*.service``."""
    return _INSTANCE.sub(lambda of: f"{of[1] or of[3]}*{of[2] or of[4]}", name)


def index_groups(groups: Iterable[ControlGroup]) -> dict[str, ControlGroup]:
    """Return groups by path, and by id: a recorder in a container sees paths in another way."""
    found = list(groups)
    return {of.id: of for of in found if of.id} | {of.path: of for of in found}


def find_group(path: str, named: Mapping[str, ControlGroup]) -> ControlGroup | None:
    """Return whose group a path is: as it was named while it was recorded, or by its path.

    `named` is as `index_groups` makes it.
    """
    here = path
    while here:
        if (one := named.get(here)) is not None:
            return one
        here = here.rpartition("/")[0]
    found = parse_group(path)
    return named.get(found[0].id, found[0]) if found else None


def join_groups(*lists: Iterable[ControlGroup]) -> tuple[ControlGroup, ...]:
    """Return groups of several looks, each once: the later look's, if it knew the name."""
    found: dict[str, ControlGroup] = {}
    for one in (group for groups in lists for group in groups):
        if not one.is_named and found.get(one.path, one).is_named:
            continue
        if one.path in found or len(found) < MOST_GROUPS:
            found[one.path] = one
    return tuple(found.values())


# What labels say of a place.

_AMONG_LIKES: Final = re.compile(r"[-/_:#\s]\d+$")
_IN_LABEL: Final = re.compile(rf" \((?:{_POD}|{_CONTAINER}) [^()]*\)")


def name_in_place(name: str, place: str) -> str:
    """Return a service's name with the pod or container that it is in: ``nginx:80 (pod a/b)``."""
    return f"{name} ({place})" if place else name


def strip_instance(name: str) -> str:
    """Return what a process is called without its number among its like: postgres-3, worker/2."""
    return _AMONG_LIKES.sub("", name) or name


def is_container(place: str) -> bool:
    """Tell whether a place is a container or a pod."""
    return place.startswith((f"{_POD} ", f"{_CONTAINER} "))


def strip_places(label: str) -> str:
    """Return a label without the pods and containers in it."""
    return _IN_LABEL.sub("", label)


def places_in(label: str) -> list[str]:
    """Return the pods and containers that a label names."""
    return [of[0][2:-1] for of in _IN_LABEL.finditer(label)]


Process = tuple[int, int]  # host, process id


class Places:
    """In which container, pod or unit each process was, over time.

    Parameters
    ----------
    moves : sequence of (int, int, int, str)
        Host, process, from when on (ns), place; "" for none.  In order of time.
    """

    def __init__(self, moves: Sequence[tuple[int, int, int, str]] = ()) -> None:
        self._known: dict[Process, tuple[list[int], list[str]]] = {}
        for host, process, time, place in moves:
            times, places = self._known.setdefault((host, process), ([], []))
            if not places or places[-1] != place:
                times.append(time)
                places.append(place)

    def __bool__(self) -> bool:
        return bool(self._known)

    def at(self, host: int, process: int, time: int) -> str:
        """Return the place known at a time, else the first one known after it; "" for none."""
        times, places = self._known.get((host, process), ((), ()))
        return places[max(0, bisect_right(times, time) - 1)] if places else ""

    def list_all(self, host: I64, process: I64, time: I64) -> list[str]:
        """Return the place of each of some processes, each at its time."""
        same: dict[Process, str | None] = {}
        found = []
        rows = zip(host.tolist(), process.tolist(), time.tolist(), strict=True)
        for on, pid, when in rows:
            known = same.get((on, pid), "?")
            if known == "?":
                places = self._known.get((on, pid), ((), ("",)))[1]
                known = same[on, pid] = places[0] if len(places) == 1 else None
            found.append(self.at(on, pid, when) if known is None else known)
        return found

    def last(self, host: int, process: int) -> str:
        """Return where a process was last seen."""
        places = self._known.get((host, process), ((), ()))[1]
        return places[-1] if places else ""
