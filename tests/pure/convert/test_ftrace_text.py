"""Texts of ftrace: what the kernel and other tools printed, and made ones of known truth."""

from __future__ import annotations

import random
import re
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import ftrace_print as printer

from critpath.convert import convert_foreign, identify_foreign
from critpath.errors import CritpathError, UnreadableError
from critpath.read.traces import read_events

ARCHIVE = Path(__file__).resolve().parents[3] / "fixtures" / "ftrace-text" / "printed.tar.xz"
SAME = ("trace.txt", "tgid.txt", "latency.txt", "report.txt")
COUNTED = ("sched_switch", "sched_waking", "sched_wakeup", "sched_wakeup_new")
LTTNG = {
    "irq_softirq_entry": "softirq_entry",
    "irq_softirq_exit": "softirq_exit",
    "irq_softirq_raise": "softirq_raise",
}
RENAMED = {
    "prev_tid": "prev_pid",
    "next_tid": "next_pid",
    "tid": "pid",
    "old_tid": "old_pid",
    "parent_tid": "parent_pid",
    "child_tid": "child_pid",
}
MADE = {"lttng_statedump", "critpath_current"}


@pytest.fixture
def printed(unpack):
    return unpack(ARCHIVE)


def convert(place: Path, file: Path):
    place.mkdir()
    return convert_foreign(file, place)


@pytest.fixture
def read(tmp_path, rows):
    """Return a function: what a file's events are, without those that conversion makes."""

    def of(file: Path):
        number = len(list(tmp_path.glob("read*")))
        made = convert(tmp_path / f"read{number}", file)
        found, _ = rows(tmp_path / f"read{number}" / "trace")
        return [row for row in found if not row[2].startswith(tuple(MADE))], made.manifest

    return of


@pytest.fixture
def read_text(tmp_path, read):
    def of(text: str | bytes):
        file = tmp_path / "text"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read(file)

    return of


# -------------------------------------------------------------------------- texts of other tools


@pytest.mark.parametrize("name", [*SAME, "script.txt", "overrun.txt", "pipe.txt"])
def test_as_many_switches_and_wakes_as_the_text_has(printed, read, name):
    text = (printed / name).read_text()
    assert identify_foreign(printed / name) == "ftrace's text"
    found, manifest = read(printed / name)
    for event in COUNTED:
        lines = len(re.findall(rf" (?:sched:)?{event}: ", text))
        assert sum(row[2] == event for row in found) == lines, event
    lines = len(re.findall(r"\d+(\.\d{6}:|us.?:)", text.replace("us :", "us:")))
    left_out = len(re.findall("softirq_raise: ", text)) * (name in {"report.txt", "script.txt"})
    assert len(found) == lines - left_out == manifest.recorder["event_count"]
    assert any("softirq_raise" in w for w in manifest.warnings) == bool(left_out)
    assert not any("form that is not known" in w or "no events" in w for w in manifest.warnings)


def test_the_same_events_in_four_forms_are_the_same(printed, read):
    """But for what a form does not have: when the first event was, flags, how a state is shown."""
    names, bases = {}, {}
    for name in SAME:
        found, _ = read(printed / name)
        bases[name] = found[0][0]
        names[name] = [
            (
                (time - bases[name] + 500) // 1000,
                cpu,
                event,
                {k: v for k, v in fields.items() if k in {"tid", "next_tid", "buf", "vec", "irq"}},
            )
            for time, cpu, event, fields in found
            if event != "irq_softirq_raise"
        ]
    assert names["tgid.txt"] == names["trace.txt"]
    assert [row[1:] for row in names["latency.txt"]] == [row[1:] for row in names["trace.txt"]]
    assert [row[1:] for row in names["report.txt"]] == [row[1:] for row in names["trace.txt"]]


