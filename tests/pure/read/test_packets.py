"""Losses are found in columns of packets, as they would be packet by packet."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.read import losses as loss_rules
from critpath.read.losses import find_losses
from critpath.read.packets import PacketColumn, StreamFile
from critpath.read.program import Role

ALL = 1 << Role.BEGIN | 1 << Role.END | 1 << Role.SEQUENCE | 1 << Role.DISCARDED
INSTANCE = 1 << Role.INSTANCE


@st.composite
def tables(draw: st.DrawFn) -> list[StreamFile]:
    """Files of one trace: packets in a row, of which some are out of it."""
    files = []
    for number in range(draw(st.integers(1, 3))):
        count = draw(st.integers(0, 6))
        table = np.zeros((count, len(PacketColumn)), np.int64)
        first = draw(st.sampled_from([0, 7, 253, (1 << 63) - 2]))
        lost = draw(st.sampled_from([0, 0, 5, 256]))
        for i, row in enumerate(table):
            row[PacketColumn.BEGIN], row[PacketColumn.END] = 100 * i, 100 * i + 100
            # The counter is of 64 bits, of which int64 has the upper half below 0.
            row[PacketColumn.SEQUENCE] = np.array([first + i], np.uint64).astype(np.int64)[0]
            row[PacketColumn.DISCARDED] = lost
            row[PacketColumn.PRESENT] = ALL | draw(st.sampled_from([0, INSTANCE]))
            row[PacketColumn.INSTANCE] = draw(st.sampled_from([0, 0, 1]))
        for _ in range(draw(st.sampled_from([0, 0, 1, 2])) if count else 0):
            row = table[draw(st.integers(0, count - 1))]
            column = draw(
                st.sampled_from(
                    [
                        PacketColumn.BEGIN,
                        PacketColumn.END,
                        PacketColumn.SEQUENCE,
                        PacketColumn.DISCARDED,
                        PacketColumn.STREAM,
                        PacketColumn.DAMAGE,
                    ]
                )
            )
            row[column] = draw(st.sampled_from([-1, 0, 1, 3, 120]))
            row[PacketColumn.PRESENT] &= ~(draw(st.sampled_from([0, 0, 1, 2])) << Role.BEGIN)
            row[PacketColumn.STREAM] = min(row[PacketColumn.STREAM], 0)
        wraps = draw(st.sampled_from([((64, 64),), ((8, 8),)]))
        files.append(file_of(f"kernel/{number}", table, wraps))
    return [file_of(f.name, f.packets, files[0].wraps) for f in files]


def file_of(name: str, table: np.ndarray, wraps: tuple[tuple[int, int], ...]) -> StreamFile:
    """A file whose clock counts nanoseconds."""
    mask = (1 << 62) - 1
    return StreamFile(name, table, lambda _, raw: raw & mask, lambda _, raw: raw & mask, wraps, 0)


def packet_by_packet(parts: list) -> tuple[list, int]:
    """What every packet of a stream tells, beside the one before it, one at a time."""
    told = [loss_rules._read_row(file, row) for file, rows in parts for row in rows.tolist()]
    told.sort(key=lambda p: p.begin)
    pairs = list(zip([None, *told], told, strict=False))
    return pairs, sum(b is not None and a.begin < b.end for b, a in pairs)


@given(tables())
def test_columns_tell_what_each_packet_tells(files: list[StreamFile]) -> None:
    quick = find_losses(files, 0, 1000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss_rules, "_find_counter_steps", packet_by_packet)
        assert find_losses(files, 0, 1000) == quick


def test_a_complete_stream_is_seen_to_be() -> None:
    table = np.zeros((300, len(PacketColumn)), np.int64)
    table[:, PacketColumn.PRESENT] = ALL
    table[:, PacketColumn.BEGIN] = np.arange(300) * 10
    table[:, PacketColumn.END] = table[:, PacketColumn.BEGIN] + 10
    table[:, PacketColumn.SEQUENCE] = np.arange(300) % 256  # as a counter of 8 bits has them
    file = file_of("kernel/0", table, ((8, 8),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss_rules, "_read_row", None)  # not called
        assert find_losses([file], 0, 3000) == ([], [])
