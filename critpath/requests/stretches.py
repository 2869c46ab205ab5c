"""A recording with gaps, as if every stretch between two of them were of a host of its own.

What was going on before a gap is not known after it: who sleeps, who works for whom, which requests
are open.  So nothing is carried from one stretch to the next but what lasts: which socket is which,
who serves, which thread is of which process, and the habits of services.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Final

import numpy as np

from critpath.model import I32, I64, Bool, Workers
from critpath.model.gaps import BASE, Gaps
from critpath.model.requests import NONE, Act, Activity, Endpoints, RequestTable, Subrequests
from critpath.records import dataclass

_LIMITS: Final = np.iinfo(np.int64)
_MOVES: Final = (Act.ARRIVAL, Act.RECEIVE, Act.SEND)


class Stretches:
    """Times between the gaps of each host, numbered through all hosts.

    Parameters
    ----------
    gaps : Gaps
    hosts : int

    Attributes
    ----------
    host, begin, end : int64 [n]
        Without bounds at the ends of the recording.
    """

    def __init__(self, gaps: Gaps, hosts: int) -> None:
        every = [gaps.of(BASE, host) for host in range(max(hosts, 1))]
        self.host = np.repeat(np.arange(len(every)), [len(own) + 1 for own in every])
        low, high = np.array([_LIMITS.min]), np.array([_LIMITS.max])
        self.begin = np.concatenate([part for own in every for part in (low, own.end)])
        self.end = np.concatenate([part for own in every for part in (own.begin, high)])
        self._first = np.concatenate([[0], np.cumsum([len(own) + 1 for own in every])])

    def __len__(self) -> int:
        return len(self.host)

    def find(self, host: I32 | I64, time: I64) -> I64:
        """Return the stretch of each moment of hosts; the one before, of what lies in a gap."""
        found = np.zeros(len(time), np.int64)
        for name in range(len(self._first) - 1):
            mine = np.flatnonzero(host == name)
            first, last = self._first[name : name + 2].tolist()
            begins = self.begin[first:last]
            found[mine] = first + np.searchsorted(begins, time[mine], side="right") - 1
        return found

    def find_first(self, host: I64) -> I64:
        """Return the first stretch of hosts."""
        return np.asarray(self._first[host], np.int64)

    def find_last(self, host: I64) -> I64:
        """Return the last stretch of hosts."""
        return np.asarray(self._first[host + 1] - 1, np.int64)

    def own_keys(self, keys: I64) -> I64:
        """Return the keys of threads and processes with their hosts in place of stretches."""
        own: I64 = (self.host[keys >> 32] << 32) | (keys & 0xFFFFFFFF)
        return own

    @cached_property
    def follows_gap(self) -> Bool:
        """Return of which stretches the begin is the end of a gap."""
        return np.asarray(self.begin > _LIMITS.min)

    @cached_property
    def precedes_gap(self) -> Bool:
        """Return of which stretches the end is the begin of a gap."""
        return np.asarray(self.end < _LIMITS.max)


@dataclass(frozen=True, eq=False)
class Parts:
    """What was done at the sockets of a recording, each stretch for itself.

    Attributes
    ----------
    activity : Activity
        The host of each row is its stretch, its endpoint a row of ``endpoints``.
    endpoints : Endpoints
        Each as often as there are stretches in which anything happens at it.
    of : int64 [endpoints]
        The row of the recording's endpoints that each is a part of.
    stretches : Stretches
    """

    activity: Activity
    endpoints: Endpoints
    of: I64
    stretches: Stretches

    @cached_property
    def stretch(self) -> I64:
        """Return the stretch that each endpoint's part is of."""
        return self.endpoints.host.astype(np.int64)

    def find(self, endpoint: I32, time: I64) -> I32:
        """Return the parts of endpoints that some moments are in."""
        host = self.stretches.host[self.stretch[self._some[endpoint]]]
        key = _join(endpoint, self.stretches.find(host, time), len(self.stretches))
        at = np.minimum(np.searchsorted(self._keys, key), max(len(self._keys) - 1, 0))
        return at.astype(np.int32)

    @cached_property
    def _keys(self) -> I64:
        return _join(self.of, self.stretch, len(self.stretches))

    @cached_property
    def _some(self) -> I64:
        """Return some part of each endpoint that has one."""
        some = np.zeros(int(self.of.max(initial=-1)) + 1, np.int64)
        some[self.of] = np.arange(len(self.of))
        return some

    def part_workers(self, workers: Workers) -> Workers:
        """Return the threads of every stretch that do anything in it."""
        return part_workers(self.activity, workers, self.stretches)

    def ends_in_gap(self, subrequests: Subrequests) -> Bool:
        """Return which sub-requests a gap cuts: whose they are was found, and no more is known."""
        ends = self.stretches.end[
            self.stretch[self.find(subrequests.endpoint, subrequests.begin_ns)]
        ]
        return np.asarray(subrequests.end_ns >= ends)

    def begin_with(self, requests: RequestTable) -> Activity:
        """Return what was done, with what is known of the begin of each stretch.

        Requests that go on there are received; threads that are woken before they do anything else
        sleep.
        """
        acts, stretches = self.activity, self.stretches
        part = self.find(requests.endpoint, requests.begin_ns)
        there = requests.received_ns == stretches.begin[self.stretch[part]]
        there &= requests.reader_tid > 0
        rows = np.flatnonzero((acts.tid > 0) | (acts.act == Act.WAKE))
        woken = acts.act[rows] == Act.WAKE
        whom = np.where(woken, acts.value[rows], acts.tid[rows])
        _, first = np.unique((acts.host[rows].astype(np.int64) << 32) | whom, return_index=True)
        slept = first[woken[first] & stretches.follows_gap[acts.host[rows[first]]]]
        columns = (
            (stretches.begin[self.stretch[part[there]]], stretches.begin[acts.host[rows[slept]]]),
            (np.full(int(there.sum()), Act.RECEIVE), np.full(len(slept), Act.SLEEP)),
            (requests.reader_tid[there], whom[slept]),
            (self.stretch[part[there]], acts.host[rows[slept]]),
            (part[there], np.full(len(slept), NONE)),
            (np.zeros(int(there.sum()), np.int64), np.zeros(len(slept), np.int64)),
        )
        names = ("time_ns", "act", "tid", "host", "endpoint", "value")
        joined = {
            name: np.concatenate([*more, getattr(acts, name)]).astype(getattr(acts, name).dtype)
            for name, more in zip(names, columns, strict=True)
        }
        order = np.argsort(joined["time_ns"], kind="stable")
        return Activity(**{name: column[order] for name, column in joined.items()})


