"""Zero-shot labels by a masked word: "The parcel is late. This is about [MASK]."

Schick and Schütze 2021, "Exploiting Cloze Questions for Few Shot Text Classification", section 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from bertkit.engine.backend import Pack, Values, Wanted
from bertkit.errors import CheckpointError, InputError
from bertkit.inference.pipeline_base import Encoding, Pipeline, check_lengths
from bertkit.inference.pipeline_inputs import Inputs, Shaped, Text, num_characters
from bertkit.inference.zero_shot.candidate_labels import Answer, CandidateLabels, Labels, read_labels, read_single_texts
from bertkit.ragged import Floats, Ints, Ragged
from bertkit.tasks.pieces import find_pieces

PATTERN = "{text} This is about {mask}."


@dataclass(frozen=True, slots=True)
class Pattern:
    """What stands before and behind a text; the mask is in one of the two."""

    before: str
    after: str

    @classmethod
    def of(cls, template: str, mask_token: str) -> Pattern:
        """From a template with ``{text}`` and ``{mask}``, once each, and no other braces; else an InputError."""
        others = template.replace("{text}", "", 1).replace("{mask}", "", 1)
        if len(others) != len(template) - len("{text}{mask}") or set("{}") & set(others):
            raise InputError(
                f"hypothesis_template={template!r}: a pattern has {{text}} and {{mask}} once each, and no other "
                f"braces, as in {PATTERN!r}"
            )
        before, _, after = template.replace("{mask}", mask_token).partition("{text}")
        return cls(before, after)

    def fill(self, text: str) -> str:
        """The whole text that the model reads."""
        return f"{self.before}{text}{self.after}"


class MaskPatternPipeline(Pipeline):
    """Zero-shot classification by a masked language model."""

    task: ClassVar[str] = "zero-shot-classification"
    #: No score says that a label applies by itself.
    threshold: ClassVar[float | None] = None

    def _prepare(self) -> None:
        if self.tokenizer.mask_token_id is None:
            raise CheckpointError("the tokenizer has no mask token, so there is no word to guess")

    def __call__(
        self,
        inputs: Inputs,
        candidate_labels: Labels | None = None,
        *,
        hypothesis_template: str = PATTERN,
        multi_label: bool = False,
        truncation: bool = False,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> Shaped[Answer]:
        """Label texts by the word that the model expects at the mask; each is read once, whatever the labels.

        A text gives ``{"sequence": text, "labels": [...], "scores": [...]}``, the best label first: the probabilities
        of the words at the mask, divided by their sum; and with ``truncation=True``, which cuts only the text,
        ``truncated``.

        candidate_labels: two labels or more, each one word of the model's vocabulary; or a dict of labels and the word,
            or words, that stand for them. Of several words the mean of their probabilities counts.
        hypothesis_template: the pattern, with ``{text}`` and ``{mask}`` once each. It should be chosen for the labels:
            ``"{text} It was {mask}."`` for ``{"positive": "great", "negative": "terrible"}``.
        multi_label: must stay False: the words at one mask exclude each other.
        """
        labels = read_labels(candidate_labels)
        if multi_label or len(labels) < 2:
            raise InputError(
                "a pattern chooses between the words of two or more exclusive labels; for labels by "
                "themselves (multi_label=True, or a single label) use a model of natural language inference"
            )
        pattern = Pattern.of(hypothesis_template, self.tokenizer.mask_token)
        ids, first_of_label = self._read_words(labels, pattern)
        truncate, limit = self.read_limits(truncation, max_length)

        def encode(texts: list[Text], first: int) -> Encoding[Floats, Answer]:
            rows = self._encode([text for text, _ in texts], pattern, limit, first, truncate=truncate)

            def answers(found: list[Floats]) -> Iterator[Answer]:
                for (text, _), scores, cut in zip(texts, found, rows.truncated.tolist(), strict=True):
                    yield labels.answer(text, scores, cut if truncate else None)

            return rows, answers

        def read(pack: Pack, values: Values) -> Sequence[Floats]:
            logits_BW = values["logits"][:, ids]
            likely_BW = np.exp(logits_BW - logits_BW.max(axis=1, keepdims=True))
            means_BL = np.add.reduceat(likely_BW, first_of_label, axis=1) / [len(words) for words in labels.words]
            return list((means_BL / means_BL.sum(axis=1, keepdims=True)).astype(np.float32))

        wanted = Wanted(("logits",), only_at=self.tokenizer.mask_token_id, num_words=len(self.tokenizer))
        return self._answer(read_single_texts(inputs), encode, wanted, read, num_characters, progress=progress)

    def _read_words(self, labels: CandidateLabels, pattern: Pattern) -> tuple[Ints, Ints]:
        """Ids of the words of all labels ``(W,)``, and where those of each label begin ``(L,)``."""
        mask = self.tokenizer.mask_token
        left = pattern.before if mask in pattern.before else pattern.after
        space = " " if left.partition(mask)[0][-1:].isspace() else ""  # byte-level vocabularies tell the two apart
        owners: dict[int, str] = {}
        for name, words in zip(labels.names, labels.words, strict=True):
            for word in words:
                pieces = self.tokenizer.tokenize(space + word)
                if len(pieces) != 1 or pieces[0] == self.tokenizer.unk_token:
                    raise InputError(
                        f"label {name!r}: {word!r} is not one token of this vocabulary (it is read as "
                        f"{' '.join(pieces) or 'nothing'}), and a mask stands for exactly one. Give a word for the "
                        f"label: candidate_labels={{{name!r}: 'word'}} (on the command line: --labels '{name}=word')"
                    )
                token = self.tokenizer.vocab[pieces[0]]
                if token in owners:
                    raise InputError(
                        f"{word!r} of label {name!r} is the same token as a word of {owners[token]!r}; choose another"
                    )
                owners[token] = name
        return np.array(list(owners)), np.cumsum([0, *map(len, labels.words[:-1])])

    def _encode(self, texts: list[str], pattern: Pattern, limit: int, first: int, *, truncate: bool) -> Ragged:
        """The rows of texts in a pattern, with one mask each; of long ones the text is cut."""
        whole = self.tokenizer.encode_ragged([pattern.fill(text) for text in texts])
        is_mask = (whole.ids == self.tokenizer.mask_token_id).astype(np.int64)
        masks = np.add.reduceat(is_mask, whole.boundaries[:-1])
        if (masks != 1).any():
            number = first + int((masks != 1).argmax())
            raise InputError(f"text {number} (counted from 0) has a {self.tokenizer.mask_token} itself; remove it")
        long = np.flatnonzero(whole.lengths > limit)
        if not len(long):
            return whole
        if truncate:
            texts = list(texts)
            for row in long.tolist():
                texts[row] = self._cut(texts[row], pattern, limit)
        rows = self.tokenizer.encode_ragged([pattern.fill(text) for text in texts], max_length=limit)
        rows = replace(rows, num_tokens_before=whole.num_tokens_before)
        if not truncate:
            check_lengths(rows, limit, first)
        return rows

    def _cut(self, text: str, pattern: Pattern, limit: int) -> str:
        """The beginning of a text that fits into the pattern."""
        room = limit - self.tokenizer.template.num_special(paired=False)
        while text:
            pieces = find_pieces([pattern.fill(text)], self.tokenizer)
            surplus = len(pieces.ids) - room
            if surplus <= 0:
                return text
            place, end = len(pattern.before), len(pattern.before) + len(text)
            inside = np.flatnonzero((pieces.starts >= place) & (pieces.ends <= end) & (pieces.starts < pieces.ends))
            if surplus >= len(inside):
                break
            text = text[: int(pieces.starts[inside[-surplus]]) - place].rstrip()
        raise InputError(f"the pattern leaves no room for a text within {limit} tokens; shorten it")
