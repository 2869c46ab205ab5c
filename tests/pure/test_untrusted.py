"""A file that others wrote is read if it is one, and nothing else is waited for or followed."""

from __future__ import annotations

import csv
import json
import os
import socket
import struct
import zlib
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from critpath.errors import EXIT_UNREADABLE, UnreadableError, UsageError
from critpath.untrusted import load_json, read_object, read_regular, refuse_damaged

MOST = 100
MINE = os.geteuid()


def make_link(place: Path) -> None:
    place.with_name("target").write_text("{}")
    place.symlink_to("target")


def make_socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(place))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (str, "No such file"),
        (make_link, "a link"),
        (lambda place: place.symlink_to("nowhere"), "a link"),
        (os.mkfifo, "no regular file"),  # nobody writes: it would wait for ever
        (Path.mkdir, "no regular file"),
        (make_socket, "No such device"),
        (lambda place: place.write_bytes(b" " * (MOST + 1)), "larger than 100 bytes"),
    ],
)
def test_what_is_no_file_to_be_read_is_refused(make, why, tmp_path):
    make(tmp_path / "x")
    with pytest.raises(OSError, match=why):
        read_regular(tmp_path / "x", MOST)
    assert read_object(tmp_path / "x", MOST) == {}


def test_names_that_are_none():
    for name in ("a\0b", "", "x" * 5000, "\udcff"):
        with pytest.raises(OSError, match=r"name|No such|too long"):
            read_regular(name, MOST)


def test_a_file_of_the_right_user_is_read_whole(tmp_path):
    file = tmp_path / "x"
    file.write_bytes(b"{" + b" " * (MOST - 2) + b"}")
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        assert len(read_regular("x", MOST, dir_fd=directory, owners={MINE}, shared=False)) == MOST
    finally:
        os.close(directory)
    with pytest.raises(OSError, match="another user's"):
        read_regular(file, MOST, owners={MINE + 1})
    file.chmod(0o620)
    with pytest.raises(OSError, match="others may write it"):
        read_regular(file, MOST, shared=False)
    assert read_object(file, MOST) == {}


@pytest.mark.parametrize("content", [b"[]", b"{", b"\xff", b"1", b"[" * 90, b'{"a": NaN'])
def test_what_is_no_object_is_empty(content, tmp_path):
    (tmp_path / "x").write_bytes(content)
    assert read_object(tmp_path / "x", MOST) == {}


@pytest.mark.parametrize(
    "decode",
    [
        lambda: b"\xff".decode("utf-8"),
        "\ud800".encode,
        lambda: json.loads("9" * 5000),
        lambda: json.loads("[" * 100_000),
        lambda: int.to_bytes(1 << 70, 8, "little"),
        lambda: {}["what\nthere is not"],
        lambda: struct.unpack("<q", b"1"),
        lambda: zlib.decompress(b"no"),
        lambda: msgspec.json.decode(b"{"),
        lambda: (
            next(csv.reader(["a\0", '"'], strict=True)) and next(csv.reader(['"'], strict=True))
        ),
        lambda: pa.array([1 << 70], pa.int64()),
        lambda: pa.array([1]).cast(pa.struct([("a", pa.int64())])),
        lambda: open("/there/is/none", "rb"),  # noqa: PTH123, SIM115 - it is not opened
    ],
)
def test_whatever_decoding_raises_names_the_file_and_ends_in_4(decode):
    with pytest.raises(UnreadableError) as refused, refuse_damaged("a/file", "do that"):
        decode()
    assert refused.value.exit_code == EXIT_UNREADABLE
    assert refused.value.what.startswith("a/file: ")
    assert "\n" not in refused.value.what
    assert refused.value.do == "do that"


def test_errors_of_ours_keep_what_they_say():
    with pytest.raises(UnreadableError, match=r"^a/file: no JSON$"), refuse_damaged("a/file", ""):
        raise UnreadableError("no JSON", "")
    with pytest.raises(UnreadableError, match=r"^line 3 of a/file$"), refuse_damaged("a/file", ""):
        raise UnreadableError("line 3 of a/file", "")
    with pytest.raises(UsageError, match=r"^too few$"), refuse_damaged("a/file", ""):
        raise UsageError("too few", "")
    with pytest.raises(AttributeError), refuse_damaged("a/file", ""):
        object().missing  # noqa: B018 - a fault of critpath is one


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r'"a\ud800b"', "a\ufffdb"),
        (r'"\udfff\ud800"', "\ufffd\ufffd"),
        (r'"\ud83d\ude00"', "\U0001f600"),
        (r'"\uD83D\uDE00\uDE00"', "\U0001f600\ufffd"),
        (r'"\\ud800"', r"\ud800"),
        (r'"\\\ud800"', "\\\ufffd"),
        (r'{"\ud800": 1}', {"\ufffd": 1}),
    ],
)
def test_lone_surrogates_become_a_character_that_files_can_have(text, found):
    assert load_json(text.encode()) == found
    kept = load_json(text.encode(), surrogates=True)
    assert json.dumps(kept) == json.dumps(json.loads(text))
