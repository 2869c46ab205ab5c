"""``record --tasks``: whose a call is on a loop that many requests share, by what asyncio says."""

from __future__ import annotations

import json
import sys

import pytest

pytestmark = pytest.mark.usefixtures("traceable")

# A server of one loop: eight clients ask at once, each request asks a peer through one pool of two
# connections, and the peer answers after a moment.
PROGRAM = """
import asyncio, multiprocessing, socket, threading, time
async def answer(reader, writer):
    while await reader.read(64):
        await asyncio.sleep(0.002)
        writer.write(b"x" * 40)
async def serve_all(address, peer):
    pool = asyncio.Queue()
    for _ in range(2):
        pool.put_nowait(await asyncio.open_connection(*peer))
    async def serve(reader, writer):
        while await reader.read(64):
            held = await pool.get()
            held[1].write(b"y" * 20)
            await held[0].read(64)
            pool.put_nowait(held)
            writer.write(b"z" * 30)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address.put(server.sockets[0].getsockname())
    await server.serve_forever()
async def answer_all(address):
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    address.put(server.sockets[0].getsockname())
    await server.serve_forever()
def start(function, *args):
    address = multiprocessing.SimpleQueue()
    run = lambda: asyncio.run(function(address, *args))
    process = multiprocessing.Process(target=run, daemon=True)
    process.start()
    return address.get()
def ask(front):
    with socket.create_connection(front) as to:
        for _ in range(12):
            to.send(b"w" * 10)
            to.recv(64)
multiprocessing.set_start_method("fork")
front = start(serve_all, start(answer_all))
threads = [threading.Thread(target=ask, args=(front,)) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
time.sleep(0.5)  # what loops noted is written ten times a second: then they are killed
print(front[1])
"""


def test_whose_each_call_is_the_runtime_says(record, critpath, tmp_path):
    (tmp_path / "loop.py").write_text(PROGRAM)
    done = record(
        *(tmp_path, "r", "--tasks", "--profile", "requests", "--"),
        *(sys.executable, "loop.py"),
    )
    assert "no runtime said" not in done.said
    critpath("requests", tmp_path / "r", "--json", tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    front = done.out.strip()
    served = [of for of in found["services"] if of["service"].endswith(f":{front}")]
    assert [of["requests"] for of in served] == [96]
    assert [*served[0]["calls"].values()] == [1.0]
    assert served[0]["how"] == {"task": 1.0}
    assert served[0]["sure"] == 1.0
