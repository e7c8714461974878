"""A back-end without layers: the vector of a text is the mean of the vectors of its tokens.

Neither order nor context plays a part (model2vec; ``StaticEmbedding`` of sentence-transformers).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import numpy as np

from bertkit.checkpoints.static_folder import TOKENIZER, StaticFolder
from bertkit.config.bert_config import BertConfig
from bertkit.engine.backend import Network, Pack, Precision, Values, Wanted, check_options
from bertkit.errors import CheckpointError, ConfigError, InputError
from bertkit.ragged import Floats, Ints
from bertkit.tokenization.auto_tokenizer import class_of
from bertkit.tokenization.formats.tokenizer_folder import read_tokenizer
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.tokenization.templates import BARE
from bertkit.tokenization.vocabulary import BRACKETED

#: Tokens of the longest text; a sum has no limit of its own.
MAX_LENGTH = 1_000_000
#: Class of the model, in messages.
MODEL_CLASS = "StaticEmbedding"


class StaticBackend:
    """A table of word vectors float32 ``(V, D)``, in numpy; tokens with the id ``unknown`` are left out."""

    place = "cpu"
    dtype = "float32"
    model_class = MODEL_CLASS
    #: The vectors of a pack stay in the processor's cache.
    max_tokens = 4096
    packs_ahead = 0

    def __init__(self, table_VD: Floats, unknown: int | None = None, *, folder: Path | None = None) -> None:
        self.folder, self.table = folder, table_VD
        self.known = np.ones(len(table_VD), np.int64)
        if unknown is not None:
            self.table[unknown], self.known[unknown] = 0, 0
        self.config = BertConfig(
            vocab_size=len(table_VD),
            hidden_size=table_VD.shape[1],
            num_hidden_layers=0,
            num_attention_heads=1,
            max_position_embeddings=MAX_LENGTH,
            type_vocab_size=0,
        )

    @classmethod
    def load(
        cls, found: StaticFolder, model_class: str, device: Any, dtype: Any, precision: Precision, threads: int | None
    ) -> Self:
        """The back-end of a folder of word vectors, which have no head."""
        check_options(precision, threads)
        if model_class != "BertModel":
            raise CheckpointError(
                f"{found.folder} holds word vectors, without an encoder or a head: they make vectors of texts, for "
                "'bertkit embed', 'similarity', 'search', 'cluster', 'topics' and 'duplicates'"
            )
        if str(device) not in ("None", "auto", "cpu", "-1"):
            raise ConfigError(
                f"{found.folder} holds word vectors, which are looked up on the CPU; got device {device!r}"
            )
        if dtype is not None or precision not in ("auto", "fp32"):
            raise ConfigError(
                f"{found.folder} holds word vectors, which are summed in float32; leave the precision out"
            )
        unknown = load_static_tokenizer(found).unk_token_id if found.skips_unknown else None
        return cls(found.read_table(), unknown, folder=found.folder)

    @property
    def model(self) -> Network:
        """Word vectors have no model object."""
        raise InputError(f"{self.folder or 'the model'} holds word vectors: a table, without a model object")

    def compute(self, pack: Pack, wanted: Wanted) -> Values:
        if wanted.outputs != ("last_hidden_state",) or wanted.words is not None:
            raise CheckpointError(f"{self.folder} holds word vectors, which give no {', '.join(wanted.outputs)}")
        if wanted.pooling is None:
            return {"last_hidden_state": self.table[pack.ids]}
        if wanted.pooling != ("mean",):
            raise InputError(
                f"word vectors are pooled by their mean, got pooling={', '.join(wanted.pooling)}: a text has no [CLS] "
                "here, and no order"
            )
        return {"last_hidden_state": self._means(pack, wanted.skipped)}

    def _means(self, pack: Pack, skipped: int) -> Floats:
        """The mean of the known tokens of each row ``(B, D)``; zeros for a row without any."""
        x_TD = self.table.take(pack.ids, axis=0)
        ends = np.array(pack.boundaries)
        known = np.zeros(len(pack.ids) + 1, np.int64)
        np.cumsum(self.known[pack.ids], out=known[1:])
        counts_B = known[ends[1:]] - known[np.minimum(ends[:-1] + skipped, ends[1:])]
        found_BD = np.empty((len(counts_B), x_TD.shape[1]), np.float32)
        row = start = 0
        for length, same in groupby(pack.lengths):  # rows are sorted by length: few calls of numpy
            count = len(list(same))
            rows_BSD = x_TD[start : start + count * length].reshape(count, length, x_TD.shape[1])
            np.add.reduce(rows_BSD[:, skipped:], axis=1, out=found_BD[row : row + count])
            row, start = row + count, start + count * length
        found_BD /= np.maximum(counts_B, 1)[:, None].astype(np.float32)
        return found_BD

    def num_threads(self, lengths: Ints) -> int:
        """One: a look-up waits for memory."""
        return 1

    def in_thread(self, alone: bool) -> AbstractContextManager[None]:
        """Nothing to do."""
        return nullcontext()

    def encoder(self) -> StaticBackend:
        """This one."""
        return self


def load_static_tokenizer(found: StaticFolder) -> PreTrainedTokenizer:
    """The tokenizer of word vectors: rows are texts alone, and special tokens that the file lacks are the unknown one.

    Raises:
        CheckpointError: the file is damaged, holds another kind of tokenizer, or has no unknown token.
    """
    file = found.home / TOKENIZER
    kind = class_of(file)
    arguments = read_tokenizer(file, kind.kind)
    vocab = arguments["vocab"]
    known = {*(vocab if isinstance(vocab, Mapping) else (piece for piece, _ in vocab))}
    known |= {token.content for token in arguments["added_tokens"]}
    named = {name: arguments.get(name, token) for name, token in (kind.special_names or BRACKETED).items()}
    special = {name: token if token in known else named["unk_token"] for name, token in named.items()}
    return kind(**{**arguments, **special, "template": BARE, "model_max_length": MAX_LENGTH})
