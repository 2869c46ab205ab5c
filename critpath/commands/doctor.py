"""``critpath doctor``: what stands between this machine and a recording, leftovers, recordings."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from critpath import confined
from critpath.commands.declared import flag, option
from critpath.commands.output import STDOUT, Progress, hint, make_console, warn, write_output
from critpath.commands.settings import Settings
from critpath.commands.sources import check_inputs
from critpath.errors import EXIT_INCONCLUSIVE, EXIT_OK, CritpathError, name_places
from critpath.extras import EXTRAS, find_missing
from critpath.model.recording import INTERRUPTED, RECORDING
from critpath.units import format_ns, plural, safe_text

if TYPE_CHECKING:
    from critpath.model import Events, Loss, Manifest
    from critpath_record import Leftover, MarkRequests, Preflight, Requirement


SETTINGS = ("reader", "hosts")

FORMAT: Final = "critpath/doctor/1"
# As `compare`'s anomaly: something was found.  125 would say that critpath failed.
EXIT_FOUND: Final = 1
# What a recording with `--profile requests` has of them, by `Preflight.ways`.
_WAYS: Final = {
    "sockets": "found by events of sockets (--profile requests)",
    "calls+packets": "found by system calls and packets (--profile requests): this tracer has no "
    "events of sockets (ftrace has them from Linux 6.3 on)",
    "lengths+packets": "found by what sockets send and receive, and by packets (--profile "
    "requests)",
    "lengths": "found by what sockets send and receive (--profile requests): what comes from "
    "another machine begins when it is read",
    "calls": "found by system calls (--profile requests): this tracer has no events of sockets nor "
    "of what arrives there, so a request begins when it is read",
    "": "not to be found: this kernel has no events of sockets nor of system calls",
}
_SHOWN: Final = 20  # places of losses
_PATIENCE: Final = 1.1  # seconds in which every program that marks has looked for a recorder

# What is lost where something that is tried does not work, and what gives it to a container.
_TRIED: Final = {
    "tracing": (
        "nothing can be recorded",
        "give it, writable: -v /sys/kernel/tracing:/sys/kernel/tracing",
    ),
    "root": (
        "root here is not the machine's, which alone may trace",
        "begin it without a map of users, as the machine's root",
    ),
    "processes of the host": (
        "processes have other numbers here than in events: no names, no programs",
        "--pid=host (hostPID: true)",
    ),
    "control groups of the host": (
        "in which containers processes are is not seen",
        "--cgroupns=host",
    ),
    "limits": (
        "quotas and limits of containers are not seen",
        "mount them, read-only: -v /sys/fs/cgroup:/sys/fs/cgroup:ro",
    ),
    "names of containers": (
        "containers are called by their ids",
        "mount the files of the runtime, read-only: docs/containers/README.md lists them",
    ),
    "/run/critpath": (
        "dump, top and doctor do not find the recorder",
        "-v /run/critpath:/run/critpath, of root alone",
    ),
    "CAP_SYS_PTRACE": (
        "programs of processes, their networks, what was connected before are not known",
        "--cap-add SYS_PTRACE",
    ),
    "CAP_DAC_READ_SEARCH": (
        "files of others are not read: names of users' containers, functions of their programs",
        "--cap-add DAC_READ_SEARCH",
    ),
    "CAP_PERFMON": (
        "no --stacks, no counting by perf",
        "--cap-add PERFMON, and a seccomp profile that allows perf_event_open",
    ),
    "CAP_BPF": (
        "no --counts by programs, no --labels-from bytes",
        "--cap-add BPF and PERFMON, and a seccomp profile that allows bpf",
    ),
    "programs that begin": (
        "what interpreters run has no name",
        "--network=host; before Linux 6.6 also --cap-add NET_ADMIN",
    ),
    "CAP_SYS_NICE": (
        "on a busy machine buffers may overflow before they are moved",
        "--cap-add SYS_NICE",
    ),
}


OPTIONS: Final = (
    option("directories", "REC", "recordings, directories of them, CTF traces: say what they "
        "have, and whether they are whole; with --clean, recordings to finish that a killed "
        "recorder left and that were moved or copied", Path, nargs="*"),
    flag("--clean", "end the processes and remove the tracing sessions that killed recorders left, "
        "and finish their recordings"),
    flag("--deep", "try each thing that a recorder does, as a container may keep it from that"),
    flag("--json", "write everything as JSON"),
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Look, clean if asked to, and return 0 if a recording can be made here and now."""
    from critpath_record import doctor, recover  # noqa: PLC0415 - start-up time

    check_inputs(arguments.directories)
    if arguments.directories and not (arguments.clean or arguments.deep):
        return _check_recordings(arguments, settings)
    done: list[str] = []
    failures: list[CritpathError] = []
    if arguments.clean:
        done, failures = recover(arguments.directories)
    asking = _listen()
    found = doctor(Path.cwd())
    left = found.find_leftovers()
    document = _document(found, left, done)
    document["marking"] = _find_marking(asking)
    tried = found.try_all() if arguments.deep else []
    words = (dict(zip(("lost", "do"), _TRIED[one.name], strict=True)) for one in tried)
    document["tried"] = [asdict(one) | of for one, of in zip(tried, words, strict=True)]
    if any(one["why"] and one["fatal"] for one in document["tried"]):
        document["can_record"], document["recorder"] = False, None
    if arguments.json:
        from critpath.report.document import to_json  # noqa: PLC0415 - start-up time

        write_output(STDOUT, to_json(document))
    else:
        _render(document)
    for error in failures:
        warn([error.what], quiet=False)
        hint(f"  {error.do}", quiet=False)
    if failures:
        return max(error.exit_code for error in failures)
    if document["leftovers"]:
        hint("next: critpath doctor --clean", quiet=settings["quiet"])
    return EXIT_OK if document["can_record"] and not document["leftovers"] else EXIT_FOUND


