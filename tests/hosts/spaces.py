"""Network namespaces on one bridge: hosts of a network that one kernel has, with one clock.

The bridge is in a namespace of its own, so nothing of the machine's network changes, and all is
gone with the namespaces. ``delay`` puts a relay between a host and the bridge (`relay.py`) where
the kernel has no netem.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

NETWORK: Final = "10.83.0"
RELAY: Final = Path(__file__).with_name("relay.py")


def missing() -> str:
    """Return why there can be no namespaces here, "" if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "nsenter"):
        if not shutil.which(program):
            return f"no {program} (iproute2, util-linux)"
    name = f"cp{os.getpid()}-try"
    try:
        _ip("netns", "add", name)
        try:
            _ip("-n", name, "link", "add", "b0", "type", "bridge")
            _ip("-n", name, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
        finally:
            _ip("netns", "del", name)
    except subprocess.CalledProcessError as error:
        return f"no network namespaces, bridges or veth: {error.stderr.strip()}"
    return ""


class Spaces:
    """Namespaces with the names of hosts, one address each; a context manager.

    Parameters
    ----------
    names : sequence of str
        At most eight letters each.
    delay : mapping of str to str, optional
        Of hosts whose packets are late: ``MEAN_US,JITTER_US,LOSS,SEED`` of `relay.py`.
    """

    def __init__(self, names: Sequence[str], delay: dict[str, str] | None = None) -> None:
        self.names = tuple(names)
        self._prefix = f"cp{os.getpid()}-"
        self._delay = delay or {}
        self._relays: list[subprocess.Popen[bytes]] = []
        self.how = ""  # packets are delayed: netem, or relay

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def space(self, name: str) -> str:
        """Return what the namespace of a host is called."""
        return self._prefix + name

    def address(self, name: str) -> str:
        """Return a host's address."""
        return f"{NETWORK}.{self.names.index(name) + 1}"

    def inode(self, name: str) -> int:
        """Return the number of a host's namespace."""
        return (Path("/run/netns") / self.space(name)).stat().st_ino

    def enter(self, name: str, *words: str, user: tuple[int, int] | None = None) -> list[str]:
        """Return a command that runs on a host, as a user and group."""
        more = [f"--setgid={user[1]}", f"--setuid={user[0]}"] if user else []
        return ["nsenter", f"--net=/run/netns/{self.space(name)}", *more, "--", *words]

    def threads(self) -> dict[int, str]:
        """Return the host of every thread that is on one."""
        spaces = {self.inode(name): name for name in self.names}
        found = {}
        for task in Path("/proc").glob("[0-9]*/task/[0-9]*"):
            with contextlib.suppress(OSError):
                name = spaces.get((task / "ns/net").stat().st_ino)
                if name:
                    found[int(task.name)] = name
        return found

    def close(self) -> None:
        """Remove the namespaces, and end the relays."""
        for relay in self._relays:
            relay.kill()
            relay.wait()
        self._relays.clear()
        for name in (*self.names, "switch"):
            if (Path("/run/netns") / self.space(name)).exists():
                _ip("netns", "del", self.space(name))

    def _build(self) -> None:
        switch = self.space("switch")
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        for name in self.names:
            space = self.space(name)
            _ip("netns", "add", space)
            _ip("-n", space, "link", "set", "lo", "up")
            self._plug(name, space, switch)
            _ip("-n", space, "address", "add", f"{self.address(name)}/24", "dev", f"to-{name}")
            _ip("-n", space, "link", "set", f"to-{name}", "up")
            _ip("-n", switch, "link", "set", name, "master", "br0")
            _ip("-n", switch, "link", "set", name, "up")

    def _plug(self, name: str, space: str, switch: str) -> None:
        """Make the two ends of a host's cable, and delay what goes over it."""
        if name in self._delay:
            mean, jitter, loss, _ = self._delay[name].split(",")
            self._cable(name, space, switch)
            netem = ("root", "netem", "delay", f"{mean}us", f"{jitter}us", "loss", f"{loss}%")
            try:
                _tc(switch, name, *netem)
                _tc(space, f"to-{name}", *netem)
            except subprocess.CalledProcessError:
                _ip("-n", switch, "link", "del", name)
            else:
                self.how = "netem"
                return
            self.how = "relay"
            words = (sys.executable, str(RELAY), f"{space}:to-{name}", f"{switch}:{name}")
            self._relays.append(
                subprocess.Popen([*words, self._delay[name]], stdin=subprocess.DEVNULL)
            )
            _wait_for(space, f"to-{name}")
            _wait_for(switch, name)
            return
        self._cable(name, space, switch)

    def _cable(self, name: str, space: str, switch: str) -> None:
        ends = ("type", "veth", "peer", "name", f"to-{name}", "netns", space)
        _ip("-n", switch, "link", "add", name, *ends)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _tc(space: str, device: str, *words: str) -> None:
    command = ["tc", "-n", space, "qdisc", "add", "dev", device, *words]
    subprocess.run(command, check=True, capture_output=True, text=True)


def _wait_for(space: str, device: str) -> None:
    for _ in range(200):
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("-n", space, "link", "show", device)
            return
        time.sleep(0.02)
    raise RuntimeError(f"no device {device}: the relay did not start")


@contextlib.contextmanager
def started(command: Sequence[str], **others: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process with all it starts in a session of its own, and end it."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **others)
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a session, with all in it."""
    for sign in (2, 9):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
