"""Small corpora whose token ids say where they stand, so that a test can see where an example came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.batch import Batch
from bertkit.data.examples.masking import MaskVocabulary
from bertkit.data.examples.pairs import Rules, SentenceTokens
from bertkit.data.examples.pretrain_batches import PretrainData
from bertkit.data.store.store_manifest import Counts, id_type_for
from bertkit.data.store.store_writer import StoreWriter, TokenizedChunk
from bertkit.tokenization import BertTokenizer

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CLS, SEP, MASK = 2, 3, 4
#: Id of the token at offset 0; offset n has this + n.
FIRST = 1000


@dataclass(frozen=True)
class ToyTokens:
    """Sentences of given lengths; the token at offset n of the corpus has the id ``FIRST + n``."""

    sentence_boundaries: np.ndarray
    document_boundaries: np.ndarray

    @classmethod
    def of(cls, documents: list[list[int]]) -> ToyTokens:
        """From the number of tokens in each sentence of each document."""
        lengths = [length for document in documents for length in document]
        counts = [len(document) for document in documents]
        return cls(np.cumsum([0, *lengths]), np.cumsum([0, *counts]))

    @property
    def num_tokens(self) -> int:
        return int(self.sentence_boundaries[-1])

    def tokens(self, first_sentence: int, end_sentence: int) -> np.ndarray:
        start, end = self.sentence_boundaries[[first_sentence, end_sentence]]
        return np.arange(FIRST + start, FIRST + end, dtype=np.int32)

    def document_at(self, offset: int) -> int:
        starts = self.sentence_boundaries[self.document_boundaries]
        return int(np.searchsorted(starts, offset, side="right")) - 1

    def vocabulary(self) -> MaskVocabulary:
        """One in which every third piece continues the word before it."""
        names = SPECIALS + [f"[unused{n}]" for n in range(FIRST - len(SPECIALS))]
        names += [f"##t{n}" if n % 3 == 2 else f"t{n}" for n in range(self.num_tokens)]
        return MaskVocabulary.of(names)


def pretrain_data(tokens: SentenceTokens, vocabulary: MaskVocabulary, **settings: Any) -> PretrainData:
    """Pre-training data whose rules stand among the other settings."""
    names = [field.name for field in fields(Rules)]
    rules = Rules(**{name: settings.pop(name) for name in names if name in settings})
    return PretrainData(tokens, vocabulary, rules, **settings)


def batch_of(data: PretrainData, rows: Sequence[int], epoch: int = 0) -> Batch:
    """The examples of an epoch with the given numbers, whatever steps they are in."""
    numbers = np.asarray(rows, np.int64)
    return data.pack(numbers, data.index(epoch).take(numbers), epoch)


def random_tokens(seed: int, num_documents: int, *, max_sentences: int = 30, max_length: int = 40) -> ToyTokens:
    """Documents and sentences of random sizes, every size at least 1."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, max_sentences + 1, num_documents)
    return ToyTokens.of([random.integers(1, max_length + 1, size).tolist() for size in sizes])


def write_store(
    tokens: ToyTokens, folder: Path, *, documents_a_group: int = 10**9, groups_a_shard: int = 10**9
) -> Path:
    """The same corpus as a token store on the disk, in row groups and shards of so many documents and groups."""
    size = tokens.vocabulary().size
    tokenizer = BertTokenizer({**{name: n for n, name in enumerate(SPECIALS)}, **{str(n): n for n in range(5, size)}})
    lengths = np.diff(tokens.sentence_boundaries).astype(np.int32)
    sizes = np.diff(tokens.document_boundaries).astype(np.int32)
    with StoreWriter(folder, tokenizer, settings={"sentences": "line"}, shard_text_bytes=groups_a_shard) as writer:
        for first in range(0, len(sizes), documents_a_group):
            end = min(first + documents_a_group, len(sizes))
            a, b = tokens.document_boundaries[[first, end]].tolist()
            ids = tokens.tokens(a, b).astype(id_type_for(size))
            counts = Counts(num_documents=end - first, num_sentences=b - a, num_tokens=len(ids), text_bytes=1)
            sources = [f"corpus.txt:{n}" for n in range(first, end)]
            writer.add(TokenizedChunk(ids, lengths[a:b], sizes[first:end], sources, counts, end - first))
        writer.finish()
    return folder
