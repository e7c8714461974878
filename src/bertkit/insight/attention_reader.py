"""The attention probabilities of every layer of a model, for rows of token ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertkit.batch import Batch
from bertkit.config.any_config import read_any_config
from bertkit.config.config_file import checkpoint_folder, config_path
from bertkit.config.families import ENCODER_DECODERS
from bertkit.engine.backend import Network
from bertkit.engine.export_folder import is_export
from bertkit.engine.module_views import eval_view
from bertkit.errors import InputError, ResourceError
from bertkit.inference.pipeline_base import check_lengths
from bertkit.inference.pipelines import pipeline
from bertkit.model.auto import AutoModel
from bertkit.model.models import BertModel
from bertkit.model.seq2seq.seq2seq_models import Seq2SeqModel
from bertkit.model.seq2seq.trace import Trace
from bertkit.ragged import Ragged
from bertkit.system.memory import memory_guard
from bertkit.system.model_sources import resolve
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.features import Text, featurize_mixed
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: Tokens of a text at most, where nothing else is asked for, and bytes of its attention probabilities.
MOST_TOKENS = 512
MOST_BYTES = 4 << 30
#: By layer, one tensor ``(N, q, k)`` of each row: N heads, q queries, k keys.
Layers = list[list[Tensor]]


def is_empty(text: Text) -> bool:
    """Whether a text, or both of a pair, have nothing but white space."""
    return not any(part and part.strip() for part in text)


class AttentionReader:
    """A model that shows its attention, in float32 and in eval mode whatever mode it is in.

    Args:
        model: folder, name on the Hub, run folder of ``bertkit finetune``, or a model object. Of a model with a head,
            the encoder; of a BART or T5, the encoder, and with ``writes`` the decoder.
        tokenizer: needed for a model object.
        device: see :func:`bertkit.pipeline`.
        max_length: most tokens of a text, special tokens included; None: :data:`MOST_TOKENS`, or what the model reads
            where that is less.
        writes: the decoder of a BART or T5 is needed as well.

    Raises:
        InputError: an exported model; a model without layers; ``max_length`` beyond what the model reads.
        CheckpointError: the model or tokenizer cannot be loaded.
    """

    def __init__(
        self,
        model: str | Path | Network,
        tokenizer: str | Path | PreTrainedTokenizer | None = None,
        *,
        device: Any = None,
        max_length: int | None = None,
        writes: bool = False,
    ) -> None:
        if isinstance(model, str | Path):
            path = resolve(model)
            if is_export(path):
                raise InputError(
                    f"{path} is an exported model, whose graph does not give attention; use the model that it was "
                    "exported from"
                )
            config = read_any_config(config_path(path))
            if (
                writes
                and config.model_type in ENCODER_DECODERS
                and "T5EncoderModel" not in (config.architectures or ())
            ):
                tokenizer = tokenizer or AutoTokenizer.from_pretrained(checkpoint_folder(path))
                model = AutoModel.from_pretrained(path)
        pipe = pipeline("feature-extraction", model, tokenizer, device)
        network = pipe.model
        assert isinstance(network, BertModel | Seq2SeqModel)
        self.network = network
        self.tokenizer: PreTrainedTokenizer = pipe.tokenizer
        if isinstance(network, BertModel):
            self.num_layers, self.num_heads = network.config.num_hidden_layers, network.config.num_attention_heads
        else:
            tower = network.config.tower(decoder=False)
            self.num_layers, self.num_heads = tower.layers, tower.heads
        if writes and isinstance(network, Seq2SeqModel) and not network.has_decoder:
            raise InputError(f"{type(network).__name__} has no decoder, which would write a second text: give one text")
        if not self.num_layers:
            raise InputError(f"{model} has no layers, and so no attention; use a model with at least one")
        _, limit = pipe.read_limits(True, max_length)
        self.max_length = min(MOST_TOKENS, limit) if max_length is None else limit

    @property
    def decodes(self) -> bool:
        """Whether there is a decoder, which writes a second text."""
        return isinstance(self.network, Seq2SeqModel) and self.network.has_decoder

    def encode(self, texts: Sequence[Text], *, truncation: bool = False, first: int = 0) -> Ragged:
        """Token ids of texts and pairs; TextError for one that is too long without ``truncation``.

        ``first`` is the number of the first one, for messages.
        """
        rows = featurize_mixed(texts, self.tokenizer, self.max_length)
        if not truncation:
            check_lengths(rows, self.max_length, first)
        size = 4 * self.num_layers * self.num_heads * int(rows.lengths.max()) ** 2
        if size > MOST_BYTES:
            raise ResourceError(
                f"the attention of {rows.lengths.max():,} tokens in {self.num_layers} layers of {self.num_heads} heads "
                f"takes {size / 2**30:.0f} GB; truncate texts, or choose a smaller max_length"
            )
        return rows

    def of(self, batch: Batch) -> Layers:
        """The attention of an encoder to a packed batch."""
        with self._computing() as network:
            if isinstance(network, BertModel):
                out = network.forward_packed(batch.to(network.device), output_attentions=True)
                assert out.attentions is not None
                return list(out.attentions)
            trace = Trace.of(states=False, attentions=True)
            network.model.encode(batch.to(network.device), trace)
            assert trace.attentions is not None
            return trace.attentions

    def of_pair(self, ids_S: Tensor, labels_S: Tensor) -> tuple[Tensor, dict[str, Layers]]:
        """What the decoder reads where it is to write ``labels_S``, and the attention of both halves.

        It is ``encoder``, ``decoder`` (to what it has read so far) and ``cross`` (of the decoder to the encoder).
        """
        with self._computing() as network:
            assert isinstance(network, Seq2SeqModel)
            assert network.model.decoder is not None
            reading, writing = (Trace.of(states=False, attentions=True) for _ in range(2))
            batch, _, memory_TD = network.encode(ids_S[None].to(network.device), trace=reading)
            read_BS = network.shift_right(labels_S[None].to(network.device))
            network.decode(read_BS, network.model.decoder.remember(memory_TD, batch.layout), trace=writing)
            assert reading.attentions is not None
            assert writing.attentions is not None
            assert writing.cross is not None
            cross = [[probs[..., : len(ids_S)] for probs in layer] for layer in writing.cross]
            return read_BS[0].cpu(), {"encoder": reading.attentions, "decoder": writing.attentions, "cross": cross}

    @contextmanager
    def _computing(self) -> Iterator[BertModel | Seq2SeqModel]:
        network = eval_view(self.network)
        with (
            torch.inference_mode(),
            torch.autocast(network.device.type, enabled=False),
            memory_guard("Use a smaller max_length with truncation, or another device"),
        ):
            yield network
