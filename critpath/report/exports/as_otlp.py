"""Requests as spans in OTLP's JSON, for Jaeger, Tempo and whatever else reads OpenTelemetry.

The rules are those of the OpenTelemetry Protocol's JSON encoding: a resource per service, ids in
hexadecimal, times in nanoseconds as text.  A request is a SERVER span, what it asks of others a
CLIENT span below it, and the request that this is over there a SERVER span below that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

import numpy as np

from critpath.model import I64
from critpath.model.requests import Certainty, Rule, Sketches
from critpath.units import safe_text

_SERVER, _CLIENT = 2, 3
_DEEPEST: Final = 50


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
        self._root = _find_roots(table.parent.astype(np.int64))
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
        scope = {"name": "critpath", "version": version("critpath")}
        attributes = {"service.name": table.strings[service], "host.name": name}
        return {
            "resource": {"attributes": _attributes(attributes)},
            "scopeSpans": [{"scope": scope, "spans": spans}],
        }

    def _request(self, row: int) -> dict[str, Any]:
        table = self._of.requests
        above = self._call_of.get(row)
        parent = "" if above is None else _span_id(self._of.recording, "call", above)
        return {
            **self._ids(row, _span_id(self._of.recording, "request", row), parent),
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
        root = int(self._root[row])
        table = self._of.requests
        told = table.strings[int(table.trace_id[root])]
        trace = told or _digest(self._of.recording, "trace", root)[:32]
        return {"traceId": trace, "spanId": span, "parentSpanId": parent}

    def _times(self, begin: int, end: int) -> dict[str, str]:
        epoch = self._of.epoch
        return {
            "startTimeUnixNano": str(max(begin + epoch, 0)),
            "endTimeUnixNano": str(max(end + epoch, 0)),
        }

    def _uncertainty(self, row: int, above: int | None) -> dict[str, int]:
        """Return by how much times may be wrong against those of who asked."""
        endpoints = self._of.endpoints
        here = int(endpoints.host[self._of.requests.endpoint[row]])
        if above is None or not self._bounds:
            return {}
        there = int(endpoints.host[self._of.subrequests.endpoint[above]])
        if here == there:
            return {}
        return {"critpath.clock_uncertainty_ns": self._bounds[here] + self._bounds[there]}


def _find_roots(parent: I64) -> I64:
    root = np.arange(len(parent))
    for _ in range(_DEEPEST):
        above = parent[root] if len(root) else root
        if not (above >= 0).any():
            break
        root = np.where(above >= 0, above, root)
    return root


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
