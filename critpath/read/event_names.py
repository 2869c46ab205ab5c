"""The one table of event and field names, as the tracers spell them.

LTTng's current and old names, perf's (``sched:sched_switch``, from ``perf data convert``)
and ftrace's.  The timeline replay finds fields by their position in this table.
"""

from __future__ import annotations

from typing import Final

from critpath.model import EventRequest, Kind


def _with_group(group: str, *names: str) -> tuple[str, ...]:
    """Return names with and without perf's group in front."""
    return (*names, *(f"{group}:{name}" for name in names))


_TID: Final = ("tid", "pid")

# Where the headers of a packet lie: LTTng >= 2.10 has them as nested variants.  An
# IPv4 address is one number, most significant byte first; an IPv6 one is absent.  Trace
# Compass's addons for older kernels (``inet_sock_local_out``) tell no addresses.
_NETWORK: Final = (
    ("skbaddr",),
    ("len",),
    ("network_header.saddr",),
    ("network_header.transport_header.source_port",),
    ("network_header.daddr",),
    ("network_header.transport_header.dest_port",),
    ("network_header.transport_header.seq", "seq"),
    ("network_header.transport_header.ack_seq", "ack_seq"),
    ("network_header.transport_header.flags", "flags"),
    ("name",),  # of the device
)

SOURCE_PORT: Final = _NETWORK[3][0]  # of a packet, where the tracer looks into its headers

_WAKE: Final = (_TID, ("comm",), ("target_cpu",), ("success",))

