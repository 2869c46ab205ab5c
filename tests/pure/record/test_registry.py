"""The registry of live recordings: what is noted is found again, whatever else lies there."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from critpath_marks.sessions import new_session_name
from critpath_record import registry
from critpath_record.registry import Entry, read_entries, register, unregister
from tests.played.processes import Clock


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A registry of this test's own."""
    directory = tmp_path / "run" / "critpath"
    directory.parent.mkdir()
    monkeypatch.setattr(registry, "_ROOT", directory)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory.parent))
    return directory


def test_a_recording_is_noted_and_forgotten(place, tmp_path):
    name = new_session_name()
    register(name, tmp_path / "a b\n\udcff", "ftrace")
    assert read_entries() == [Entry(name, tmp_path / "a b\n\udcff", "ftrace")]
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    unregister(name)
    unregister(name)
    assert read_entries() == []
    assert list(place.iterdir()) == []


@pytest.mark.usefixtures("place")
def test_a_relative_directory_is_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    register(new_session_name(), Path("out"), "lttng")
    assert [e.directory for e in read_entries()] == [tmp_path / "out"]


@pytest.mark.usefixtures("place")
def test_names_of_others_are_not_noted(tmp_path):
    register("../../etc/passwd", tmp_path, "ftrace")
    assert read_entries() == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[]",
        "[" * 100_000,
        "null",
        "{}",
        '{"directory": 1, "recorder": "ftrace"}',
        '{"directory": "relative", "recorder": "ftrace"}',
        '{"directory": "/a\\u0000b", "recorder": "ftrace"}',
        '{"directory": "/a", "recorder": null}',
        "\xff\xfe",
        '{"directory": "/' + "a" * 20_000 + '", "recorder": "ftrace"}',
    ],
)
def test_damaged_entries_are_left_out(place, tmp_path, text):
    good = new_session_name()
    register(good, tmp_path, "ftrace")
    (place / f"{new_session_name()}.json").write_text(text, encoding="latin-1")
    assert [e.session for e in read_entries()] == [good]


def test_what_is_no_file_of_ours_is_left_out(place, tmp_path):
    register(new_session_name(), tmp_path, "ftrace")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(json.dumps({"directory": "/etc", "recorder": "ftrace"}))
    (place / f"{new_session_name()}.json").symlink_to(elsewhere)
    os.mkfifo(place / f"{new_session_name()}.json")  # a reader that waits for a writer would hang
    (place / f"{new_session_name()}.json").mkdir()
    (place / "notes.json").write_text(elsewhere.read_text())
    assert [e.directory for e in read_entries()] == [tmp_path]


@pytest.mark.parametrize("mode", [0o770, 0o701, 0o777])
def test_a_directory_that_others_may_use_is_no_registry(place, tmp_path, mode):
    register(new_session_name(), tmp_path, "ftrace")
    place.chmod(mode)
    assert read_entries() == []
    register(new_session_name(), tmp_path, "ftrace")
    place.chmod(0o700)
    assert len(read_entries()) == 1


def test_a_link_is_no_registry(place, tmp_path):
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    place.symlink_to(target)
    register(new_session_name(), tmp_path, "ftrace")
    assert read_entries() == []
    assert list(target.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a directory away")
def test_a_directory_of_another_user_is_no_registry(place, tmp_path):
    register(new_session_name(), tmp_path, "ftrace")
    os.chown(place, 65534, 65534)
    assert read_entries() == []


def test_without_a_place_for_a_registry_recording_goes_on(place, tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr(registry, "_ROOT", tmp_path / "no" / "such")
    register(new_session_name(), tmp_path, "ftrace")
    unregister(new_session_name())
    assert read_entries() == []
    assert not place.exists()


def test_a_place_that_is_full_prevents_no_recording(place, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    register(new_session_name(), tmp_path, "ftrace")
    with monkeypatch.context() as full:
        full.setattr(Path, "replace", refuse)
        register(new_session_name(), tmp_path, "ftrace")
    assert len(read_entries()) == 1
    assert len(list(place.iterdir())) == 1


@pytest.mark.usefixtures("place")
def test_who_cleans_up_waits_for_others_but_not_for_ever(tmp_path, monkeypatch):
    register(new_session_name(), tmp_path, "ftrace")
    clock = Clock()
    monkeypatch.setattr(registry, "time", clock)
    with registry.cleanup_lock():
        began = clock.now
        with registry.cleanup_lock(patience=60):  # it is stuck
            assert 60 <= clock.now - began < 61
    before = clock.now
    with registry.cleanup_lock():
        assert clock.now == before


def test_without_a_registry_there_is_no_lock(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(registry, "_ROOT", tmp_path / "no" / "such")
    with registry.cleanup_lock():
        assert read_entries() == []
