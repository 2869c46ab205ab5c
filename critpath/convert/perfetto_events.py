"""Perfetto's events of ftrace that are converted: their fields, as the kernel calls these.

Numbers are those of Perfetto's schema (protos/perfetto/trace/ftrace), which a test compares with
it.  An event that is not here is left out, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple


class FieldWay(IntEnum):
    """How a field is written; as `_perfetto.pyx` has it."""

    NUMBER = 1
    CHARS = 2  # text of a fixed size
    LOCATED = 3  # text behind the fields, whose place the field is
    REST = 4  # text to the end of the record
    DEVICE = 5  # a block device's number, which Perfetto writes as user space has it
    ARRAY = 6  # of numbers of 64 bits


class Slot(NamedTuple):
    """A field of an event: its number in Perfetto's message, and its place in a record."""

    field: int
    name: str
    way: FieldWay
    offset: int
    size: int
    declaration: str
    signed: bool


class Shape(NamedTuple):
    """An event: its number in Perfetto's FtraceEvent, which is its ID here too."""

    number: int
    group: str
    name: str
    slots: tuple[Slot, ...]
    size: int  # bytes of a record without its texts

    @property
    def format(self) -> str:
        """The event as the kernel describes one in a ``format`` file."""
        return format_text(self.name, self.number, self.slots)


# What a field is declared as: its way, size and declaration.
_TYPES: Final[dict[str, tuple[FieldWay, int, str, bool]]] = {
    "s32": (FieldWay.NUMBER, 4, "int {}", True),
    "u32": (FieldWay.NUMBER, 4, "unsigned int {}", False),
    "s64": (FieldWay.NUMBER, 8, "s64 {}", True),
    "u64": (FieldWay.NUMBER, 8, "u64 {}", False),
    "pid": (FieldWay.NUMBER, 4, "pid_t {}", True),
    "address": (FieldWay.NUMBER, 8, "void * {}", False),
    "dev": (FieldWay.DEVICE, 4, "dev_t {}", False),
    "comm": (FieldWay.CHARS, 16, "char {}[16]", False),
    "rwbs": (FieldWay.CHARS, 10, "char {}[10]", False),
    "text": (FieldWay.LOCATED, 4, "__data_loc char[] {}", False),
    "rest": (FieldWay.REST, 0, "char {}[]", False),
    "args": (FieldWay.ARRAY, 48, "unsigned long {}[6]", False),
}

_COMMON: Final = """\
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

"""
_COMMON_BYTES: Final = 8

