"""Tries a changed trace on critpath, all the way, and judges what came of it.

When is a result wrong without a mark?  The events that are wanted are compared, one by one
with their cpu, with those of the trace before it was changed.  An outcome is

* refused: an error of critpath's own, with a line what and a line what to do (exit code 4);
* identical: the same events;
* salvaged: every event that is missing, and every one that was not there before, lies in the
  time of a loss of its cpu, or of all;
* undetectable: some lie outside of all losses, but nobody can know.  Either the change was in
  the payload of a single event and this event alone differs, for nothing in CTF guards a
  payload; or the plain twin (`oracle/ctf_decode.py`) decodes the same events from the changed
  bytes, and they break none of the rules in `mutate_rules.py`: a tracer may have written them
  so.  In changed metadata these tell other events of the same bytes, and the twin must agree.
  Where several bits were flipped, one of them may be such, and another not: then each is
  tried by itself, and the events must lie bare after one of which nobody can know;
* silent: anything else.  That is a defect, as are a crash (any exception that is not
  critpath's, or a signal) and a hang.

What is undetectable is counted by what was changed, so that nothing hides there.
"""

from __future__ import annotations

import dataclasses
import shutil
import traceback
from collections import Counter
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import mutate_rules
from mutate_kinds import Mutation, one_by_one
from mutate_seeds import Seed

from critpath.engines.limits import Budget
from critpath.errors import CritpathError
from critpath.executions.find import find_executions
from critpath.executions.specification import parse_specification
from critpath.graph.critical_path import extract_paths
from critpath.model import EventChunk
from critpath.read.clocks import Clocks, Trace
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.recording import Recording
from critpath.read.streaming import EventStream, OutOfOrder, read_traces
from critpath.read.traces import Description, find_traces
from critpath.timeline.opening import RecordingOpener
from critpath.timeline.streaming import assume_declared, replay_stream

LATEST = (1 << 63) - 1
OUTCOMES = ("refused", "salvaged", "identical", "undetectable", "silent", "crash")


class Reading:
    """What was read of a recording."""

    def __init__(self, chunks, about, strings):
        self.stream = self.about = None
        self.losses = about.losses
        self.begin, self.end = about.begin, about.end
        self.classes, self.strings = tuple(about.classes), tuple(strings)
        self.chunks = [tuple(c.copy() for c in columns) for columns in chunks]

    def same(self, other: Reading) -> bool:
        """Return whether the events are the same, by the shortest way."""
        return (
            self.classes == other.classes
            and self.strings == other.strings
            and len(self.chunks) == len(other.chunks)
            and all(
                (x == y).all() if len(x) == len(y) else False
                for a, b in zip(self.chunks, other.chunks, strict=True)
                for x, y in zip(a, b, strict=True)
            )
        )

    def events(self) -> Counter:
        """Return the events, each as time, cpu, name and values."""
        found: list[tuple] = []
        about = [(c.domain, c.name, c.host, [t == "str" for t in c.types]) for c in self.classes]
        for ts, cpu, of, offset, values in self.chunks:
            flat = values.tolist()
            for t, c, k, o in zip(
                ts.tolist(), cpu.tolist(), of.tolist(), offset.tolist(), strict=True
            ):
                domain, name, host, texts = about[k]
                row = flat[o : o + len(texts)]
                row = [self.strings[v] if s else v for v, s in zip(row, texts, strict=True)]
                found.append((t, c, name, domain, host, tuple(row)))
        return Counter(found)


def read(traces, selection) -> Reading:
    """Read every event that is wanted."""
    try:
        with EventStream(traces, selection) as stream:
            chunks = [
                tuple(c.copy() for c in (x.timestamp, x.cpu, x.event_class, x.offset, x.values))
                for x in stream
            ]
            about = stream.finish()
            reading = Reading(chunks, about, stream.strings())
            reading.stream, reading.about = stream, about
            return reading
    except OutOfOrder:
        about = read_traces(traces, selection)
        columns = (about.timestamp, about.cpu, about.event_class, about.offset, about.values)
        return Reading([columns], about, about.strings)


class Read:
    """A recording that was read already: a `critpath.read.streaming.Source`."""

    filled = False

    def __init__(self, reading: Reading):
        self.reading, self.stream = reading, reading.stream
        self.classes, self.hosts = self.stream.classes, self.stream.hosts
        self.environment, self.gaps = self.stream.environment, self.stream.gaps
        self.code, self.text, self.strings = (
            self.stream.code,
            self.stream.text,
            self.stream.strings,
        )

    def __iter__(self):
        return iter([EventChunk(*columns) for columns in self.reading.chunks])

    def finish(self):
        return self.reading.about

    def close(self):
        pass


