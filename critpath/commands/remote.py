"""Records several hosts at once, over ssh: starts on all, stops on all, fetches what they have.

One ssh per host runs a small script there: it says ``ready``, waits for ``start``, records, says
``done``, and sends the recording as an archive.  It stops at ``stop`` or when its input ends, and
removes what it made, except a whole recording that was not confirmed with ``fetched``.  Before
and after it is asked the time some hundred times, so that clocks can be aligned whatever was
recorded.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Final

from critpath.errors import CritpathError, UsageError
from critpath.model.recording import HOSTS, HOSTS_FORMAT
from critpath.units import plural, safe_text
from critpath_record import OutputDirectory

SAY: Final = "critpath-hosts"
_SSH: Final = (
    *("ssh", "-oBatchMode=yes", "-oConnectTimeout=20", "-oServerAliveInterval=20"),
    *("-a", "-x", "--"),
)
_PATIENCE: Final = 60.0  # s to connect and to say ready
_LONGEST: Final = 86_400.0  # s that a host records if nothing ends it
_MARGIN: Final = 600.0  # s after its duration until a host is told to stop: it converts meanwhile
_SOON: Final = 5.0  # s after the duration in which another host that fails still ends the others
_CONVERTING: Final = 3600.0  # s from the end to a whole recording
_PARTING: Final = 3.0  # s that hosts have together to end once everything is here
_STILL: Final = 120.0  # s of a transfer without a byte
_MOST_FILES: Final = 100_000
_MOST_BYTES: Final = 1 << 40
_MOST_DEEP: Final = 16
_HEADERS: Final = 1 << 20  # bytes between two files
_SPARE: Final = 64 * 2**20  # bytes that stay free here
_LINE: Final = 4096
_PIECE: Final = 1 << 20
_TOLD: Final = 2000  # letters of what a host says went wrong
_PROBES: Final = 200  # times that a host is asked the time, before and after
_ASKED: Final = 5.0  # seconds after which it is asked no more
_SILENT: Final = 20.0  # seconds after which one that says nothing of it is given up
_NARROWEST: Final = 20  # of them are kept: those that took least
_DIGITS: Final = 20  # of a time

_SCRIPT: Final = """
set -u
exec 3<&0
keep=
d=$(mktemp -d) || exit 125
# What was recorded by sudo is root's until it is whole.
trap '[ "$keep" ] || rm -rf "$d" 2>/dev/null || sudo -n rm -rf --one-file-system -- "$d"' EXIT
trap 'exit 129' HUP INT TERM PIPE
command -v {first} >/dev/null || {{
  echo "{say} failed: {first} was not found on the host"
  exit 127
}}
version=$({base} --version </dev/null 2>"$d/log" | head -n 1)
[ "$version" ] || {{
  echo "{say} failed: $(tail -n 1 "$d/log" | cut -c 1-1000)"
  exit 125
}}
tell_time() {{
  python3 -c '
import os, time
os.write(1, b"{say} clock\\n")
while (asked := os.read(3, 1)) not in (b"", b"."):
  if asked == b"?":
    os.write(1, b"%d\\n" % time.clock_gettime_ns(time.CLOCK_MONOTONIC))
' 2>/dev/null || echo "{say} no clock"
}}
printf '%s\\t%s\\n' "{say} ready $d" "$version"
{probe}
read -r word <&3 || exit 0
[ "$word" = start ] || exit 0
{command} -o "$d/recording" </dev/null >"$d/log" 2>&1 &
p=$!
(
  read -r word <&3 || : >"$d/lost"
  # sudo hands no signal on whose sender is in its own process group.
  {{ setsid kill -TERM $p || setsid sudo -n kill -TERM $p || kill -TERM $p; }}
) >/dev/null 2>&1 &
r=$!
wait $p
c=$?
# Anything else a shell that was just forked may lose; it may take what is for the clock.
kill -KILL $r 2>/dev/null
wait $r 2>/dev/null
if [ $c -ne 0 ] || [ ! -e "$d/recording/critpath.json" ]; then
  echo "{say} failed: $(tail -n 3 "$d/log" | tr '\\n' ' ' | cut -c 1-1000)"
  exit 125
