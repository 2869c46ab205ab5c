"""What ``.ci/packages`` does on machines that lack something; apt is a stand-in here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "packages"
PEERS = SCRIPT.with_name("peers")
# A Python that has venv and its headers once the packages are there.
PYTHON = """#!/bin/sh
case "$2" in
*ensurepip*) test -e "$ROOT/python3-venv" ;;
*sysconfig*) test -e "$ROOT/python3-dev" ;;
*) false ;;
esac
"""
APT = """#!/bin/sh
for last; do :; done
echo "$*" >>"$ROOT/apt.log"
case "$1 $last" in
update*) ;;
*REFUSED*) exit 100 ;;
*gcc) ln -s "$ROOT/bin/fake" "$ROOT/bin/cc" ;;
*) touch "$ROOT/$last" ;;
esac
"""


@pytest.fixture
def machine(tmp_path):
    """A machine with nothing but a shell, an apt and a Python without its parts."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for tool in ("sh", "tr", "sed", "ln", "touch"):
        (commands / tool).symlink_to(shutil.which(tool))
    (commands / "fake").touch()
    for tool, text in {"fake-python": PYTHON, "fake": "#!/bin/sh\n"}.items():
        (commands / tool).write_text(text)
        (commands / tool).chmod(0o755)

    def run(what: str, *, uid: int, apt: str = "", sudo: str = ""):
        for tool, text in {"apt-get": apt, "sudo": sudo, "id": f"#!/bin/sh\necho {uid}\n"}.items():
            if text:
                (commands / tool).write_text(text)
                (commands / tool).chmod(0o755)
        environment = {"PATH": str(commands), "ROOT": str(tmp_path), "PYTHON": "fake-python"}
        return subprocess.run(
            [commands / "sh", SCRIPT, what],
            env={**environment, "LC_ALL": os.environ.get("LC_ALL", "C")},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_without_root_what_is_missing_is_one_line_and_an_error(machine):
    done = machine("build", uid=1000, apt=APT)
    assert done.returncode == 1
    assert done.stderr == (
        "missing: gcc libc6-dev python3-venv python3-dev (Debian's names); "
        "install them and try again\n"
    )


def test_what_only_tests_compare_with_is_said_and_no_error(machine):
    done = machine("test", uid=1000, apt=APT, sudo="#!/bin/sh\nexit 1\n")
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1
    assert "babeltrace2" in done.stderr
    assert "are skipped" in done.stderr


@pytest.mark.parametrize(("uid", "sudo"), [(0, ""), (1000, '#!/bin/sh\nshift\nexec "$@"\n')])
def test_root_or_sudo_installs_what_is_missing(machine, tmp_path, uid, sudo):
    if sudo:  # sudo -n true
        (tmp_path / "bin" / "true").symlink_to(shutil.which("true"))
    done = machine("build", uid=uid, apt=APT, sudo=sudo)
    assert (done.returncode, done.stderr) == (0, "")
    installed = [line.split()[-1] for line in (tmp_path / "apt.log").read_text().splitlines()]
    assert installed[1:] == ["gcc", "libc6-dev", "python3-venv", "python3-dev"]
    (tmp_path / "apt.log").unlink()
    assert machine("build", uid=uid).returncode == 0
    assert not (tmp_path / "apt.log").exists()  # nothing is installed that is there


def test_a_package_that_apt_lacks_keeps_no_other_out(machine, tmp_path):
    done = machine("build", uid=0, apt=APT.replace("REFUSED", "venv"))
    assert done.returncode == 1
    assert "apt-get could not install python3-venv" in done.stderr
    assert done.stderr.endswith(
        "missing: python3-venv (Debian's names); install them and try again\n"
    )
    assert (tmp_path / "python3-dev").exists()


DOWNLOAD = """#!/bin/sh
echo "$1" >>"$ROOT/apt.log"
case "$1" in
download) [ -e "$ROOT/lists" ] && : >muscle3_1_all.deb ;;
update) touch "$ROOT/lists" ;;
esac
"""
UNPACK = """#!/bin/sh
mkdir -p usr/bin && ln -s "$ROOT/bin/fake" usr/bin/muscle3
"""


@pytest.fixture
def unpack(tmp_path):
    """Run ``.ci/peers`` on a machine with the tools that are given."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for tool in ("sh", "mkdir", "ln", "rm", "touch"):
        (commands / tool).symlink_to(shutil.which(tool))

    def run(uid=0, **tools):
        for tool, text in {
            "fake": "#!/bin/sh\n",
            "id": f"#!/bin/sh\necho {uid}\n",
            **tools,
        }.items():
            place = commands / tool.replace("_", "-")
            place.write_text(text)
            place.chmod(0o755)
        return subprocess.run(
            [commands / "sh", PEERS, tmp_path / "there", "muscle3"],
            env={"PATH": str(commands), "ROOT": str(tmp_path), "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_muscle3_is_unpacked_once_and_silently(unpack, tmp_path):
    for _ in range(2):
        done = unpack(apt_get=DOWNLOAD, dpkg_deb=UNPACK)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert (tmp_path / "there" / "usr" / "bin" / "muscle3").exists()
    # The lists were missing at first; the second time nothing was asked for.
    assert (tmp_path / "apt.log").read_text().split() == ["download", "update", "download"]
    assert [p.name for p in (tmp_path / "there").iterdir()] == ["usr"]


def test_a_muscle3_of_the_system_is_enough(unpack, tmp_path):
    done = unpack(muscle3="#!/bin/sh\n", apt_get=DOWNLOAD, dpkg_deb=UNPACK)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize(
    ("uid", "tools"),
    [
        (0, {}),
        (1000, {"apt_get": DOWNLOAD, "dpkg_deb": UNPACK}),
        (0, {"apt_get": "#!/bin/sh\nexit 1\n"}),
    ],
)
def test_without_muscle3_it_is_said_and_no_error(unpack, uid, tools):
    done = unpack(uid, **tools)
    assert done.returncode == 0
    assert done.stderr == (
        "muscle3 could not be unpacked; the tests and benchmarks that need it leave it out\n"
    )
