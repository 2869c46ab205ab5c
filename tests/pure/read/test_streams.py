"""Whatever is cut off, emptied or removed of a recording is noticed, wherever it was."""

from __future__ import annotations

import json
import os
import random
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from critpath.commands import main
from critpath.errors import UnreadableError
from critpath.flow import inspect_recording
from critpath.model import MANIFEST, MANIFEST_FORMAT
from critpath.read.packets import PacketColumn
from critpath.read.streaming import EventStream
from critpath.read.streams import survey_streams
from critpath.read.traces import find_traces
from critpath_record.ftrace.convert import convert
from critpath_record.manifests import read_manifest, write_manifest

PUBLIC = (
    "public/bt-tracefile-rotation",
    "public/tc-bug446190",
    "public/selora-old_trace",
    "public/tc-uneven-streams-PARTIAL",
    "public/cb-nodes-pipeline",
)


@pytest.fixture(scope="module")
def keep(tmp_path_factory):
    """Give a recording the manifest that its recorder would have written."""

    def keep(source, name):
        place = tmp_path_factory.mktemp(name) / "recording"
        shutil.copytree(source, place / "trace" if (source / "metadata").exists() else place)
        (place / MANIFEST).unlink(missing_ok=True)
        streams = [asdict(one) for one in survey_streams(place)]
        text = {"format": MANIFEST_FORMAT, "state": "complete", "streams": streams}
        (place / MANIFEST).write_text(json.dumps(text))
        return place

    return keep


@pytest.fixture(scope="module")
def ftrace(unpack, keep, tmp_path_factory):
    """A recording of the ftrace recorder."""
    raw = unpack(Path(__file__).parents[3] / "fixtures/ftrace-raw/minimal.tar.xz") / "minimal"
    home = tmp_path_factory.mktemp("ftrace")
    convert(raw, home / "trace", lambda _: None)
    return keep(home, "ftrace")


def packet_ends(recording):
    """Where in each stream file its packets end (bytes)."""
    with EventStream(find_traces(recording), ()) as stream:
        stream.skim()
        stream.finish()
        files = [file for of in stream._summary.files for file in of]
    return {
        f.name: [
            int(row[PacketColumn.OFFSET] + row[PacketColumn.SIZE])
            for row in f.packets[:-1]  # the end of the last is that of the file
        ]
        for f in files
    }


def harm(rng, recording, place, ends):
    """Copy a recording, and take something of one of its streams away."""
    shutil.copytree(recording, place, copy_function=os.link)
    names = [name for name in ends if (recording / name).stat().st_size]
    name = rng.choice(names)
    how = rng.choice(("at a packet's end", "within a packet", "empty", "gone"))
    text = (place / name).read_bytes()
    (place / name).unlink()
    if how != "gone":
        cuts = ends[name] if how == "at a packet's end" else [rng.randrange(1, len(text))]
        (place / name).write_bytes(b"" if how == "empty" else text[: rng.choice(cuts or [0])])
    return f"{name}: {how}"


def words(recording):
    """What is said of a recording when it is read."""
    try:
        events, _, odd = inspect_recording(recording)
    except UnreadableError as error:
        return [error.what]
    return [*odd, *(loss.reason for loss in events.losses)]


def missed(recordings, count, tmp_path):
    rng = random.Random(15)  # noqa: S311 - the same places every time
    ends = {recording: packet_ends(recording) for recording in recordings}
    known = {recording: words(recording) for recording in recordings}
    silent = []
    for number in range(count):
        recording = recordings[number % len(recordings)]
        what = harm(rng, recording, tmp_path / "harmed", ends[recording])
        if words(tmp_path / "harmed") == known[recording]:
            silent.append(f"{recording}: {what}")
        shutil.rmtree(tmp_path / "harmed")
    return silent


def test_a_whole_recording_is_whole(guest, ftrace, keep, tmp_path, capsys):
    whole = keep(guest("normal"), "normal")
    assert words(whole) == []
    assert main(["doctor", str(whole)]) == 0
    assert "whole: every stream is as it was recorded" in capsys.readouterr().out
    shutil.copytree(whole, tmp_path / "cut")
    (tmp_path / "cut/trace/kernel/kernel_1").write_bytes(b"")
    assert main(["doctor", str(tmp_path / "cut")]) == 3
    assert "stream missing: trace/kernel/kernel_1 is empty" in capsys.readouterr().out
    # Its tracer lost some, which it says of itself.
    assert words(ftrace) == ["discarded"]


def test_without_a_manifest_the_word_is_smaller(guest, capsys):
    assert main(["doctor", str(guest("normal"))]) == 0
    assert "no manifest" in capsys.readouterr().out


def test_changed_bytes_are_seen_by_their_digest(guest, keep, capsys):
    place = keep(guest("plain"), "plain")
    file = place / "trace/kernel/kernel_0"
    text = bytearray(file.read_bytes())
    text[-1] ^= 1  # behind the content of the last packet
    file.write_bytes(text)
    assert main(["doctor", str(place)]) == 3
    assert "kernel_0 has other contents than were recorded" in capsys.readouterr().out


