"""A recording, opened once: what its directory says is read when it is first asked for, and kept.

Who extracts a recording hands this on; only who names one has a path.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from critpath.errors import UsageError
from critpath.model import MANIFEST
from critpath.model.recording import COUNTS
from critpath.read.hosts import HostRecording, find_hosts
from critpath.read.manifest import (
    add_host_losses,
    add_manifest,
    find_addresses,
    find_bridges,
    find_device_kinds,
    find_disks,
    find_functions,
    find_reached_limits,
    open_manifest,
)
from critpath.read.traces import Description, find_traces, read_with
from critpath.stores import complete, show_place

if TYPE_CHECKING:
    from critpath.model import EventRequest, Events, Manifest, StreamFacts
    from critpath.model.clocks import HostClock
    from critpath.model.containers import ControlGroup
    from critpath.model.gaps import Gaps
    from critpath.model.recording import ReachedLimit
    from critpath.model.signatures import Counts
    from critpath.model.stacks import Stacks
    from critpath.read.clocks import Trace


class Recording:
    """A recording of one host or of a set of hosts, or a CTF trace.

    Parameters
    ----------
    path : Path
        By the name that the user gave.
    **known
        What was found out already, by the names of the attributes.
    """

    def __init__(self, path: Path, **known: object) -> None:
        self.path = path
        self.__dict__.update(known)

    @cached_property
    def directory(self) -> Path:
        """Where it is: a file that another tool recorded is converted first."""
        if os.path.lexists(self.path / MANIFEST):
            return complete(self.path)
        # What a recorder loads as root has no part in it.
        from critpath.convert import directory_of  # noqa: PLC0415 - as above

        return complete(directory_of(self.path))

    def __str__(self) -> str:
        return show_place(self.path)

    @cached_property
    def hosts(self) -> tuple[HostRecording, ...]:
        """The hosts of a set; none of one that is no set."""
        return find_hosts(self.directory)

    @cached_property
    def _opened(self) -> tuple[Manifest, tuple[str, ...]]:
        return open_manifest(self.directory, self.hosts)

    @cached_property
    def manifest(self) -> Manifest:
        """What the recorder wrote of it; an empty one if there is none."""
        return self._opened[0]

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What users should know of it, known before anything is read."""
        return self._opened[1]

    @cached_property
    def manifests(self) -> Mapping[str, Manifest]:
        """The manifest of each host of a set, by its name there."""
        return {host.name: open_manifest(host.directory)[0] for host in self.hosts}

    @cached_property
    def traces(self) -> tuple[Trace, ...]:
        """Its CTF traces, the kernel's first; a manifest that is malformed is said before."""
        _ = self.manifest
        return find_traces(self.directory, self.hosts)

    @cached_property
    def descriptions(self) -> tuple[Description, ...]:
        """What each trace can hold."""
        return tuple(map(Description, self.traces))

    @cached_property
    def event_names(self) -> tuple[str, ...]:
        """Names of all classes of events that its traces declare."""
        return tuple(sorted({name for of in self.descriptions for name in of.events}))

    @property
    def is_several(self) -> bool:
        """Whether its traces are of several hosts."""
        return len({trace.host for trace in self.traces}) > 1

    @property
    def addresses(self) -> frozenset[int]:
        """The host's own IPv4 addresses."""
        return find_addresses(self.manifest)

    @property
    def disks(self) -> dict[int, str]:
        """Names of disks by the kernel's numbers."""
        return find_disks(self.manifest)

    @property
    def reached_limits(self) -> tuple[ReachedLimit, ...]:
        """Which control groups reached a limit, and when."""
        return find_reached_limits(self.manifest)

    @cached_property
    def groups(self) -> Mapping[str, tuple[ControlGroup, ...]]:
        """Whose control groups were, by host; "" where there is one."""
        if not self.is_several:
            return {"": self.manifest.groups} if self.manifest.groups else {}
        return {name: of.groups for name, of in self.manifests.items() if of.groups}

    @cached_property
    def functions(self) -> tuple[dict[int, str], list[int]]:
        """Functions by number, and the numbers of those that are the project's own."""
        return find_functions(self.directory)

    @cached_property
    def network_devices(self) -> tuple[dict[str, str], dict[str, str]]:
        """Kinds of network devices by name, and the bridges that they are ports of."""
        manifests = [*(self.manifests.values() if self.is_several else ())] or [self.manifest]
        return find_device_kinds(manifests), find_bridges(manifests)

    @property
    def stacks(self) -> list[Stacks]:
        """Stacks that were recorded beside the trace."""
        from critpath.read.stacks import EVERY, open_stacks  # noqa: PLC0415 - numpy

        every = (open_stacks(self.directory, names) for names in EVERY)
        # Under a budget they were taken in windows: the last one before may be missing.
        whole = not self.manifest.overhead
        return [replace(of, complete=of.complete and whole) for of in every if of is not None]

    @property
    def has_stacks(self) -> bool:
        """Whether any were."""
        from critpath.read.stacks import EVERY, find_stacks  # noqa: PLC0415 - numpy

        return any(find_stacks(self.directory, names) for names in EVERY)

    def find_gaps(self, hosts: Sequence[str], clocks: Sequence[HostClock]) -> Gaps:
        """Return when it was not recorded; without clocks, in each host's own time.

        Parameters
        ----------
        hosts : sequence of str
            As events have them.
        clocks : sequence of HostClock
            By which times are moved to that of the first host.
        """
        from critpath.model.gaps import join_gaps  # noqa: PLC0415 - numpy
        from critpath.read.gaps import move_gaps, read_gaps  # noqa: PLC0415 - as above

        if not self.is_several:
            return read_gaps(self.directory, self.manifest)
        found = []
        for host in self.hosts:
            if host.name not in hosts:
                continue
            gaps = read_gaps(host.directory, self.manifests[host.name])
            clock = next((of for of in clocks if of.host == host.name), None)
            found.append(move_gaps(gaps, hosts.index(host.name), clock))
        return join_gaps(found)

    def read(self, wanted: Sequence[EventRequest], reader: str = "auto") -> Events:
        """Return all events of some classes at once: see `critpath.read.traces.read_events`."""
        return read_with(reader, self.traces, wanted)

    def add_manifest(self, events: Events) -> Events:
        """Add the manifest's losses and circumstances to the recording's events."""
        return add_manifest(events, self.manifest)

    def add_host_losses(self, events: Events, clocks: Sequence[HostClock]) -> Events:
        """Add what the manifests of several hosts say was lost, in the time of the first."""
        return add_host_losses(events, self.manifests, clocks)

    def find_other_contents(self, present: Sequence[StreamFacts]) -> tuple[str, ...]:
        """Return a line for every file that is not as it was, or is new."""
        from critpath.read.gaps import check_selected  # noqa: PLC0415 - numpy
        from critpath.read.streams import find_other_contents  # noqa: PLC0415 - as above

        if not self.manifest.streams:
            return ()
        found = find_other_contents(self.directory, self.manifest, present)
        return *found, *check_selected(self.directory, self.manifest)

    def survey_streams(self) -> tuple[StreamFacts, ...]:
        """Read it to its end, and tell what each of its stream files holds."""
        from critpath.read.streams import survey_streams  # noqa: PLC0415 - numpy

        return survey_streams(self.directory)

    def read_counts(self) -> tuple[Counts, tuple[str, ...]]:
        """Return how often what happened, as it was counted, with notes for the user."""
        from critpath.read.counts import read_counts  # noqa: PLC0415 - numpy

        return read_counts(self.directory / COUNTS)

    @contextmanager
    def keep(self) -> Iterator[None]:
        """Keep a flight recorder from removing a dump of its while it is read."""
        with ExitStack() as stack:
            with suppress(OSError):  # no manifest, or a file system without locks
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                descriptor = os.open(self.directory / MANIFEST, flags)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            yield

    @contextmanager
    def named(self) -> Iterator[None]:
        """Name the recording in which an event or a field is missing."""
        try:
            yield
        except UsageError as error:
            error.what = f"{self}: {error.what}"
            raise