def _check_recordings(arguments: argparse.Namespace, settings: Settings) -> int:
    """Say what recordings have and lack; return 0 if nothing is missing, 3 otherwise."""
    found = []
    for one in check_recordings(arguments.directories, settings):
        found.append(one)
        for line in one.lines if not arguments.json else ():
            print(safe_text(name_places(line)))
    if arguments.json:
        from critpath.report.document import to_json  # noqa: PLC0415 - start-up time

        document = {"format": FORMAT, "recordings": [asdict(one) for one in found]}
        write_output(STDOUT, to_json(document))
    unfinished = [shlex.quote(one.recording) for one in found if one.unfinished]
    if unfinished:
        hint(f"next: critpath doctor --clean {' '.join(unfinished)}", quiet=settings["quiet"])
        return EXIT_FOUND
    if any(one.missing for one in found):
        hint("no verdict should rest on what is missing: record again", quiet=settings["quiet"])
        return EXIT_INCONCLUSIVE
    return EXIT_OK


def _listen() -> tuple[MarkRequests, float] | None:
    """Let programs that mark executions say so; only root may open a place for that."""
    from critpath_record import MarkRequests  # noqa: PLC0415 - start-up time

    try:
        return (MarkRequests(), time.monotonic()) if os.geteuid() == 0 else None
    except (OSError, CritpathError):
        return None


def _find_marking(asking: tuple[MarkRequests, float] | None) -> list[dict[str, str]]:
    """Return the programs that marked meanwhile: they look for recorders once a second."""
    if asking is None:
        return []
    requests, since = asking
    requests.wait(since + _PATIENCE - time.monotonic())
    requests.close()
    return [{"program": name, "user": user} for name, user in requests.programs]


