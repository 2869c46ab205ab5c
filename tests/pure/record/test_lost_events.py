"""What is answered of a recording that has lost the very event by which it would be found."""

from __future__ import annotations

import pytest

from critpath.model import Manifest, Run
from critpath_record.manifests import write_manifest


@pytest.mark.parametrize("lost", [0, 4, 5])
def test_executions_whose_begin_was_overwritten_are_left_out_and_that_is_told(
    played, critpath, tmp_path, lost
):
    """Of five programs; all of them gone is an answer, too, and not an unreadable recording."""
    begun = [
        event
        for event in played.recording.events
        if event.name == "sched/sched_process_exec" and b"/bin/true" in event.record
    ]
    gone = {event.time for event in begun[:lost]}
    place = tmp_path / "rec"
    recorder = played.open_recorder(place)
    begin = recorder.open()
    assert played.play(lost=lambda event: event.time in gone) > 1000
    end = recorder.close()
    made = recorder.drain(lambda _: None)
    made.release()
    run = Run(1, played.recording.facts["pid"], begin, end, 0)
    write_manifest(
        place,
        Manifest(
            *("complete", "s", ("work",), "process", (run,), dict(made.facts), "minimal"),
            *(made.facts["clock"], {}, begin, end),
            loss=made.loss,
        ),
    )
    assert sum(loss.events for loss in made.loss) == lost
    wanted = ("--execution", "process,comm=true")
    done = critpath("export", "--format", "paths", place, *wanted, "-o", tmp_path / "saved.parquet")
    assert done.returncode == (3 if lost == 5 else 0), done.stderr
    if lost == 5:
        assert "no complete run" in done.stderr
        assert "5 events and 0 packets lost" in done.stderr
    elif not lost:
        assert "lost" not in done.stderr
    whole = critpath("path", place)
    assert whole.returncode == 0, whole.stderr
