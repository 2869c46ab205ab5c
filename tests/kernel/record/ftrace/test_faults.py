"""Recording while something goes wrong: nothing is lost silently, the command goes on."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from critpath_record.ftrace.preflight import find_needs
from critpath_record.recorder import RecorderSettings

sys.path.insert(0, str(Path(__file__).parent))
import faulty
import numbered
from faulty import CODE, Bench, Result

HINDERED = [o.what for o in find_needs(RecorderSettings("", Path())) if o.fatal]
if os.geteuid():
    HINDERED = ["needs root"]
if shutil.which("cc") is None:
    HINDERED = ["needs a C compiler"]
pytestmark = [
    pytest.mark.xdist_group("kernel"),
    pytest.mark.skipif(bool(HINDERED), reason="; ".join(HINDERED)),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return faulty.build(tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    return numbered.write_profile(tmp_path_factory.mktemp("profile"))


@pytest.fixture
def bench(tmp_path, program, profile):
    made = Bench(tmp_path / "bench", program, rate=20_000, profile=str(profile))
    made.place.mkdir()
    yield made
    made.close()


@pytest.fixture
def may_mount(tmp_path):
    """Skip where nothing can be mounted, as in most containers."""
    try:
        with faulty.small_disk(tmp_path / "try", "1m"):
            pass
    except OSError as error:
        pytest.skip(str(error))


def unaffected(found: Result, code: int = CODE) -> None:
    """The command did its work, ended as it does, and wrote what it writes."""
    assert (found.own, found.whole, found.wrote) == (code, True, True), found


def nothing_silent(found: Result) -> None:
    assert found.seen is not None, found
    assert found.seen.made > 0, found
    assert found.seen.silent == 0, found
    assert found.reads, found
    assert found.left == (), found


def complete(found: Result) -> None:
    """Nothing happened to the recording: all is in it, or told."""
    unaffected(found)
    nothing_silent(found)
    assert (found.code, found.state) == (CODE, "complete"), found


@pytest.mark.usefixtures("may_mount")
def test_a_full_disk_ends_the_recording_while_its_trace_has_room(bench):
    found = faulty.full_disk(bench, 1.0, "16m")
    unaffected(found)  # it wrote to the same disk, afterwards
    nothing_silent(found)
    assert (found.code, found.state) == (125, "interrupted")
    assert "has room left for its trace" in found.said


@pytest.mark.usefixtures("may_mount")
def test_who_finds_no_room_for_the_trace_keeps_what_was_recorded(bench):
    found = faulty.disk_filled_by_others(bench, 2.0)
    unaffected(found)
    nothing_silent(found)
    assert (found.code, found.notes["state before"]) == (125, "recording")
    assert found.notes["clean"] in {0, 1}  # 1: others' recorders have left something
    assert "doctor --clean" in found.said
    assert found.state == "interrupted"


@pytest.mark.usefixtures("may_mount")
def test_tracefs_that_is_unmounted_while_it_records(bench):
    complete(faulty.unmounted_meanwhile(bench))


@pytest.mark.usefixtures("may_mount")
def test_tracefs_that_is_not_mounted(bench):
    found = faulty.unmounted_before(bench)
    complete(found)
    assert "tracefs was not mounted" in found.said


def test_a_killed_recorder_leaves_tracing_turned_off_and_all_that_was_recorded(bench):
    found = faulty.recorder_killed(bench)
    nothing_silent(found)
    assert found.notes == {"off": True, "told": True, "cleaned": True}
    assert (found.code, found.state) == (-9, "interrupted")


def test_an_output_that_is_removed_is_said(bench):
    found = faulty.output_removed(bench)
    assert (found.code, found.whole, found.wrote) == (125, True, True)
    assert "moved, removed or exchanged" in found.said
    assert (found.state, found.left) == ("", ())


def test_the_recorders_helper_is_killed(bench):
    found = faulty.watch_killed(bench)
    complete(found)
    assert found.notes["killed"] == 1


def test_the_command_is_killed(bench):
    found = faulty.command_killed(bench)
    nothing_silent(found)
    assert (found.code, found.own, found.whole, found.state) == (137, 137, True, "complete")


def test_what_does_not_fit_into_the_buffers_is_told_as_the_kernel_counted_it(bench):
    found = faulty.too_small_buffers(bench, 0.2)
    nothing_silent(found)
    assert found.seen.reported > 0
    assert found.seen.found < found.seen.made
    manifest = json.loads((bench.place / "rec/critpath.json").read_text(encoding="utf-8"))
    counted = json.loads((bench.place / "rec/raw/stats.json").read_text(encoding="utf-8"))
    names = ("overrun", "commit overrun", "dropped events")
    kernel = {int(cpu): sum(stats[n] for n in names) for cpu, stats in counted.items()}
    assert {loss["cpu"]: loss["events"] for loss in manifest["loss"]} == {
        cpu: lost for cpu, lost in kernel.items() if lost
    }
    assert "events were lost" in found.said


def test_one_of_two_at_once_is_killed_and_cleaned_up_after(bench):
    first, killed = faulty.two_at_once(bench, 1.0, kill=True)
    complete(first)
    nothing_silent(killed)
    assert killed.state == "interrupted"


def test_the_wall_clock_is_set_back(bench):
    found = faulty.clock_set_back(bench)
    complete(found)
    assert 2 < found.notes["seconds"] < 600
