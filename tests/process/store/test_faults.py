"""Every system call of what saves fails once, in turn, as SQLite tests it.

After each the old state is there, or the new one, never another, and nothing is left over.
What is run here (``python test_faults.py LIBRARY DIRECTORY all``) is preloaded with ``faults.c``.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ERRORS = (errno.EIO, errno.ENOSPC, errno.EACCES, errno.EMFILE)
# What is tried by day, with one error each time; of so many calls every first one fails.
FEW = {"save": 1, "known add, a label": 3}


@pytest.mark.parametrize("tried", ["few", pytest.param("all", marks=pytest.mark.deep)])
def test_whichever_call_fails_the_old_state_is_there_or_the_new(tmp_path, tried):
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler, on Linux")
    library = tmp_path / "faults.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", library, HERE / "faults.c", "-ldl"], check=True
    )
    place = tmp_path / "place"
    place.mkdir()
    done = subprocess.run(
        [sys.executable, __file__, str(library), str(place), tried],
        env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    # A library that is not asked, as another C library's names, would prove nothing.
    assert min(told["calls"].values()) > 5, told["calls"]
    assert not told["wrong"], "\n".join(told["wrong"][:20])


# What runs in a process of its own.


def state_of(place: Path) -> dict[str, bytes | None]:
    """Return all below a directory, and what is in it."""
    return {
        str(path.relative_to(place)): path.read_bytes() if path.is_file() else None
        for path in sorted(place.rglob("*"))
    }


def restore(place: Path, state: dict[str, bytes | None]) -> None:
    """Make a directory what it was."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for name, content in state.items():
        if content is None:
            (place / name).mkdir(parents=True)
        else:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)


Work = Callable[[], int]


def known_operations(place: Path) -> dict[str, tuple[Work, Work]]:
    """Return what changes a store of known signatures: what makes the old state, and the new."""
    from test_known import draw  # noqa: PLC0415 - in the other process

    from critpath.errors import CritpathError  # noqa: PLC0415 - as above
    from critpath.known.entries import (  # noqa: PLC0415 - as above
        add_entry,
        open_store,
    )
    from critpath.signatures.lookup import make_entry  # noqa: PLC0415 - as above

    store = place / "team.known"

    def ended(work: Callable[[], object]) -> int:
        try:
            work()
        except CritpathError as error:
            return error.exit_code
        return 0

    def add(*numbers: int) -> Work:
        def work() -> None:
            for number in numbers:
                entry = make_entry(f"work-{number % 2}", draw(number, 1, documents=3))
                entry = replace(entry, recorded=f"2026-05-{number + 1:02}T10:00:00Z")
                known = open_store(store) if (store / "known.json").exists() else None
                add_entry(store, entry, known)

        return lambda: ended(work)

    def nothing() -> int:
        return 0

    return {
        "known add, the first": (nothing, add(0)),
        "known add, a label": (add(0), add(1)),
        "known add, a session": (add(0), add(2)),
        "known remove": (
            add(0, 1, 2),
            lambda: ended(lambda: open_store(store).remove(["work-0"])),
        ),
        "known relabel": (
            add(0, 1, 2),
            lambda: ended(lambda: open_store(store).relabel("work-0", "other")),
        ),
    }


def operations(place: Path, extract: Path) -> dict[str, Work]:
    """Return what is tried: exit codes tell whether it says that it was done."""
    from critpath.commands import main  # noqa: PLC0415 - in the other process
    from critpath.files import atomic_directory  # noqa: PLC0415
    from critpath.store import Dataset, save_paths  # noqa: PLC0415
    from critpath.store.reading import load_paths  # noqa: PLC0415

    paths = load_paths(extract)

    def save() -> int:
        save_paths(paths, place / "saved.parquet")
        return 0

    def dataset() -> int:
        with atomic_directory(place / "set") as directory:
            Dataset(directory).seal([Dataset(directory).write_part(0, [paths])], {})
        return 0

    return {
        "save": save,
        "dataset": dataset,
        "extract": lambda: main(
            [
                *("export", "--format", "paths", "--quiet", str(extract), "--force"),
                *("-o", str(place / "again.parquet")),
            ]
        ),
        "baseline": lambda: main(
            ["baseline", "save", "--quiet", str(extract), "--force", "-o", str(place / "base.json")]
        ),
    }


def try_once(
    work: Callable[[], int], faults: ctypes.CDLL, place: Path, call: int, code: int
) -> int:
    """Do it in a child, with one failing call; return its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 99  # what is raised, as a function of the library may
    with suppress(BaseException):
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        faults.fault_arm(os.fsencode(place), call, code)
        status = work()
        faults.fault_disarm()
        if not call:
            (place.parent / "calls").write_text(str(faults.fault_seen()), encoding="ascii")
    faults.fault_disarm()
    (place.parent / "called").write_bytes(faults.fault_called())
    os._exit(status)


def main(library: str, directory: str, tried: str) -> None:
    """Try all, or a few with one error, and print what was found."""
    from test_dataset import a_set  # noqa: PLC0415 - in the other process

    from critpath.store import save_paths  # noqa: PLC0415

    faults = ctypes.CDLL(library)
    faults.fault_called.restype = ctypes.c_char_p
    faults.fault_seen.restype = ctypes.c_long
    faults.fault_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int]
    place = Path(directory).resolve()
    first, second = place.parent / "first.parquet", place.parent / "second.parquet"
    save_paths(a_set([1, 2, 3]), first)
    save_paths(a_set([2] * 30, name="other"), second)
    wrong: list[str] = []
    calls: dict[str, int] = {}
    saved = zip(operations(place, first).values(), operations(place, second).items(), strict=True)
    every = {name: (before, later) for before, (name, later) in saved}
    for name, (before, later) in (every | known_operations(place)).items():
        if tried == "few" and name not in FEW:
            continue
        before()  # here, that children find all imported
        later()
        restore(place, {})
        assert try_once(before, faults, place, 0, 0) == 0, name
        old = state_of(place)
        assert try_once(later, faults, place, 0, 0) == 0, name
        new = state_of(place)
        assert old != new
        calls[name] = int((place.parent / "calls").read_text(encoding="ascii"))
        for call in range(1, calls[name] + 1, FEW[name] if tried == "few" else 1):
            for code in ERRORS if tried == "all" else ERRORS[:1]:
                restore(place, old)
                status = try_once(later, faults, place, call, code)
                found = state_of(place)
                called = (place.parent / "called").read_text(encoding="ascii")
                what = f"{name}: call {call}, {called}: {errno.errorcode[code]}, {status}"
                if status not in {0, 2, 4, 99}:
                    wrong.append(f"{what}: an exit code of its own")
                if status == 0 and found != new:
                    wrong.append(f"{what}: done, it says, and is not")
                if found not in (old, new):
                    left = sorted({*found} - {*old, *new})
                    wrong.append(f"{what}: a third state, with {left}")
    sys.stdout.write(json.dumps({"calls": calls, "wrong": wrong}))


if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parents[1] / "pure" / name) for name in ("store", "known")]
    main(*sys.argv[1:])
