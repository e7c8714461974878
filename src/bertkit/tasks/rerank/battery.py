"""The checks of rerankers for :func:`bertkit.tasks.check_task`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertkit.tasks.battery import CUT_LENGTH, Battery, character_tokenizer
from bertkit.tasks.examples import Split
from bertkit.tasks.rerank.comparison import means, query_values
from bertkit.tasks.rerank.features import featurize_candidates, gains_of
from bertkit.tasks.rerank.task import RerankExample, RerankTask


class RerankBattery(Battery[RerankTask, RerankExample]):
    """Queries with documents."""

    rows_passed = "queries; documents and labels agree"
    cut_passed = f"cut to {CUT_LENGTH} tokens, every loss is reported"

    def check_rows(self, rows: Sequence[RerankExample], split: Split) -> None:
        for row in rows:
            assert row.query.strip(), f"{row.where}: empty query"
            assert all(text.strip() for text in row.documents), f"{row.where}: empty document"
            assert len(set(row.documents)) == len(row.documents), f"{row.where}: a document stands there twice"
            if row.gains is None:
                assert split == "test", f"{row.where}: no labels in {split}"
            else:
                assert len(row.gains) == len(row.documents), f"{row.where}: {len(row.gains)} labels"
        assert len({row.query for row in rows}) == len(rows), f"{split}: a query stands there twice"

    def perfect(self, rows: Sequence[RerankExample]) -> dict[str, float]:
        found = means(query_values(self.task, rows, gains_of(rows)))
        return {name: value for name, value in found.items() if name in ("ndcg@10", "mrr@10")}

    def check_cut(self, rows: Sequence[RerankExample]) -> None:
        tokenizer = character_tokenizer(text for row in rows for text in (row.query, *row.documents))
        found, whole = (featurize_candidates(rows, tokenizer, length).sequences for length in (CUT_LENGTH, 1 << 20))
        assert np.array_equal(found.truncated, whole.lengths > CUT_LENGTH), "cut and not reported"