def _document(found: Preflight, left: list[Leftover], done: list[str]) -> dict[str, Any]:
    recorder = found.recorder
    lacking = dict(found.recorders)
    if "counts" in lacking and sys.platform == "linux":
        lacking["counts"] = tuple(_explain_free(one) for one in lacking["counts"])
    return {
        "format": FORMAT,
        "can_record": recorder is not None,
        "recorder": recorder,
        "recorders": {
            name: {
                "usable": not any(o.fatal for o in (*obstacles, *found.obstacles)),
                "obstacles": [_obstacle(o) for o in obstacles],
                "requests": found.ways.get(name, ""),
            }
            for name, obstacles in lacking.items()
        },
        "counting": dict(found.counting),
        "obstacles": [_obstacle(o) for o in found.obstacles],
        "stacks": {
            name: {"usable": not lacking, "obstacles": [_obstacle(o) for o in lacking]}
            for name, lacking in found.find_stack_sources().items()
        },
        "leftovers": [{"kind": x.kind, "name": x.name, "session": x.session} for x in left],
        "cleaned": done,
        "host": {**found.host, "confines": confined.name_means()},
        "extras": {extra: find_missing(extra) for extra in EXTRAS},
    }


def _explain_free(obstacle: Requirement) -> Requirement:
    """Return what keeps most counts from being made as what it is: /proc is counted by anybody."""
    what = f"{obstacle.what}: only what /proc has is counted (--recorder counts --events free)"
    return replace(obstacle, what=what, fatal=False) if obstacle.fatal else obstacle


def _obstacle(obstacle: Requirement) -> dict[str, Any]:
    return {
        "name": obstacle.name,
        "what": obstacle.what,
        "do": obstacle.do,
        "fatal": obstacle.fatal,
    }


def _render(document: dict[str, Any]) -> None:
    from rich.text import Text  # noqa: PLC0415 - start-up time

    console = make_console()
    for text, style in _lines(document):
        # Not wrapped: a command that is broken over two lines cannot be copied.
        console.print(Text(safe_text(text), style=style), soft_wrap=True)


