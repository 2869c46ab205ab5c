"""Several hosts over a real ssh: an sshd with users, keys and sudoers of its own.

All of it is in a mount namespace, so nothing of the machine is changed; "hosts" are names of the
client's own configuration that lead to this machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
CRITPATH = str(Path(sys.executable).with_name("critpath"))
USERS = {"root": 0, "mayall": 64001, "maynot": 64002}
TOOLS = ("ssh", "ssh-keygen", "sudo", "unshare", "mount")


def lacking():
    if os.geteuid() != 0:
        return "needs root"
    if not SSHD:
        return "no sshd (Debian: openssh-server)"
    if not Path("/sys/kernel/tracing/instances").exists():
        return "no tracefs"
    missing = [name for name in TOOLS if not shutil.which(name)]
    if missing:
        return f"no {', '.join(missing)}"
    able = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True)
    return "" if able.returncode == 0 else "no mount namespaces"


CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {place}/host
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
AuthorizedKeysFile {place}/authorized
SetEnv TMPDIR={tmp}
LogLevel ERROR
"""
# Of the client: hosts that there are, one that nobody listens for, one that refuses the key.
CLIENT = """
Host gone
  Port 1
Host stranger
  IdentityFile {place}/stranger
Host web app
  IdentityFile {place}/key
Host *
  HostName 127.0.0.1
  Port {port}
  User root
  IdentitiesOnly yes
  UserKnownHostsFile {place}/known
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking accept-new
"""
NAMESPACE = """
set -e
for name in passwd shadow group sudoers; do mount --bind {place}/$name /etc/$name; done
mount -t tmpfs -o size={size} none {tmp}
chmod 1777 {tmp}
exec {sshd} -D -e -f {place}/sshd
"""


class Sshd:
    """A server, and what a client needs to reach it."""

    def __init__(self, place, wait_for, size="2g"):
        self.place, self.tmp, self.wait_for = place, place / "tmp", wait_for
        self.tmp.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        for name in ("host", "key", "stranger"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)]
            subprocess.run(words, check=True)
        shutil.copy(place / "key.pub", place / "authorized")
        (place / "authorized").chmod(0o644)
        self._write("sshd", CONFIG, 0o600)
        self._write("client", CLIENT, 0o600)
        homes = [f"{name}:x:{uid}:{uid}::{place}:/bin/sh\n" for name, uid in USERS.items() if uid]
        passwd = Path("/etc/passwd").read_text() + "".join(homes)
        shadow = "".join(f"{line.split(':')[0]}:*:1::::::\n" for line in passwd.splitlines())
        groups = "".join(f"{name}:x:{uid}:\n" for name, uid in USERS.items() if uid)
        sudoers = f"mayall ALL=(root) NOPASSWD: {CRITPATH}\n"
        for name, text, mode in (
            ("passwd", passwd, 0o644),
            ("shadow", shadow, 0o600),
            ("group", Path("/etc/group").read_text() + groups, 0o644),
            ("sudoers", sudoers, 0o440),
        ):
            (place / name).write_text(text)
            (place / name).chmod(mode)
        Path("/run/sshd").mkdir(exist_ok=True)
        script = NAMESPACE.format(place=place, tmp=self.tmp, size=size, sshd=SSHD)
        with (place / "log").open("wb") as log:
            self.server = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        (place / "bin").mkdir()
        wrapper = place / "bin/ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {place}/client "$@"\n')
        wrapper.chmod(0o755)
        self._wait()

    def _write(self, name, text, mode):
        (self.place / name).write_text(text.format(place=self.place, port=self.port, tmp=self.tmp))
        (self.place / name).chmod(mode)

    def _wait(self):
        self.wait_for(lambda: self._answers() or self.server.poll() is not None)
        if self.server.poll() is not None:
            pytest.skip(f"sshd did not start: {(self.place / 'log').read_text()[-300:]}")

    def _answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def wait_until_clean(self):
        """Return when nothing is left on the hosts, in their name space of files."""
        self.wait_for(lambda: not any(self._there().iterdir()))

    def _there(self):
        return Path(f"/proc/{self.server.pid}/root{self.tmp}")

    def wait_recording(self, many):
        """Wait until so many hosts record."""
        self.wait_for(lambda: self._count_recording() == many)

    def _count_recording(self):
        logs = [place.read_text() for place in self._there().glob("*/log")]
        return sum("recording for" in text for text in logs)

    def sessions(self):
        """Return the processes that serve connections."""
        found = Path(f"/proc/{self.server.pid}/task/{self.server.pid}/children").read_text()
        return [int(pid) for pid in found.split()]

    def start(self, *words):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
        path = f"{self.place / 'bin'}:{environment['PATH']}"
        return subprocess.Popen(
            [CRITPATH, "record", "--hosts", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment, "PATH": path},
        )

    def record(self, out, hosts, *more):
        words = ("--remote-command", CRITPATH, "--duration", "1", "-o", out, *more)
        process = self.start(hosts, *words)
        _, said = process.communicate(timeout=120)
        return process.returncode, said

    def close(self):
        self.server.terminate()
        self.server.wait()


def serve(wait_for, size="2g"):
    place = Path(tempfile.mkdtemp(prefix="critpath-sshd-", dir="/var/tmp"))
    place.chmod(0o755)
    return Sshd(place, wait_for, size)


@pytest.fixture(scope="module")
def sshd(wait_for):
    if lacks := lacking():
        pytest.skip(lacks)
    server = serve(wait_for)
    yield server
    server.close()
    shutil.rmtree(server.place)