class Subject:
    """A seed in a directory of this process's own, and what is read of it unchanged."""

    def __init__(self, seed: Seed, into: Path):
        self.seed = seed
        self.directory = into / seed.name
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.copytree(seed.directory, self.directory)
        self.traces = find_traces(self.directory)
        self.specification = parse_specification(seed.specification)
        self.selection = (*KERNEL_EVENTS, *self.specification.get_requests())
        self.facts, self.names = assume_declared(self.open(self.traces)), names_of(self.traces)
        self.reading = read(self.traces, self.selection)
        self.events = self.reading.events()
        self.of_file = {
            str(path.relative_to(self.directory)): trace
            for trace in self.traces
            for path in trace.files
        }
        self.decoded = {
            name: mutate_rules.decode(self.of_file[name].schema, data)
            for name, data in seed.files.items()
        }
        wrong = self.objection({})
        if wrong:
            raise ValueError(f"{seed.name} breaks a rule unchanged: {wrong}")

    # ------------------------------------------------------------- one input

    def judge(self, mutation: Mutation) -> tuple[str, str]:
        """Return the outcome of an input, and what there is to say of it."""
        path = self.directory / mutation.file
        if mutation.data is None:
            path.unlink()
        else:
            path.write_bytes(mutation.data)
        try:
            return self._judge(mutation)
        except CritpathError as error:
            if not error.what or "\n" in error.what or not error.do:
                return "crash", f"an error of not two lines: {error!r}"
            return "refused", ""
        except Exception:  # noqa: BLE001 - that is what is looked for
            return "crash", traceback.format_exc()
        finally:
            before = self.seed.files.get(mutation.file) or self.seed.metadata.get(mutation.file)
            path.write_bytes(before)

    def _each_undetectable(self, mutation: Mutation, bare: list) -> bool:
        """Return whether the same events lie bare after single flips, where nobody can know."""
        left = set(bare)
        for part in one_by_one(self.seed, mutation) if len(mutation.bits) > 1 else ():
            self.bare = []
            outcome, _ = self.judge(part)
            if outcome == "undetectable":
                left -= set(self.bare)
        return not left

    def open(self, traces: tuple[Trace, ...]) -> Recording:
        """Return the mutated recording by these traces, which are not looked for again."""
        return Recording(self.directory, traces=traces)

    def _judge(self, mutation: Mutation) -> tuple[str, str]:
        traces = self.traces
        self.redecoded = None
        if mutation.place == "metadata":
            traces = find_traces(self.directory)
        elif mutation.data is None:
            traces = tuple(
                replace(t, files=tuple(f for f in t.files if f.exists())) for t in traces
            )
        reading = read(traces, self.selection)
        same = reading.same(self.reading)
        if same and reading.losses == self.reading.losses:
            return "identical", ""
        if same:
            if reading.losses and len(reading.losses) % 4 == 0:
                self.whole_way(traces, reading)
            return "identical", ""
        self.whole_way(traces, reading)
        events = reading.events()
        differing = list((self.events - events).keys()) + list((events - self.events).keys())
        if not differing:
            return "identical", ""
        self.bare = bare = [e for e in differing if not covered(e, reading)]
        if not bare:
            return "salvaged", ""
        bare = unpaired(bare)
        if not bare:
            return "undetectable", "payload"
        if mutation.place == "metadata":
            return self._described(traces, events)
        outcome, said = self._detectable(mutation, events, bare)
        if outcome == "silent" and self._each_undetectable(mutation, bare):
            return "undetectable", mutation.place
        return outcome, said

    def whole_way(self, traces: tuple[Trace, ...], reading: Reading) -> None:
        """Replay, find the executions and walk them; whatever is wrong is raised.

        Most replays are told what the product finds out by beginning again, what is lost,
        and replay what was just read instead of reading it once more.
        """
        opener = RecordingOpener(self.open(traces), self.selection, "auto")
        self._replayed(opener, traces, reading)

    def _replayed(
        self, opener: RecordingOpener, traces: tuple[Trace, ...], reading: Reading
    ) -> None:
        facts = self.facts if traces is self.traces else assume_declared(self.open(traces))
        names = self.names if traces is self.traces else names_of(traces)
        if len(reading.losses) % 8:
            facts = dataclasses.replace(facts, losses=reading.losses)
            if reading.stream is not None:
                opener = partial(Read, reading)
        replayed = replay_stream(opener, facts, [self.specification], Budget.within(0))
        with closing(replayed):
            try:
                found = find_executions(replayed.events, self.specification, names)
            except CritpathError:
                return
            for part in extract_paths(replayed, found, "x", "x", interrupts=True):
                paths = part.paths
                assert (paths.begin < paths.end).all()
                assert (paths.begin[1:] == paths.end[:-1])[paths.start[1:-1] - 1].sum() >= 0
                for low, high, begin, end in zip(
                    paths.start[:-1], paths.start[1:], part.executions.begin,
                    part.executions.end, strict=True,
                ):  # fmt: skip
                    if low < high:
                        assert (paths.begin[low + 1 : high] == paths.end[low : high - 1]).all()
                        assert paths.begin[low] >= begin
                        assert paths.end[high - 1] <= end

    # ----------------------------------------------------------- undetectable

    def _detectable(self, mutation: Mutation, events: Counter, bare: list) -> tuple[str, str]:
        changed = {mutation.file: mutation.data}
        # Of several changes in one file one may be what cannot be known, and another not.
        several = mutation.kind in {"flips", "burst", "noise", "blank", "shift"}
        wrong = self.objection(changed, {time for time, *_ in bare}, together=not several)
        if wrong:
            return "silent", f"{wrong}: {len(bare)} events, such as {bare[0]}"
        if mutation.data is not None:
            ours = twins(self.redecoded[1], events)
            if ours:
                return "silent", f"the twin decodes otherwise: {ours}"
        return "undetectable", mutation.place

    def objection(
        self,
        changed: dict[str, bytes | None],
        times: set[int] | None = None,
        *,
        together: bool = True,
    ) -> str:
        """Return which rule files break together, "" for none.

        With times, only packets count that have an event of such a time, or had one
        before they were changed: others are marked for themselves.
        """
        by_trace: dict[str, dict] = {}
        for name, data in self.seed.files.items():
            given = changed.get(name, data)
            trace = self.of_file[name]
            files = by_trace.setdefault(trace.name, {})
            if given is None:
                continue
            if given is data:
                places, _, odd = self.decoded[name]
            else:
                places, _, odd = self.redecoded = mutate_rules.decode(trace.schema, given)
            near = None
            if times is not None:
                near = {
                    number
                    for of in (places, self.seed.places[name])
                    for number, place in enumerate(of)
                    if not times.isdisjoint(place.times)
                }
            if any(odd) if near is None else near & odd_packets(places, odd):
                return "damaged or cut"
            original = [p.content for p in self.seed.places[name]]
            uuid = self.seed.files[name][4:20]
            for number, p in enumerate(places):
                at = p.begin // 8
                if given[at + 4 : at + 20] != uuid and (near is None or number in near):
                    return "of another trace"
            cleared = trace.schema.environment.tracer_name != "lttng-ust"
            if wrong := mutate_rules.of_file(given, places, original, near, cleared=cleared):
                return wrong
            files[name] = given, places
        cpus = {
            int(p[0].fields and mutate_rules.value(d, p[0], "cpu_id"))
            for name, files in by_trace.items()
            for d, p in files.values()
            if p and "ust" not in name
        }
        several = len(by_trace) > 1
        for name, files in by_trace.items() if together else ():
            env = next(t for t in self.traces if t.name == name).schema.environment
            version = env.tracer_major or 0, env.tracer_minor or 0
            if not any(p for _, p in files.values()):
                if several:
                    return "no stream at all"
                continue
            if wrong := mutate_rules.of_trace(files, version, cpus if several else None):
                return wrong
        return ""

    def _described(self, traces, events: Counter) -> tuple[str, str]:
        for trace in traces:
            for path in trace.files:
                try:
                    _, decoded, _ = mutate_rules.decode(trace.schema, path.read_bytes())
                    clock = next(iter(trace.schema.clocks.values()))
                    shift = Clocks(traces).shift(trace, clock)
                    for event in decoded:  # the twin counts ticks
                        event.timestamp = event.timestamp * 10**9 // clock.frequency + shift
                    wrong = twins(decoded, events)
                except Exception:  # noqa: BLE001 - the twin is for metadata that make sense
                    return "undetectable", "metadata"
                if wrong:
                    return "silent", f"metadata: the twin decodes otherwise: {wrong}"
        return "undetectable", "metadata"


