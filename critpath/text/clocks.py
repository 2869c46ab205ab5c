"""What is said about the clocks of several hosts."""

from __future__ import annotations

from collections.abc import Sequence

from critpath.documents import ComparisonDocument, HostEntry, HostWaitEntry
from critpath.model.clocks import (
    MESSAGES,
    REFERENCE,
    SAME_KERNEL,
    SAMPLES,
    UNALIGNED,
    HostClock,
    JoinedAccount,
)
from critpath.model.vectors import show_family
from critpath.text.phrases import listed
from critpath.units import format_ns, plural, safe_text


def clock_aligned(clock: HostClock, reference: str) -> str:
    """Return how surely a host's times are known in the reference's."""
    host, other = safe_text(clock.host), safe_text(reference)
    if clock.source == UNALIGNED:
        none, more = "no messages both ways that agree with each other", ""
        if not sum(clock.messages):
            none = "no messages to or from the other hosts"
            more = "; if it talked to them, record all at the same time, with --profile requests"
        return f"host {host}: {none}: its times are taken as they are{more}"
    if clock.source == SAME_KERNEL:
        return f"clocks: {host} and {other} are one kernel's: one clock"
    how = "its own clock and that of " + other if clock.source == SAMPLES else ""
    sent = sum(clock.messages)
    by = how or (plural(sent, "message") if sent else "asking what time it is")
    said = f"clocks: {host} aligned with {other} by {by}, within ±{format_ns(clock.middle_bound)}"
    return said + "".join(f"; {step_text(by)}" for _, by in clock.steps)


def one_kernel(hosts: Sequence[HostClock]) -> list[str]:
    """Warn of hosts that were recorded on one kernel: what happened there is in each of them."""
    same = [of.host for of in hosts if of.source in {REFERENCE, SAME_KERNEL}]
    if len(same) < 2:
        return []
    said = f"{safe_text(listed(same))} are one kernel: if each recorded the whole machine, every"
    return [f"{said} request is in all {len(same)} and counts {len(same)} times; record it once"]


CLOCKS_NEAREST: str = (
    "clocks by PInfer's method (--clock-method icp), for comparison: events are paired by time"
    " alone, those of one direction, so it is not known how wrong these clocks are"
)


def step_text(by: int) -> str:
    """Return that a clock stepped; the trace's clock goes on, so time was missing."""
    return f"it stepped by {format_ns(-by, sign=True)}"


def claim_text(clock: HostClock) -> str | None:
    """Return what the operating systems say of the clocks, and whether messages allow it."""
    if clock.claim < 0 or clock.source in {REFERENCE, UNALIGNED, SAME_KERNEL, SAMPLES}:
        return None
    said = f"{safe_text(clock.host)}: the operating systems say {format_ns(clock.claim)}"
    if clock.claim_held:
        return f"{said}; the messages allow that"
    return f"{said}, and the messages contradict it: one of them is set wrong"


def messages_left_out(account: JoinedAccount) -> list[str]:
    """Say which bytes between hosts could not be put together, and which were by their sizes."""
    said = []
    joined = plural(account.joined, "connection")
    if account.unmatched:
        said.append(
            f"{plural(account.unmatched, 'direction')} of {joined} between hosts"
            " left out of their clocks: opened before the recording, or sends are missing"
        )
    if account.lost:
        said.append(
            f"events were lost while {account.lost:,} of {joined} between hosts were open:"
            " what was sent meanwhile is left out of their clocks"
        )
    if account.doubtful:
        said.append(
            f"{plural(account.doubtful, 'end')} of connections between hosts left out:"
            " addresses and ports were used again, and which is whose is not sure"
        )
    if account.translated:
        said.append(
            f"{plural(account.translated, 'connection')} between hosts, with other addresses at"
            " each end: joined by the sizes of messages"
        )
    return said


def clocks_line(clocks: Sequence[HostEntry]) -> str:
    """Return in one line how surely hosts' times are known; "" of one host."""
    if len(clocks) < 2:
        return ""
    known = [one for one in clocks if one.source not in {UNALIGNED, REFERENCE}]
    same = [one for one in known if one.source == SAME_KERNEL]
    wide = [one for one in known if one not in same]
    lost = [one.host for one in clocks if one.source == UNALIGNED]
    said = []
    if wide:
        bounds = [(one.host, one.uncertainty_ns is not None, clock_sure(one)) for one in wide]
        parts = [f"{host} {'within ' * known}{bound}" for host, known, bound in bounds]
        said.append(", ".join(parts))
    if same:
        said.append(f"{listed([one.host for one in same])} exactly (one kernel's)")
    if lost:
        said.append(f"not known of {listed(lost)}, whose times are taken as they are")
    reference = next((one.host for one in clocks if one.source == REFERENCE), clocks[0].host)
    return safe_text(f"Clocks against {reference}: {'; '.join(said)}.")


def say_clocks(document: ComparisonDocument) -> list[str]:
    """Return a line for each set whose hosts' clocks there is something to say of."""
    lines = [clocks_line(one.clocks) for one in (document.sets.normal, document.sets.sample)]
    if lines[0] == lines[1]:
        return [lines[0]] if lines[0] else []
    named = zip(("Before", "After"), lines, strict=True)
    return [f"{name}: {line}" for name, line in named if line]


def clock_known(clock: HostEntry) -> str:
    """Return by what a host's clock is known."""
    if clock.source == MESSAGES:
        got, sent = (*clock.messages, 0, 0)[:2]
        if not got + sent:
            return "what it said when it was asked the time"
        return f"{got:,} messages to it, {sent:,} from it"
    return {
        REFERENCE: "the others' times are given by it",
        SAME_KERNEL: "one kernel's clock",
        SAMPLES: "what the operating systems say of their clocks",
        UNALIGNED: "nothing: no messages both ways that agree",
    }.get(clock.source, clock.source)


def clock_sure(clock: HostEntry) -> str:
    """Return how wrong a host's times may be: in the middle of the recording, and at most."""
    if clock.source == REFERENCE:
        return ""
    if clock.source == SAME_KERNEL:
        return "exact"
    if clock.uncertainty_ns is None:
        return "not known"
    middle = clock.middle_ns if clock.middle_ns is not None else clock.uncertainty_ns
    said = f"±{format_ns(middle)}"
    if middle >= clock.uncertainty_ns:
        return said
    return f"{said}, at most ±{format_ns(clock.uncertainty_ns)}"


def clock_steps(clock: HostEntry) -> str:
    """Return when a host's clock stepped, and by how much."""
    return ", ".join(f"{format_ns(step.by_ns, sign=True)}" for step in clock.steps) or "none"


def name_waits(wait: HostWaitEntry) -> tuple[str, str]:
    """Return who waited and for whom, numbers of several as *."""
    return show_family(wait.who), show_family(wait.whom)


WAITS: str = "Who waited for whom"
ABOUT_WAITS: str = (
    "Mean over all {noun} of the time that one waited for the other, whatever that did or waited "
    "for itself."
)
ABOUT_CLOCKS: str = (
    "Times of several hosts are put on one line by the messages between them. A time between two "
    "hosts may be wrong by as much as both their clocks; a band or “?” at an arrow shows it."
)
