"""The one table of what ftrace's events and fields are called in an LTTng trace.

Names follow lttng-modules 2.13.  An event that is in no table keeps its own name and
fields: it is converted by its format file alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final

# LTTng's name to the tracefs events that make it, as "group/event".  The first is the
# event itself; further ones are needed to fill its fields, or are what other kernels
# call it: a recorder enables those that its kernel has.  A "*" stands for any text, the
# same on both sides.  Nothing: the converter makes the event without the kernel.
LTTNG_NAMES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        **{
            name: (f"sched/{name}",)
            for name in (
                *("sched_switch", "sched_waking", "sched_wakeup", "sched_wakeup_new"),
                *("sched_process_exec", "sched_process_exit", "sched_process_free"),
                *("sched_process_wait", "sched_wait_task", "sched_migrate_task"),
                *("sched_pi_setprio", "sched_kthread_stop", "sched_kthread_stop_ret"),
            )
        },
        # LTTng reads the TGIDs of a fork from the tasks; task_newtask has the clone flags
        # that tell a thread from a process.
        "sched_process_fork": ("sched/sched_process_fork", "task/task_newtask"),
        "task_newtask": ("task/task_newtask",),
        "irq_handler_entry": ("irq/irq_handler_entry",),
        "irq_handler_exit": ("irq/irq_handler_exit",),
        "irq_softirq_*": ("irq/softirq_*",),
        "irq_tasklet_*": ("irq/tasklet_*",),
        # Linux 6.15 renamed hrtimer_init.
        "timer_hrtimer_init": ("timer/hrtimer_init", "timer/hrtimer_setup"),
        "timer_hrtimer_*": ("timer/hrtimer_*",),
        "timer_itimer_*": ("timer/itimer_*",),
        "x86_irq_vectors_*": ("irq_vectors/*",),
        "x86_exceptions_*": ("exceptions/*",),
        "power_cpu_idle": ("power/cpu_idle",),
        "power_cpu_frequency": ("power/cpu_frequency",),
        "net_if_receive_skb": ("net/netif_receive_skb",),
        "net_if_rx": ("net/netif_rx",),
        "net_dev_*": ("net/net_dev_*",),
        "skb_kfree": ("skb/kfree_skb",),
        "skb_consume": ("skb/consume_skb",),
        "kmem_mm_*": ("kmem/mm_*",),
        "kmem_kmalloc": ("kmem/kmalloc",),
        "kmem_kfree": ("kmem/kfree",),
        "printk_console": ("printk/console",),
        "cgroup_attach_task": ("cgroup/cgroup_attach_task",),
        # What is written to trace_marker: no event to enable, always in the buffer.
        "print": (),
        "compat_syscall_*": (),
        "syscall_entry_*": ("syscalls/sys_enter_*",),
        "syscall_exit_*": ("syscalls/sys_exit_*",),
        "lttng_statedump_*": (),
    }
)

# The same name in tracefs and in LTTng, whatever the group.
_GROUPS_KEPT_APART: Final = frozenset({"raw_syscalls"})

# New names of fields, by LTTng's name of the event.
_WAKE: Final = {"pid": "tid"}
RENAMED: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "sched_switch": {"prev_pid": "prev_tid", "next_pid": "next_tid"},
        "sched_waking": _WAKE,
        "sched_wakeup": _WAKE,
        "sched_wakeup_new": _WAKE,
        "sched_process_fork": {"parent_pid": "parent_tid", "child_pid": "child_tid"},
        "sched_process_exec": {"pid": "tid", "old_pid": "old_tid"},
        "sched_process_exit": _WAKE,
        "sched_process_free": _WAKE,
        "sched_process_wait": _WAKE,
        "sched_wait_task": _WAKE,
        "sched_migrate_task": _WAKE,
        "sched_pi_setprio": _WAKE,
    }
)

# ftrace writes task_struct.prio, LTTng what user space calls the priority.
MAX_RT_PRIO: Final = 100
PRIORITIES: Final = frozenset({"prio", "prev_prio", "next_prio", "oldprio", "newprio"})

# Fields that LTTng has not: the event's name says the same.
DROPPED: Final = frozenset({"__syscall_nr"})


def lttng_name(group: str, event: str) -> str:
    """Return what LTTng calls an event of tracefs.

    Parameters
    ----------
    group, event : str
        Directories below ``events``, for example ``irq`` and ``softirq_entry``.

    Returns
    -------
    str
        The event's own name where LTTng has none; ``group:event`` for the raw system
        call events, whose own names would be taken for system calls.
    """
    if group in _GROUPS_KEPT_APART:
        return f"{group}:{event}"
    whole = f"{group}/{event}"
    for name, sources in LTTNG_NAMES.items():
        own = sources[:2] if name == "timer_hrtimer_init" else sources[:1]
        for source in own:
            if source == whole:
                return name
            if "*" in source and fnmatchcase(whole, source):
                return name.replace("*", whole[source.index("*") :])
    return event
