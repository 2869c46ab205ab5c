"""Reads ftrace's text: ``trace``, ``trace_pipe``, what trace-cmd and perf print, systrace's pages.

Each tracepoint prints what its records hold in a form of its own.  Of those that critpath
knows, `_FORMS` says what is printed, and `_TYPES` what the kernel's fields are; records are made
of the text as the kernel would have written them.  Other tracepoints' ``key=value`` become
fields, which are numbers where every line has one, and else text.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain
from typing import IO, TYPE_CHECKING, Final, cast

from critpath.convert import _ftrace_text
from critpath.errors import UnreadableError
from critpath.units import plural, safe_text

if TYPE_CHECKING:
    from critpath.convert.raw_writer import RawWriter


class Take(IntEnum):
    """What a place in a form takes."""

    INTEGER = 0
    HEXADECIMAL = 1
    CHARACTERS = 2  # a name, in an array of the record
    TEXT = 3  # of any length, behind the record's fields
    STATE = 4  # the letters of a thread's state
    DEVICE = 5  # major,minor
    FUNCTION = 6  # a name, as a number that stands for it
    HANDLED = 7  # whether an interrupt was
    SKIPPED = 8
    STATE_OF_TRACE_CMD = 9


class Treat(IntEnum):
    """What is particular about an event; bits."""

    FORKS = 1  # its record names a new thread
    NEEDS_FLAGS = 2  # without them it would say what is not known
    MARKS = 4  # its text follows the name of a function
    PAIRS = 8  # no form: by key=value
    HEX_PAIRS = 16  # and by key: value, hexadecimal


_CHUNK: Final = 1 << 20  # bytes: what is read stays in a processor's cache
_LONGEST: Final = 1 << 16  # bytes of a line: longer ones are left out
_SETTLED: Final = 100_000_000  # ns: lines are not further out of order
_COMMON: Final = 8  # bytes of a record before its fields
_FUNCTION_NAME: Final = re.compile(r"[A-Za-z_][\w.]*")

# Kernel's fields, as their format files declare them.
_COMM: Final = "char {}[16]"
_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("prev_comm", "next_comm", "comm", "parent_comm", "child_comm"), _COMM),
    **dict.fromkeys(("oldcomm", "newcomm"), _COMM),
    **dict.fromkeys(("pid", "prev_pid", "next_pid", "parent_pid", "child_pid"), "pid_t {}"),
    "old_pid": "pid_t {}",
    "rwbs": "char {}[8]",
    **dict.fromkeys(("filename", "name", "buf"), "__data_loc char[] {}"),
    **dict.fromkeys(("prev_state", "ret"), "long {}"),
    **dict.fromkeys(("clone_flags", "hrtimer", "timer", "skbaddr", "function"), "unsigned long {}"),
    **dict.fromkeys(("sector",), "u64 {}"),
    **dict.fromkeys(("now", "id"), "s64 {}"),
    **dict.fromkeys(("nr_sector", "bytes", "len", "dev", "vec"), "unsigned int {}"),
}
_SIZES: Final = frozenset({"pid_t", "int", "unsigned int"})  # of four bytes
_SUFFIXES: Final = {
    "x": Take.HEXADECIMAL,
    "state": Take.STATE,
    "letters": Take.STATE_OF_TRACE_CMD,
    "dev": Take.DEVICE,
    "function": Take.FUNCTION,
    "handled": Take.HANDLED,
}
_PLACE: Final = re.compile(r"\{(\w*)(?::(\w+))?\}")

_WAKE: Final = (
    "comm={comm} pid={pid} prio={prio} target_cpu={target_cpu}",
    "comm={comm} pid={pid} prio={prio} success={success} target_cpu={target_cpu}",
    # trace-cmd's own
    "{comm}:{pid} [{prio}] CPU:{target_cpu}",
    "{comm}:{pid} [{prio}] success={success} CPU:{target_cpu}",
)
_SWITCH: Final = (
    "prev_comm={prev_comm} prev_pid={prev_pid} prev_prio={prev_prio}"
    " prev_state={prev_state:state} ==> next_comm={next_comm} next_pid={next_pid}"
    " next_prio={next_prio}"
)
_SWITCH_OF_TRACE_CMD: Final = (
    "{prev_comm}:{prev_pid} [{prev_prio}] {prev_state:letters} ==>"
    " {next_comm}:{next_pid} [{next_prio}]"
)
_THREAD: Final = ("comm={comm} pid={pid} prio={prio}",)
_SOFTIRQ: Final = ("vec={vec} [action={}]", "vec={vec}")
_HRTIMER: Final = (
    "hrtimer={hrtimer:x} function={function:function} now={now}",
    "hrtimer={hrtimer:x} now={now} function={function:function}",
)
_ISSUE: Final = (
    "{dev:dev} {rwbs} {bytes} ({}) {sector} + {nr_sector} {} [{comm}]",
    "{dev:dev} {rwbs} {bytes} ({}) {sector} + {nr_sector} [{comm}]",
)
_PACKET: Final = ("dev={name} skbaddr={skbaddr:x} len={len}",)
_ARGUMENTS: Final = ", ".join(f"{{args{number}:x}}" for number in range(6))
# What tracepoints print, by group and name; forms with other fields than the first that fits a
# file's lines are of other kernels.
_FORMS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "sched": {
        "sched_switch": (_SWITCH, _SWITCH_OF_TRACE_CMD),
        "sched_waking": _WAKE,
        "sched_wakeup": _WAKE,
        "sched_wakeup_new": _WAKE,
        "sched_migrate_task": (
            "comm={comm} pid={pid} prio={prio} orig_cpu={orig_cpu} dest_cpu={dest_cpu}",
        ),
        "sched_process_fork": (
            "comm={parent_comm} pid={parent_pid} child_comm={child_comm} child_pid={child_pid}",
        ),
        "sched_process_exec": ("filename={filename} pid={pid} old_pid={old_pid}",),
        "sched_process_exit": (*_THREAD, "comm={comm} pid={pid} prio={prio} group_dead={}"),
        "sched_process_free": _THREAD,
        "sched_process_wait": _THREAD,
        "sched_wait_task": _THREAD,
        "sched_pi_setprio": ("comm={comm} pid={pid} oldprio={oldprio} newprio={newprio}",),
    },
    "task": {
        "task_newtask": (
            "pid={pid} comm={comm} clone_flags={clone_flags:x} oom_score_adj={oom_score_adj}",
        ),
        "task_rename": (
            "pid={pid} oldcomm={oldcomm} newcomm={newcomm} oom_score_adj={oom_score_adj}",
        ),
    },
    "irq": {
        "irq_handler_entry": ("irq={irq} name={name}",),
        "irq_handler_exit": ("irq={irq} ret={ret:handled}",),
        "softirq_entry": _SOFTIRQ,
        "softirq_exit": _SOFTIRQ,
        "softirq_raise": _SOFTIRQ,
    },
    "timer": {
        "hrtimer_expire_entry": _HRTIMER,
        "hrtimer_expire_exit": ("hrtimer={hrtimer:x}",),
        "hrtimer_cancel": ("hrtimer={hrtimer:x}",),
        "timer_expire_entry": (
            "timer={timer:x} function={function:function} now={now} baseclk={}",
            "timer={timer:x} function={function:function} now={now}",
        ),
        "timer_expire_exit": ("timer={timer:x}",),
    },
    "block": {
        "block_rq_insert": _ISSUE,
        "block_rq_issue": _ISSUE,
        "block_rq_complete": (
            "{dev:dev} {rwbs} ({}) {sector} + {nr_sector} {} [{error}]",
            "{dev:dev} {rwbs} ({}) {sector} + {nr_sector} [{error}]",
        ),
    },
    "net": {
        "net_dev_queue": _PACKET,
        "netif_receive_skb": _PACKET,
        "netif_rx": _PACKET,
        "net_dev_xmit": ("dev={name} skbaddr={skbaddr:x} len={len} rc={rc}",),
    },
    "raw_syscalls": {
        "sys_enter": (f"NR {{id}} ({_ARGUMENTS})",),
        "sys_exit": ("NR {id} = {ret}",),
    },
    "ftrace": {"print": ("{buf}",)},
}
_GROUPS: Final = {name: group for group, names in _FORMS.items() for name in names}
# The group of other tracepoints, which the text does not name: by how their names begin.
_BEGINNINGS: Final = {
    **{f"{group}_": group for group in ("sched", "irq", "timer", "block", "task", "signal")},
    **dict.fromkeys(("softirq_", "tasklet_"), "irq"),
    **dict.fromkeys(("hrtimer_", "itimer_", "tick_"), "timer"),
    **dict.fromkeys(("net_dev_", "netif_"), "net"),
    **{f"sys_{side}_": "syscalls" for side in ("enter", "exit")},
    **dict.fromkeys(("cpu_idle", "cpu_frequency", "suspend_resume", "clock_set_rate"), "power"),
    **{
        f"{vector}_{side}": "irq_vectors"
        for vector in (
            *("local_timer", "reschedule", "call_function", "call_function_single", "irq_work"),
            *("thermal_apic", "threshold_apic", "deferred_error_apic", "error_apic"),
            *("spurious_apic", "x86_platform_ipi"),
        )
        for side in ("entry", "exit")
    },
}
_OTHER: Final = "text"
_MARKERS: Final = frozenset({"", "tracing_mark_write", "print", "bputs", "bprint"})
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
# Arguments of system calls that are numbers with a sign.
_DESCRIPTORS: Final = frozenset({"fd", "dfd", "oldfd", "newfd", "fildes", "out_fd", "in_fd"})
_FIRST_NUMBER: Final = 16  # common_type

Places = list[tuple[int, int, int, bytes]]
Declared = tuple[int, int, int, int, list[tuple[bytes, Places]], list[tuple[bytes, bool]]]


@dataclass
class _Layout:
    """Fields of a record, as they are added."""

    lines: list[str] = field(default_factory=list)
    places: dict[str, tuple[int, int, bool]] = field(default_factory=dict)  # offset, size, located
    size: int = _COMMON

    def add(self, declaration: str) -> None:
        """Add a field by its C declaration."""
        kind, _, name = declaration.rpartition(" ")
        name, _, array = name.partition("[")
        located = kind.startswith("__data_loc")
        size = 4 if located or kind in _SIZES else 8
        if array:
            size = int(array[:-1]) * (1 if kind == "char" else 8)
        self.size += -self.size % (1 if kind == "char" else min(size, 8))
        signed = int(not array and not located and not kind.startswith("u"))
        self.lines.append(
            f"\tfield:{declaration};\toffset:{self.size};\tsize:{size};\tsigned:{signed};"
        )
        self.places[name] = self.size, size, located
        self.size += size

    def describe(self, name: str, number: int) -> str:
        """Return the event's format file."""
        common = (
            "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;",
            "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;",
            "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;",
            "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;",
        )
        return "\n".join(
            [f"name: {name}", f"ID: {number}", "format:", *common, "", *self.lines, ""]
        )


