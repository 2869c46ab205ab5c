"""By which events requests of servers can be found in a recording (docs/recording.md)."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

REQUESTS: Final = "requests"  # what executions are then, and the profile that records these events
SOCKETS: Final = "sockets"
BY_LENGTHS: Final = ("lengths", "lengths+packets")
BY_CALLS: Final = ("calls", "calls+packets")
_LENGTHS: Final = ("sock_recv_length", "sock_send_length")
_STATES: Final = "inet_sock_set_state"
_SOCKETS: Final = ("sk_data_ready", *_LENGTHS, _STATES)
_CALLS: Final = ("syscall_entry_recvfrom", "syscall_exit_recvfrom", "syscall_exit_sendto")
# Arrivals at sockets that are known by their ends: LTTng's event, and ftrace's, whose event of
# that name does not tell the ports.
PACKETS: Final = ("net_if_receive_skb", "tcp_probe")


def way_of_requests(events: Iterable[str], *packets: str, sockets: bool = True) -> str:
    """Return the way that a recording of these events (LTTng's names and patterns) allows.

    ``sockets``, ``lengths+packets``, ``calls+packets``, ``lengths``, ``calls``, or "" for none; one
    of `packets` tells arrivals.  Without ``sockets`` their events are not looked at.
    """
    recorded = frozenset(events)
    patterns = [rule for rule in recorded if "*" in rule]

    def has(*names: str) -> bool:
        return all(n in recorded or any(fnmatchcase(n, r) for r in patterns) for n in names)

    if sockets and has(*_SOCKETS):
        return SOCKETS
    packed = any(has(name) for name in packets)
    # Without any event of how they are opened and closed, packets tell which sockets are whose.
    lengths = sockets and has(*_LENGTHS) and (packed or has(_STATES))
    calls = has(*_CALLS)
    if lengths and (packed or not calls):
        return "lengths+packets" if packed else "lengths"
    return ("calls+packets" if packed else "calls") if calls else ""
