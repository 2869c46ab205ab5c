"""Marks executions in three ways."""

import time

import critpath


@critpath.execution("decorated")
def decorated() -> None:
    time.sleep(0.01)


for number in range(5):
    with critpath.execution("keyed", key=number):
        time.sleep(0.01)
    with critpath.execution("plain"):
        decorated()
