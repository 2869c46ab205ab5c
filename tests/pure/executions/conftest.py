"""A small factory: events written down one after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from critpath.model import EventClass, Events, Kind

KINDS = {
    "sched_switch": Kind.SWITCH,
    "sched_wakeup_new": Kind.WAKEUP_NEW,
    "sched_process_fork": Kind.FORK,
    "sched_process_exec": Kind.EXEC,
    "sched_process_exit": Kind.EXIT,
}


class Recorder:
    """Collects events as (time, cpu, name, fields) and makes `Events` of them."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, str, dict, int]] = []

    def add(
        self, time: int, cpu: int, name: str, /, *, host: int = 0, **fields: object
    ) -> Recorder:
        self.rows.append((time, cpu, name, fields, host))
        return self

    def switch(
        self, time: int, cpu: int, prev: tuple[int, str], new: tuple[int, str], *, host: int = 0
    ) -> Recorder:
        return self.add(
            time,
            cpu,
            "sched_switch",
            host=host,
            prev_comm=prev[1],
            prev_tid=prev[0],
            prev_state=1,
            next_comm=new[1],
            next_tid=new[0],
        )

    def events(self, hosts: tuple[str, ...] = ("guest",)) -> Events:
        strings: dict[str, int] = {"": 0}
        classes: dict[EventClass, int] = {}
        values: list[int] = []
        offsets, of_class = [], []
        ordered = sorted(self.rows, key=lambda row: row[0])
        for _, _, name, fields, host in ordered:
            types = tuple(
                {str: "str", float: "float", int: "int"}[type(v)] for v in fields.values()
            )
            kind = KINDS.get(name, Kind.OTHER)
            domain = "ust" if ":" in name else "kernel"
            key = EventClass(name, kind, tuple(fields), types, domain, host)
            of_class.append(classes.setdefault(key, len(classes)))
            offsets.append(len(values))
            for value in fields.values():
                if isinstance(value, str):
                    values.append(strings.setdefault(value, len(strings)))
                elif isinstance(value, float):
                    values.append(int(np.float64(value).view(np.int64)))
                else:
                    values.append(int(value))
        times = [row[0] for row in ordered]
        return Events(
            np.array(times, np.int64),
            np.array([row[1] for row in ordered], np.int32),
            np.array(of_class, np.int32),
            np.array(offsets, np.int64),
            np.array(values, np.int64),
            tuple(classes),
            tuple(strings),
            hosts,
            begin=min(times, default=0),
            end=max(times, default=0),
            total=len(times),
        )


@pytest.fixture
def record() -> Callable[[], Recorder]:
    return Recorder
