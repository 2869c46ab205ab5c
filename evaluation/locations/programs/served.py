"""A server of threads: each request takes a lock that is held, for longer once a file is there."""

import http.server
import os
import socketserver
import sys
import threading
import time

LOCK = threading.Lock()


def flush_log() -> None:
    with LOCK:
        time.sleep(0.02 if os.path.exists(sys.argv[2]) else 0.0005)  # noqa: PTH110


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        flush_log()
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


Server(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
