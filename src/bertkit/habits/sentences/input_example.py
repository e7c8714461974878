"""``InputExample``: a row of texts that are compared, as older code of sentence-transformers has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class InputExample:
    """``texts`` that belong together, and a ``label``: a number of a class, or how alike they are."""

    guid: str = ""
    texts: Sequence[str] = field(default_factory=list)
    label: int | float = 0