def test_what_is_cut_off_is_placed_in_time(keep, shared):
    whole = keep(shared("public/tc-many-threads"), "placed")
    name, ends = max(packet_ends(whole).items(), key=lambda x: len(x[1]))
    assert len(ends) > 1
    file = whole / name
    file.write_bytes(file.read_bytes()[: ends[len(ends) // 2]])
    events, manifest, _ = inspect_recording(whole)
    [was] = [one for one in manifest.streams if one.name == name]
    [now] = [one for one in events.streams if one.name == name]
    [loss] = [one for one in events.losses if one.reason.startswith(f"truncated: {name}")]
    assert events.begin < loss.begin == now.end < was.end <= loss.end
    assert (loss.cpu, loss.events) == (was.cpu, was.events - now.events)
    assert loss.packets == was.packets - now.packets > 0


def test_babeltrace2_sees_sizes(keep, guest):
    pytest.importorskip("bt2")
    whole = keep(guest("plain"), "other")
    events, _, _ = inspect_recording(whole, "babeltrace2")
    assert not events.losses
    (whole / "trace/kernel/kernel_0").unlink()
    events, _, _ = inspect_recording(whole, "babeltrace2")
    assert any(loss.reason.startswith("stream missing") for loss in events.losses)


def test_24_random_places(guest, ftrace, keep, tmp_path):
    assert not missed([keep(guest("plain"), "plain"), ftrace], 24, tmp_path)


@pytest.mark.deep
def test_200_random_places(guest, ftrace, shared, keep, tmp_path):
    names = ("normal", "python", "sample-delay", "sample-quota")
    recordings = [keep(guest(name), name) for name in names]
    recordings += [keep(shared(name), Path(name).name) for name in PUBLIC]
    assert not missed([ftrace, *recordings], 200, tmp_path)


@pytest.fixture
def change_manifest():
    """Change what a recording's manifest says."""

    def change(recording, **changes):
        found = json.loads((recording / MANIFEST).read_text())
        (recording / MANIFEST).write_text(json.dumps({**found, **changes}))

    return change


def test_a_recording_whose_recorder_was_killed_is_not_called_whole(
    guest, keep, change_manifest, capsys
):
    killed = keep(guest("normal"), "killed")
    change_manifest(killed, state="interrupted")
    assert main(["doctor", str(killed)]) == 3
    shown = capsys.readouterr().out
    assert "its recorder was killed or failed" in shown
    assert "whole: every stream" not in shown


def test_a_stream_that_is_gone_with_what_the_manifest_has_of_it_is_missed(
    ftrace, change_manifest, tmp_path
):
    recording = shutil.copytree(ftrace, tmp_path / "x")
    streams = json.loads((recording / MANIFEST).read_text())["streams"]
    count = sum(of["events"] for of in streams if "/kernel_" in of["name"])
    names = ["sched_switch", "lttng_statedump_end"]
    recorder = {"name": "ftrace", "event_count": count, "events": names}
    change_manifest(recording, recorder=recorder)
    assert words(recording) == ["discarded"]
    change_manifest(recording, streams=[])  # as older recordings have it
    assert words(recording) == ["discarded"]
    for gone, said in (
        ("kernel_1", "that were recorded are not"),
        ("statedump_0", "stream missing: what threads there were"),
    ):
        for left in ([], [of for of in streams if not of["name"].endswith(gone)]):
            place = shutil.copytree(recording, tmp_path / f"{gone}-{len(left)}")
            next(place.rglob(gone)).unlink()
            change_manifest(place, streams=left)
            assert any(said in line for line in words(place)), (gone, left)


def test_what_lies_beside_a_trace_is_as_it_was(ftrace, change_manifest, tmp_path):
    recording = shutil.copytree(ftrace, tmp_path / "x")
    row = {"kind": "sh", "key": 2, "begin": 5, "tid": 7, "chance": 0.5}
    chosen = recording / "selected.jsonl"
    chosen.write_text(f"{json.dumps(row)}\n" * 2)
    (recording / "functions.json").write_text("{}")
    counted = {"sh": {"seen": 9, "selected": 2, "cut": 0}}
    change_manifest(recording, overhead={"target": 0.1}, executions=counted)
    manifest = read_manifest(recording)
    write_manifest(recording, manifest)
    listed = read_manifest(recording).files
    assert {*listed} == {"selected.jsonl", "functions.json", "trace/kernel/metadata"}
    assert words(recording) == ["discarded"]
    for file in map(recording.joinpath, listed):
        text = file.read_bytes()
        file.write_bytes(text + b"\n")
        assert f"{file.relative_to(recording)} has other contents" in " ".join(words(recording))
        file.unlink()
        os.mkfifo(file)  # nobody writes: it would wait for ever
        if file.name != "metadata":
            assert "cannot be read any more" in " ".join(words(recording))
        file.unlink()
        file.write_bytes(text)
    change_manifest(recording, files={})  # of older recordings what it says is held against it
    assert words(recording) == ["discarded"]
    for text in ("", f"{json.dumps(row)}\n", f"{json.dumps({**row, 'chance': 2})}\n", "[]\n"):
        chosen.write_text(text)
        assert any("selected.jsonl" in line for line in words(recording)), text


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "", "a\0b", ".x"])
def test_a_list_of_files_leads_nowhere_else(ftrace, change_manifest, tmp_path, name):
    recording = shutil.copytree(ftrace, tmp_path / "x")
    change_manifest(recording, files={name: "0" * 64})
    with pytest.raises(UnreadableError, match="no list of files"):
        inspect_recording(recording)
