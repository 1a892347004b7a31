"""A webhook: appends what it is sent to a file, refuses as long as another file is there."""

import http.server
import pathlib


class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        refuse = pathlib.Path("refuse").exists() and self.path == "/second"
        if not refuse:
            with open("received", "ab") as file:
                file.write(self.path.encode() + b" " + data + b"\n")
        self.send_response(500 if refuse else 200)
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
print(server.server_address[1], flush=True)
server.serve_forever()
