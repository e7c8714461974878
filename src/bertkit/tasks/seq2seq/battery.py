"""The checks of text to text for :func:`bertkit.tasks.check_task`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertkit.tasks.battery import CUT_LENGTH, Battery, character_tokenizer
from bertkit.tasks.examples import Split
from bertkit.tasks.seq2seq.features import featurize_seq2seq
from bertkit.tasks.seq2seq.scoring import text_scores
from bertkit.tasks.seq2seq.task import Seq2SeqExample, Seq2SeqTask


class Seq2SeqBattery(Battery[Seq2SeqTask, Seq2SeqExample]):
    """Sources and targets."""

    cut_passed = f"cut to {CUT_LENGTH} tokens, every loss is reported"

    def check_rows(self, rows: Sequence[Seq2SeqExample], split: Split) -> None:
        for row in rows:
            assert row.text, f"{row.where}: no source"
            assert row.target or split == "test", f"{row.where}: no target"

    def perfect(self, rows: Sequence[Seq2SeqExample]) -> dict[str, float]:
        right = [row.target or "" for row in rows]
        return {self.task.main_metric: float(text_scores(right, right)[self.task.main_metric].mean())}

    def check_cut(self, rows: Sequence[Seq2SeqExample]) -> None:
        tokenizer = character_tokenizer(text for row in rows for text in (row.text, row.target or ""))
        whole = featurize_seq2seq(rows, "", tokenizer, max_length=None, max_target_length=1 << 20, labelled=True)
        cut = featurize_seq2seq(rows, "", tokenizer, max_length=CUT_LENGTH, max_target_length=CUT_LENGTH, labelled=True)
        assert whole.targets is not None
        longer = (whole.sources.lengths > CUT_LENGTH) | (whole.targets.lengths > CUT_LENGTH)
        assert np.array_equal(cut.truncated, longer), f"{cut.truncated.sum()} rows are marked, {longer.sum()} were cut"
