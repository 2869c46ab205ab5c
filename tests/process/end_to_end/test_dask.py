"""Recordings on a real dask cluster: a scheduler and two workers, processes of this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

REQUESTS = "events:app:request_begin,app:request_end,key=id"
ENVIRONMENT = {
    **os.environ,
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
}


@dataclass
class Cluster:
    address: str
    home: Path
    processes: list[subprocess.Popen[bytes]]
    wait_for: Callable[..., object]

    def worker(self, more: Mapping[str, str] = ENVIRONMENT) -> subprocess.Popen[bytes]:
        """Start a worker; without a nanny, that nobody starts it again."""
        number = len(self.processes)
        log = self.home / f"worker-{number}.log"
        (self.home / str(number)).mkdir()
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "distributed.cli.dask_worker", self.address),
                    *("--no-nanny", "--no-dashboard", "--nthreads", "1"),
                    *("--local-directory", self.home / str(number)),
                ],
                cwd=self.home / str(number),  # not the user's
                env={**ENVIRONMENT, **more},
                stdout=stream,
                stderr=stream,
            )
        self.processes.append(process)
        self.wait_for(lambda: "Registered to" in log.read_text())
        return process

    def has_worker(self) -> bool:
        """Return whether one lives: the first process is the scheduler."""
        return any(process.poll() is None for process in self.processes[1:])


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, wait_for: Callable[..., object]
) -> Iterator[Cluster]:
    with begin_cluster(tmp_path_factory.mktemp("cluster"), wait_for) as begun:
        yield begun


@contextmanager
def begin_cluster(
    home: Path, wait_for: Callable[..., object], *more: str | Path
) -> Iterator[Cluster]:
    """Start a scheduler, and end it with its workers."""
    file = home / "scheduler.json"
    with (home / "scheduler.log").open("wb") as stream:
        scheduler = subprocess.Popen(
            [
                *(sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"),
                *("--host", "127.0.0.1", "--port", "0", "--scheduler-file", file),
                *more,
            ],
            cwd=home,
            env=ENVIRONMENT,
            stdout=stream,
            stderr=stream,
        )
    processes = [scheduler]
    try:
        wait_for(lambda: file.exists() and file.read_text().strip().endswith("}"))
        yield Cluster(json.loads(file.read_text())["address"], home, processes, wait_for)
    finally:
        # Whoever is asked to end may wait for the others first: a worker once took a minute.
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def begin(
    command: list[str | Path], place: Path, environment: Mapping[str, str]
) -> subprocess.Popen[str]:
    """Begin a command whose output is read."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=place, env=environment, stdout=pipe, stderr=pipe, text=True
    )


@pytest.fixture
def recordings(tmp_path: Path, guest: Callable[[str], Path]) -> list[str]:
    """Names that only the user's current directory can tell."""
    (tmp_path / "mine").mkdir()
    for name in ("normal", "sample-lock"):
        (tmp_path / "mine" / name).symlink_to(guest(name))
    return ["normal", "sample-lock"] * 5


def contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir()}


# Loaded by a worker: one that reads what is called so waits, until it is killed or nobody is to.
HOLDS = """
import os, sys

def hear(event, given):
    if event == "open" and isinstance(given[0], str) and "/held/" in given[0]:
        with open(os.environ["REACHED"], "w") as file:
            file.write(f"{os.getpid()}\\n")
        os.close(os.open(os.environ["GATE"], os.O_RDONLY))

sys.addaudithook(hear)
"""


@pytest.fixture
def holding(tmp_path: Path) -> dict[str, str]:
    """Return what surrounds a worker that holds."""
    os.mkfifo(tmp_path / "gate")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(HOLDS)
    where = {name: str(tmp_path / name.lower()) for name in ("GATE", "REACHED")}
    return {**where, "PYTHONPATH": str(tmp_path / "site")}


