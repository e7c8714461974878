"""schemathesis: requests made up from the OpenAPI description, good and bad ones; it is also its own file of hooks.

No answer may be a fault of the server, or have a status or a content type that the description does not name.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(context: Any, value: Any) -> bytes:
    """Two bodies, one a line."""
    return 2 * (json.dumps(value).encode() + b"\n")


if __name__ == "__main__":
    here = Path(__file__)
    checks = ("not_a_server_error", "status_code_conformance", "content_type_conformance")
    command = [Path(sys.executable).with_name("schemathesis"), "run", f"{sys.argv[1]}/openapi.json"]
    command += ["--checks", ",".join(checks), "--max-examples", "10", "--phases", "examples,fuzzing", "--no-color"]
    found = [str(here.parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": here.stem, "PYTHONPATH": os.pathsep.join(filter(None, found))}
    sys.exit(subprocess.run(list(map(str, command)), env=environment, check=False).returncode)
