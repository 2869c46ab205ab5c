"""Worlds of threads that ask each other, on processors that a scheduler gives them by chance.

What is done is the same under every placement: `World.work` has for each thread how often it was
asked and what it did for that.  What the scheduler makes of it is in the events (`World.rows`).
"""

from __future__ import annotations

import random
from collections import deque

from critpath.model import Kind

CLIENT = 1
STRANGER = 100  # and on: threads that nobody asks


def draw_plan(rng, thread, last):
    """Steps of a thread: ("work", ns) and ("ask", thread, its steps); a peer asks no one above."""
    steps = [("work", rng.randint(5, 60))]
    for _ in range(rng.randint(0, 3) if thread < last else 0):
        peer = rng.randint(thread + 1, last)
        steps += [("ask", peer, draw_plan(rng, peer, last)), ("work", rng.randint(5, 60))]
    return steps


def add_work(plan, thread, found):
    """Add for each thread how often it is asked, and how long it works for that (ns)."""
    for step in plan:
        if step[0] == "work":
            found.setdefault(thread, [0, 0])[1] += step[1]
        else:
            found.setdefault(step[1], [0, 0])[0] += 1
            add_work(step[2], step[1], found)
    return found


class World:
    """One execution of a plan.

    Parameters
    ----------
    plan : list
    seed : int
    cpus : int
    preempts : float
        How probable it is that who is woken gets the processor of who runs there at once.
    near : float
        How probable it is that who is woken gets the waker's processor, not any.
    strangers : int
        Threads that always work, in turns with whom they meet on a processor.
    """

    def __init__(self, plan, seed, *, cpus, preempts, near, strangers):
        self.rng = random.Random(seed)  # noqa: S311 - a world, no secret
        self.cpus, self.preempts, self.near = cpus, preempts, near
        self.now, self.rows = 1000, []
        self.running = dict.fromkeys(range(cpus), 0)
        self.queues = {cpu: deque() for cpu in range(cpus)}
        self.programs = {CLIENT: iter(plan)}
        self.left, self.asked, self.asleep, self.answered = {}, {}, set(), set()
        self.begin = self.end = None
        last = max([CLIENT, *add_work(plan, CLIENT, {})])
        for cpu in range(cpus):
            self.rows.append((self.now, cpu, Kind.SWITCH, (0, 0, 0)))
        # Who is asked has slept since before the recording began.
        for thread in range(CLIENT + 1, last + 1):
            self.rows += [
                (self.now + 1, 0, Kind.SWITCH, (0, 0, thread)),
                (self.now + 2, 0, Kind.SWITCH, (thread, 1, 0)),
            ]
            self.now += 2
            self.asleep.add(thread)
        for i in range(strangers):
            self.left[STRANGER + i] = 10**9
            self.queues[i % cpus].append(STRANGER + i)
        self.queues[self.rng.randrange(cpus)].append(CLIENT)
        for cpu in range(cpus):
            self.pick(cpu)
        while CLIENT in self.programs:
            self.step()

    def switch(self, cpu, state, following):
        self.rows.append((self.now, cpu, Kind.SWITCH, (self.running[cpu], state, following)))
        self.running[cpu] = following
        if following == CLIENT and self.begin is None:
            self.begin = self.now

    def pick(self, cpu, state=0):
        following = self.queues[cpu].popleft() if self.queues[cpu] else 0
        if following != self.running[cpu]:
            self.switch(cpu, state, following)

    def advance(self, cpu):
        """Go on with whom a processor runs, until it works or sleeps."""
        while thread := self.running[cpu]:
            if self.left.get(thread):
                return
            if thread in self.asked:
                # It asked: it goes on only once it was answered.
                if self.asked[thread] not in self.answered:
                    self.asleep.add(thread)
                    self.pick(cpu, 1)
                    continue
                self.answered.discard(self.asked.pop(thread))
            step = next(self.programs[thread], None)
            if step is None:
                self.finish(cpu, thread)
                if thread == CLIENT:
                    return
            elif step[0] == "work":
                self.left[thread] = step[1]
                return
            else:
                _, peer, plan = step
                self.asked[thread] = peer
                self.programs[peer] = iter(plan)
                self.wake(cpu, peer)

    def finish(self, cpu, thread):
        del self.programs[thread]
        if thread == CLIENT:
            self.end = self.now
            self.switch(cpu, 1, 0)
            return
        self.answered.add(thread)
        asker = next(t for t, peer in self.asked.items() if peer == thread)
        if asker in self.asleep:
            self.wake(cpu, asker, answers=True)
        self.asleep.add(thread)
        # Who is answered may have the processor already; then this one sleeps when it is next on.
        if self.running[cpu] == thread:
            self.pick(cpu, 1)
        else:
            self.queues[cpu].remove(thread)

    def wake(self, cpu, thread, *, answers=False):
        self.asleep.discard(thread)
        at = cpu if self.rng.random() < self.near else self.rng.randrange(self.cpus)
        self.rows.append((self.now, cpu, Kind.WAKING, (thread, at)))
        self.rows.append((self.now, cpu, Kind.WAKEUP, (thread, at)))
        if not self.running[at]:
            self.switch(at, 0, thread)
        elif self.rng.random() < self.preempts and not (answers and at == cpu):
            self.queues[at].append(self.running[at])
            self.switch(at, 0, thread)
        else:
            self.queues[at].append(thread)

    def step(self):
        """Let whoever runs do what takes no time, then work until the first is done."""
        for cpu in range(self.cpus):
            self.advance(cpu)
            if CLIENT not in self.programs:
                return
        # What was woken meanwhile may have to go on, too.
        idle = [c for c in self.running if self.running[c] and not self.left.get(self.running[c])]
        if idle:
            return
        busy = [c for c in self.running if self.running[c]]
        length = min(self.left[self.running[c]] for c in busy)
        turns = [c for c in busy if self.queues[c]]
        if turns:
            length = min(length, self.rng.randint(1, 80))
        self.now += length
        for cpu in busy:
            self.left[self.running[cpu]] -= length
        for cpu in turns:
            thread = self.running[cpu]
            if self.left[thread] and self.rng.random() < 0.5:
                self.queues[cpu].append(thread)
                self.pick(cpu)
