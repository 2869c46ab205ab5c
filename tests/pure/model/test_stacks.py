"""Where in the user's own code a stack is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.model.stacks import (
    Frame,
    is_own,
    join_stacks,
    location_of,
    mark_frames,
    own_stack,
    read_stack,
    word_stack,
)

LIBC = Frame(
    "__GI___clock_nanosleep", "./time/../sysdeps/x/clock_nanosleep.c", 48, "/lib/libc.so.6"
)
LOCK = Frame("__GI___lll_lock_wait", "", 0, "/usr/lib/x86_64-linux-gnu/libc.so.6")
EVAL = Frame("_PyEval_EvalFrameDefault", "", 0, "/usr/lib/libpython3.12.so.1.0")
THREADING = Frame("Condition.wait", "/usr/lib/python3.12/threading.py", 330, "/run/perf-7.map")
PACKAGE = Frame("get", "/srv/.venv/lib/python3.12/site-packages/pool.py", 9, "/run/perf-7.map")
FLUSH = Frame("flush_log", "/srv/shop/app/audit.py", 42, "/run/perf-7.map")
C = Frame("flush_log", "/srv/me/src/log.c", 12, "/srv/me/bin/server")
STRIPPED = Frame("flush_log", "", 0, "/srv/me/bin/server")


@pytest.mark.parametrize(
    ("frames", "location"),
    [
        ([LIBC, C], "flush_log (src/log.c:12)"),
        ([LOCK, STRIPPED], "flush_log (server)"),
        ([LIBC, EVAL, THREADING, PACKAGE, FLUSH], "flush_log (app/audit.py:42)"),
        ([LIBC, EVAL], ""),
        ([LIBC, Frame("[unknown]", "", 0, "/srv/me/bin/server")], ""),
        ([FLUSH._replace(line=0)], "flush_log (app/audit.py)"),
    ],
)
def test_the_innermost_own_frame_is_the_location(frames, location):
    assert location_of(tuple(frames)) == location


NODE = [
    Frame("emit", "node:events", 471, "perf.map"),
    Frame("handle", "/app/node_modules/express/lib/router.js", 9, "perf.map"),
    Frame("Builtin:ArrayMap", "", 0, "perf.map"),
]


def test_without_lines_a_peer_keeps_its_port():
    ask = Frame("connect(10.0.0.2:5432)", "", 0, "")
    assert location_of((ask,), lines=False) == "connect(10.0.0.2:5432)"
    assert location_of((ask, C), lines=False) == "connect(10.0.0.2:5432) in flush_log (src/log.c)"


@pytest.mark.parametrize("frame", [LIBC, LOCK, EVAL, THREADING, PACKAGE, *NODE])
def test_what_programs_stand_on_is_not_their_own(frame):
    assert not is_own(frame)


NAMES = st.text(st.characters(exclude_characters="\t\n", exclude_categories=["Cs"]), max_size=20)


@given(
    st.lists(st.builds(Frame, NAMES, NAMES, st.integers(0, 10**8), NAMES), min_size=1, max_size=9)
)
def test_a_stack_survives_as_text(frames):
    assert read_stack(word_stack(frames)) == tuple(frames)


PARTS = st.sampled_from(["", ".", "srv", "bits", "site-packages", "<x>", "usr", "lib", "c++"])
FILES = st.builds(
    lambda parts, name: "/".join([*parts, name]),
    st.lists(PARTS, max_size=4),
    st.sampled_from(["a.py", "a.c", "<x>", "libc.so.6"]),
)
FRAMES = st.builds(
    Frame,
    st.sampled_from(["f", "__f", "std::x", ""]),
    st.just("") | FILES,
    st.integers(0, 9),
    FILES,
)


@given(st.lists(FRAMES, max_size=5))
def test_what_a_baseline_keeps_has_the_same_location_and_no_directories(frames):
    kept = own_stack(tuple(frames))
    assert location_of(kept) == location_of(tuple(frames))
    assert own_stack(kept) == kept
    assert all(f.file.count("/") < 2 and "/" not in f.module for f in kept)


SAMPLED = Frame("await_peer", "/srv/shop/app/peers.py", 7, "python")


@pytest.mark.parametrize(
    ("inner", "joined"),
    [
        # A copy that ends early; the interpreter's frames; what a library of Python's own hides.
        ([LIBC], [LIBC, SAMPLED]),
        ([LIBC, EVAL, C], [LIBC, SAMPLED, EVAL, C]),
        ([LIBC, EVAL, THREADING._replace(module="perf.map")], [LIBC, SAMPLED, EVAL]),
        # What perf knows is of that moment.
        ([EVAL, FLUSH._replace(module="perf.map")], [EVAL, FLUSH._replace(module="perf.map")]),
        ([C, EVAL], [C, SAMPLED, EVAL]),
    ],
)
def test_a_sampled_python_stands_where_perf_knows_none_of_its_functions(inner, joined):
    assert join_stacks(tuple(inner), (SAMPLED,)) == tuple(joined)


@given(st.text(max_size=200))
def test_any_text_has_frames(text):
    assert all(0 <= frame.line < 10**9 for frame in read_stack(text))
    assert isinstance(location_of(read_stack(text)), str)


def test_the_user_says_what_is_own():
    nap = Frame("nap", "/srv/me/src/log.c", 3, "/srv/me/bin/server")
    stack = (LIBC, PACKAGE, nap, C)
    assert location_of(stack).startswith("nap")
    assert location_of(mark_frames(stack, (), ("nap",))) == "flush_log (src/log.c:12)"
    assert location_of(mark_frames(stack, ("pool",), ())) == "get (site-packages/pool.py:9)"
    assert location_of(mark_frames(stack, (), ("server",))) == ""
    assert mark_frames(stack, ("pool.py",), ())[1].own is True
