"""BART and T5: the bare models, and those that generate, classify and answer.

They are called as those of transformers: padded tensors in, the encoder packs them, and the decoder reads what is given
or the labels, shifted right by one.

Axes, in the order of the suffix letters::

    B sequences   S tokens of the decoder   T tokens of the encoder, flat   D model width   V words   C labels
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from bertkit.batch import Batch, Layout, Padding, pack_padded
from bertkit.config.encoder_decoder_config import BartConfig, EncoderDecoderConfig, T5Config
from bertkit.errors import ConfigError, InputError
from bertkit.habit_table import saving_folder
from bertkit.model.class_specs import published_below, published_names
from bertkit.model.configured_model import ConfiguredModel, initialize
from bertkit.model.embeddings import check_range
from bertkit.model.generation.decoder_cache import DecoderCache
from bertkit.model.loading import LoadOptions
from bertkit.model.output import ModelOutput
from bertkit.model.seq2seq.seq2seq_layers import CausalAttention, CrossAttention, EncoderAttention
from bertkit.model.seq2seq.seq2seq_loading import load_seq2seq, save_seq2seq
from bertkit.model.seq2seq.towers import Decoder, PackedEncoder, input_groups
from bertkit.model.seq2seq.trace import NO_TRACE, Trace


@dataclass(slots=True, repr=False)
class Seq2SeqOutput(ModelOutput):
    """As :class:`ModelOutput`, of which ``last_hidden_state`` and ``logits`` are the decoder's.

    In place of ``hidden_states`` and ``attentions`` there are those of both halves; S is that of the decoder, M that of
    the input. Positions that are padded in the input hold zeros.

    decoder_hidden_states: L + 1 tensors ``(B, S, D)``: the embeddings, then every layer, the last behind its norm.
    decoder_attentions: L tensors ``(B, N, S, S)``.
    cross_attentions: L tensors ``(B, N, S, M)``: the attention of the decoder to the input.
    encoder_last_hidden_state: ``(B, M, D)``.
    encoder_hidden_states: as those of the decoder, ``(B, M, D)``.
    encoder_attentions: L tensors ``(B, N, M, M)``.
    """

    decoder_hidden_states: tuple[Tensor, ...] | None = None
    decoder_attentions: tuple[Tensor, ...] | None = None
    cross_attentions: tuple[Tensor, ...] | None = None
    encoder_last_hidden_state: Tensor | None = None
    encoder_hidden_states: tuple[Tensor, ...] | None = None
    encoder_attentions: tuple[Tensor, ...] | None = None


class Towers(nn.Module):
    """The table of words, the encoder and, in all classes but one, the decoder."""

    def __init__(self, config: EncoderDecoderConfig, *, has_decoder: bool = True) -> None:
        super().__init__()
        self.shared = nn.Embedding(config.vocab_size, config.d_model, padding_idx=config.unused_row)
        self.encoder = PackedEncoder(config.tower(decoder=False))
        self.decoder = Decoder(config.tower(decoder=True)) if has_decoder else None
        self.max_length = config.tower(decoder=False).positions

    def encode(self, batch: Batch, trace: Trace = NO_TRACE) -> Tensor:
        """The encoder's output for a packed batch, ``(T, D)``."""
        self.check_length(batch.layout.max_seqlen, "input_ids")
        words_TD = self.embed(batch.input_ids, "input_ids")
        memory_TD: Tensor = self.encoder(words_TD, batch.position_ids, batch.layout, trace)
        return memory_TD

    def remember(self, batch: Batch) -> DecoderCache:
        """What the decoder reads of a packed batch, before its first token."""
        assert self.decoder is not None
        return self.decoder.remember(self.encode(batch), batch.layout)

    def embed(self, ids: Tensor, name: str) -> Tensor:
        """Vectors of words; ``name`` is the argument that they came in."""
        check_range(ids, self.shared, name, "vocab_size")
        vectors: Tensor = self.shared(ids)
        return vectors

    def check_length(self, tokens: int, name: str) -> None:
        """Refuse more tokens than there are positions."""
        if self.max_length and tokens > self.max_length:
            raise InputError(
                f"{name} has {tokens} tokens, and the model has {self.max_length} positions "
                "(max_position_embeddings); truncate the text: tokenizer(..., truncation=True, "
                f"max_length={self.max_length})"
            )


