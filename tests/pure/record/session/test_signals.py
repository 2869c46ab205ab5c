"""Ctrl-C, kill and their like at every moment of a recording, in a played world."""

from __future__ import annotations

import random
import signal
import threading
from types import SimpleNamespace

import pytest

from critpath.model import CpuLoss, Manifest
from critpath_record.manifests import read_manifest
from critpath_record.recorder import RecordRequest
from critpath_record.session import _Session
from critpath_record.signals import InheritedState, Signals, StopRequested
from critpath_record.source import Taken
from tests.played.session import STAYS

INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


@pytest.mark.parametrize(("number", "code"), [(INT, 130), (TERM, 143), (HUP, 129)])
def test_the_first_goes_to_the_command_and_the_recording_is_finished(session, number, code):
    def work(_):
        session.world.interrupt(number)
        return STAYS

    session.commands(work=work)
    assert session.record("-n", "9", "work").code == code
    [process] = session.started
    assert process.got == [signal.SIGSTOP, number]
    manifest = session.manifest()
    assert manifest["state"] == "complete"
    assert [r["exit_code"] for r in manifest["runs"]] == [code]
    assert session.calls() == ["open", "close", "drain"]
    assert not session.instance


def test_the_commands_own_code_counts(session):
    def work(process):
        process.traps[INT] = lambda: process.exit(5)
        session.world.interrupt()
        return STAYS

    session.commands(work=work)
    assert session.record("-n", "9", "work").code == 5


def test_children_of_the_command_get_it_as_from_a_terminal(session):
    tree = []

    def work(process):
        tree.extend((process.fork(), process.fork(group=7)))
        session.world.interrupt(TERM)
        return STAYS

    session.commands(work=work)
    done = session.record("work")
    assert done.code == 143
    child, apart = tree
    assert child.got == [signal.SIGSTOP, TERM]
    assert apart.got == []  # in a group of its own: a terminal would not reach it
    assert "left processes running (1 in all)" in done.err


def test_a_child_that_is_forked_before_its_parent_halts_gets_it_too(session, monkeypatch):
    tree = []

    def work(process):
        tree.append(process)
        session.world.interrupt(TERM)
        return STAYS

    look = session.world.read_processes

    def late():
        """After every look there is one child more, up to two."""
        found = look()
        if session.world.pending == [] and len(tree) < 3 and tree:
            tree.append(tree[0].fork())
        return found

    monkeypatch.setattr(session.world, "read_processes", late)
    session.commands(work=work)
    assert session.record("work").code == 143
    assert [process.got for process in tree] == [[signal.SIGSTOP, TERM]] * 3


def test_what_a_command_starts_to_clean_up_does_not_get_it(session):
    """It came after the signal: from a terminal it would not get it either."""
    cleaning = []

    def work(process):
        def clean_up():
            cleaning.append(process.fork())
            cleaning[0].exit()
            process.exit(3)

        process.traps[TERM] = clean_up
        session.world.interrupt(TERM)
        return STAYS

    session.commands(work=work)
    assert session.record("-n", "9", "work").code == 3
    assert cleaning[0].got == []


def test_the_second_ends_at_once(session):
    tree = []

    def work(process):
        tree.extend((process, process.fork()))
        for one in tree:
            one.traps = {INT: None, TERM: None}
        session.clock.call_at(session.clock.now + 1, session.world.interrupt)
        session.clock.call_at(session.clock.now + 2, lambda: session.world.interrupt(TERM))
        return STAYS

    session.commands(work=work)
    assert session.record("-n", "9", "work").code == 143
    assert [process.got[-1] for process in tree] == [signal.SIGKILL] * 2
    assert session.is_clean()
    assert session.calls() == ["open", "abort"]


def test_one_request_that_comes_twice_is_one(monkeypatch):
    now, said = [100.0], []
    monkeypatch.setattr("critpath_record.signals.time", SimpleNamespace(monotonic=lambda: now[0]))
    signals = Signals(SimpleNamespace(ignored=frozenset()), said.append)
    request = SimpleNamespace(si_signo=TERM)
    assert signals.note(request)
    for _ in range(3):
        now[0] += 0.005
        assert not signals.note(request)
    assert len(said) == 1
    now[0] += 1
    with pytest.raises(StopRequested):
        signals.note(request)


def test_signals_that_are_blocked_are_taken_between_two_steps():
    said = []
    with Signals(InheritedState.capture(), said.append) as signals:
        assert (signals.poll(), signals.first) == (False, 0)
        signal.pthread_kill(threading.get_ident(), TERM)
        assert signals.poll()
        assert (signals.first, signals.exit_code, len(said)) == (TERM, 143, 1)
        assert signals.wait(0) is None
        signal.pthread_kill(threading.get_ident(), INT)
        assert signals.wait(None).si_signo == INT
        signal.pthread_kill(threading.get_ident(), HUP)  # of what has happened by the end


def test_a_thread_takes_them_while_the_main_thread_works():
    """The second comes as an exception, wherever the main thread is."""
    heard = threading.Event()

    def be_asked_twice(signals):
        with signals.watching():
            [watcher] = [t for t in threading.enumerate() if t.name == "signals"]
            signal.pthread_kill(watcher.ident, INT)
            assert heard.wait(60)
            signal.pthread_kill(watcher.ident, TERM)
            threading.Event().wait(60)

    with Signals(InheritedState.capture(), lambda _: heard.set()) as signals:
        with pytest.raises(StopRequested):
            be_asked_twice(signals)
        assert (signals.first, signals.exit_code) == (INT, 143)
        assert "signals" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("step", ["open", "close", "drain"])
