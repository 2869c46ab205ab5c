"""Every path that root opens for writing, or changes, by the system calls of all that records.

What a user can lead elsewhere is reached by a descriptor that was opened before; what is reached by
a name lies where root alone may write.  HOME, the caches and the settings are the user's.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
USER = pwd.getpwnam("nobody")
STRACE = shutil.which("strace")

pytestmark = [
    pytest.mark.xdist_group("kernel"),
    pytest.mark.skipif(os.geteuid() != 0, reason="not root"),
    pytest.mark.skipif(STRACE is None, reason="no strace here"),
]

SHARED = "/tmp"  # noqa: S108 - by name
RECORD = ("record", "--recorder", "ftrace", "-o", "rec")
WAYS = {
    "record": (*RECORD, "-n", "2", "--", "true"),
    "the machine": (*RECORD, "-a", "--duration", "0.5"),
    "a budget": (*RECORD, "--overhead", "20%", "--calibrate", "again", "-a", "--duration", "1.5"),
    "counts": ("record", "--recorder", "counts", "-n", "2", "-o", "rec", "--", "true"),
    "tasks": (*RECORD, "--tasks", "--", "true"),
    "stacks": (*RECORD, "--stacks", "samples", "--files", "--", "true"),
    "labels": (*RECORD, "--labels-from", "bytes", "--profile", "requests", "--", "true"),
    "marks": (*RECORD, "--marks-from", "all", "--", "true"),
    "ab": ("ab", "--runs", "2", "--", "true", "--", "true"),
    "doctor": ("doctor",),
    "doctor --deep": ("doctor", "--deep"),
    "doctor --clean": ("doctor", "--clean"),
}
CHANGING = (
    *("open", "openat", "creat", "mkdir", "mkdirat", "rename", "renameat", "renameat2", "link"),
    *("linkat", "symlink", "symlinkat", "unlink", "unlinkat", "rmdir", "truncate", "chmod"),
    *("fchmodat", "chown", "lchown", "fchownat", "mknod", "mknodat", "setxattr", "mount"),
)
BECOMING = ("setresuid", "setuid", "setreuid", "clone", "clone3", "fork", "vfork")
CALL = re.compile(r"^(\d+) +(\w+)\((.*)\) += (-?\d+)(.*)$")
WORD = re.compile(r'(AT_FDCWD|\d+)<((?:[^<>\\]|\\.)*)>, "((?:[^"\\]|\\.)*)"|"((?:[^"\\]|\\.)*)"')
FOR_WRITING = re.compile(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND)")
BY_DESCRIPTOR = re.compile(r"/proc/(self|\d+)/fd/\d+(/|$)")


@pytest.fixture(scope="module")
def places():
    """Return where docs/security.md says that root writes."""
    spec = importlib.util.spec_from_file_location(
        "running_as_root", ROOT / "docs" / "running_as_root.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return tuple(module.WRITES)


@pytest.fixture
def box():
    """Return a directory of the user's, whose caches lead to root's files."""
    place = Path(tempfile.mkdtemp(dir="/var/tmp"))
    victim = place / "victim"
    victim.mkdir(mode=0o700)
    (victim / "costs.json").write_text("{}")
    for cache in (".cache", "xdg"):
        (place / cache).mkdir()
        (place / cache / "critpath").symlink_to(victim)
    (place / "critpath.toml").write_text("overhead = '30%'\nmemory = '1G'\n")
    for path in (place, *place.rglob("*")):
        if victim not in {path, path.parent}:
            os.chown(path, USER.pw_uid, USER.pw_gid, follow_symlinks=False)
    yield place
    shutil.rmtree(place)


def by_root(lines):
    """Yield the calls of processes that are root then: name, words, result."""
    users, calls = set(), []
    for line in lines:
        if found := CALL.match(line):
            pid, name, words, result, _ = found.groups()
            if name in BECOMING[:3] and result == "0" and re.search(r"\b[1-9]\d*\b", words):
                users.add(pid)
            elif name in BECOMING[3:] and int(result) > 0 and pid in users:
                users.add(result)
            calls.append((pid, name, words, int(result)))
    seen = set()
    for pid, name, words, result in calls:
        if name in BECOMING[:3] and result == 0 and re.search(r"\b[1-9]\d*\b", words):
            seen.add(pid)
        elif name in BECOMING[3:] and result > 0 and pid in seen:
            seen.add(str(result))
        # A child of a user's may be seen before the call that made it has returned.
        elif pid not in seen and not (pid in users and pid not in {c[0] for c in calls[:1]}):
            yield name, words, result


def paths_of(name, words):
    """Yield what a call names: by a descriptor, or the whole path."""
    found = WORD.findall(words)
    # The others are an attribute's name and value.
    for descriptor, directory, path, alone in found[:1] if name == "setxattr" else found:
        text = path or alone
        if not text or (name == "mount" and text in {"nodev", "tracefs"}):
            continue
        if BY_DESCRIPTOR.match(text):
            yield True, text
        elif text.startswith("/"):
            yield False, text
        elif descriptor not in {"", "AT_FDCWD"}:
            yield "/" not in text, f"{directory}/{text}"
        else:
            yield False, os.path.join(directory or ".", text)  # noqa: PTH118 - texts


def is_roots(path):
    """Return whether only root can exchange any name that leads to a path.

    In a directory such as /tmp nobody can exchange what is another's.
    """
    for above in Path(path).parents:
        try:
            about = above.stat()
        except OSError:  # gone with the recording: what it was in counts
            continue
        shared = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if about.st_uid != 0 or (shared and not about.st_mode & stat.S_ISVTX):
            return False
    return True


@pytest.mark.parametrize("sudo", [False, True], ids=["root", "sudo"])
@pytest.mark.parametrize("way", WAYS)
def test_root_writes_where_nobody_leads(way, sudo, box, places):
    log = box.parent / f"{box.name}.log"
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
    env = {**clean, "HOME": str(box), "XDG_CACHE_HOME": str(box / "xdg"), "TMPDIR": SHARED}
    env |= {"SUDO_UID": str(USER.pw_uid), "SUDO_GID": str(USER.pw_gid)} if sudo else {}
    calls = ",".join(f"?{name}" for name in (*CHANGING, *BECOMING))
    try:
        subprocess.run(
            [
                *(STRACE, "-f", "-qq", "-y", "-s", "4096", "-e", f"trace={calls}", "-o", str(log)),
                *(sys.executable, "-P", "-c", "from critpath.commands import entry; entry()"),
                *WAYS[way],
            ],
            cwd=box,
            env={**env, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=120,
        )
        text = log.read_text("utf-8", "replace")
    finally:
        log.unlink(missing_ok=True)
    led, elsewhere = set(), set()
    for name, words, result in by_root(join_lines(text.splitlines())):
        if result < 0 or (name.startswith("open") and not FOR_WRITING.search(words)):
            continue
        for descriptor, path in paths_of(name, words):
            if not descriptor and not path.startswith(places):
                elsewhere.add((name, path))
            # What is made in a directory that others share is made anew.
            shared = name.startswith("open") and path.rpartition("/")[0] == SHARED
            new = not shared or "O_EXCL" in words
            if not descriptor and not (is_roots(path) and new):
                led.add((name, path))
    assert elsewhere == set()
    assert led == set()
    assert (box / "victim" / "costs.json").read_text() == "{}"
    assert sorted(p.name for p in (box / "victim").iterdir()) == ["costs.json"]


def join_lines(lines):
    """Yield calls as one line each: those of several processes interrupt each other."""
    begun = {}
    for line in lines:
        pid, _, rest = line.partition(" ")
        if rest.endswith("<unfinished ...>"):
            begun[pid] = line.removesuffix(" <unfinished ...>").removesuffix("<unfinished ...>")
        elif found := re.match(r" *<\.\.\. \w+ resumed>(.*)", rest):
            yield begun.pop(pid, pid) + found[1]
        else:
            yield line
