"""Ctrl-C, kill and their like at every moment of a recording."""

from __future__ import annotations

import os
import pty
import random
import re
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from critpath.model import CpuLoss, Manifest
from critpath.record.manifests import read_manifest
from critpath.record.recorder import RecorderResult, RecordRequest
from critpath.record.session import _Session
from critpath.record.signals import Signals, StopRequested

pytestmark = pytest.mark.xdist_group("kernel")

SLEEPER = ("sh", "-c", "echo $$ >>pids; exec sleep 600")


def pids(box) -> list[int]:
    file = box.place / "pids"
    return [int(x) for x in file.read_text().split()] if file.exists() else []


def end(process, seconds=20):
    _, err = process.communicate(timeout=seconds)
    return process.returncode, err.decode()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_the_first_goes_to_the_command_and_the_recording_is_finished(
    box, wait_for, is_alive, number, code
):
    process = box.popen("-o", "rec", "-n", "9", *SLEEPER)
    [pid] = wait_for(lambda: pids(box))
    process.send_signal(number)
    assert end(process)[0] == code
    assert not is_alive(pid)
    manifest = box.manifest()
    assert manifest["state"] == "complete"
    assert [r["exit_code"] for r in manifest["runs"]] == [code]
    assert box.calls() == ["start", "stop", "finish"]
    assert not box.instance


def test_the_commands_own_code_counts(box, wait_for):
    line = "trap 'exit 5' INT; echo $$ >pids; while :; do sleep 0.02; done"
    process = box.popen("-o", "rec", "-n", "9", "sh", "-c", line)
    wait_for(lambda: pids(box))
    process.send_signal(signal.SIGINT)
    assert end(process)[0] == 5


def test_children_of_the_command_get_it_as_from_a_terminal(box, wait_for, is_alive):
    process = box.popen("-o", "rec", "sh", "-c", "sleep 600 & echo $! >pids; wait")
    [pid] = wait_for(lambda: pids(box))
    process.send_signal(signal.SIGTERM)
    assert end(process)[0] == 143
    assert not is_alive(pid)


def test_the_second_ends_at_once(box, wait_for, is_alive):
    line = "trap '' INT TERM; echo $$ >pids; sh -c 'echo $$ >>pids; exec sleep 600'; sleep 600"
    process = box.popen("-o", "rec", "sh", "-c", line)
    tree = wait_for(lambda: pids(box) if len(pids(box)) == 2 else None)
    process.send_signal(signal.SIGINT)
    time.sleep(0.4)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert end(process)[0] == 143
    assert not any(map(is_alive, tree))
    assert box.clean()
    assert box.calls() == ["start", "abort"]


