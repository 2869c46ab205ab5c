"""Carries frames between two devices, late: ``python relay.py SPACE:DEVICE SPACE:DEVICE SETTINGS``.

SETTINGS: ``MEAN_US,JITTER_US,LOSS,SEED``: a delay is the mean plus an exponential jitter (so frames
may overtake each other), LOSS the percentage that is lost. For kernels without netem.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000


def open_tap(place: str) -> int:
    """Make a device in a network namespace, and return what reads and writes its frames."""
    space, device = place.split(":")
    made = f"cpt{os.getpid()}"[:15]
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", made.encode(), IFF_TAP | IFF_NO_PI))
    subprocess.run(["ip", "link", "set", made, "netns", space, "name", device], check=True)
    return descriptor


def main() -> None:
    """Carry frames until killed."""
    ends = [open_tap(place) for place in sys.argv[1:3]]
    mean, jitter, loss, seed = map(float, sys.argv[3].split(","))
    draw = random.Random(int(seed))
    waiting: list[tuple[float, int, int, bytes]] = []
    count = 0
    while True:
        wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for descriptor in select.select(ends, [], [], wait)[0]:
            try:
                frame = os.read(descriptor, 65536)
            except OSError:  # its device is down yet
                time.sleep(0.01)
                continue
            if 100 * draw.random() < loss:
                continue
            late = (mean + draw.expovariate(1 / jitter) if jitter else mean) / 1e6
            count += 1
            other = ends[1 - ends.index(descriptor)]
            heapq.heappush(waiting, (time.monotonic() + late, count, other, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, other, frame = heapq.heappop(waiting)
            try:
                os.write(other, frame)
            except OSError:  # nobody listens there yet
                continue


if __name__ == "__main__":
    main()