class Seq2SeqModel(ConfiguredModel):
    """What the classes share."""

    config: EncoderDecoderConfig  # type: ignore[assignment]
    config_class: ClassVar[type[EncoderDecoderConfig]]
    base_prefix = "model"
    has_decoder: ClassVar[bool] = True

    def __init__(self, config: EncoderDecoderConfig) -> None:
        if not isinstance(config, self.config_class):
            raise ConfigError(
                f"{type(self).__name__} takes a {self.config_class.__name__}, got a {type(config).__name__}"
            )
        super().__init__(config)  # type: ignore[arg-type]
        self.model = Towers(config, has_decoder=self.has_decoder)
        self.model.encoder.published = published_names(self, "encoder")
        if self.model.decoder is not None:
            self.model.decoder.published = published_names(self, "decoder")
        self._add_head(config)
        self.init_weights()

    def _add_head(self, config: EncoderDecoderConfig) -> None:
        """Add the layers of the class's head."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if (found := published_below(self, name)) is None:
                raise
            return found

    @property
    def init_range(self) -> float:
        return self.config.init_range

    def init_weights(self, generator: torch.Generator | None = None) -> None:
        """Initialize all weights anew, T5's with the standard deviations of its authors' code."""
        initialize(self, self.init_range, generator)
        for module in self.modules():
            # T5 does not scale scores; its queries begin smaller instead.
            if isinstance(module, EncoderAttention | CausalAttention | CrossAttention) and module.scale is not None:
                queries = module.q if isinstance(module, CrossAttention) else module.qkv
                with torch.no_grad():
                    queries.weight[: module.width] *= (module.width // module.num_heads) ** -0.5

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, **options: Unpack[LoadOptions]) -> Self:
        """Load a checkpoint, exactly or not at all; see :meth:`bertkit.BertModel.from_pretrained`.

        Raises:
            CheckpointError: the file is missing, damaged, unsafe, or does not fit; lists every tensor that differs.
            ConfigError: an option contradicts the checkpoint's config.
        """
        model = load_seq2seq(cls, cls.config_class, name_or_path, **options)
        model.name_or_path = str(name_or_path)
        return model

    def save_pretrained(self, folder: str | Path | None = None, **ignored: object) -> None:
        """Write ``config.json`` and ``model.safetensors`` under the names that other software reads.

        Keywords are those of :meth:`bertkit.BertModel.save_pretrained`, without effect.

        Raises:
            CheckpointError: ``folder`` is a file.
            InputError: another keyword.
            ResourceError: the disk is full or cannot be written.
        """
        folder = saving_folder(folder, ignored)
        save_seq2seq(self, self.config, folder)

    def set_gradient_checkpointing(self, enabled: bool = True) -> None:
        """As :meth:`bertkit.model.pretrained_model.PretrainedModel.set_gradient_checkpointing`, in both halves."""
        for module in self.modules():
            if isinstance(module, PackedEncoder | Decoder):
                module.gradient_checkpointing = enabled

    def encode(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, trace: Trace = NO_TRACE
    ) -> tuple[Batch, Padding, Tensor]:
        """The packed input, how it was packed, and the encoder's output ``(T, D)``."""
        batch, padding = pack_padded(input_ids, attention_mask, longest_with_gaps=self.config.longest_with_gaps)
        return batch, padding, self.model.encode(batch, trace)

    def decode(
        self,
        ids_BS: Tensor,
        cache: DecoderCache,
        mask_BS: Tensor | None = None,
        *,
        keep: bool = False,
        trace: Trace = NO_TRACE,
    ) -> Tensor:
        """The decoder's output ``(B, S, D)``; see :meth:`Decoder.forward`."""
        assert self.model.decoder is not None
        self.model.check_length(cache.length + ids_BS.shape[1], "decoder_input_ids")
        words_BSD = self.model.embed(ids_BS, "decoder_input_ids")
        out_BSD: Tensor = self.model.decoder(words_BSD, cache, mask_BS, keep=keep, trace=trace)
        return out_BSD

    def shift_right(self, labels: Tensor) -> Tensor:
        """Labels ``(B, S)`` as the decoder's input: shifted right by one, -100 replaced by padding.

        The first token is the one that generation starts with; in mBART the last label, which is the language.
        """
        labels = labels.masked_fill(labels == -100, self.config.pad_token_id)
        start = labels.new_full((len(labels), 1), self.config.decoder_start_token_id)
        if self.config.model_type == "mbart":
            lengths_B1 = (labels != self.config.pad_token_id).sum(dim=1, keepdim=True)
            start = labels.gather(1, (lengths_B1 - 1).clamp(min=0))
        return torch.cat([start, labels[:, :-1]], dim=1)

    def forward_packed(self, batch: Batch) -> Seq2SeqOutput:
        """``last_hidden_state`` ``(T, D)``: a vector of each token of a packed batch.

        That of the decoder of a BART, which reads the same text, shifted right by one (Lewis et al. 2019, section 3;
        ``transformers`` and ``sentence-transformers`` do so too); that of the encoder of a T5 (Ni et al. 2021).
        """
        return Seq2SeqOutput(last_hidden_state=self._read(batch))

    def _read(self, batch: Batch) -> Tensor:
        memory_TD = self.model.encode(batch)
        if not isinstance(self.config, BartConfig):
            return memory_TD
        assert self.model.decoder is not None
        boundaries, parts = batch.layout.boundaries, []
        for first, end in input_groups(batch.layout.lengths):  # padded to the longest of each group, not of the batch
            tokens, layout = slice(boundaries[first], boundaries[end]), Layout(batch.layout.lengths[first:end])
            rows = batch.input_ids[tokens].split(layout.lengths)
            ids_BS = pad_sequence(rows, batch_first=True, padding_value=self.config.pad_token_id)
            lengths_B1 = torch.tensor(layout.lengths, device=ids_BS.device)[:, None]
            real_BS = torch.arange(layout.max_seqlen, device=ids_BS.device) < lengths_B1
            cache = self.model.decoder.remember(memory_TD[tokens], layout)
            parts.append(self.decode(self.shift_right(ids_BS), cache)[real_BS])
        return torch.cat(parts)

    def _run(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        *,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> tuple[Seq2SeqOutput, Batch, Padding]:
        """The outputs, the packed input and its padding; the decoder reads the input, shifted right, or its own ids."""
        if decoder_input_ids is None:
            decoder_input_ids = self.shift_right(input_ids)
        if decoder_input_ids.ndim != 2 or len(decoder_input_ids) != len(input_ids) or decoder_input_ids.numel() == 0:
            raise InputError(
                f"decoder_input_ids must have shape ({len(input_ids)}, length), got {tuple(decoder_input_ids.shape)}"
            )
        assert self.model.decoder is not None
        output_attentions, output_hidden_states = self.config.returned(output_attentions, output_hidden_states)
        reading, writing = (Trace.of(states=output_hidden_states, attentions=output_attentions) for _ in range(2))
        batch, padding, memory_TD = self.encode(input_ids, attention_mask, reading)
        cache = self.model.decoder.remember(memory_TD, batch.layout)
        decoded_BSD = self.decode(decoder_input_ids, cache, decoder_attention_mask, trace=writing)
        out = Seq2SeqOutput(last_hidden_state=decoded_BSD, encoder_last_hidden_state=padding.unpack(memory_TD))
        out.encoder_hidden_states, out.encoder_attentions = _unpacked(reading, padding)
        if writing.states is not None:
            out.decoder_hidden_states = tuple(writing.states)
        if writing.attentions is not None and writing.cross is not None:
            out.decoder_attentions = tuple(torch.stack(layer) for layer in writing.attentions)
            out.cross_attentions = tuple(
                padding.unpack_keys([x[..., :keys] for x, keys in zip(layer, batch.layout.lengths, strict=True)])
                for layer in writing.cross
            )
        return out, batch, padding


def _unpacked(trace: Trace, padding: Padding) -> tuple[tuple[Tensor, ...] | None, tuple[Tensor, ...] | None]:
    """The hidden states and attentions of an encoder, padded as its input was."""
    states = None if trace.states is None else tuple(map(padding.unpack, trace.states))
    return states, None if trace.attentions is None else tuple(map(padding.unpack_attention, trace.attentions))


class _Bare(Seq2SeqModel):
    """Encoder and decoder without a head."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        *,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> Seq2SeqOutput:
        """Run a padded batch: ``last_hidden_state`` ``(B, S, D)`` of the decoder, and that of the encoder.

        Args:
            input_ids: integers ``(B, S)``.
            attention_mask: ``(B, S)``, 1 at real tokens; None: all are real.
            decoder_input_ids: integers ``(B, S)``; None: the input, shifted right (BART only).
            decoder_attention_mask: 0 at tokens of the decoder that no later one may see; None: all are seen.
            output_attentions: also return the attention probabilities of every layer; see :class:`Seq2SeqOutput`;
                None: as the config says.
            output_hidden_states: also return the embeddings and the output of every layer. None: as the config says.

        Raises:
            InputError: shapes that do not agree, ids outside the vocabulary, too many tokens.
        """
        if decoder_input_ids is None and not isinstance(self.config, BartConfig):
            raise InputError(f"{type(self).__name__} needs decoder_input_ids, or use the encoder alone: T5EncoderModel")
        return self._run(
            input_ids,
            attention_mask,
            decoder_input_ids,
            decoder_attention_mask,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
        )[0]


class BartModel(_Bare):
    """BART without a head (Lewis et al. 2019)."""

    config_class = BartConfig


class T5Model(_Bare):
    """T5 without a head (Raffel et al. 2020)."""

    config_class = T5Config


class T5EncoderModel(Seq2SeqModel):
    """The encoder of a T5: ``last_hidden_state`` ``(B, S, D)``."""

    config_class = T5Config
    has_decoder = False

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> ModelOutput:
        """Run a padded batch; see :meth:`T5Model.forward`."""
        output_attentions, output_hidden_states = self.config.returned(output_attentions, output_hidden_states)
        trace = Trace.of(states=output_hidden_states, attentions=output_attentions)
        _, padding, memory_TD = self.encode(input_ids, attention_mask, trace)
        states, attentions = _unpacked(trace, padding)
        return ModelOutput(last_hidden_state=padding.unpack(memory_TD), hidden_states=states, attentions=attentions)
