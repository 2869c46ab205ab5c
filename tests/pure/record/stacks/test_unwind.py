"""What perf prints becomes stacks, whatever recorded programs are called and do."""

from __future__ import annotations

import io
import json
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath_record.stacks import unwind
from critpath_record.stacks.perf import PerfSource
from critpath_record.stacks.sources import StackRequest
from critpath_record.stacks.unwind import ROW, RUN, SLEEP, WAKE, read_perf, write_frames

PRINTED = """ 12/13 100.000000005:   1 context-switches:
\t           cf545 clock_nanosleep@GLIBC_2.2.5+0x65 (/nowhere/libc.so.6)
\t            1241 nap+0x21 (/nowhere/my app)
\tffffffffffffffff [unknown] ([unknown])

 12/12 100.000000009:   13   cpu-migrations:
\t            1300 main+0x1 (/nowhere/my app)

 12/12 100.100000000:    1000000 cpu-clock:
\t    7fd9e52970b5 py::Pool.get:/srv/pool.py+0x5 (/tmp/perf-12.map)

 0/0 100.200000000: PERF_RECORD_LOST lost 12
 12/12 100.300000000:   1 context-switches:

"""


def read(text):
    rows = io.BytesIO()
    found = read_perf(text.splitlines(keepends=True), rows)
    return found, list(ROW.iter_unpack(rows.getvalue()))


