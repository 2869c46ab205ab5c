"""Marks of programs: what is written, to where, and what it costs while nobody records."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

import critpath
from critpath_marks import channels, sessions
from critpath_marks.marks import LONGEST, escape_word, format_mark

pytestmark = pytest.mark.xdist_group("kernel")


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


def test_tasks_of_a_loop_do_not_mix(collected):
    @critpath.execution("request")
    async def request(seconds: float) -> float:
        with critpath.execution("inner"):
            await asyncio.sleep(seconds)
        return seconds

    async def all_of_them() -> list[float]:
        return await asyncio.gather(request(0.02), request(0.0), request(0.01))

    assert asyncio.run(all_of_them()) == [0.02, 0.0, 0.01]
    assert sorted(collected.paired()) == ["inner"] * 3 + ["request"] * 3


def test_one_object_for_tasks_and_threads(collected):
    shared = critpath.execution("job")

    async def task(seconds: float) -> None:
        with shared:
            await asyncio.sleep(seconds)

    async def tasks() -> None:
        await asyncio.gather(*(task(s / 1000) for s in (9, 1, 5)))

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


AGENT = """
    import logging
    class Handler(logging.Handler):
        def emit(self, record):
            print("agent", record.name, record.levelname, record.getMessage())
    logging.getLogger().setLevel(logging.NOTSET)
    logging.getLogger().addHandler(Handler())
"""


def test_lttngs_agent_alone_sees_marks(tmp_path):
    (tmp_path / "lttngust").mkdir()
    (tmp_path / "lttngust" / "__init__.py").write_text(textwrap.dedent(AGENT))
    program = """
        import logging, critpath
        logging.basicConfig(level=logging.WARNING)
        with critpath.execution("job", key="a b"):
            logging.getLogger("app").info("not shown")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "CRITPATH_RECORDER": "lttng"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "agent critpath INFO critpath:begin job a%20b",
        "agent critpath INFO critpath:end job a%20b",
    ]
    assert done.stderr == ""


def test_the_import_is_cheap():
    """No numpy, and none of the slow modules of the standard library."""
    program = "import sys, critpath; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip("the package needs the site module here")
    slow = {"numpy", "inspect", "logging", "asyncio", "dataclasses", "pathlib", "secrets"}
    assert slow & set(done.stdout.split()) == set()


# ---------------------------------------------------------------- real kernel


@pytest.fixture
def instance(tracefs_instance: Path) -> Iterator[Path]:
    (tracefs_instance / "trace_clock").write_text("mono")
    yield tracefs_instance
    channels.forget_channel()


def recorded(instance: Path) -> list[tuple[int, str]]:
    """Return (tid, message) of every mark in the instance."""
    found = re.findall(
        r"^.*?-(\d+) +\[\d+\].*?: tracing_mark_write: critpath:(.*)$",
        (instance / "trace").read_text(),
        re.MULTILINE,
    )
    return [(int(tid), text) for tid, text in found]


PROGRAM = """
    import os, threading, critpath
    print(threading.get_native_id(), flush=True)
    def work():
        print(threading.get_native_id(), flush=True)
        with critpath.execution("thread"):
            pass
    with critpath.execution("main", key=5):
        thread = threading.Thread(target=work); thread.start(); thread.join()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        with critpath.execution("child"):
            os._exit(0 if critpath.mark("begin", "x") else 1)
    raise SystemExit(os.wait()[1])
"""


@pytest.mark.parametrize("way", ["path", "descriptor", "none"])
def test_threads_and_children_mark_in_the_kernel(instance, way):
    marker = instance / "trace_marker"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CRITPATH")}
    with contextlib.ExitStack() as stack:
        keep = ()
        if way == "path":
            environment[channels.MARKER] = str(marker)
        if way == "descriptor":
            file = stack.enter_context(marker.open("wb"))
            keep = (file.fileno(),)
            environment[channels.DESCRIPTOR] = str(file.fileno())
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PROGRAM)], pass_fds=keep, env=environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    main, thread, child = map(int, done.stdout.splitlines())
    assert [mark for mark in recorded(instance) if mark[0] in {main, thread, child}] == [
        (main, "begin main 5"), (thread, "begin thread"), (thread, "end thread"),
        (main, "end main 5"), (child, "begin child"), (child, "begin x"),
    ]  # fmt: skip


def test_a_recording_that_ends_is_let_go_and_the_next_is_found(instance, monkeypatch):
    monkeypatch.setenv(channels.MARKER, str(instance / "trace_marker"))
    monkeypatch.delenv(channels.DESCRIPTOR, raising=False)
    channels.forget_channel()
    assert critpath.mark("begin", "one")
    (instance / "tracing_on").write_text("0")
    critpath.mark("end", "one")  # says that it is over
    other = instance.with_name(sessions.new_session_name())
    other.mkdir()
    try:
        instance.rmdir()  # nobody holds it
        channels.forget_channel()
        assert critpath.mark("begin", "two")
        assert "begin two" in [text for _, text in recorded(other)]
    finally:
        other.rmdir()  # a program that lives on does not hold it either
        instance.mkdir()


def test_a_closed_descriptor_does_no_harm(instance, monkeypatch, tmp_path):
    monkeypatch.setenv(channels.MARKER, str(instance / "trace_marker"))
    monkeypatch.delenv(channels.DESCRIPTOR, raising=False)
    channels.forget_channel()
    assert critpath.mark("begin", "one")
    os.closerange(channels._HIGH, channels._HIGH + 20)  # as daemons do
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context((tmp_path / str(i)).open("wb")) for i in range(20)]
        assert critpath.mark("begin", "two")
        assert files
    assert sum((tmp_path / str(i)).stat().st_size for i in range(20)) == 0
    assert [t for _, t in recorded(instance)] == ["begin one", "begin two"]
