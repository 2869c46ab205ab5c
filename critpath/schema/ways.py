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


_FTRACE: Final = (
    *("sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new"),
    *("sched:sched_process_fork", "sched:sched_process_exec", "sched:sched_process_exit"),
    *("task:task_newtask", "irq:*", "timer:hrtimer_expire_*"),
)
# By the tool, as a manifest or a trace names it, what records all that a path needs.
RECORD_NEXT: Final = {
    "perf.data": f"perf record -a -k mono -e '{','.join(_FTRACE)}'",
    "trace.dat": "trace-cmd record -C mono " + " ".join(f"-e '{name}'" for name in _FTRACE),
    "ftrace's text": (
        f"cd /sys/kernel/tracing; echo mono > trace_clock; echo '{' '.join(_FTRACE)}' > set_event"
    ),
    "Perfetto": "ftrace_events of the configuration: "
    + ", ".join(f'"{name.replace(":", "/")}"' for name in _FTRACE),
    "lttng": "lttng enable-event -k "
    + ",".join(
        (
            *("sched_switch", "sched_waking", "sched_wakeup_new", "sched_process_fork"),
            *("sched_process_exec", "sched_process_exit", "irq_handler_entry", "irq_handler_exit"),
            *("irq_softirq_entry", "irq_softirq_exit", "irq_softirq_raise"),
            *("timer_hrtimer_expire_entry", "timer_hrtimer_expire_exit"),
        )
    ),
    "": "critpath record -- CMD",
}
