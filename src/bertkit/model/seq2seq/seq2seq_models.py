"""BART and T5: the bare models, and those that generate, classify and answer.

They are called as those of transformers: padded tensors in, the encoder packs them, and the decoder reads what is given
or the labels, moved to the right by one.

Axes, in the order of the suffix letters::

    B sequences   S tokens of the decoder   T tokens of the encoder, flat   D model width   V words   C labels
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.batch import Batch, Padding, pack_padded
from bertkit.config.encoder_decoder_config import BartConfig, EncoderDecoderConfig, T5Config
from bertkit.config.generation_settings import GenerationSettings
from bertkit.errors import ConfigError, InputError
from bertkit.model.configured_model import ConfiguredModel, initialize
from bertkit.model.embeddings import check_range
from bertkit.model.generation.generate import streamed, written
from bertkit.model.kernels.dropout import Dropout
from bertkit.model.kernels.linear import Linear
from bertkit.model.loading import LoadOptions
from bertkit.model.losses import LossTerm, class_loss, span_loss, token_loss
from bertkit.model.output import ModelOutput
from bertkit.model.seq2seq.decoder_cache import DecoderCache
from bertkit.model.seq2seq.seq2seq_layers import CausalAttention, CrossAttention, EncoderAttention
from bertkit.model.seq2seq.seq2seq_loading import load_seq2seq, save_seq2seq, saved_generation, write_generation
from bertkit.model.seq2seq.towers import Decoder, PackedEncoder


@dataclass(slots=True, repr=False)
class Seq2SeqOutput(ModelOutput):
    """As :class:`ModelOutput`, of which ``last_hidden_state`` and ``logits`` are the decoder's.

    encoder_last_hidden_state: ``(B, S, D)`` of the input; zeros at padded positions.
    """

    encoder_last_hidden_state: Tensor | None = None


class Towers(nn.Module):
    """The table of words, the encoder and, in all classes but one, the decoder."""

    def __init__(self, config: EncoderDecoderConfig, *, has_decoder: bool = True) -> None:
        super().__init__()
        self.shared = nn.Embedding(config.vocab_size, config.d_model, padding_idx=config.pad_token_id)
        self.encoder = PackedEncoder(config.tower(decoder=False))
        self.decoder = Decoder(config.tower(decoder=True)) if has_decoder else None
        self.max_length = config.tower(decoder=False).positions

    def encode(self, batch: Batch) -> Tensor:
        """The encoder's output for a packed batch, ``(T, D)``."""
        self.check_length(batch.layout.max_seqlen, "input_ids")
        memory_TD: Tensor = self.encoder(self.embed(batch.input_ids, "input_ids"), batch.position_ids, batch.layout)
        return memory_TD

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
    #: The config of the family.
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
        self._add_head(config)
        self.init_weights()

    def _add_head(self, config: EncoderDecoderConfig) -> None:
        """Make what the class has besides."""

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
        return load_seq2seq(cls, cls.config_class, name_or_path, **options)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``model.safetensors`` under the names that other software reads.

        Raises:
            CheckpointError: ``folder`` is a file.
            ResourceError: the disk is full or cannot be written.
        """
        save_seq2seq(self, self.config, folder)

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> tuple[Batch, Padding, Tensor]:
        """The packed input, how it was packed, and the encoder's output ``(T, D)``."""
        batch, padding = pack_padded(input_ids, attention_mask)
        return batch, padding, self.model.encode(batch)

    def decode(
        self, ids_BS: Tensor, cache: DecoderCache, mask_BS: Tensor | None = None, *, keep: bool = False
    ) -> Tensor:
        """The decoder's output ``(B, S, D)``; see :meth:`Decoder.forward`."""
        assert self.model.decoder is not None
        self.model.check_length(cache.length + ids_BS.shape[1], "decoder_input_ids")
        out_BSD: Tensor = self.model.decoder(self.model.embed(ids_BS, "decoder_input_ids"), cache, mask_BS, keep=keep)
        return out_BSD

    def moved(self, labels: Tensor) -> Tensor:
        """Labels ``(B, S)`` as the decoder's input: one to the right, -100 as padding.

        In front stands the token that generation starts with; in mBART the last one, which is the language.
        """
        labels = labels.masked_fill(labels == -100, self.config.pad_token_id)
        start = labels.new_full((len(labels), 1), self.config.decoder_start_token_id)
        if self.config.model_type == "mbart":
            lengths_B1 = (labels != self.config.pad_token_id).sum(dim=1, keepdim=True)
            start = labels.gather(1, (lengths_B1 - 1).clamp(min=0))
        return torch.cat([start, labels[:, :-1]], dim=1)

    def _run(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        decoder_input_ids: Tensor,
        decoder_attention_mask: Tensor | None = None,
    ) -> Seq2SeqOutput:
        """Encoder and decoder."""
        if decoder_input_ids.ndim != 2 or len(decoder_input_ids) != len(input_ids) or decoder_input_ids.numel() == 0:
            raise InputError(
                f"decoder_input_ids must have shape ({len(input_ids)}, length), got {tuple(decoder_input_ids.shape)}"
            )
        assert self.model.decoder is not None
        batch, padding, memory_TD = self.encode(input_ids, attention_mask)
        cache = self.model.decoder.remember(memory_TD, batch.layout)
        decoded_BSD = self.decode(decoder_input_ids, cache, decoder_attention_mask)
        return Seq2SeqOutput(last_hidden_state=decoded_BSD, encoder_last_hidden_state=padding.unpack(memory_TD))


