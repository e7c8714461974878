"""A baseline for named-entity recognition: each word gets its most frequent tag in train."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from bertkit.errors import DataError
from bertkit.metrics.tags import OUTSIDE
from bertkit.tasks.examples import Row
from bertkit.tasks.tokens.task import TaggedExample, TokenTask, score_tags


class MajorityTagger:
    """The most frequent tag of each word; of a word that train lacks, that of its lower-case form, else ``O``."""

    def __init__(self, train: Sequence[TaggedExample]) -> None:
        exact: dict[str, Counter[str]] = {}
        folded: dict[str, Counter[str]] = {}
        for example in train:
            for word, tag in zip(example.words, example.tags, strict=True):
                exact.setdefault(word, Counter())[tag] += 1
                folded.setdefault(word.casefold(), Counter())[tag] += 1
        self.most_frequent = {word: _most_frequent(counts) for word, counts in exact.items()}
        self._folded = {word: _most_frequent(counts) for word, counts in folded.items()}

    def tag(self, words: Sequence[str]) -> list[str]:
        """A tag for each word."""
        return [self.most_frequent.get(word) or self._folded.get(word.casefold(), OUTSIDE) for word in words]


def majority_baseline(train: Sequence[TaggedExample], dev: Sequence[TaggedExample], task: TokenTask) -> Row:
    """Fit on train, score on dev. The same input gives the same numbers."""
    started = time.perf_counter()
    if not train or not dev:
        raise DataError("the baseline needs train and dev sentences")
    tagger = MajorityTagger(train)
    predictions = [tagger.tag(example.words) for example in dev]
    return {
        "name": "most frequent tag",
        "model": "each word's most frequent tag in train; O for words that train lacks",
        "metrics": score_tags(task, predictions, [example.tags for example in dev]),
        "train_rows": len(train),
        "dev_rows": len(dev),
        "features": len(tagger.most_frequent),
        "seconds": time.perf_counter() - started,
    }


def _most_frequent(counts: Counter[str]) -> str:
    return min(counts, key=lambda tag: (-counts[tag], tag != OUTSIDE, tag))
