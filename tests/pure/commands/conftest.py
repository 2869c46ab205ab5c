"""The command line with the analysis behind it replaced: what it passes on, what it does."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace

import msgspec
import numpy as np
import pytest

import critpath
from critpath.commands import main
from critpath.engines.tasks import DaskScheduler
from critpath.files import atomic_directory
from critpath.model import CriticalPaths, Executions, PathSet, State
from critpath.store import Dataset, save_paths
from critpath.store.dataset import part_name
from critpath.store.formats import is_paths_file
from critpath.store.reading import load_paths


def make_paths(count: int = 2, source: str = "trace") -> PathSet:
    """Executions of 10 ns, one segment each."""
    begin = np.arange(count, dtype=np.int64) * 100
    return PathSet(
        executions=Executions(
            id=tuple(f"e{i}" for i in range(count)),
            begin=begin,
            end=begin + 10,
            tid=np.full(count, 7),
            host=np.zeros(count, np.int64),
            comm=("worker",) * count,
            label=("",) * count,
            incomplete=1,
            notes=("1 begin without an end",),
        ),
        paths=CriticalPaths(
            start=np.arange(count + 1),
            begin=begin,
            end=begin + 10,
            state=np.full(count, int(State.RUN), np.uint8),
            detail=np.zeros(count, np.int32),
            comm=np.ones(count, np.int32),
            tid=np.full(count, 7),
            host=np.zeros(count, np.int64),
            cpu=np.zeros(count, np.int32),
            lossy=np.zeros(count, np.bool_),
            strings=("", "worker"),
        ),
        session=np.zeros(count, np.int64),
        sources=(source,),
        specification="thread",
        losses=(),
        lossy=np.zeros(count, np.bool_),
    )


class Saved(msgspec.Struct):
    """A document of one figure, or of a path."""

    format: str
    a: int
    subject: dict = {}


@dataclass
class Fake:
    """What the fakes were asked, and what they are to answer."""

    calls: list[tuple[str, tuple, dict]] = field(default_factory=list)
    verdict: str = "ok"
    warnings: tuple[str, ...] = ()
    paths: PathSet = field(default_factory=make_paths)
    document: Saved = field(default_factory=lambda: Saved("critpath/comparison/1", 1))
    error: BaseException | None = None
    render_error: BaseException | None = None

    def called(self, name: str) -> list[tuple[tuple, dict]]:
        return [(args, kwargs) for n, args, kwargs in self.calls if n == name]


@pytest.fixture
def no_paths() -> PathSet:
    return make_paths(0)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    state = Fake()

    def answering(name, answer):
        def call(*args, **kwargs):
            state.calls.append((name, args, kwargs))
            if state.error is not None:
                raise state.error
            return answer(*args, **kwargs)

        return call

    def path_document(
        paths, index, *, tid, comm, losses, execution, label, uncertainty, confidence
    ):
        assert isinstance(paths, CriticalPaths)
        assert losses == ()
        assert (execution, label, uncertainty, confidence) == (f"e{index}", "", 0, 1)
        return Saved("critpath/path/1", index, {"tid": tid, "comm": comm})

    def render_html(document, **_):
        if state.render_error is not None:
            raise state.render_error
        return f"<p>{document.a} \N{GREEK SMALL LETTER MU}</p>"

    def extracted(sources, **_):
        # What extract saved is read as it is, and damaged files are refused.
        saved = sources[0].is_file() and is_paths_file(sources[0])
        return load_paths(sources[0]) if saved else state.paths

    # The real ones, before the fakes.
    from critpath.graph.walking import choose_executions, resolve_ids, traces_of  # noqa: PLC0415
    from critpath.report.document.as_json import to_json  # noqa: PLC0415

    def extracted_file(sources, file, settings, *, require, jobs, progress):
        # As `extract` is called, with what it is called with.
        del progress
        options = {"specification": settings.specification, "jobs": jobs}
        paths = answering("extract", extracted)(sources, **options)
        require(paths)
        save_paths(paths, file)
        return paths

    def extracted_dataset(sources, directory, settings, **options):
        with atomic_directory(directory) as place:
            paths = extracted_file(sources, place / part_name(0), settings, **options)
            Dataset(place).seal([], {})
        return paths

    contents = {
        "critpath.flow": {
            "extract_file": extracted_file,
            "extract_dataset": extracted_dataset,
            "extract": answering("extract", extracted),
            "load_saved_paths": answering("load_saved_paths", lambda source: extracted([source])),
            "compare": answering(
                "compare",
                lambda *_, **__: SimpleNamespace(
                    verdict=state.verdict, warnings=state.warnings, name_types=dict
                ),
            ),
        },
        "critpath.engines.tasks": {"DaskScheduler": DaskScheduler},
        "critpath.vectors.table": {"tables_of": lambda _: [None]},
        "critpath.graph.walking": {
            "thread_paths": answering("thread_paths", lambda *_, **__: state.paths),
            **{f.__name__: f for f in (choose_executions, resolve_ids, traces_of)},
        },
        "critpath.graph.stacks": {"mark_own": lambda paths, *_: paths},
        "critpath.detect.judging": {"note_repaired_switches": lambda paths: paths},
        "critpath.report.document.comparison": {
            "comparison_document": lambda _, **_more: state.document,
        },
        "critpath.report.document.path": {
            "path_document": path_document,
            "summarize_paths": lambda paths, _: paths,
            "write_paths": lambda paths: (
                msgspec.json.encode(Saved("critpath/path/1", i, {"tid": int(tid)})) + b"\n"
                for i, tid in enumerate(paths.executions.tid)
            ),
        },
        "critpath.report.document.as_json": {
            "load_document": lambda text: msgspec.structs.replace(state.document, a=len(text)),
            "to_json": to_json,
        },
        "critpath.report.text.as_text": {
            "render_comparison": lambda d, console, **_: console.print(f"comparison {d.a} [b]"),
        },
        "critpath.report.text.path": {
            "render_path": lambda d, console: console.print(f"path {d.subject['tid']}"),
            "render_summary": lambda paths, console, _noun: console.print(
                f"summary of {len(paths)}"
            ),
        },
        "critpath.report.html.as_html": {"render_html": render_html},
    }
    for name, functions in contents.items():
        module = ModuleType(name)
        vars(module).update(functions)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(critpath, "flow", sys.modules["critpath.flow"], raising=False)
    return state


@dataclass
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def run(tmp_path, monkeypatch, capsys, fake):
    """Run a command line in an empty directory with two inputs, ``normal`` and ``sample``."""
    del fake
    monkeypatch.chdir(tmp_path)
    for name in ("normal", "sample"):
        (tmp_path / name).mkdir()

    def call(*arguments: str | Path) -> Outcome:
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call
