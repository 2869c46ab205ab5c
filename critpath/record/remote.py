"""Records several hosts at once, over ssh: starts on all, stops on all, fetches what they have.

One ssh per host runs a small script there: it says ``ready``, waits for ``start``, records, and
sends the recording as an archive.  When its input ends it stops, and removes what it made.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Final

from critpath.errors import CritpathError, UsageError
from critpath.record.output import HOSTS, HOSTS_FORMAT, OutputDirectory
from critpath.units import plural, safe_text

SAY: Final = "critpath-hosts"
_SSH: Final = ("ssh", "-oBatchMode=yes", "-oConnectTimeout=20", "-a", "-x", "--")
_PATIENCE: Final = 60.0  # s to connect and to say ready
_LATE: Final = 120.0  # s to finish after the end
_MOST_FILES: Final = 100_000
_MOST_BYTES: Final = 1 << 40
_LINE: Final = 4096
_PIECE: Final = 1 << 20
_TOLD: Final = 2000  # letters of what a host says went wrong

_SCRIPT: Final = """
set -u
exec 3<&0
d=$(mktemp -d) || exit 125
trap 'rm -rf "$d"' EXIT
trap 'exit 129' HUP INT TERM
command -v {first} >/dev/null || {{
  echo "{say} failed: {first} was not found on the host"
  exit 127
}}
echo "{say} ready"
read -r word <&3 || exit 0
[ "$word" = start ] || exit 0
{command} -o "$d/recording" </dev/null >"$d/log" 2>&1 &
p=$!
( read -r word <&3; kill -TERM $p 2>/dev/null || sudo -n kill -TERM $p 2>/dev/null ) &
r=$!
wait $p
c=$?
kill $r 2>/dev/null
if [ $c -ne 0 ] || [ ! -e "$d/recording/critpath.json" ]; then
  echo "{say} failed: $(tail -n 3 "$d/log" | tr '\\n' ' ' | cut -c 1-1000)"
  exit 125
fi
echo "{say} done"
tar -C "$d/recording" -cf - .
"""


@dataclass(frozen=True)
class RemoteRequest:
    """What is asked of all hosts.

    Attributes
    ----------
    hosts : tuple of str
        As ssh knows them.
    output : Path
    duration : float
        Seconds; 0 until a signal.
    options : tuple of str
        Of ``critpath record`` there.
    command : str
        How critpath is called there.
    force : bool
        Replace what is at `output`.
    """

    hosts: tuple[str, ...]
    output: Path
    duration: float
    options: tuple[str, ...]
    command: str = "critpath"
    force: bool = False


@dataclass
class _Host:
    """One host's ssh, and what became of it."""

    name: str
    ssh: subprocess.Popen[bytes]
    wrong: str = ""
    said: bytearray = field(default_factory=bytearray)
    listener: threading.Thread | None = None

    def say(self, word: str) -> None:
        """Send a line; a host that is gone is found out when it is read from."""
        with suppress(OSError, ValueError):
            self._input.write(f"{word}\n".encode())
            self._input.flush()

    def hear(self, word: str) -> None:
        """Wait for a line; note what is wrong if another comes."""
        if self.wrong:
            return
        line = self._output.readline(_LINE).decode("utf-8", "replace").strip()
        if line == f"{SAY} {word}":
            return
        self.wrong = line.removeprefix(f"{SAY} failed: ") if line.startswith(SAY) else ""
        self.wrong = self.wrong or self._ended() or f"unexpected answer: {line}"

    def _ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self.ssh.wait(2)
        told = bytes(self.said[-_TOLD:]).decode("utf-8", "replace").strip().splitlines()
        code = self.ssh.poll()
        return told[-1] if told else f"ssh ended with exit code {code}" if code else ""

    @property
    def _input(self) -> IO[bytes]:
        assert self.ssh.stdin is not None  # noqa: S101 - as it was started
        return self.ssh.stdin

    @property
    def _output(self) -> IO[bytes]:
        assert self.ssh.stdout is not None  # noqa: S101 - as above
        return self.ssh.stdout

    def fetch(self, place: Path) -> None:
        """Unpack the archive that comes next; what is wrong is noted, and nothing is left."""
        try:
            unpack(self._output, place)
        except (OSError, tarfile.TarError, ValueError) as error:
            self.wrong = f"its recording did not come whole ({error})"
            shutil.rmtree(place, ignore_errors=True)

    def close(self) -> None:
        """End the connection: the host removes what it has made."""
        with suppress(OSError):
            self._input.close()
        try:
            self.ssh.wait(10)
        except subprocess.TimeoutExpired:
            self.ssh.kill()
            self.ssh.wait()
        self._output.close()
        if self.listener is not None:
            self.listener.join(10)