fi
[ -e "$d/lost" ] || keep=1
echo "{say} done"
{probe}
tar -C "$d/recording" -cf - .
while [ "$keep" ] && read -r word <&3; do
  [ "$word" = fetched ] && keep=
done
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
        Seconds; 0 until a signal, but never for more than a day.
    options : tuple of str
        Of ``critpath record`` there.
    command : str
        How critpath is called there.
    force : bool
        Replace what is at `output`.
    version : str
        What ``critpath --version`` says here; "" for any there.
    probes : bool
        Ask every host the time before and after, so that clocks can be aligned.
    """

    hosts: tuple[str, ...]
    output: Path
    duration: float
    options: tuple[str, ...]
    command: str = "critpath"
    force: bool = False
    version: str = ""
    probes: bool = True

    def __post_init__(self) -> None:
        """Refuse what ssh could take for something else than a host."""
        for host in self.hosts:
            if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@:%\[\]-]{0,199}", host):
                raise UsageError(
                    f"--hosts: {safe_text(host) or 'nothing'} is not a host name",
                    "give names that ssh knows, separated by commas: --hosts web,app,db",
                )
        names = [directory_of(host) for host in self.hosts]
        if HOSTS in names:
            raise UsageError(
                f"--hosts: {HOSTS} is what the list of hosts is called",
                "give the host another name in ~/.ssh/config",
            )
        if len({*names}) < len(names):
            raise UsageError("--hosts names a host twice", "name each host once")

    def record(
        self, tell: Callable[[str], None], wait: Callable[[float], None]
    ) -> tuple[list[str], list[str]]:
        """Record on all hosts and fetch what they recorded.

        Parameters
        ----------
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
        place = OutputDirectory.check(self.output, secrets.token_hex(8), force=self.force)
        try:
            place.make()
            return _record(self, place, tell, wait)
        finally:
            place.close()