def test_a_worker_is_killed_and_nothing_is_lost_or_doubled(
    critpath, cluster, recordings, guest, holding, wait_for, tmp_path
):
    """While it reads."""
    here, reached = tmp_path / "mine", tmp_path / "reached"
    shutil.copytree(guest("normal"), here / "held")
    recordings[4] = "held"
    words = ("export", "--format", "paths", *recordings, "--execution", REQUESTS, "-o")
    saved = critpath(*words, "local", "--jobs", "1", cwd=here)
    assert saved.returncode == 0, saved.stderr
    workers = {process.pid: process for process in (cluster.worker(holding) for _ in range(2))}
    command = [sys.executable, "-m", "critpath", *words, "far"]
    with begin([*command, "--engine", f"dask:{cluster.address}"], here, ENVIRONMENT) as run:
        wait_for(lambda: reached.exists() and reached.read_text().endswith("\n"))
        victim = workers[int(reached.read_text())]
        victim.kill()
        assert victim.wait() == -signal.SIGKILL
        gate = os.open(tmp_path / "gate", os.O_RDWR)  # who reads it next is not held
        out, err = run.communicate()
    os.close(gate)
    assert (run.returncode, out) == (0, ""), err
    assert "of 10 recordings saved to far" in err
    assert contents(here / "far") == contents(here / "local")
    kept = ["far", "held", "local", "normal", "sample-lock"]
    assert sorted(f.name for f in here.iterdir()) == kept
    # What it came from is what the user called it.
    assert (
        "normal"
        in json.loads((here / "far/_critpath.json").read_text())["parts"][0]["recordings"][0]
    )
    assert str(here).encode() not in b"".join(contents(here / "far").values())


# Loaded by a scheduler: it is asked for a result, and gives none.
FETCHES = """
import asyncio, os

def dask_setup(scheduler):
    async def gather(**_):
        with open(os.environ["REACHED"], "w"):
            pass
        await asyncio.Event().wait()

    scheduler.handlers["gather"] = gather
"""
GONE = (
    "critpath: the dask scheduler at {} was lost",
    "  start it and the workers again, then repeat",
)
ALONE = "critpath: the dask scheduler at {} has no worker any more", "  start some: dask worker {};"


@pytest.mark.parametrize(
    ("lost", "patience", "held", "said"),
    [
        ("scheduler", "", "held", GONE),
        ("worker, scheduler", "", "held", GONE),
        ("scheduler", "", "result", GONE),
        ("worker", "tasks._ALONE = 0.5", "held", ALONE),
        ("stopped", "tasks._SILENT = 2", "held", GONE),
    ],
)
def test_whatever_is_lost_in_mid_run_is_said_in_two_lines(
    recordings, guest, holding, wait_for, tmp_path, monkeypatch, lost, patience, held, said
):
    """And is not waited for, and leaves nothing."""
    here, reached = tmp_path / "mine", tmp_path / "reached"
    (tmp_path / "fetches.py").write_text(FETCHES)
    monkeypatch.setitem(ENVIRONMENT, "REACHED", str(reached))
    more = ("--preload", tmp_path / "fetches.py") if held == "result" else ()
    if held == "held":
        shutil.copytree(guest("normal"), here / "held")
        recordings = [*recordings[:1], "held", *recordings[:2]]
    before = sorted(path.name for path in here.iterdir())
    with begin_cluster(tmp_path, wait_for, *more) as cluster:
        cluster.worker(holding)
        words = ("export", "--format", "paths", *recordings, "--execution", REQUESTS, "-o", "far")
        line = (
            f"from critpath.engines import tasks; {patience}\nfrom critpath.commands import entry"
        )
        command = [sys.executable, "-P", "-c", f"{line}; entry()", *words]
        with begin([*command, "--engine", f"dask:{cluster.address}"], here, ENVIRONMENT) as run:
            wait_for(reached.exists)
            scheduler, worker = cluster.processes
            for name in lost.split(", "):
                if name == "stopped":
                    scheduler.send_signal(signal.SIGSTOP)
                else:
                    (scheduler if name == "scheduler" else worker).kill()
            out, err = run.communicate()
    assert (run.returncode, out, len(err.splitlines())) == (125, "", 2), err
    for line, words_of in zip(err.splitlines(), said, strict=True):
        assert line.startswith(words_of.format(cluster.address)), err
    assert sorted(path.name for path in here.iterdir()) == before


