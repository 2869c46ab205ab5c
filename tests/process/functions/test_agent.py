"""The agent in every Python from 3.12 on that is here: what it writes is what was called."""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "played"))
from pythons import find_pythons

NEW, OLD = find_pythons(12, 13), find_pythons(8, 9, 10, 11)
AGENT = importlib.util.find_spec("critpath.functions.agent").origin
NATIVE = importlib.util.find_spec("critpath.functions._ring").origin
RINGS = {"native": NATIVE, "python": "python"}

pytestmark = pytest.mark.skipif(not NEW, reason="no Python 3.12 or later is here")


@pytest.fixture(params=NEW, ids=lambda path: Path(path).parts[-3])
def python(request) -> str:
    return request.param


def start(python, place, *words, **variables):
    """Run the agent with words in a directory; return what became of it."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("CRITPATH")} | variables
    return subprocess.run(
        [python, AGENT, *words],
        cwd=place, env=env, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def run(python, directory, script, *words, ring=NATIVE, share=1.0):
    """Run a script under the agent; return what it printed."""
    directory.mkdir()
    (directory.parent / "app.py").write_text(script)
    done = start(
        *(python, directory.parent, *(words or ["app.py"])),
        CRITPATH_FUNCTIONS=str(directory),
        CRITPATH_FUNCTIONS_NATIVE=ring,
        CRITPATH_FUNCTIONS_SHARE=str(share),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def read(directory):
    """Return events by (process, thread): (time, name, whether it is an exit); and all lines."""
    names, lines = {}, []
    for file in directory.glob("*.names"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            lines.append(row)
            if "number" in row:
                names[int(file.stem), row["number"]] = row["words"]
    found = {}
    for file in sorted(directory.glob("*.slot")):
        data = file.read_bytes()
        magic, pid, count, windows, lost = struct.unpack_from("<8sIIQQ", data)
        assert (magic, lost) == (b"critfun1", 0)
        body = data[4096 + 65536 : 4096 + 65536 * (1 + windows)] + data[4096 : 4096 + 16 * count]
        for time, code, tid in struct.iter_unpack("<QIi", body):
            name = names[int(file.name.partition("-")[0]), code >> 1]
            found.setdefault((pid, tid), []).append((time, name[0] + "." + name[1], code & 1))
    return {key: sorted(rows, key=lambda row: row[0]) for key, rows in found.items()}, lines


def calls(rows):
    """Return what the program's own functions did: ``>name`` and ``<name``."""
    mine = [
        (name.removeprefix("__main__."), exit_) for _, name, exit_ in rows if "__main__" in name
    ]
    return [("<" if exit_ else ">") + name for name, exit_ in mine]


TREE = """
import threading
def leaf(): return 1
def middle(): leaf(); leaf()
def numbers():
    yield leaf()
    yield 2
def fails(): raise ValueError
class Shop:
    def render(self):
        try: fails()
        except ValueError: pass
def root():
    middle()
    for _ in numbers(): leaf()
    Shop().render()
if __name__ == "__main__":
    thread = threading.Thread(target=root); thread.start(); thread.join()
    root()
"""
ROOT = [
    *(">root", ">middle", ">leaf", "<leaf", ">leaf", "<leaf", "<middle"),
    *(">numbers", ">leaf", "<leaf", "<numbers", ">leaf", "<leaf"),
    *(">numbers", "<numbers", ">leaf", "<leaf", ">numbers", "<numbers"),
    *(">Shop.render", ">fails", "<fails", "<Shop.render", "<root"),
]


@pytest.mark.parametrize("ring", RINGS)
def test_what_is_written_is_what_was_called(python, tmp_path, ring):
    run(python, tmp_path / "out", TREE, ring=RINGS[ring])
    found, lines = read(tmp_path / "out")
    ((pid, _),) = {key for key in found if key[0] == key[1]}
    assert {key[0] for key in found} == {pid}
    main = calls(found[pid, pid])
    [thread] = [calls(rows) for key, rows in found.items() if key[1] != pid]
    assert thread == ROOT
    begun = [">Shop", "<Shop"]  # the body of the class
    assert main == [">" + "<module>", *begun, *ROOT, "<<module>"]
    own = {row["words"][1] for row in lines if row.get("project")}
    assert {"leaf", "root", "Shop.render"} <= own
    assert not {"Thread.start"} & own
    assert [row["words"][2] for row in lines if row.get("words", [0, 0])[1] == "leaf"] == ["app.py"]


