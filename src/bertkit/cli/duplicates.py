"""``bertkit duplicates``: duplicate and near-duplicate texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli.cluster import Encoding, TextFile, TextRows, text_rows
from bertkit.cli.common_options import Computing, Model, write_json
from bertkit.cli.results import ResultFile, beside, id_of, shown
from bertkit.cli.task_options import TextColumns
from bertkit.errors import ConfigError, counted
from bertkit.system.console import Progress, aligned, one_line, say

if TYPE_CHECKING:
    from bertkit.inference.retrieval.near_texts import Group, NearGroups, NearTexts
    from bertkit.inference.row_cells import Row
    from bertkit.ragged import Floats

#: Width of the bins of the histogram, and characters of its longest bar.
BIN, BAR = 0.05, 40


def duplicates(
    file: TextFile,
    /,
    *,
    model: Model,
    threshold: Annotated[
        float | Literal["auto"],
        Parameter(help="Lowest cosine of duplicates; auto: from how alike the texts of the file are."),
    ] = 0.9,
    pairs: Annotated[bool, Parameter(negative=(), help="List all pairs of similar texts instead of groups.")] = False,
    limit: Annotated[int, Parameter(help="Show at most this many groups or pairs, the most similar ones.")] = 1000,
    results: ResultFile = ResultFile(),
    encoding: Encoding = Encoding(),
    columns: TextColumns = TextColumns(),
    common: Computing = Computing(),
) -> None:
    """Find duplicate and near-duplicate texts.

    Lists groups of texts, the surest first; each text with its cosine with the first
    text of its group, its place in the file, and its id. If you keep the first text
    of each group, every text that you remove is like one that you keep. Ends with a
    histogram: how similar each text is to its nearest other.

    --out writes a row for each text of a group, with its number, the line of the file
    and all columns.

    For example:

        bertkit duplicates questions.csv --model DIR
        bertkit duplicates questions.csv --model DIR --threshold auto
        bertkit duplicates questions.csv --model DIR --out same.xlsx
        bertkit duplicates questions.csv --model DIR --pairs --json
    """
    if pairs and results != ResultFile():
        raise ConfigError("--out writes groups; leave --pairs out")
    to_rows = results.check()
    common.begin()
    from bertkit.inference.retrieval.near_texts import find_groups, find_near_texts

    rows, encoder = text_rows(file, columns, model), encoding.encoder(model, common)
    lowest = None if threshold == "auto" else threshold

    def encode(numbers: list[int]) -> Floats:
        texts, places = ([all_of[number] for number in numbers] for all_of in (rows.texts, rows.places))
        return encoding.vectors(encoder, texts, places)

    with Progress(None, label="comparing", unit="texts") as bar:
        if pairs:
            near = find_near_texts(rows.texts, encode, lowest, limit, bar.advance)
        else:
            found = find_groups(rows.texts, encode, lowest, bar.advance)
    if pairs:
        _show_pairs(rows, near, limit, common)
        return
    if to_rows and found.groups:
        results.write(_rows(rows, found), rows.taken, common)
    elif to_rows:
        say(f"there are no duplicates, so {results.out} is not written")
        if common.json:
            write_json({"out": None, "rows": 0})
    else:
        for number, group in enumerate(found.groups[:limit], start=1):
            _show_group(rows, number, group, found.threshold, common)
    _conclude(rows, found, limit if not to_rows else len(found.groups), automatic=lowest is None)


def _rows(rows: TextRows, found: NearGroups) -> Iterator[Row]:
    for number, group in enumerate(found.groups, start=1):
        for row, cosine in zip(group.rows, group.cosines, strict=True):
            cells = {"group": number, "similarity": round(cosine, 6), "line": rows.rows[row].line}
            yield beside(rows.rows[row], cells, rows.taken)


def _show_group(rows: TextRows, number: int, group: Group, threshold: float, common: Computing) -> None:
    facts: dict[str, Any] = {
        "group": number,
        "threshold": threshold,
        "places": [rows.places[row] for row in group.rows],
        "lines": [rows.rows[row].line for row in group.rows],
        "ids": [id_of(rows.rows[row]) for row in group.rows],
        "scores": group.cosines,
        "texts": [rows.texts[row] for row in group.rows],
    }
    lines = [
        f"  {score:.4f}\t{rows.places[row]}\t{shown(rows.rows[row])}"
        for row, score in zip(group.rows, group.cosines, strict=True)
    ]
    common.show(facts, "\n".join([f"group {number}: {counted(len(group.rows), 'text')}", *lines]))


def _conclude(rows: TextRows, found: NearGroups, shown: int, *, automatic: bool) -> None:
    if found.nearest is not None:
        say("cosine of each different text with its nearest other:")
        for line in histogram(found.nearest, found.threshold):
            say(f"  {line}")
    more = "" if len(found.groups) <= shown else f"; the {shown:,} most similar are shown (--limit)"
    num = sum(len(group.rows) for group in found.groups)
    how = " (auto: from the nearest and second nearest of each)" if automatic else ""
    say(
        f"{counted(len(rows.texts), 'text')}: {num:,} in {counted(len(found.groups), 'group')} of duplicates, with a "
        f"cosine of at least {found.threshold:.4g}{how}{more}"
    )


def histogram(values: Floats, threshold: float) -> list[str]:
    """Lines of a histogram of cosines, with the bin of the threshold marked."""
    import numpy as np

    bins = np.minimum(np.floor(np.round(np.append(values, threshold) / BIN, 6)).astype(int), round(1 / BIN) - 1)
    numbers = range(int(bins[:-1].min()), int(bins[:-1].max()) + 1)
    counts = [int((bins[:-1] == number).sum()) for number in numbers]
    table = []
    for number, count in zip(numbers, counts, strict=True):
        bar = "#" * -(-BAR * count // max(counts))
        mark = " < threshold" if number == bins[-1] else ""
        table.append([f"{number * BIN:.2f} to {(number + 1) * BIN:.2f}", f"{count:,}", bar + mark])
    return aligned(table)


def _show_pairs(rows: TextRows, found: NearTexts, limit: int, common: Computing) -> None:
    for same in found.same:
        places = [rows.places[row] for row in same]
        texts = [rows.texts[row] for row in same]
        line = f"same\t{', '.join(places)}\t{one_line(texts[0])}"
        common.show({"kind": "same", "score": 1.0, "places": places, "texts": texts}, line)
    for first, second, score in found.pairs:
        texts, places = ([each[first], each[second]] for each in (rows.texts, rows.places))
        shown = "  |  ".join(map(one_line, texts))
        line = f"{score:.4f}\t{', '.join(places)}\t{shown}"
        common.show({"kind": "similar", "score": score, "places": places, "texts": texts}, line)
    more = "" if found.num_pairs <= limit else f"; the {limit:,} most similar are shown (--limit)"
    say(
        f"{counted(len(rows.texts), 'text')}: {counted(len(found.same), 'group')} of the same text, "
        f"{counted(found.num_pairs, 'pair')} with a cosine of at least {found.threshold:.4g}{more}"
    )
