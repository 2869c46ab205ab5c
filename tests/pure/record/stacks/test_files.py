"""What the program in the kernel wrote becomes rows of sleeps and frames; the program is whole."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.errors import CritpathError
from critpath.read.stacks import OBJECTS, open_stacks
from critpath_record.btf import Types
from critpath_record.stacks import files, lookup
from critpath_record.stacks.files import name_files
from critpath_record.stacks.lookup import FILE, HEAD, Lookup, Whom, assemble_follower

CALL = 74  # fsync


def record(when, tid, path=b"", kind=FILE):
    text = b"".join(part + b"\0" for part in reversed(path.split(b"/")) if part)
    data = HEAD.pack(when, tid, tid, 3, CALL, kind, 1, 0, len(text)) + text
    data = struct.pack("<I", len(data)) + data
    data += bytes(-len(data) % 8)
    return struct.pack("<IHH", 9, 0, len(data) + 8) + data


PATHS = st.lists(st.tuples(st.integers(1, 9), st.sampled_from([b"/a/1", b"/b/1", b"/c"])))


@given(PATHS, st.integers(40, 200))
def test_every_sleep_has_its_file(tmp_path_factory, sleeps, chunk):
    """Whatever is read at once, and whatever else the kernel wrote there."""
    place = tmp_path_factory.mktemp("recording") / "stacks"
    place.mkdir()
    lost = struct.pack("<IHHQQ", 2, 0, 24, 1, 5)
    rows = [record(100 + n, tid, path) for n, (tid, path) in enumerate(sleeps)]
    (place / "files").write_bytes(lost.join(rows) + b"\x09\0\0\0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "scan_sockets", lambda: ([], 0))
        patch.setattr(files, "_CHUNK", chunk)
        taken = name_files(place, 0)
    assert taken.facts["sleeps"] == len(sleeps)
    assert {file.name for file in place.iterdir()} == {*OBJECTS}
    found = open_stacks(place.parent, OBJECTS)
    assert found is not None
    assert found.complete
    assert found.tid.tolist() == [tid for tid, _ in sleeps]
    names = [found.distinct[number][0].function for number in found.stack.tolist()]
    short = {b"/a/1": "a/1", b"/b/1": "b/1", b"/c": "c"}
    whole = {path for _, path in sleeps}
    if not {b"/a/1", b"/b/1"} <= whole:
        short |= {b"/a/1": "1", b"/b/1": "1"}
    assert names == [f"fsync({short[path]})" for _, path in sleeps]


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    (tmp_path / "files").write_bytes(record(1, 7, b"/a"))
    monkeypatch.setattr(files, "scan_sockets", lambda: ([], 0))
    monkeypatch.setattr(json, "dumps", fail)
    taken = name_files(tmp_path, 0)
    assert taken.warnings == ("files and peers are not named: No space left on device",)
    assert list(tmp_path.iterdir()) == []


def test_what_was_lost_is_said(tmp_path, monkeypatch):
    (tmp_path / "files").write_bytes(b"")
    monkeypatch.setattr(files, "scan_sockets", lambda: ([], 0))
    taken = name_files(tmp_path, 3, "they had 4 GiB")
    assert len(taken.warnings) == 2
    assert json.loads((tmp_path / "files.json").read_text())["lost"] == 3


class Kernel:
    """Types as a kernel describes them."""

    def __init__(self):
        self.types, self.texts, self.number, self.known = b"", b"\0", 0, {"": 0}

    def text(self, text):
        if text not in self.known:
            self.known[text] = len(self.texts)
            self.texts += text.encode() + b"\0"
        return self.known[text]

    def add(self, kind, name, value, members=(), count=None):
        many = len(members) if count is None else count
        self.types += struct.pack("<III", self.text(name), kind << 24 | many, value)
        self.types += b"".join(members)
        self.number += 1
        return self.number

    def integer(self, size=8):
        return self.add(1, "long", size, [bytes(4)], count=0)

    def struct(self, name, members, *, union=False):
        """Add one of members (name, type, place)."""
        rows = [struct.pack("<III", self.text(n), of, 8 * at) for n, of, at in members]
        return self.add(5 if union else 4, name, 64, rows)

    def data(self):
        head = struct.pack(
            "<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(self.types), len(self.types), len(self.texts)
        )
        return head + self.types + self.texts


def describe(missing=""):
    """Return the types of a kernel, each member 8 bytes behind the last, and where they are."""
    kernel, expected = Kernel(), {}
    number = kernel.integer()
    kernel.add(12, "vfs_read", number)
    for name, members in {**lookup._MEMBERS, "unix_sock": ("addr", "peer")}.items():
        inner = {}
        for path in members:
            first, _, rest = path.partition(".")
            inner.setdefault(first, []).append(rest)
        rows, at = [], 16
        for first, rests in inner.items():
            if f"{name}.{first}" == missing:
                continue
            if rests == [""]:
                rows.append((first, number, at))
                expected[f"{name}.{first}"] = at
            else:
                below = kernel.struct("inner", [(r, number, 8 * n) for n, r in enumerate(rests)])
                below = kernel.add(10, "", below)  # const
                unnamed = kernel.struct("", [(first, below, 0)], union=True)
                rows.append(("", unnamed, at))
                expected |= {f"{name}.{first}.{r}": at + 8 * n for n, r in enumerate(rests)}
            at += 64
        kernel.struct(name, rows)
    return kernel.data(), expected


def test_members_are_found_where_they_are():
    data, expected = describe()
    types = Types(data)
    wanted = {}
    for path in expected:
        name, _, member = path.partition(".")
        wanted.setdefault(name, []).append(member)
    assert types.find_offsets({**wanted, "other": ["x"]}) == expected
    assert types.find_offsets({"file": ["f_path.nothing", "f_path.mnt.more"]}) == {}
    assert [*types.list_functions()] == [("vfs_read", 2)]
    assert types.count_arguments("btf_trace_sched_switch") == 0


def test_a_kind_of_function_has_its_arguments():
    kernel = Kernel()
    number = kernel.integer()
    proto = kernel.add(13, "", 0, [struct.pack("<II", 0, number)] * 5)
    kernel.add(8, "btf_trace_sched_switch", kernel.add(2, "", proto))
    assert Types(kernel.data()).count_arguments("btf_trace_sched_switch") == 5


@given(st.binary(max_size=200))
def test_what_is_no_description_is_refused(data):
    with pytest.raises((ValueError, struct.error)):
        Types(data)


def test_a_kernel_that_lacks_a_member_is_told_by_its_name(tmp_path, monkeypatch):
    place = tmp_path / "btf"
    monkeypatch.setattr(lookup, "BTF", place)
    place.write_bytes(describe(missing="socket.sk")[0])
    with pytest.raises(CritpathError, match=r"no socket\.sk"):
        lookup.find_places()
    place.write_bytes(b"")
    with pytest.raises(CritpathError, match="does not describe its types"):
        lookup.find_places()


@pytest.mark.parametrize("whom", [Whom(1), Whom(1, 5, 2), Whom(1, processes=7)])
@pytest.mark.parametrize("tells_state", [True, False])
@pytest.mark.parametrize("newer", [True, False])
def test_every_jump_of_the_program_leads_on(tmp_path, monkeypatch, whom, tells_state, newer):
    place = tmp_path / "btf"
    monkeypatch.setattr(lookup, "BTF", place)
    place.write_bytes(describe()[0])
    places, _ = lookup.find_places()
    places["task_struct.__state" if newer else "task_struct.state"] = 24
    if newer:
        six = ("v6_daddr", "v6_rcv_saddr")
        places |= {f"sock.__sk_common.skc_{name}": 300 for name in six}
        places |= {"unix_address.len": 0, "unix_address.name": 8}
    code = Lookup(places, tells_state, whom, 4, 3, 4, 5).assemble()
    for program in (code, assemble_follower(3, 9)):
        rows = [struct.unpack_from("<BBhi", program, at) for at in range(0, len(program), 8)]
        assert rows[-1][0] == 0x95
        for at, (operation, _, offset, _) in enumerate(rows):
            if operation & 7 in {5, 6} and operation not in {0x85, 0x95}:
                assert 0 < at + 1 + offset < len(rows)
