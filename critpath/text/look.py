"""What is said at the first look at a trace."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from critpath.documents.look import LookDocument, LookRow, LookWait, SortKey
from critpath.model import State
from critpath.text.phrases import BLOCKERS, listed, thread_name
from critpath.units import NS_PER_S, format_ns, format_share, plural

_SHOWN: Final = 4  # technical: of a list in a line
_EACH: Final = 16  # technical: processors that are told one by one
_REASONS: Final = 4  # technical: of losses
_LEAST: Final = (0.0005, 0.02)  # technical: of a thread's time, to be shown first and next
_TOLD: Final = 0.001  # technical: of the processors' time, as it is shown
SORTS: Final[dict[SortKey, str]] = {
    "cpu": "by time on a CPU",
    "wait": "by time waiting for a CPU",
    "worst": "by the longest wait for a CPU",
    "blocked": "by time blocked",
    "wakes": "by wakes of others",
    "migrations": "by migrations",
}
NO_SWITCHES: Final = (
    "the trace has no sched_switch event, so nothing tells what threads did: record with the sched "
    "tracepoints (critpath's profile minimal)"
)
NOT_WOKEN: Final = "not woken"
LEGEND: Final = (
    "%: of one CPU; waited: could run and waited for a CPU, with p50, p99 and the longest of these "
    "waits (?: events were lost meanwhile), when it began and who had the CPU; blocked by: shares "
    "of its time in the trace"
)


def headline(of: LookDocument) -> str:
    """Say how long a trace is, of how many processors, and what is in it."""
    span = of.end - of.begin
    rate = of.total * NS_PER_S / max(span, 1)
    cpus = f" of {plural(len(of.cpus), 'CPU')}" if of.cpus else ""
    return f"{of.source}: {format_ns(span)}{cpus}, {plural(of.total, 'event')} ({_rate(rate)})"


def where_and_when(of: LookDocument) -> str:
    """Say whose trace it is, and of when."""
    parts = [f"host {host}" for host in of.hosts if host]
    parts += [f"Linux {of.kernel}"] if of.kernel else []
    if of.epoch_ns:
        parts.append(f"{_date(of.begin + of.epoch_ns)} UTC")
    return ", ".join(parts)


def _date(ns: int) -> str:
    # A trace may say any time: beyond what a calendar has it is told as it is.
    try:
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ns // 1000)
    except OverflowError:
        return f"{ns:,} ns since 1970"
    return f"{when:%Y-%m-%d %H:%M:%S}"


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.2g}/s"


def losses(of: LookDocument) -> list[str]:
    """Say what was lost, and where."""
    found: dict[str, list[int]] = {}
    where: dict[str, set[int]] = {}
    for loss in of.losses:
        sums = found.setdefault(loss.reason, [0, 0])
        sums[0], sums[1] = sums[0] + loss.events, sums[1] + loss.packets
        if loss.cpu is not None:
            where.setdefault(loss.reason, set()).add(loss.cpu)
    said = []
    for reason, (events, packets) in [*found.items()][:_REASONS]:
        what = [plural(events, "event")] * bool(events) + [plural(packets, "packet")] * bool(
            packets
        )
        cpus = sorted(where.get(reason, ()))
        place = f" on CPU {_numbers(cpus)}" if cpus else ""
        said.append(f"lost: {listed(what) or 'an unknown number of events'}{place} ({reason})")
    if len(found) > _REASONS:
        said.append(f"lost: more, in {len(found) - _REASONS:,} other ways (--format json has all)")
    return said


def _numbers(numbers: list[int]) -> str:
    shown = [f"{number}" for number in numbers[:_EACH]]
    more = len(numbers) - _EACH
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def load(of: LookDocument) -> Iterator[str]:
    """Say how busy the processors were, and what interrupts took of them."""
    span, cpus = max(of.end - of.begin, 1), of.cpus
    if not cpus:
        return
    whole = span * len(cpus)
    busy = sum(cpu.busy for cpu in cpus)
    several = len({cpu.host for cpu in cpus}) > 1
    shares = [(cpu.busy / span, f"{cpu.host + ' ' if several else ''}{cpu.cpu}") for cpu in cpus]
    if len(cpus) <= _EACH:
        each = ", ".join(f"{name}: {format_share(share)}" for share, name in shares)
    else:
        (least, idlest), (most, busiest) = min(shares), max(shares)
        each = f"CPU {idlest} {format_share(least)} to CPU {busiest} {format_share(most)}"
    yield (
        f"CPUs busy {format_share(busy / whole)} ({each}); "
        f"{of.waiting:,.2g} more threads waited for one, on average"
    )
    unobserved = sum(cpu.unobserved for cpu in cpus) / whole
    if unobserved >= _TOLD:
        yield f"not observed: {format_share(unobserved)} of the CPUs' time"
    if of.interrupts:
        taken = sum(one.time for one in of.interrupts)
        longest = [f"{one.name} {format_ns(one.time)}" for one in of.interrupts[:_SHOWN]]
        yield (
            f"interrupts took {format_share(taken / whole)} of the CPUs' time: "
            f"{_with_rest(longest, len(of.interrupts))}"
        )


def _with_rest(shown: list[str], total: int) -> str:
    more = total - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def worst_wait(of: LookDocument) -> str:
    """Say who waited longest for a processor, when, and who had it."""
    if (worst := of.worst) is None:
        return ""
    who = thread_name(worst.comm, worst.tid) if worst.comm else f"thread {worst.tid}"
    where = f" {worst.cpu}" if worst.cpu is not None else ""
    had = "that was idle" if worst.rival == "idle" and worst.rival_tid is None else ""
    if not had and worst.rival:
        had = f"that {thread_name(worst.rival, worst.rival_tid or -1)} had"
        had += f" (and {plural(worst.others, 'other thread')})" if worst.others else ""
    had += ", while events were lost" * worst.lossy
    return (
        f"longest wait for a CPU: {format_ns(worst.end - worst.begin)}, of {who} "
        f"at {format_ns(worst.begin - of.begin)}, for CPU{where} {had}".replace(" ,", ",").rstrip()
    )


def events(of: LookDocument) -> str:
    """Say which events are most frequent, and how frequent."""
    shown = [f"{one.name} {one.count:,} ({_rate(one.per_second)})" for one in of.events[:_SHOWN]]
    return f"events: {_with_rest(shown, len(of.events))}"


def no_room(columns: list[str]) -> str:
    """Say which columns there was no room for."""
    return f"no room for: {', '.join(columns)}"


def title(noun: str, sort: SortKey, shown: int, further: int) -> str:
    """Head a table: what it is of, what it is sorted by, how many of how many."""
    count = f": {shown:,} of {shown + further:,}" if further else ""
    return f"{noun}, {SORTS[sort]}{count}"


def blockers(of: LookRow) -> str:
    """Say what most of the time blocked was for, as shares of the whole."""
    whole = max(sum(of.states.values()), 1)
    times = {
        BLOCKERS[State[name]]: time
        for name, time in of.states.items()
        if name in State.__members__ and State[name] in BLOCKERS
    }
    if of.unwoken:
        unknown = BLOCKERS[State.WAIT_UNEXPLAINED]
        times |= {NOT_WOKEN: of.unwoken, unknown: times.get(unknown, 0) - of.unwoken}
    found = sorted(times.items(), key=lambda item: -item[1])
    shares = [
        (what, time / whole)
        for (what, time), least in zip(found, _LEAST, strict=False)
        if time / whole >= least
    ]
    return ", ".join(f"{what} {format_share(share)}" for what, share in shares)


def longest(of: LookWait | None) -> str:
    """Say how long the longest wait was, and whether that is in doubt."""
    return f"{format_ns(of.end - of.begin)}{'?' * of.lossy}" if of else ""


def rival(of: LookWait) -> str:
    """Say who had the processor during the longest wait."""
    if not of.rival:
        return ""
    more = f" +{of.others}" if of.others else ""
    return f"{of.rival}{more}" if of.rival_tid is None else f"{of.rival} ({of.rival_tid}){more}"


def next_commands(of: LookDocument) -> list[str]:
    """Return what can be asked next, as commands: of the longest wait, and of executions."""
    ask = f"critpath path {shlex.quote(of.source)}"
    found = []
    if worst := of.worst:
        length = worst.end - worst.begin
        begin, end = max(worst.begin - length, of.begin), min(worst.end + length, of.end)
        window = f"--tid {worst.tid} --from {begin} --to {end}"
        found.append(f"{ask} {window} --segments")
        found.append(f"critpath view {shlex.quote(of.source)} {window}")
    elif of.threads:
        found.append(f"{ask} --tid {of.threads[0].tid}")
    asked = [what for what in of.executions if what != "thread"]
    return found + [f"{ask} --execution {shlex.quote(what)}" for what in asked]
