"""Marks of programs: what is written, to where, and what it costs while nobody records."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from urllib.parse import unquote

import pytest

import critpath
from critpath_marks import channels
from critpath_marks.marks import LONGEST, escape_word, format_mark


class Collector:
    """Takes marks as a recording would, with the thread that made them."""

    gate = None

    def __init__(self) -> None:
        self.marks: list[tuple[str, int]] = []

    def ready(self) -> bool:
        return True

    def write(self, data: bytes) -> bool:
        self.marks.append((data.decode(), threading.get_ident()))
        return True

    def close(self) -> None:
        pass

    @property
    def texts(self) -> list[str]:
        return [text.removesuffix("\n").removeprefix("critpath:") for text, _ in self.marks]

    def paired(self) -> list[str]:
        """Pair as the reader does (by key, else by name and thread); return names as ended."""
        waiting: dict[tuple, str] = {}
        ended = []
        for text, thread in self.marks:
            what, name, *key = text.split()
            group = (name, *key) if key else (name, thread)
            if what == "critpath:begin":
                assert group not in waiting, "two of the same at once"
                waiting[group] = name
            else:
                ended.append(waiting.pop(group))
        assert not waiting
        return ended


@pytest.fixture
def collected(monkeypatch) -> Collector:
    collector = Collector()
    monkeypatch.setattr(channels, "_chosen", collector)
    return collector


@pytest.fixture
def nobody(monkeypatch) -> None:
    """No recording on this machine, as far as marks can tell."""
    for name in (channels.MARKER, channels.DESCRIPTOR, channels.RECORDER):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(channels, "_chosen", None)
    monkeypatch.setattr(channels, "INSTANCES", ("/nowhere",))
    monkeypatch.setattr(channels, "LOGGER_FILE", "/nowhere/logger")


# ------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    "text", ["job", "two words", "100%", "@7", "a\tb\n", "%41", "ä€", "\u2028", "a" * LONGEST]
)
def test_words_are_lossless(text):
    written = escape_word(text)
    assert re.fullmatch(r"[!-~]+", written)
    assert not written.startswith("@")
    assert unquote(written) == text


def test_long_words_stay_distinct_and_fit():
    texts = ["x" * 5000, "x" * 5000 + "y", "ä" * 5000, "ä" * 4999]
    words = [escape_word(t) for t in texts]
    assert len(set(words)) == len(texts)
    assert max(map(len, words)) <= LONGEST
    assert all("\ufffd" not in unquote(w) for w in words)


def test_messages():
    assert format_mark("begin", "job") == b"critpath:begin job\n"
    assert format_mark("end", "job", 7) == b"critpath:end job 7\n"
    assert format_mark("end", "job", "", thread="12") == b"critpath:end job @12\n"
    assert format_mark("end", "job", 0) == b"critpath:end job 0\n"


@pytest.mark.usefixtures("nobody")
def test_wrong_marks_are_refused_whoever_records():
    for wrong in (lambda: critpath.mark("start", "x"), lambda: critpath.mark("end", "")):
        with pytest.raises(ValueError, match=r"mark|name"):
            wrong()
    with pytest.raises(ValueError, match="name"):
        critpath.execution("")


# ----------------------------------------------------------------- executions


def test_a_context_manager_and_marks(collected):
    with critpath.execution("job", key=7):
        assert critpath.mark("begin", "inner")
        assert critpath.mark("end", "inner")
    assert collected.texts == ["begin job 7", "begin inner", "end inner", "end job 7"]


def test_exceptions_pass_and_end(collected):
    with pytest.raises(KeyError), critpath.execution("job"):
        raise KeyError
    assert collected.texts == ["begin job", "end job"]


def test_nested_ones_of_a_name_are_told_apart(collected):
    shared = critpath.execution("job")
    with shared, shared, critpath.execution("job"):
        pass
    assert collected.texts[0] == "begin job"
    assert collected.texts[-1] == "end job"
    assert collected.paired() == ["job"] * 3
    with shared:
        pass
    assert collected.texts[-2:] == ["begin job", "end job"]


def test_a_gate_that_another_thread_takes_away_is_left_all_the_same(monkeypatch):
    left = []

    class Passing:
        def enter(self, _name):
            return 0.5, 3, 7

        def leave(self, *token, admitted):
            left.append((*token, admitted))

    class Changing(Collector):
        looks = 0

        @property
        def gate(self):
            self.looks += 1
            return Passing() if self.looks == 1 else None

    monkeypatch.setattr(channels, "_chosen", Changing())
    with critpath.execution("a"):
        pass
    assert left == [(3, 7, True)]


def test_a_decorator_keeps_the_function(collected):
    @critpath.execution("render")
    def factorial(number: int, *, one: int = 1) -> int:
        """Multiply."""
        return one if number == 0 else number * factorial(number - 1)

    assert factorial(3) == 6
    assert factorial.__doc__ == "Multiply."
    assert collected.paired() == ["render"] * 4


def test_methods_of_every_kind(collected):
    class Page:
        @critpath.execution("plain")
        def plain(self) -> Page:
            return self

        @critpath.execution("class")
        @classmethod
        def of_class(cls) -> type:
            return cls

        @critpath.execution("static")
        @staticmethod
        def static() -> int:
            return 3

    page = Page()
    assert (page.plain(), page.of_class(), Page.static()) == (page, Page, 3)
    assert collected.paired() == ["plain", "class", "static"]
    with pytest.raises(TypeError, match="function"):
        critpath.execution("x")(Page)


async def let_others_run(turns: int) -> None:
    """Give so many turns of the loop to other tasks."""
    for _ in range(turns):
        turn = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(turn.set_result, None)
        await turn


def test_tasks_of_a_loop_do_not_mix(collected):
    @critpath.execution("request")
    async def request(turns: int) -> int:
        with critpath.execution("inner"):
            await let_others_run(turns)
        return turns

    async def all_of_them() -> list[int]:
        return await asyncio.gather(request(20), request(0), request(10))

    assert asyncio.run(all_of_them()) == [20, 0, 10]
    assert sorted(collected.paired()) == ["inner"] * 3 + ["request"] * 3


def test_one_object_for_tasks_and_threads(collected):
    shared = critpath.execution("job")

    async def task(turns: int) -> None:
        with shared:
            await let_others_run(turns)

    async def tasks() -> None:
        await asyncio.gather(*(task(turns) for turns in (9, 1, 5)))

    barrier = threading.Barrier(4)

    def work() -> None:
        for _ in range(100):
            barrier.wait()
            with shared:
                barrier.wait()

    asyncio.run(tasks())
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert collected.paired() == ["job"] * 403


def test_generators_alternate(collected):
    @critpath.execution("rows")
    def rows(count: int) -> Iterator[int]:
        got = 0
        for i in range(count):
            got += yield i
        return got

    first, second = rows(2), rows(5)
    assert collected.texts == []  # until the first step
    assert [next(first), next(second), first.send(3)] == [0, 0, 1]
    with pytest.raises(StopIteration) as stop:
        first.send(4)
    assert stop.value.value == 7
    second.close()
    assert collected.paired() == ["rows", "rows"]


def test_asynchronous_generators_receive_and_close(collected):
    closed = []

    @critpath.execution("rows")
    async def rows():
        try:
            try:
                got = yield 1
            except KeyError:
                got = "caught"
            yield got
        finally:
            closed.append(1)

    async def use() -> list:
        one, two = rows(), rows()
        seen = [await anext(one), await anext(two), await one.asend(5)]
        seen.append(await two.athrow(KeyError()))
        with pytest.raises(StopAsyncIteration):
            await anext(one)
        await two.aclose()
        return seen

    assert asyncio.run(use()) == [1, 1, 5, "caught"]
    assert closed == [1, 1]
    assert collected.paired() == ["rows", "rows"]


# ------------------------------------------------------------------- channels


@pytest.mark.usefixtures("nobody")
def test_nothing_records(capfd):
    with critpath.execution("job"), critpath.execution("job", key=1):
        assert critpath.mark("begin", "x") is False
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("nobody")
def test_a_recording_that_starts_within_sees_whole_executions(monkeypatch):
    collector = Collector()
    shared = critpath.execution("job")
    with shared:
        monkeypatch.setattr(channels, "_chosen", collector)
        with shared, critpath.execution("other"):
            pass
        monkeypatch.setattr(channels, "_chosen", None)
        with shared:
            monkeypatch.setattr(channels, "_chosen", collector)
    assert collector.texts == ["begin job", "begin other", "end other", "end job"]


@pytest.mark.usefixtures("nobody")
def test_a_descriptor_that_is_something_else_is_left_alone(monkeypatch, tmp_path):
    with (tmp_path / "data").open("wb") as file:
        monkeypatch.setenv(channels.DESCRIPTOR, str(file.fileno()))
        assert critpath.mark("begin", "x") is False
    monkeypatch.setenv(channels.MARKER, str(tmp_path / "data"))
    channels.forget_channel()
    assert critpath.mark("begin", "x") is False
    for wrong in ("", "-1", "x", "99999999999", "700"):
        monkeypatch.setenv(channels.DESCRIPTOR, wrong)
        channels.forget_channel()
        assert critpath.mark("begin", "x") is False
    assert (tmp_path / "data").read_bytes() == b""


@pytest.mark.usefixtures("nobody")
def test_the_logger_file_takes_marks_where_lttng_records(monkeypatch, tmp_path):
    logger = tmp_path / "lttng-logger"
    logger.touch()
    monkeypatch.setattr(channels, "LOGGER_FILE", str(logger))
    monkeypatch.setenv(channels.RECORDER, "lttng-logger")
    with critpath.execution("job"):
        pass
    assert logger.read_text() == "critpath:begin job\ncritpath:end job\n"
