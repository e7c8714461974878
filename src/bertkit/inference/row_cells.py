"""Rows as the cells of a table, whatever file they are written to."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache

from bertkit.system.untrusted_files import Json

OWN = "bertkit_"  # before the name of a field of ours where the input has a column of that name
Row = dict[str, Json]
#: Cells by column, as many of each as there are rows.
Table = dict[str, list[Json | tuple[float | None, ...]]]


def own_name(field: str, taken: Collection[str]) -> str:
    """What a field of ours is called in rows that have the columns ``taken`` as well.

    Spark, SQL and tables of Excel read ``Text`` and ``text`` as one name.
    """
    return _own_name(field, tuple(taken)) if taken else field


@lru_cache(maxsize=4096)  # asked for each cell
def _own_name(field: str, taken: tuple[str, ...]) -> str:
    lower = {name.lower() for name in taken}
    while field.lower() in lower:
        field = OWN + field
    return field


def table_of(rows: Sequence[Row], taken: Collection[str] = ()) -> Table:
    """Predictions as columns: those of all rows, in the order in which they first occur."""
    found = [flat(row, taken) for row in rows]
    names = dict.fromkeys(name for cells in found for name in cells)
    return {name: [cells.get(name) for cells in found] for name in names}


def flat(row: Row, taken: Collection[str] = ()) -> dict[str, Json | tuple[float | None, ...]]:
    """One prediction as the cells of a table row; a tuple has the probabilities of several labels."""
    last = shared, cut, blank = [own_name(field, taken) for field in ("probabilities", "truncated", "empty")]
    cells: dict[str, Json | tuple[float | None, ...]] = {}
    for key, value in row.items():
        if isinstance(value, dict) and "label" in value and key not in taken:  # what a head says of a text
            facts = {own_name(f"{key}_{name}", taken): fact for name, fact in value.items() if name != "label"}
            cells |= {key: value["label"], **facts}
        elif key not in last:
            cells[key] = value
    shares = row.get(shared)
    if isinstance(shares, dict):
        predicted = row[own_name("predicted", taken)]
        get = shares.get  # of very many labels only the likeliest have theirs
        chosen = tuple(map(get, predicted)) if isinstance(predicted, list) else get(predicted)  # of None: None
        cells[own_name("probability", taken)] = chosen
        cells |= {own_name(f"p_{label}", taken): share for label, share in shares.items()}
    elif shares is not None:
        cells[shared] = shares
    if cut in row:
        cells[cut] = row[cut]
    return {**cells, blank: bool(row.get(blank, False))} if own_name("predicted", taken) in row else cells
