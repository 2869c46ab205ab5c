"""A server with a client that asks nothing, as long as it lives."""

import socket
import time

server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
accepted, _ = server.accept()
time.sleep(600)