@pytest.mark.parametrize("times", [1, 2])
def test_while_the_recorder_works(session, step, times):
    def interrupt():
        for _ in range(times):
            session.world.interrupt()
            session.clock.now += 1

    done = session.record("true", on={step: interrupt})
    if times == 2:
        assert done.code == 130
        assert session.is_clean()
        assert session.calls()[-1] == "abort"
    elif step == "open":
        assert done.code == 130
        assert "no recording" in done.err
        assert session.is_clean()
    else:
        assert done.code == 0
        assert session.manifest()["state"] == "complete"
        assert len(session.manifest()["runs"]) == 1
    assert not session.instance


def test_a_trace_that_is_there_already_is_kept(session):
    def interrupt():
        session.world.interrupt()
        session.world.interrupt(TERM)

    done = session.record("true", on={"finished": interrupt})
    assert done.code == 143
    assert "interrupted" in done.err
    manifest = session.manifest()
    assert manifest["state"] == "interrupted"
    assert len(manifest["runs"]) == 1
    assert manifest["warnings"]
    assert sorted(p.name for p in session.output.iterdir()) == ["critpath.json", "trace"]


@pytest.mark.parametrize("option", ["--prepare", "--warmup"])
def test_before_the_first_run(session, option):
    def stay(_):
        session.world.interrupt()
        return STAYS

    session.commands(sh=stay, work=stay)
    words = {"--prepare": ("tidy", "true"), "--warmup": ("2", "work")}
    done = session.record(option, *words[option])
    assert done.code == 130, done.err
    [process] = session.started
    assert process.got[-1] == INT
    assert session.is_clean()


def test_between_runs_what_there_is_is_kept(session):
    def prepare(_):
        if len(session.started) > 1:
            session.world.interrupt()
            return STAYS
        return 0

    session.commands(sh=prepare)
    assert session.record("-n", "5", "--prepare", "tidy", "true").code == 130
    assert [r["exit_code"] for r in session.manifest()["runs"]] == [0]
    assert session.manifest()["state"] == "complete"


@pytest.mark.parametrize("number", [INT, TERM])
def test_the_whole_machine_until_a_signal(session, number):
    session.clock.call_at(session.clock.now + 3600, lambda: session.world.interrupt(number))
    assert session.record("-a").code == 0
    manifest = session.manifest()
    assert manifest["state"] == "complete"
    assert 3.5e12 < manifest["end"] - manifest["begin"] < 3.7e12


def test_ctrl_c_at_a_terminal_reaches_the_command_once(session):
    def work(process):
        process.traps[INT] = lambda: session.clock.call_at(0, lambda: process.exit(10))
        session.clock.call_at(session.clock.now + 1, lambda: session.world.interrupt(terminal=True))
        return STAYS

    session.commands(work=work)
    assert session.record("-n", "9", "work").code == 10
    assert session.started[0].got == [INT]
    assert session.manifest()["state"] == "complete"


def test_at_random_moments_nothing_is_left(session):
    dice = random.Random(7)  # noqa: S311 - moments, no secrets
    for index in range(10):
        number = dice.choice([INT, TERM])
        name = f"r{index}"

        def work(process):
            session.clock.call_at(session.clock.now + 0.02, process.exit)
            return STAYS

        session.commands(work=work)
        session.clock.call_at(
            session.clock.now + dice.random() * 0.4, lambda n=number: session.world.interrupt(n)
        )
        done = session.record("-o", name, "-n", "50", "work")
        assert done.code in {128 + number, 0}, done.err
        assert "Traceback" not in done.err
        assert not session.instance
        if (session.place / name).exists():
            assert session.manifest(name)["state"] == "complete"
            assert session.manifest(name)["runs"]
        assert session.world.processes == {}
    assert not [p for p in session.place.iterdir() if p.name.startswith(".")]


def test_linking_that_was_interrupted_is_done_again_and_the_loss_stays(tmp_path):
    manifests = []
    for half in ("normal", "sample"):
        (tmp_path / half / "trace" / "kernel").mkdir(parents=True)
        manifests.append(
            Manifest("recording", "s", (), "", (), {"name": "ftrace"}, "", {}, {}, 1, 2)
        )
    for name in ("metadata", "kernel_0"):
        (tmp_path / "normal" / "trace" / "kernel" / name).write_text(name)
    (tmp_path / "sample" / "trace" / "kernel" / "metadata").write_text("half of it")
    session = _Session(
        request=RecordRequest(output=tmp_path, commands=(("a",), ("b",)), version=""),
        reporter=lambda _: None,
        output=SimpleNamespace(
            **dict.fromkeys(("building", "target", "write_path"), tmp_path),
            publish=lambda _: "",
            check_unchanged=int,
            size=int,
            restore_name=str,
        ),
        programs=(),
        container=0,
        settings=None,
        observe=lambda *_: None,
        recorder="ftrace",
        user=None,
        signals=SimpleNamespace(exit_code=130),
        runner=None,
        survey=lambda _: (),
        count=lambda _: None,
        manifests=manifests,
        recorded=Taken((CpuLoss(1, 7),), {"name": "ftrace", "event_count": 9}),
    )
    assert session._keep_readable().exit_code == 130
    for half in ("normal", "sample"):
        found = read_manifest(tmp_path / half)
        assert (found.state, found.lost, found.recorder["event_count"]) == ("interrupted", 7, 9)
        for name in ("metadata", "kernel_0"):
            assert (tmp_path / half / "trace" / "kernel" / name).read_text() == name
