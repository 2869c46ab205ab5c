"""Reads and writes what a recording says of itself: ``critpath.json`` and the runs so far."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from critpath.errors import CritpathError, UnreadableError
from critpath.model import MANIFEST, MANIFEST_FORMAT, Manifest, Run, StreamFacts
from critpath.model.manifest import build_manifest, parse_run
from critpath.model.recording import (
    COUNTS,
    FORMER_BLOCK_RUNS,
    GAPS_FORMAT,
    MANIFEST_BYTES,
    RECORDING,
    SAMPLED,
    Chosen,
)
from critpath.schema.ways import REQUESTS, SOCKETS
from critpath.units import plural
from critpath.untrusted import digest_regular, load_json, read_regular
from critpath_record.dirfd import list_matching, list_metadata, write_whole
from critpath_record.output import OutputDirectory
from critpath_record.proc import list_pids, read_name, read_text
from critpath_record.profiles import profile_label, records_network
from critpath_record.recorder import BESIDE, TRACE, RecordRequest, UnfinishedError
from critpath_record.source import Taken
from critpath_record.stacks.sources import STACKS

# Runs that ended, one JSON object a line, written while the recording goes on.
RUNS: Final = "runs.jsonl"
_FORMATS: Final = (MANIFEST_FORMAT, GAPS_FORMAT)


def initial_manifest(
    request: RecordRequest,
    index: int,
    *,
    session: str,
    recorder: str,
    container: int,
    notes: Sequence[str],
) -> Manifest:
    """Return the manifest of a command before it is recorded; `container`: its namespace or 0."""
    names = [directory.name for directory in request.directories(request.output)]
    whole = f"process,ns={container}" if container else ""
    return Manifest(
        state=RECORDING,
        session=session,
        command=request.commands[index] if request.commands else (),
        execution=request.execution or whole or ("process" if request.commands else ""),
        runs=(),
        recorder={"name": recorder},
        profile=profile_label(request.profile),
        clock=clock_facts(),
        host=host_facts(network=records_network(request.profile)),
        begin=0,
        end=0,
        warmup=request.warmup,
        prepare=request.prepare,
        timeout=request.timeout,
        interleaved=names[1 - index] if len(names) > 1 else "",
        container=container,
        trace=TRACE,
        warnings=tuple(notes),
        critpath=request.version,
    )


def append_run(directory: Path, run: Run) -> str:
    """Append a run to the list on disk, in case the recorder is killed; return a warning, or ""."""
    line = json.dumps(asdict(run)).encode() + b"\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    try:
        descriptor = os.open(directory / RUNS, flags, 0o600)
        try:
            before = os.fstat(descriptor).st_size
            if os.write(descriptor, line) < len(line):
                os.ftruncate(descriptor, before)  # half a line would spoil the next
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
    except OSError as error:
        return f"run {run.number} could not be noted while it recorded: {error.strerror}"
    return ""


def complete_manifests(
    manifests: Mapping[Path, Manifest],
    state: str,
    end: int,
    recorded: Taken,
    warnings: Sequence[str],
    streams: tuple[StreamFacts, ...] = (),
) -> list[Manifest]:
    """Write the final manifest of each recording and remove the lists of runs."""
    loss = tuple(loss for loss in recorded.loss if loss.events or loss.packets)
    changes: dict[str, Any] = {"state": state, "end": end, "loss": loss, "streams": streams}
    changes["gaps"] = recorded.gaps
    if recorded.gaps_file:
        changes |= {"gaps": (), "gaps_file": recorded.gaps_file, "overhead": recorded.overhead}
    changes["warnings"] = tuple(dict.fromkeys(warnings))
    done = []
    for directory, manifest in manifests.items():
        first = next(iter(manifests))
        for name in recorded.beside if directory != first else ():
            shutil.copyfile(first / name, directory / name)
        facts = {**manifest.recorder, **recorded.facts}
        finished = replace(manifest, recorder=facts, **changes)
        done.append(replace(finished, execution=find_execution(finished)))
        try:
            write_manifest(directory, done[-1])
        except OSError as error:
            raise UnfinishedError(
                f"{directory} cannot be written: {error.strerror}", "make room there"
            ) from None
    for directory in manifests:
        with contextlib.suppress(OSError):
            (directory / RUNS).unlink()
    return done


def find_execution(manifest: Manifest) -> str:
    """Return what executions of a finished recording are: requests where sockets tell of them.

    Not where a command or its maker says what they are, nor where programs have marked some, nor
    of a flight's dump: whether it is of marks its trigger says.
    """
    if manifest.execution or manifest.trigger:
        return manifest.execution
    way, marks = manifest.recorder.get("requests"), manifest.recorder.get("marks")
    asked = way == SOCKETS or (way and manifest.profile == REQUESTS)
    return REQUESTS if asked and not marks else ""


_MOST_CUT: Final = 0.01  # of those that were chosen
_CLAIMS: Final = (0.05, 10)  # by which share, and how many, claims may differ from marks


def note_chosen(manifest: Manifest, chosen: Chosen) -> Manifest:
    """Return a manifest with what a budget chose of marked executions, and what is odd about it."""
    overhead = {**manifest.overhead, "executions": chosen.kinds, "felt": chosen.felt}
    seen, selected, cut = (
        sum(of[name] for of in chosen.kinds.values()) for name in ("seen", "selected", "cut")
    )
    said, every = [], selected + cut
    if cut > _MOST_CUT * every and overhead.get("chosen_by") == "programs":
        said.append(
            f"{cut:,} of {every:,} chosen runs were cut: they lasted too long, or "
            "began when the gate was just closing (--timeout)"
        )
    claimed = overhead.get("claimed")
    share, least = _CLAIMS
    if isinstance(claimed, int) and claimed > (1 + share) * seen + least:
        said.append(f"programs claim to have begun {claimed:,} runs, their marks say {seen:,}")
    return replace(manifest, overhead=overhead, warnings=(*manifest.warnings, *said))


def write_selected(directory: Path, chosen: Chosen) -> None:
    """Write ``selected.jsonl``, whole or not at all; nothing where nothing was chosen."""
    if not chosen.rows:
        return
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in chosen.rows)
    write_whole(directory / BESIDE[1], text)


def keep_unfinished(
    output: OutputDirectory,
    manifests: Mapping[Path, Manifest],
    notes: Sequence[str],
    error: UnfinishedError,
) -> CritpathError:
    """Keep what was recorded as a killed recorder would leave it, to be finished later."""
    first = next(iter(manifests))
    try:
        output.check_unchanged()
    except CritpathError as gone:
        return gone
    raw = (first / "raw" / "raw.json").is_file()
    trace: Sequence[Path] = ()
    with contextlib.suppress(OSError):
        trace = [first]  # where nothing can be told there may be one
        trace = list_matching(first / TRACE, "*", "metadata")
    if not raw and not trace:
        output.discard()
        return CritpathError(error.what, error.do)
    missing = ""
    for directory, manifest in manifests.items():
        if raw:  # of which the trace is made again: the manifest needs the room more
            shutil.rmtree(directory / TRACE, ignore_errors=True)
        warnings = tuple(dict.fromkeys((*manifest.warnings, *notes, error.what)))
        # One of two may say by now that it has its trace.
        changes: dict[str, Any] = {"state": RECORDING, "end": error.end or manifest.end}
        try:
            write_manifest(directory, replace(manifest, warnings=warnings, **changes))
        except OSError:
            noted = {run.number for run in read_runs(directory)}
            if lost := len({run.number for run in manifest.runs} - noted):
                missing = (
                    missing or f"; {plural(lost, 'run')} could not be noted and will be missing"
                )
    return UnfinishedError(
        error.what + missing,
        f"mend that, or make room there, then: critpath doctor --clean {first};"
        " what was recorded is kept",
    )


# Writing critpath.json


def manifest_to_json(manifest: Manifest) -> str:
    """Return the text of ``critpath.json``."""
    document = {"format": MANIFEST_FORMAT, **asdict(manifest)}
    made, budget = document.pop("gaps_file"), document.pop("overhead")
    del document["trigger"]  # of a dump it is told with what recording cost
    for key in ("counts", "groups", "files"):
        if not document[key]:
            del document[key]
    if manifest.block_runs == FORMER_BLOCK_RUNS:
        del document["block_runs"]
    if made:
        document |= {"format": GAPS_FORMAT, "gaps": made}
    if budget:
        beside = ("layers", "executions", "trigger")
        document["overhead"] = {key: of for key, of in budget.items() if key not in beside}
        document |= {key: budget.get(key) for key in beside}
    # In ASCII, which is read in a fourth of the memory; an argument that is no UTF-8 has
    # surrogates, for which JSON has escapes.
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Replace ``critpath.json`` atomically; after an OSError the earlier one is still there.

    Of a recording that ended it has the digests of what stands beside the trace's streams.
    """
    if manifest.state != RECORDING:
        manifest = replace(manifest, files=digest_files(directory))
    write_whole(directory / MANIFEST, manifest_to_json(manifest), sync=True)
    for stale in directory.glob(f".{MANIFEST}.*"):  # of a recorder killed just there
        stale.unlink(missing_ok=True)