def errors(said):
    """Return the lines about what went wrong; no path of a descriptor is in any."""
    assert "/proc/self/fd" not in said
    assert "Traceback" not in said
    # The second line of an error says what to do.
    progress = ("critpath: connecting", "critpath: fetching", "critpath: ending", "  ")
    return [line for line in said.splitlines() if not line.startswith(progress)]


def test_two_hosts_are_recorded_and_their_clocks_are_known(sshd, tmp_path, critpath):
    code, said = sshd.record(tmp_path / "set", "web,app")
    assert code == 0, said
    listed = json.loads((tmp_path / "set/hosts.json").read_text())["hosts"]
    assert [host["name"] for host in listed] == ["web", "app"]
    for host in listed:
        assert len(host["probes"]) == 40
        assert all(left <= there <= back for left, there, back in host["probes"])
        manifest = json.loads((tmp_path / "set" / host["name"] / "critpath.json").read_text())
        assert manifest["state"] == "complete"
        assert manifest["profile"] == "network"
    sshd.wait_until_clean()
    assert critpath("clocks", tmp_path / "set").returncode == 0


def test_clocks_are_known_by_probes_where_hosts_said_nothing_to_each_other(
    sshd, tmp_path, critpath
):
    assert sshd.record(tmp_path / "set", "web,app")[0] == 0
    for number, name in enumerate(("web", "app")):
        file = tmp_path / "set" / name / "critpath.json"
        manifest = json.loads(file.read_text())
        manifest["host"]["boot_id"] = f"another-{number}"
        manifest["clock"] = {"name": "monotonic", "epoch": manifest["clock"]["epoch"]}
        file.write_text(json.dumps(manifest))
    done = critpath("clocks", tmp_path / "set", "--json", "-")
    assert done.returncode == 0, done.stderr
    [other] = [h for h in json.loads(done.stdout)["hosts"] if h["source"] != "reference"]
    assert other["source"] == "messages"
    for _, low, high in other["uncertainty_ns"]:
        assert high - low < 20e6
    [piece] = other["pieces"]
    _, low, high = other["uncertainty_ns"][0]
    assert low <= -piece["offset_ns"] <= high  # it is one clock


def test_a_user_who_may_use_sudo(sshd, tmp_path):
    code, said = sshd.record(
        tmp_path / "set", "mayall@web", "--remote-command", f"sudo -n {CRITPATH}"
    )
    assert code == 0, said
    assert (tmp_path / "set/web/critpath.json").is_file()
    sshd.wait_until_clean()


@pytest.mark.parametrize(
    ("host", "command", "words"),
    [
        ("maynot@web", CRITPATH, ("root", "Permission denied")),
        ("maynot@web", f"sudo -n {CRITPATH}", ("password", "sudo")),
        ("gone", CRITPATH, ("refused",)),
        ("stranger", CRITPATH, ("denied",)),
        ("web", "/no/critpath", ("not found",)),
        ("web", "true", ("",)),
    ],
)
def test_a_host_that_cannot_be_recorded_is_named_in_one_line(sshd, tmp_path, host, command, words):
    code, said = sshd.record(tmp_path / "set", host, "--remote-command", command)
    assert code == 125, said
    [wrong] = [line for line in errors(said) if host in line]
    assert any(word in wrong for word in words), said
    assert not (tmp_path / "set").exists()
    sshd.wait_until_clean()


def test_another_version_is_said(sshd, tmp_path):
    other = sshd.place / "other"
    other.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo critpath 0.0.1; exit; }\n'
        f'exec {CRITPATH} "$@"\n'
    )
    other.chmod(0o755)
    code, said = sshd.record(tmp_path / "set", "web", "--remote-command", other)
    assert code == 0, said
    assert "warning: web: it has critpath 0.0.1, this is critpath " in said


def test_a_connection_that_is_cut_midway(sshd, tmp_path):
    process = sshd.start("web,app", "--remote-command", CRITPATH, "-o", tmp_path / "set")
    sshd.wait_recording(2)
    os.kill(sshd.sessions()[0], signal.SIGKILL)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 125, said
    assert len([line for line in errors(said) if line.startswith("warning: ")]) >= 1
    kept = sorted(p.name for p in (tmp_path / "set").iterdir())
    assert len(kept) == 2
    assert "hosts.json" in kept
    sshd.wait_until_clean()


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_ends_it_and_keeps_what_is_whole(sshd, tmp_path, times):
    process = sshd.start("web,app", "--remote-command", CRITPATH, "-o", tmp_path / "set")
    sshd.wait_recording(2)
    process.send_signal(signal.SIGINT)
    said = ""
    if times > 1:
        while "ending the recording" not in said:
            said += process.stderr.readline()
        process.send_signal(signal.SIGINT)
    said += process.communicate(timeout=120)[1]
    errors(said)
    if times == 1:
        assert process.returncode == 0, said
        assert sorted(p.name for p in (tmp_path / "set").iterdir()) == ["app", "hosts.json", "web"]
    else:
        assert process.returncode == 125, said
        assert "interrupted" in said
        assert not (tmp_path / "set").exists()
    # What was being made whole when the line ended stays on its host.
    if times == 1:
        sshd.wait_until_clean()


@pytest.mark.parametrize(
    ("size", "code", "words"), [("250m", 0, "MiB were free"), ("4k", 125, "space")]
)
def test_little_space_on_a_host(tmp_path, wait_for, size, code, words):
    if lacks := lacking():
        pytest.skip(lacks)
    server = serve(wait_for, size)
    try:
        found, said = server.record(tmp_path / "set", "web")
        assert found == code, said
        assert words in said
        errors(said)
    finally:
        server.close()
        shutil.rmtree(server.place)
