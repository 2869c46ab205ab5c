"""Plain-Python twin of the native replay: slow, obvious, written from the rules alone.

Input is a list of tuples ``(time, cpu, kind, fields)``; output per tid a list of
``[begin, end, state, detail, waker, woken]``, with wakers as tids; of a wait for a cpu that a
thread had which the waiting one asked, that thread, and when it was asked.
"""

from __future__ import annotations

from critpath.model import Kind, State
from critpath.timeline.contexts import SOFTIRQS, device_state, syscall_state, vector_state

SLEEP = "asleep"
BLOCK = 4
NET_RX = 3
FOLLOWED = {2, 3, 4}  # softirqs that may be a thread's doing: NET_TX, NET_RX, BLOCK
RAISED = {*FOLLOWED, 6}  # and those in which they may be raised: TASKLET
INFINITE = float("inf")
CREATED = -1  # instead of a time
BATCH = 2000  # ns between softirqs that one interrupt caused
# Kinds that change no thread's intervals: packet_links.py is the twin of what is made of packets.
NOT_REPLAYED = frozenset(
    {
        *(Kind.OTHER, Kind.CURRENT, Kind.NET_SEND, Kind.MESSAGE_LABEL, Kind.TASKS),
        *(kind for kind in Kind if kind.name.startswith("SOCKET_")),
        *(Kind.DESCRIPTOR_STATEDUMP, Kind.FUNCTION_ENTRY, Kind.FUNCTION_EXIT),
        *(
            Kind.DISK_INSERT,
            Kind.DISK_ISSUE,
            Kind.DISK_COMPLETE,
            Kind.RECLAIM_BEGIN,
            Kind.RECLAIM_END,
        ),
    }
)
REFUSED = -11
SHORT, SLACK, TRIES = 50_000, 100_000, 4096  # holders: a try, a late timer (ns), most tries


class Context:
    def __init__(self) -> None:
        self.key = ()
        self.state = None  # what is waited for that is woken from here
        self.detail = ""
        self.cause = None  # whose doing it is: (tid, life, time, state, detail)


class Thread:
    def __init__(self, tid) -> None:
        self.tid = tid
        self.cpu = None  # where it ran last
        self.doing = "never"
        self.since = 0
        # (waker tid or None, time, state, detail, since when it was under way, who it was)
        self.wake = None
        self.awake = 0  # since when it has not slept
        # Who ended its last sleep: (life, since when awake, who had woken that one, and since,
        # the futex that it did so by).
        self.by = None
        self.chain = []  # timed sleeps that may be tries of one wait: (begin, end, call)
        self.ran = 0  # since the last of them
        self.refused = None  # the file lock that it tried to get last
        # (begin, end, holder, since, who ended the wait, refused, by the futex waited on)
        self.tries = []
        self.kept = None, 0, 0  # who woke it last, but for those that it had woken
        self.behind = None  # (life that it asked and that has its processor, when it asked)
        self.early = False  # the wake came while it was still running
        self.raced = False  # the sleep before this run was over before it began
        self.between_races = []  # (begin of the run, time of the wake in it, waker)
        self.exiting = False
        self.first = None
        self.last = None
        self.parent = self.creator = None
        self.born = None
        self.intervals = []
        self.running = State.RUN  # its state while it runs
        self.syscall = ""
        self.futex = 0  # that the call is about
        self.syscall_waits = None  # what a sleep in it is for

    def emit_run(self, end):
        if self.chain:
            self.ran += end - self.since
            if self.ran > SHORT:
                self.chain = []
        self.emit(end, self.running, self.syscall if self.running == State.RUN_SYSCALL else "")

    def emit(self, end, state, detail="", waker=None, woken=None):
        if end > self.since:
            self.intervals.append([self.since, end, state, detail, waker, woken])

    def emit_wait(self, end):
        if self.behind:
            life, asked = self.behind
            self.emit(end, State.WAIT_CPU, "", life.tid, asked)
        else:
            self.emit(end, State.WAIT_CPU)
        self.behind = None

    def touch(self, time):
        self.first = time if self.first is None else self.first
        self.last = time


