"""Compare what two builds of critpath write about every recording, byte by byte.

    python evaluation/compare_checkouts.py --before OLD/.venv/bin/critpath \
        --after .venv/bin/critpath --cache DIR [--quick] [--only GLOB] [--jobs 2]

Every recording of ``fixtures/`` and, where it is there, of ``../shared/traces`` goes through
``path``, ``extract``, ``compare``, ``calibrate``, ``baseline``, ``report`` and ``export`` of
both builds.  Standard output, standard error, exit codes and every file written are compared.
What must differ is listed in `NORMALISED` (replaced in both) and `ARGUED` (listed, not
counted), each with its reason.  The exit code is 1 if anything else differs.

``--cache`` keeps the unpacked recordings and the output of the build before; a second run then
only runs the build after.  Without ``--after`` the cache is filled and nothing is compared.
Remove the directory when the build before changes.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FIXTURES: Final = ROOT / "fixtures"
SHARED: Final = ROOT.parent / "shared" / "traces"

# Replaced in the output of both builds: pattern, replacement, reason.
NORMALISED: Final = (
    (rb"(?<![\d.])0\.[12]\.0(?![\d.])", b"VERSION", "the version is 0.1.0 before, 0.2.0 after"),
)

# Differences that are listed, but not counted: case, file of the case (globs) and reason.
ARGUED: Final[tuple[tuple[str, str, str], ...]] = ()

TIMEOUT: Final = 600  # seconds a command may take
_HEAD: Final = 14  # lines of a difference that are shown
_WIDTH: Final = 180  # characters of each

UST: Final = "events:app:request_begin,app:request_end,key=id,label=type"
PYTHON: Final = (
    r"events:lttng_python:event[logger_name=app]"
    r"[msg~request_begin (?P<id>\d+) (?P<type>\S+)],"
    r"lttng_python:event[logger_name=app][msg~request_end (?P<id>\d+)],key=id,label=type"
)
SAMPLES: Final = ("sample-delay", "sample-fsync", "sample-lock", "sample-quota")
OUTPUTS: Final = (
    *("--json", "c.json", "--html", "c.html", "--markdown", "c.md", "--junit", "c.xml"),
)
VERBS: Final = (
    *(("record",), ("path",), ("extract",), ("compare",), ("calibrate",), ("baseline",)),
    *(("baseline", "save"), ("baseline", "show"), ("baseline", "update"), ("report",)),
    *(("export",), ("doctor",), ("mark",), ("demo",)),
)

Step = Sequence[str]


@dataclass(frozen=True)
class Case:
    """Commands that run one after the other in one empty directory.

    Attributes
    ----------
    name : str
        Unique; what ``--only`` selects by.
    steps : sequence of sequence of str
        Arguments of each command, less the command.
    quick : bool
        Part of ``--quick``.
    """

    name: str
    steps: Sequence[Step]
    quick: bool = False


@dataclass(frozen=True)
class Difference:
    """A file, stream or exit code of a case that is not the same."""

    case: str
    file: str
    text: str
    reason: str = ""


# ----------------------------------------------------------------------------- the cases


def recording(name: str) -> str:
    """Return the path of a recording as the commands are given it."""
    return f"../../recordings/{name}"


def spec_of(name: str) -> str:
    """Return what an execution is in a recording of ours."""
    return PYTHON if name == "python" else UST


def list_cases(found: Sequence[str], quick: Sequence[str]) -> Iterator[Case]:
    """Yield every case that the unpacked recordings allow.

    Parameters
    ----------
    found : sequence of str
        Names below ``recordings/``.
    quick : sequence of str
        Recordings of ours that ``--quick`` reads.
    """
    ours = [n for n in found if "/" not in n]
    for name in ours:
        yield from _of_one(name, quick=name in quick)
    yield from _pairs(set(ours))
    yield from _variants(set(ours))
    yield from _sets(set(ours))
    for name in found:
        if name.startswith("public/"):
            yield from _of_public(name)
        elif name.startswith("ctf2/"):
            yield Case(name, _steps_of_foreign(name), quick=True)
        elif name.startswith("malformed/"):
            steps = _steps_of_foreign(name)
            yield Case(name, [steps[0], steps[1]], quick=name.endswith(("-range", "-magic")))
    yield from _usage(recording(ours[0]))


def _of_one(name: str, *, quick: bool) -> Iterator[Case]:
    trace, spec = recording(name), ("--execution", spec_of(name))
    ids = ("--id", "0") if name != "plain" else ()
    yield Case(
        f"path/{name}",
        [
            ("path", trace, *spec),
            ("path", trace, *spec, "--format", "json"),
            ("path", trace, *spec, "--format", "speedscope", "-o", "a.speedscope.json"),
            ("path", trace, *spec, "--format", "perfetto", "-o", "a.pftrace"),
        ],
        quick=quick,
    )
    yield Case(
        f"path-more/{name}",
        [
            ("path", trace),
            ("path", trace, *spec, "--interrupts", "--format", "json"),
            ("path", trace, *spec, "--format", "segments", "-o", "s.parquet"),
            ("path", trace, *spec, "--format", "vectors", "-o", "v.parquet"),
            ("path", trace, *spec, *ids, "--format", "graphml", "-o", "a.graphml"),
            ("path", trace, "--comm", "worker-0"),
            ("path", trace, "--comm", "worker-0", "--format", "json"),
            ("path", trace, "--execution", "events:?,?"),
        ],
    )
    yield Case(
        f"extract/{name}",
        [
            ("extract", trace, *spec, "-o", "x.parquet"),
            ("report", "x.parquet"),
            ("export", "x.parquet", "--format", "segments", "-o", "s.parquet"),
        ],
        quick=quick,
    )
    yield Case(
        f"extract-more/{name}",
        [
            ("extract", trace, *spec, "-o", "dataset"),
            ("extract", trace, *spec, "-o", "i.parquet", "--interrupts"),
            ("extract", trace, *spec, "-o", "m.parquet", "--max-memory", "64M"),
            ("extract", trace, "-o", "process.parquet", "--execution", "process"),
            ("extract", trace, "-o", "thread.parquet", "--execution", "thread"),
            ("extract", trace, *spec, "-o", "bt.parquet", "--reader", "babeltrace2"),
            ("report", "dataset", "--format", "json"),
            ("report", "i.parquet", "--json", "i.json"),
            ("export", "dataset", "--format", "perfetto", "-o", "a.pftrace"),
            ("export", "dataset", "--format", "speedscope", "-o", "a.speedscope.json"),
            ("export", "i.parquet", "--format", "vectors", "-o", "v.parquet"),
        ],
    )


def _compare(name: str, normal: str, sample: str, *more: str, quick: bool = False) -> Case:
    """Return a comparison, and what ``report`` and ``export`` make of the saved one."""
    return Case(
        name,
        [
            ("compare", normal, sample, *more, *OUTPUTS),
            ("report", "c.json"),
            ("report", "c.json", "--format", "json", "--html", "r.html", "--markdown", "r.md"),
            ("report", "c.json", "--junit", "r.xml"),
            ("export", "c.json", "--format", "stockholm", "-o", "c.sto"),
            ("export", "c.json", "--format", "newick", "-o", "c.nwk"),
            ("export", "c.json", "--format", "clustal", "--id", "0", "-o", "c.aln"),
            ("export", "c.json", "--format", "fasta", "--id", "0", "-o", "c.fasta"),
        ][: 2 if quick else None],
        quick=quick,
    )


def _pairs(ours: set[str]) -> Iterator[Case]:
    for normal, samples in (
        ("normal", (*SAMPLES, "normal-2", "lossy", "plain", "full")),
        ("normal-2", ("normal", "sample-lock")),
        ("lossy", ("normal",)),
        ("steady-normal", tuple(f"steady-{n}" for n in (*SAMPLES, "plain"))),
    ):
        for sample in samples:
            if {normal, sample} <= ours:
                pair = recording(normal), recording(sample)
                yield _compare(f"compare/{normal}/{sample}", *pair, "--execution", UST)
    for sample in ("sample-lock", "normal-2"):
        if {"normal", sample} <= ours:
            pair = recording("normal"), recording(sample)
            yield _compare(f"compare-quick/{sample}", *pair, "--execution", UST, quick=True)
    if {"normal", "python"} <= ours:
        yield _compare("compare/unlike", recording("normal"), recording("python"))


def _variants(ours: set[str]) -> Iterator[Case]:
    variants = {
        "paper": ("--rule", "paper"),
        "paper-auto": ("--rule", "paper", "--t2", "auto", "--t1", "1", "--y-reference", "a2"),
        "muscle": ("--aligner", "muscle"),
        "joint": ("--msa", "joint"),
        "joint-muscle": ("--msa", "joint", "--aligner", "muscle", "--rule", "paper"),
        "raw": ("--cluster-method", "raw"),
        "silcut": ("--cluster-method", "silcut"),
        "linkage": ("--cluster-method", "linkage"),
        "levels": ("--level", "RUN=off", "--level", "WAIT_CPU=warn", "--level", "RUN@holder=error"),
        "alpha": ("--alpha", "0.001", "--permutations", "999"),
        "floor": ("--floor", "0.5"),
        "minimum": ("--minimum-executions", "50"),
        "strict": ("--strict-environment",),
        "interrupts": ("--interrupts",),
        "outliers": ("--outlier-k", "3", "--outlier-level", "0.2"),
        "memory": ("--max-memory", "64M", "--jobs", "2"),
    }
    quick = {"paper", "joint"}
    for sample in ("sample-lock", "sample-delay"):
        if not {"normal", sample} <= ours:
            continue
        pair = recording("normal"), recording(sample)
        for name, options in variants.items():
            case = _compare(f"variant/{sample}/{name}", *pair, "--execution", UST, *options)
            yield Case(case.name, case.steps[:2], name in quick and sample == "sample-lock")
        for spec in ("process", "thread", "marker"):
            options = ("--execution", spec)
            yield Case(f"variant/{sample}/{spec}", _compare("", *pair, *options).steps[:2])
        yield Case(f"variant/{sample}/quiet", [("compare", *pair, "--quiet")])
        yield Case(f"variant/{sample}/github", [("compare", *pair, "--github")])


def _sets(ours: set[str]) -> Iterator[Case]:
    if not {"normal", "normal-2", "sample-lock", "sample-delay"} <= ours:
        return
    spec = ("--execution", UST)
    normals = recording("normal"), recording("normal-2")
    lock, delay = recording("sample-lock"), recording("sample-delay")
    yield Case(
        "sets/dataset",
        [
            ("extract", *normals, *spec, "-o", "normals"),
            ("extract", lock, delay, *spec, "-o", "samples.parquet"),
            ("compare", "normals", "samples.parquet", *OUTPUTS),
            ("compare", "samples.parquet", "normals"),
            ("export", "normals", "samples.parquet", "--format", "vectors", "-o", "v.parquet"),
            ("export", "normals", "samples.parquet", "--format", "perfetto", "-o", "a.pftrace"),
        ],
    )
    yield Case(
        "sets/baseline",
        [
            ("baseline", "save", *normals, *spec, "-o", "b.baseline", "--executions", "40"),
            ("baseline", "show", "b.baseline"),
            ("baseline", "show", "b.baseline", "--json"),
            ("compare", "b.baseline", lock, *spec, *OUTPUTS),
            ("compare", lock, "b.baseline", *spec),
            ("baseline", "update", "b.baseline", normals[0], *spec),
            ("baseline", "save", *normals, *spec, "-o", "b.baseline"),
            ("baseline", "save", *normals, *spec, "-o", "b.baseline", "--force", "--interrupts"),
            ("export", "b.baseline", "--format", "segments", "-o", "s.parquet"),
            ("report", "b.baseline"),
        ],
        quick=True,
    )
    yield Case(
        "calibrate/two",
        [
            ("calibrate", *normals, *spec, "--splits", "20", "--json", "k.json"),
            ("report", "k.json"),
            ("report", "k.json", "--html", "k.html"),
            ("report", "k.json", "--format", "json"),
        ],
    )
    yield Case(
        "calibrate/one-paper",
        [("calibrate", lock, *spec, "--splits", "10", "--rule", "paper", "--json", "k.json")],
        quick=True,
    )


def _steps_of_foreign(name: str) -> list[Step]:
    trace = recording(name)
    return [
        ("path", trace, "--execution", "thread", "--format", "json"),
        ("extract", trace, "--execution", "events:?,?", "-o", "x.parquet"),
        ("extract", trace, "--execution", "process", "-o", "p.parquet"),
        ("extract", trace, "--execution", "thread", "-o", "t.parquet"),
        ("path", trace),
    ]


def _of_public(name: str) -> Iterator[Case]:
    trace = recording(name)
    quick = name.endswith(("bt-tracefile-rotation", "cb-nodes-pipeline"))
    yield Case(name, _steps_of_foreign(name), quick=quick)
    yield Case(
        f"{name}/more",
        [
            ("path", trace, "--tid", "1"),
            ("path", trace, "--execution", "process", "--format", "perfetto", "-o", "a.pftrace"),
            ("extract", trace, "--execution", "thread", "--interrupts", "-o", "i.parquet"),
            ("compare", "i.parquet", "i.parquet", *OUTPUTS),
            (
                *("extract", trace, "-o", "e.parquet", "--execution"),
                "events:roscpp:callback_start,roscpp:callback_end",
            ),
        ],
    )


def _usage(trace: str) -> Iterator[Case]:
    yield Case("usage/help", [("--help",), *((*verb, "--help") for verb in VERBS)])
    yield Case("usage/settings", [(verb[0], "--show-config") for verb in VERBS if len(verb) == 1])
    yield Case(
        "usage/errors",
        [
            (),
            ("--version",),
            ("nothing",),
            ("compare",),
            ("compare", trace, "missing"),
            ("compare", "missing", trace, "--allow-missing-baseline"),
            ("compare", trace, trace, "--alpha", "2"),
            ("compare", trace, trace, "--rule", "none"),
            ("compare", trace, trace, "--aligner", "none"),
            ("compare", trace, trace, "--level", "RUN"),
            ("compare", trace, trace, "--execution", "events:a"),
            ("compare", trace, trace, "--config", "missing.toml"),
            ("path", trace, "--tid", "1", "--comm", "a"),
            ("path", trace, "--format", "none"),
            ("path", trace, "-o", "a.unknown"),
            ("extract", trace, "--execution", "nothing", "-o", "x.parquet"),
            ("extract", trace, "--max-memory", "1x", "-o", "x.parquet"),
            ("export", "missing.json", "--format", "newick"),
            ("report", "missing.json"),
            ("report", f"{trace}/trace/kernel/metadata"),
            ("baseline",),
            ("baseline", "show", f"{trace}/trace/kernel/metadata"),
        ],
        quick=True,
    )


# ------------------------------------------------------------------------------ to run them


def unpack(directory: Path, *, quick: Sequence[str] | None) -> list[str]:
    """Unpack every recording; return their names below `directory`."""
    ours = {archive.name.removesuffix(".tar.xz"): archive for archive in _archives(SHARED)}
    ours |= {archive.name.removesuffix(".tar.xz"): archive for archive in _archives(FIXTURES)}
    if quick is not None:
        ours = {name: archive for name, archive in ours.items() if name in quick}
    for name, archive in ours.items():
        _unpack(archive, directory / name, name)
    found = sorted(ours)
    for archive in sorted((SHARED / "public").glob("*.tar.xz")):
        name = archive.name.removesuffix(".tar.xz")
        _unpack(archive, directory / "public" / name, name)
        found.append(f"public/{name}")
    for group, pattern in (("ctf2", "*"), ("malformed", "*/*/*")):
        archive = SHARED / f"{group}.tar.xz"
        if archive.is_file():
            _unpack(archive, directory / group, group)
            traces = (p for p in sorted((directory / group).glob(pattern)) if p.is_dir())
            found += [str(p.relative_to(directory)) for p in traces]
    return found


def _archives(directory: Path) -> list[Path]:
    return sorted((directory / "lttng-guest").glob("*.tar.xz"))


def _unpack(archive: Path, directory: Path, member: str) -> None:
    if directory.is_dir():
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as name, tarfile.open(archive) as tar:
        tar.extractall(name, filter="data")
        with contextlib.suppress(FileExistsError, OSError):  # another run was quicker
            (Path(name) / member).rename(directory)


def run_case(command: Path, case: Case, runs: Path) -> dict[str, bytes]:
    """Run a case in a new directory; return streams, exit codes and files by name."""
    with tempfile.TemporaryDirectory(dir=runs, prefix="") as place:
        here = Path(place)
        home = here.with_name(here.name + ".home")
        home.mkdir()
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "COLUMNS": "100",
            "GITHUB_STEP_SUMMARY": str(here / "summary.md"),
        }
        written: dict[str, bytes] = {}
        try:
            for number, step in enumerate(case.steps):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    done = subprocess.run(
                        [command, *step],
                        cwd=here,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        capture_output=True,
                        timeout=TIMEOUT,
                        check=False,
                    )
                    written[f"{number}.stdout"] = done.stdout
                    written[f"{number}.stderr"] = done.stderr
                    written[f"{number}.exit"] = str(done.returncode).encode()
                written.setdefault(f"{number}.exit", b"timeout")
            for file in sorted(p for p in here.rglob("*") if p.is_file()):
                written[f"files/{file.relative_to(here)}"] = file.read_bytes()
        finally:
            shutil.rmtree(home)
        # The directory has another name each time.
        return {name: data.replace(place.encode(), b"HERE") for name, data in written.items()}


def run_before(command: Path, case: Case, directory: Path, runs: Path) -> dict[str, bytes]:
    """Return what the build before writes: as cached, if that was of the same commands."""
    kept = directory / case.name.replace("/", "_")
    stamp = json.dumps([str(command), [list(step) for step in case.steps]])
    about = kept / "steps.json"
    if about.is_file() and about.read_text() == stamp:
        files = sorted(p for p in kept.rglob("*") if p.is_file() and p != about)
        return {str(file.relative_to(kept)): file.read_bytes() for file in files}
    written = run_case(command, case, runs)
    with tempfile.TemporaryDirectory(dir=directory) as name:
        new = Path(name) / "new"
        for file, data in written.items():
            (new / file).parent.mkdir(parents=True, exist_ok=True)
            (new / file).write_bytes(data)
        (new / "steps.json").write_text(stamp)
        shutil.rmtree(kept, ignore_errors=True)
        with contextlib.suppress(OSError):  # another run was quicker
            new.rename(kept)
    return written


# --------------------------------------------------------------------------- to compare them


def normalise(data: bytes) -> bytes:
    """Replace what must differ between the builds."""
    for pattern, replacement, _ in NORMALISED:
        data = re.sub(pattern, replacement, data)
    return data


def find_differences(
    case: Case, before: dict[str, bytes], after: dict[str, bytes]
) -> Iterator[Difference]:
    """Yield what the two builds wrote differently."""
    for file in sorted(before.keys() | after.keys()):
        old, new = before.get(file), after.get(file)
        if old is None or new is None:
            text = "not written " + ("before" if old is None else "after")
        elif normalise(old) == normalise(new):
            continue
        else:
            text = _show(normalise(old), normalise(new))
        number = file.partition(".")[0]
        if number.isdecimal():
            text = f"$ critpath {' '.join(case.steps[int(number)])}\n{text}"
        reasons = (
            why
            for name, pattern, why in ARGUED
            if fnmatch.fnmatch(case.name, name) and fnmatch.fnmatch(file, pattern)
        )
        yield Difference(case.name, file, text, next(reasons, ""))


def _show(old: bytes, new: bytes) -> str:
    try:
        texts = old.decode().splitlines(), new.decode().splitlines()
    except UnicodeDecodeError:
        first = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), None)
        where = f"from byte {first:,}" if first is not None else "only in length"
        return f"{len(old):,} and {len(new):,} bytes, different {where}"
    lines = list(difflib.unified_diff(*texts, "before", "after", n=1, lineterm=""))
    shown = [_cut(line) for line in lines[:_HEAD]]
    if len(lines) > _HEAD:
        shown.append(f"... {len(lines) - _HEAD:,} more lines")
    return "\n".join(shown) or "other ends of lines"


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else line[:_WIDTH] + "..."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every case with both builds and list the differences."""
    options = _parse(arguments)
    cache = Path(options.cache or tempfile.mkdtemp(prefix="critpath-checkouts-")).resolve()
    quick = ("normal", "normal-2", "sample-lock", "lossy") if options.quick else None
    runs, kept = cache / "runs", cache / "before"
    for directory in (runs, kept):
        directory.mkdir(parents=True, exist_ok=True)
    recordings = unpack(cache / "recordings", quick=quick)
    cases = [
        case
        for case in list_cases(recordings, ("normal", "lossy"))
        if (case.quick or not options.quick) and fnmatch.fnmatch(case.name, options.only)
    ]
    if options.list:
        print(*(f"{case.name} ({len(case.steps)})" for case in cases), sep="\n")
        return 0
    # Absolute, but not resolved: an interpreter finds its environment by its name.
    before_command = Path(options.before).absolute()
    after_command = Path(options.after).absolute() if options.after else None

    def judge(case: Case) -> tuple[int, list[Difference]]:
        before = run_before(before_command, case, kept, runs)
        after = run_case(after_command, case, runs) if after_command else before
        return len(before), list(find_differences(case, before, after))

    begin, counted, argued, compared = time.monotonic(), 0, 0, 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for case, (count, differences) in zip(cases, pool.map(judge, cases), strict=True):
            compared += count
            for one in differences:
                argued, counted = argued + bool(one.reason), counted + (not one.reason)
                print(
                    f"== {one.case}: {one.file}" + (f" (argued: {one.reason})" * bool(one.reason))
                )
                print(one.text, flush=True)
            if options.verbose and not differences:
                print(f"same: {case.name}", flush=True)
    if options.cache is None:
        shutil.rmtree(cache)
    print(
        f"{len(cases)} cases, {sum(len(case.steps) for case in cases)} commands, {compared:,} "
        f"outputs: {counted} differ, {argued} differ for an argued reason "
        f"({time.monotonic() - begin:.0f} s)"
    )
    return int(counted > 0)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", required=True, help="the critpath command of the old build")
    parser.add_argument("--after", help="that of the new build; without it, only fill the cache")
    parser.add_argument("--cache", help="keeps recordings and the old build's output")
    parser.add_argument("--quick", action="store_true", help="a small part: under two minutes")
    parser.add_argument("--only", default="*", help="cases whose name matches this pattern")
    parser.add_argument("--jobs", type=int, default=1, help="cases that run at once (1)")
    parser.add_argument("--list", action="store_true", help="print the cases and run nothing")
    parser.add_argument("--verbose", action="store_true", help="name cases without difference too")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