# An event, its number, and its fields with theirs.
_TABLE: Final = """
ftrace/print 3: 1 address ip, 2 rest buf
sched/sched_switch 4: 1 comm prev_comm, 2 pid prev_pid, 3 s32 prev_prio, 4 s64 prev_state, \
5 comm next_comm, 6 pid next_pid, 7 s32 next_prio
sched/sched_waking 20: 1 comm comm, 2 pid pid, 3 s32 prio, 5 s32 target_cpu
sched/sched_wakeup 17: 1 comm comm, 2 pid pid, 3 s32 prio, 5 s32 target_cpu
sched/sched_wakeup_new 114: 1 comm comm, 2 pid pid, 3 s32 prio, 5 s32 target_cpu
sched/sched_process_fork 239: 1 comm parent_comm, 2 pid parent_pid, 3 comm child_comm, \
4 pid child_pid
sched/sched_process_exec 237: 1 text filename, 2 pid pid, 3 pid old_pid
sched/sched_process_exit 238: 1 comm comm, 2 pid pid, 4 s32 prio
sched/sched_process_free 240: 1 comm comm, 2 pid pid, 3 s32 prio
sched/sched_process_wait 242: 1 comm comm, 2 pid pid, 3 s32 prio
sched/sched_migrate_task 491: 1 comm comm, 2 pid pid, 3 s32 prio, 4 s32 orig_cpu, 5 s32 dest_cpu
sched/sched_pi_setprio 353: 1 comm comm, 4 pid pid, 3 s32 oldprio, 2 s32 newprio
sched/sched_blocked_reason 18: 1 pid pid, 2 address caller, 3 u32 io_wait
sched/sched_cpu_hotplug 19: 1 s32 affected_cpu, 2 s32 error, 3 s32 status
task/task_newtask 235: 1 pid pid, 2 comm comm, 3 u64 clone_flags, 4 s32 oom_score_adj
task/task_rename 236: 1 pid pid, 2 comm oldcomm, 3 comm newcomm, 4 s32 oom_score_adj
irq/irq_handler_entry 36: 1 s32 irq, 2 text name
irq/irq_handler_exit 37: 1 s32 irq, 2 s32 ret
irq/softirq_entry 24: 1 u32 vec
irq/softirq_exit 25: 1 u32 vec
irq/softirq_raise 26: 1 u32 vec
ipi/ipi_entry 21: 1 text reason
ipi/ipi_exit 22: 1 text reason
ipi/ipi_raise 23: 1 u32 target_cpus, 2 text reason
timer/hrtimer_expire_entry 553: 1 address hrtimer, 2 s64 now, 3 address function
timer/hrtimer_expire_exit 554: 1 address hrtimer
timer/hrtimer_start 551: 1 address hrtimer, 2 address function, 3 s64 expires, 4 s64 softexpires, \
5 u32 mode
timer/hrtimer_cancel 552: 1 address hrtimer
timer/timer_expire_entry 557: 1 address timer, 2 u64 now, 3 address function, 4 u64 baseclk
timer/timer_expire_exit 558: 1 address timer
timer/timer_start 555: 1 address timer, 2 address function, 3 u64 expires, 4 u64 now, 6 u32 flags
timer/timer_cancel 556: 1 address timer
irq_vectors/local_timer_entry 559: 1 s32 vector
irq_vectors/local_timer_exit 560: 1 s32 vector
raw_syscalls/sys_enter 329: 1 s64 id, 2 args args
raw_syscalls/sys_exit 330: 1 s64 id, 2 s64 ret
signal/signal_generate 325: 6 s32 sig, 1 s32 code, 2 comm comm, 4 pid pid, 3 s32 group, 5 s32 result
signal/signal_deliver 324: 3 s32 sig, 1 s32 code, 2 u64 sa_flags
block/block_rq_issue 45: 1 dev dev, 2 u64 sector, 3 u32 nr_sector, 4 u32 bytes, 5 rwbs rwbs, \
6 comm comm, 7 text cmd
block/block_rq_complete 125: 1 dev dev, 2 u64 sector, 3 u32 nr_sector, 7 s32 error, 5 rwbs rwbs, \
6 text cmd
block/block_rq_insert 126: 1 dev dev, 2 u64 sector, 3 u32 nr_sector, 4 u32 bytes, 5 rwbs rwbs, \
6 comm comm, 7 text cmd
block/block_rq_requeue 129: 1 dev dev, 2 u64 sector, 3 u32 nr_sector, 5 rwbs rwbs, 6 text cmd
block/block_bio_queue 119: 1 dev dev, 2 u64 sector, 3 u32 nr_sector, 4 rwbs rwbs, 5 comm comm
block/block_getrq 122: 1 dev dev, 2 u64 sector, 3 u32 nr_sector, 4 rwbs rwbs, 5 comm comm
net/netif_receive_skb 360: 3 address skbaddr, 1 u32 len, 2 text name
net/net_dev_xmit 361: 4 address skbaddr, 1 u32 len, 3 s32 rc, 2 text name
workqueue/workqueue_queue_work 59: 1 address work, 2 address function, 4 s32 req_cpu, 5 s32 cpu
workqueue/workqueue_activate_work 56: 1 address work
workqueue/workqueue_execute_start 58: 1 address work, 2 address function
workqueue/workqueue_execute_end 57: 1 address work, 2 address function
power/cpu_idle 13: 1 u32 state, 2 u32 cpu_id
power/cpu_frequency 11: 1 u32 state, 2 u32 cpu_id
cgroup/cgroup_attach_task 67: 1 s32 dst_root, 2 s32 dst_id, 6 s32 dst_level, 7 text dst_path, \
3 pid pid, 4 text comm
"""


def place_slots(fields: list[tuple[int, str, str]]) -> tuple[tuple[Slot, ...], int]:
    """Return fields (number, type, name) with their places in a record, and its size."""
    at, slots = _COMMON_BYTES, []
    for field, kind, name in fields:
        way, size, declaration, signed = _TYPES[kind]
        wide = 8 if way == FieldWay.ARRAY else 1 if way == FieldWay.CHARS else max(size, 1)
        at = -(-at // wide) * wide
        slots.append(Slot(field, name, way, at, size, declaration.format(name), signed))
        at += size
    return tuple(slots), at


def format_text(name: str, number: int, slots: tuple[Slot, ...]) -> str:
    """Return the description of an event, as the kernel writes it."""
    lines = "".join(
        f"\tfield:{s.declaration};\toffset:{s.offset};\tsize:{s.size};\tsigned:{int(s.signed)};\n"
        for s in slots
    )
    return f"name: {name}\nID: {number}\nformat:\n{_COMMON}{lines}"


def _shapes() -> Iterator[Shape]:
    for line in _TABLE.strip().splitlines():
        head, _, rest = line.partition(": ")
        path, _, number = head.partition(" ")
        group, _, name = path.partition("/")
        words = (field.split() for field in rest.split(", "))
        slots, size = place_slots([(int(field), kind, of) for field, kind, of in words])
        yield Shape(int(number), group, name, slots, size)


SHAPES: Final = tuple(_shapes())
PRINT: Final = 3
SWITCH: Final = 4
WAKING: Final = 20