def digest_files(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of what a recording has beside its trace's streams, by its name there."""
    places = [directory / name for name in (*BESIDE, SAMPLED, COUNTS)]
    places += [*list_matching(directory, STACKS, "*"), *list_metadata(directory / TRACE)]
    found = {}
    for place in sorted(places):
        with contextlib.suppress(FileNotFoundError):
            found[place.relative_to(directory).as_posix()] = digest_regular(place)
    return found


# Reading back


def read_manifest(directory: Path) -> Manifest:
    """Read a recording's manifest."""
    place, do = directory / MANIFEST, "name a recording's directory"
    try:
        document = load_json(read_regular(place, MANIFEST_BYTES), surrogates=True)
        if isinstance(document, dict) and document.get("format") in _FORMATS:
            return build_manifest(document)
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableError(f"{place}: not a manifest ({error})", do) from None
    raise UnreadableError(
        f"{place}: not a manifest of the format {MANIFEST_FORMAT}",
        "use the version of critpath that recorded it",
    )


def read_runs(directory: Path) -> Iterator[Run]:
    """Yield the runs that were appended while recording; the last line may be cut off."""
    with contextlib.suppress(OSError):
        for line in read_regular(directory / RUNS, MANIFEST_BYTES).splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                yield parse_run(json.loads(line))


# Facts about the machine and its clock


def host_facts(*, network: bool) -> Mapping[str, object]:
    """Return name, kernel release, machine, CPU count, CPU model, memory (bytes).

    And, where the `network` is recorded, its addresses and which machine it is: what tells that
    recordings of several machines belong together.
    """
    system = os.uname()
    return {
        **(_describe_network() if network else {}),
        "name": system.nodename,
        # Two recordings of one boot have one clock.
        "boot_id": boot_id(),
        "kernel": system.release,
        "machine": system.machine,
        "cpus": os.cpu_count() or 0,
        "cpu_model": _cpu_model(),
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    }


def _describe_network() -> dict[str, object]:
    from critpath_record.networks import network_facts, read_networks  # noqa: PLC0415 - if asked

    return {**network_facts(), "machine_id": _machine_id(), "network": read_networks()}


def end_facts(manifest: Manifest, samples: list[tuple[int, int]]) -> Manifest:
    """Note what host and clock are like now; `samples`: the trace's time and the epoch's (ns)."""
    now, then = clock_quality(), manifest.clock
    errors = [x for x in (now.get("error_ns"), then.get("error_ns")) if isinstance(x, int)]
    clock = {**then, "samples": [list(pair) for pair in samples]}
    if errors:
        clock["error_ns"] = max(errors)
    if now["synchronised"] in {"no", "unknown"}:
        clock["synchronised"] = now["synchronised"]
    host = manifest.host
    if "network" in host:
        from critpath_record.networks import add_later  # noqa: PLC0415 - only if asked

        host = add_later(host)
    return replace(manifest, clock=clock, host=host)


def sample_clock(tries: int = 5) -> tuple[int, int]:
    """Return the trace's time, and time since the Unix epoch at that moment (ns)."""
    # The narrowest of some tries: a preemption between the readings would count as time.
    taken = []
    for _ in range(tries):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        real = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        taken.append((after - before, (before + after) // 2, real))
    return min(taken)[1:]


def clock_facts() -> Mapping[str, object]:
    """Return the trace clock's name and its offset from the Unix epoch (ns)."""
    now, real = sample_clock()
    return {"name": "monotonic", "epoch": real - now, **clock_quality()}


# `struct timex`, of which adjtimex(2) fills these and more; its states (STA_UNSYNC).
_TIMEX_BYTES: Final = 256
_MAXERROR: Final = 3  # which long it is: modes, offset, freq, maxerror
_STATUS: Final = 5  # as an int
_UNSYNCHRONISED: Final = 0x40
_SYNCHRONISERS: Final = (("chrony", "chronyd"), ("ntp", "ntpd"), ("ntp", "systemd-timesyn"))


def clock_quality() -> Mapping[str, object]:
    """Return who keeps the machine's clock right, and by how much it is wrong at most (ns)."""
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    except (OSError, AttributeError):
        state = -1
    if state < 0:
        return {"synchronised": "unknown"}
    longs = (ctypes.c_long * (_TIMEX_BYTES // ctypes.sizeof(ctypes.c_long))).from_buffer(buffer)
    status = ctypes.c_int.from_buffer(buffer, _STATUS * ctypes.sizeof(ctypes.c_long)).value
    if status & _UNSYNCHRONISED:
        return {"synchronised": "no", "error_ns": longs[_MAXERROR] * 1000}
    running = {*map(read_name, list_pids())}
    by = next((name for name, program in _SYNCHRONISERS if program in running), "yes")
    return {"synchronised": by, "error_ns": longs[_MAXERROR] * 1000}


def boot_id() -> str:
    """Return what all that this kernel records shares."""
    return read_text("/proc/sys/kernel/random/boot_id").strip()


def _machine_id() -> str:
    """Return what two recordings of one machine share; of its id itself nothing can be told."""
    text = (read_text("/etc/machine-id") or read_text("/var/lib/dbus/machine-id")).strip()
    return hashlib.sha256(b"critpath:" + text.encode()).hexdigest()[:32] if text else ""


def _cpu_model() -> str:
    pattern, text = r"^(?:model name|Model|cpu model|cpu)\s*:\s*(.+)$", read_text("/proc/cpuinfo")
    found = re.search(pattern, text, re.MULTILINE)
    if found:
        return found[1].strip()
    import platform  # noqa: PLC0415 - slow to import, and of few machines

    return platform.processor()


# The trace of an interleaved session, shared by both recordings


def link_beside(first: Path, other: Path) -> None:
    """Give the other of two recordings the trace, the counts and the stacks of the first."""
    for name in (TRACE, Path(COUNTS).parts[0], STACKS):
        # Linking may be what was interrupted.
        shutil.rmtree(other / name, ignore_errors=True)
        if (first / name).is_dir():
            link_tree(first / name, other / name)


def link_tree(source: Path, target: Path) -> None:
    """Copy a directory with hard links, or copies where links fail.

    `target` must not exist.  Raises UnfinishedError, and leaves what was made.
    """
    try:
        shutil.copytree(source, target, symlinks=True, copy_function=_link)
    except OSError as error:
        # Of several files there is a list, of which the first says enough.
        wrong = error.args[0] if isinstance(error, shutil.Error) else ()
        why = str(wrong[0][-1]) if wrong else error.strerror or error
        raise UnfinishedError(f"{target} cannot be made: {why}", "make room there") from None


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target, follow_symlinks=False)
