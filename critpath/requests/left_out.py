"""Requests that gaps leave out: those that touch one, and those that may be taken for these.

The long ones touch a gap more often.  The chance that a request which begins while something is
recorded ends before the next gap follows from the gaps and how long it takes; each of those that
are seen whole stands for as many as one in its chance (Horvitz and Thompson).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from critpath.model import F64, I32, I64, Bool, Workers
from critpath.model.requests import (
    NONE,
    Certainty,
    Endpoints,
    RequestTable,
    Rule,
    Subrequests,
)
from critpath.requests.owners import NEVER, process_keys, thread_keys
from critpath.requests.stretches import Parts
from critpath.schema.parameters.ab import WINDOWS


class Hidden:
    """When processes may work for requests of which a gap hides the begin, or all that is seen.

    Where several share what works for them, others cannot be told from these.
    """

    def __init__(
        self, parts: Parts, workers: Workers, endpoints: Endpoints, requests: RequestTable
    ) -> None:
        self._parts, self._workers, self._endpoints = parts, workers, endpoints
        self._process = self._find_processes(requests.endpoint, requests.reader_tid)
        stretch = parts.stretch[parts.find(requests.endpoint, requests.begin_ns)]
        before = requests.begin_ns <= parts.stretches.begin[stretch]
        each, number = np.unique(self._process, return_inverse=True)
        took = requests.end_ns - requests.begin_ns
        usual = [
            np.quantile(took[number.reshape(-1) == of], WINDOWS.nearly_all, method="higher")
            for of in range(len(each))
        ]
        self._usual = dict(zip(each.tolist(), np.array(usual, np.int64).tolist(), strict=True))
        silent = _find_silent(parts, requests, self._process, before)
        self._keys, place = np.unique(
            np.concatenate(
                [
                    np.column_stack([self._process[before], stretch[before]]),
                    np.column_stack([self._process[silent[:, 0]], silent[:, 1]]),
                ]
            ),
            axis=0,
            return_inverse=True,
        )
        until = np.concatenate([requests.end_ns[before], np.full(len(silent), NEVER)])
        self._until = np.full(len(self._keys), np.iinfo(np.int64).min)
        np.maximum.at(self._until, place.reshape(-1), until)

    def _find_processes(self, endpoint: I32, tid: I32) -> I64:
        return process_keys(self._workers, thread_keys(self._endpoints.host[endpoint], tid))

    def _find_until(self, process: I64, endpoint: I32, time: I64) -> I64:
        """Return until when processes may so work in the stretches of some moments."""
        stretch = self._parts.stretch[self._parts.find(endpoint, time)]
        places = {(int(p), int(s)): row for row, (p, s) in enumerate(self._keys.tolist())}
        pairs = zip(process.tolist(), stretch.tolist(), strict=True)
        found = np.array([places.get(pair, NONE) for pair in pairs], np.int64)
        # Of what is received in one gap and answered in the next, nothing is seen.
        begin = self._parts.stretches.begin[stretch]
        usual = np.array([self._usual.get(of, 0) for of in process.tolist()], np.int64)
        unseen = np.where(begin > np.iinfo(np.int64).min, begin + usual, begin)
        until = np.append(self._until, np.iinfo(np.int64).min)[found]
        return np.asarray(np.maximum(until, unseen), np.int64)

    def find_clear(self, subs: Subrequests) -> Bool:
        """Return which sub-requests are made when all is known that their process works for."""
        process = self._find_processes(subs.endpoint, subs.tid)
        clear: Bool = subs.begin_ns > self._find_until(process, subs.endpoint, subs.begin_ns)
        return clear

    def find_beside(self, requests: RequestTable, subs: Subrequests) -> Bool:
        """Return which requests may have been taken for others."""
        simple = np.isin(subs.how, (Rule.OWN, Rule.ANSWER)) | (subs.connects == 1)
        rows = np.flatnonzero((subs.request >= 0) & ~simple)
        asking = self._find_processes(subs.endpoint[rows], subs.tid[rows])
        each, number = np.unique(self._process, return_inverse=True)
        later = np.zeros(len(each), np.int64)  # for how long it works for what it has answered
        number, of = number.reshape(-1), subs.request[rows]
        np.maximum.at(later, number[of], subs.end_ns[rows] - requests.end_ns[of])
        until = self._find_until(self._process, requests.endpoint, requests.begin_ns)
        some = until > np.iinfo(np.int64).min
        until[some] = np.where(until[some] < NEVER, until[some] + later[number[some]], NEVER)
        shares = np.isin(self._process, asking)
        found = shares & (requests.begin_ns < until)
        # Who is next is known by who came before: of a queue that was there, it is not.
        unsure = np.zeros(len(requests), np.bool_)
        unsure[subs.request[rows]] = subs.attribution[rows] != Certainty.CERTAIN
        found |= shares & unsure & self._find_busy(requests, until)
        while True:
            above = requests.parent[found]
            above = above[above >= 0]
            if found[above].all():
                return np.asarray(found)
            found[above] = True

    def _find_busy(self, requests: RequestTable, until: I64) -> Bool:
        """Return before which requests their process was never idle since a gap."""
        stretch = self._parts.stretch[self._parts.find(requests.endpoint, requests.begin_ns)]
        order = np.lexsort((requests.begin_ns, self._process, stretch))
        found = np.zeros(len(requests), np.bool_)
        place, busy = (-1, -1), NEVER
        columns = (stretch, self._process, requests.begin_ns, requests.end_ns, until)
        rows = zip(order.tolist(), *(column[order].tolist() for column in columns), strict=True)
        for row, of, process, begin, end, hidden in rows:
            if place != (of, process):
                place, busy = (of, process), hidden
            found[row] = begin <= busy
            busy = max(busy, end) if found[row] else 0
        return found


def _find_silent(parts: Parts, requests: RequestTable, process: I64, before: Bool) -> I64:
    """Return a request and a stretch where it may be open while nothing is seen at its endpoint.

    It was not answered before a gap, or had been received when the endpoint was next seen.
    """
    part = parts.find(requests.endpoint, requests.begin_ns)
    stretches = parts.stretches
    after = requests.end_ns >= stretches.end[parts.stretch[part]]
    each, number = np.unique(process, return_inverse=True)
    longest = np.zeros(len(each), np.int64)
    np.maximum.at(longest, number.reshape(-1), requests.end_ns - requests.begin_ns)
    longest = longest[number.reshape(-1)]
    found = [np.zeros((0, 2), np.int64)]
    for which, step in ((np.flatnonzero(after), 1), (np.flatnonzero(before), -1)):
        rows = which
        own = part[rows]
        stretch = parts.stretch[own]
        next_part = np.clip(own + step, 0, len(parts.of) - 1)
        same = (parts.of[next_part] == parts.of[own]) & (next_part != own)
        host = stretches.host[stretch]
        edge = stretches.find_last(host) if step > 0 else stretches.find_first(host)
        limit = np.where(same, parts.stretch[next_part], edge + step)
        at = stretch + step
        while len(rows):
            within = (at < limit) if step > 0 else (at > limit)
            begin = stretches.begin[np.where(within, at, stretch)]
            end = stretches.end[np.where(within, at, stretch)]
            if step > 0:
                within &= begin < requests.begin_ns[rows] + longest[rows]
            else:
                within &= end > requests.end_ns[rows] - longest[rows]
            rows, at, limit, stretch = (c[within] for c in (rows, at, limit, stretch))
            found.append(np.column_stack([rows, at]))
            at = at + step
    return np.concatenate(found)


def count_left_out(
    requests: RequestTable,
    cut: Bool,
    goes_on: Bool,
    unsure: Bool,
    parts: Parts,
    span: tuple[int, int],
) -> Mapping[str, Mapping[str, int]]:
    """Count by service what is left out, and weigh what is not.

    Parameters
    ----------
    requests : RequestTable
    cut : bool [requests]
        Which touch a gap, or may.
    goes_on : bool [requests]
        Which of these are the end of the one before.
    unsure : bool [requests]
        Of which it is not known whose work is whose, as a gap hides what others had asked.
    parts : Parts
    span : (int, int)
        Begin and end of the recording.

    Returns
    -------
    mapping
        By service: ``requests`` and ``unsure`` that are left out, the middle and the longest time
        that those that touch a gap are known to last (``middle_ns``, ``longest_ns``), how many are
        ``whole``, for how many these stand (``estimated``), and their weighed ``p50_ns`` and
        ``p99_ns``.
    """
    part = parts.find(requests.endpoint, requests.begin_ns)
    took = requests.end_ns - requests.begin_ns
    chance = find_chances(parts, parts.stretches.host[parts.stretch[part]], took, span)
    known = _join_pieces(requests, goes_on, took)
    found = {}
    for code in np.unique(requests.service).tolist():
        mine = requests.service == code
        whole, gone = mine & ~cut, mine & cut & ~goes_on
        if not gone.any() and not (mine & unsure).any():
            continue
        weight = 1.0 / np.maximum(chance[whole], 1e-9)
        found[requests.strings[code]] = {
            "requests": int(gone.sum()),
            "unsure": int((whole & unsure).sum()),
            "middle_ns": int(np.median(known[gone])) if gone.any() else 0,
            "longest_ns": int(known[gone].max(initial=0)),
            "whole": int(whole.sum()),
            "estimated": round(float(weight.sum())),
            "p50_ns": _weighed_quantile(took[whole], weight, 0.5),
            "p99_ns": _weighed_quantile(took[whole], weight, 0.99),  # technical: as elsewhere
        }
    return found


def find_chances(parts: Parts, host: I64, took: I64, span: tuple[int, int]) -> F64:
    """Return the chance that what takes so long, and begins between gaps, ends before the next."""
    stretches = parts.stretches
    length = np.minimum(stretches.end, span[1]) - np.maximum(stretches.begin, span[0])
    result = np.ones(len(took))
    for name in np.unique(host).tolist():
        mine = np.sort(np.maximum(length[stretches.host == name], 0))
        rows = np.flatnonzero(host == name)
        place = np.searchsorted(mine, took[rows], side="right")
        longer = np.concatenate([np.cumsum(mine[::-1])[::-1], [0]])[place]
        room = longer - (len(mine) - place) * took[rows]
        result[rows] = room / max(int(mine.sum()), 1)
    return result


def _join_pieces(requests: RequestTable, goes_on: Bool, took: I64) -> I64:
    """Return how long each is known to last: of two pieces of one, the longer."""
    known = took.copy()
    order = np.lexsort((requests.turn, requests.endpoint))
    end = order[1:][goes_on[order[1:]]]
    begin = order[:-1][goes_on[order[1:]]]
    known[begin] = np.maximum(known[begin], took[end])
    return known


def _weighed_quantile(values: I64, weight: F64, share: float) -> int:
    """Return the least value that so much of the weight does not exceed."""
    if not len(values):
        return 0
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weight[order])
    at = int(np.searchsorted(total, share * total[-1], side="left"))
    return int(values[order[min(at, len(order) - 1)]])