def test_what_was_overwritten_and_lost_is_lost(printed, read):
    _, manifest = read(printed / "overrun.txt")
    assert sum(loss.events for loss in manifest.loss) == 5294 - 1322
    said = int(re.search(r"LOST (\d+) EVENTS", (printed / "pipe.txt").read_text())[1])
    _, manifest = read(printed / "pipe.txt")
    assert [loss.events for loss in manifest.loss] == [said]


def test_losses_have_their_place(tmp_path, read_text):
    lines = [switch(0, 1000 * (number + 1)) for number in range(4)]
    text = "".join([*lines[:2], "CPU:0 [LOST 7 EVENTS]\n", *lines[2:], "CPU:1 [LOST EVENTS]\n"])
    _, manifest = read_text(text)
    events = read_events(tmp_path / "read0" / "trace", ())
    [loss] = [x for x in events.losses if x.events == 7]
    assert (loss.begin, loss.end) == (2000, 3000)
    assert [(x.cpu, x.events) for x in manifest.loss] == [(0, 7), (1, 1)]


# -------------------------------------------------------------------------- texts of known truth


def switch(cpu, ns, **other):
    fields = {"prev_comm": "a", "prev_pid": 1, "prev_prio": 120, "prev_state": 0}
    fields |= {"next_comm": "b", "next_pid": 2, "next_prio": 120, **other}
    return printer.trace(cpu, ns, "a", 1, 0, "sched_switch", fields)


NAMES = st.one_of(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=15),
    st.sampled_from(
        ("<...>", "a b", "x-12", "a [000]", "b:7 [1] R", "kworker/0:1H-ev", "(1)", "p prev_pid=3")
    ),
)
PIDS = st.integers(1, 4_194_304)
PRIORITIES = st.integers(0, 139)
WAKE = st.fixed_dictionaries(
    {"comm": NAMES, "pid": PIDS, "prio": PRIORITIES, "target_cpu": st.integers(0, 200)}
)
TEXTS = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FFF), min_size=1, max_size=40
).filter(lambda text: text.strip() == text and text.isprintable())
EVENTS = st.one_of(
    *(st.tuples(st.just(name), WAKE) for name in ("sched_waking", "sched_wakeup")),
    st.tuples(
        st.just("sched_switch"),
        st.fixed_dictionaries(
            {
                **{f"{side}_comm": NAMES for side in ("prev", "next")},
                **{f"{side}_pid": PIDS for side in ("prev", "next")},
                **{f"{side}_prio": PRIORITIES for side in ("prev", "next")},
                "prev_state": st.sampled_from((0, 1, 2, 4, 8, 16, 32, 64, 128, 3, 129)),
            }
        ),
    ),
    st.tuples(
        st.just("sched_process_exec"),
        st.fixed_dictionaries({"filename": TEXTS, "pid": PIDS, "old_pid": PIDS}),
    ),
    st.tuples(
        st.just("irq_handler_entry"),
        st.fixed_dictionaries({"irq": st.integers(0, 5000), "name": TEXTS}),
    ),
    st.tuples(
        st.just("irq_handler_exit"),
        st.fixed_dictionaries({"irq": st.integers(0, 5000), "ret": st.integers(0, 1)}),
    ),
    st.tuples(st.just("softirq_entry"), st.fixed_dictionaries({"vec": st.integers(0, 9)})),
    st.tuples(st.just("print"), st.fixed_dictionaries({"buf": TEXTS})),
)
STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 5_000_000), NAMES, PIDS, EVENTS),
    min_size=1,
    max_size=12,
)
PRINTERS = {"trace": printer.trace, "report": printer.report, "script": printer.script}


def shown(name, fields):
    """Return a row's fields as the kernel has them, as far as they are printed."""
    found = {RENAMED.get(key, key): value for key, value in fields.items()}
    for key in ("prio", "prev_prio", "next_prio"):
        if key in found:
            found[key] += 100
    return LTTNG.get(name, name), found