def _lines(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the lines to show, each with its style."""
    recorder = document["recorder"]
    if recorder is None:
        yield "This machine cannot record yet.", "bold red"
    else:
        yield f"This machine can record, with the {recorder} recorder.", "bold green"
    for name, state in document["recorders"].items():
        yield from _recorder_lines(name, state, chosen=name == recorder)
    yield from _counting_lines(document["counting"])
    yield from _stack_lines(document["stacks"])
    if document["obstacles"]:
        yield "every recorder:", "bold"
        yield from _obstacle_lines(document["obstacles"])
    yield from _tried_lines(document["tried"])
    for done in document["cleaned"]:
        yield done, "green"
    if document["leftovers"]:
        yield "left by recorders that were killed (critpath doctor --clean removes it):", "bold"
        for left in document["leftovers"]:
            yield f"  {left['kind']} {left['name']}", "yellow"
    if document["marking"]:
        yield "programs that mark runs:", "bold"
        for one in document["marking"]:
            root = one["user"] == "root"
            how = "" if root else f": critpath record -a --marks-from {one['user']}"
            yield f"  {one['program']} ({one['user']}){how}", ""
    yield from _extra_lines(document["extras"])
    yield "host:", "bold"
    for name, value in _facts(document["host"]):
        yield f"  {name:<10} {value}", ""


def _tried_lines(tried: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield what did not work of what was tried, and what did."""
    if tried:
        works = ", ".join(one["name"] for one in tried if not one["why"])
        yield f"tried, and works: {works or 'nothing'}", "bold"
    for one in tried:
        if one["why"]:
            what = f"{one['name']}: {one['why']}: {one['lost']}"
            yield from _obstacle_lines([{**one, "what": what}])


def _extra_lines(extras: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Yield which extras are installed, and how the others would be."""
    here = [extra for extra, missing in extras.items() if not missing]
    yield f"extras: {', '.join(here) or 'none'}", "bold"
    if absent := [extra for extra, missing in extras.items() if missing]:
        yield f"  not installed: {', '.join(absent)}", ""
        which = "all" if len(absent) == len(extras) else ",".join(absent)
        yield f"    pip install 'critpath-core[{which}]'", ""


def _stack_lines(sources: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what can take stacks beside a recording (``critpath record --stacks``)."""
    usable = [name for name, state in sources.items() if state["usable"]]
    yield f"stacks: {', '.join(usable) or 'not usable'}", "bold"
    missing = {o["name"]: o for state in sources.values() for o in state["obstacles"]}
    yield from _obstacle_lines([{**o, "fatal": False} for o in missing.values()])


def _recorder_lines(name: str, state: dict[str, Any], *, chosen: bool) -> Iterator[tuple[str, str]]:
    taken = ", and --recorder auto takes it" if chosen else ""
    yield f"{name}: {'usable' + taken if state['usable'] else 'not usable'}", "bold"
    yield from _obstacle_lines(state["obstacles"])
    unmounted = any(obstacle["name"] == "tracefs" for obstacle in state["obstacles"])
    if state["usable"] and name != "counts" and unmounted and not state["requests"]:
        yield "  requests of servers: how they are found is seen once tracefs is mounted", ""
    elif state["usable"] and name != "counts":
        yield f"  requests of servers: {_WAYS[state['requests']]}", ""


def _counting_lines(counting: dict[str, bool]) -> Iterator[tuple[str, str]]:
    """Yield what the kernel offers to count by, below the last recorder, which counts."""
    for offered, what in ((True, "offered"), (False, "not offered")):
        ways = [way for way, has in counting.items() if has is offered]
        if ways:
            yield f"  {what}: {', '.join(ways)}", ""


def _obstacle_lines(obstacles: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for obstacle in obstacles:
        mark, style = ("x", "red") if obstacle["fatal"] else ("!", "yellow")
        yield f"  {mark} {obstacle['what']}", style
        yield f"    {obstacle['do']}", ""


def _facts(host: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the facts of a machine as people read them."""
    user, namespace = host["user"], host["pid_namespace"]
    who = "root" if user["root"] else f"uid {user['uid']}"
    if user["sudo_user"]:
        who += f", through sudo: the command runs as {user['sudo_user']}"
    elif not user["root"]:
        who += f", {'' if user['tracing_group'] else 'not '}in the group tracing"
    where = "the machine's own" if namespace["initial"] else f"{namespace['id']} (a container's)"
    return [
        ("kernel", f"{host['system']} {host['kernel']} {host['machine']}, {host['cpus']} cpus"),
        ("python", host["python"]),
        ("user", who),
        ("clock", host["clocksource"] or "unknown"),
        ("lockdown", host["lockdown"]),
        ("namespace", where + (f", {host['container']}" if host["container"] else "")),
        ("confines", f"what reads recordings, by {host['confines']}"),
        ("free", f"{host['free_bytes'] / 1e9:.1f} GB here"),
    ]


# Whether recordings are whole, by everything that can tell.


@dataclass(frozen=True)
class Checked:
    """What one recording has, and what it lacks."""

    recording: str
    contents: str
    notes: tuple[str, ...]  # what it rests on, or what was not recorded
    missing: tuple[str, ...]
    unfinished: bool = False  # its recorder was killed, or still records

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines to show."""
        said = (f"  {line}" for line in (*self.notes, *self.missing))
        return f"{self.recording}: {self.contents}", *said


def check_recordings(sources: Iterable[Path], settings: Settings) -> Iterator[Checked]:
    """Read everything once, and say of each recording whether anything is missing."""
    from critpath.flow import inspect_recording  # noqa: PLC0415 - start-up time
    from critpath.read import Recording, find_recordings  # noqa: PLC0415 - start-up time

    for source in sources:
        for recording in _take_apart(find_recordings(source)):
            if Recording(recording).manifest.state == RECORDING:
                said = "not finished: its recorder was killed, or still records"
                yield Checked(f"{recording}", said, (), (), unfinished=True)
                continue
            with Progress(quiet=settings["quiet"]) as tell:
                tell(f"reading {recording}")
                events, manifest, odd = inspect_recording(recording, settings["reader"])
            wrong = (
                *_describe_end(manifest),
                *_missing_runs(events),
                *_describe_losses(events),
                *odd,
            )
            notes = (*_describe_gaps(events, manifest), *(() if wrong else _why_whole(manifest)))
            yield Checked(f"{recording}", _contents(events, manifest), notes, wrong)


def _take_apart(recordings: Iterable[Path]) -> Iterator[Path]:
    """Yield recordings, of a set of hosts each by itself: what is missing its manifest says."""
    from critpath.read import Recording  # noqa: PLC0415 - start-up time

    for recording in recordings:
        hosts = Recording(recording).hosts if recording.is_dir() else ()
        yield from [host.directory for host in hosts] or [recording]


def _contents(events: Events, manifest: Manifest) -> str:
    there = [f"{plural(events.total, 'event')} in {format_ns(events.end - events.begin)}"]
    there += [plural(len(events.streams), "stream")]
    there += [plural(len(manifest.runs), "run")] if manifest.runs else []
    return ", ".join(there)


def _why_whole(manifest: Manifest) -> Iterator[str]:
    """Say what the word rests on."""
    from critpath.convert import KINDS  # noqa: PLC0415 - start-up time

    if manifest.streams:
        yield "whole: every stream is as it was recorded, and nothing was lost"
    elif manifest.recorder.get("name") in KINDS:
        kind = manifest.recorder["name"]
        yield f"nothing is missing as far as {kind} can tell: an idle cpu's stream may be gone"
    else:
        yield (
            "nothing is missing as far as the trace itself can tell: no manifest says what "
            "was recorded (a stream's end, or a stream of an idle cpu, may be gone)"
        )


def _describe_gaps(events: Events, manifest: Manifest) -> Iterator[str]:
    """Say what was not recorded, which is no loss."""
    from critpath.model.gaps import BASE  # noqa: PLC0415 - start-up time

    base = events.gaps.of(BASE)
    if len(base):
        time = format_ns(int((base.end - base.begin).sum()))
        yield f"{plural(len(base), 'gap')}, {time} in all: not recorded, and no loss"
    for gap in manifest.gaps[:_SHOWN]:
        yield f"not recorded for {format_ns(max(gap.end - gap.begin, 0))}: {gap.what}"


def _describe_end(manifest: Manifest) -> Iterator[str]:
    """Say that what was recorded last may not be there."""
    if manifest.state == INTERRUPTED:
        yield (
            "its recorder was killed or failed: what it had not written by then is missing at "
            "the end; runs that had ended are whole"
        )


def _missing_runs(events: Events) -> Iterator[str]:
    for counted in events.environment:
        missing = counted.runs_missing or 0
        if missing > 0:
            total = counted.runs_recorded or 0
            yield f"{missing:,} of {total:,} runs of the command are not in the trace"


def _describe_losses(events: Events) -> Iterator[str]:
    for loss in events.losses[:_SHOWN]:
        yield _describe(loss, events)
    if len(events.losses) > _SHOWN:
        yield plural(len(events.losses) - _SHOWN, "more loss")


def _describe(loss: Loss, events: Events) -> str:
    amount = [plural(loss.events, "event")] if loss.events else []
    amount += [plural(loss.packets, "packet")] if loss.packets else []
    cpu = f"cpu {loss.cpu}, " if loss.cpu >= 0 else ""
    when = f"{format_ns(loss.begin - events.begin)} to {format_ns(loss.end - events.begin)}"
    counted = f"{' and '.join(amount)}, " if amount else ""
    return f"{loss.reason} ({counted}{cpu}from {when})"
