"""What is said about the clocks of several hosts."""

from __future__ import annotations

from critpath.model.clocks import (
    REFERENCE,
    SAME_KERNEL,
    SAMPLES,
    UNALIGNED,
    HostClock,
    JoinedAccount,
)
from critpath.units import format_ns, plural, safe_text


def clock_aligned(clock: HostClock, reference: str) -> str:
    """Return how surely a host's times are known in the reference's."""
    host, other = safe_text(clock.host), safe_text(reference)
    if clock.source == UNALIGNED:
        return (
            f"host {host}: no messages to and from {other} that agree, its clock is taken as it is"
        )
    if clock.source == SAME_KERNEL:
        return f"clocks: {host} and {other} are one kernel's: one clock"
    how = "its own clock and that of " + other if clock.source == SAMPLES else ""
    by = how or plural(sum(clock.messages), "message")
    said = f"clocks: {host} aligned with {other} by {by}, sure to {format_ns(clock.middle_bound)}"
    return said + "".join(f"; {step_text(by)}" for _, by in clock.steps)


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