@pytest.mark.parametrize("kind", PRINTERS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=STEPS)
def test_what_is_printed_is_read(tmp_path_factory, rows, kind, steps):
    """Names that look like the text around them included; times to the µs, or the ns."""
    place = tmp_path_factory.mktemp("text")
    clock, written, lines = 10**9, [], []
    for cpu, step, comm, pid, (name, fields) in steps:
        clock += step
        written.append((clock, cpu, name, fields))
        lines.append(PRINTERS[kind](cpu, clock, comm, pid, 0, name, fields))
    file = place / "text"
    file.write_text("".join(["# tracer: nop\n", *lines]))
    convert(place / "made", file)
    found, _ = rows(place / "made" / "trace")
    found = [row for row in found if not row[2].startswith(tuple(MADE))]
    assert len(found) == len(written)
    order = list(range(len(written)))
    if kind != "trace":
        order.sort(key=lambda at: (written[at][0], written[at][1]))
        found.sort(key=lambda row: (row[0], row[1]))
    for at, (time, cpu, event, fields) in zip(order, found, strict=True):
        expected_time, expected_cpu, name, expected = written[at]
        most = 500 + len(written) if kind == "trace" else 0
        assert abs(time - expected_time) <= most
        got, values = shown(event, fields)
        assert (cpu, got) == (expected_cpu, name)
        assert {key: values[key] for key in expected} == expected


def test_an_own_recording_printed_is_read_as_it_was(unpack, tmp_path, rows, read_text):
    """Every event of a recording by critpath that has a printed form here, to the ns."""
    from critpath_record.ftrace.convert import convert as convert_raw  # noqa: PLC0415 - only here

    raw = ARCHIVE.parents[1] / "ftrace-raw" / "minimal.tar.xz"
    convert_raw(unpack(raw) / "minimal", tmp_path / "own", lambda _: None)
    own, lines = [], []
    for time, cpu, event, fields in rows(tmp_path / "own")[0]:
        name, found = shown(event, fields)
        try:
            line = printer.report(cpu, time, "other", fields.get("tid", 7), 0, name, found)
        except KeyError:
            continue
        own.append((time, cpu, event, fields))
        lines.append(line)
    assert len(own) > 1000
    found, _ = read_text("".join(["cpus=2\n", *lines]))
    assert len(found) == len(own) - sum(row[2] == "irq_softirq_raise" for row in own)
    kept = [row for row in own if row[2] != "irq_softirq_raise"]
    for (time, cpu, event, fields), (was, on, name, expected) in zip(found, kept, strict=True):
        assert (time, cpu, event) == (was, on, name)
        # Not in that text: processes and namespaces of forks, flags; R+ is R.
        unknown = {"parent_pid", "child_pid", "parent_ns_inum", "child_ns_inum", "common_flags"}
        for key in fields.keys() & expected.keys() - unknown:
            if key == "prev_state":
                assert fields[key] == expected[key] & ~printer.PLUS
            else:
                assert fields[key] == expected[key], (event, key)


def test_lines_of_the_same_microsecond_stay_in_their_order(read_text):
    text = "".join(switch(number % 3, 5000, next_pid=number) for number in range(1, 40))
    found, manifest = read_text(text)
    assert [row[3]["next_tid"] for row in found] == list(range(1, 40))
    assert found[-1][0] - found[0][0] == 38
    assert any("1 µs" in warning for warning in manifest.warnings)