def _compile_form(form: str, layout: _Layout) -> tuple[bytes, Places]:
    """Return a form as the parser takes it."""
    texts = _PLACE.split(form)
    places: Places = []
    for name, suffix, behind in zip(texts[1::3], texts[2::3], texts[3::3], strict=True):
        offset, size, located = layout.places.get(name, (0, 0, False))
        if not name:
            take = Take.SKIPPED
        elif suffix:
            take = _SUFFIXES[suffix]
        elif located:
            take = Take.TEXT
        else:
            take = Take.CHARACTERS if "[" in _TYPES.get(name, "") else Take.INTEGER
        places.append((take, offset, size, behind.encode()))
    return texts[0].encode(), places


def _list_fields(form: str) -> list[str]:
    return [place[1] for place in _PLACE.finditer(form) if place[1]]


class _Events:
    """What the events of a text are: asked by the parser when it meets their names.

    Attributes
    ----------
    layouts : dict
        By group and name; without those whose fields are learned.
    numbers : dict
        common_type of each, by group and name.
    paired : dict
        Those whose fields are learned, by the name in the text.
    """

    def __init__(self, learned: Mapping[bytes, list[tuple[bytes, bool]]]) -> None:
        self._learned = learned
        self.layouts: dict[tuple[str, str], _Layout] = {}
        self.numbers: dict[tuple[str, str], int] = {}
        self.paired: dict[bytes, tuple[str, str]] = {}

    def declare(self, raw_name: bytes, raw_group: bytes, line: bytes) -> Declared:
        """Return what the parser has to know of an event, of which this is the first line."""
        name = raw_name.decode("ascii", "replace").replace("-", "_")
        group = raw_group.decode("ascii", "replace")
        treat = 0
        if name in _MARKERS and group in {"", "ftrace"}:
            treat = 0 if name in {"", "tracing_mark_write"} else Treat.MARKS
            group, name = "ftrace", "print"
        if not _PLAIN.fullmatch(name) or (group and not _PLAIN.fullmatch(group)):
            return -1, _COMMON, 0, 0, [], []
        group = group or _GROUPS.get(name) or _find_group(name)
        of = group, name
        number = self.numbers.setdefault(of, _FIRST_NUMBER + len(self.numbers))
        forms = _FORMS.get(group, {}).get(name, ())
        if group == "syscalls" and name.startswith("sys_exit_"):
            forms = ("{ret:x}",)
        if not forms:
            self.paired[raw_name] = of
            learned = self._learned.get(raw_name, [])
            treat = Treat.HEX_PAIRS if group == "syscalls" else Treat.PAIRS
            return number, _COMMON + 8 * len(learned), treat, 0, [], learned
        if of not in self.layouts:
            self.layouts[of] = _lay_out(_choose_form(forms, line))
        layout = self.layouts[of]
        if name == "softirq_raise":
            treat |= Treat.NEEDS_FLAGS
        child = layout.places.get("child_pid")
        if name == "task_newtask":
            child = layout.places["pid"]
        if child:
            treat |= Treat.FORKS
        compiled = [
            _compile_form(form, layout)
            for form in forms
            if {*_list_fields(form)} <= layout.places.keys()
        ]
        return number, layout.size, treat, child[0] if child else 0, compiled, []