def test_children_and_threads_that_end_write_everything(python, tmp_path):
    script = """
import os, threading
def work(n):
    for _ in range(n): step()
def step(): pass
for _ in range(20):
    thread = threading.Thread(target=work, args=(10,)); thread.start(); thread.join()
pid = os.fork()
if not pid:
    work(5000)
    os._exit(0)
os.waitpid(pid, 0)
print(os.getpid(), pid)
"""
    parent, child = map(int, run(python, tmp_path / "out", script, share=100.0).split())
    found, _ = read(tmp_path / "out")
    threads = [calls(rows) for key, rows in found.items() if key[0] == parent != key[1]]
    assert sum(rows.count(">step") for rows in threads) == 200
    assert calls(found[child, child]).count("<step") == 5000
    # A slot for the main thread and few that the others have in turn: a thread's may be free a
    # moment after it was joined.  One of the child's.
    assert 2 <= len(list((tmp_path / "out").glob(f"{parent}-*.slot"))) <= 10
    assert len(list((tmp_path / "out").glob(f"{child}-*.slot"))) == 1


def test_a_program_that_closes_every_descriptor_keeps_its_files(python, tmp_path):
    """Low numbers are closed by daemons without harm; others may be of the program's own files."""
    script = """
import os, sys
os.closerange(3, 800)
def before(): pass
before()
if "all" in sys.argv:
    os.closerange(3, 1024)
    own = [os.open(f"own{n}", os.O_RDWR | os.O_CREAT) for n in range(3, 900)]
def later(): pass
for _ in range(5000): later()
if not os.fork():
    later()
    os._exit(0)
os.wait()
if "all" in sys.argv:
    print(sum(os.fstat(file).st_size for file in own))
"""
    run(python, tmp_path / "out", script)
    _, lines = read(tmp_path / "out")
    named = [row["words"][1] for row in lines if "words" in row]
    assert named.count("before") == named.count("later") == 2
    assert run(python, tmp_path / "other", script, "app.py", "all") == "0\n"


def test_a_hot_function_is_switched_off_and_its_caller_stays(python, tmp_path):
    script = """
import time
def hot(): pass
def outer():
    for _ in range(20_000): hot()
def slow():
    end = time.process_time() + 0.002
    while time.process_time() < end: sum(range(1000))
for _ in range(60):
    outer(); slow()
"""
    run(python, tmp_path / "out", script, share=0.01)
    found, lines = read(tmp_path / "out")
    [rows] = found.values()
    counted = calls(rows)
    assert counted.count(">outer") == counted.count("<outer") == 60
    assert counted.count(">slow") == 60
    hot = next(row["number"] for row in lines if row.get("words", [0, 0])[1] == "hot")
    assert any(row.get("off") == hot for row in lines)
    assert counted.count(">hot") < 60 * 20_000 / 2


def test_without_a_recorder_a_program_runs_as_ever(python, tmp_path):
    (tmp_path / "app.py").write_text(
        "import sys; print(__name__, __file__, sys.argv, sys.path[0], sys.monitoring.get_tool(3))"
    )
    done = start(python, tmp_path, "app.py", "a b")
    assert done.stdout == f"__main__ app.py ['app.py', 'a b'] {tmp_path} None\n"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["-m", "app", "x"], "['{place}/app.py', 'x']"),
        (["-c", "import sys; print(sys.argv)", "x"], "['-c', 'x']"),
        (["app.py", "-m"], "['app.py', '-m']"),
    ],
)
def test_it_runs_what_python_runs(python, tmp_path, words, shown):
    said = run(python, tmp_path / "out", "import sys; print(sys.argv)", *words)
    assert said == shown.format(place=tmp_path) + "\n"


@pytest.mark.parametrize("python", OLD, ids=lambda path: Path(path).parts[-3])
def test_an_older_python_is_refused(python, tmp_path):
    (tmp_path / "app.py").write_text("print('ran')")
    done = start(python, tmp_path, "app.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "from Python 3.12 on" in done.stderr
