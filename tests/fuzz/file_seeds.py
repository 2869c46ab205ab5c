"""Small files of every format that others may have written, and the commands that read them.

Made of what the repository has: corpora of the fuzzers, fixtures, golden answers.  A kind of file
that critpath learns to read gets a row in `make_seeds`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
# Python has the filter from 3.11.4 on.
DATA_ONLY: Final = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
ROOT: Final = HERE.parents[1]
FIXTURES: Final = ROOT / "fixtures"
GOLDEN: Final = ROOT / "tests" / "pure" / "report" / "golden"
sys.path[:0] = [str(HERE), str(HERE.parent)]

import pyarrow.parquet as pq  # noqa: E402 - as below
import saved  # noqa: E402 - found by the path above
import seeds  # noqa: E402 - as above
import stacks  # noqa: E402 - as above

from critpath import commands  # noqa: E402 - as above
from critpath.read.streams import survey_streams  # noqa: E402 - as above
from critpath.report.document import to_json  # noqa: E402 - as above
from critpath.store.dataset import DATASET, MANIFEST, part_name  # noqa: E402 - as above

Command = tuple[str, ...]
_BEFORE: Final = "20261129T042158Z-recent"


@dataclass(frozen=True)
class Given:
    """A kind of file, unchanged in its place."""

    name: str
    kind: str  # how it is changed: "json", "lines", "parquet", "text" or "bytes"
    files: tuple[Path, ...]  # that are changed, one at a time
    commands: tuple[Command, ...]
    codes: frozenset[int] = frozenset()  # with which an unchanged file may end, beside 0 and 1
    digest: bool = False  # whether something says what was written
    made: tuple[Path, ...] = ()  # what commands make, which is removed
    copied: tuple[Path, Path] | None = None  # a directory that a command changes, and where it is


def given(
    name: str, kind: str, files: Path | tuple[Path, ...], *asked: Command, **more: Any
) -> Given:
    """Return a kind of file."""
    codes = frozenset(more.pop("codes", ()))
    return Given(name, kind, (files,) if isinstance(files, Path) else files, asked, codes, **more)


def make_seeds(place: Path) -> Iterator[Given]:
    """Make all files below a directory; yield their kinds."""
    yield from _recordings(place)
    yield from _documents(place)
    yield from _tables(place)
    yield from _stores(place)
    yield from _foreign(place)
    yield from _kept(place)


def _write(file: Path, content: bytes | str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def _run(*words: str | Path) -> str:
    """Return what a command prints."""
    shown, said = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(said):
        code = commands.main([str(word) for word in words])
    shown.flush()
    if code not in {0, 1, 3}:
        raise RuntimeError(f"critpath {' '.join(map(str, words))}: {code}: {said.getvalue()}")
    return shown.buffer.getvalue().decode()


def make_recording(place: Path, trace: str = "lttng-2.13", **more: object) -> Path:
    """Make a recording of one of the small traces, with the manifest of a whole one."""
    ending = ".json" if trace == "ctf2" else ".tsdl"
    _write(place / "kernel/metadata", (HERE / "metadata" / f"{trace}{ending}").read_bytes())
    _write(place / "kernel/channel_0", (HERE / "metadata" / f"{trace}.stream").read_bytes())
    streams = [asdict(one) for one in survey_streams(place)]
    manifest = {**seeds.MANIFEST_SEED, "loss": [], "streams": streams, **more}
    _write(place / "critpath.json", json.dumps(manifest))
    return place


def _recordings(place: Path) -> Iterator[Given]:
    for trace in ("lttng-2.13", "lttng-2.1", "big-endian", "ctf2"):
        of = make_recording(place / trace, trace)
        inside = of / "kernel"
        asked = (("doctor", str(of)), ("path", str(of), "--execution", "thread"))
        kind = "json" if trace == "ctf2" else "text"
        yield given(f"metadata {trace}", kind, inside / "metadata", *asked, codes=(3,))
        yield given(
            f"stream {trace}", "bytes", inside / "channel_0", asked[0], codes=(3,), digest=True
        )
    manifest = of / "critpath.json"
    more = (("requests", str(of)), ("view", str(of), "-o", str(place / "view.html")))
    yield given("manifest", "json", manifest, *asked, codes=(3,))
    yield given("manifest, other commands", "json", manifest, *more, codes=(2, 3))
    yield from _beside(place)
    yield from _hosts(place)
    yield from _raw(place)


def _beside(place: Path) -> Iterator[Given]:
    """What a recorder leaves beside a trace."""
    of = place / "budgeted"
    more = {"format": "critpath/recording/2", "gaps": "gaps.jsonl"}
    gap = {"begin": 2, "closed": 3, "opening": 5, "end": 6, "layer": "base", "why": "budget"}
    chosen = {"kind": "sh", "key": 2, "begin": 3, "tid": 7, "chance": 0.5}
    function = {"number": 1, "module": "a", "name": "f", "file": "a.py", "line": 3}
    function |= {"project": True, "switched_off": 0}
    functions = {"format": "critpath/functions/1", "functions": [function]}
    functions |= {"events": 2, "lost": 0, "event_ns": 900}
    make_recording(of, **more)
    gaps = _write(of / "gaps.jsonl", f"{json.dumps(gap)}\n" * 1)
    selected = _write(of / "selected.jsonl", f"{json.dumps(chosen)}\n")
    listed = _write(of / "functions.json", json.dumps(functions))
    _write(of / "stacks/frames.json", stacks.FRAMES)
    _write(of / "stacks/samples.bin", stacks.SAMPLES)
    counts = next(data for kind, data in seeds.store_seeds() if kind == "counts")
    asked = (("doctor", str(of)), ("path", str(of), "--execution", "thread"))
    yield given("gaps", "lines", gaps, *asked, codes=(3,))
    yield given("selected", "lines", selected, *asked, codes=(3,))
    yield given("functions", "json", listed, *asked, codes=(3,))
    yield given("frames of stacks", "json", of / "stacks/frames.json", asked[1], codes=(3,))
    yield given("samples of stacks", "bytes", of / "stacks/samples.bin", asked[1], codes=(3,))
    counted = place / "counted"
    _write(counted / "critpath.json", json.dumps({**seeds.MANIFEST_SEED, "loss": []}))
    file = _write(counted / "counts/counts.jsonl", counts)
    yield given("counts", "lines", file, ("signature", str(counted)), codes=(2, 3))


def _hosts(place: Path) -> Iterator[Given]:
    of = place / "hosts"
    make_recording(of / "one")
    make_recording(of / "two", "lttng-2.1")
    listed = {
        "format": "critpath/hosts/1",
        "hosts": [{"name": "a", "recording": "one"}, {"name": "b", "recording": "two"}],
    }
    file = _write(of / "hosts.json", json.dumps(listed))
    yield given("hosts", "json", file, ("doctor", str(of)), ("clocks", str(of)), codes=(2, 3))


def _raw(place: Path) -> Iterator[Given]:
    """What the ftrace recorder leaves where it is killed, which is finished later."""
    with tarfile.open(FIXTURES / "ftrace-raw/minimal.tar.xz") as tar:
        tar.extractall(place / "unpacked", **DATA_ONLY)  # noqa: S202 - a fixture of ours
    kept, of = place / "killed", place / "finished"
    shutil.move(place / "unpacked/minimal", kept / "raw")
    session = f"critpath-{Path('/proc/self/ns/pid').stat().st_ino}-1-1-00000000"
    manifest = {**seeds.MANIFEST_SEED, "state": "recording", "session": session, "loss": []}
    manifest |= {"recorder": {"name": "ftrace"}, "trace": "trace"}
    _write(kept / "critpath.json", json.dumps(manifest))
    shutil.copytree(kept, of)
    asked, more = ("doctor", "--clean", str(of)), {"codes": (1, 2, 3), "copied": (kept, of)}
    names = ("raw.json", "stats.json", "statedump.json", "statedump-end.json")
    for name in names:
        yield given(f"raw {name}", "json", of / "raw" / name, asked, **more)
    formats = tuple(sorted((of / "raw/formats").iterdir()))
    texts = (*formats, of / "raw/header_page", of / "raw/header_event")
    yield given("raw formats", "text", texts, asked, **more)
    yield given("raw pages", "bytes", (of / "raw/cpu0", of / "raw/cpu1"), asked, **more)


def _documents(place: Path) -> Iterator[Given]:
    compared = {name: GOLDEN / f"{name}.json" for name in ("factory", "inconclusive", "ok")}
    for name, golden in compared.items():
        file = _write(place / f"{name}.json", golden.read_bytes())
        made = place / "rendered"
        ways = ("--html", "--markdown", "--junit", "--json")
        asked = tuple(("report", str(file), way, str(made)) for way in ways)
        yield given(
            f"comparison {name}", "json", file, *asked,
            ("report", str(file)), ("report", str(file), "--redact", "--html", str(made)),
            ("report", str(file), "-v", "--github"), codes=(3,),
        )  # fmt: skip
    yield given(
        "comparison, exported", "json", file,
        *(("export", str(file), "--format", of) for of in ("fasta", "newick", "sketches")),
        codes=(2, 3),
    )  # fmt: skip
    calibrated = _write(place / "calibration.json", to_json(seeds.calibration()))
    asked = (("report", str(calibrated)), ("report", str(calibrated), "--format", "json"))
    yield given("calibration", "json", calibrated, *asked, codes=(3,))
    answers = place / "answers"
    for number, name in enumerate(("ok", "factory", "inconclusive")):
        at = answers / f"2026112{number}T042158Z-v1..{number}070c7b.json"
        _write(at, (GOLDEN / f"{name}.json").read_bytes())
    yield given(
        "answers of a trend", "json", tuple(sorted(answers.iterdir())), ("trend", str(answers)),
        codes=(3,),
    )  # fmt: skip


def _tables(place: Path) -> Iterator[Given]:
    paths = _write(place / "a.paths", (HERE / "saved/paths.parquet").read_bytes())
    explored = place / "explored.json"
    _run("explore", paths, "--json", explored)
    yield given("exploration", "json", explored, ("report", str(explored)), codes=(3,))
    listed = place / "path.json"
    listed.write_text(_run("report", paths, "--format", "json"))
    yield given("paths as JSON", "json", listed, ("report", str(listed)), codes=(3, 4))
    formats = ("collapsed", "speedscope", "segments", "vectors", "perfetto", "otlp-json")
    yield given(
        "paths", "parquet", paths, ("report", str(paths)), ("compare", str(paths), str(paths)),
        ("query", str(paths), "SELECT * FROM facts"), ("explore", str(paths)),
        ("query", str(paths), "SELECT * FROM segments", "--format", "csv"), codes=(3,),
    )  # fmt: skip
    yield given(
        "paths, exported", "parquet", paths,
        *(("export", str(paths), "--format", of) for of in formats), codes=(2, 3),
    )  # fmt: skip
    baseline = place / "a.baseline.json"
    _run("baseline", "save", paths, "-o", baseline)
    yield given(
        "baseline", "json", baseline, ("baseline", "show", str(baseline)),
        ("compare", str(baseline), str(paths)), codes=(3,), digest=True,
    )  # fmt: skip
    whole = saved_list(place / "set", paths)
    yield given("list of a set", "json", whole, ("report", str(whole.parent)), codes=(3,))
    yield given(
        "part of a set", "parquet", tuple(whole.parent.glob("*.parquet")),
        ("report", str(whole.parent)), codes=(3,), digest=True,
    )  # fmt: skip


def saved_list(directory: Path, paths: Path) -> Path:
    """Make a set of one part; return its list."""
    content = paths.read_bytes()
    _write(directory / part_name(0), content)
    table = pq.read_table(paths)
    segments = sum(len(row) for row in table.column("segments").to_pylist())
    part = {
        "file": part_name(0), "recordings": ["recording"], "executions": len(table),
        "segments": segments, "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }  # fmt: skip
    listed = {"format": DATASET, "critpath": "0", "executions": len(table)}
    listed |= {"segments": segments, "parts": [part]}
    return _write(directory / MANIFEST, json.dumps(listed))


def _stores(place: Path) -> Iterator[Given]:
    store = place / "seen.known"
    kept = dict(seeds.store_seeds())
    own = _write(store / "known.json", kept["known"])
    entry = _write(store / "entries/nginx" / saved.ENTRY, kept["entry"])
    text = json.loads(kept["entry"])
    _write(
        store / "entries/other/2026-05-03T14-02-11Z-9f3c02.json",
        json.dumps({**text, "label": "other"}),
    )
    asked = tuple(("known", verb, str(store)) for verb in ("list", "check", "groups"))
    skipping = tuple((*words, "--skip-bad") for words in asked)
    yield given("store", "json", own, *asked, codes=(2, 3))
    yield given("entry", "json", entry, *asked, *skipping, codes=(2, 3))
    counted = place / "counted"
    signature = place / "signature.parquet"
    _run("signature", counted, "-o", signature)
    yield given(
        "signature", "parquet", signature, ("signature", str(signature)),
        ("known", "search", str(store), str(signature)), codes=(2, 3),
    )  # fmt: skip


def _foreign(place: Path) -> Iterator[Given]:
    made = place / "converted"
    for number, file in enumerate(sorted((HERE / "corpus/foreign").iterdir())):
        content = file.read_bytes()
        kind = "text" if content.isascii() else "bytes"
        at = _write(place / f"foreign-{number}", content)
        asked = (("convert", str(at), "-o", str(made)), ("path", str(at), "--execution", "thread"))
        yield given(f"foreign {file.name[:6]}", kind, at, *asked, codes=(2, 3, 4), made=(made,))


def _kept(place: Path) -> Iterator[Given]:
    config = _write(
        place / "critpath.toml",
        'alpha = 0.01\nexecution = "thread"\njobs = "2"\n',
    )
    yield given(
        "critpath.toml", "text", config, ("report", "x", "--show-config", "--config", str(config)),
        codes=(2,),
    )  # fmt: skip
    of = place / "lttng-2.13"
    windows = _write(place / "windows.csv", "begin,end,label\n1,9,a\n10,900,b\n")
    yield given(
        "windows", "text", windows,
        ("path", str(of), "--execution", f"windows:{windows}"), codes=(2, 3, 4),
    )  # fmt: skip
    incidents = place / "incidents"
    incidents.mkdir(mode=0o700)
    one = {
        "format": "critpath/incident/1", "version": "1", "id": _BEFORE, "when": "T", "last": "T",
        "count": 1, "host": "h", "trigger": {"when": "loss"}, "verdict": "anomaly", "code": 1,
        "sentence": "they wait", "usual": {"of": "usual"}, "dump": {"path": "/d", "bytes": 1},
    }  # fmt: skip
    incident = _write(incidents / _BEFORE / "incident.json", json.dumps(one))
    compared = _write(
        incidents / _BEFORE / "comparison.json", (GOLDEN / "factory.json").read_bytes()
    )
    asked = (("incidents", str(incidents)), ("incidents", "show", _BEFORE, str(incidents)))
    yield given("incident", "json", (incident, compared), asked[0], codes=(2, 3, 4))
