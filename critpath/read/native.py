"""The native reader: trace directories -> Events, all at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

import numpy as np

from critpath.model import Events, Wanted
from critpath.read import _decode, _merge
from critpath.read.clocks import Clocks, Trace
from critpath.read.compiled import CompiledTrace, not_readable, stream_size
from critpath.read.packet_columns import PacketColumn
from critpath.read.packets import StreamFile
from critpath.read.selection import selection
from critpath.read.shapes import decoded
from critpath.read.summary import Summary


def _read_trace(compiled: CompiledTrace, decoder: _decode.Decoder) -> list[StreamFile]:
    """Decode every stream file of a trace; append to the decoder's columns."""
    files = []
    for path in compiled.trace.files:
        decoder.file(compiled.tables, os.fsencode(path), stream_size(path))
        try:
            while (asked := decoder.run()) is not None:
                compiled.answer(decoder, *asked)
        except OSError as error:
            raise not_readable(error) from error
        finally:
            decoder.close()
        files.append(compiled.stream_file(path, decoder.file_packets()))
    compiled.keep()
    return files


def read_traces(traces: Sequence[Trace], wanted: Sequence[Wanted]) -> Events:
    """Read the traces of one recording.

    Parameters
    ----------
    traces : sequence of Trace
        The first one's clock is the recording's.
    wanted : sequence of Wanted

    Returns
    -------
    Events
        Events of the same time stand in the order of traces and files.

    Raises
    ------
    UnreadableError
        If not one event could be decoded, or a file cannot be opened.
    """
    recording = _decode.Recording()
    decoder = _decode.Decoder(recording)
    clocks = Clocks(traces)
    chosen = selection(tuple(wanted))
    about = Summary(traces, clocks)
    starts: set[int] = set()
    for trace in traces:
        shift = partial(clocks.shift, trace)
        compiled = CompiledTrace(trace, chosen, shift, recording, about.classes, about.hosts)
        files = _read_trace(compiled, decoder)
        about.files.append(files)
        starts |= {int(f.packets[0, PacketColumn.ROW]) for f in files if len(f.packets)}
    ts, place, values = decoder.columns()
    runs = _merge.run_starts(ts)
    back = len(set(runs.tolist()) - starts) if len(runs) > 1 else 0
    widths = np.array([len(c.fields) for c in about.classes], np.int64)
    timestamp, event_class, cpu, offset = _merge.merge(ts, place, widths, runs)
    about.named.look(event_class, offset, values, about.classes)
    columns = (timestamp, cpu, event_class, offset, values)
    return about.events(columns, tuple(decoded(recording.texts())), back)
