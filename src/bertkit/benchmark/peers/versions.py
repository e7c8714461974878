"""Which packages this interpreter has: a JSON object from name to version, null for one that is not installed."""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError, version


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    print(json.dumps({package: _version(package) for package in sys.argv[1:]}))
