"""What a recording says of itself: its manifest, ``critpath.json``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from critpath.model.containers import ControlGroup
from critpath.records import dataclass

if TYPE_CHECKING:
    from critpath.documents import MachineEntry
    from critpath.model.events import Events
    from critpath.schema.environment import Environment, Machine

MANIFEST: Final = "critpath.json"
MANIFEST_FORMAT: Final = "critpath/recording/1"
GAPS_FORMAT: Final = "critpath/recording/2"  # with gaps, which readers of 1 would take for silence
COUNTS: Final = "counts/counts.jsonl"  # what was counted, below a recording
HOSTS: Final = "hosts.json"  # of a directory with a recording of each host
HOSTS_FORMAT: Final = "critpath/hosts/1"
# Of a dump: requests that chance and their length chose, and with which chance.
SAMPLED: Final = "sampled.json"
SAMPLED_FORMAT: Final = "critpath/sampled/1"
MANIFEST_BYTES: Final = 1 << 27  # technical: no manifest is larger
MANIFEST_RUNS: Final = 200_000  # technical: for as many there is room

# What `state` can be.  Only a recorder that was killed leaves "recording" behind.
RECORDING, COMPLETE, INTERRUPTED = "recording", "complete", "interrupted"

# Names of the two recordings of an interleaved one; how many runs a block of them has, and had.
NORMAL: Final = "normal"
SAMPLE: Final = "sample"
BLOCK_RUNS: Final = 2  # technical
FORMER_BLOCK_RUNS: Final = 4  # technical

# How a warning begins that says whom a CPU quota held back: the recorder writes it, and a
# comparison must not blame who ran meanwhile.
QUOTA_HELD: Final = "a CPU quota held"
# How one begins that tells who records what is other than before: it is no trouble.
MOUNTED: Final = "tracefs was not mounted"


@dataclass(frozen=True)
class Run:
    """One run of the command.

    Attributes
    ----------
    number : int
        Counted from 1, over all runs of the recording; warm-up runs are not recorded.
    pid : int
        Process that the command was executed in, as the kernel's initial pid
        namespace (and so the trace) numbers it; 0 if it never started.
    begin, end : int
        Just before the fork and just after the exit was collected (ns of the trace's
        clock): the execution, exec to exit, lies inside.
    exit_code : int
        As a shell has it: 126, 127, 128 + signal.
    timed_out : bool
        Ended by ``--timeout``.
    outlived : int
        Descendants that were still there when the command had exited.
    interrupted : bool
        Ended by what ended the recording.  Neither this nor what a timeout ended is
        an execution: its end is not the command's.
    executed : int
        Just before the exec (ns of the trace's clock); 0 where that was not recorded.
    kernel, faults : int
        What the kernel ran for it and its descendants (ns), and their page faults; -1 where
        that was not recorded.
    """

    number: int
    pid: int
    begin: int
    end: int
    exit_code: int
    timed_out: bool = False
    outlived: int = 0
    interrupted: bool = False
    executed: int = 0
    kernel: int = -1
    faults: int = -1

    @property
    def whole(self) -> bool:
        """Whether the command ended by itself."""
        return not (self.timed_out or self.interrupted)


# Programs that run what they are given, by the last part of their path.
_INTERPRETER: Final = re.compile(r"(python|perl|ruby|node|java|php|lua)[\d.]*|(ba|da|z|k)?sh")


def is_interpreter(program: str) -> bool:
    """Return whether a program runs what it is given, such as ``python3``."""
    return _INTERPRETER.fullmatch(program) is not None


@dataclass(frozen=True)
class Script:
    """What an interpreter was given to run when it began while the machine was recorded.

    Attributes
    ----------
    pid : int
    begin : int
        Just after its exec (ns of the trace's clock).
    read : int
        When its arguments had been read: of another program if that was executed meanwhile.
    name : str
        ``a.py``, ``-m package``, ``-jar app.jar``; "" for code, a terminal and what is not
        understood.
    """

    pid: int
    begin: int
    read: int
    name: str


@dataclass(frozen=True)
class CpuLoss:
    """What one cpu's buffer lost, as the kernel counted it.

    Attributes
    ----------
    cpu : int
        -1 where the tracer counts for all cpus together.
    events, packets : int
        Discarded or overwritten before they were read.
    """

    cpu: int
    events: int
    packets: int = 0


@dataclass(frozen=True)
class StreamFacts:
    """What one stream file of a trace holds: as it was recorded, or as it was read.

    Attributes
    ----------
    name : str
        Below the recording, with ``/``.
    bytes : int
    packets, events : int
        -1 where they were not counted.
    end : int
        When its last packet ends (ns of the recording's clock); 0 without a packet.
    cpu : int
        -1 where its packets are of no cpu, or of several.
    digest : str
        SHA-256 of the file; "" where it was not made.
    """

    name: str
    bytes: int
    packets: int = -1
    events: int = -1
    end: int = 0
    cpu: int = -1
    digest: str = ""


@dataclass(frozen=True)
class Gap:
    """A time in which the tracer did not record what it was asked for, without counting it.

    Attributes
    ----------
    begin, end : int
        ns of the trace's clock.
    cpu : int
        -1 for all.
    what : str
        One clause: what was done to the tracer, or how it shows.
    """

    begin: int
    end: int
    cpu: int
    what: str


@dataclass(frozen=True)
class Manifest:
    """Everything a recording says of itself.

    Attributes
    ----------
    state : str
        ``recording``, ``complete`` or ``interrupted``.
    session : str
        Private name of the tracing session or instance.
    command : tuple of str
        Arguments; empty for a recording of the whole machine (``-a``).
    execution : str
        The default of ``--execution``; "" for none.
    runs : tuple of Run
    recorder : mapping
        ``name`` (``ftrace`` or ``lttng``), ``version``, ``events`` (names, as in the
        trace), ``contexts``, ``buffer_bytes`` (per cpu), ``format`` (``ctf-1.8``).
    profile : str
    clock : mapping
        ``name``; ``epoch``: ns to add to a timestamp to get time since the Unix epoch.
    host : mapping
        ``name``, ``kernel`` (release), ``machine``, ``cpus``, ``cpu_model``, ``memory``.
    begin, end : int
        When tracing was on (ns of the trace's clock); end 0 while it is.
    loss : tuple of CpuLoss
        Only cpus that lost something.
    streams : tuple of StreamFacts
        Every stream file of the trace as it was when the recording ended.
    files : mapping of str to str
        SHA-256 of what else belongs to the recording, by its name below the directory.
    gaps : tuple of Gap
        When somebody's hands on the tracer kept it from recording.
    gaps_file : str
        Where the gaps that the recorder made are listed, beside the manifest; "" without any.
    overhead : mapping
        What the recording was allowed to cost, and did; empty without a budget.
    counts : mapping
        Where what was counted lies beside the manifest (``path``), at which ``interval`` (ns),
        ``how``, which ``events``; empty where nothing was counted.
    trigger : mapping
        Why a flight recorder made this dump: ``when``, ``value``, ``kind``, ``id``, ``at``; empty
        elsewhere.
    machine : mapping
        What the machine was like meanwhile: ``summary`` (whole numbers, see
        `summarize_machine`), ``columns`` and ``rows`` (one a second).
    warmup : int
    prepare : str
    timeout : float
        Seconds a run may last, 0 for any time.
    interleaved : str
        Name of the other recording's directory beside this one, "" without one.
    order : str
        Which of two interleaved commands each run was of, ``A`` the one in ``normal``: blocks
        AB or BA by a coin; "" without a second command, and in older recordings.
    block_runs : int
        How many runs a block of the order has: 4 in older recordings, ABBA or BAAB.
    scripts : tuple of Script
        Of the interpreters that began while the whole machine was recorded.
    container : int
        Pid namespace that executions are chosen by, 0 for none.
    groups : tuple of ControlGroup
        The control groups of processes that were containers', pods' or units', by name.
    trace : str
        Where the trace is, relative to the manifest.
    warnings : tuple of str
        One line each: what was odd while recording.
    critpath : str
        Version that wrote it.
    """

    state: str
    session: str
    command: tuple[str, ...]
    execution: str
    runs: tuple[Run, ...]
    recorder: Mapping[str, object]
    profile: str
    clock: Mapping[str, object]
    host: Mapping[str, object]
    begin: int
    end: int
    loss: tuple[CpuLoss, ...] = ()
    streams: tuple[StreamFacts, ...] = ()
    gaps: tuple[Gap, ...] = ()
    gaps_file: str = ""
    overhead: Mapping[str, object] = field(default_factory=dict)
    machine: Mapping[str, object] = field(default_factory=dict)
    warmup: int = 0
    prepare: str = ""
    timeout: float = 0.0
    interleaved: str = ""
    order: str = ""
    block_runs: int = FORMER_BLOCK_RUNS
    scripts: tuple[Script, ...] = ()
    container: int = 0
    groups: tuple[ControlGroup, ...] = ()
    trace: str = "trace"
    warnings: tuple[str, ...] = ()
    critpath: str = ""
    counts: Mapping[str, object] = field(default_factory=dict)
    trigger: Mapping[str, object] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        """Number of events lost."""
        return sum(loss.events for loss in self.loss)

    def count_missing_runs(self, events: Events, found: int) -> Events:
        """Note in the environment how many runs the trace should have, and has not."""
        if not self.runs:
            return events
        from critpath.schema.environment import Environment  # noqa: PLC0415 - start-up time

        whole = sum(run.whole for run in self.runs)
        counted = Environment(runs_recorded=whole, runs_missing=max(0, whole - found))
        return replace(events, environment=(*events.environment, counted))


_MILLION: Final = 1_000_000  # technical


def summarize_machine(environment: Iterable[Environment]) -> MachineEntry | None:
    """Return what the machine was like while a set was recorded, None where nothing measured it."""
    from statistics import median  # noqa: PLC0415 - start-up time, as what follows

    from critpath.documents import MachineEntry  # noqa: PLC0415

    measured = [each.machine for each in environment if each.machine is not None]

    def middle(of: Callable[[Machine], int | None]) -> float | None:
        values = [value for each in measured if (value := of(each)) is not None]
        return median(values) / _MILLION if values else None

    pressure = _take_medians(each.pressure for each in measured)
    summary = MachineEntry(
        _take_medians(each.probes for each in measured),
        {what: share / _MILLION for what, share in pressure.items()},
        middle(lambda each: each.others_cpu),
        middle(lambda each: each.recorder_cpu),
        middle(lambda each: each.steal),
    )
    known = summary.probes or summary.pressure or summary.others_cpu is not None
    return summary if known else None


def _take_medians(tables: Iterable[Mapping[str, int]]) -> dict[str, float]:
    from statistics import median  # noqa: PLC0415 - start-up time

    found: dict[str, list[int]] = {}
    for table in tables:
        for name, value in table.items():
            found.setdefault(name, []).append(value)
    return {name: float(median(values)) for name, values in found.items()}


# Names of devices in an environment: the kernel allows neither of these characters in them.
_DEVICE: Final = re.compile(r"[^/\s:]{1,15}")
MOST_NAMED: Final = 3  # technical


def name_devices(given: Iterable[str]) -> tuple[str, ...]:
    """Return names, each once; none where they are too many, or not names of devices."""
    names = sorted(set(given))
    few = len(names) <= MOST_NAMED and all(map(_DEVICE.fullmatch, names))
    return tuple(names) if few else ()


class DiskRate(NamedTuple):
    """A rate of a disk that a control group may limit: ``rbps``, ``wbps``, ``riops``, ``wiops``."""

    device: int  # major << 20 | minor
    rate: str


@dataclass(frozen=True)
class ReachedLimit:
    """A control group that reached a limit while it was recorded.

    Attributes
    ----------
    group : str
    limits : mapping of str or DiskRate to int
        ``quota`` and ``period`` (ns), ``memory`` (bytes), and those of disks.
    pids : frozenset of int
        Processes that were in it while it did.
    rows : mapping of str or DiskRate to tuple
        By what rose (``throttles``, ``memory``, or what a disk did): begin and end of the time
        in which it did (ns of the trace's clock), by how much; and how long a quota held threads
        back, pages that were read again, or how long a disk's rate was the limit's.
    """

    group: str
    limits: Mapping[str | DiskRate, int]
    pids: frozenset[int]
    rows: Mapping[str | DiskRate, tuple[tuple[int, int, int, int], ...]]


@dataclass(frozen=True)
class Chosen:
    """What a budget chose of the executions that a program marked.

    Attributes
    ----------
    kinds : mapping of str to mapping
        For the manifest, by label: ``seen``, ``selected``, ``cut``, ``bystanders``.
    felt : mapping of str to mapping
        Of kinds with enough of both: how much longer recorded ones took.
    rows : sequence of mapping
        Of those that were selected, for ``selected.jsonl``.
    """

    kinds: Mapping[str, Mapping[str, int]]
    felt: Mapping[str, Mapping[str, float]]
    rows: Sequence[Mapping[str, object]]
