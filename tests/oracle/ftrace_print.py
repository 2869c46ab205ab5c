"""Prints events as the kernel, trace-cmd and perf do: the twin of `convert.ftrace_text`."""

from __future__ import annotations

HEADER = "# tracer: nop\n#\n# entries-in-buffer/entries-written: {0}/{0}   #P:{1}\n#\n"
STATES = {1: "S", 2: "D", 4: "T", 8: "t", 16: "X", 32: "Z", 64: "P", 128: "I"}
TRACE_CMD_STATES = {1: "S", 2: "D", 4: "T", 8: "t", 16: "Z", 32: "X", 64: "x", 128: "W"}
PLUS = 256


def state(value, letters=STATES):
    found = "|".join(letter for bit, letter in letters.items() if value & bit) or "R"
    return found + "+" * bool(value & PLUS and letters is STATES)


def flags(value):
    return (
        ("D" if value & 0x81 == 0x81 else "d" if value & 1 else "b" if value & 0x80 else ".")
        + ("N" if value & 0x24 == 0x24 else "n" if value & 4 else "p" if value & 0x20 else ".")
        + {8: "h", 16: "s", 24: "H", 64: "z", 72: "Z"}.get(value & 0x58, ".")
        + ".."
    )


def payload(name, f, *, trace_cmd=False):
    if name == "sched_switch":
        if trace_cmd:
            return (
                f"{f['prev_comm']}:{f['prev_pid']} [{f['prev_prio']}]"
                f" {state(f['prev_state'], TRACE_CMD_STATES)} ==>"
                f" {f['next_comm']}:{f['next_pid']} [{f['next_prio']}]"
            )
        return (
            f"prev_comm={f['prev_comm']} prev_pid={f['prev_pid']} prev_prio={f['prev_prio']}"
            f" prev_state={state(f['prev_state'])} ==> next_comm={f['next_comm']}"
            f" next_pid={f['next_pid']} next_prio={f['next_prio']}"
        )
    if name in {"sched_wakeup", "sched_wakeup_new"} and trace_cmd:
        return f"{f['comm']}:{f['pid']} [{f['prio']}] CPU:{f['target_cpu']:03}"
    if name in {"sched_waking", "sched_wakeup", "sched_wakeup_new"}:
        return f"comm={f['comm']} pid={f['pid']} prio={f['prio']} target_cpu={f['target_cpu']:03}"
    if name == "sched_process_fork":
        return (
            f"comm={f['parent_comm']} pid={f['parent_pid']}"
            f" child_comm={f['child_comm']} child_pid={f['child_pid']}"
        )
    if name == "sched_process_exec":
        return f"filename={f['filename']} pid={f['pid']} old_pid={f['old_pid']}"
    if name == "sched_process_exit":
        return f"comm={f['comm']} pid={f['pid']} prio={f['prio']}"
    if name == "irq_handler_entry":
        return f"irq={f['irq']} name={f['name']}"
    if name == "irq_handler_exit":
        return f"irq={f['irq']} ret={'handled' if f['ret'] else 'unhandled'}"
    if name.startswith("softirq_"):
        return f"vec={f['vec']} [action=RCU]"
    if name == "print":
        return f"tracing_mark_write: {f['buf']}" if trace_cmd else f["buf"]
    raise KeyError(name)


def trace(cpu, ns, comm, pid, of, name, fields, *, tgid=None):
    """As ``trace`` of tracefs, with the process of the thread where `tgid` is given; 0 unknown."""
    who = "" if tgid is None else f"({tgid:7}) " if tgid else "(-------) "
    shown = "tracing_mark_write" if name == "print" else name
    us = (ns + 500) // 1000
    return (
        f"{comm:>16}-{pid:<7} {who}[{cpu:03}] {flags(of)} {us // 10**6:5}.{us % 10**6:06}:"
        f" {shown}: {payload(name, fields)}\n"
    )


def report(cpu, ns, comm, pid, _, name, fields):
    """As ``trace-cmd report -t``, which has nanoseconds and no flags."""
    return (
        f"{comm:>16}-{pid:<5} [{cpu:03}] {ns // 10**9:5}.{ns % 10**9:09}: {name + ':':<21}"
        f" {payload(name, fields, trace_cmd=True)}\n"
    )


def script(cpu, ns, comm, pid, _, name, fields):
    """As ``perf script --ns``."""
    group = {"print": "ftrace", "irq_h": "irq", "softi": "irq"}.get(name[:5], "sched")
    text = payload(name, fields)
    if name == "print":
        text = f"tracing_mark_write: {text}"
    return (
        f"{comm:>16} {pid:>5} [{cpu:03}] {ns // 10**9:5}.{ns % 10**9:09}:"
        f" {f'{group}:{name}':>24}: {text}\n"
    )