@dataclass
class _Host:
    """One host's ssh, and what became of it.

    Attributes
    ----------
    place : str
        Where it writes, there.
    whole : bool
        Its recording stays there unless it is fetched.
    fetched : bool
    stopped : bool
        It was told to stop: what it recorded stays there, once it is whole.
    moved : float
        When something last came from it.
    version : str
        Of critpath there.
    probes : list of (int, int, int)
        When it was asked the time, what it said, and when that was here (ns).
    """

    name: str
    ssh: subprocess.Popen[bytes]
    wrong: str = ""
    place: str = ""
    whole: bool = False
    fetched: bool = False
    stopped: bool = False
    moved: float = 0.0
    version: str = ""
    probes: list[tuple[int, int, int]] = field(default_factory=list)
    said: bytearray = field(default_factory=bytearray)
    listener: threading.Thread | None = None

    def say(self, word: str) -> None:
        """Send a line; a host that is gone is found out when it is read from."""
        if word == "stop":
            self.stopped = not self.wrong
        with suppress(OSError, ValueError):
            self._input.write(f"{word}\n".encode())
            self._input.flush()

    def hear(self, word: str) -> None:
        """Wait for a line; note what is wrong if another comes."""
        if self.wrong:
            return
        line = self._output.readline(_LINE).decode("utf-8", "replace").strip()
        if line == f"{SAY} {word}" or line.startswith(f"{SAY} {word} "):
            if word == "ready":
                self.place, _, self.version = line.removeprefix(f"{SAY} ready ").partition("\t")
            self.whole = word == "done"
            return
        why = line.removeprefix(f"{SAY} failed: ") if line.startswith(SAY) else ""
        self.stopped = self.stopped and not why  # it removes what failed
        why = why or self._ended() or (f"unexpected answer: {line}" if line else "the line is dead")
        self.wrong = self.wrong or why

    def ask_time(self) -> None:
        """Ask what time it is there, often; one that never answers is given up."""
        why = "it does not say what time it is (--no-probes asks nothing)"
        patience = threading.Timer(_SILENT, self.give_up, (why,))
        patience.daemon = True
        patience.start()
        try:
            self._ask_often()
        finally:
            patience.cancel()

    def _ask_often(self) -> None:
        """Note what it says; one that cannot say has no probes."""
        if self.wrong or self._output.readline(_LINE).decode("utf-8", "replace").split() != [
            *(SAY, "clock")
        ]:
            return
        found, end = [], time.monotonic() + _ASKED
        for _ in range(_PROBES):
            left = time.monotonic_ns()
            self._input.write(b"?")
            self._input.flush()
            line = self._output.readline(_LINE).strip()
            back = self.moved_ns()
            if not line:
                self.wrong = self.wrong or self._ended() or "the line is dead"
            if not line.isdigit() or len(line) > _DIGITS:
                return  # its clock is not known; what it recorded is
            found.append((left, int(line), back))
            if time.monotonic() > end:
                break
        self._input.write(b".")
        self._input.flush()
        found.sort(key=lambda probe: probe[2] - probe[0])
        self.probes += sorted(found[:_NARROWEST])

    def moved_ns(self) -> int:
        """Note that something came now."""
        self._note()
        return time.monotonic_ns()

    def give_up(self, why: str) -> None:
        """End the connection at once."""
        self.wrong = self.wrong or why
        self.ssh.kill()

    def explain(self) -> str:
        """Say what is wrong, and where its recording is."""
        left = f"; its recording is left there, in {self.place}/recording" if self.whole else ""
        if self.stopped and not self.whole:
            left = f"; its recording is left there once it is whole, in {self.place}/recording"
        return f"{safe_text(self.name)}: {safe_text(self.wrong + left)}"

    def _ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self.ssh.wait(2)
        if self.listener is not None:
            self.listener.join(1)  # what it has to say may still be on its way
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

    def fetch(self, output: Path) -> None:
        """Unpack the archive that comes next; what is wrong is noted, and nothing is left."""
        if self.wrong:
            return
        place = output / directory_of(self.name)
        try:
            unpack(self._output, place, self._note)
            self.fetched = not self.wrong
        except (OSError, tarfile.TarError, ValueError, RecursionError, MemoryError) as error:
            # Without the file's name: that of a descriptor tells nothing.
            why = error.strerror if isinstance(error, OSError) else error
            self.wrong = self.wrong or f"its recording did not come whole ({why})"
        finally:
            if not self.fetched:
                shutil.rmtree(place, ignore_errors=True)

    def _note(self) -> None:
        self.moved = time.monotonic()

    def hang_up(self) -> None:
        """Let the host end: it stops, if it still records, and removes what was fetched."""
        with suppress(OSError):
            self._input.close()

    def close(self, until: float) -> None:
        """End the connection, by then at the latest; what the host does goes on there."""
        try:
            self.ssh.wait(max(until - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            self.ssh.kill()
            self.ssh.wait()
        self._output.close()
        if self.listener is not None:  # another process with ssh's stderr may keep it open
            self.listener.join(max(until - time.monotonic(), 0.1))


def directory_of(host: str) -> str:
    """Return what a host's recording is called: its name, without the user."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", host.rpartition("@")[2]).strip("-.") or "host"


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
        _begin(hosts, request, tell)
        ending = _start(hosts, lambda host: _hear_and_ask(host, "done", request))
        try:
            _watch(hosts, request.duration, wait)
        except KeyboardInterrupt:
            tell("ending the recording")
        for host in hosts:
            host.say("stop")
        with suppress(KeyboardInterrupt):  # once more: what has come is kept
            _fetch(hosts, ending, place.write_path, tell)
        fetched = _keep(hosts, place)
    finally:
        for host in hosts:
            host.hang_up()
        until = time.monotonic() + _PARTING
        for host in hosts:
            host.close(until)
        if not any(host.fetched for host in hosts):
            place.discard()
    return fetched, [host.explain() for host in hosts if host.wrong]


def _hear_and_ask(host: _Host, word: str, request: RemoteRequest) -> None:
    """Wait for a host to say something, and then ask it the time."""
    host.hear(word)
    if request.probes:
        host.ask_time()


def _begin(hosts: Sequence[_Host], request: RemoteRequest, tell: Callable[[str], None]) -> None:
    """Start on all hosts once all are ready; raises CritpathError if one is not."""
    _together(hosts, lambda host: _hear_and_ask(host, "ready", request), _PATIENCE)
    for host in hosts:
        if host.wrong:
            raise CritpathError(
                f"{safe_text(host.name)}: {safe_text(host.wrong)}; no host was recorded",
                f"try: ssh {shlex.quote(host.name)} {request.command} doctor",
            )
    for host in hosts:
        if request.version not in {"", host.version}:
            other, mine = safe_text(host.version), safe_text(request.version)
            tell(f"warning: {safe_text(host.name)}: it has {other}, this is {mine}")
    for host in hosts:
        host.say("start")


def _connect(name: str, request: RemoteRequest) -> _Host:
    base = shlex.split(request.command)
    command = [*base, "record", "-a", *request.options]
    # Always: a host that cannot be told to stop must not record for ever.
    command += ["--duration", f"{request.duration or _LONGEST:g}"]
    script = _SCRIPT.format(
        say=SAY,
        first=shlex.quote(base[0]),
        base=shlex.join(base),
        command=shlex.join(command),
        probe="tell_time" if request.probes else "",
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
    """Do something with every host at the same time."""
    _join(hosts, _start(hosts, act), most)


def _start(hosts: Sequence[_Host], act: Callable[[_Host], None]) -> list[threading.Event]:
    """Do something with every host in a thread; return what is set when each has ended.

    An interrupted `Thread.join` takes the thread for ended (Python 3.11).
    """

    def try_to_act(host: _Host, ended: threading.Event) -> None:
        try:
            act(host)
        except Exception as error:  # noqa: BLE001 - in a thread it would be lost
            host.wrong = host.wrong or f"{type(error).__name__}: {error}"
        finally:
            ended.set()

    ends = [threading.Event() for _ in hosts]
    for each in zip(hosts, ends, strict=True):
        threading.Thread(target=try_to_act, args=each, daemon=True).start()
    return ends


def _join(hosts: Sequence[_Host], ends: Sequence[threading.Event], most: float) -> None:
    """Wait until all have ended; a host from which nothing comes for too long is given up."""
    begin = time.monotonic()
    try:
        for host, ended in zip(hosts, ends, strict=True):
            while not ended.wait(0.2):
                if time.monotonic() - max(begin, host.moved) > most:
                    host.give_up("no answer in time")
                    ended.wait()
    except KeyboardInterrupt:
        for host, ended in zip(hosts, ends, strict=True):
            if not ended.is_set():
                host.give_up("interrupted")
                ended.wait()
        raise


def _watch(hosts: Sequence[_Host], duration: float, wait: Callable[[float], None]) -> None:
    """Wait until all have ended by themselves, or until one is gone, or far too late."""
    begin = time.monotonic()
    over, until = (begin + duration + late if duration else math.inf for late in (_SOON, _MARGIN))
    while (now := time.monotonic()) < until and not all(h.whole or h.wrong for h in hosts):
        if now < over and any(host.wrong or host.ssh.poll() is not None for host in hosts):
            return
        wait(min(until - now, 0.2))


def _fetch(
    hosts: Sequence[_Host],
    ending: Sequence[threading.Event],
    place: Path,
    tell: Callable[[str], None],
) -> None:
    """Wait for whole recordings and fetch them; those that are not fetched stay where they are."""
    try:
        _join(hosts, ending, _CONVERTING)
        tell("fetching the recordings")
        _together(hosts, lambda host: host.fetch(place), _STILL)
    finally:
        for host in hosts:
            if not host.fetched:
                host.wrong = host.wrong or "interrupted"


def _read_boot() -> str:
    """Return by which recordings of this boot are known; "" where nothing tells."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _keep(hosts: Sequence[_Host], place: OutputDirectory) -> list[str]:
    """Give what was fetched its name, with the list of hosts; nothing where nothing was."""
    kept = [host for host in hosts if host.fetched]
    if not kept:
        return []
    fetched = [directory_of(host.name) for host in kept]
    listed = [
        {"name": name, "recording": name, "probes": host.probes}
        for name, host in zip(fetched, kept, strict=True)
    ]
    document = {"format": HOSTS_FORMAT, "boot_id": _read_boot(), "hosts": listed}
    text = json.dumps(document) + "\n"
    try:
        (place.write_path / HOSTS).write_text(text, encoding="utf-8")
        place.publish(None)
    except OSError as error:
        for host in kept:  # it stays there, and here nothing does
            host.fetched, host.wrong = False, f"its recording could not be kept ({error.strerror})"
        return []
    for host in kept:
        host.say("fetched")
    return fetched


# What a host sends is hostile.


class _Source(io.BufferedIOBase):
    """An archive's bytes as they come; `left` is how many may come before a file begins."""

    def __init__(self, stream: IO[bytes], note: Callable[[], None]) -> None:
        self._stream, self._note, self.left = stream, note, _HEADERS

    def read(self, size: int | None = -1, /) -> bytes:
        """Read, and note that something came."""
        data = self._stream.read(-1 if size is None else size)
        self._note()
        self.left -= len(data)
        if self.left < 0:
            raise ValueError("a header that is too large")
        return data


def unpack(stream: IO[bytes], place: Path, note: Callable[[], None] = lambda: None) -> None:
    """Unpack an archive: regular files and directories below `place`, nothing else.

    Raises
    ------
    ValueError
        If it holds anything else, or too much.
    """
    place.mkdir(0o700)
    count = size = 0
    source = _Source(stream, note)
    with tarfile.open(fileobj=source, mode="r|") as archive:
        while member := archive.next():
            source.left = sys.maxsize
            count, size = count + 1, size + member.size
            if count > _MOST_FILES or size > _MOST_BYTES:
                raise ValueError("too many files, or too large ones")
            _unpack_member(archive, member, place)
            source.left = _HEADERS
    if not (place / "critpath.json").is_file():
        raise ValueError("it ended early")


def _unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    parts = PurePosixPath(member.name).parts
    if member.name.startswith("/") or ".." in parts or "\0" in member.name:
        raise ValueError("a file outside the recording")
    if not member.name.isprintable() or not member.name.isascii():
        raise ValueError("a file whose name no recorder gives")
    if len(parts) > _MOST_DEEP:
        raise ValueError("directories that are too deep")
    # A sparse file's size is no longer that of what came.
    if member.issparse() or not (member.isdir() or member.isreg()):
        raise ValueError("something that is no file")
    for name in parts if member.isdir() else parts[:-1]:
        place /= name
        place.mkdir(0o700, exist_ok=True)
    if member.isreg() and parts:
        _write(archive.extractfile(member), place / parts[-1], member.size)


def _write(source: IO[bytes] | None, target: Path, size: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(target, flags, 0o600), "wb") as stream:
        for piece in _pieces(source):
            free = os.fstatvfs(stream.fileno())
            if free.f_blocks and free.f_bavail * free.f_frsize < _SPARE + len(piece):
                raise ValueError("too little space is free here")
            stream.write(piece)
            size -= len(piece)
    if size:
        raise ValueError("it ended early")


def _pieces(source: IO[bytes] | None) -> Iterator[bytes]:
    while source is not None and (piece := source.read(_PIECE)):
        yield piece