def test_events_and_stacks():
    found, rows = read(PRINTED)
    second = 1_000_000_000
    assert rows == [
        (100 * second + 5, 13, 0, 0, SLEEP),
        (100 * second + 9, 12, 13, 1, WAKE),
        (100 * second + second // 10, 12, 0, 2, RUN),
        (100 * second + 3 * second // 10, 12, 0, -1, SLEEP),
    ]
    assert (found.samples, found.lost) == (4, 12)
    stream = io.StringIO()
    cut = write_frames(found, stream)
    document = json.loads(stream.getvalue())
    functions = [[document["frames"][n][0] for n in stack] for stack in document["stacks"]]
    assert functions == [["clock_nanosleep@GLIBC_2.2.5", "nap"], ["main"], ["Pool.get"]]
    assert document["frames"][-1][1] == "/srv/pool.py"
    assert cut == 3


def test_a_stripped_program_is_known_and_one_whose_file_is_elsewhere(tmp_path):
    here = str(tmp_path / "app")
    (tmp_path / "app").touch()
    modules = (
        here,
        here,
        "/nowhere/app",
        "/nowhere/whole",
        "/usr/lib/x.so",
        "/v/site-packages/y.so",
        "[x]",
    )
    functions = (*("[unknown]",) * 3, "f", *("[unknown]",) * 3)
    rows = zip(modules, functions, strict=True)
    addresses = [unwind.Address(module, at, name, False) for at, (module, name) in enumerate(rows)]
    assert unwind.find_unnamed(addresses) == ([here], ["/nowhere/app"])
    one = unwind.Address(here, 9, "main", True)
    assert unwind.find_unnamed([*addresses, one]) == ([], ["/nowhere/app"])
    made = unwind.Address("//anon", 7, "[unknown]", False)
    assert unwind.find_unnamed([made]) == ([], [])


def test_functions_of_node_have_a_file_and_a_line():
    def place(function, module="/srv/perf-71.map"):
        (frame,) = unwind.name_frames(unwind.Address(module, 9, function, False), (), {})
        return frame[:4]

    wanted = "hashPassword", "/app/pay.js", 3, "perf.map"
    assert place("JS:*hashPassword /app/pay.js:3:22") == wanted
    assert place("LazyCompile:~hashPassword /app/pay.js:3") == wanted
    assert place("JS:^hashPassword file:///app/pay.js:3:22") == wanted
    assert place("JS:+ /my app/pay.js:8:1") == ("(anonymous)", "/my app/pay.js", 8, "perf.map")
    assert place("JS:order /app/pay.js:3:22")[0] == "order"
    assert place("JS:^emit node:events:471:44") == ("emit", "node:events", 471, "perf.map")
    assert place("Lcom/Shop;::pay", "perf-8.map") == ("Lcom/Shop;::pay", "", 0, "perf.map")


def test_the_program_of_most_stacks_is_named_first():
    found = unwind.Unwound()
    for number, module in ((1, "/a"), (2, "/b"), (3, "/b"), (4, "/b")):
        found.add([f"\t  {number:x} [unknown] (/z)", f"\t  {number + 16:x} [unknown] ({module})"])
        found.add([f"\t  1 [unknown] ({module})", f"\t  {number + 32:x} [unknown] (/z)"])
    absent = unwind.find_unnamed(found.commonest())[1]
    assert absent == ["/b", "/z", "/a"]


def test_a_bystander_of_few_stacks_is_not_named():
    found = unwind.Unwound()
    for number in range(1, 100):
        found.add([f"\t  {number:x} [unknown] (/srv/app)"])
    found.add(["\t  1 [unknown] (/srv/agent)"])
    assert unwind.find_unnamed(found.commonest())[1] == ["/srv/app"]


@pytest.mark.parametrize(
    ("lines", "java"),
    [
        (["\t  1 [unknown] (/tmp/perf-7.map)", "\t  2 JavaMain+0x1 (/jdk/lib/libjvm.so)"], True),
        (["\t  1 [unknown] (//anon)", "\t  2 JavaMain+0x1 (/jdk/lib/libjvm.so)"], True),
        (["\t  1 Shop::pay (/tmp/perf-7.map)", "\t  2 JavaMain (/jdk/lib/libjvm.so)"], False),
        (["\t  1 [unknown] (/tmp/perf-7.map)", "\t  2 main (/usr/bin/luajit)"], False),
    ],
)
def test_code_of_a_jvm_without_names_is_known(lines, java, tmp_path):
    found = unwind.Unwound()
    found.add(lines)
    assert found.has_unnamed_java() == java
    source = PerfSource(StackRequest(tmp_path), "perf")
    counted = {"samples": 9, "stacks": 3, "lost": 0, "cut": 0, "java": int(java)}
    names = {"stripped": [], "absent": [], "replaced": []}
    said = " ".join(source._read_counts([json.dumps({**counted, **names})]).warnings)
    assert ("-XX:+PreserveFramePointer" in said) == java


def test_each_kind_of_program_without_names_has_one_line(tmp_path):
    source = PerfSource(StackRequest(tmp_path), "perf")
    counted = {"samples": 9, "stacks": 3, "lost": 0, "cut": 0}
    names = {
        "stripped": ["/srv/a", "/srv/\x1b[2Jb", "/c", "/d"],
        "absent": ["/box/app"],
        "replaced": ["/srv/old"],
    }
    stripped, absent, replaced = source._read_counts([json.dumps({**counted, **names})]).warnings
    assert "/srv/old has a name, as another file is there since it ran" in replaced
    assert "/srv/a" in stripped
    assert "and 1 more has a name, as it is stripped: install" in stripped
    assert "no function of /box/app has a name, as no such file is here: " in absent
    assert "container" in absent
    assert "\x1b" not in stripped
    none = {**counted, **{key: [] for key in names}}
    assert source._read_counts([json.dumps(none)]).warnings == ()


@given(
    st.lists(
        st.sampled_from([*PRINTED.splitlines(), "\t", "x", "\t zz (", "\x1b[2J\t"]), max_size=40
    )
)
def test_lines_in_any_order_are_no_more_than_odd_stacks(lines):
    found, rows = read("\n".join(lines))
    assert len(rows) == found.samples <= len(lines)
    write_frames(found, io.StringIO())


@given(st.text(max_size=300))
def test_any_text_is_read(text):
    read(text)


def test_the_line_of_a_function_of_python(tmp_path):
    file = tmp_path / "app.py"
    file.write_text(
        "import x\nclass A:\n  def get(self): pass\nclass B:\n  async def get(self):\n"
        "    def inner(): pass\ndef get2(): pass\ndef twice(): pass\ndef twice(): pass\n"
    )
    lines = {
        name: unwind.find_definition(name, str(file))
        for name in ("A.get", "B.get", "B.get.<locals>.inner", "get2", "twice", "no", "<module>")
    }
    assert lines == {
        "A.get": 3,
        "B.get": 5,
        "B.get.<locals>.inner": 6,
        "get2": 7,
        "twice": 0,
        "no": 0,
        "<module>": 1,
    }
    os.mkfifo(tmp_path / "pipe.py")
    for hostile in (tmp_path / "pipe.py", tmp_path, "/dev/zero", "/nowhere.py", "a\0b.py"):
        assert unwind.find_definition("f", str(hostile)) == 0


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 58])
def test_what_is_no_program_has_no_lines(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    assert unwind.read_segments(str(tmp_path / "a")) == []


# perf.data


def comm(pid, *, executed):
    body = struct.pack("<II8s", pid, pid, b"app")
    return struct.pack("<IHH", 3, executed << 13, 8 + len(body)) + body


def mapped(pid, name, at=0x7000_0000):
    text = name.ljust(8 - len(name) % 8 + len(name), b"\0")
    body = struct.pack("<IIQQQ", pid, pid, at, 0x1000, 0) + bytes(32) + text
    return struct.pack("<IHH", 10, 0, 8 + len(body)) + body


def perf_data(*records):
    content = b"".join(records)
    return struct.pack("<8s6Q", b"PERFILE2", 104, 0, 0, 0, 56, len(content)) + content


def forgotten(tmp_path, content):
    file = tmp_path / "perf.data"
    file.write_bytes(content)
    with file.open("r+b") as stream:
        unwind.forget_replaced_programs(stream.fileno())
        unwind.rename_programs(stream.fileno(), [(1, 2, 3, 4)])
        unwind.refuse_replaced(stream.fileno())
    return file.read_bytes()


def test_a_new_program_replaces_all_that_was_mapped(tmp_path):
    stack, other = mapped(7, b"[stack]"), mapped(8, b"[stack]")
    libc = mapped(7, b"/lib/libc.so.6")
    before = perf_data(other, libc, comm(7, executed=True), comm(8, executed=False), stack, libc)
    after = forgotten(tmp_path, before)
    whole = mapped(7, b"//anon\0", 0x1000).replace(
        struct.pack("<QQ", 0x1000, 0x1000), struct.pack("<QQ", *unwind._SPACE)
    )
    assert after == before.replace(stack, whole)


def at_inode(record, major, minor, inode):
    return record[:40] + struct.pack("<IIQ", major, minor, inode) + record[56:]


def test_a_file_of_a_container_has_a_name_that_no_file_here_has(tmp_path):
    """Another is at its path here; a third has that path in another container."""
    here, short = mapped(7, b"/app/served"), mapped(7, b"/a")
    files = [(0, 39, 5), (0, 40, 5), (0, 39, 6)]
    records = [
        at_inode(record, *key) for record, key in zip([here, here, short], files, strict=True)
    ]
    file = tmp_path / "perf.data"
    file.write_bytes(perf_data(here, *records))
    with file.open("r+b") as stream:
        found = unwind.rename_programs(
            stream.fileno(), [(*key, 20 + n) for n, key in enumerate(files)]
        )
    assert {name: (one.path, one.descriptor) for name, one in found.items()} == {
        "/0": ("/app/served", 20),
        "/1": ("/app/served", 21),
        "/2": ("/a", 22),
    }
    names = [f"/{n}".encode().ljust(8, b"\0") for n in range(3)]
    renamed = [old[:72] + name + old[80:] for old, name in zip(records, names, strict=True)]
    assert file.read_bytes() == perf_data(here, *renamed)


@given(st.binary(max_size=300), st.integers(0, 200))
def test_a_forged_file_is_left_as_it_is_or_read_to_its_end(tmp_path_factory, tail, length):
    place = tmp_path_factory.mktemp("forged")
    content = struct.pack("<8s6Q", b"PERFILE2", 104, 0, 0, 0, 56, length) + tail
    assert len(forgotten(place, content)) == len(content)


def test_a_file_in_whose_place_another_is_names_nothing(tmp_path):
    """Neither one of another inode, nor one that was written to since it was mapped."""
    programs = [tmp_path / name for name in ("same", "replaced", "written")]
    records = []
    for program in programs:
        program.write_bytes(b"old")
        os.utime(program, ns=(0, 0))
        key, _ = unwind._identify(str(program))
        record = mapped(7, f"{program}\0".encode()) + bytes(32)
        size = struct.pack("<H", len(record))
        record = record[:6] + size + record[8:]
        when = struct.pack("<Q", 1_000_000_000)
        records.append(at_inode(record[:-24] + when + record[-16:], *key))
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "new").replace(programs[1])
    os.utime(programs[2], ns=(1 << 61, 1 << 61))
    file = tmp_path / "perf.data"
    file.write_bytes(perf_data(*records))
    with file.open("r+b") as stream:
        found = unwind.refuse_replaced(stream.fileno())
    assert {name: of.path for name, of in found.items()} == {
        "/r0": str(programs[1]),
        "/r1": str(programs[2]),
    }
    after = file.read_bytes()
    assert str(programs[0]).encode() in after
    assert [after.count(name) for name in (b"/r0\0", b"/r1\0")] == [1, 1]
    addresses = [unwind.Address("/r0", 16, "[unknown]", False)]
    assert unwind.find_unnamed(addresses, found) == ([], [])
    assert unwind.find_lines(addresses, found) == {}
