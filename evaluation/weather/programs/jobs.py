"""Does the jobs of shop.py: takes them from redis, and sleeps as long as they say."""

from __future__ import annotations

import ctypes
import time

import redis

ctypes.CDLL(None).prctl(15, b"mailer", 0, 0, 0)
cache = redis.Redis(port=6398, socket_timeout=None)
while True:
    _, ms = cache.blpop(["jobs"])
    time.sleep(float(ms) / 1000)
    cache.lpush("done", "x")
