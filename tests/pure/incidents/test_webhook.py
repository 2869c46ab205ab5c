"""What an address does not take is lost, and counted, whenever that is known."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from critpath.incidents import webhook

ADDRESS = "https://alerts.example/critpath"


def test_what_is_not_taken_twice_is_lost_and_the_next_is_sent() -> None:
    sent: list[bytes] = []

    def send(request: Any, _: float) -> None:
        sent.append(request.data)
        if request.data != b"good":
            raise OSError

    hook = webhook.Webhook(ADDRESS, send)
    for text in ("bad", "good"):
        hook.put(text)
    hook.close()
    assert sent == [b"bad", b"bad", b"good"]
    assert (hook.take_lost(), hook.take_lost()) == (1, 0)


def test_what_is_left_at_the_end_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "_LAST", 0.01)
    going, end = threading.Event(), threading.Event()

    def send(*_: Any) -> None:
        going.set()
        end.wait()

    hook = webhook.Webhook(ADDRESS, send)
    hook.put("never answered")
    going.wait()
    hook.put("never begun")
    hook.close()
    assert hook.take_lost() == 2
    end.set()
