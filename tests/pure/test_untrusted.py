"""A file that others wrote is read if it is one, and nothing else is waited for or followed."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from critpath.untrusted import read_object, read_regular

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
