"""A real HTTP server on this machine that answers as the Hub does, and a client that runs on its own."""

from __future__ import annotations

import hashlib
import http.server
import os
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

from forked_interpreter import run_forked

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Answer = tuple[int, dict[str, str], bytes]
NO_REPOSITORY: Answer = (404, {"X-Error-Code": "RepoNotFound"}, b"{}")
NO_REVISION: Answer = (404, {"X-Error-Code": "RevisionNotFound"}, b"{}")
NO_FILE: Answer = (404, {"X-Error-Code": "EntryNotFound"}, b"")


class HubServer:
    """A subclass says what is there; ``asked`` is what clients asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, parts: list[str]) -> Answer:
        """Status, headers and body for the parts of a path."""
        raise NotImplementedError

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.asked.append(self.path)
                status, headers, body = hub.answer(unquote(urlsplit(self.path).path).strip("/").split("/"))
                self.send_response(status)
                for key, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(key, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET  # noqa: N815 (the name the base class asks for)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def etag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


def file_of(content: bytes, commit: str = COMMIT) -> Answer:
    """A file to download."""
    return 200, {"ETag": f'"{etag(content)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}, content


def client(
    code: str, home: Path, url: str, *arguments: str, fresh: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python where the folders and the address of the Hub are set before what reads them is imported.

    fresh: before anything is imported.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_") and "proxy" not in key.lower()}
    env = {
        **kept, "HF_HOME": str(home / "hf"), "XDG_CACHE_HOME": str(home / "cache"), "HF_ENDPOINT": url,
        "HF_HUB_DISABLE_PROGRESS_BARS": "1", **variables,
    }  # fmt: skip
    if not fresh:
        return run_forked(code, *arguments, env=env, cwd=home)
    call = [sys.executable, "-c", code, *arguments]
    return subprocess.run(call, env=env, cwd=home, capture_output=True, text=True, timeout=300)
