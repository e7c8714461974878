"""``bertkit duplicates``: duplicate and near-duplicate texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from bertkit.cli.cluster import Encoding, TextFile, text_rows
from bertkit.cli.common_options import Computing, Model
from bertkit.cli.task_options import TextColumns
from bertkit.errors import counted
from bertkit.system.console import Progress, one_line, say

if TYPE_CHECKING:
    from bertkit.ragged import Floats


def duplicates(
    file: TextFile,
    /,
    *,
    model: Model,
    threshold: Annotated[float, Parameter(help="Lowest cosine of a pair.")] = 0.9,
    limit: Annotated[int, Parameter(help="Show at most this many pairs, the most similar ones.")] = 1000,
    encoding: Encoding = Encoding(),
    columns: TextColumns = TextColumns(),
    common: Computing = Computing(),
) -> None:
    """Find duplicate and near-duplicate texts.

    Lists groups of texts that differ only in case and spaces, then pairs with
    similar vectors, the most similar first. Every pair is compared. The first text
    of a group stands for the whole group in the pairs.

    For example:

        bertkit duplicates questions.csv --model DIR
        bertkit duplicates questions.csv --model DIR --threshold 0.95 --json
    """
    common.begin()
    from bertkit.inference.retrieval.near_texts import find_near_texts

    rows, encoder = text_rows(file, columns), encoding.encoder(model, common)

    def encode(numbers: list[int]) -> Floats:
        texts, places = ([all_of[number] for number in numbers] for all_of in (rows.texts, rows.places))
        return encoding.vectors(encoder, texts, places)

    with Progress(None, label="comparing", unit="texts") as bar:
        found = find_near_texts(rows.texts, encode, threshold, limit, bar.advance)
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
        f"{counted(found.num_pairs, 'pair')} with a cosine of at least {threshold:g}{more}"
    )