def test_what_cannot_be_read_is_named_once_and_leaves_nothing(
    critpath, cluster, recordings, tmp_path
):
    here = tmp_path / "mine"
    if not cluster.has_worker():
        cluster.worker()
    (here / "bad").mkdir()
    (here / "bad" / "metadata").write_text("no trace")
    engine = ("--engine", f"dask:{cluster.address}")
    before = sorted(f.name for f in here.iterdir())
    words = (
        "export",
        "--format",
        "paths",
        "normal",
        "bad",
        *recordings[:4],
        "--execution",
        REQUESTS,
        "-o",
        "far",
    )
    done = critpath(*words, *engine, cwd=here)
    local = critpath(*words, "--jobs", "1", cwd=here)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (4, "", 2)
    assert done.stderr.splitlines()[0] == local.stderr.splitlines()[0]
    assert re.search(r"\bbad\b", done.stderr)
    assert sorted(f.name for f in here.iterdir()) == before


def test_workers_read_and_write_on_a_store_themselves(critpath, guest, cluster, tmp_path):
    """Between them, the scheduler and who asks go names: the store is not asked for the user."""
    import fsspec  # noqa: PLC0415 - with the server
    from moto.server import create_backend_app  # noqa: PLC0415 - as above
    from werkzeug.serving import make_server  # noqa: PLC0415 - as above

    app, asked = create_backend_app("s3"), Counter()

    def answer(environ, start):
        """Answer the first two readings of every stream of host-1 with 503, and cut host-2's."""
        name, get = environ["PATH_INFO"], environ["REQUEST_METHOD"] == "GET"
        asked[name] += get
        bad = get and "/kernel/kernel_" in name and asked[name] <= 2
        if bad and "host-1" in name:
            start("503 Slow Down", [("Content-Type", "text/xml")])
            return [b"<Error><Code>SlowDown</Code></Error>"]
        content = b"".join(app(environ, start))
        return [content[: len(content) // 2] if bad and "host-2" in name else content]

    server = make_server("127.0.0.1", 0, answer, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    there = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}",
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "notforanybodytosee",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    try:
        fs = fsspec.filesystem(
            "s3",
            endpoint_url=there["AWS_ENDPOINT_URL"],
            key="somebody",
            secret="notforanybodytosee",  # noqa: S106 - moto takes any
            skip_instance_cache=True,
        )
        fs.mkdir("hosts")
        for number in range(6):
            fs.put(f"{guest('normal')}/", f"hosts/day/host-{number}/", recursive=True)
        for process in cluster.processes[1:]:
            process.kill()  # those without access to the store
        victim, _ = (cluster.worker(there) for _ in range(2))
        words = ("export", "--format", "paths", "--execution", REQUESTS, "s3://hosts/day")
        command = [sys.executable, "-m", "critpath", *words, "-o", "s3://hosts/paths"]
        with begin(
            [*command, "--engine", f"dask:{cluster.address}"], tmp_path, ENVIRONMENT | there
        ) as run:
            cluster.wait_for(lambda: [n for n in fs.find("hosts", refresh=True) if "partial" in n])
            victim.send_signal(signal.SIGSTOP)
            asked.clear()  # what only the victim was refused is lost with it: it is refused again
            victim.kill()
            out, err = run.communicate()
        assert (run.returncode, out) == (0, ""), err
        assert "of 6 recordings saved to s3://hosts/paths (a dataset of 6 files)" in err
        said = [line for line in err.splitlines() if "asked again" in line]
        for host, why in (("host-1", "HTTP 503"), ("host-2", "no whole answer")):
            assert any(host in line and why in line for line in said), err
        assert not [line for line in said if "host-1/" not in line and "host-2/" not in line]
        fs.invalidate_cache()
        names = [name.removeprefix("hosts/paths/") for name in fs.find("hosts/paths")]
        assert names == ["_critpath.json", *(f"part-0000{n}.parquet" for n in range(6))]
        assert not [name for name in fs.find("hosts") if "partial" in name]
        listed = json.loads(fs.cat_file("hosts/paths/_critpath.json"))
        assert [part["recordings"] for part in listed["parts"]] == [
            [f"s3://hosts/day/host-{n}/trace"] for n in range(6)
        ]
        (tmp_path / "host-0").symlink_to(guest("normal"))
        local = critpath(*words[:-1], "host-0", "-o", "local", cwd=tmp_path)
        assert local.returncode == 0, local.stderr
        (first,) = json.loads((tmp_path / "local/_critpath.json").read_text())["parts"]
        assert {part["executions"] for part in listed["parts"]} == {first["executions"]}
    finally:
        server.shutdown()
