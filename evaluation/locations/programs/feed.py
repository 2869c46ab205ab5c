"""aiohttp, a pool of threads and a queue: feed.py [fsync|pool|queue]; it asks itself 40 times."""

import asyncio
import os
import queue
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aiohttp import ClientSession, web

from critpath_marks import execution

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
with socket.create_server(("127.0.0.1", 0)) as free:
    PORT = free.getsockname()[1]
pool = ThreadPoolExecutor(1, thread_name_prefix="pool")
wanted, made = queue.Queue(), queue.Queue()
audit = Path("audit.log").open("w")  # noqa: SIM115 - to the end


def save_audit():
    for _ in range(15 if FAULT == "fsync" else 1):
        audit.write("line\n")
        audit.flush()
        os.fsync(audit.fileno())  # save_audit


def render_page():
    time.sleep(0.012 if FAULT == "pool" else 0.0005)  # render_page


def fetch_item():
    time.sleep(0.012 if FAULT == "queue" else 0.0005)  # fetch_item


def produce():
    while True:
        wanted.get()
        fetch_item()
        made.put(1)


async def show(_request):
    with execution("show"):
        save_audit()
        await asyncio.get_running_loop().run_in_executor(pool, render_page)
        wanted.put(1)
        made.get()
    return web.Response(text="shown")


async def main():
    application = web.Application()
    application.router.add_get("/", show)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", PORT).start()
    threading.Thread(target=produce, name="producer", daemon=True).start()
    async with ClientSession() as session:
        for _ in range(40):
            async with session.get(f"http://127.0.0.1:{PORT}/") as answer:
                await answer.text()
            await asyncio.sleep(0.003)
    await runner.cleanup()


asyncio.run(main())
