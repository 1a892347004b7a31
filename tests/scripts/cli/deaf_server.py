"""A server that takes connections and never answers."""

import socket

server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connections = []
while True:
    connections.append(server.accept())
    print("connected", flush=True)
