"""Requests as spans in OTLP's JSON, for Jaeger, Tempo and whatever else reads OpenTelemetry.

The rules are those of the OpenTelemetry Protocol's JSON encoding: a resource per service, ids in
hexadecimal, times in nanoseconds as text.  A request is a SERVER span, what it asks of others a
CLIENT span below it, and the request that this is over there a SERVER span below that.  All of
them are of one trace, by the id that any of them was told; a request that was told another one
begins a trace of its own, which is linked to the span that led to it.  So is the work for a message
to the request that put it into a queue.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from critpath import __version__
from critpath.model.requests import Certainty, Rule, Sketches
from critpath.units import safe_text

_SERVER, _CLIENT = 2, 3
_DEEPEST: Final = 50
_TRACE: Final = re.compile("[0-9a-f]{32}")


def otlp_spans(sketches: Sequence[Sketches]) -> Iterator[bytes]:
    """Write the chosen requests of recordings, and all that was asked for them, as spans.

    Parameters
    ----------
    sketches : sequence of Sketches

    Yields
    ------
    bytes
        One after the other they are the file, in ASCII: a document of OTLP.
    """
    yield b'{"resourceSpans": ['
    between = ""
    for each in sketches:
        spans = _Spans(each)
        for service in spans.services():
            yield (between + json.dumps(spans.resource(service))).encode("ascii")
            between = ", "
    yield b"]}\n"


class _Spans:
    """The spans of one recording, by service."""

    def __init__(self, sketches: Sketches) -> None:
        self._of = sketches
        table, subs = sketches.requests, sketches.subrequests
        self._trace = self._find_traces()
        kept = np.zeros(len(table), np.bool_)
        kept[sketches.chosen] = True
        parent = table.parent.astype(np.int64)
        for _ in range(_DEEPEST):  # what was asked for a chosen one is shown, too
            more = ~kept & (parent >= 0) & kept[parent]
            if not more.any():
                break
            kept |= more
        self._rows = np.flatnonzero(kept)
        calls = np.flatnonzero((subs.request >= 0) & (subs.connects == 0))
        self._calls = calls[kept[subs.request[calls]]]
        self._call_of = {int(subs.child[row]): row for row in self._calls.tolist()}
        self._producers: dict[int, list[int]] = defaultdict(list)
        passed = sketches.passed
        for job, producer in zip(passed.job.tolist(), passed.producer.tolist(), strict=True):
            if producer >= 0:
                self._producers[job].append(producer)
        self._bounds = [clock.middle_bound if clock.aligned else -1 for clock in sketches.clocks]

    def services(self) -> list[int]:
        """Return the codes of the services that have spans."""
        found: list[int] = np.unique(self._of.requests.service[self._rows]).tolist()
        return found

    def resource(self, service: int) -> dict[str, Any]:
        """Return one service with its spans."""
        table, subs = self._of.requests, self._of.subrequests
        mine = self._rows[table.service[self._rows] == service]
        calls = self._calls[table.service[subs.request[self._calls]] == service]
        host = int(self._of.endpoints.host[table.endpoint[mine[0]]])
        name = self._of.hosts[host] if host < len(self._of.hosts) else ""
        spans = [self._request(row) for row in mine.tolist()]
        spans += [self._call(row) for row in calls.tolist()]
        scope = {"name": "critpath", "version": __version__}
        attributes = {"service.name": table.strings[service], "host.name": name}
        return {
            "resource": {"attributes": _attributes(attributes)},
            "scopeSpans": [{"scope": scope, "spans": spans}],
        }

    def _request(self, row: int) -> dict[str, Any]:
        table = self._of.requests
        above = self._call_of.get(row)
        parent = "" if above is None else _span_id(self._of.recording, "call", above)
        links = []
        if above is not None:
            caller = self._trace[int(self._of.subrequests.request[above])]
            if caller != self._trace[row]:
                links, parent = [{"traceId": caller, "spanId": parent}], ""
        # Who put messages into the queue that this is the work for.
        for producer in self._producers.get(row, ()):
            span = _span_id(self._of.recording, "request", producer)
            links.append({"traceId": self._trace[producer], "spanId": span})
        return {
            **self._ids(row, _span_id(self._of.recording, "request", row), parent),
            **({"links": links} if links else {}),
            "name": safe_text(table.strings[int(table.label[row])]),
            "kind": _SERVER,
            **self._times(int(table.begin_ns[row]), int(table.end_ns[row])),
            "attributes": _attributes({
                "critpath.id": self._of.id[row],
                "critpath.own_ns": int(table.true_ns[row]),
                "critpath.queued_ns": int(table.queued_ns[row]),
                "critpath.trace_id": table.strings[int(table.trace_id[row])],
                "critpath.boundary": Certainty(int(table.boundary[row])).name.lower(),
                "thread.id": int(table.tid[row]),
                **self._uncertainty(row, above),
            }),
        }  # fmt: skip

    def _call(self, row: int) -> dict[str, Any]:
        subs, table, endpoints = self._of.subrequests, self._of.requests, self._of.endpoints
        request, child, at = int(subs.request[row]), int(subs.child[row]), int(subs.endpoint[row])
        port = int(endpoints.remote_port[at])
        path = endpoints.strings[int(endpoints.path[at])]
        asked = table.strings[int(table.service[child])] if child >= 0 else path or f":{port}"
        span = _span_id(self._of.recording, "call", row)
        return {
            **self._ids(request, span, _span_id(self._of.recording, "request", request)),
            "name": safe_text(asked),
            "kind": _CLIENT,
            **self._times(int(subs.begin_ns[row]), int(subs.end_ns[row])),
            "attributes": _attributes({
                "critpath.confidence": float(subs.probability[row]),
                "critpath.how": Rule(int(subs.how[row])).name.lower(),
                "server.address": path or endpoints.strings[int(endpoints.remote_address[at])],
                **({"server.port": port} if port else {}),
                "thread.id": int(subs.tid[row]),
            }),
        }  # fmt: skip

    def _ids(self, row: int, span: str, parent: str) -> dict[str, str]:
        return {"traceId": self._trace[row], "spanId": span, "parentSpanId": parent}

    def _find_traces(self) -> list[str]:
        """Return every request's trace: as it was told, as who asked was, or any of the tree."""
        table = self._of.requests
        parent = table.parent.astype(np.int64)
        # Which of the recording's texts are ids of traces: others wrote it.
        named = [word if _TRACE.fullmatch(word) else "" for word in table.strings]
        told = np.array([bool(word) for word in named], np.bool_)[table.trace_id]
        source, root = np.arange(len(table)), np.arange(len(table))
        for _ in range(_DEEPEST):
            up = ~told[source] & (parent[source] >= 0)
            above = parent[root] >= 0
            if not (up.any() or above.any()):
                break
            source = np.where(up, parent[source], source)
            root = np.where(above, parent[root], root)
        # Where nobody above was told one: who was told one first, of all that belongs to it.
        some = np.flatnonzero(told)
        some = some[np.lexsort((table.begin_ns[some], root[some]))]
        roots, first = np.unique(root[some], return_index=True)
        told_in = dict(zip(roots.tolist(), some[first].tolist(), strict=True))
        names = [named[code] for code in table.trace_id.tolist()]
        return [
            names[told_in.get(at, at)] or _digest(self._of.recording, "trace", at)[:32]
            for at in np.where(told[source], source, root).tolist()
        ]

    def _times(self, begin: int, end: int) -> dict[str, str]:
        epoch = self._of.epoch
        return {
            "startTimeUnixNano": str(max(begin + epoch, 0)),
            "endTimeUnixNano": str(max(end + epoch, 0)),
        }

    def _uncertainty(self, row: int, above: int | None) -> dict[str, int | str]:
        """Return by how much times may be wrong against those of who asked: a text if unknown."""
        endpoints = self._of.endpoints
        here = int(endpoints.host[self._of.requests.endpoint[row]])
        if above is None or not self._bounds:
            return {}
        there = int(endpoints.host[self._of.subrequests.endpoint[above]])
        if here == there:
            return {}
        bounds = self._bounds[here], self._bounds[there]
        if min(bounds) < 0:
            return {"critpath.clock_uncertainty": "unknown"}
        return {"critpath.clock_uncertainty_ns": sum(bounds)}


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "replace")).hexdigest()


def _span_id(*parts: object) -> str:
    return _digest(*parts)[:16]


def _attributes(values: Mapping[str, str | int | float]) -> list[dict[str, Any]]:
    """Return attributes as OTLP has them: whole numbers are text there."""
    found = []
    for key, value in values.items():
        if isinstance(value, str):
            if value:
                found.append({"key": key, "value": {"stringValue": safe_text(value)}})
        elif isinstance(value, float):
            found.append({"key": key, "value": {"doubleValue": value}})
        else:
            found.append({"key": key, "value": {"intValue": str(value)}})
    return found