def _find_group(name: str) -> str:
    return next((of for begin, of in _BEGINNINGS.items() if name.startswith(begin)), _OTHER)


def _choose_form(forms: tuple[str, ...], line: bytes) -> str:
    """Return the form that a line has, of several that with most fields; else the first."""
    text = line.decode("utf-8", "replace").rstrip()
    fits = [
        form
        for form in forms
        if re.fullmatch(".*?".join(map(re.escape, _PLACE.split(form)[::3])), text)
    ]
    return max(fits or forms[:1], key=lambda form: len(_list_fields(form)))


def _lay_out(form: str) -> _Layout:
    """Return the record that has the fields of a form."""
    layout = _Layout()
    for name in _list_fields(form):
        if name.startswith("args"):
            # One field has all arguments.
            if name == "args0":
                layout.add("unsigned long args[6]")
            at = layout.places["args"][0] + 8 * int(name[4:])
            layout.places[name] = at, 8, False
        else:
            layout.add(_TYPES.get(name, "int {}").format(name))
    return layout


def _lay_out_pairs(group: str, pairs: list[tuple[bytes, bool]]) -> _Layout:
    """Return the record of what was learned: eight bytes for each field."""
    layout = _Layout()
    for key, numeric in pairs:
        name = key.decode("ascii", "replace").replace(".", "_") or "text"
        if name.startswith("common_") or not _PLAIN.fullmatch(name):
            name = f"field_{name}"
        while name in layout.places:
            name += "_"
        kind = "s64"
        if group == "syscalls":
            kind = "int" if name in _DESCRIPTORS else "unsigned long"
        size = 8 if numeric else 4
        declared = f"{kind} {name}" if numeric else f"__data_loc char[] {name}"
        signed = int(numeric and kind == "s64")
        layout.lines.append(
            f"\tfield:{declared};\toffset:{layout.size};\tsize:{size};\tsigned:{signed};"
        )
        layout.places[name] = layout.size, size, not numeric
        layout.size += 8
    return layout


