"""The plain twin of the page decoder: slow, obvious, from the kernel's documentation.

It shares the programs with `critpath_record.ftrace._pages`, and nothing else: it finds
records with Python's integers, runs the steps one by one and makes whole packets.
"""

from __future__ import annotations

import struct

from critpath_record.ftrace.ctf_events import HEAD, WIDTH, Step

PACKET = 1 << 16
CONTEXT = 52
EVENT = 19  # most that an event's header and context take
CURRENT = EVENT + 4
NO_THREAD = -1


class Found:
    def __init__(self):
        self.events = self.unknown = self.short = self.backward = 0
        self.first = self.last = 0
        self.missed, self.damaged, self.gathered = [], [], b""


class Twin:
    def __init__(self, layout, times, starts, words, *, large, current=(-1, -1, -1), swap=False):
        self.commit_offset, self.commit_size, self.data_offset, self.data_size = layout[:4]
        self.page_bytes, self.flags_offset, self.pid_offset = layout[4:]
        self.earliest, self.latest = times
        self.starts, self.words, self.large = starts, words, large
        self.current, self.switch, self.next_pid = current
        self.order = "big" if swap else "little"

    def pages(self, data):
        for number, at in enumerate(range(0, len(data), self.page_bytes)):
            yield number, data[at : at + self.page_bytes]

    def open(self, page):
        """Return (time, data in use, missed, damaged)."""
        if len(page) < self.data_offset:
            return 0, b"", 0, True
        time = int.from_bytes(page[:8], self.order)
        if not self.earliest <= time <= self.latest:
            return 0, b"", 0, True
        word = page[self.commit_offset : self.commit_offset + self.commit_size]
        commit = int.from_bytes(word, self.order) % (1 << 32)
        size, data = commit % (1 << 27), page[self.data_offset :]
        if size > self.data_size:
            return 0, b"", 0, True
        missed = -1 if commit >> 31 else 0
        behind = data[size : size + self.commit_size]
        if missed and commit >> 30 & 1 and len(behind) == self.commit_size:
            count = int.from_bytes(behind, self.order)
            missed = count if 0 < count < 1 << 62 else -1
        return time, data[:size], missed, len(data) < size

    def records(self, page, damage):
        """Yield (time, record); add to `damage` if the page does not hold what it says."""
        time, data, _, damaged = self.open(page)
        if damaged:
            damage.append(1)
        at = 0
        while at < len(data):
            head = data[at : at + 4]
            if len(head) < 4:
                damage.append(1)
                return
            word = int.from_bytes(head, self.order)
            kind, delta = word % 32, word // 32
            if self.order == "big":
                kind, delta = word >> 27, word % (1 << 27)
            if kind == 29 and delta == 0:
                return
            following = data[at + 4 : at + 8]
            extra = int.from_bytes(following, self.order)
            if not 1 <= kind <= 28 and len(following) < 4:
                damage.append(1)
                return
            if kind in {30, 31}:
                new = (extra << 27) + delta
                if kind == 30:
                    new += time
                elif time >> 59:
                    new |= time >> 59 << 59
                    new += (1 << 59) if new < time else 0
                time = new % (1 << 64)
                if time > self.latest:
                    damage.append(1)
                    return
                at += 8
                continue
            padded = 4 * kind if 1 <= kind <= 28 else -(-extra // 4) * 4
            begin = at + 4
            if padded < 4 or begin + padded > len(data):
                damage.append(1)
                return
            at = begin + padded
            if kind == 29:
                time += 0 if delta == 1 else delta
                continue
            time += delta
            yield time, data[begin:at] if kind else data[begin + 4 : begin + extra]

    def chosen(self, record, starts, words):
        """Return where the record's program starts, None or -1 if it has none or is short."""
        if len(record) < 2:
            return -1
        start = starts[int.from_bytes(record[:2], self.order)]
        if start < 0:
            return None
        return start if len(record) >= words[start + 1] else -1

    def scan(self, data, starts, words):
        found, gathered = Found(), []
        for number, page in self.pages(data):
            missed, damage = self.open(page)[2], []
            if missed:
                found.missed += [number, missed]
            for time, record in self.records(page, damage):
                start = self.chosen(record, self.starts, self.words)
                if start is None:
                    found.unknown += 1
                    continue
                if start < 0:
                    found.short += 1
                    continue
                found.backward += found.events > 0 and time < found.last
                found.last = max(time, found.last) if found.events else time
                found.first = found.first if found.events else time
                found.events += 1
                also = self.chosen(record, starts, words)
                if also is not None and also >= 0:
                    gathered.append(struct.pack("<Q", found.last))
                    gathered.append(steps(words[also + HEAD :], record, None, self.order))
            if damage:
                found.damaged.append(number)
        found.gathered = b"".join(gathered)
        return found

    def follow(self, on_cpu, record):
        """Return whether a switch to a record's thread is missing, and who has the cpu then."""
        if int.from_bytes(record[:2], self.order) == self.switch:
            return False, signed(record, self.next_pid, self.order)
        writer = signed(record, self.pid_offset, self.order)
        return self.current >= 0 and on_cpu not in {NO_THREAD, writer}, writer

    def write(self, data, header, cpu, span, losses, beside):
        """Return the stream file's bytes and the number of events."""
        most = max(
            (self.words[s + 2] + self.words[s + 3] * self.data_size for s in self.starts if s >= 0),
            default=0,
        )
        room = len(header) + CONTEXT + PACKET + CURRENT + EVENT + most
        stream = Stream(header, cpu, large=self.large)
        source, events, last = [beside], 0, 0
        waiting, pending = 0, list(zip(losses[::2], losses[1::2], strict=True))
        on_cpu = NO_THREAD  # not known
        for number, page in self.pages(data):
            while pending and pending[0][0] <= number:
                waiting += pending.pop(0)[1]
            for page_time, record in self.records(page, []):
                start = self.chosen(record, self.starts, self.words)
                if start is None or start < 0:
                    continue
                time = last = max(page_time, last) if events else page_time
                if waiting:
                    stream.loss(span[0], time, waiting)
                    waiting = 0
                    on_cpu = NO_THREAD
                need = CURRENT + EVENT + self.words[start + 2] + self.words[start + 3] * len(record)
                if stream.used + need > room:
                    stream.packet()
                writer = signed(record, self.pid_offset, self.order)
                context = struct.pack("<i", writer) + record[self.flags_offset :][:1]
                unexpected, on_cpu = self.follow(on_cpu, record)
                if unexpected:
                    stream.event(self.current, time, context + struct.pack("<i", on_cpu))
                    events += 1
                payload = steps(self.words[start + HEAD :], record, source, self.order)
                stream.event(self.words[start], time, context + payload)
                events += 1
            if stream.used >= PACKET:
                stream.packet()
        waiting += sum(count for _, count in pending)
        if waiting:
            stream.loss(span[0], max(span[1], last), waiting)
        elif stream.events:
            stream.packet()
        elif stream.sequence == 0:
            stream.packet(span[0], max(span))
        return bytes(stream.written), events


class Stream:
    def __init__(self, header, cpu, *, large):
        self.header, self.cpu, self.large = header, cpu, large
        self.written, self.events = bytearray(), []
        self.sequence = self.discarded = self.begin = self.last = 0

    @property
    def used(self):
        return len(self.header) + CONTEXT + sum(map(len, self.events))

    def event(self, number, time, body):
        if not self.events:
            self.begin = self.last = time
        bits, id_bits, ids = (32, 16, 65535) if self.large else (27, 5, 31)
        if time - self.last < 1 << bits and number < ids:
            low = number | time % (1 << bits) << id_bits
            head = low.to_bytes((bits + id_bits) // 8, "little")
        else:
            head = ids.to_bytes(id_bits // 8 or 1, "little") + struct.pack("<IQ", number, time)
        self.last = time
        self.events.append(head + body)

    def packet(self, begin=None, end=None):
        bits = 8 * self.used
        begin, end = (self.begin, self.last) if begin is None else (begin, end)
        self.written += self.header
        self.written += struct.pack(
            "<6QI", begin, end, bits, bits, self.sequence, self.discarded, self.cpu
        )
        self.written += b"".join(self.events)
        self.sequence += 1
        self.events = []

    def loss(self, begin, time, count):
        if self.events:
            self.packet()
        elif self.sequence == 0:
            self.packet(min(begin, time), min(begin, time))
        self.discarded += count
        self.packet(time, time)


def signed(record, at, order):
    return int.from_bytes(record[at : at + 4], order, signed=True)


def turned(content, each):
    """Return numbers of so many bytes each with their bytes in the other order."""
    return b"".join(content[at : at + each][::-1] for at in range(0, len(content), each))


def located(record, a, base, order):
    word = int.from_bytes(record[a : a + 4], order)
    begin = word % (1 << 16) + base
    return record[begin : begin + (word >> 16)]


def steps(words, record, source, order):
    out = bytearray()
    for at in range(0, len(words), WIDTH):
        kind, a, b, c = words[at : at + WIDTH]
        if kind == Step.END:
            break
        if kind == Step.COPY:
            out += record[a : a + b]
        elif kind == Step.SWAP:
            out += turned(record[a : a + b], c)
        elif kind == Step.ADD32:
            value = int.from_bytes(record[a : a + 4], order) + b
            out += struct.pack("<I", value % (1 << 32))
        elif kind == Step.TEXT_AT:
            out += located(record, a, b, order).partition(b"\0")[0] + b"\0"
        elif kind == Step.CHARS_AT:
            out += located(record, a, b, order).partition(b"\0")[0][: c - 1].ljust(c, b"\0")
        elif kind == Step.SEQUENCE_AT:
            content = located(record, a, b, order)
            content = content[: len(content) // c * c]
            content = turned(content, c) if order == "big" else content
            out += struct.pack("<I", len(content) // c) + content
        elif kind == Step.TEXT_REST:
            text = record[a:].partition(b"\0")[0]
            out += (text.removesuffix(b"\n") if b else text) + b"\0"
        elif kind == Step.SEQUENCE_REST:
            out += struct.pack("<I", len(record) - a) + record[a:]
        elif kind == Step.CONSTANT32:
            out += struct.pack("<i", a)
        elif kind == Step.BESIDE:
            content = bytes(source[0][a : a + b])
            out += content if len(content) == b else bytes(b)
        elif kind == Step.NEXT_BESIDE:
            source[0] = source[0][a:]
    return bytes(out)
