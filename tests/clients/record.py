"""Stands between the clients of this folder and a server, and writes down what they send.

    python tests/clients/record.py http://127.0.0.1:8080 9090 requests.jsonl

One line a request: method, path, body and the client that sent it, by its User-Agent.
"""

from __future__ import annotations

import json
import sys
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit


def main() -> None:
    """Until it is interrupted."""
    server, port, file = urlsplit(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])

    class Recorder(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            said = {"agent": self.headers.get("user-agent", ""), "method": self.command, "path": self.path}
            with file.open("a") as lines:
                lines.write(json.dumps({**said, "body": json.loads(body) if body else None}) + "\n")
            connection = HTTPConnection(server.hostname or "", server.port, timeout=60)
            kept = ("content-type", "authorization", "accept")
            headers = {name: value for name, value in self.headers.items() if name.lower() in kept}
            connection.request(self.command, self.path, body or None, headers)
            found = connection.getresponse()
            content = found.read()
            self.send_response(found.status)
            for name, value in found.getheaders():
                if name.lower() not in ("date", "server", "connection"):
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST  # noqa: N815

        def log_message(self, *parts: object) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", port), Recorder).serve_forever()


if __name__ == "__main__":
    main()