# ------------------------------------------------------------------------------------------ files


_SECTION: Final = re.compile(
    rb"<script[^>]{0,100}class=[\"']trace-data[\"'][^>]{0,100}>|var linuxPerfData = \"(?:\\\n)?"
)
_SECTION_END: Final = re.compile(rb"</script>")
_LEGACY_END: Final = re.compile(rb"(?:[ ]{0,99}\\n)?\";\r?\n")
_PACKED: Final = b"TRACE:\n\x78"  # and what zlib has behind its first byte
_HEADER: Final = {
    "kernel": re.compile(
        rb"^# (?:os release : |\w+ latency trace v\S+ on )(\S{1,100})", re.MULTILINE
    ),
    "name": re.compile(rb"^# hostname : (\S{1,100})", re.MULTILINE),
    "machine": re.compile(rb"^# arch : (\S{1,100})", re.MULTILINE),
}


def is_ftrace_text(head: bytes) -> bool:
    """Tell whether a file that begins so is ftrace's text, alone or in a page of systrace."""
    if head.startswith(_PACKED):
        return True
    if b"\0" in head[:4096]:
        return False
    if head[:1024].lstrip()[:1] == b"<":
        return b"trace-data" in head or b"linuxPerfData" in head or b"<html" in head[:1024].lower()
    return b"# tracer:" in head[:4096] or bool(_ftrace_text.count_heads(head))


