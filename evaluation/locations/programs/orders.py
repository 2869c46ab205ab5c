"""Flask under gunicorn with psycopg: orders.py DATABASE [query|row|pool]; it asks itself 40 times.

Two threads serve, one at a time; another closes books and a third makes reports, on connections
of the same pool.  What a fault does is in the function that is named for it: a statement that
reads a whole table, a transaction that keeps a row for long, a report that keeps the connection.
"""

import os
import queue
import signal
import socket
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager

import flask
import psycopg
from gunicorn.app.base import BaseApplication

from critpath_marks import execution

DATABASE = sys.argv[1]
FAULT = sys.argv[2] if len(sys.argv) > 2 else ""
with socket.create_server(("127.0.0.1", 0)) as free:
    PORT = free.getsockname()[1]
app = flask.Flask(__name__)
pool = queue.Queue()
SEARCH = "SELECT sum(price) FROM orders WHERE owner = 7"
SCAN = "SELECT sum(price) FROM orders WHERE owner + 0 = 7"


@contextmanager
def connection():
    one = pool.get()
    try:
        with one.transaction():
            yield one
    finally:
        pool.put(one)


def find_orders(cursor):
    cursor.execute(SCAN if FAULT == "query" else SEARCH)  # find_orders
    return cursor.fetchone()


def take_stock(cursor):
    cursor.execute("UPDATE stock SET n = n - 1 WHERE item = 1")  # take_stock


def close_books(database):
    while True:
        with database.transaction():
            database.execute("UPDATE stock SET n = n + 1 WHERE item = 1")
            time.sleep(0.04 if FAULT == "row" else 0.0005)  # close_books
        time.sleep(0.002)


def build_report():
    while True:
        with connection():
            time.sleep(0.04 if FAULT == "pool" else 0.0005)  # build_report
        time.sleep(0.002)


@app.route("/order")
def order():
    with execution("order"), connection() as database:
        cursor = database.cursor()
        find_orders(cursor)
        take_stock(cursor)
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
    books = psycopg.connect(DATABASE)
    pool.put(psycopg.connect(DATABASE))
    threading.Thread(target=close_books, args=(books,), name="books", daemon=True).start()
    threading.Thread(target=build_report, name="report", daemon=True).start()


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


def fill():
    with psycopg.connect(DATABASE) as database:
        database.execute("DROP TABLE IF EXISTS orders, stock")
        database.execute("CREATE TABLE stock AS SELECT 1 AS item, 0 AS n")
        database.execute(
            "CREATE TABLE orders AS SELECT i % 20000 AS owner, i % 97 AS price"
            " FROM generate_series(1, 200000) i"
        )
        database.execute("CREATE INDEX ON orders (owner)")
        database.execute("ANALYZE")


if __name__ == "__main__":
    fill()
    if not os.fork():
        try:
            ask()
        finally:  # whatever became of it, the server ends
            os.kill(os.getppid(), signal.SIGTERM)
        os._exit(0)
    sys.argv = sys.argv[:1]
    Server().run()
