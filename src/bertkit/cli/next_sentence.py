"""``bertkit next-sentence``: judge whether one text follows another."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Computing, PairReading, TrainedModel, answers, read_pair_rows
from bertkit.cli.results import facts_of, shown


def next_sentence(
    *text: Annotated[str, Parameter(help="Two texts; or - for standard input, one pair per line, separated by a tab.")],
    model: TrainedModel,
    reading: PairReading = PairReading(),
    common: Computing = Computing(),
) -> None:
    """Judge whether the second text follows the first.

    Prints one line per pair: the label (is_next or not_next), its probability, and
    the two texts.

    For example:

        bertkit next-sentence --model DIR "He opened the door." "It was dark."
    """
    rows = read_pair_rows(text, reading)
    for row, found in answers("next-sentence", model, common, rows, **reading.limits):
        common.show({**facts_of(row), **found}, f"{found['label']:<8}  {found['score']:.4f}  {shown(row)}")
