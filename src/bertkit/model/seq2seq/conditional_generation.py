"""Models that write: BART and T5 with the output over the vocabulary, and what calls them token by token.

Axes, in the order of the suffix letters::

    B sequences   S tokens of the decoder   D model width   V words   R rows that are written
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

import torch
from torch import Tensor

from bertkit.batch import Batch, collate, pack_padded
from bertkit.config.config_file import config_path, read_config
from bertkit.config.encoder_decoder_config import CONFIG_CLASSES, BartConfig, EncoderDecoderConfig, T5Config
from bertkit.config.generation_settings import GenerationSettings
from bertkit.errors import CheckpointError, ConfigError, InputError
from bertkit.habit_table import has_no_effect, saving_folder
from bertkit.model.generation.decoder_cache import DecoderCache
from bertkit.model.generation.generate import streamed, written
from bertkit.model.kernels.linear import Linear
from bertkit.model.loading import LoadOptions
from bertkit.model.losses import token_loss
from bertkit.model.seq2seq.seq2seq_loading import saved_generation, write_generation
from bertkit.model.seq2seq.seq2seq_models import Seq2SeqModel, Seq2SeqOutput
from bertkit.ragged import Ragged
from bertkit.system.model_sources import resolve

NO_TARGET = -100


class ConditionalGeneration(Seq2SeqModel):
    """A model that writes: ``logits`` ``(B, S, V)`` of the next token at each place of the decoder."""

    #: What its head is for; see ``HeadModel.kind``.
    kind: ClassVar[str] = "text"
    _tied: Linear

    def _add_head(self, config: EncoderDecoderConfig) -> None:
        self.lm_head = Linear(config.d_model, config.vocab_size, bias=False) if config.has_own_output else None
        # Reads the table of words; set this way it is no part of the model with a weight of its own.
        object.__setattr__(self, "_tied", Linear(1, 1, bias=False, device="meta"))
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
        path = resolve(name_or_path, revision=options.pop("revision", None))
        model = super().from_pretrained(path, **options)
        model.generation_settings = saved_generation(path)
        return model

    def save_pretrained(self, folder: str | Path | None = None, **ignored: object) -> None:
        folder = saving_folder(folder, ignored)
        super().save_pretrained(folder)
        write_generation(self.generation_settings, self.config, folder)

    def predict(self, decoded: Tensor) -> Tensor:
        """Logits ``(..., V)`` of the decoder's vectors ``(..., D)``."""
        scaled = decoded if self.config.output_scale == 1.0 else decoded * self.config.output_scale
        logits: Tensor = self._output(scaled)
        return logits if self.final_logits_bias is None else logits + self.final_logits_bias

    @property
    def _output(self) -> Linear:
        if self.lm_head is not None:
            return self.lm_head
        if self._tied.weight is not self.model.shared.weight:
            self._tied.weight = self.model.shared.weight
        return self._tied

    def train(self, mode: bool = True) -> Self:
        if mode:
            self._tied.train()
        return super().train(mode)

    def _apply(self, *args: Any, **kwargs: Any) -> Self:
        super()._apply(*args, **kwargs)
        self._tied.train()  # drops its copy, as the other matrices do
        return self

    def forward_packed(self, batch: Batch) -> Seq2SeqOutput:
        """The loss of a packed batch, whose target ``labels`` ``(B, S)`` is that of :meth:`forward`.

        Logits are computed at the targets only, and not kept. Without targets the model reads: besides vectors of the
        tokens there are ``logits`` ``(R, V)`` at ``logit_rows``, those of a BART for the tokens that stand there.
        """
        if not batch.targets:
            out = super().forward_packed(batch)
            if batch.logit_rows is not None:
                assert out.last_hidden_state is not None
                out.logits = self.predict(out.last_hidden_state[batch.logit_rows])
            return out
        term = token_loss(*self.logits_at_targets(batch))
        return Seq2SeqOutput(loss=term.mean(), loss_terms={"loss": term})

    def logits_at_targets(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Logits ``(R, V)`` at each of the R targets of a packed batch, and the targets ``(R,)``."""
        labels_BS = batch.targets["labels"]
        decoded_BSD = self.decode(self.shift_right(labels_BS), self.model.remember(batch))
        real_BS = labels_BS != NO_TARGET
        return self.predict(decoded_BSD[real_BS]), labels_BS[real_BS]

    def num_targets(self, batch: Batch) -> dict[str, float]:
        """What the loss of a batch is divided by."""
        return {"loss": float((batch.targets["labels"] != NO_TARGET).sum())}

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        *,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> Seq2SeqOutput:
        """Run a padded batch.

        Args:
            input_ids: integers ``(B, S)``.
            attention_mask: ``(B, S)``, 1 at real tokens; None: all are real.
            decoder_input_ids: integers ``(B, S)``; None: the labels, shifted right.
            decoder_attention_mask: 0 at tokens of the decoder that no later one may see; None: all are seen.
            labels: ``(B, S)``, what should be written; -100 is no target. ``loss`` is the mean cross-entropy.
            output_attentions: also return the attention probabilities of every layer; see :class:`Seq2SeqOutput`;
                None: as the config says.
            output_hidden_states: also return the embeddings and the output of every layer. None: as the config says.

        Raises:
            InputError: neither ``labels`` nor ``decoder_input_ids``; shapes that do not agree, ids outside the
                vocabulary, too many tokens.
        """
        if decoder_input_ids is None:
            if labels is None:
                raise InputError("give labels or decoder_input_ids; to write a text call generate(input_ids, ...)")
            decoder_input_ids = self.shift_right(labels)
        out, _, _ = self._run(
            input_ids,
            attention_mask,
            decoder_input_ids,
            decoder_attention_mask,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
        )
        assert out.last_hidden_state is not None
        out.logits = self.predict(out.last_hidden_state)
        if labels is not None:
            if labels.shape != decoder_input_ids.shape:
                raise InputError(f"labels must have shape {tuple(decoder_input_ids.shape)}, got {tuple(labels.shape)}")
            term = token_loss(out.logits.flatten(0, 1), labels.flatten())
            out.loss, out.loss_terms = term.mean(), {"loss": term}
        return out

    def generate(
        self,
        input_ids: Tensor | None = None,
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
            **settings: fields of :class:`GenerationSettings`, or several as ``generation_config``; the others are those
                of the checkpoint.

        Raises:
            ConfigError: unknown or contradictory settings.
            InputError: shapes that do not agree, ids outside the vocabulary, more tokens than positions.
        """
        input_ids = settings.pop("inputs", None) if input_ids is None else input_ids
        if input_ids is None:
            raise InputError(
                "generate needs input_ids; write model.generate(**tokenizer(texts, padding=True, return_tensors='pt'))"
            )
        return self._write(self._padded(input_ids, attention_mask), seed, settings)

    def generate_rows(
        self, rows: Ragged, *, seed: int | None = None, num_words: int | None = None, **settings: Any
    ) -> list[list[int]]:
        """:meth:`generate` for B rows of any length, which are never padded: ``B * num_return_sequences`` lists.

        ``num_words``: tokens of the tokenizer; rows of the table behind them are never written. None: all rows.
        """
        found: list[list[int]] = self._write(self._packed(rows), seed, settings, num_words).tolist()
        return found

    def _write(
        self, batch: Batch, seed: int | None, settings: Mapping[str, Any], num_words: int | None = None
    ) -> Tensor:
        """The texts of a batch, int64 ``(B * num_return_sequences, length)``."""
        sorted_batch, back_B = _longest_first(batch)
        with self.evaluating():
            cache, chosen = self._prepared(sorted_batch, settings, num_words)
            found = written(partial(self._step, num_words=num_words), cache, self.config, chosen, seed)
        return _in_order(found, back_B)

    def stream(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, *, seed: int | None = None, **settings: Any
    ) -> Iterator[Tensor]:
        """The tokens of :meth:`generate` one by one, as soon as each is known: int64 ``(B * num_return_sequences,)``.

        Rows that are finished give padding. Arguments and errors are the same; there are no beams.
        """
        return self._stream(self._padded(input_ids, attention_mask), seed, settings)

    def stream_rows(
        self, rows: Ragged, *, seed: int | None = None, num_words: int | None = None, **settings: Any
    ) -> Iterator[Tensor]:
        """:meth:`stream` for B rows of any length, never padded; ``num_words``: see :meth:`generate_rows`."""
        return self._stream(self._packed(rows), seed, settings, num_words)

    def _padded(self, ids_BS: Tensor, mask_BS: Tensor | None) -> Batch:
        return pack_padded(ids_BS, mask_BS, longest_with_gaps=self.config.longest_with_gaps)[0]

    def _packed(self, rows: Ragged) -> Batch:
        return collate(rows, range(len(rows))).to(self.model.shared.weight.device)

    def _stream(
        self, batch: Batch, seed: int | None, settings: Mapping[str, Any], num_words: int | None = None
    ) -> Iterator[Tensor]:
        sorted_batch, back_B = _longest_first(batch)
        with self.evaluating():
            cache, chosen = self._prepared(sorted_batch, settings, num_words)
        steps = streamed(partial(self._step, num_words=num_words), cache, self.config, chosen, seed)
        while True:
            # Not while the caller has the token, who may train the model, read another stream, or drop this one.
            with self.evaluating() if self.training else torch.no_grad():
                tokens = next(steps, None)
            if tokens is None:
                return
            yield _in_order(tokens, back_B)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """No gradients and no dropout meanwhile."""
        was_training = self.training
        self.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.train(was_training)

    def _prepared(
        self, batch: Batch, settings: Mapping[str, Any], num_words: int | None
    ) -> tuple[DecoderCache, GenerationSettings]:
        chosen = self._settings(settings)
        room = self.model.max_length
        if room and chosen.max_new_tokens is None and chosen.max_length is None:
            chosen = chosen.replace(max_new_tokens=min(room, chosen.longest - 1))
        if room and chosen.longest - 1 > room:
            raise ConfigError(
                f"{chosen.longest - 1} new tokens are more than the {room} positions of the model "
                f"(max_position_embeddings); pass max_new_tokens={room} or less"
            )
        for name in ("forced_bos_token_id", "forced_eos_token_id"):
            if (token := getattr(chosen, name)) is not None and token >= (most := num_words or self.config.vocab_size):
                raise ConfigError(f"{name}={token} is outside the vocabulary of {most}")
        for module in (*self.modules(), self._output):
            if isinstance(module, Linear) and not module.is_prepacked:
                module.prepack()
        return self.model.remember(batch), chosen

    def _settings(self, given: Mapping[str, Any]) -> GenerationSettings:
        """The settings of a call: the checkpoint's, of which ``generation_config`` and then the others change some."""
        others = dict(given)
        whole = others.pop("generation_config", None)
        changes = {} if whole is None else whole.model_dump(exclude_unset=True)
        for source in (changes, others):
            for name in ("decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id"):
                if source.pop(name, own := getattr(self.config, name)) not in (own, None):
                    raise ConfigError(f"{name} must be that of the model, {own}: it is a field of the config")
        others = {name: value for name, value in others.items() if not has_no_effect("generate", name, value)}
        return self.generation_settings.replace(**{**changes, **others})

    def _step(self, ids_R1: Tensor, cache: DecoderCache, num_words: int | None = None) -> Tensor:
        return self.predict(self.decode(ids_R1, cache, keep=True)[:, -1])[:, :num_words]


def _longest_first(batch: Batch) -> tuple[Batch, Tensor]:
    """The batch with inputs of similar length beside each other, and where each input went, int64 ``(B,)``."""
    lengths = batch.layout.lengths
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    return batch.select(order), torch.tensor(order, device=batch.input_ids.device).argsort()


def _in_order(found: Tensor, back_B: Tensor) -> Tensor:
    """What was found for the sorted inputs, any number for each, in the order of the inputs."""
    rows: Tensor = found.unflatten(0, (len(back_B), -1))[back_B].flatten(0, 1)
    return rows


class BartForConditionalGeneration(ConditionalGeneration):
    """BART that writes: summaries, translations, missing text."""

    config_class = BartConfig


class T5ForConditionalGeneration(ConditionalGeneration):
    """T5 that writes."""

    config_class = T5Config


class AutoModelForSeq2SeqLM:
    """Chooses the class that writes by the ``model_type`` of the checkpoint's config; has no instances."""

    def __new__(cls, *given: object, **options: object) -> Self:
        raise InputError(
            "AutoModelForSeq2SeqLM is not a model: call AutoModelForSeq2SeqLM.from_pretrained(name_or_path)"
        )

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, **options: Unpack[LoadOptions]) -> ConditionalGeneration:
        """Load a checkpoint into the class for its family.

        Raises:
            CheckpointError: also another ``model_type`` than ``bart``, ``mbart`` or ``t5``; and as the class itself.
        """
        path = resolve(name_or_path, revision=options.pop("revision", None))
        file = config_path(path)
        kind = read_config(file).get("model_type")
        if not isinstance(kind, str) or kind not in WRITERS:
            raise CheckpointError(f"{file}: model_type is {kind!r:.80}; those that write are {', '.join(WRITERS)}")
        return WRITERS[kind].from_pretrained(path, **options)


#: The classes that write, by ``model_type``.
WRITERS: Mapping[str, type[ConditionalGeneration]] = {
    kind: found
    for kind, config_class in CONFIG_CLASSES.items()
    for found in (BartForConditionalGeneration, T5ForConditionalGeneration)
    if found.config_class is config_class
}