def test_other_tracepoints_have_fields(read_text):
    head = "      a-1     [000] ..... 1.00000{}: "
    found, _ = read_text(
        head.format(1)
        + "mine: n=3 text=a b addr=0xffff left [x=1]\n"
        + head.format(2)
        + "mine: n=4 text=c addr=(null) left [x=2]\n"
        + head.format(3)
        + "app: dev 8,0 ino 5\n"
        + head.format(4)
        + "sys_openat(dfd: ffffff9c, filename: 7fff0001, flags: 80000, mode: 0)\n"
        + head.format(5)
        + "sys_openat -> 0x3\n"
        + head.format(6)
        + "sys_exit_group(error_code: 0x0)\n"
        + head.format(7)
        + "0: B|1|work\n"
    )
    mine = [fields for *_, name, fields in found if name == "mine"]
    assert [one["n"] for one in mine] == [3, 4]
    assert [one["text"] for one in mine] == ["a b", "c"]
    assert [one["addr"] for one in mine] == ["0xffff left", "(null) left"]
    assert [one["x"] for one in mine] == [1, 2]
    by_name = {name: fields for *_, name, fields in found}
    assert by_name["app"]["text"] == "dev 8,0 ino 5"
    assert by_name["syscall_entry_openat"]["filename"] == 0x7FFF0001
    assert by_name["syscall_exit_openat"]["ret"] == 3
    assert "syscall_entry_exit_group" in by_name
    assert by_name["print"]["buf"] == "B|1|work"


def test_texts_of_android_and_of_old_kernels(read_text):
    """Four flags, names of 16 letters, ``success``, an end without a process; as in public ones."""
    found, manifest = read_text(
        "Android.launcher-584   [001] d..3 12622.506890: sched_switch: prev_comm=Android.launcher"
        " prev_pid=584 prev_prio=120 prev_state=R+ ==> next_comm=Binder_1 next_pid=217"
        " next_prio=120\n"
        "       Binder_1-217   [001] d..3 12622.506918: sched_switch: prev_comm=Binder_1"
        " prev_pid=217 prev_prio=120 prev_state=D|W ==> next_comm=Android.launcher next_pid=584"
        " next_prio=120\n"
        "Android.launcher-584   [001] d..4 12622.506936: sched_wakeup: comm=Binder_1 pid=217"
        " prio=120 success=1 target_cpu=001\n"
        "Binder_2-127  ( 127) [001] ...1 12623.431906: tracing_mark_write: E\n"
        "     tlc_server-1234  [000]12624.000001: tracing_mark_write: B|127|x\n"
    )
    assert not any("left out" in warning for warning in manifest.warnings)
    first, second, wake, end, begin = (row[3] for row in found)
    assert (first["prev_comm"], first["prev_state"], first["next_tid"]) == (
        *("Android.launche", 256),
        217,
    )
    assert second["prev_state"] & 2
    assert (wake["success"], wake["tid"]) == (1, 217)
    assert (end["buf"], begin["buf"]) == ("E", "B|127|x")


def test_fields_that_turn_out_otherwise_are_learned_anew(read_text):
    line = "      a-1     [000] ..... 1.000{:03}: mine: {}\n"
    values = ["n=1 m=2", "n=2 m=3", "n=x m=4", "n=5", "n=6 m=7 more=8"]
    found, _ = read_text("".join(line.format(n, value) for n, value in enumerate(values)))
    fields = [row[3] for row in found]
    assert [one["n"] for one in fields] == ["1", "2", "x", "5", "6"]
    assert [one["m"] for one in fields] == ["2", "3", "4", "", "7"]
    assert [one["more"] for one in fields] == ["", "", "", "", "8"]


def test_processes_are_those_that_the_text_names(tmp_path, read_text, rows):
    fields = {"parent_comm": "a", "parent_pid": 5, "child_comm": "a", "child_pid": 9}
    text = printer.trace(0, 1000, "a", 5, 0, "sched_process_fork", fields, tgid=4)
    text += printer.trace(0, 2000, "b", 7, 0, "print", {"buf": "x"}, tgid=0)
    found, _ = read_text(text)
    assert found[0][3]["parent_pid"] == 4
    dumped = [row[3] for row in rows(tmp_path / "read0" / "trace")[0] if "process_state" in row[2]]
    assert [(row["tid"], row["pid"], row["name"]) for row in dumped] == [(5, 4, "a")]


# --------------------------------------------------------------------------------------- containers