def part_workers(activity: Activity, workers: Workers, stretches: Stretches) -> Workers:
    """Return the threads of every stretch that do anything in it: its number is their host."""
    about = np.isin(activity.act, (Act.WAKE, Act.CREATE))
    tid = np.concatenate([activity.tid, activity.value[about].astype(np.int32)]).astype(np.int64)
    stretch = np.concatenate([activity.host, activity.host[about]]).astype(np.int64)
    seen = np.unique((stretch << 32) | np.maximum(tid, 0))
    own = stretches.own_keys(seen)
    keys = (workers.host << 32) | workers.tid
    order = np.argsort(keys, kind="stable")
    first = np.searchsorted(keys[order], own, side="left")
    many = np.searchsorted(keys[order], own, side="right") - first
    which = np.repeat(np.arange(len(own)), many)
    lives = first[which] + np.arange(len(which)) - np.repeat(np.cumsum(many) - many, many)
    return replace(workers.take(order[lives]), host=seen[which] >> 32)


def part_activity(activity: Activity, endpoints: Endpoints, stretches: Stretches) -> Parts:
    """Take what was done apart, at the gaps; in them no more than that threads begin and end."""
    stretch = stretches.find(activity.host, activity.time_ns)
    kept = activity.time_ns < stretches.end[stretch]
    kept |= np.isin(activity.act, (Act.CREATE, Act.EXIT))
    if not kept.all():
        activity, stretch = activity.take(kept), stretch[kept]
    used = np.flatnonzero(activity.endpoint >= 0)
    key = _join(activity.endpoint[used], stretch[used], len(stretches))
    keys, part = np.unique(key, return_inverse=True)
    of, where = keys // len(stretches), keys % len(stretches)
    endpoint = np.full(len(activity), NONE, np.int32)
    endpoint[used] = part.reshape(-1)
    peer = endpoints.peer[of].astype(np.int64)
    there = (peer >= 0) & (endpoints.host[peer] == endpoints.host[of])
    other = _join(np.maximum(peer, 0), where, len(stretches))
    at = np.minimum(np.searchsorted(keys, other), max(len(keys) - 1, 0))
    there[there] = keys[at[there]] == other[there]
    made = replace(
        endpoints.take(of),
        host=where.astype(np.int32),
        peer=np.where(there, at, NONE).astype(np.int32),
    )
    parted = replace(activity, host=stretch.astype(np.int32), endpoint=endpoint)
    return Parts(parted, made, of, stretches)


def _join(endpoint: I32 | I64, stretch: I64, many: int) -> I64:
    return endpoint.astype(np.int64) * many + stretch