class _Bare(Seq2SeqModel):
    """Encoder and decoder without a head."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
    ) -> Seq2SeqOutput:
        """Run a padded batch: ``last_hidden_state`` ``(B, S, D)`` of the decoder, and that of the encoder.

        Args:
            input_ids: integers ``(B, S)``.
            attention_mask: ``(B, S)``, 1 at real tokens; None: all are real.
            decoder_input_ids: integers ``(B, S)``; None: the input, moved to the right (BART only).
            decoder_attention_mask: 0 at tokens of the decoder that no later one may see; None: all are seen.

        Raises:
            InputError: shapes that do not agree, ids outside the vocabulary, too many tokens.
        """
        if decoder_input_ids is None and not isinstance(self.config, BartConfig):
            raise InputError(f"{type(self).__name__} needs decoder_input_ids, or use the encoder alone: T5EncoderModel")
        given = self.moved(input_ids) if decoder_input_ids is None else decoder_input_ids
        return self._run(input_ids, attention_mask, given, decoder_attention_mask)


class ConditionalGeneration(Seq2SeqModel):
    """A model that writes: ``logits`` ``(B, S, V)`` of the next token at each place of the decoder."""

    def _add_head(self, config: EncoderDecoderConfig) -> None:
        self.lm_head = Linear(config.d_model, config.vocab_size, bias=False) if config.has_own_output else None
        if self.lm_head is not None:
            self.lm_head.init_scale = config.tower(decoder=True).init_scale(config.d_model)
        if isinstance(config, BartConfig):
            self.register_buffer("final_logits_bias", torch.zeros(1, config.vocab_size))
        else:
            self.final_logits_bias = None
        #: What :meth:`generate` does unless it is told otherwise.
        self.generation_settings = GenerationSettings(
            forced_bos_token_id=config.forced_bos_token_id, forced_eos_token_id=config.forced_eos_token_id
        )

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, **options: Unpack[LoadOptions]) -> Self:
        """As :meth:`Seq2SeqModel.from_pretrained`, with the settings of generation of the checkpoint.

        Raises:
            CheckpointError: also a setting of generation that is not implemented.
        """
        model = super().from_pretrained(name_or_path, **options)
        model.generation_settings = saved_generation(name_or_path, options.get("revision"))
        return model

    def save_pretrained(self, folder: str | Path) -> None:
        super().save_pretrained(folder)
        write_generation(self.generation_settings, self.config, folder)

    def predict(self, decoded: Tensor) -> Tensor:
        """Logits ``(..., V)`` of the decoder's vectors ``(..., D)``."""
        scaled = decoded if self.config.output_scale == 1.0 else decoded * self.config.output_scale
        weight = self.model.shared.weight if self.lm_head is None else self.lm_head.weight
        logits: Tensor = F.linear(scaled, weight)
        return logits if self.final_logits_bias is None else logits + self.final_logits_bias

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> Seq2SeqOutput:
        """Run a padded batch.

        Args:
            input_ids: integers ``(B, S)``.
            attention_mask: ``(B, S)``, 1 at real tokens; None: all are real.
            decoder_input_ids: integers ``(B, S)``; None: the labels, moved to the right.
            decoder_attention_mask: 0 at tokens of the decoder that no later one may see; None: all are seen.
            labels: ``(B, S)``, what should be written; -100 is no target. ``loss`` is the mean cross-entropy.

        Raises:
            InputError: neither ``labels`` nor ``decoder_input_ids``; shapes that do not agree, ids outside the
                vocabulary, too many tokens.
        """
        if decoder_input_ids is None:
            if labels is None:
                raise InputError("give labels or decoder_input_ids; to write a text call generate(input_ids, ...)")
            decoder_input_ids = self.moved(labels)
        out = self._run(input_ids, attention_mask, decoder_input_ids, decoder_attention_mask)
        assert out.last_hidden_state is not None
        out.logits = self.predict(out.last_hidden_state)
        if labels is not None:
            if labels.shape != decoder_input_ids.shape:
                raise InputError(f"labels must have shape {tuple(decoder_input_ids.shape)}, got {tuple(labels.shape)}")
            _set_loss(out, token_loss(out.logits.flatten(0, 1), labels.flatten()))
        return out

    def generate(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        seed: int | None = None,
        **settings: Any,
    ) -> Tensor:
        """Write a text for each row, int64 ``(B * num_return_sequences, length)``.

        Each output begins with ``decoder_start_token_id`` and ends with ``eos_token_id``, unless it is as long as
        allowed; ``pad_token_id`` stands behind. Dropout is off, whatever the mode of the model.

        Args:
            input_ids: integers ``(B, S)``.
            attention_mask: ``(B, S)``, 1 at real tokens; None: all are real.
            seed: of sampling; None: torch's generator.
            **settings: fields of :class:`GenerationSettings`; the others are those of the checkpoint.

        Raises:
            ConfigError: unknown or contradictory settings.
            InputError: shapes that do not agree, ids outside the vocabulary, more tokens than positions.
        """
        with self._writing():
            cache, chosen = self._prepared(input_ids, attention_mask, settings)
            return written(self._step, cache, self.config, chosen, seed)

    def stream(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        seed: int | None = None,
        **settings: Any,
    ) -> Iterator[Tensor]:
        """The tokens of :meth:`generate` one by one, as soon as each is known: int64 ``(B * num_return_sequences,)``.

        Rows that are finished give padding. Arguments and errors are the same; there are no beams.
        """
        with self._writing():
            cache, chosen = self._prepared(input_ids, attention_mask, settings)
            yield from streamed(self._step, cache, self.config, chosen, seed)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """No gradients and no dropout meanwhile."""
        was_training = self.training
        self.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.train(was_training)

    def _prepared(
        self, input_ids: Tensor, attention_mask: Tensor | None, settings: Mapping[str, Any]
    ) -> tuple[DecoderCache, GenerationSettings]:
        chosen = self.generation_settings.replace(**settings)
        self.model.check_length(chosen.longest - 1, "max_new_tokens")
        for name in ("forced_bos_token_id", "forced_eos_token_id"):
            if (token := getattr(chosen, name)) is not None and token >= self.config.vocab_size:
                raise ConfigError(f"{name}={token} is outside the vocabulary of {self.config.vocab_size}")
        assert self.model.decoder is not None
        batch, _, memory_TD = self.encode(input_ids, attention_mask)
        return self.model.decoder.remember(memory_TD, batch.layout), chosen

    def _step(self, ids_R1: Tensor, cache: DecoderCache) -> Tensor:
        return self.predict(self.decode(ids_R1, cache, keep=True)[:, -1])


