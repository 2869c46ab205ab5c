"""Switches between two processes, to and fro, as often as it is told."""

import os
import sys

count = int(sys.argv[1])
there, back = os.pipe(), os.pipe()
if os.fork() == 0:
    for _ in range(count):
        os.write(back[1], os.read(there[0], 1))
    os._exit(0)
for _ in range(count):
    os.write(there[1], b".")
    os.read(back[0], 1)
os.wait()
