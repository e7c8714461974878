"""Made-up documents for pre-training in gpu_all.py and host_batches.py, with the interface of a token store."""

from __future__ import annotations

import numpy as np

from bertkit.data.examples.masking import MaskVocabulary
from bertkit.data.examples.pairs import Rules
from pretrain_peers import Examples

NUM_SPECIAL = 5


class MadeUpText:
    """Documents of random ids, of realistic lengths.

    Args:
        vocab_size: ids are drawn from those after the special ones.
        num_tokens: approximate total.
        seed: fixes everything.
    """

    def __init__(self, vocab_size: int, num_tokens: int, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        lengths = random.integers(5, 46, num_tokens // 25)  # of sentences; 25 tokens on average
        self.sentence_boundaries = np.concatenate([[0], np.cumsum(lengths)])
        cuts = np.unique(random.integers(1, len(lengths), len(lengths) // 40))  # 40 sentences per document
        self.document_boundaries = np.concatenate([[0], cuts, [len(lengths)]])
        self._ids = random.integers(NUM_SPECIAL, vocab_size, self.sentence_boundaries[-1], dtype=np.int32)

    def tokens(self, first_sentence: int, end_sentence: int) -> np.ndarray:
        """Ids of consecutive sentences."""
        start, end = self.sentence_boundaries[[first_sentence, end_sentence]]
        return self._ids[start:end]


def made_up_examples(vocab_size: int, length: int, batch_size: int, num_steps: int) -> Examples:
    """Examples of at most ``length`` tokens for some steps, a step in one piece."""
    text = MadeUpText(vocab_size, min(batch_size * num_steps * length, 20_000_000))
    rules, vocabulary = Rules(max_seq_length=length), MaskVocabulary.of(names_of(vocab_size))
    return Examples(text, vocabulary, rules, batch_size=batch_size, max_tokens=max(length, batch_size * length))


def names_of(vocab_size: int) -> list[str]:
    """The tokens of a vocabulary whose first ones are the special ones."""
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(vocab_size - NUM_SPECIAL))]