def names_of(traces: tuple[Trace, ...]) -> list[str]:
    """Return the names of all events that traces can have."""
    return sorted({name for t in traces for name in Description(t).events})


def twins(decoded: list, events: Counter) -> str:
    """Return where the twin's events of a file are not among ours, "" if all are."""
    have = Counter((t, c, name) for t, c, name, *_ in events.elements())
    names = {name for _, _, name in have}
    missing = (
        Counter(
            (min(e.timestamp, (1 << 63) - 1), e.cpu, e.name) for e in decoded if e.name in names
        )
        - have
    )
    return str(next(iter(missing))) if missing else ""


def unpaired(events: list) -> list:
    """Return events less those that differ from another one by values only.

    That is by their payload: such a change cannot be known.
    """
    heads = Counter(e[:5] for e in events)
    return [e for e in events if heads[e[:5]] != 2]  # one before, one after


def odd_packets(places: list, odd: list[bool]) -> set[int]:
    """Return the packets that are damaged or cut."""
    return {number for number, (_, wrong) in enumerate(zip(places, odd, strict=False)) if wrong}


def covered(event: tuple, reading: Reading) -> bool:
    """Return whether an event lies where something is said to be lost.

    What lies beyond the ends of what could be read is covered by a loss that reaches
    there: nothing is found out about that time.
    """
    time, cpu, _, _, host, _ = event
    return any(
        (x.begin <= time or x.begin <= reading.begin)
        and (time <= x.end or x.end >= reading.end)
        and x.host == host
        and x.cpu in {-1, cpu}
        for x in reading.losses
    )
