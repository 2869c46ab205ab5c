"""Flask under gunicorn, with threads: shop.py [lock|sleep|compute]; it asks itself 40 times."""

import os
import signal
import socket
import sys
import threading
import time
import urllib.request

import flask
from gunicorn.app.base import BaseApplication

from critpath_marks import execution

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
with socket.create_server(("127.0.0.1", 0)) as free:
    PORT = free.getsockname()[1]
app = flask.Flask(__name__)
lock = threading.Lock()


def flush_log():
    with lock:
        time.sleep(0.012 if FAULT == "lock" else 0.0005)  # flush_log


def log_all():
    while True:
        flush_log()
        time.sleep(0.001)


def get_connection():
    lock.acquire()
    lock.release()


def ask_stock():
    time.sleep(0.012 if FAULT == "sleep" else 0.0005)  # ask_stock


def compute_price():
    until = time.thread_time() + (0.02 if FAULT == "compute" else 0.001)
    while time.thread_time() < until:  # compute_price
        pass  # compute_price


@app.route("/order")
def order():
    with execution("order"):
        get_connection()
        ask_stock()
        compute_price()
    return "ordered"


class Server(BaseApplication):
    def load_config(self):
        options = {
            "bind": f"127.0.0.1:{PORT}",
            "threads": 2,
            "post_fork": begin,
            "loglevel": "error",
        }
        for name, value in options.items():
            self.cfg.set(name, value)

    def load(self):
        return app


def begin(_server, _worker):
    threading.Thread(target=log_all, name="logger", daemon=True).start()


def ask():
    for _ in range(100):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/nothing")
        except urllib.error.HTTPError:
            break
        except OSError:
            time.sleep(0.1)
    for _ in range(40):
        urllib.request.urlopen(f"http://127.0.0.1:{PORT}/order").read()
        time.sleep(0.003)


if __name__ == "__main__":
    if not os.fork():
        try:
            ask()
        finally:  # whatever became of it, the server ends
            os.kill(os.getppid(), signal.SIGTERM)
        os._exit(0)
    sys.argv = sys.argv[:1]
    Server().run()
