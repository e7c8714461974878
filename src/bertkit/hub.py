"""TF-Hub's names: a layer that turns texts into ids, and a layer that encodes them.

For code written for the BERT models on TensorFlow Hub (``hub.KerasLayer``); the dictionaries have the same keys::

    preprocess = Preprocess("bert-base-uncased")
    encoder = Encoder("bert-base-uncased")
    outputs = encoder(preprocess(["This is a spam mail"]))
    outputs["pooled_output"]                                # (1, 768)

Both are thin: the tokenizer is :class:`bertkit.BertTokenizer`, the encoder :class:`bertkit.BertModel`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.config.config_file import CONFIG
from bertkit.errors import CheckpointError, InputError, shorten
from bertkit.habit_table import instead_of
from bertkit.model.models import BertModel
from bertkit.system.lazy_names import unknown_name
from bertkit.system.model_sources import ADAPTER
from bertkit.system.paths import user_path
from bertkit.tokenization.bert_tokenizer import BertTokenizer

__all__ = ["INPUTS", "Encoder", "KerasLayer", "Preprocess"]


def __getattr__(name: str) -> Any:
    raise unknown_name(__name__, name, instead_of("hub module", name))


#: The keys that :class:`Preprocess` returns and :class:`Encoder` takes.
INPUTS = ("input_word_ids", "input_mask", "input_type_ids")
#: Files of a folder that is a model, and not a tokenizer alone: also of an original archive, and of an adapter.
_OF_MODELS = (CONFIG, "bert_config.json", ADAPTER)


class Preprocess:
    """Texts to a dictionary of ``input_word_ids``, ``input_mask`` and ``input_type_ids``: int32 ``(B, seq_length)``.

    Longer texts are truncated, shorter ones padded with 0, as in TF-Hub's layer.

    Args:
        vocab: a ``vocab.txt``, a folder, a Hub name, or a tokenizer.
        seq_length: tokens of every row, special tokens included.

    Raises:
        InputError: ``seq_length`` leaves no room for a token.
        CheckpointError: the vocabulary cannot be read.
    """

    def __init__(self, vocab: str | Path | BertTokenizer, seq_length: int = 128) -> None:
        if seq_length < 3:
            raise InputError(f"seq_length must be at least 3 ([CLS], one token, [SEP]), got {seq_length}")
        self.tokenizer = BertTokenizer.from_pretrained(vocab) if isinstance(vocab, str | Path) else vocab
        self.seq_length = seq_length

    def __call__(self, texts: Iterable[str]) -> dict[str, Tensor]:
        """One row per text; for pairs see :meth:`bert_pack_inputs`.

        Raises:
            InputError: not a list of texts, or an empty one.
        """
        return self.bert_pack_inputs([self.tokenize(texts)])

    def tokenize(self, texts: Iterable[str]) -> list[list[int]]:
        """Ids of the word pieces of each text, without special tokens.

        Deviates: TF-Hub's layer has one more axis, of words.
        """
        got = "one text" if isinstance(texts, str | bytes) else "a mapping" if isinstance(texts, Mapping) else ""
        listed = [] if got else list(texts)
        if not listed:
            raise InputError(f"expected a list of texts, got {got or 'an empty one'}: {texts!r:.60}")
        return [ids.tolist() for ids in self.tokenizer.encode_ragged(listed, add_special_tokens=False)]

    def bert_pack_inputs(
        self, segments: Sequence[Sequence[Sequence[int]]], seq_length: int | None = None
    ) -> dict[str, Tensor]:
        """Rows of one or two segments: ``[CLS] A [SEP]`` or ``[CLS] A [SEP] B [SEP]``.

        If a row is too long, its segments take turns in filling the space, A first, and are truncated at the end.

        Args:
            segments: for each segment, the ids of B texts as :meth:`tokenize` gives them.
            seq_length: instead of the layer's.

        Raises:
            InputError: not one or two segments, of different numbers of texts, or no room for a token of each.
        """
        width = self.seq_length if seq_length is None else seq_length
        if len(segments) not in (1, 2):
            raise InputError(f"a row has one or two segments, got {len(segments)}")
        if len({len(texts) for texts in segments}) > 1:
            raise InputError(f"the segments have different numbers of texts: {[len(texts) for texts in segments]}")
        room = width - len(segments) - 1
        if room < len(segments):
            raise InputError(f"seq_length={width} leaves no room for a token of each of {len(segments)} segments")
        ids, mask, types = (np.zeros((len(segments[0]), width), np.int32) for _ in INPUTS)
        for row, texts in enumerate(zip(*segments, strict=True)):
            tokens, segment_ids = [self.tokenizer.cls_token_id], [0]
            for number, kept in enumerate(_in_turns([len(text) for text in texts], room)):
                tokens += [*texts[number][:kept], self.tokenizer.sep_token_id]
                segment_ids += [number] * (kept + 1)
            ids[row, : len(tokens)], mask[row, : len(tokens)], types[row, : len(tokens)] = tokens, 1, segment_ids
        return {name: torch.from_numpy(values) for name, values in zip(INPUTS, (ids, mask, types), strict=True)}


class Encoder(nn.Module):
    """The dictionary of :class:`Preprocess` to a dictionary of results, in float32.

    * ``encoder_outputs``: the output of each of the L layers, ``(B, S, D)``, the lowest first
    * ``sequence_output``: the last of them
    * ``pooled_output``: tanh of a linear layer on [CLS], ``(B, D)``
    * ``default``: the pooled output

    Deviates: results are 0 at padding, which is never computed; TF-Hub's are meaningless values. Its models compute the
    tanh form of GELU; here the config decides (``hidden_act``).

    Args:
        model: a folder, a Hub name, or a :class:`bertkit.BertModel`.
        trainable: False freezes the weights and keeps dropout off, also in training mode.

    Raises:
        CheckpointError: the model cannot be loaded, or has no pooler.
    """

    def __init__(self, model: str | Path | BertModel, trainable: bool = False) -> None:
        super().__init__()
        self.model = BertModel.from_pretrained(model) if isinstance(model, str | Path) else model
        if self.model.pooler is None:
            new = "Encoder(BertModel.from_pretrained(..., new_head=True), trainable=True)"
            advice = f", or train a new pooler: {new}" if self.model.config.family.has_pooler else ""
            raise CheckpointError(
                f"the model has no pooler, so there is no pooled_output. Take vectors from bertkit.BertModel{advice}"
            )
        self.trainable = trainable
        self.model.requires_grad_(trainable)
        self.train(trainable)

    def forward(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Encode one batch.

        Args:
            inputs: the three of :data:`INPUTS`, integers ``(B, S)``: tensors, arrays or lists.

        Raises:
            InputError: a key is missing or unknown, shapes that do not agree, ids outside their tables.
        """
        if set(inputs) != set(INPUTS):
            raise InputError(f"expected the keys {', '.join(INPUTS)}, got {shorten(inputs) or 'none'}")
        ids, mask, types = (torch.as_tensor(inputs[name], device=self.model.device) for name in INPUTS)
        out = self.model(ids, mask, types, output_hidden_states=True)
        return {
            "encoder_outputs": list(out.hidden_states[1:]),
            "pooled_output": out.pooler_output,
            "default": out.pooler_output,
            "sequence_output": out.last_hidden_state,
        }

    def train(self, mode: bool = True) -> Self:
        super().train(mode and self.trainable)
        return self


def KerasLayer(handle: str | Path, trainable: bool = False) -> Preprocess | Encoder:  # noqa: N802 (TF-Hub's name)
    """``hub.KerasLayer(handle)``: a vocabulary becomes a :class:`Preprocess`, a model an :class:`Encoder`.

    Args:
        handle: a ``vocab.txt`` or a folder with a tokenizer and no model; or a model: a folder or a Hub name. In code
            for TensorFlow Hub both handles are URLs; put the two names of files or checkpoints in their place.
        trainable: see :class:`Encoder`.

    Raises:
        CheckpointError: neither a vocabulary nor a model can be read.
    """
    path = user_path(handle)
    has_model = any((path / name).exists() for name in _OF_MODELS)
    if (path.is_dir() and not has_model) or (path.is_file() and path.suffix == ".txt"):
        return Preprocess(handle)
    return Encoder(handle, trainable)


def __dir__() -> list[str]:
    return __all__


def _in_turns(lengths: list[int], room: int) -> list[int]:
    """How many tokens one or two segments keep: they take one token each in turn, starting with the first."""
    if len(lengths) == 1:
        return [min(lengths[0], room)]
    first = min(lengths[0], max(room - room // 2, room - lengths[1]))
    return [first, min(lengths[1], room - first)]
