"""Chunks that are decoded in the background while others are worked on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pure.read.test_decode_packets import VALUES, other, packet, tick, trace

from critpath.errors import UnreadableError
from critpath.read.streaming import EventStream, OutOfOrder, Prefetcher

DEPTHS = [1, 2, 5]


def names():
    return [t.name for t in threading.enumerate() if t.name.startswith("critpath")]


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def many(files=3, count=9000):
    """Stream files of which later packets have names, and classes, that are new."""
    return {
        f"s{n}": packet(
            0,
            10 * count,
            [tick(10 * i + n, i, b"name %d" % (i // 100)) for i in range(count)]
            + [other(10 * count + n)],
            cpu=n,
        )
        for n in range(files)
    }


@pytest.mark.parametrize("depth", DEPTHS)
def test_results_come_in_order_and_not_too_many_at_once(depth):
    made = iter(range(10**6))
    begun = []

    def make():
        begun.append(next(made))
        return begun[-1]

    ahead = Prefetcher(make, depth)
    for wanted in range(20):
        assert ahead.next() == wanted
        ahead.settle()
        assert len(begun) == wanted + 1 + depth
    ahead.close()
    ahead.close()
    assert names() == []


def test_what_goes_wrong_is_raised_where_it_is_wanted():
    turns = iter([1, 2])
    ahead = Prefetcher(lambda: next(turns), 2)
    assert (ahead.next(), ahead.next()) == (1, 2)
    with pytest.raises(StopIteration):
        ahead.next()
    ahead.close()


@pytest.mark.parametrize("depth", DEPTHS)
def test_classes_and_codes_hang_on_no_race(tmp_path, depth):
    """The caller's texts get the same codes, whether it waits for what is made ahead or not."""
    of = trace(tmp_path, many())
    seen = []
    for slow in (False, True):
        with EventStream([of], VALUES, 1000, ahead=depth) as stream:
            one = []
            for turn, chunk in enumerate(stream):
                if slow and turn < 9:
                    stream.strings()  # all that is made ahead is there now
                assert int(chunk.event_class.max()) < len(stream.classes)
                codes = chunk.values[chunk.offset + 1].tolist()
                texts = [stream.text(code) for code in codes]
                mine = stream.code(f"mine {turn // 3}")
                assert stream.text(mine) == f"mine {turn // 3}"
                one.append((len(stream.classes), codes, texts, mine, len(stream.strings())))
            one.append(stream.finish().strings)
        seen.append(one)
    assert seen[0] == seen[1]
    assert seen[0][0][2][0] == "name 0"


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_chunk_holds_until_the_next_is_asked_for(tmp_path, depth):
    of = trace(tmp_path, many())
    with EventStream([of], VALUES, 500, ahead=depth) as stream:
        for chunk in stream:
            before = chunk.timestamp.tolist(), chunk.values.tolist()
            stream.strings()  # all that is made ahead is there now
            assert (chunk.timestamp.tolist(), chunk.values.tolist()) == before


def test_closing_in_the_middle_ends_the_thread(tmp_path):
    of = trace(tmp_path, many())
    before = descriptors()
    for stopped in (KeyboardInterrupt, ValueError, None):
        stream = EventStream([of], VALUES, 100, ahead=2)
        assert names() == []
        try:
            with stream:
                next(stream)
                assert len(names()) == 1
                if stopped:
                    raise stopped
        except (KeyboardInterrupt, ValueError):
            pass
        assert names() == []
        assert descriptors() == before
        assert list(stream) == []
        with pytest.raises(RuntimeError, match="not read to its end"):
            stream.finish()


def test_an_interrupt_while_waiting_closes_all(tmp_path, monkeypatch):
    of = trace(tmp_path, many())
    before = descriptors()
    stream = EventStream([of], VALUES, 100, ahead=2)
    next(stream)

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Prefetcher, "next", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    assert names() == []
    assert descriptors() == before


def test_a_stream_that_is_dropped_leaves_no_thread(tmp_path):
    of = trace(tmp_path, many())
    stream = EventStream([of], VALUES, 100, ahead=2)
    next(stream)
    threads = [t for t in threading.enumerate() if t.name in names()]
    del stream
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_errors_are_the_callers(tmp_path):
    back = packet(0, 9, [tick(100), tick(200)]) + packet(0, 9, [tick(50), tick(60)])
    of = trace(tmp_path, {**many(2), "z": back})
    with EventStream([of], VALUES, 100, ahead=2) as stream:
        with pytest.raises(OutOfOrder, match="within t/z"):
            list(stream)
        assert names() == []
        assert list(stream) == []
    of = trace(tmp_path, many(2))
    with EventStream([of], VALUES, ahead=2) as stream:
        (tmp_path / "s1").unlink()
        with pytest.raises(UnreadableError, match="s1: No such file"):
            list(stream)
        assert names() == []


def test_what_fails_while_a_class_is_compiled_is_raised(tmp_path, monkeypatch):
    of = trace(tmp_path, many(2))
    stream = EventStream([of], VALUES, 100, ahead=2)

    def fails(*_):
        raise UnreadableError("what", "do")

    monkeypatch.setattr("critpath.read.compiled_trace.CompiledTrace.answer", fails)
    with pytest.raises(UnreadableError):
        next(stream)
    assert names() == []


@pytest.mark.parametrize("depth", [0, *DEPTHS])
def test_who_watches_sees_every_chunk_once(tmp_path, depth):
    of = trace(tmp_path, many())
    seen, given = [], []
    with EventStream([of], VALUES, 700, ahead=depth) as stream:
        stream.watch(
            lambda chunk, classes: seen.append((chunk.timestamp.tolist(), len(classes) > 0))
        )
        for chunk in stream:
            given.append((chunk.timestamp.tolist(), True))
            assert seen[: len(given)] == given
    assert seen == given


@pytest.mark.parametrize("depth", [0, *DEPTHS])
def test_what_fails_while_watching_is_raised(tmp_path, depth):
    def fails(*_):
        raise UnreadableError("what", "do")

    with EventStream([trace(tmp_path, many(2))], VALUES, 100, ahead=depth) as stream:
        stream.watch(fails)
        with pytest.raises(UnreadableError, match="what"):
            list(stream)
        assert list(stream) == []
    assert names() == []