def _set_loss(out: ModelOutput, term: LossTerm) -> None:
    out.loss, out.loss_terms = term.mean(), {"loss": term}


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

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> ModelOutput:
        """Run a padded batch; see :meth:`T5Model.forward`."""
        _, padding, memory_TD = self.encode(input_ids, attention_mask)
        return ModelOutput(last_hidden_state=padding.unpack(memory_TD))


class BartForConditionalGeneration(ConditionalGeneration):
    """BART that writes: summaries, translations, missing text."""

    config_class = BartConfig


class T5ForConditionalGeneration(ConditionalGeneration):
    """T5 that writes."""

    config_class = T5Config


class ClassificationHead(nn.Module):
    """Linear, tanh, linear, with dropout before each linear layer."""

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.dense = Linear(config.d_model, config.d_model)
        self.out_proj = Linear(config.d_model, config.num_labels)
        self.dropout = Dropout(config.classifier_dropout)

    def forward(self, x_BD: Tensor) -> Tensor:
        logits_BC: Tensor = self.out_proj(self.dropout(torch.tanh(self.dense(self.dropout(x_BD)))))
        return logits_BC


class BartForSequenceClassification(Seq2SeqModel):
    """One label, several labels or a number for a text: ``logits`` ``(B, C)``.

    The decoder reads the text too, and the classifier its vector at the last ``</s>`` (section 3.1).
    """

    config_class = BartConfig
    head_prefixes = ("classification_head.",)
    label_head = True

    def _add_head(self, config: EncoderDecoderConfig) -> None:
        self.classification_head = ClassificationHead(config)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None
    ) -> Seq2SeqOutput:
        """Run a padded batch; ``labels`` as :class:`bertkit.BertForSequenceClassification` takes them.

        Raises:
            InputError: a row without ``</s>``; shapes that do not agree, ids outside the vocabulary, too many tokens.
        """
        out = self._run(input_ids, attention_mask, self.moved(input_ids))
        ends_BS = input_ids == self.config.eos_token_id
        if not bool(ends_BS.any(dim=1).all()):
            row = int((~ends_BS.any(dim=1)).nonzero()[0])
            raise InputError(f"row {row} of input_ids has no eos_token_id={self.config.eos_token_id} to be read at")
        assert out.last_hidden_state is not None
        columns_S = torch.arange(input_ids.shape[1], device=input_ids.device)
        last_B = (columns_S * ends_BS).amax(dim=1)
        out.logits = self.classification_head(out.last_hidden_state[torch.arange(len(last_B)), last_B])
        if labels is not None:
            _set_loss(out, class_loss(out.logits, labels, self.config.problem_type))
        return out


class BartForQuestionAnswering(Seq2SeqModel):
    """Start and end of the answer in a context: ``start_logits``, ``end_logits`` ``(B, S)``."""

    config_class = BartConfig
    head_prefixes = ("qa_outputs.",)

    def _add_head(self, config: EncoderDecoderConfig) -> None:
        self.qa_outputs = Linear(config.d_model, 2)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
    ) -> Seq2SeqOutput:
        """Run a padded batch; the positions and the loss are those of :class:`bertkit.BertForQuestionAnswering`.

        Raises:
            InputError: one position without the other; shapes that do not agree, ids outside the vocabulary.
        """
        if (start_positions is None) != (end_positions is None):
            raise InputError("give start_positions and end_positions, or neither")
        out = self._run(input_ids, attention_mask, self.moved(input_ids))
        out.start_logits, out.end_logits = self.qa_outputs(out.last_hidden_state).unbind(dim=-1)
        if start_positions is not None and end_positions is not None:
            batch, padding = pack_padded(input_ids, attention_mask)
            start_T, end_T = padding.pack(out.start_logits), padding.pack(out.end_logits)
            _set_loss(out, span_loss(start_T, end_T, start_positions, end_positions, batch.layout))
        return out
