"""By which events requests of servers can be found in a recording (docs/recording.md)."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

SOCKETS: Final = "sockets"
_SOCKETS: Final = ("sk_data_ready", "sock_recv_length", "sock_send_length", "inet_sock_set_state")
_CALLS: Final = ("syscall_entry_recvfrom", "syscall_exit_recvfrom", "syscall_exit_sendto")
# Arrivals at sockets that are known by their ends: LTTng's event, and ftrace's, whose event of
# that name does not tell the ports.
PACKETS: Final = ("net_if_receive_skb", "tcp_probe")


def way_of_requests(events: Iterable[str], *packets: str, sockets: bool = True) -> str:
    """Return the way that a recording of these events (LTTng's names and patterns) allows.

    ``sockets``, ``calls+packets``, ``calls``, or "" for none; one of `packets` tells arrivals.
    Without ``sockets`` their events are not looked at.
    """
    recorded = frozenset(events)
    patterns = [rule for rule in recorded if "*" in rule]

    def has(*names: str) -> bool:
        return all(n in recorded or any(fnmatchcase(n, r) for r in patterns) for n in names)

    if sockets and has(*_SOCKETS):
        return SOCKETS
    if not has(*_CALLS):
        return ""
    return "calls+packets" if any(has(name) for name in packets) else "calls"
