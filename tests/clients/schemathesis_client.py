"""schemathesis: requests made up from the OpenAPI description, good and bad ones; it is also its own file of hooks.

No answer may be a fault of the server, have a status or a content type that the description does not name, or be other
than its schema says.
"""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(context: Any, value: Any) -> bytes:
    """Two bodies, one a line."""
    return 2 * (json.dumps(value).encode() + b"\n")


def known(name: Any) -> Any:
    """A model of the server in the place of most made-up names, which all have the same answer."""
    names = os.environ["MODELS"].split(",")
    number = zlib.crc32(str(name).encode("utf-8", "surrogatepass"))
    return names[number % len(names)] if isinstance(name, str) and number % 8 else name


@schemathesis.hook
def map_path_parameters(context: Any, values: Any) -> Any:
    """Paths of models."""
    return {key: known(value) for key, value in values.items()} if values else values


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Bodies that name a model."""
    return {**body, "model": known(body["model"])} if isinstance(body, dict) and "model" in body else body


@schemathesis.hook
def map_headers(context: Any, headers: Any) -> Any:
    """Without deadlines, which may be missed, as is described: with a status above 500."""
    return {name: value for name, value in (headers or {}).items() if name.lower() != "x-request-timeout"}


if __name__ == "__main__":
    here = Path(__file__)
    checks = (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
    )
    with urlopen(f"{sys.argv[1]}/v1/models") as reply:
        models = ",".join(one["id"] for one in json.load(reply)["data"])
    command = [Path(sys.executable).with_name("schemathesis"), "run", f"{sys.argv[1]}/openapi.json"]
    command += ["--checks", ",".join(checks), "--max-examples", "10", "--phases", "examples,fuzzing", "--no-color"]
    found = [str(here.parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {
        **os.environ,
        "MODELS": models,
        "SCHEMATHESIS_HOOKS": here.stem,
        "PYTHONPATH": os.pathsep.join(filter(None, found)),
    }
    sys.exit(subprocess.run(list(map(str, command)), env=environment, check=False).returncode)
