"""The checks of question answering for :func:`bertkit.tasks.check_task`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from bertkit.tasks.battery import CUT_LENGTH, CUT_OVERLAP, Battery, character_tokenizer
from bertkit.tasks.examples import Split
from bertkit.tasks.reading.splits import kind_of
from bertkit.tasks.spans.features import SpanSettings, featurize_spans
from bertkit.tasks.spans.task import QUESTION, SpanExample, SpanTask, score_answers


class SpanBattery(Battery[SpanTask, SpanExample]):
    """Questions about contexts."""

    cut_passed = f"cut to {CUT_LENGTH} tokens, no answer is lost silently"

    def check_rows(self, rows: Sequence[SpanExample], split: Split) -> None:
        for row in rows:
            for answer in row.answers or ():
                found = row.context[answer.start : answer.end]
                assert found == answer.text, f"{row.where}: the context has {found!r}, the answer is {answer.text!r}"

    def perfect(self, rows: Sequence[SpanExample]) -> dict[str, float]:
        return score_answers(self.task, rows, [row.label or "" for row in rows]).scores

    def check_cut(self, rows: Sequence[SpanExample]) -> None:
        tokenizer = character_tokenizer(text for row in rows for text in (row.question, row.context))
        settings = SpanSettings(max_length=CUT_LENGTH, doc_stride=CUT_OVERLAP, max_query_length=12)
        found = featurize_spans(rows, tokenizer, settings, labelled=True)
        assert found.ends is not None
        for number, row in enumerate(rows):
            held = bool((found.ends[found.first_rows[number] : found.first_rows[number + 1]] > 0).any())
            assert held or not row.answers or number in found.lost, f"{row.where}: the answer is lost and not reported"

    def spoil(self, lines: list[str], path: Path, first: SpanExample) -> Iterator[tuple[list[str], str]]:
        yield ["caf\udce9\n", *lines[:9]], "1: "
        if kind_of(path) != ".json":
            number = first.row
            row = {**json.loads(lines[number - 1]), "question": ""}
            yield [*lines[: number - 1], json.dumps(row) + "\n", *lines[number:]], f"{number}: "
        else:
            document = json.loads("".join(lines))
            document["data"][0]["paragraphs"][0]["qas"][0]["question"] = ""
            yield [json.dumps(document)], f" {QUESTION} 1: "