def replay(
    events, runnable=(0, 256), dead=16 | 32, end=None, ksoftirqd=None, functions=None, own_ips=()
):
    """Replay; ``ksoftirqd`` has each such thread's cpu by tid, ``functions`` names by address.

    ``own_ips`` are the host's addresses.
    """
    ksoftirqd, functions = ksoftirqd or {}, functions or {}
    threads: dict[int, Thread] = {}
    lives: list[tuple[int, Thread]] = []
    current: dict[int, int] = {}
    contexts: dict[int, list] = {}
    raised: dict[int, dict] = {}  # cpu -> softirq -> its cause
    handled: dict[int, float] = {}  # cpu -> until when a softirq is an interrupt's
    senders: dict[int, set] = {}  # cpu -> of the packets that its last softirq received
    left: dict[int, int] = {}  # cpu -> the last softirq that ended
    on: dict[int, Thread] = {}  # cpu -> the life of the thread that runs
    disks = False  # whether a storage device interrupted
    locks = 0  # asked for, or given back, so far
    has_waking = any(kind == Kind.WAKING for _, _, kind, _ in events)
    has_syscalls = any(kind == Kind.SYSCALL_ENTRY for _, _, kind, _ in events)

    def thread(tid):
        if tid not in threads:
            threads[tid] = Thread(tid)
            threads[tid].awake = time
            lives.append((tid, threads[tid]))
        return threads[tid]

    def context(cpu):
        """Who wakes from here (None: no thread), since when, state and detail of the sleeper."""
        who, since, state, detail = cause_here(cpu)
        receives = contexts.get(cpu) and contexts[cpu][-1].key == ("softirq", NET_RX)
        if state == State.WAIT_NET and receives and len(senders.get(cpu, ())) == 1:
            [sender] = senders[cpu]
            if sender == "packet from this host" or (sender and detail == "NET_RX"):
                detail = sender
        return who, since, state, detail

    def cause_here(cpu):
        if contexts.get(cpu):
            entry = contexts[cpu][-1]
            if not (entry.cause and (entry.key[1] in FOLLOWED or entry.state == State.WAIT_TIMER)):
                return None, time, entry.state, entry.detail
            # Of a thread that still runs the softirq is its own work; else it was since the raise.
            waker, life, at, state, detail = entry.cause
            if waker is None:
                return None, time, state, detail
            return waker, time if life is on.get(cpu) else at, State.WAIT_TASK, ""
        if cpu not in current:
            return None, time, State.WAIT_UNEXPLAINED, "context_unknown"
        if current[cpu] == 0:
            return None, time, State.WAIT_UNEXPLAINED, "idle_waker"
        return current[cpu], time, State.WAIT_TASK, ""

    def noted(cpu):
        """Who wakes from here, and who woke that one: each with the time since it is awake."""
        if context(cpu)[0] is None:
            return None
        life = contexts[cpu][-1].cause[1] if contexts.get(cpu) else on[cpu]
        return (life, life.awake, *(life.by[:2] if life.by else (None, None)), life.futex)

    def end_try(t, until):
        """A sleep ends: it is a try of a wait, or the end of one."""
        timed = t.wake and t.wake[0] is None and t.wake[2] == State.WAIT_TIMER
        t.awake, t.by = until, t.wake[5] if t.wake else None
        if not t.by or t.by[2] is not t:
            t.kept = (*t.by[:2], until) if t.by else (None, 0, 0)
        if timed:
            call = t.syscall, t.futex
            if t.chain and (len(t.chain) >= TRIES or t.chain[-1][2] != call):
                t.chain = []
            if t.refused is not None:
                t.tries.append((t.since, until, "none", until, None, t.refused, 0))
                t.chain = []
            else:
                t.chain.append((t.since, until, call))
                t.ran = 0
        elif t.chain:
            begin, end, call = t.chain[-1]
            observed = bool(t.by and t.by[4] and t.by[4] == call[1])
            in_time = 50 * (until - t.since) <= 51 * (end - begin) + 50 * SLACK or observed
            if t.by and t.by[0] is not t and call == (t.syscall, t.futex) and in_time:
                life, awake, before, before_awake, _ = t.by
                length = end - begin
                for begin, end, _ in t.chain[::-1]:
                    if not observed and 10 * abs(end - begin - length) > length + 10 * SLACK:
                        break
                    holder = "none", end
                    if awake <= end or observed:
                        holder = life, awake
                    elif before and before is not t:
                        holder = (before, before_awake) if before_awake <= end else ("some", end)
                    t.tries.append((begin, end, *holder, life, None, int(observed)))
            t.chain = []
        t.refused = None

    def own(cpu, vec, flags):
        """The thread that runs, if a softirq can be its doing."""
        if not current.get(cpu) or ksoftirqd.get(current[cpu]) == cpu or flags & (8 | 64):
            return None
        if vec == BLOCK and disks and not flags:
            return None
        return current[cpu], on[cpu], time, None, None

    def cause_of(cpu, vec, flags):
        """What raises a softirq now."""
        if not contexts.get(cpu):
            return own(cpu, vec, flags)
        entry = contexts[cpu][-1]
        if entry.key[0] == "softirq" and entry.cause:
            waker, life, at, state, detail = entry.cause
            if waker is None and state != State.WAIT_TIMER:
                state = SOFTIRQS[vec][1]
            return waker, life, time if waker and life is on.get(cpu) else at, state, detail
        if entry.key[0] == "softirq" and entry.state == State.WAIT_TIMER:
            return None, None, time, State.WAIT_TIMER, entry.detail
        if entry.key[0] == "irq":
            return None, None, time, SOFTIRQS[vec][1], entry.detail
        return None

    def sleep_until(t, time):
        if t.doing == "stopped":
            t.awake = time
            t.emit(time, State.WAIT_STOPPED)
            return
        end_try(t, time)
        if t.wake is None:
            t.emit(time, State.WAIT_UNEXPLAINED, "no_wake")
        else:
            waker, _, state, detail, woken, _ = t.wake
            if state == State.WAIT_UNEXPLAINED and t.syscall and t.syscall_waits is not None:
                state, detail = t.syscall_waits, t.syscall
            elif state == State.WAIT_TASK and t.syscall:
                detail = t.syscall
                if t.syscall_waits in {State.WAIT_FUTEX, State.WAIT_POLL, State.WAIT_PIPE}:
                    state = t.syscall_waits
            t.emit(time, state, detail, waker, woken)

    def close(t, time):
        if t.doing == "run":
            t.emit_run(time)
        elif t.doing == "ready":
            t.emit_wait(time)
        elif t.doing in {SLEEP, "stopped"}:
            sleep_until(t, time)
        t.doing = "dead"

    def find_asker(t, asked):
        """Who woke or created a thread, since when that one had not slept, and when it asked.

        Who was asked by the thread itself answered it: then who had woken it before.
        """
        if t.by is None and t.parent and t.awake == t.born:
            return t.creator, CREATED, t.born
        if t.by and t.by[0] is asked:
            return t.kept
        return (*t.by[:2], t.awake) if t.by else (None, 0, 0)

    def begin_asked(cpu, t):
        """A thread gets a processor: whoever asked it and waits for that one waits for its work."""
        mark_askers(cpu, t, find_asker(t, 0))
        if t.by and t.by[2] is t:
            mark_askers(cpu, t, t.kept)

    def mark_askers(cpu, t, by):
        asked = t
        for depth in range(7):
            life, since, at = by
            if life is None or life is t:
                return
            if life.awake != since and not (since == CREATED and life.awake <= at):
                # It has slept since: who had woken it before that is known of the first only.
                if depth or not t.by or t.by[0] is not life:
                    return
                asked, by = life, (t.by[2], t.by[3], since)
                continue
            if life.doing == "ready" and life.cpu == cpu and not life.behind:
                life.emit(time, State.WAIT_CPU)
                life.since, life.behind = time, (t, at)
            asked, by = life, find_asker(life, asked)

    def end_asked(t):
        for _, life in lives:
            if life.behind and life.behind[0] is t:
                life.emit_wait(time)
                life.since = time

    for time, cpu, kind, f in events:
        if kind == Kind.SWITCH:
            prev, state, following = f
            if prev:
                t = thread(prev)
                t.touch(time)
                end_asked(t)
                if t.doing == "run":
                    t.emit_run(time)
                elif t.doing not in {"never", "unborn"}:
                    t.emit(time, State.UNKNOWN)
                if state in runnable:
                    t.doing = "ready"
                elif state & dead or (t.exiting and state & 192 and not state & 3):
                    t.doing = "dead"
                elif state & 12:
                    t.doing = "stopped"
                else:
                    t.doing = SLEEP
                t.since = time
                if not t.early:
                    t.wake = None
            current[cpu], on[cpu] = following, None
            if following:
                t = thread(following)
                if t.doing == "dead":
                    threads.pop(following)
                    t = thread(following)
                on[cpu] = t
                t.touch(time)
                t.raced = t.doing == SLEEP and t.early
                if t.doing == "ready" or (t.doing in {SLEEP, "stopped"} and t.wake and t.early):
                    t.emit_wait(time)
                elif t.doing in {SLEEP, "stopped"} and t.wake:
                    woken = t.wake[1]
                    sleep_until(t, woken)
                    t.since = woken
                    t.emit(time, State.WAIT_CPU)
                elif t.doing in {SLEEP, "stopped"}:
                    sleep_until(t, time)
                elif t.doing == "run":
                    t.emit(time, State.UNKNOWN)
                elif t.doing == "unborn":
                    t.since = t.born
                    t.emit(time, State.UNKNOWN)
                t.doing, t.since, t.wake, t.early = "run", time, None, False
                t.cpu = cpu
                begin_asked(cpu, t)
        elif kind in {Kind.WAKING, Kind.WAKEUP, Kind.WAKEUP_NEW}:
            (target,) = f
            if not target:
                continue
            t = thread(target)
            if t.doing == "dead":
                continue
            first = t.doing == "never" or (t.doing == "unborn" and kind == Kind.WAKEUP)
            if kind == Kind.WAKEUP_NEW or first:
                t.touch(time)
                waker = context(cpu)[0] if not contexts.get(cpu) else None
                if kind == Kind.WAKEUP_NEW and t.parent is None:
                    t.parent, t.creator = waker, on.get(cpu) if waker else None
                if kind == Kind.WAKEUP_NEW:
                    t.born = time
                if t.doing in {"never", "unborn"}:
                    t.doing, t.since, t.awake = "ready", time, time
                continue
            t.touch(time)
            if t.doing in {SLEEP, "stopped"}:
                waker, sent, state, detail = context(cpu)
                if kind == Kind.WAKING:
                    if t.wake is None or t.early:
                        t.wake, t.early = (waker, time, state, detail, sent, noted(cpu)), False
                    continue
                if t.early and has_waking:
                    continue
                if not has_waking:
                    t.wake = (waker, time, state, detail, sent, noted(cpu))
                elif t.wake is None:
                    t.wake = (None, time, State.WAIT_UNEXPLAINED, "context_unknown", time, None)
                sleep_until(t, time)
                t.doing, t.since = "ready", time
            elif t.doing == "run" and (kind == Kind.WAKING or not has_waking):
                waker, sent, state, detail = context(cpu)
                if t.raced:
                    t.between_races.append((t.since, time, waker))
                t.wake, t.early = (waker, time, state, detail, sent, noted(cpu)), True
        elif kind == Kind.FORK:
            parent, child = f
            if parent:
                thread(parent).touch(time)
            if child in threads:
                close(threads.pop(child), time)  # its exit was not seen
            t = thread(child)
            t.parent, t.born, t.since, t.doing = parent or None, time, time, "unborn"
            t.creator = thread(parent) if parent else None
            t.running = State.RUN_USER if has_syscalls else State.RUN
        elif kind == Kind.NET_RECEIVE:
            top = contexts[cpu][-1] if contexts.get(cpu) else None
            if top and top.key == ("softirq", NET_RX):
                _, address = f
                where = "this" if address in own_ips else "another"
                known = address and own_ips
                senders[cpu].add(f"packet from {where} host" if known else "")
        elif kind == Kind.FILE_LOCK:
            locks += 1
            if f[0] == REFUSED and current.get(cpu):
                on[cpu].refused = locks - 1
        elif kind == Kind.EXIT:
            thread(f[0]).touch(time)
            thread(f[0]).exiting = True
        elif kind == Kind.EXEC:
            thread(f[0]).touch(time)
        elif kind == Kind.STATEDUMP:
            tid, status = f
            t = thread(tid) if tid else None
            if t and t.doing == "never" and status == 5:
                t.doing, t.since = SLEEP, time
        elif kind in {Kind.SYSCALL_ENTRY, Kind.SYSCALL_EXIT, Kind.FUTEX}:
            if not current.get(cpu):
                continue
            t = thread(current[cpu])
            t.last = time
            if t.doing == "run":
                t.emit_run(time)
                t.since = time
            enters = kind != Kind.SYSCALL_EXIT
            t.futex = f[0] // 8 if kind == Kind.FUTEX else 0
            t.syscall = ("futex" if kind == Kind.FUTEX else f[0]) if enters else ""
            t.syscall_waits = syscall_state(t.syscall) if enters else None
            if has_syscalls:
                t.running = State.RUN_SYSCALL if enters else State.RUN_USER
        elif kind == Kind.SOFTIRQ_RAISE:
            vec, flags = f
            pending = raised.setdefault(cpu, {})
            if vec in RAISED and (vec not in pending or (pending[vec] and pending[vec][0])):
                pending[vec] = cause_of(cpu, vec, flags)
        elif kind == Kind.TIMER_FUNCTION:
            top = contexts[cpu][-1] if contexts.get(cpu) else None
            if top and top.key[0] == "softirq" and top.state == State.WAIT_TIMER:
                top.cause = None, None, time, State.WAIT_TIMER, functions.get(f[0], "TIMER")
        elif kind in {Kind.IRQ_ENTRY, Kind.SOFTIRQ_ENTRY, Kind.TIMER_ENTRY, Kind.VECTOR_ENTRY}:
            entry = Context()
            if kind == Kind.IRQ_ENTRY:
                entry.key, entry.state, entry.detail = ("irq", f[0]), device_state(f[1]), f[1]
                disks |= entry.state == State.WAIT_DISK
            elif kind == Kind.SOFTIRQ_ENTRY:
                entry.detail, entry.state = SOFTIRQS[f[0]]
                entry.key = ("softirq", f[0])
                senders[cpu] = set()
            elif kind == Kind.VECTOR_ENTRY:
                entry.key, entry.state, entry.detail = ("vector", f[0]), vector_state(f[0]), f[0]
            else:
                entry.key, entry.state, entry.detail = ("timer", 0), State.WAIT_TIMER, "hrtimer"
            stack = contexts.setdefault(cpu, [])
            if kind != Kind.SOFTIRQ_ENTRY:
                handled[cpu] = INFINITE
            else:
                if time <= handled.get(cpu, 0) and f[0] != left.get(cpu):
                    handled[cpu] = INFINITE
                if cpu in raised:
                    entry.cause = raised[cpu].pop(f[0], None)
                elif f[0] in FOLLOWED and not stack and handled.get(cpu) != INFINITE:
                    entry.cause = own(cpu, f[0], 0)
            stack.append(entry)
        elif kind in {Kind.IRQ_EXIT, Kind.SOFTIRQ_EXIT, Kind.TIMER_EXIT, Kind.VECTOR_EXIT}:
            key = {
                Kind.IRQ_EXIT: ("irq", f[0] if f else 0),
                Kind.SOFTIRQ_EXIT: ("softirq", f[0] if f else 0),
                Kind.TIMER_EXIT: ("timer", 0),
                Kind.VECTOR_EXIT: ("vector", f[0] if f else ""),
            }[kind]
            stack = contexts.setdefault(cpu, [])
            places = [i for i, entry in enumerate(stack) if entry.key == key]
            if places:
                del stack[places[-1] :]
            if kind == Kind.SOFTIRQ_EXIT:
                left[cpu] = f[0]
                handled[cpu] = time + BATCH if handled.get(cpu, 0) == INFINITE else 0
    end = end if end is not None else events[-1][0]
    for _, t in lives:
        close(t, end)
    return lives