def test_pages_of_systrace_and_packed_text(read_text):
    text = "# tracer: nop\n#\n" + "".join(switch(0, 1000 * n) for n in range(1, 30))
    plain, _ = read_text(text)
    sections = (
        "<!DOCTYPE html>\n<html><head><title>Android System Trace</title></head><body>\n"
        '<!-- BEGIN TRACE -->\n  <script class="trace-data" type="application/text">\n'
        f'{text}  </script>\n  <script class="trace-data" type="application/text">\n'
        '{"traceEvents": [{"category": "x"}]}\n  </script>\n<!-- END TRACE -->\n</body></html>\n'
    )
    legacy = (
        '<!DOCTYPE HTML>\n<html><body>\n<script>\n  var linuxPerfData = "\\\n'
        + text.replace("\n", "\\n\\\n")
        + '\\n";\n</script></body></html>\n'
    )
    packed = b"TRACE:\n" + zlib.compress(text.encode())
    for other in (sections, legacy, packed, text.replace("\n", "\r\n")):
        found, manifest = read_text(other)
        assert found == plain
        assert not any("left out" in warning for warning in manifest.warnings)
    found, manifest = read_text(packed[:-40])
    assert 0 < len(found) < len(plain)
    assert any("cut off" in warning for warning in manifest.warnings)


def test_what_is_no_event_is_counted_and_named(read_text):
    lines = [switch(0, 1000), "no event at all\n", switch(0, 2000).replace("==>", "=?=")]
    lines += ["\tffffffff8139bb71 schedule+0x1 ([kernel.kallsyms])\n", "x" * 70_000 + "\n"]
    found, manifest = read_text("".join(lines))
    assert len(found) == 1
    said = " ".join(manifest.warnings)
    assert "1 line left out, which are no events: 'no event at all'" in said
    assert "1 line of sched_switch left out" in said
    assert "call stacks" in said
    assert "longer than any" in said


@pytest.mark.parametrize(
    "text",
    [
        "# tracer: nop\n#\n",
        "# tracer: function\n a-1 [000] .... 1.000000: mutex_lock <-rb_simple_write\n",
        "# tracer: nop\n a-1 [000] ..... 123456: sched_switch: prev_comm=a\n",
    ],
)
def test_a_text_without_events_is_refused_in_two_lines(tmp_path, text):
    (tmp_path / "text").write_text(text)
    with pytest.raises(UnreadableError) as caught:
        convert(tmp_path / "made", tmp_path / "text")
    assert caught.value.exit_code == 4
    assert "\n" not in caught.value.what + caught.value.do


PIECES = (b"\n", b"[000]", b"-1 ", b"=", b": ", b"9" * 30, b"\0")


def end_of(data: bytes, place: Path) -> int:
    """Return the exit code with which a text is converted."""
    place.mkdir()
    (place / "text").write_bytes(data)
    try:
        convert(place / "made", place / "text")
    except CritpathError as error:
        return error.exit_code
    return 0


@pytest.mark.parametrize("name", ["tgid.txt", "script.txt", "latency.txt", "pipe.txt"])
def test_changed_texts_end_in_events_or_two_lines(printed, tmp_path, name):
    """Bytes changed, cut out, doubled; every line is an event, or is counted."""
    chance = random.Random(name)  # noqa: S311 - not for secrets
    whole = (printed / name).read_bytes()
    for turn in range(25):
        data = bytearray(whole[: chance.randrange(2000, 20_000)])
        for _ in range(chance.randrange(1, 40)):
            at = chance.randrange(len(data))
            kind = chance.randrange(4)
            if kind == 0:
                data[at] = chance.randrange(256)
            elif kind == 1:
                del data[at : at + chance.randrange(60)]
            elif kind == 2:
                data[at:at] = data[at : at + chance.randrange(200)]
            else:
                data[at:at] = chance.choice(PIECES)
        assert end_of(data, tmp_path / f"{turn}") in {0, 2, 4}
