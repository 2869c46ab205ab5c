"""For gunicorn: asks redis `n` times, computes `c` ms, or has a worker do a job (`job`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

import redis

_cache = redis.Redis(port=6398, socket_timeout=None)


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer a request."""
    query = parse_qs(environ["QUERY_STRING"])
    for _ in range(int(query.get("n", ["1"])[0])):
        _cache.get("k")
    total = 0
    for i in range(int(float(query.get("c", ["0.5"])[0]) * 40_000)):
        total += i & 7
    if "job" in query:
        _cache.lpush("jobs", query["job"][0])
        _cache.blpop(["done"], 5)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "5")])
    return [b"hello"]
