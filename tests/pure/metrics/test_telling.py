"""From a flight recorder's answers to where they go, in a played time."""

from __future__ import annotations

import argparse
import http.server
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from critpath.commands.metrics import Clock, Teller, open_sink
from critpath.errors import CritpathError, UsageError
from critpath.incidents.webhook import complete_address
from critpath.metrics import otlp
from critpath.metrics.families import Family, Report, Sample

REPORT = Report((Family("critpath_flight_up", "gauge", "", "up", (Sample(1.0),)),), 1, 2)


class Played(Clock):
    """A clock that goes on when something waits."""

    def __init__(self) -> None:
        self.at = 0.0
        self.ending = SimpleNamespace(wait=self.go_on, is_set=lambda: False)  # type: ignore[assignment]
        self.now, self.date = lambda: self.at, lambda: int(self.at * 1e9)  # type: ignore[assignment]

    def go_on(self, seconds: float) -> None:
        self.at += seconds


def open_at(place: str, clock: Clock, said: list[str], reader: str | None = None) -> Any:
    arguments = argparse.Namespace(place=place, reader=reader, every=15.0)
    return open_sink(arguments, lambda: REPORT, clock, said.append)


class Receiver(http.server.HTTPServer):
    """A collector: it keeps what it is sent, and refuses the rest."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.taken: list[tuple[str, str, bytes]] = []
        super().__init__(("127.0.0.1", 0), Taking)


class Taking(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Receiver)
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken.append((self.path, self.headers["Content-Type"], content))
        self.send_response(self.server.code)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.mark.parametrize("code", [200, 503])
def test_a_collector_is_sent_what_it_understands_and_what_it_refuses_is_said(code: int) -> None:
    clock, said = Played(), list[str]()
    with Receiver(code) as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        sink = open_at(f"otlp:http://127.0.0.1:{receiver.server_port}", clock, said)
        for _ in range(16):  # at once, and after 15 s
            sink.wait(1.0)
        sink.close()
        receiver.shutdown()
    tries = 2 if code != 200 else 1
    assert len(receiver.taken) == 3 * tries  # the last as it ends
    path, kind, content = receiver.taken[0]
    assert (path, kind) == ("/v1/metrics", "application/json")
    request = json_format.Parse(content, ExportMetricsServiceRequest())
    [metric] = request.resource_metrics[0].scope_metrics[0].metrics
    assert metric.name == "critpath_flight_up"
    if code == 200:
        assert said == []


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://c:4318", "http://c:4318/v1/metrics"),
        ("http://c:4318/", "http://c:4318/v1/metrics"),
        ("https://c/otlp/metrics", "https://c/otlp/metrics"),
    ],
)
def test_where_a_collector_takes_metrics(text: str, address: str) -> None:
    assert complete_address(text, otlp.PATH) == address


@pytest.mark.parametrize("place", ["otlp:", "otlp:file:///etc/passwd", "otlp:c:4318", "0.0.0.0:1"])
def test_places_that_are_none(place: str) -> None:
    with pytest.raises(UsageError):
        open_at(place, Played(), [])


def test_a_file_is_whole_and_its_users_alone(tmp_path: Path) -> None:
    clock, file = Played(), tmp_path / "critpath.prom"
    sink = open_at(f"file:{file}", clock, [])
    assert file.read_text().endswith("# EOF\n")
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("")
    sink.wait(1.0)  # due at once
    assert file.read_text().endswith("# EOF\n")
    file.write_text("")
    for _ in range(13):
        sink.wait(1.0)
        assert file.read_text() == ""
    for _ in range(3):
        sink.wait(1.0)
    assert file.read_text().endswith("# EOF\n")
    assert [*tmp_path.iterdir()] == [file]


def test_a_user_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="no user"):
        open_at("127.0.0.1:0", Played(), [], reader="no-such-user")


class Flight:
    """A flight recorder that may be gone, or another one."""

    def __init__(self) -> None:
        self.session, self.gone, self.ended = "a-1", False, 0
        self.asked: list[int] = []

    def ask(self, document: dict[str, Any], _: float) -> dict[str, Any]:
        if self.gone:
            raise CritpathError("the flight recorder does not answer", "")
        if "top" not in document:
            return {
                "session": self.session,
                "gaps": 1.0,
                "dumps": {"made": 0, "refused": {}},
                "overhead": {"counted": 0.0, "now": 0.0, "target": 0.01},
            }
        self.asked.append(document["top"])
        rows = [["marker", "pay", 0, 1_000_000]] * (self.ended - document["top"])
        return {"seen": self.ended, "more": False, "missed": 0, "ended": rows, "dump": ""}


def test_a_flight_recorder_that_ends_is_told_to_be_down_and_the_next_is_asked_from_its_begin() -> (
    None
):
    flight = Flight()
    settings: Any = {"quiet": True, "execution": None, "max-memory": 0}
    teller = Teller(lambda: flight, None, settings, Played())  # type: ignore[arg-type,return-value]

    def told() -> tuple[float, float]:
        families = {family.name: family.samples for family in teller.report().families}
        latency = families["critpath_request_seconds"]
        up = families["critpath_flight_up"][0].value
        return up, sum(one.value.count for one in latency)  # type: ignore[union-attr,return-value]

    flight.ended = 2
    teller.look()
    assert told() == (1, 2)
    flight.gone = True
    teller.look()
    assert told() == (0, 2)
    flight.gone, flight.session, flight.ended = False, "b-2", 3
    teller.look()
    assert told() == (1, 5)
    assert flight.asked == [0, 0]
