"""A user's file: it uses all of the API, and passes `mypy --strict` (test_typing.py)."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import critpath as cp


@cp.execution("request", alone=False)
def handle(request: int) -> str:
    cp.mark("begin", "job", key=request)
    with cp.execution("inner", key=1):
        cp.mark("end", "job", key=request)
    return str(request)


def gate(normal: str, sample: Path) -> bool:
    healthy = cp.extract([normal, Path(normal)], execution="thread", jobs=None, progress=print)
    assert_type(healthy, cp.PathSet)
    healthy.save("healthy.parquet")
    settings = cp.CompareSettings(alpha=0.001, level=(("WAIT_CPU", "warn"),))
    try:
        answer = cp.compare(cp.load("healthy.parquet"), sample, settings, floor=0.1)
    except (cp.UsageError, cp.UnreadableError, cp.InconclusiveError) as error:
        raise SystemExit(f"{error.what}: {error.do}") from error
    except (cp.MetadataError, cp.TooMuchTimeError, cp.CritpathError) as error:
        assert_type(error.exit_code, int)
        raise
    show(answer)
    answer.save(Path("answer.json"))
    show(cp.load_comparison("answer.json"))
    return answer.verdict == "ok" and cp.calibrate(healthy, settings).verdict == "calibrated"


def ask(recording: Path) -> None:
    found = cp.explore(recording, given=["label == 'a'"], depth=2)
    assert_type(found.conditions[0].words, str)
    assert_type(cp.requests(recording).services[0].requests, int)
    cp.query(recording, "select 1").to_pandas()
    cp.view(recording, "view.html", begin=0, end=10**9)
    assert_type(cp.look(recording, sort="wait", top=3).threads[0].tid, int)
    assert_type(cp.record(["sleep", "1"], "here", runs=3), Path)
    answer = cp.ab(["sleep", "1"], ["sleep", "2"], until="5%")
    assert_type(answer.sentences, tuple[str, ...])


def show(answer: cp.Comparison) -> None:
    assert_type(answer.causes[0].sentence, str)
    assert_type(answer.findings[0].contribution, float)
    assert_type(answer.settings, cp.CompareSettings)
    assert_type([state.state for state in answer.states if state.flagged], list[str])
    assert_type(answer.executions[-1].excess, int | None)
    assert_type(answer.to_html(), str)
    answer.to_html("report.html")
    text = answer.to_markdown() + answer.to_json()
    shown = [text, len(answer.sample), answer.normal.executions.id[0], handle(1)]
    shown += [answer.reasons, answer.warnings, answer.to_dict()["format"]]
    shown += [answer.causes.to_pandas(), answer.states.to_arrow()]
    Path("shown.txt").write_text(repr(shown), encoding="utf-8")
