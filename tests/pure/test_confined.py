"""A kernel that offers to confine and refuses: each refusal is a warning, and the rest is done."""

from __future__ import annotations

import ctypes
import errno
from types import SimpleNamespace

import pytest

from critpath import confined

_OFFERED = 7  # the version of Landlock


@pytest.fixture
def asked(monkeypatch):
    """Have a C library that does nothing; return a function that says which call fails."""
    calls = []

    def library(fails):
        def answer(name, ok=0):
            calls.append(name)
            if name == fails:
                ctypes.set_errno(errno.EPERM)
                return -1
            return ok

        def syscall(number, attributes, *_):
            if number == confined._CREATE:
                return _OFFERED if attributes is None else answer("create", 1 << 20)
            return answer("restrict" if number == confined._RESTRICT else "add")

        def prctl(what, *_):
            names = {confined._PR_SET_SECCOMP: "seccomp", confined._PR_SET_NO_NEW_PRIVS: "privs"}
            return answer(names.get(what, "drop"))

        made = SimpleNamespace(
            syscall=syscall,
            prctl=prctl,
            capget=lambda *_: answer("capget"),
            capset=lambda *_: answer("capset"),
        )
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: made)
        monkeypatch.setattr(confined.os, "close", lambda _: None)
        confined.restrict([], [])
        return calls

    return library


def test_nothing_is_said_where_all_is_done(asked, capsys):
    assert {"capset", "privs", "restrict", "seccomp"} <= {*asked("")}
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("fails", "named"),
    [
        ("capget", "capabilities"),
        ("capset", "capabilities"),
        ("privs", "no_new_privs"),
        ("create", "Landlock"),
        ("restrict", "Landlock"),
        ("seccomp", "seccomp"),
    ],
)
def test_what_is_refused_is_said_and_the_rest_is_done(asked, capsys, fails, named):
    assert "seccomp" in asked(fails)
    said = capsys.readouterr().err
    assert said == (
        f"critpath: warning: what is read is not confined by {named}: Operation not permitted\n"
    )