def _unpack(stream: IO[bytes], writer: RawWriter) -> Iterator[bytes]:
    """Yield the text that ``atrace -z`` packed."""
    stream.seek(len(_PACKED) - 1)
    packed, unpack = stream.read(_CHUNK), zlib.decompressobj()
    while packed and not unpack.eof:
        try:
            yield unpack.decompress(packed, _CHUNK)
        except zlib.error as error:
            writer.warn(f"the packed text is damaged: what is behind is missing ({error})")
            return
        packed = unpack.unconsumed_tail or stream.read(_CHUNK)
    if not unpack.eof:
        writer.warn("the packed text is cut off: its end is missing")


def _read_blocks(stream: IO[bytes], writer: RawWriter) -> Iterator[memoryview]:
    """Yield whole lines, many at once; each block is there until the next is asked for."""
    stream.seek(0)
    unpacked = None
    if stream.read(len(_PACKED)) == _PACKED:
        unpacked = _unpack(stream, writer)
    else:
        stream.seek(0)
    # A line that is too long is given in parts: the parser counts them.
    buffer = bytearray(_CHUNK + _LONGEST)
    view, kept = memoryview(buffer), 0
    while True:
        if unpacked is None:
            size = cast("io.BufferedIOBase", stream).readinto(view[kept : kept + _CHUNK])
        else:
            chunk = next(unpacked, b"")
            size = len(chunk)
            buffer[kept : kept + size] = chunk
        if not size:
            break
        there = kept + size
        end = buffer.rfind(b"\n", 0, there) + 1
        if there - end > _LONGEST:
            end = there
        yield view[:end]
        kept = there - end
        view[:kept] = view[end:there]
    yield view[:kept]


def _read_page(blocks: Iterator[memoryview]) -> Iterator[bytes]:
    """Yield the lines of the sections of a systrace page that are ftrace's text."""
    inside = wanted = legacy = False
    for lines in blocks:
        block, at = bytes(lines), 0
        while at < len(block):
            if not inside:
                begin = _SECTION.search(block, at)
                if begin is None:
                    break
                at, inside = begin.end(), True
                legacy = begin[0].startswith(b"var")
                # Other sections are JSON, or what `ps` printed, which has no event.
                wanted = block[at : at + 64].lstrip()[:1] not in {b"{", b"["}
            end = (_LEGACY_END if legacy else _SECTION_END).search(block, at)
            text = block[at : end.start() if end else len(block)]
            if wanted:
                yield text.replace(b"\\n\\\n", b"\n").replace(b'\\"', b'"') if legacy else text
            at = end.end() if end else len(block)
            inside = end is None


def _read(
    stream: IO[bytes], writer: RawWriter, learned: Mapping[bytes, list[tuple[bytes, bool]]]
) -> tuple[_Events, _ftrace_text.TextParser, _ftrace_text.PageWriter]:
    """Read a text from its begin into pages."""
    events = _Events(learned)
    pages = _ftrace_text.PageWriter(str(writer.directory), held=True)
    parser = _ftrace_text.TextParser(pages, events.declare)
    blocks = _read_blocks(stream, writer)
    first = next(blocks)
    head = bytes(first[: 1 << 16])
    for key, expression in _HEADER.items():
        if found := expression.search(head):
            writer.host[key] = safe_text(found[1].decode("utf-8", "replace"))
    whole = chain((first,), blocks)
    for block in _read_page(whole) if head.lstrip()[:1] == b"<" else whole:
        parser.feed(block)
        pages.flush_until(max(0, parser.newest - _SETTLED))
    return events, parser, pages


