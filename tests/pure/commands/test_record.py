"""The command line of record: what it passes on, and what it says in the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from critpath.commands import main
from critpath.commands.parser import build_parser
from critpath.commands.recorded import describe_outcome
from critpath.commands.settings import WrongValueError, as_name, as_size
from critpath.model import CpuLoss, Manifest, Run
from critpath_record.recorder import Outcome, Recording, RecordRequest

MS = 1_000_000


def make_manifest(count=12, **changes) -> Manifest:
    return replace(
        Manifest(
            state="complete",
            session="s",
            command=("work",),
            execution="process",
            runs=tuple(Run(i + 1, 7, i * 10 * MS, (i * 10 + i + 1) * MS, 0) for i in range(count)),
            recorder={"name": "ftrace", "version": "1", "event_count": 900, "buffer_bytes": 4096},
            profile="minimal",
            clock={},
            host={},
            begin=0,
            end=1000 * MS,
        ),
        **changes,
    )


def said(*manifests, request=None, code=0) -> str:
    places = [Path("normal"), Path("sample")] if len(manifests) > 1 else [Path("rec")]
    recordings = tuple(Recording(p, m) for p, m in zip(places, manifests, strict=True))
    request = request or RecordRequest(Path("rec"), (("work",),) * max(1, len(manifests)), "1")
    return "\n".join(describe_outcome(Outcome(code, recordings, 123_456), request))


@pytest.fixture
def recorded(monkeypatch, tmp_path):
    """Run record with the recording itself replaced; returns what was asked for."""
    monkeypatch.chdir(tmp_path)
    asked = []

    def record(request, tell, *_, **__):
        tell("working")
        tell.say("a line")
        tell.run(1, 2)
        asked.append(request)
        return Outcome(3)

    monkeypatch.setattr("critpath_record.session.record", record)

    def call(*arguments):
        code = main(["record", *arguments])
        return code, asked[-1] if asked else None

    return call


def test_everything_reaches_the_request(recorded, tmp_path):
    (tmp_path / "critpath.toml").write_text("buffer-size = '8M'\nprofile = 'syscalls'\n")
    code, request = recorded(
        *("-o", "out", "-n", "30", "--warmup", "2", "--prepare", "sync", "--timeout", "1.5"),
        *("--recorder", "ftrace", "--execution", "thread", "--trace-format", "ctf-2"),
        *("--keep-raw", "--as-root", "--force", "--", "work", "--", "-n", "5"),
    )
    assert code == 3
    assert request == RecordRequest(
        output=Path("out"),
        commands=(("work", "--", "-n", "5"),),
        version=request.version,
        runs=30,
        warmup=2,
        prepare="sync",
        timeout=1.5,
        recorder="ftrace",
        profile="syscalls",
        execution="thread",
        buffer_bytes=8 << 20,
        trace_format="ctf-2",
        keep_raw=True,
        as_root=True,
        force=True,
    )


def test_requests_are_recorded_by_their_profile(recorded, tmp_path):
    assert recorded("-a", "--execution", "requests:port=80")[1].profile == "requests"
    assert recorded("-a", "--execution", "requests")[1].profile == "requests"
    assert recorded("-a", "--execution", "thread")[1].profile == "minimal"
    mine = str(tmp_path / "mine.lttng")
    assert recorded("-a", "--execution", "requests", "--profile", mine)[1].profile == mine


def test_the_machine_and_a_container(recorded):
    assert recorded("-a", "--duration", "5")[1].duration == 5
    request = recorded("--container", "web/1", "-o", "x")[1]
    assert (request.container, request.commands) == ("web/1", ())
    assert recorded("--container", "web/1")[1].output.name.endswith("-1")


def test_an_odd_name_makes_no_odd_directory(recorded):
    for name in ("/a/b c", "..", "a\nb", "\udcff", "-"):
        output = recorded("--", name)[1].output
        assert len(output.parts) == 1
        assert str(output).startswith("critpath-")
        assert str(output).isprintable()
        assert " " not in str(output)


def test_show_config_of_a_command_is_the_commands(recorded, capsys):
    assert recorded("--", "work", "--show-config")[1].commands == (("work", "--show-config"),)
    assert recorded("work", "--show-config")[0] == 3
    capsys.readouterr()
    assert main(["record", "--show-config", "--profile", "full", "--", "work"]) == 0
    assert 'profile = "full"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "command", "runs"),
    [
        (["-n", "5", "a", "-n", "6"], ["a", "-n", "6"], 5),
        (["-n5", "a"], ["a"], 5),
        (["--runs=5", "--", "--", "a"], ["--", "a"], 5),
        (["-o", "--", "a"], None, None),
        (["-an", "5"], [], 5),
        (["--quiet", "a", "--quiet"], ["a", "--quiet"], None),
        (["--", "-n"], ["-n"], None),
        (["-n", "5"], [], 5),
    ],
)
def test_where_the_command_begins(arguments, command, runs):
    from critpath.commands import VERBS  # noqa: PLC0415 - what the parser is made of
    from critpath.errors import UsageError  # noqa: PLC0415 - as above

    parser = build_parser(VERBS)
    if command is None:
        with pytest.raises(UsageError):
            parser.parse_args(["record", *arguments])
        return
    parsed = parser.parse_args(["record", *arguments])
    assert (parsed.command, parsed.runs) == (command, runs)


def test_sizes_and_names():
    assert [as_size(x) for x in ("0", "512k", "8M", "1 GiB", "4mb", 4096)] == [
        *(0, 512 << 10, 8 << 20, 1 << 30, 4 << 20, 4096)
    ]
    for wrong in ("", "8X", "-1", "1.5M", True, "9999999G", "٣"):
        with pytest.raises(WrongValueError):
            as_size(wrong)
    assert as_name("my-profile_2") == "my-profile_2"
    for wrong in ("", "../x", "a/b", "a.b", 3):
        with pytest.raises(WrongValueError):
            as_name(wrong)


def test_a_good_recording():
    text = said(make_manifest())
    assert "rec: 12 runs in " in text
    assert "900 events, 120.6 KiB, recorder ftrace 1" in text
    assert text.endswith(
        "next, in the other state: critpath record -o other work && critpath compare rec other"
    )
    assert "warning" not in text


def test_few_runs_are_worth_little():
    assert "1 run can hardly tell a change from chance" in said(make_manifest(1))
    assert "chance" not in said(make_manifest(10))


def test_loss():
    loss = (CpuLoss(0, 100), CpuLoss(1, 0, packets=3))
    assert "warning: 100 events were lost (10 %)" in said(make_manifest(loss=loss))
    assert "warning: 3 packets were lost" in said(make_manifest(loss=loss[1:]))


def test_odd_runs():
    runs = (
        Run(1, 7, 0, 10, 124, timed_out=True),
        Run(2, 7, 20, 30, 1, outlived=2),
        Run(3, 7, 40, 50, 0),
    )
    text = said(make_manifest(runs=runs, timeout=0.5))
    assert "1 of 3 runs failed (exit code 1)" in text
    assert "1 of 3 runs reached the timeout of 0.5 s" in text
    assert "1 of 3 runs left processes running (2 in all)" in text


def test_many_warnings_are_shortened():
    text = said(make_manifest(warnings=tuple(f"odd {i}" for i in range(9))))
    assert "warning: odd 4" in text
    assert "odd 5" not in text
    assert "warning: 4 more warnings in rec/critpath.json" in text


def test_interleaved_says_compare():
    text = said(make_manifest(), make_manifest(20))
    assert text.endswith("next: critpath compare normal sample")


def machine(**changes) -> tuple[Manifest, RecordRequest]:
    return make_manifest(0, command=(), **{"execution": "", **changes}), RecordRequest(
        Path("my rec"), (), "1"
    )


def test_the_machine_says_that_an_execution_must_be_named():
    manifest, request = machine()
    text = said(manifest, request=request)
    assert "1.00 s of the whole machine" in text
    assert "--profile requests records" in text
    assert text.endswith("critpath compare rec other --execution process")
    assert "mark" not in text


def test_requests_of_the_machine_are_explored_and_compared():
    manifest, request = machine(execution="requests")
    *_, explore, following = said(manifest, request=request).splitlines()
    assert explore.endswith(": critpath explore rec")
    assert following.endswith("&& critpath compare rec other")


@pytest.mark.parametrize(
    ("execution", "marks", "shown"),
    [("", 0, ""), ("requests", 0, ""), ("", 3, ", 3 marks seen"), ("marker", 0, ", 0 marks seen")],
)
def test_marks_are_counted_where_some_were_meant(execution, marks, shown):
    manifest, request = machine(execution=execution, recorder={"name": "ftrace", "marks": marks})
    assert f"whole machine{shown}\n" in said(manifest, request=request)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("record -a --duration 2 -o rec --force", "record -o other -a --duration 2"),
        ("record -orec -a", "record -o other -a"),
        ("--quiet record --output=rec -a", "--quiet record -o other -a"),
    ],
)
def test_the_next_line_records_as_this_one_did(words, line):
    manifest, request = machine(execution="requests")
    outcome = Outcome(0, (Recording(Path("rec"), manifest),), 1)
    *_, following = describe_outcome(outcome, request, words.split())
    assert f": critpath {line} && critpath compare rec other" in following


def test_a_command_keeps_its_own_options():
    request = RecordRequest(Path("rec"), (("work", "-o", "a b"),), "1")
    outcome = Outcome(0, (Recording(Path("rec"), make_manifest()),), 1)
    words = ["record", "-n", "12", "-o", "rec", "--", "work", "-o", "a b"]
    *_, following = describe_outcome(outcome, request, words)
    assert ": critpath record -o other -n 12 -- work -o 'a b' && " in following


def test_nothing_recorded():
    assert "no recording" in "\n".join(
        describe_outcome(Outcome(130), RecordRequest(Path("x"), (("a",),), "1"))
    )
