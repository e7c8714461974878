"""``python -m bertkit``: the same as the ``bertkit`` command."""

from __future__ import annotations

import sys

from bertkit.cli import main

if __name__ == "__main__":
    sys.exit(main())
