"""Benchmarks that run for hours: every finished measurement is kept, so that a later run continues, on any machine."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from machine import cpu_name

RESULTS = Path(__file__).parent / "results"
Cell = dict[str, Any]


class Cells:
    """The finished measurements of a campaign, a line of JSON each.

    Each says of itself what was measured (``key``), and gets the date, the processor and the threads. Scores of all
    machines belong together; times are compared within a line, or of lines of one machine.
    """

    def __init__(self, file: Path, key: tuple[str, ...]) -> None:
        self.file, self.key = file, key
        self.lines: dict[tuple[Any, ...], Cell] = {}
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            try:
                self._keep(json.loads(line))
            except json.JSONDecodeError:
                print(f"{file}: left out an unfinished line", file=sys.stderr)

    def _keep(self, cell: Cell) -> None:
        self.lines[tuple(cell[name] for name in self.key)] = cell

    def __contains__(self, key: object) -> bool:
        return key in self.lines

    def add(self, cell: Mapping[str, Any], threads: int) -> None:
        """Write a finished measurement, before anything else is begun."""
        about = {"date": time.strftime("%Y-%m-%d"), "cpu": cpu_name(), "threads": threads}
        whole = {**cell, **about}
        self._keep(whole)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(whole) + "\n")
        print(whole, file=sys.stderr, flush=True)


def machines(cells: Iterable[Cell]) -> list[str]:
    """For a report: on what the lines were measured, when and how many of them."""
    counts: dict[tuple[str, str, int], int] = {}
    for cell in cells:
        key = (cell["date"], cell["cpu"], cell["threads"])
        counts[key] = counts.get(key, 0) + 1
    return [
        f"- {date}: {count} trainings on {cpu}, {threads} thread{'s' if threads > 1 else ''}"
        for (date, cpu, threads), count in sorted(counts.items())
    ]
