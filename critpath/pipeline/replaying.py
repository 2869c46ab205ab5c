"""One recording, read as a stream: the few events finders need, and blocks of timelines.

What the replay must know before the first event (losses, whether sched_waking is written
at all, switches that the kernel left out) is known only behind the last one.  So a pass
assumes what is nearly always true, and is repeated with what it has found out where that
was wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Protocol

from critpath.errors import UnreadableError
from critpath.executions.prefilter import Prefilter
from critpath.model import Blocks, Events, Kind, PackedBlock, PackedBlocks
from critpath.pipeline.spilling import SpilledBlocks
from critpath.read.event_classes import names_of
from critpath.read.layout import KERNEL
from critpath.read.streaming import OutOfOrder
from critpath.timeline.missing_switches import MissingSwitches, with_insertions
from critpath.timeline.network import linked_packets
from critpath.timeline.packets import network_events
from critpath.timeline.replay import Replayer

if TYPE_CHECKING:
    from critpath.executions.specification import Specification
    from critpath.model import Loss, Workers
    from critpath.pipeline.budget import Budget
    from critpath.pipeline.sources import Opener, Source
    from critpath.read.clocks import Trace
    from critpath.timeline.missing_switches import Insertions

# Order, losses, kinds of events that never come and missing switches are found out once
# each, and what is put in or lost may show another: more passes find nothing new.
_MOST_PASSES: Final = 6
Packets = tuple[tuple[int, int, int, int], ...]


class BlockStore(Blocks, Protocol):
    """Where blocks are kept."""

    def append(self, block: PackedBlock) -> None:
        """Add the next one."""

    def close(self) -> None:
        """Free what they take."""


@dataclass(frozen=True, eq=False)
class Replayed:
    """What is known of a recording before its executions are walked.

    Attributes
    ----------
    events : Events
        The few that finders of executions ask about, and all that is known besides.
    blocks : Blocks
        What every thread was doing; to be closed with `close`.
    workers : Workers
    processors : tuple of (int, int)
        Host and cpu.
    rows : int
        Of all blocks.
    packets : tuple
        As `critpath.model.Timelines.packets`.
    warnings : tuple of str
    """

    events: Events
    blocks: BlockStore
    workers: Workers
    processors: tuple[tuple[int, int], ...]
    rows: int
    packets: Packets
    warnings: tuple[str, ...]

    def close(self) -> None:
        """Free what the blocks take."""
        self.blocks.close()


@dataclass(frozen=True)
class Facts:
    """What a pass takes for true before it begins.

    Attributes
    ----------
    waking, syscalls : bool
        Whether there are ``sched_waking`` and entries of system calls.
    losses : tuple of Loss
    searched : bool
        Whether switches contradict each other, so that missing ones are looked for.
    insertions : Insertions or None
        Switches to put in; None where nobody has looked for them.
    strings : sequence of str
        What codes in them mean.
    """

    waking: bool
    syscalls: bool
    losses: tuple[Loss, ...] = ()
    searched: bool = False
    insertions: Insertions | None = field(default=None, compare=False)
    strings: Sequence[str] = field(default=(), compare=False)


def expected(traces: Sequence[Trace]) -> Facts:
    """Return what the metadata makes likely: nothing is lost, and what is declared comes."""
    names = {
        name
        for t in traces
        for s in t.schema.streams.values()
        for name in names_of(s.events).values()
    }
    return Facts(_any_of(names, Kind.WAKING), _any_of(names, Kind.SYSCALL_ENTRY))


def _any_of(names: Collection[str], kind: Kind) -> bool:
    patterns = [p for wanted in KERNEL if wanted.kind is kind for p in wanted.names]
    return any(fnmatchcase(name, p) for name in names for p in patterns)


def few_events(opener: Opener, specifications: Collection[Specification]) -> Events:
    """Return what finders of executions ask about, where nothing else is needed."""
    prefilter = Prefilter(specifications)
    try:
        with closing(opener()) as source:
            source.watch(prefilter.feed)
            for _ in source:
                pass
            return prefilter.events(source.finish())
    except OutOfOrder as reason:
        opener.sort_whole(reason)
        return few_events(opener, specifications)


def replay_stream(
    opener: Opener,
    facts: Facts,
    specifications: Collection[Specification],
    budget: Budget,
    *,
    complete: Callable[[Events], Events] = lambda events: events,
) -> Replayed:
    """Replay a recording, as often as it takes to know what has to be known before.

    Parameters
    ----------
    opener : Opener
        Of the recording.
    facts : Facts
        What to begin with.
    specifications : collection of Specification
        Of executions that will be looked for.
    budget : Budget
    complete : callable
        Adds what a manifest knows to what the traces say.

    Returns
    -------
    Replayed

    Raises
    ------
    UnreadableError
        As the readers do; or if the recording changes while it is read.
    """
    for _ in range(_MOST_PASSES):
        blocks: BlockStore = SpilledBlocks() if budget.spills else PackedBlocks()
        try:
            with closing(opener()) as source:
                done = _one_pass(source, facts, Prefilter(specifications), blocks, budget, complete)
            if isinstance(done, Replayed):
                return done
            facts = done
            blocks.close()
            if facts.searched and facts.insertions is None:
                with closing(opener()) as source:
                    facts = _missing(source, facts, complete)
        except OutOfOrder as reason:
            # What was looked for was looked for in the wrong order.
            opener.sort_whole(reason)
            facts = replace(facts, searched=False, insertions=None)
        except BaseException:
            blocks.close()
            raise
        blocks.close()
    raise UnreadableError(
        "the recording is another one whenever it is read",
        "wait until it is written, and copied whole",
    )


def _missing(source: Source, facts: Facts, complete: Callable[[Events], Events]) -> Facts:
    """Look for switches that the kernel left out; the losses come to light as well."""
    search = MissingSwitches(len(source.hosts))
    for chunk in source:
        search.feed(chunk, source.classes)
    about = source.finish()
    found = search.finish(about.losses)
    return replace(facts, insertions=found, strings=source.strings(), losses=complete(about).losses)


def _one_pass(
    source: Source,
    facts: Facts,
    prefilter: Prefilter,
    blocks: BlockStore,
    budget: Budget,
    complete: Callable[[Events], Events],
) -> Replayed | Facts:
    """Return what was replayed, or what to assume instead."""
    put = facts.insertions
    replayer = Replayer(
        hosts=source.hosts,
        environment=source.environment,
        losses=facts.losses,
        code=source.code,
        text=source.text,
        has_waking=facts.waking,
        has_syscalls=facts.syscalls,
    )
    if put is None:
        chunks = iter(source)
    else:
        put = put.recoded(facts.strings.__getitem__, source.code)
        chunks = with_insertions(iter(source), put, source.classes)
    rows = 0
    for chunk in chunks:
        prefilter.feed(chunk, source.classes)
        replayer.feed(chunk, source.classes)
        if put is None and replayer.contradicted and not source.filled:
            return replace(facts, searched=True)
        if replayer.waiting >= budget.rows:
            rows += replayer.waiting
            blocks.append(replayer.cut())
    about = source.finish()
    if put is not None and len(put):
        about = replace(about, environment=(*about.environment, put.counted))
    if put is not None:
        about = replace(about, warnings=(*about.warnings, *put.warnings))
    events = complete(about)
    found = replace(
        facts,
        losses=events.losses,
        waking=Kind.WAKING in replayer.present,
        syscalls=Kind.SYSCALL_ENTRY in replayer.present,
    )
    if found != facts:
        return found
    rows += replayer.waiting
    blocks.append(replayer.finish(events.end))
    events = replace(prefilter.events(events), strings=tuple(source.strings()))
    return Replayed(
        events,
        blocks,
        replayer.workers(),
        replayer.processors,
        rows,
        linked_packets(network_events(events), replayer.network()),
        replayer.warnings,
    )