def check_hosts(text: str) -> tuple[str, ...]:
    """Return the hosts of a list; raises UsageError for what ssh could take for something else."""
    hosts = tuple(text.split(","))
    for host in hosts:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@:%\[\]-]{0,199}", host):
            raise UsageError(
                f"--hosts: {safe_text(host) or 'nothing'} is not a host name",
                "give names that ssh knows, separated by commas: --hosts web,app,db",
            )
    names = [directory_of(host) for host in hosts]
    if HOSTS in names:
        raise UsageError(
            f"--hosts: {HOSTS} is what the list of hosts is called",
            "give the host another name in ~/.ssh/config",
        )
    if len({*names}) < len(names):
        raise UsageError("--hosts names a host twice", "name each host once")
    return hosts


def directory_of(host: str) -> str:
    """Return what a host's recording is called: its name, without the user."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", host.rpartition("@")[2]).strip("-.") or "host"


def record_hosts(
    request: RemoteRequest, tell: Callable[[str], None], wait: Callable[[float], None]
) -> tuple[list[str], list[str]]:
    """Record on all hosts and fetch what they recorded.

    Parameters
    ----------
    request : RemoteRequest
    tell : callable
        Told what is being done.
    wait : callable
        Waits for so many seconds (0: without end) while all record; it may raise
        KeyboardInterrupt, which ends the recording and keeps it.

    Returns
    -------
    fetched : list of str
        Directories in the output.
    wrong : list of str
        What went wrong, a line each, with the host's name.

    Raises
    ------
    UsageError
        If `output` cannot be written, or may not be replaced.
    CritpathError
        If a host cannot be recorded, before anything is.
    """
    # Found now, not when all has been recorded.
    place = OutputDirectory.check(request.output, secrets.token_hex(8), force=request.force)
    try:
        place.make()
        return _record(request, place, tell, wait)
    finally:
        place.close()


def _record(
    request: RemoteRequest,
    place: OutputDirectory,
    tell: Callable[[str], None],
    wait: Callable[[float], None],
) -> tuple[list[str], list[str]]:
    tell(f"connecting to {plural(len(request.hosts), 'host')}")
    hosts: list[_Host] = []
    fetched: list[str] = []
    try:
        hosts += (_connect(name, request) for name in request.hosts)
        _begin(hosts, request)
        try:
            _watch(hosts, request.duration, wait)
        except KeyboardInterrupt:
            tell("ending the recording")
        for host in hosts:
            host.say("stop")
        tell("fetching the recordings")
        _together(hosts, lambda host: _finish(host, place.write_path), _LATE)
        fetched = _keep(hosts, place)
    finally:
        for host in hosts:
            host.close()
        if not fetched:
            place.discard()
    return fetched, [f"{safe_text(h.name)}: {safe_text(h.wrong)}" for h in hosts if h.wrong]


def _begin(hosts: Sequence[_Host], request: RemoteRequest) -> None:
    """Start on all hosts once all are ready; raises CritpathError if one is not."""
    _together(hosts, lambda host: host.hear("ready"), _PATIENCE)
    for host in hosts:
        if host.wrong:
            raise CritpathError(
                f"{safe_text(host.name)}: {safe_text(host.wrong)}; no host was recorded",
                f"try: ssh {shlex.quote(host.name)} {request.command} doctor",
            )
    for host in hosts:
        host.say("start")


def _connect(name: str, request: RemoteRequest) -> _Host:
    command = [*shlex.split(request.command), "record", "-a", *request.options]
    if request.duration:
        command += ["--duration", f"{request.duration:g}"]
    script = _SCRIPT.format(
        say=SAY, first=shlex.quote(shlex.split(request.command)[0]), command=shlex.join(command)
    )
    try:
        ssh = subprocess.Popen(  # noqa: S603 - the user's own client; the name is no option
            [*_SSH, name, f"exec sh -c {shlex.quote(script)}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is ours: the host stops when it is told to
        )
    except OSError as error:
        raise CritpathError(f"ssh: {error.strerror}", "install an ssh client") from None
    host = _Host(name, ssh)
    host.listener = threading.Thread(target=_listen, args=(host,), daemon=True)
    host.listener.start()
    return host


def _listen(host: _Host) -> None:
    """Take what ssh says of errors, so that it never waits for that."""
    assert host.ssh.stderr is not None  # noqa: S101 - as it was started
    with host.ssh.stderr as stream:
        while piece := os.read(stream.fileno(), _LINE):
            host.said += piece
            del host.said[:-_TOLD]


def _together(hosts: Sequence[_Host], act: Callable[[_Host], None], most: float) -> None:
    """Do something with every host at the same time; who takes too long is ended."""
    threads = [threading.Thread(target=act, args=(host,), daemon=True) for host in hosts]
    for thread in threads:
        thread.start()
    until = time.monotonic() + most
    for host, thread in zip(hosts, threads, strict=True):
        thread.join(max(until - time.monotonic(), 0.0))
        if thread.is_alive():
            host.wrong = "no answer in time"
            host.ssh.kill()
            thread.join()
            host.wrong = "no answer in time"


def _watch(hosts: Sequence[_Host], duration: float, wait: Callable[[float], None]) -> None:
    """Wait for the end, or until one host is gone: then all others are stopped."""
    until = time.monotonic() + duration if duration else float("inf")
    while time.monotonic() < until and all(host.ssh.poll() is None for host in hosts):
        wait(min(until - time.monotonic(), 0.2))


def _finish(host: _Host, made: Path) -> None:
    host.hear("done")
    if not host.wrong:
        host.fetch(made / directory_of(host.name))


def _keep(hosts: Sequence[_Host], place: OutputDirectory) -> list[str]:
    """Give what was fetched its name, with the list of hosts; nothing where nothing was."""
    fetched = [directory_of(host.name) for host in hosts if not host.wrong]
    if not fetched:
        return []
    listed = [{"name": name, "recording": name} for name in fetched]
    document = {"format": HOSTS_FORMAT, "hosts": listed}
    text = json.dumps(document, indent=1) + "\n"
    (place.write_path / HOSTS).write_text(text, encoding="utf-8")
    place.publish(None)
    return fetched


# What a host sends is hostile.


def unpack(stream: IO[bytes], place: Path) -> None:
    """Unpack an archive: regular files and directories below `place`, nothing else.

    Raises
    ------
    ValueError
        If it holds anything else, or too much.
    """
    place.mkdir()
    count = size = 0
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            count, size = count + 1, size + member.size
            parts = PurePosixPath(member.name).parts
            if member.name.startswith("/") or ".." in parts or "\0" in member.name:
                raise ValueError("a file outside the recording")
            if count > _MOST_FILES or size > _MOST_BYTES:
                raise ValueError("too many files, or too large ones")
            target = place.joinpath(*parts)
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
            elif member.isreg():
                target.parent.mkdir(parents=True, exist_ok=True)
                _write(archive.extractfile(member), target, member.size)
            else:
                raise ValueError("something that is no file")
    if not (place / "critpath.json").is_file():
        raise ValueError("it ended early")


def _write(source: IO[bytes] | None, target: Path, size: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(target, flags, 0o644), "wb") as stream:
        for piece in _pieces(source):
            stream.write(piece)
            size -= len(piece)
    if size:
        raise ValueError("it ended early")


def _pieces(source: IO[bytes] | None) -> Iterator[bytes]:
    while source is not None and (piece := source.read(_PIECE)):
        yield piece
