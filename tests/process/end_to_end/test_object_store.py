"""A store that speaks S3 (moto's), which answers 503 and cuts what it sends: nothing is silent."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from moto.server import create_backend_app
from werkzeug.serving import make_server

from critpath.commands import main

REQUESTS = "events:app:request_begin,app:request_end,key=id"
SECRET = "notforanybodytosee"  # noqa: S105 - moto takes any
BUSY = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>hush</Message></Error>"


class Store:
    """moto's S3, and what is wrong with its answers."""

    def __init__(self) -> None:
        self.wrong: Callable[[dict[str, Any]], str] = lambda _: ""
        self.sent: Counter[str] = Counter()
        self._app = create_backend_app("s3")
        self._server = make_server("127.0.0.1", 0, self, threaded=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.port}",
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        how = self.wrong(environ)
        if how == "busy":
            start("503 Slow Down", [("Content-Type", "text/xml")])
            return [BUSY]
        answer = b"".join(self._app(environ, start))
        self.sent[environ["PATH_INFO"]] += len(answer)
        return [answer[: len(answer) // 2] if how == "cut" else answer]

    def close(self) -> None:
        self._server.shutdown()


@pytest.fixture(scope="module")
def store(guest: Callable[[str], Path]) -> Iterator[Store]:
    made = Store()
    fs = fsspec.filesystem(
        "s3",
        endpoint_url=made.environment["AWS_ENDPOINT_URL"],
        key="somebody",
        secret=SECRET,
        skip_instance_cache=True,
    )
    fs.mkdir("fleet")
    for name in ("normal", "sample-lock"):
        fs.put(f"{guest(name)}/", f"fleet/{name}/", recursive=True)
    yield made
    made.close()


@pytest.fixture
def run(critpath_process, store) -> Iterator[Callable[..., Any]]:
    store.sent.clear()
    yield lambda *words, **how: critpath_process(*words, **how, **store.environment)
    store.wrong = lambda _: ""


def often(how: str, times: int) -> Callable[[dict[str, Any]], str]:
    """Return what is wrong with the first answers of each stream of a trace."""
    left: Counter[str] = Counter()

    def choose(environ: dict[str, Any]) -> str:
        name = environ["PATH_INFO"]
        if "/kernel/kernel_" not in name or environ["REQUEST_METHOD"] != "GET":
            return ""
        left[name] += 1
        return how if left[name] <= times else ""

    return choose


COMPARE = ("compare", "--execution", REQUESTS)


@pytest.mark.parametrize("how", ["", "busy", "cut"])
def test_a_comparison_is_the_same_and_says_what_was_asked_again(
    run, critpath, store, guest, tmp_path, how
):
    for name in ("normal", "sample-lock"):
        (tmp_path / name).symlink_to(guest(name))
    here = critpath(*COMPARE, "normal", "sample-lock", "--json", "here.json", cwd=tmp_path)
    store.wrong = often(how, 2)
    words = (*COMPARE, "s3://fleet/normal", "s3://fleet/sample-lock", "--json", "there.json")
    there = run(*words, cwd=tmp_path)
    assert there.returncode == here.returncode == 1, there.stderr
    said = [line for line in there.stdout.splitlines() if "⚠" not in line]
    assert how or there.stdout == here.stdout
    assert said[:9] == here.stdout.splitlines()[:9]
    document = json.loads((tmp_path / "there.json").read_text())
    again = [text for text in document["warnings"] if "asked again" in text]
    assert bool(again) == bool(how)
    assert all("s3://fleet/" in text for text in again)
    assert again == [] or ("HTTP 503" in again[0]) == (how == "busy")
    assert ("asked again" in " ".join(there.stdout.split())) == bool(how)
    assert document["findings"] == json.loads((tmp_path / "here.json").read_text())["findings"]
    written = (tmp_path / "there.json").read_text()
    assert SECRET not in written + there.stdout + there.stderr
    assert "hush" not in written + there.stdout + there.stderr


@pytest.mark.parametrize(("how", "why"), [("busy", "HTTP 503"), ("cut", "no whole answer")])
def test_what_stays_ends_with_4(run, store, tmp_path, how, why):
    store.wrong = often(how, 1000)
    done = run("path", "s3://fleet/normal", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (4, "")
    what, do = done.stderr.splitlines()
    assert what.startswith("critpath: s3://fleet/normal/")
    assert f"the store gave {why}" in what
    assert what.endswith("5 times")
    assert do.startswith("  try again later")
    assert list(tmp_path.iterdir()) == []


def test_what_options_and_settings_name_is_read_there(run, critpath, store, guest, load, tmp_path):
    """In a process of its own, which may open only what it was told."""
    verbs = load("verbs_on_stores.py")
    fs = fsspec.filesystem(
        "s3", endpoint_url=store.environment["AWS_ENDPOINT_URL"], key="somebody", secret=SECRET
    )
    windows = verbs.write_windows(guest("normal"))
    fs.pipe_file("fleet/windows.csv", windows)
    fs.pipe_file("fleet/settings.toml", b'execution = "windows:s3://fleet/windows.csv"\n')
    (tmp_path / "windows.csv").write_bytes(windows)
    (tmp_path / "settings.toml").write_text('execution = "windows:s3://fleet/windows.csv"\n')
    (tmp_path / "normal").symlink_to(guest("normal"))
    here = critpath("path", "normal", "--execution", "windows:windows.csv", cwd=tmp_path)
    assert here.returncode == 0, here.stderr
    for words in (
        ("s3://fleet/normal", "--execution", "windows:s3://fleet/windows.csv"),
        ("normal", "--execution", "windows:s3://fleet/windows.csv"),
        ("normal", "--config", "settings.toml"),
        ("normal", "--config", "s3://fleet/settings.toml"),
    ):
        done = run("path", *words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, here.stdout), done.stderr


def test_a_list_and_a_writing_are_tried_again_and_said(run, store, tmp_path):
    """What asks which objects there are, and what is written, with the other half of methods."""
    asked: Counter[str] = Counter()

    def busy_twice(environ: dict[str, Any]) -> str:
        listing = environ["PATH_INFO"] == "/fleet" and "list-type" in environ["QUERY_STRING"]
        method = "list" if listing else environ["REQUEST_METHOD"]
        asked[method] += 1
        return "busy" if method in {"list", "PUT"} and asked[method] <= 2 else ""

    store.wrong = busy_twice
    words = ("export", "--format", "paths", "--execution", REQUESTS, "s3://fleet/normal")
    done = run(*words, "-o", "s3://fleet/again.parquet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "asked again (2 times)" in line]
    assert any("s3://fleet/normal:" in line and "HTTP 503" in line for line in said), done.stderr
    assert any("again.parquet:" in line and "HTTP 503" in line for line in said), done.stderr
    store.wrong = lambda environ: "busy" if environ["REQUEST_METHOD"] == "PUT" else ""
    done = run(*words, "-o", "s3://fleet/never.parquet", cwd=tmp_path)
    assert done.returncode == 2
    assert "never.parquet: the store gave HTTP 503, 5 times" in done.stderr
    store.wrong = lambda _: ""
    assert run("path", "s3://fleet/never.parquet", cwd=tmp_path).returncode == 4
    assert run("path", "s3://fleet/again.parquet", cwd=tmp_path).returncode == 0


def test_what_is_written_there_is_read_there(run, guest, tmp_path):
    (tmp_path / "normal").symlink_to(guest("normal"))
    options = ("export", "--format", "paths", "--execution", REQUESTS)
    for out in ("paths.parquet", "paths"):
        made = run(*options, "s3://fleet/normal", "-o", f"s3://fleet/{out}", cwd=tmp_path)
        assert made.returncode == 0, made.stderr
        again = run(*options, "s3://fleet/normal", "-o", f"s3://fleet/{out}", cwd=tmp_path)
        assert again.returncode == 2
        assert "exists already" in again.stderr
        found = run("compare", f"s3://fleet/{out}", "s3://fleet/sample-lock", cwd=tmp_path)
        assert found.returncode == 1, found.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["normal"]


@pytest.mark.parametrize("scheme", ["memory", "s3"])
def test_every_verb_takes_urls(store, guest, unpack, load, monkeypatch, capsys, scheme):
    """None shows where its files are here, and all of them write what they are to."""
    verbs = load("verbs_on_stores.py")
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    fs = fsspec.filesystem(scheme, skip_instance_cache=True)
    fs.mkdir("/verbs" if scheme == "memory" else "verbs")

    def put(what: Path | bytes, name: str) -> str:
        files = (
            {name: what}
            if isinstance(what, bytes)
            else {name: what.read_bytes()}
            if what.is_file()
            else {
                f"{name}/{file.relative_to(what)}": file.read_bytes()
                for file in what.rglob("*")
                if file.is_file()
            }
        )
        for there, content in files.items():
            fs.pipe_file(f"verbs/{there}", content)
        return f"{scheme}://verbs/{name}"

    def list_objects() -> dict[str, object]:
        fs.invalidate_cache()
        found = fs.find("verbs", detail=True)
        return {name.strip("/"): of.get("ETag") or of["created"] for name, of in found.items()}

    urls = verbs.put_inputs(put, guest, unpack)
    for line in verbs.WORKING:
        before = list_objects()
        words = [word.format(**urls) for word in line.split()]
        code = main(words)
        shown = capsys.readouterr()
        assert code in {0, 1, 3}, (line, shown.err)
        assert "critpath-stores" not in shown.out + shown.err, line
        assert SECRET not in shown.out + shown.err, line
        written = [name for name, tag in list_objects().items() if before.get(name) != tag]
        assert not [name for name in written if b"critpath-stores" in fs.cat_file(name)], line
        wanted = [word.partition("://")[2] for word in words if word.startswith(urls["new"])]
        for place in wanted:
            assert [n for n in written if n == place or n.startswith(f"{place}/")], line
        assert bool(written) == (bool(wanted) or line.startswith("known add")), line
    fs.rm("verbs", recursive=True)
