"""What lies on an object store: the same answers, by ranges; troubles are counted and said."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import critpath
from critpath import stores
from critpath.commands import VERBS, main
from critpath.errors import UnreadableError, UsageError
from critpath.model.joining import join_sets
from critpath.store import Dataset, find_format, save_paths
from critpath.store.reading import load_paths
from critpath.text.notes import word

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
REQUESTS = "events:app:request_begin,app:request_end,key=id"


class Store:
    """A store in memory, and what is asked of it."""

    def __init__(self) -> None:
        self.fs = fsspec.filesystem("memory")
        self.asked: list[tuple[str, int, int]] = []
        self.wrong: Callable[[str, bytes], bytes] = lambda _, content: content
        self._get = self.fs.cat_file

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        self.asked.append((path, start or 0, end or 0))
        return self.wrong(path, self._get(path, start=start, end=end))

    def put(self, here: Path, there: str) -> str:
        for directory, _, names in os.walk(here):
            for name in names:
                file = Path(directory) / name
                self.fs.pipe_file(f"/{there}/{file.relative_to(here)}", file.read_bytes())
        return f"memory://{there}"

    def names(self) -> list[str]:
        return sorted(self.fs.find("/"))


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    made = Store()
    waited: list[float] = []
    monkeypatch.setattr(stores, "_wait", waited.append)
    monkeypatch.setattr(
        type(made.fs), "cat_file", lambda _, *given, **how: made.cat_file(*given, **how)
    )
    yield made
    stores.close()
    made.fs.store.clear()
    made.fs.pseudo_dirs[:] = [""]


def failing(times: int, error: Callable[[], BaseException]) -> Callable[[str, bytes], bytes]:
    """Return what fails so often for each stream of a trace."""
    left: dict[str, int] = {}

    def give(path: str, content: bytes) -> bytes:
        if "channel" not in path and "ring" not in path and "kernel_" not in path:
            return content
        if left.setdefault(path, times) > 0:
            left[path] -= 1
            raise error()
        return content

    return give


class AnswerError(Exception):
    """As libraries of stores raise: with the answer, which repeats what it was sent."""

    def __init__(self, status: int) -> None:
        super().__init__("AKIAVERYSECRET")
        self.status = status


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        (Path("s3://bucket/a"), "s3://bucket/a"),
        ("gs://bucket", "gs://bucket"),
        ("a/b", None),
        ("s3:/bucket", None),
        ("https://bucket/a", None),
        ("./s3://a", None),
    ],
)
def test_what_is_a_url(given, url):
    assert stores.find_url(given) == url


@pytest.mark.parametrize("given", ["s3://", "s3://b/../c", "s3://b//c", "gs://b/./c"])
def test_a_url_that_names_nothing(given):
    with pytest.raises(UsageError, match="names no object"):
        stores.find_url(given)


def test_credentials_in_a_url_are_refused_and_not_repeated():
    with pytest.raises(UsageError, match="credentials") as caught:
        stores.find_url("s3://AKIA:hidden@bucket/a")
    assert "hidden" not in caught.value.what + caught.value.do


def test_a_recording_is_the_same_there_and_named_as_it_was_given(store, guest):
    url = store.put(guest("normal"), "fleet/normal")
    there = critpath.extract(url, execution=REQUESTS)
    here = critpath.extract(guest("normal"), execution=REQUESTS)
    assert there.sources == (url,)
    assert there.executions.id == here.executions.id
    assert (there.paths.begin == here.paths.begin).all()
    assert (there.paths.state == here.paths.state).all()
    assert there.warnings == here.warnings


def test_streams_are_read_by_ranges_of_which_few_are_kept(store, guest, monkeypatch):
    url = store.put(guest("normal"), "fleet/normal")
    monkeypatch.setattr(stores, "_SMALLEST", 4096)
    monkeypatch.setattr(stores, "_LARGEST", 4096)
    there = critpath.extract(url, execution=REQUESTS)
    ranges = [(begin, end) for path, begin, end in store.asked if "/kernel/" in path]
    streams = [of for of in ranges if of[1] - of[0] <= 2 * 4096 or of[0] > 0]
    assert len(streams) > 10
    assert (
        there.executions.id == critpath.extract(guest("normal"), execution=REQUESTS).executions.id
    )


def asked_of_streams(store: Store) -> list[tuple[str, int, int]]:
    return [(path, begin, end) for path, begin, end in store.asked if "/kernel/kernel_" in path]


@pytest.mark.parametrize("share", [4, 1 << 60], ids=["kept", "no room"])
def test_what_is_read_twice_is_asked_for_once(store, guest, monkeypatch, share):
    """Where switches are missing, a stream is read again: from here, as far as there was room."""
    monkeypatch.setattr(stores, "_SHARE", share)
    url = store.put(guest("lossy"), "fleet/lossy")
    there = critpath.extract(url, execution=REQUESTS)
    here = critpath.extract(guest("lossy"), execution=REQUESTS)
    assert there.executions.id == here.executions.id
    assert there.warnings == here.warnings
    asked = asked_of_streams(store)
    assert asked
    assert (len(asked) == len({*asked})) == (share == 4)


def test_the_next_block_is_asked_for_ahead(store, monkeypatch):
    monkeypatch.setattr(stores, "_SMALLEST", 4)
    monkeypatch.setattr(stores, "_LARGEST", 4)
    store.fs.pipe_file("/one/metadata", b"")
    store.fs.pipe_file("/one/stream", b"0123456789")
    read = stores.open_stream(stores.open_place("memory://one") / "stream")
    assert read(2, 0) == b"01"
    stored = read.__self__._stored
    assert stored.coming[1].result() == b"4567"
    assert [of[1:] for of in store.asked] == [(0, 4), (4, 8)]
    read = stores.open_stream(stores.open_place("memory://one") / "stream")  # another has it, too
    assert read(4, 2) == b"2345"
    stored.coming[1].result()
    assert read(100, 1) == b"123456789"
    assert [of[1:] for of in store.asked] == [(0, 4), (4, 8), (8, 10)]


def test_what_fails_ahead_is_counted_and_said_when_it_is_read(store, monkeypatch):
    monkeypatch.setattr(stores, "_SMALLEST", 4)
    monkeypatch.setattr(stores, "_LARGEST", 4)
    store.fs.pipe_file("/one/metadata", b"")
    store.fs.pipe_file("/one/stream", b"0123456789")

    def fail(_: str, content: bytes) -> bytes:
        if store.asked[-1][1] == 4:
            raise AnswerError(503)
        return content

    store.wrong = fail
    read = stores.open_stream(stores.open_place("memory://one") / "stream")
    assert read(4, 0) == b"0123"
    with pytest.raises(UnreadableError, match=r"^memory://one/stream: .*HTTP 503, 5 times"):
        read(4, 4)
    assert stores.LEDGER.again == {("memory://one/stream", "HTTP 503"): 4}


def test_what_a_worker_kept_goes_when_it_is_done(store, guest):
    url = store.put(guest("normal"), "fleet/normal")
    place = stores.open_place(url)
    stream = next(file for file in place.rglob("kernel_*") if stores.is_hole(file))
    whole = store.fs.cat_file(f"/fleet/normal/{stream.relative_to(place)}")
    assert stores.open_stream(stream)(64, 0) == whole[:64]
    assert stream.stat().st_blocks
    stores.release(place)
    assert stream.stat().st_blocks == 0
    assert stores.open_stream(stream)(64, 0) == whole[:64]


def test_what_passes_is_asked_again_and_said(store, guest):
    url = store.put(guest("normal"), "fleet/normal")
    store.wrong = failing(2, lambda: AnswerError(503))
    found = critpath.extract(url, execution=REQUESTS)
    said = [text for text in map(word, found.warnings) if "asked again" in text]
    assert said
    assert all(text.startswith(url) and "HTTP 503" in text for text in said)
    assert "(2 times)" in said[0]
    assert "SECRET" not in "".join(said)
    assert len(found) == len(critpath.extract(guest("normal"), execution=REQUESTS))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (failing(99, lambda: AnswerError(503)), "gave HTTP 503, 5 times"),
        (failing(99, lambda: ConnectionResetError("AKIAVERYSECRET")), "no whole answer"),
        (failing(99, lambda: AnswerError(403)), "refuses access"),
        (failing(99, lambda: PermissionError("AKIAVERYSECRET")), "refuses access"),
        (lambda path, content: content[:-1] if "kernel" in path else content, "fewer bytes"),
        (lambda path, content: content + b"x" if "kernel" in path else content, "fewer bytes"),
    ],
)
def test_what_stays_ends_it(store, guest, wrong, why):
    url = store.put(guest("normal"), "fleet/normal")
    store.wrong = wrong
    with pytest.raises(UnreadableError, match=why) as caught:
        critpath.extract(url, execution=REQUESTS)
    assert caught.value.what.startswith(f"{url}/")
    assert "SECRET" not in caught.value.what + caught.value.do


def test_a_stream_that_is_replaced_meanwhile(store, guest):
    url = store.put(guest("normal"), "fleet/normal")
    stream = max((n for n in store.names() if "/kernel/" in n), key=store.fs.size)

    def replace(path: str, content: bytes) -> bytes:
        if path == stream:
            store.fs.pipe_file(stream, bytes(len(store.fs.store[stream].getvalue())))
        return content

    store.wrong = replace
    with pytest.raises(UnreadableError, match="changed while it was read"):
        critpath.extract(url, execution=REQUESTS)


@pytest.mark.parametrize("name", ["a/../../b", "a//b", "x" * 300, "a\0b"])
def test_names_that_no_file_here_can_have(store, monkeypatch, name):
    store.fs.pipe_file("/fleet/good", b"x")
    info = {"name": f"/fleet/{name}", "size": 1, "type": "file"}
    monkeypatch.setattr(type(store.fs), "find", lambda *_, **__: {info["name"]: info})
    with pytest.raises(UnreadableError, match="as no file here can"):
        stores.open_place("memory://fleet")


@pytest.mark.parametrize("size", [1 << 50, -1, "many", 1 << 80])
def test_sizes_that_lie(store, monkeypatch, guest, size):
    url = store.put(guest("normal"), "fleet/normal")
    true = type(store.fs).find

    def find(fs: Any, *given: Any, **how: Any) -> Any:
        found = true(fs, *given, **how)
        return {
            name: {
                **of,
                "size": size if "/kernel/" in name and "metadata" not in name else of["size"],
            }
            for name, of in found.items()
        }

    monkeypatch.setattr(type(store.fs), "find", find)
    with pytest.raises(critpath.CritpathError):
        critpath.extract(url, execution=REQUESTS)


def test_more_objects_than_a_directory_here_gets(store, monkeypatch):
    monkeypatch.setattr(stores, "_MOST", 2)
    for name in "abc":
        store.fs.pipe_file(f"/fleet/{name}", b"x")
    with pytest.raises(UnreadableError, match="more than 2 objects"):
        stores.open_place("memory://fleet")


def test_what_has_no_room_is_refused(store, monkeypatch):
    monkeypatch.setattr(stores, "_ROOM", 1 << 62)
    store.fs.pipe_file("/fleet/a.json", b"{}")
    with pytest.raises(UnreadableError, match="there is room for"):
        stores.open_place("memory://fleet/a.json")


# Parquet.


@pytest.fixture
def saved(store, guest, tmp_path, monkeypatch) -> str:
    """A file of several row groups on the store, of which blocks of 1 KiB are asked for."""
    monkeypatch.setattr(stores, "_BLOCK", 1024)
    monkeypatch.setattr("critpath.store.writing.GROUP_EXECUTIONS", 1000)
    paths = join_sets([critpath.extract(guest("normal"), execution=REQUESTS)] * 30)
    save_paths(paths, tmp_path / "p.parquet")
    store.fs.pipe_file("/fleet/p.parquet", (tmp_path / "p.parquet").read_bytes())
    return "memory://fleet/p.parquet"


def test_saved_paths_are_read_by_columns(store, saved, guest):
    place = stores.open_place(saved)
    assert find_format(place) == "paths"
    paths = load_paths(place, resident=0)
    moved = {n for _, begin, end in store.asked for n in range(begin, end)}
    assert len(moved) < 0.7 * store.fs.size("/fleet/p.parquet")
    here = critpath.extract(guest("normal"), execution=REQUESTS)
    assert paths.executions.id == here.executions.id * 30
    assert paths.paths.begin.tolist() == here.paths.begin.tolist() * 30


def test_a_page_that_is_damaged_there(store, saved):

    def damage(_: str, content: bytes) -> bytes:
        return content if store.asked[-1][1] == 0 else bytes(reversed(content))

    store.wrong = damage
    with pytest.raises(UnreadableError, match=f"^{saved}: "):
        critpath.load(saved)


def test_a_file_that_is_replaced_between_two_readings(store, saved):
    paths = load_paths(stores.open_place(saved), resident=0)
    content = store.fs.cat_file("/fleet/p.parquet")
    store.fs.pipe_file("/fleet/p.parquet", content)
    with pytest.raises(UnreadableError, match="changed while it was read"):
        _ = paths.paths.begin


# Writing.


def test_what_is_written_appears_whole_or_not_at_all(store, guest, monkeypatch):
    store.fs.pipe_file("/fleet/out.parquet", b"old")
    paths = critpath.extract(guest("normal"), execution=REQUESTS)
    true = type(store.fs).put_file

    def refuse(*_: Any, **__: Any) -> None:
        raise AnswerError(503)

    monkeypatch.setattr(type(store.fs), "put_file", refuse)
    with pytest.raises(UsageError, match=r"^memory://fleet/out.parquet: .*HTTP 503"):
        save_paths(paths, stores.open_place("memory://fleet/out.parquet"))
    assert store.fs.cat_file("/fleet/out.parquet") == b"old"
    assert store.names() == ["/fleet/out.parquet"]
    monkeypatch.setattr(type(store.fs), "put_file", true)
    save_paths(paths, stores.open_place("memory://fleet/out.parquet"))
    stores.close()
    assert critpath.load("memory://fleet/out.parquet").executions.id == paths.executions.id


def export(*words: str) -> int:
    return main(["--quiet", "export", "--format", "paths", "--execution", REQUESTS, *words])


def test_a_dataset_is_replaced_as_a_whole(store, guest, capsys, monkeypatch):
    normal, lock = (store.put(guest(n), f"fleet/{n}") for n in ("normal", "sample-lock"))
    assert export(normal, lock, "-o", "memory://fleet/set") == 0
    first = [name for name in store.names() if name.startswith("/fleet/set")]
    assert first == [
        f"/fleet/set/{name}"
        for name in ("_critpath.json", "part-00000.parquet", "part-00001.parquet")
    ]
    assert export(normal, "-o", "memory://fleet/set") == 2
    assert "exists already" in capsys.readouterr().err
    true = type(store.fs).copy

    def refuse(*_: Any, **__: Any) -> None:
        raise AnswerError(500)

    monkeypatch.setattr(type(store.fs), "copy", refuse)
    assert export(normal, "-o", "memory://fleet/set", "--force") == 2
    assert [name for name in store.names() if name.startswith("/fleet/set")] == first
    assert len(critpath.load("memory://fleet/set").sources) == 2  # that of before
    monkeypatch.setattr(type(store.fs), "copy", true)
    store.asked.clear()
    assert export(normal, "-o", "memory://fleet/set", "--force") == 0
    assert not [path for path, *_ in store.asked if path.endswith(".parquet")]  # it wrote them
    assert len(critpath.load("memory://fleet/set")) == len(
        critpath.extract(guest("normal"), execution=REQUESTS)
    )
    assert not [name for name in store.names() if "partial" in name]


def test_a_part_that_is_missing_there(store, guest):
    normal = store.put(guest("normal"), "fleet/normal")
    assert export(normal, "-o", "memory://fleet/set") == 0
    store.fs.rm_file("/fleet/set/part-00000.parquet")
    with pytest.raises(UnreadableError, match=r"part-00000\.parquet is missing"):
        Dataset(stores.open_place("memory://fleet/set")).load()


def test_nothing_is_left_here(store, guest, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    normal = store.put(guest("normal"), "fleet/normal")
    assert export(normal, "-o", "memory://fleet/set") == 0
    assert list(tmp_path.iterdir()) == []


def test_without_the_library(monkeypatch, capsys):
    monkeypatch.setattr("critpath.extras.find_spec", lambda name: None if name == "s3fs" else name)
    assert main(["path", "s3://bucket/a"]) == 2
    what, do = capsys.readouterr().err.splitlines()
    assert what == "critpath: s3:// needs s3fs, which is not installed"
    assert do == "  pip install 'critpath-core[fleet]'"


# Every verb; those that take URLs are tried in tests/process/end_to_end/test_object_store.py.


@pytest.fixture(scope="module")
def verbs(load):
    return load("verbs_on_stores.py")


@pytest.fixture
def urls(store, guest, unpack, verbs) -> dict[str, str]:
    def put(what: Path | bytes, name: str) -> str:
        if isinstance(what, Path) and what.is_dir():
            return store.put(what, f"fleet/{name}")
        store.fs.pipe_file(f"/fleet/{name}", what.read_bytes() if isinstance(what, Path) else what)
        return f"memory://fleet/{name}"

    return verbs.put_inputs(put, guest, unpack)


def test_verbs_that_take_none_say_so(urls, verbs, capsys):
    for line in verbs.REFUSED:
        words = [word.format(**urls) for word in line.split()]
        assert main(words) == 2, line
        what, do = capsys.readouterr().err.splitlines()
        assert what.startswith(f"critpath: critpath {words[0]} takes no URL: memory://fleet/"), line
        assert do.startswith("  "), line


def test_a_recording_to_learn_from_is_opened(urls, capsys):
    words = ("requests", urls["memcached"], "--execution", "requests", "--learn")
    assert main([*words, urls["memcached"]]) == 2
    assert f"nothing to learn from {urls['memcached']}: it is" in capsys.readouterr().err


def test_every_verb_is_tried_with_urls(verbs):
    tried = {line.split()[0] for line in (*verbs.WORKING, *verbs.REFUSED)}
    assert tried | {*verbs.NOTHING} == {*VERBS}


def test_other_urls_are_not_read(capsys):
    assert main(["path", "https://host/a"]) == 2
    assert "no URLs of https are read" in capsys.readouterr().err


def test_entries_of_a_known_store_are_relabelled_and_removed_there(store, capsys):
    url = store.put(FIXTURES / "known" / "team.known", "team.known")
    many = len([name for name in store.names() if "/entries/gcc/" in name])
    assert many
    assert main(["known", "relabel", url, "gcc", "cc"]) == 0
    names = store.names()
    assert not [name for name in names if "/entries/gcc/" in name]
    assert len([name for name in names if "/entries/cc/" in name]) == many
    assert main(["known", "remove", url, "cc"]) == 0
    assert not [name for name in store.names() if "/entries/cc/" in name]
    capsys.readouterr()
    assert main(["known", "list", url]) == 0
    shown = capsys.readouterr().out
    assert "find" in shown
    assert "gcc" not in shown


def test_what_a_killed_process_left_is_removed(store, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "critpath-stores-killed" / "memory:").mkdir(parents=True)
    elsewhere = tmp_path / "kept"
    elsewhere.mkdir()
    (tmp_path / "critpath-stores-link").symlink_to(elsewhere)
    store.fs.pipe_file("/one/file", b"x")
    stores.open_place("memory://one")
    assert not (tmp_path / "critpath-stores-killed").exists()
    assert elsewhere.is_dir()
    living = Path(stores.own_root())
    stores._remove_left()  # what lives is locked
    assert living.is_dir()


def test_entries_stay_where_a_store_refuses_to_remove_one(store, monkeypatch, capsys):
    url = store.put(FIXTURES / "known" / "team.known", "team.known")
    before, remove, asked = store.names(), stores._remove, []

    def refuse_second(stored):
        asked.append(stored)
        if len(asked) == 2:
            raise UnreadableError(f"{stored.url}: refused", "allow it")
        remove(stored)

    monkeypatch.setattr(stores, "_remove", refuse_second)
    assert main(["known", "remove", url, "gcc"]) != 0
    assert "refused" in capsys.readouterr().err
    monkeypatch.undo()
    assert [name for name in store.names() if "/entries/" in name] == [
        name for name in before if "/entries/" in name
    ]
