"""A page in a real browser, by Chromium's own protocol over pipes: keys, texts, pictures, and every request."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO

CHROMIUM = shutil.which("chromium")
#: Without a sandbox, for tests that run as root; without what the browser itself asks the network for; and without a
#: network: no proxy is there, and only addresses of this machine are asked without one.
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --remote-debugging-pipe --window-size=1280,900 "
    "--proxy-server=127.0.0.1:9"
).split()
#: Key codes of keys that type nothing.
KEYS = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class Page:
    """A page that is open."""

    def __init__(self, answers: BinaryIO, orders: BinaryIO) -> None:
        self._answers, self._orders, self._number = answers, orders, 0
        self._session: str | None = None
        #: The addresses of all requests, and what went wrong in scripts or against the page's policy.
        self.requests: list[str] = []
        self.problems: list[str] = []

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to an order."""
        self._number += 1
        order = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            order["sessionId"] = self._session
        self._orders.write(json.dumps(order).encode() + b"\0")
        self._orders.flush()
        while True:
            message = self._read()
            if message.get("id") == self._number:
                assert "error" not in message, message
                return dict(message["result"])

    def _read(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "the browser has ended"
            data += byte
        message = dict(json.loads(data))
        told = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(told["exceptionDetails"]))
        elif message.get("method") == "Runtime.consoleAPICalled" and told["type"] == "error":
            self.problems.append(json.dumps(told["args"]))
        elif message.get("method") == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.problems.append(told["entry"]["text"])
        return message

    def open(self, place: Path | str, *, dark: bool = False, width: int | None = None) -> None:
        """Load a file or an address, in light or dark; ``width``: of the window, in pixels."""
        address = place if isinstance(place, str) else place.resolve().as_uri()
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Network", "Runtime", "Log", "Page"):
            self.send(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        if width is not None:
            size = {"width": width, "height": 740, "deviceScaleFactor": 1, "mobile": width < 600}
            self.send("Emulation.setDeviceMetricsOverride", **size)
        self.send("Page.navigate", url=address)
        self.wait(f"document.readyState === 'complete' && location.protocol === '{address.partition('//')[0]}'")

    def wait(self, condition: str, seconds: float = 20.0) -> None:
        """Until a condition in JavaScript holds."""
        end = time.monotonic() + seconds
        while not self.value(condition):
            assert time.monotonic() < end, f"never: {condition}"
            time.sleep(0.02)

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript is."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def write(self, text: str) -> None:
        """Type a text where the focus is, in place of what is there."""
        self.value("document.activeElement.select()")
        self.send("Input.insertText", text=text)

    def press(self, *keys: str) -> None:
        """Press keys one after another, as a person does; ``Control+Enter`` both together."""
        for pressed in keys:
            control, _, key = pressed.rpartition("+")
            code = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": 2 if control else 0}
            typed = {"text": "\r"} if key == "Enter" and not control else {}
            self.send("Input.dispatchKeyEvent", type="keyDown", **code, **typed)
            self.send("Input.dispatchKeyEvent", type="keyUp", **code)

    def picture(self, path: Path) -> None:
        """Write a picture of the whole page."""
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of the files in ``folder``."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A browser with nothing in it, whose files lie in ``folder``."""
    assert CHROMIUM is not None
    (ours_in, theirs_out), (theirs_in, ours_out) = os.pipe(), os.pipe()

    def place_pipes() -> None:  # where --remote-debugging-pipe expects them
        os.dup2(theirs_in, 3)
        os.dup2(theirs_out, 4)

    # Of the four, two may be 3 and 4 themselves; copies of them are not.
    firsts, (theirs_in, theirs_out) = (theirs_in, theirs_out), (os.dup(theirs_in), os.dup(theirs_out))
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder}"]
    with subprocess.Popen(
        command, pass_fds=(3, 4), preexec_fn=place_pipes, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        for end in (*firsts, theirs_in, theirs_out):
            os.close(end)
        try:
            with os.fdopen(ours_in, "rb") as answers, os.fdopen(ours_out, "wb") as orders:
                yield Page(answers, orders)
        finally:
            process.kill()
