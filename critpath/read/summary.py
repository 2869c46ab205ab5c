"""What is known of a recording once its stream files have been read to their ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from critpath.errors import UnreadableError
from critpath.model import I32, I64, EventClass, Events, Loss
from critpath.read.clocks import Clocks, Trace
from critpath.read.coverage import Channels, absent
from critpath.read.event_classes import late_warnings
from critpath.read.named import NamedCpus
from critpath.read.packet_columns import PacketColumn, tracer_of
from critpath.read.packets import StreamFile, losses
from critpath.read.schema import TraceClass

Columns = tuple[I64, I32, I32, I64, I64]


class Summary:
    """Gathers what every trace of a recording tells besides its events.

    Parameters
    ----------
    traces : sequence of Trace
    clocks : Clocks

    Attributes
    ----------
    classes, hosts : list
        As in `Events`; they grow while events are decoded.
    files : list of list of StreamFile
        Of each trace, once it was read.
    named : NamedCpus
        To be shown the events.
    """

    def __init__(self, traces: Sequence[Trace], clocks: Clocks) -> None:
        self.traces = traces
        self.clocks = clocks
        self.classes: list[EventClass] = []
        self.hosts: list[str] = []
        self.files: list[list[StreamFile]] = []
        self.named = NamedCpus()

    def events(self, columns: Columns, strings: tuple[str, ...], backwards: int = 0) -> Events:
        """Return the events of the recording with all that is known of it.

        Parameters
        ----------
        columns : tuple of array
            timestamp, cpu, event_class, offset and values.
        strings : tuple of str
        backwards : int
            Places where time ran backwards within a stream.

        Raises
        ------
        UnreadableError
            If not one event could be decoded.
        """
        packets = [f.packets for of in self.files for f in of if len(f.packets)]
        table = np.concatenate(packets) if packets else np.zeros((0, len(PacketColumn)), np.int64)
        table = table[table[:, PacketColumn.EVENTS] > 0]
        total = int(table[:, PacketColumn.EVENTS].sum())
        begin = int(table[:, PacketColumn.FIRST].min()) if total else 0
        end = int(table[:, PacketColumn.LAST].max()) if total else 0
        missing: list[Loss] = []
        warnings: list[str] = []
        tracers = [tracer_of(t.schema.environment, t.directory.absolute()) for t in self.traces]
        for tracer, of in zip(tracers, self.files, strict=True):
            lost, odd = losses(of, begin, end, tracer)
            missing += lost
            warnings += odd
        channels = [
            Channels(
                t.name,
                tracer,
                self.hosts.index(t.host),
                t.domain == "kernel",
                of,
            )
            for t, tracer, of in zip(self.traces, tracers, self.files, strict=True)
        ]
        missing += absent(channels, begin, end, self.named.of)
        if total == 0:
            damage = next((loss.reason for loss in missing if loss.packets), "")
            where = self.traces[0].directory if self.traces else "the recording"
            raise UnreadableError(
                f"{where}: holds no event" + (f" that can be read ({damage})" if damage else ""),
                "check that the recording was stopped and copied whole, or record it again",
            )
        # Known only now: events are parsed as they come up.
        warnings[:0] = [w for t in self.traces for w in _metadata_warnings(t.schema)]
        if backwards:
            warnings.append(
                f"time runs backwards at {backwards} places within a stream: its events were sorted"
            )
        return Events(
            *columns,
            classes=tuple(self.classes),
            strings=strings,
            hosts=tuple(self.hosts) or ("",),
            losses=tuple(sorted(missing, key=lambda x: (x.begin, x.end, x.host, x.cpu, x.reason))),
            clock=self.clocks.reference,
            begin=begin,
            end=end,
            total=total,
            environment=tuple(t.schema.environment for t in self.traces),
            warnings=tuple(warnings + self.clocks.warnings),
        )


def _metadata_warnings(schema: TraceClass) -> tuple[str, ...]:
    """Return what was odd about the metadata of everything that was read."""
    late = [w for of in schema.streams.values() for w in late_warnings(of.events)]
    return tuple(dict.fromkeys((*schema.warnings, *late)))