KERNEL_EVENTS: Final[tuple[EventRequest, ...]] = (
    EventRequest(
        Kind.SWITCH,
        _with_group("sched", "sched_switch"),
        (
            ("prev_comm",),
            ("prev_tid", "prev_pid"),
            ("prev_state",),
            ("next_comm",),
            ("next_tid", "next_pid"),
        ),
    ),
    EventRequest(Kind.WAKING, _with_group("sched", "sched_waking"), _WAKE),
    EventRequest(Kind.WAKEUP, _with_group("sched", "sched_wakeup"), _WAKE),
    EventRequest(Kind.WAKEUP_NEW, _with_group("sched", "sched_wakeup_new"), _WAKE),
    EventRequest(
        Kind.FORK,
        _with_group("sched", "sched_process_fork"),
        (
            ("parent_tid", "parent_pid"),
            ("parent_pid",),
            ("child_tid", "child_pid"),
            ("child_pid",),
            ("parent_comm",),
            ("child_comm",),
            ("child_ns_inum",),
        ),
    ),
    EventRequest(
        Kind.EXEC,
        _with_group("sched", "sched_process_exec"),
        (_TID, ("filename",), ("pid_ns",), ("cgroup_ns",)),
    ),
    EventRequest(Kind.EXIT, _with_group("sched", "sched_process_exit"), (_TID, ("comm",))),
    EventRequest(Kind.IRQ_ENTRY, _with_group("irq", "irq_handler_entry"), (("irq",), ("name",))),
    EventRequest(Kind.IRQ_EXIT, _with_group("irq", "irq_handler_exit"), (("irq",),)),
    EventRequest(
        Kind.SOFTIRQ_ENTRY, ("irq_softirq_entry", *_with_group("irq", "softirq_entry")), (("vec",),)
    ),
    EventRequest(
        Kind.SOFTIRQ_EXIT, ("irq_softirq_exit", *_with_group("irq", "softirq_exit")), (("vec",),)
    ),
    EventRequest(
        Kind.SOFTIRQ_RAISE,
        ("irq_softirq_raise", *_with_group("irq", "softirq_raise")),
        # Whether in an interrupt, of which there may be no event; LTTng has no such field.
        (("vec",), ("common_flags",)),
    ),
    EventRequest(
        Kind.TIMER_ENTRY,
        ("timer_hrtimer_expire_entry", *_with_group("timer", "hrtimer_expire_entry")),
        (("hrtimer",), ("function",)),
    ),
    EventRequest(
        Kind.TIMER_EXIT,
        ("timer_hrtimer_expire_exit", *_with_group("timer", "hrtimer_expire_exit")),
        (("hrtimer",),),
    ),
    EventRequest(
        Kind.TIMER_FUNCTION,
        _with_group("timer", "timer_expire_entry"),
        (("function",),),
    ),
    EventRequest(
        Kind.STATEDUMP,
        ("lttng_statedump_process_state",),
        (("tid",), ("pid",), ("name",), ("status",), ("cpu",), ("ns_inum",), ("ppid",)),
    ),
    # Before other system calls: each event is of the first kind whose names it matches.
    EventRequest(
        Kind.FUTEX,
        ("syscall_entry_futex", "compat_syscall_entry_futex", "syscalls:sys_enter_futex"),
        (("uaddr",),),
    ),
    # LTTng before 2.5 calls entries sys_NAME, so that sys_exit_group is an entry:
    # only perf's names, which have their group in front, make it an exit.
    EventRequest(
        Kind.SYSCALL_EXIT,
        (
            "syscall_exit_*",
            "compat_syscall_exit_*",
            "exit_syscall",
            "compat_exit_syscall",
            *("syscalls:sys_exit_*", "raw_syscalls:sys_exit"),
        ),
    ),
    EventRequest(
        Kind.SYSCALL_ENTRY,
        (
            "syscall_entry_*",
            "compat_syscall_entry_*",
            "sys_*",
            "compat_sys_*",
            *("syscalls:sys_enter_*", "raw_syscalls:sys_enter"),
        ),
    ),
    EventRequest(
        Kind.FILE_LOCK,
        (*_with_group("filelock", "posix_lock_inode", "flock_lock_inode"),),
        (("ret",), ("s_dev",), ("i_ino",), ("owner",), ("type",), ("fl_start",), ("fl_end",)),
    ),
    EventRequest(
        Kind.NET_SEND, ("inet_sock_local_out", *_with_group("net", "net_dev_queue")), _NETWORK
    ),
    EventRequest(
        Kind.NET_RECEIVE,
        ("inet_sock_local_in", "net_if_receive_skb", *_with_group("net", "netif_receive_skb")),
        _NETWORK,
    ),
    EventRequest(
        Kind.VECTOR_ENTRY,
        ("x86_irq_vectors_*_entry", "irq_vectors:*_entry"),
        (("vector",),),
    ),
    EventRequest(
        Kind.VECTOR_EXIT,
        ("x86_irq_vectors_*_exit", "irq_vectors:*_exit"),
        (("vector",),),
    ),
    *(
        EventRequest(
            kind,
            _with_group("block", name),
            (("dev",), ("sector",), ("nr_sector",), _TID, ("comm",)),
        )
        for kind, name in (
            (Kind.DISK_INSERT, "block_rq_insert"),
            (Kind.DISK_ISSUE, "block_rq_issue"),
        )
    ),
    EventRequest(
        Kind.DISK_COMPLETE,
        _with_group("block", "block_rq_complete"),
        (("dev",), ("sector",), ("nr_sector",)),
    ),
    *(
        EventRequest(
            kind,
            tuple(
                name
                for what in ("direct_reclaim", "memcg_reclaim")
                for name in _with_group("vmscan", f"mm_vmscan_{what}_{side}")
            ),
            (_TID,),
        )
        for kind, side in ((Kind.RECLAIM_BEGIN, "begin"), (Kind.RECLAIM_END, "end"))
    ),
    # Ours, of functions of Python; the thread is in the event's context.
    *(
        EventRequest(kind, (f"critpath_function_{side}",), (("tid",), ("code",)))
        for kind, side in ((Kind.FUNCTION_ENTRY, "entry"), (Kind.FUNCTION_EXIT, "exit"))
    ),
    # Ours, in traces converted from ftrace.
    EventRequest(Kind.CURRENT, ("critpath_current",), (("tid",),)),
)

# Addresses: a number for IPv4, two halves for IPv6; ftrace's, converted (lttng-modules has none).
_ENDS: Final = (
    *(("sport",), ("dport",), ("family",), ("saddr",), ("daddr",)),
    *(("saddr_v6_high",), ("saddr_v6_low",), ("daddr_v6_high",), ("daddr_v6_low",)),
)
_LENGTH: Final = (("sk",), ("family",), ("protocol",), ("ret",), ("flags",))

