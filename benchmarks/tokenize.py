"""How fast is the tokenizer? ``python benchmarks/tokenize.py --data ../shared/data``; see ``tokenizer_speed.py``.

Python searches a script's own folder for modules first, so every benchmark in it would import this file in place of
the standard library's ``tokenize``, which many packages use. When imported, this file therefore loads the standard
module.
"""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from pathlib import Path

if __name__ == "__main__":
    from tokenizer_speed import main

    main()
else:
    spec = importlib.util.spec_from_file_location(__name__, Path(sysconfig.get_path("stdlib")) / "tokenize.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[__name__] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[__name__])
