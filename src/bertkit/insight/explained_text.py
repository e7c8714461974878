"""A text as a model reads it, word by word, and the one number of the model's answer that is to be explained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from bertkit.batch import Layout
from bertkit.checkpoints.huggingface import is_int8
from bertkit.config.config_file import checkpoint_folder
from bertkit.engine.backend import Network
from bertkit.engine.export_folder import is_export
from bertkit.errors import CheckpointError, InputError
from bertkit.inference.open_pipeline import infer_task
from bertkit.inference.pipeline_base import Pipeline
from bertkit.inference.pipelines import pipeline
from bertkit.insight.attributions import Attributor, Score
from bertkit.insight.explained_parts import ANSWERS, TAGS, TASKS, answer_of, check_texts, tag_of
from bertkit.insight.read_text import Cut, ReadText, number_of
from bertkit.model.int8_model import has_bytes
from bertkit.model.models import HeadModel
from bertkit.model.output import ModelOutput
from bertkit.ragged import Floats
from bertkit.system.model_sources import resolve
from bertkit.tasks.spans.features import SpanSettings
from bertkit.tasks.text.decoding import LabelDecision, ranked_labels
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

_NO_GRADIENTS = "{0} is {1}, which has no gradients; explain the model that it was made of"


@dataclass(frozen=True, slots=True)
class Target:
    """What is explained of an answer: a label, a tag of a word, a piece of a context.

    label, predicted: the one that is explained, and the one that the model gives.
    probability: of ``label``; None for a model whose output is a number.
    word: number of the word that has the tag.
    """

    score: Score
    label: str
    predicted: str
    probability: float | None
    word: int | None = None


class ExplainedText:
    """A text, a pair, or a question with its context, in one row of a model. See :func:`bertkit.visualize.explain`."""

    def __init__(
        self, pipe: Pipeline, text: str, second: str | None, *, truncation: bool, max_length: int | None
    ) -> None:
        self.pipe: Any = pipe
        self.tokenizer, self.text, self.second = pipe.tokenizer, text, second
        check_texts(pipe.task, text, second)
        limit = _limit_of(pipe, max_length)
        cut: Cut = "only_second" if pipe.task == ANSWERS else "longest_first"
        self.tokens = ReadText.of(pipe.tokenizer, text, second, limit, cut if truncation else None)
        self.words, self.truncated = self.tokens.words, self.tokens.truncated

    def attributor(self, score: Score) -> Attributor:
        """What attributes a score to the tokens."""
        return Attributor(self.pipe.model, self.tokens.ids, self.tokens.types, self.tokens.special, score)

    def target(self, label: str | None, word: int | str | None) -> Target:
        """What is to be explained: ``label``, or what the model gives, and of a tagger the tag of ``word``."""
        if word is not None and self.pipe.task != TAGS:
            raise InputError(f"word= is for models that tag words, and this one is for {self.pipe.task}; leave it out")
        if self.pipe.task == ANSWERS:
            return self._answer(label)
        logits = _logits(self.attributor(lambda out, layout: _logits(out)).outputs()).float().cpu().numpy()
        if not np.isfinite(logits).all():
            raise CheckpointError("the model's logits are not finite (NaN or infinity): its weights are damaged")
        return self._tag(logits, label, word) if self.pipe.task == TAGS else self._class(logits, label)

    def _class(self, logits_1C: Floats, label: str | None) -> Target:
        config, labels = self.pipe.config, self.pipe.config.id2label
        several = config.problem_type == "multi_label_classification"
        decision = LabelDecision.of(self.pipe.decision, list(labels.values()))
        is_number = config.num_labels == 1
        shares_1C = np.asarray(decision.probabilities(logits_1C, several=several), np.float32)
        chosen = None if several else decision
        best = 0 if is_number else next(ranked_labels(logits_1C, shares_1C, len(labels), chosen, several=several))[0][0]
        number = best if label is None else number_of(label, labels)
        share = None if is_number else float(shares_1C[0, number])
        return Target(lambda out, layout: _logits(out)[:, number], labels[number], labels[best], share)

    def _tag(self, logits_SC: Floats, label: str | None, word: int | str | None) -> Target:
        labels = self.pipe.config.id2label
        tag = tag_of(self.tokens, logits_SC, labels, label, word)

        def score(out: ModelOutput, layout: Layout) -> Tensor:
            logits = _logits(out)
            return logits[layout.first_rows(logits.device) + tag.token, tag.number]

        return Target(score, labels[tag.number], labels[tag.best], tag.share, tag.place)

    def _answer(self, label: str | None) -> Target:
        answer = answer_of(self.pipe, self.tokens, self.text, self.second or "", label)

        def score(out: ModelOutput, layout: Layout) -> Tensor:
            assert out.start_logits is not None
            assert out.end_logits is not None
            begins = layout.first_rows(out.start_logits.device)
            return out.start_logits[begins + answer.first] + out.end_logits[begins + answer.last]

        return Target(score, answer.label, answer.predicted, answer.share)


def open_model(
    model: str | Path | Network, tokenizer: str | Path | PreTrainedTokenizer | None, device: Any
) -> Pipeline:
    """The pipeline of a model whose answers can be explained.

    Raises:
        InputError: a model in 8 bits, an exported one, an encoder-decoder, or one without a head for
            :data:`TASKS`.
    """
    found: Any = resolve(model) if isinstance(model, str | Path) else model
    if isinstance(found, Path):
        if is_export(found):
            raise InputError(_NO_GRADIENTS.format(model, "an exported model"))
        if is_int8(checkpoint_folder(found)):
            raise InputError(_NO_GRADIENTS.format(model, "a model in 8 bits"))
    elif isinstance(found, HeadModel) and has_bytes(found):
        raise InputError(_NO_GRADIENTS.format(f"the {type(found).__name__}", "a model in 8 bits"))
    task = infer_task(found)
    if task not in TASKS:
        head = "has no head" if task == "feature-extraction" else f"has a head for {task}"
        raise InputError(
            f"the model {head}, so it gives no label, tag or answer that could be explained; train one with "
            "'bertkit finetune'"
        )
    pipe: Pipeline = pipeline(task, model, tokenizer, device, precision="fp32")
    if not isinstance(pipe.model, HeadModel):
        raise InputError(
            f"{type(pipe.model).__name__} is an encoder-decoder; only the answers of encoders are explained"
        )
    return pipe


def _limit_of(pipe: Pipeline, given: int | None) -> int:
    """Most tokens of a text: as given, else as the model was trained, else what it reads."""
    _, limit = pipe.read_limits(True, given)
    if given is not None:
        return limit
    trained = pipe.decision.get("max_length") or (SpanSettings().max_length if pipe.task == ANSWERS else limit)
    return min(trained, limit)


def _logits(out: ModelOutput) -> Tensor:
    assert out.logits is not None, "all heads for texts and tags have logits"
    return out.logits