def test_one_request_that_comes_twice_is_one(monkeypatch):
    """By a clock of its own: on a busy machine signals come when they may."""
    now, said = [100.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    signals = Signals(SimpleNamespace(ignored=frozenset()), said.append)
    request = SimpleNamespace(si_signo=signal.SIGTERM)
    assert signals.note(request)
    for _ in range(3):
        now[0] += 0.005
        assert not signals.note(request)
    assert len(said) == 1
    now[0] += 1
    with pytest.raises(StopRequested):
        signals.note(request)


@pytest.mark.parametrize("step", ["start", "stop", "finish"])
@pytest.mark.parametrize("times", [1, 2])
def test_while_the_recorder_works(box, wait_for, step, times):
    slow = {"FAKE_SLOW": step, "FAKE_SECONDS": "1.5" if times == 1 else "20"}
    process = box.popen("-o", "rec", "true", env=slow)
    wait_for(lambda: step in box.calls())
    began = time.monotonic()
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    code, err = end(process)
    if times == 2:
        assert code == 130
        assert time.monotonic() - began < 15, "it waited for the step"
        assert box.clean()
        assert box.calls()[-1] == "abort"
    elif step == "start":
        assert code == 130
        assert "no recording" in err
        assert box.clean()
    else:
        assert code == 0
        assert box.manifest()["state"] == "complete"
        assert len(box.manifest()["runs"]) == 1
    assert not box.instance


def test_a_trace_that_is_there_already_is_kept(box, wait_for):
    process = box.popen("-o", "rec", "true", env={"FAKE_SLOW": "finished"})
    wait_for(lambda: "finished" in box.calls())
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    code, err = end(process)
    assert code == 130
    assert "interrupted" in err
    manifest = box.manifest()
    assert manifest["state"] == "interrupted"
    assert len(manifest["runs"]) == 1
    assert manifest["warnings"]
    assert sorted(p.name for p in box.output.iterdir()) == ["critpath.json", "trace"]


@pytest.mark.parametrize("option", ["--prepare", "--warmup"])
def test_before_the_first_run(box, wait_for, is_alive, option):
    line = "echo $$ >pids; exec sleep 600"
    arguments = (
        ("--prepare", line, "true") if option == "--prepare" else ("--warmup", "2", *SLEEPER)
    )
    process = box.popen("-o", "rec", *arguments)
    [pid] = wait_for(lambda: pids(box))
    process.send_signal(signal.SIGINT)
    code, err = end(process)
    assert code == 130, err
    assert not is_alive(pid)
    assert box.clean()


def test_between_runs_what_there_is_is_kept(box, wait_for):
    # One process: a shell that is signalled just before it forks may go on waiting for its child.
    line = "test ! -e ran || { echo $$ >pids; exec sleep 600; }"
    process = box.popen("-o", "rec", "-n", "5", "--prepare", line, "touch", "ran")
    wait_for(lambda: pids(box))
    process.send_signal(signal.SIGINT)
    assert end(process)[0] == 130
    assert [r["exit_code"] for r in box.manifest()["runs"]] == [0]
    assert box.manifest()["state"] == "complete"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_whole_machine_until_a_signal(box, wait_for, number):
    process = box.popen("-o", "rec", "-a")
    wait_for((box.output / "critpath.json").exists)
    time.sleep(0.1)
    process.send_signal(number)
    assert end(process)[0] == 0
    assert box.manifest()["state"] == "complete"


def test_ignored_signals_stay_ignored(box, wait_for):
    process = box.popen(
        *("-o", "rec", "sh", "-c", "echo $$ >pids; sleep 1; kill -HUP $$; exit 4"),
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    wait_for(lambda: pids(box))
    process.send_signal(signal.SIGHUP)
    assert end(process)[0] == 4


def on_terminal(box, *arguments):
    """Run critpath in the foreground of a terminal of its own; return pid and terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        process = box.popen(*arguments, stdin=None, stdout=None, stderr=None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os._exit(process.wait() & 0xFF)
    return pid, terminal


def drain(pid, terminal):
    text = b""
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:
            break
        if not data:
            break
        text += data
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text.decode()


def test_ctrl_c_at_a_terminal_reaches_the_command_once(box, wait_for):
    line = "import os, signal, time; got = []; signal.signal(2, lambda *_: got.append(1)); "
    line += "open('pids', 'w').write(str(os.getpid())); t = time.monotonic()\n"
    line += "while time.monotonic() < t + 0.8: time.sleep(0.05)\n"
    line += "os._exit(10 + len(got))"
    pid, terminal = on_terminal(box, "-o", "rec", "python3", "-c", line)
    wait_for(lambda: pids(box))
    os.write(terminal, b"\x03")
    code, text = drain(pid, terminal)
    assert code == 11, text
    assert box.manifest()["state"] == "complete"


def test_progress_at_a_terminal(box):
    pid, terminal = on_terminal(box, "-o", "rec", "-n", "4", "sh", "-c", "sleep 0.5")
    code, text = drain(pid, terminal)
    assert code == 0
    assert "[run 4 of 4] " in text


def test_a_machine_counts_down_at_a_terminal(box):
    pid, terminal = on_terminal(box, "-a", "--duration", "1.4", "-o", "rec")
    code, text = drain(pid, terminal)
    assert code == 0
    shown = re.findall(r"\r\x1b\[K(\d s left)(, [\d,]+ events/s)?", text)
    assert len(shown) >= 2
    assert not shown[0][1]  # a rate takes two looks
    assert all(rate for _, rate in shown[1:])
    # The line is cleared before anything else is printed.
    assert re.search(r" events/s\r\x1b\[K(?!\d s)", text)


def test_a_machine_without_a_terminal_says_nothing_meanwhile(box):
    done = box.record("-a", "--duration", "1.2")
    assert done.code == 0
    assert " left" not in done.err + done.out
    assert "\r" not in done.err


def test_ctrl_c_twice_at_a_terminal(box, wait_for, is_alive):
    pid, terminal = on_terminal(
        box, "-o", "rec", "sh", "-c", "trap '' INT; echo $$ >pids; sleep 600"
    )
    [command] = wait_for(lambda: pids(box))
    os.write(terminal, b"\x03")
    time.sleep(0.4)
    os.write(terminal, b"\x03")
    code, text = drain(pid, terminal)
    assert code == 130, text
    assert not is_alive(command)
    assert box.clean()


def test_the_command_dies_with_its_recorder(box, wait_for, is_alive):
    process = box.popen("-o", "rec", *SLEEPER)
    [pid] = wait_for(lambda: pids(box))
    process.kill()
    process.wait()
    wait_for(lambda: not is_alive(pid))
    process.communicate()
    assert box.manifest()["state"] == "recording"


def test_a_recorder_killed_before_tracing_was_on(box, wait_for):
    process = box.popen(
        *("-o", "rec", "-n", "2", "--interleave", "true", "true"), env={"FAKE_SLOW": "start"}
    )
    wait_for(lambda: "start" in box.calls())
    process.kill()
    process.communicate()
    assert box.manifest("rec/normal")["begin"] == 0
    assert box.record("-o", "next", "true").code == 0
    assert not box.output.exists()


def test_a_reader_of_stderr_that_is_gone_costs_no_recording(box, wait_for):
    reader, writer = os.pipe()
    process = box.popen("-o", "rec", *SLEEPER, stderr=writer)
    os.close(writer)
    wait_for(lambda: pids(box))
    os.close(reader)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert box.manifest()["state"] == "complete"


@pytest.mark.long
def test_at_random_moments_nothing_is_left(box, wait_for, is_alive):
    dice = random.Random(7)  # noqa: S311 - moments, no secrets
    for index in range(20):
        number = dice.choice([signal.SIGINT, signal.SIGTERM])
        name = f"r{index}"
        process = box.popen("-o", name, "-n", "50", "sh", "-c", "echo $$ >>pids; sleep 0.02")
        # From the end of the interpreter's own start on: before it, Python is alone.
        wait_for((box.place / name).exists)
        time.sleep(dice.random() * 0.4)
        process.send_signal(number)
        code, err = end(process)
        assert code in {128 + number, 0}, err
        assert "Traceback" not in err
        assert not box.instance
        if (box.place / name).exists():
            assert box.manifest(name)["state"] == "complete"
            assert box.manifest(name)["runs"]
    assert not any(map(is_alive, pids(box)))
    assert not [p for p in Path(box.place).iterdir() if p.name.startswith(".")]


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
        choice=SimpleNamespace(name="ftrace"),
        user=None,
        signals=SimpleNamespace(exit_code=130),
        runner=None,
        survey=lambda _: (),
        count=lambda _: None,
        manifests=manifests,
        recorded=RecorderResult((CpuLoss(1, 7),), {"name": "ftrace", "event_count": 9}),
    )
    assert session._keep_readable().exit_code == 130
    for half in ("normal", "sample"):
        found = read_manifest(tmp_path / half)
        assert (found.state, found.lost, found.recorder["event_count"]) == ("interrupted", 7, 9)
        for name in ("metadata", "kernel_0"):
            assert (tmp_path / half / "trace" / "kernel" / name).read_text() == name
