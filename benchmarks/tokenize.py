"""How fast is the tokenizer? ``python benchmarks/tokenize.py --data ../shared/data``; see ``tokenizer_speed.py``.

Python looks for modules in a script's own folder first, so to every benchmark in it this file would be the ``tokenize``
of the standard library, which many packages import. It hands that module out when it is imported.
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
