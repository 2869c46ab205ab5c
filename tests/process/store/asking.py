"""Every writer to an object store, again and again, each time with another request that fails.

The failing thing is a request: answered with 503, cut, or lost with its connection, before it was
done or after; once, or whenever it is asked again.  What is right is what ``trying.py`` says of
files: the old state or the new one, an exit code of its own, two lines.  What came once does not
keep a command from its work; and what a store refuses to remove is named.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from socket import SHUT_RDWR
from typing import Any, Final

_TESTS: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_TESTS / "process/store"), str(_TESTS), str(_TESTS / "pure/store")]

from failing import Pair, choose_pairs  # noqa: E402 - found by the path above
from trying import Row, describe, is_clean  # noqa: E402 - as above

BUCKET: Final = "kept"
HOW: Final = ("busy", "cut", "lost before", "lost after", "busy once", "lost after, once")
_BUSY: Final = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>hush</Message></Error>"
_RUN: Final = (
    "from critpath import stores; stores._wait = lambda _: None\n"
    "from critpath.commands import entry; entry()"
)
# What a command makes beside what it replaces.
_BESIDE: Final = re.compile(r"^(\.[^/]+\.(?:partial|old))(?:/|$)")
_DONE: Final = frozenset({0, 1, 3})
_State = dict[str, bytes | None]


class Store:
    """moto's S3, one request of which fails."""

    def __init__(self) -> None:
        import boto3  # noqa: PLC0415 - slow to import
        from moto.server import create_backend_app  # noqa: PLC0415 - slow to import
        from werkzeug.serving import make_server  # noqa: PLC0415 - as above

        self._app = create_backend_app("s3")
        logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
        self._server = make_server("127.0.0.1", 0, self, threaded=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.port}",
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "notforanybodytosee",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        self.arm("")
        self._own = boto3.client(
            "s3",
            endpoint_url=self.environment["AWS_ENDPOINT_URL"],
            aws_access_key_id="somebody",
            aws_secret_access_key="notforanybodytosee",  # noqa: S106 - moto takes any
            region_name="us-east-1",
        )
        self._own.create_bucket(Bucket=BUCKET)

    def arm(self, site: str, number: int = 0, how: str = "") -> None:
        """Let the requests of a site fail from one on, or that one; and count all anew."""
        self._armed = site, number, how
        self.seen: Counter[str] = Counter()
        self.asked: list[str] = []
        self.met = False

    def state(self) -> _State:
        """Return all objects."""
        found = self._own.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        return {
            of["Key"]: self._own.get_object(Bucket=BUCKET, Key=of["Key"])["Body"].read()
            for of in found
        }

    def restore(self, state: _State) -> None:
        """Make the objects what they were."""
        for name in {*self.state()} - {*state}:
            self._own.delete_object(Bucket=BUCKET, Key=name)
        for name, content in state.items():
            self._own.put_object(Bucket=BUCKET, Key=name, Body=content or b"")

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        site = name_site(environ)
        self.asked.append(site)
        self.seen[site] += 1
        wanted, number, how = self._armed
        at = self.seen[site]
        due = site == wanted and (at == number if "once" in how else at >= number > 0)
        self.met |= due
        if due and how.startswith("busy"):
            start("503 Slow Down", [("Content-Type", "text/xml")])
            return [_BUSY]
        if due and how == "lost before":
            environ["werkzeug.socket"].shutdown(SHUT_RDWR)
            start("503 Slow Down", [])
            return []
        answer = b"".join(self._app(environ, start))
        if due and how.startswith("lost after"):
            environ["werkzeug.socket"].shutdown(SHUT_RDWR)
        return [answer[: len(answer) // 2] if due and how == "cut" else answer]

    def close(self) -> None:
        """End it."""
        self._server.shutdown()


def name_site(environ: dict[str, Any]) -> str:
    """Return what is the same of a request in every run."""
    path = re.sub(r"[0-9a-f]{8,}", "#", environ["PATH_INFO"])
    query = environ["QUERY_STRING"].split("&")
    prefix = next((word for word in query if word.startswith("prefix=")), "")
    keys = sorted(word.partition("=")[0] for word in query)
    prefix = re.sub(r"[0-9a-f]{8,}", "#", prefix)
    copied = " copy" if "HTTP_X_AMZ_COPY_SOURCE" in environ else ""
    return f"{environ['REQUEST_METHOD']} {path} {' '.join(keys)} {prefix}{copied}"


@dataclass(frozen=True)
class Asker:
    """A command that writes to a store: its words, and those of what made the old state."""

    name: str
    words: Sequence[str]
    before: Sequence[str] = ()


def make_askers(given: Path) -> Iterator[Asker]:
    """Make what they read, and yield them."""
    from test_dataset import a_set  # noqa: PLC0415 - in the other process

    from critpath.store import save_paths  # noqa: PLC0415 - as above

    one, two = str(given / "one.parquet"), str(given / "two.parquet")
    save_paths(a_set([1, 2, 3]), Path(one))
    save_paths(a_set([2] * 30, name="other"), Path(two))
    to = f"s3://{BUCKET}"
    export = ("export", "--force", "--format")
    for name, words in {
        "export paths": (*export, "paths", "-o", f"{to}/a.parquet"),
        "export dataset": (*export, "paths", "-o", f"{to}/set"),
        "export speedscope": (*export, "speedscope", "-o", f"{to}/a.json"),
        "baseline save": ("baseline", "save", "--force", "-o", f"{to}/b.json"),
    }.items():
        yield Asker(name, (*words, two))
        yield Asker(f"{name}, again", (*words, two), (*words, one))
    compare = ("compare", one, "--html", f"{to}/a.html", "--json", f"{to}/a.json")
    yield Asker("compare, page and JSON", (*compare, two))
    yield Asker("compare, page and JSON, again", (*compare, two), (*compare, one))


class Trials:
    """One command, again and again, each time with another request of it that fails."""

    def __init__(self, store: Store, asker: Asker, place: Path) -> None:
        self._store, self._asker, self._place = store, asker, place
        store.arm("")
        store.restore({})
        if asker.before:
            self._run(asker.before)
        self.old = store.state()
        store.arm("")
        status, said = self._run(asker.words)
        self.new = store.state()
        if status not in _DONE or self.old == self.new:
            raise RuntimeError(f"{asker.name} cannot be tried: {status}: {said}")
        number: Counter[str] = Counter()
        self.pairs = []
        for site in store.asked:
            number[site] += 1
            self.pairs += [Pair(site, number[site], code) for code in range(len(HOW))]

    def _run(self, words: Sequence[str]) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _RUN, *words],
            cwd=self._place,
            env={**os.environ, **self._store.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr

    def judge(self, pair: Pair) -> tuple[bool, list[str]]:
        """Let a request fail; return whether it was asked, and what is wrong."""
        self._store.restore(self.old)
        self._store.arm(pair.site, pair.number, HOW[pair.code])
        status, said = self._run(self._asker.words)
        met = self._store.met
        self._store.arm("")
        return met, [*self._find_wrong(status, said, once="once" in HOW[pair.code])]

    def _find_wrong(self, status: int, said: str, *, once: bool) -> Iterator[str]:
        if "Traceback" in said or status not in _DONE | {2, 4, 125}:
            yield f"exit code {status}: {said[-1500:]!r}"
        elif status not in _DONE and not is_clean(said):
            yield f"exit code {status} with no two lines: {said[-600:]!r}"
        if once and status not in _DONE:
            yield f"what came once ended it: {said[-600:]!r}"
        found = self._store.state()
        kept = {name: of for name, of in found.items() if not _BESIDE.search(name)}
        named = [found_at[1] for name in found if (found_at := _BESIDE.search(name))]
        if once and "asked again" in said + repr(kept):  # a page says so, too
            kept, self_new = dict.fromkeys(kept), dict.fromkeys(self.new)
        else:
            self_new = self.new
        if named and not all(name in said for name in named):
            yield f"left, and not named: {sorted(named)}; {said[-600:]!r}"
        if "is neither what it was" in said:
            return  # and where the old one is kept
        if kept not in (self.old, self_new):
            yield f"a third state: {describe(kept, self.old, self_new)}; {said[-600:]!r}"
        elif status in _DONE and kept != self_new:
            yield f"done, it says, and is not; {said[-600:]!r}"


def try_askers(place: Path, part: int, pattern: str = "") -> Iterator[Row]:
    """Try all that write to a store; yield what came of each."""
    store = Store()
    try:
        for asker in make_askers(place):
            if not re.search(pattern, asker.name):
                continue
            trials = Trials(store, asker, place)
            pairs, met, wrong = choose_pairs(trials.pairs, part), 0, list[str]()
            for pair in pairs:
                asked, bad = trials.judge(pair)
                met += asked
                wrong += [f"{pair.site}, no {pair.number}: {HOW[pair.code]}: {one}" for one in bad]
            calls = len(trials.pairs) // len(HOW)
            name = f"{asker.name} (s3)"
            yield Row(name, calls, len(trials.pairs), len(pairs), met, tuple(wrong))
    finally:
        store.close()
