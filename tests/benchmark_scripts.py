"""Imported before modules of the folder ``benchmarks``, so that they are found."""

from __future__ import annotations

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))  # behind everything: it has a tokenize.py