def write_raw(stream: IO[bytes], writer: RawWriter) -> None:
    """Write what a text holds as a raw directory, all but `RawWriter.finish`.

    Where a line shows that fields are otherwise than the lines before had them (a text where
    numbers were, one more), the rest is read for that only, and then all once more.
    """
    events, parser, pages = _read(stream, writer, {})
    if parser.changed:
        for file in writer.directory.glob("cpu*"):
            file.unlink()
        learned = {name: pairs for name, _, _, pairs in parser.list_events() if pairs}
        events, parser, pages = _read(stream, writer, learned)
    for cpu, count in parser.list_lost():
        pages.add_loss(cpu, parser.newest, max(count, 0))
    written = pages.close()
    if not any(records for records, *_ in written.values()):
        raise _explain_nothing(parser, writer)
    writer.clock = "unknown"
    _add_formats(events, parser, writer)
    for tid, tgid, comm in parser.list_threads():
        writer.add_thread(tid, tgid, comm.decode("utf-8", "replace"))
    writer.take_pages(written)
    _count_overwritten(parser, sorted(written), writer)
    functions = [safe_text(name.decode("utf-8", "replace")) for name in parser.list_functions()]
    writer.host["timer_functions"] = ",".join(
        f"{number:x}={name}"
        for number, name in enumerate(functions, 1)
        if _FUNCTION_NAME.fullmatch(name)
    )
    _warn(parser, writer)


def _explain_nothing(parser: _ftrace_text.TextParser, writer: RawWriter) -> UnreadableError:
    if parser.calls:
        return UnreadableError(
            f"{writer.file}: has calls of functions and no events",
            "record events: write nop to current_tracer, and 1 to events/sched/enable",
        )
    return UnreadableError(
        f"{writer.file}: no line of it has a time in seconds and an event",
        "critpath reads `trace` and `trace_pipe` of tracefs, and what `trace-cmd report`,"
        " `perf script` and systrace print, with the clocks local, global, mono or boot",
    )


def _add_formats(events: _Events, parser: _ftrace_text.TextParser, writer: RawWriter) -> None:
    for (group, name), layout in events.layouts.items():
        writer.add_format(group, layout.describe(name, events.numbers[group, name]))
    for raw_name, written, _, pairs in parser.list_events():
        of = events.paired.get(raw_name)
        if of is not None and written:
            layout = _lay_out_pairs(of[0], pairs)
            writer.add_format(of[0], layout.describe(of[1], events.numbers[of]))


def _count_overwritten(parser: _ftrace_text.TextParser, cpus: list[int], writer: RawWriter) -> None:
    """Count what the buffer had no room for before the text begins."""
    if parser.overwritten and cpus:
        writer.lose(cpus[0], parser.overwritten - parser.placed)
        writer.warn(
            f"{plural(parser.overwritten, 'event')} had been overwritten before the text begins:"
            " it does not say of which cpus, so that each is given as many"
        )


def _warn(parser: _ftrace_text.TextParser, writer: RawWriter) -> None:
    """Say what of the text was not taken."""
    if parser.rounded:
        writer.warn("times are rounded to 1 µs; lines of the same µs stay in their order")
    for name, _, left_out, _ in parser.list_events():
        if left_out:
            shown = safe_text(name.decode("utf-8", "replace")) or "marks"
            writer.warn(
                f"{plural(left_out, 'line')} of {shown} left out: of a form that is not known"
            )
    if parser.unknown:
        shown = safe_text(parser.first_unknown.decode("utf-8", "replace").strip())
        writer.warn(f"{plural(parser.unknown, 'line')} left out, which are no events: {shown!r}")
    for count, what in (
        (parser.too_long, "longer than any that the kernel makes"),
        (parser.calls, "calls of functions, no events"),
        (parser.stacks, "of call stacks, which are not read from text"),
        (
            parser.without_flags,
            "of softirq_raise: the text does not say whether in an interrupt",
        ),
    ):
        if count:
            writer.warn(f"{plural(count, 'line')} left out: {what}")