# What only requests of servers need: read where they are asked for.
SOCKET_EVENTS: Final[tuple[EventRequest, ...]] = (
    EventRequest(Kind.SOCKET_SEND, _with_group("sock", "sock_send_length"), _LENGTH),
    EventRequest(Kind.SOCKET_RECEIVE, _with_group("sock", "sock_recv_length"), _LENGTH),
    EventRequest(
        Kind.SOCKET_ARRIVAL,
        _with_group("sock", "sk_data_ready"),
        (("skaddr",), ("family",), ("protocol",)),
    ),
    EventRequest(
        Kind.SOCKET_STATE,
        _with_group("sock", "inet_sock_set_state"),
        (("skaddr",), *_ENDS, ("protocol",), ("oldstate",), ("newstate",)),
    ),
    EventRequest(Kind.SOCKET_OF, _with_group("tcp", "tcp_rcv_space_adjust"), (("skaddr",), *_ENDS)),
    # Ours: sockets that were there before.
    EventRequest(
        Kind.SOCKET_STATEDUMP,
        ("critpath_statedump_socket",),
        (
            *(("skaddr",), *_ENDS, ("protocol",), ("oldstate",), ("newstate",)),
            *(("inode",), ("net_ns_inum",), ("path",)),
        ),
    ),
    # Ours, where labels from bytes were asked for.
    EventRequest(
        Kind.MESSAGE_LABEL,
        ("critpath_message_label",),
        (
            *(("sk",), ("label",), ("trace_id_high",), ("trace_id_low",)),
            # Of what is about a stream of HTTP/2.
            *(("length",), ("stream",), ("flags",), ("size",), ("tid",)),
        ),
    ),
    # Marks, among which runtimes write what they ran, where they were asked.
    EventRequest(Kind.TASKS, _with_group("ftrace", "print"), (("buf",),)),
)

# What system calls tell of descriptors, where a tracer has no events of sockets: fields beside
# those that the replay reads.
_WHO: Final = (("tid",), ("pid",))
_MOVES: Final = (
    *("read", "readv", "recvfrom", "recvmsg", "recvmmsg"),
    *("write", "writev", "sendto", "sendmsg", "sendmmsg", "sendfile64", "sendfile", "splice"),
)
CALLS: Final = (
    *("accept", "accept4", "connect", "close", "dup", "dup2", "dup3", "fcntl", "socket"),
    *("eventfd2", "io_uring_enter", *_MOVES),
)


def _name_calls(side: str, perf: str) -> tuple[str, ...]:
    """Return what tracers call one side of these system calls."""
    forms = (f"syscall_{side}_", f"compat_syscall_{side}_", f"syscalls:sys_{perf}_")
    return tuple(form + name for name in CALLS for form in forms)


# Of a packet: how long its headers are, in words of four bytes.
HEADER_LENGTHS: Final = ("network_header.ihl", "network_header.transport_header.data_offset")
_ARRIVAL_EVENTS: Final = (
    EventRequest(
        Kind.OTHER,
        ("net_if_receive_skb", *_with_group("net", "netif_receive_skb")),
        (*_WHO, *((name,) for name in HEADER_LENGTHS)),
    ),
    # A segment that a TCP socket takes (Linux 4.16), in traces converted from ftrace.
    EventRequest(
        Kind.SOCKET_SEGMENT, _with_group("tcp", "tcp_probe"), (*_ENDS, ("data_len",), *_WHO)
    ),
)
# Where no event tells that data arrived at a socket: packets do, and whose it is.
PACKET_EVENTS: Final[tuple[EventRequest, ...]] = (
    *_ARRIVAL_EVENTS,
    EventRequest(
        Kind.OTHER,
        _with_group("net", "net_dev_queue"),
        tuple((name,) for name in HEADER_LENGTHS),
    ),
)

CALL_EVENTS: Final[tuple[EventRequest, ...]] = (
    EventRequest(
        Kind.OTHER,
        _name_calls("entry", "enter"),
        (
            *_WHO,
            ("fd", "fildes", "oldfd", "out_fd", "fd_in"),
            ("newfd", "in_fd", "fd_out", "cmd", "type"),
            *(("flags", "arg"), ("family",), ("dport",), ("protocol",)),
        ),
    ),
    EventRequest(
        Kind.OTHER, _name_calls("exit", "exit"), (*_WHO, ("ret",), ("family",), ("sport",))
    ),
    *_ARRIVAL_EVENTS,
    *(
        EventRequest(Kind.OTHER, _with_group(group, name), _WHO)
        for group, name in (("sock", "inet_sock_set_state"), ("tcp", "tcp_rcv_space_adjust"))
    ),
    # Ours: which descriptors were there before, and are at the end.
    EventRequest(
        Kind.DESCRIPTOR_STATEDUMP,
        ("critpath_statedump_fd",),
        (("pid",), ("fd",), ("inode",), ("in_tid",)),
    ),
)

# What a TCP packet keeps on its way, as the fields above are named.
HEADERS: Final = tuple(
    f"network_header.{name}"
    for name in (
        "saddr",
        "transport_header.source_port",
        "daddr",
        "transport_header.dest_port",
        "transport_header.seq",
        "transport_header.ack_seq",
        "transport_header.flags",
    )
)
PACKETS = frozenset({Kind.NET_SEND, Kind.NET_RECEIVE})
