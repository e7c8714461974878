"""Zero-shot labels by natural language inference: does the text entail "This example is about sports."?

Yin, Hay and Roth 2019, "Benchmarking Zero-shot Text Classification", section 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from bertkit.engine.backend import LOGITS
from bertkit.engine.inference_engine import rows_of
from bertkit.errors import CheckpointError, InputError, shorten
from bertkit.inference.pipeline_base import Encoding, Pipeline, check_lengths
from bertkit.inference.pipeline_inputs import Inputs, Shaped, Text
from bertkit.inference.zero_shot.candidate_labels import Answer, Labels, fill_template, read_labels, read_single_texts
from bertkit.metrics.probabilities import softmax
from bertkit.ragged import Floats
from bertkit.tokenization.features import featurize_crossed

#: The hypothesis of ``transformers``.
HYPOTHESIS = "This example is {}."


class EntailmentPipeline(Pipeline):
    """Zero-shot classification by a classifier that was trained on natural language inference."""

    task: ClassVar[str] = "zero-shot-classification"
    #: From this score on a label that is scored by itself is likelier than not.
    threshold: ClassVar[float | None] = 0.5

    def _prepare(self) -> None:
        self.entailment, self.contradiction = nli_labels(self.config.id2label)

    def __call__(
        self,
        inputs: Inputs,
        candidate_labels: Labels | None = None,
        *,
        hypothesis_template: str = HYPOTHESIS,
        multi_label: bool = False,
        truncation: bool = False,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> Shaped[Answer]:
        """Label texts; each is read with the hypothesis of every label: L times as many rows as texts.

        A text gives ``{"sequence": text, "labels": [...], "scores": [...]}``, the best label first, and with
        ``truncation=True``, which cuts only the text, ``truncated``.

        candidate_labels: a list of labels; a text with commas between them; or a dict of labels and the descriptions
            that take their place in the hypothesis.
        hypothesis_template: has ``{}`` where the label goes.
        multi_label: labels do not exclude each other. The score of each is its own: entailment against contradiction.
            Otherwise, with two labels or more, the scores of a text sum to 1: entailment of all labels.

        Deviates: the label called contradiction is found by its name; ``transformers`` takes the first label, or the
        last one if the first is entailment. It also cuts long texts without a word, and reads a label twice.
        """
        labels = read_labels(candidate_labels)
        hypotheses = [fill_template(hypothesis_template, words) for words in labels.descriptions]
        by_itself = multi_label or len(labels) == 1
        if by_itself and self.contradiction is None:
            raise CheckpointError(
                f"the model's labels are {shorten(self.config.id2label.values())}: which of them is contradiction? "
                "Without it a label cannot be scored by itself; give two labels or more, and not multi_label=True"
            )
        truncate, limit = self.read_limits(truncation, self._trained_length(max_length))
        ours = self.tokenizer.encode_ragged(hypotheses, add_special_tokens=False)
        longest = int(ours.lengths.argmax())
        if int(ours.lengths[longest]) + self.tokenizer.template.num_special(paired=True) >= limit:
            raise InputError(
                f"the hypothesis of label {labels.names[longest]!r} has {ours.lengths[longest]} tokens, which leaves "
                f"no room for a text within {limit}; shorten it"
            )

        def encode(texts: list[Text], first: int) -> Encoding[Floats, Answer]:
            premises = self.tokenizer.encode_ragged([text for text, _ in texts], add_special_tokens=False)
            rows = featurize_crossed(premises, ours, self.tokenizer, limit)
            if not truncate:
                check_lengths(rows, limit, first)

            def answers(logits: list[Floats]) -> Iterator[Answer]:
                logits_BLC = np.stack(logits).reshape(len(texts), len(labels), -1)
                if by_itself:
                    scores = softmax(logits_BLC[..., [self.contradiction or 0, self.entailment]])[..., 1]
                else:
                    scores = softmax(logits_BLC[..., self.entailment])
                for (text, _), mine, cut in zip(texts, scores, rows.truncated.tolist(), strict=True):
                    yield labels.answer(text, mine, cut if truncate else None)

            return rows.sequences, answers

        characters = sum(map(len, hypotheses))
        request = read_single_texts(inputs)
        return self._answer(
            request, encode, LOGITS, rows_of, lambda text: len(text[0]) * len(labels) + characters, progress=progress
        )


def nli_labels(id2label: Mapping[int, str]) -> tuple[int, int | None]:
    """Numbers of the labels entailment and contradiction; the latter, of a model with two labels, is the other one."""
    names = {number: name.casefold() for number, name in id2label.items()}
    found = [number for number, name in names.items() if name.startswith("entail")]
    if len(found) != 1:
        raise CheckpointError(
            f"the model's labels are {shorten(id2label.values())}; exactly one of them must begin with 'entail'. "
            "Zero-shot classification needs a model that was trained on natural language inference, with its labels in "
            "config.json (id2label); or method='embedding', which any encoder does"
        )
    against = [number for number, name in names.items() if name.startswith("contradict")]
    if len(names) == 2:
        against = [number for number in names if number != found[0]]
    return found[0], against[0] if len(against) == 1 else None
