"""Data collators: rows as the tokenizer gives them to a padded batch of tensors, for a loop of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bertkit.data.examples.masking import Masking, MaskVocabulary, mask_rows
from bertkit.errors import InputError
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

Batch = dict[str, Any]
#: Names of a label in a row, which a model calls ``labels``.
LABELS = ("label", "labels", "label_ids")


def default_data_collator(features: Sequence[Mapping[str, Any]], return_tensors: str = "pt") -> Batch:
    """Each column of rows of one length as one tensor; ``label`` and ``label_ids`` are called ``labels``.

    Columns of texts are left out.
    """
    first = {name: value for name, value in features[0].items() if value is not None and not isinstance(value, str)}
    columns = {"labels" if name in LABELS else name: [row[name] for row in features] for name in first}
    return _as_tensors(columns, return_tensors)


@dataclass
class DefaultDataCollator:
    """:func:`default_data_collator` as an object."""

    return_tensors: str = "pt"

    def __call__(self, features: Sequence[Mapping[str, Any]], return_tensors: str | None = None) -> Batch:
        return default_data_collator(features, return_tensors or self.return_tensors)


@dataclass
class DataCollatorWithPadding:
    """Pads rows to the longest of a batch, or as ``padding`` says; labels are one number or one row of numbers each."""

    tokenizer: PreTrainedTokenizer
    padding: bool | str = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    return_tensors: str = "pt"

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> Batch:
        inputs, labels = _parted(features)
        batch = self._padded(inputs)
        return {**batch, **({} if labels is None else _as_tensors({"labels": labels}, self.return_tensors))}

    def _padded(self, inputs: Sequence[Mapping[str, Any]]) -> Batch:
        kept = [{name: value for name, value in row.items() if name != "special_tokens_mask"} for row in inputs]
        return dict(
            self.tokenizer.pad(
                kept,
                padding=self.padding,
                max_length=self.max_length,
                pad_to_multiple_of=self.pad_to_multiple_of,
                return_tensors=self.return_tensors,
            )
        )


@dataclass
class DataCollatorForTokenClassification:
    """Pads rows, and the labels of their tokens with ``label_pad_token_id``."""

    tokenizer: PreTrainedTokenizer
    padding: bool | str = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    label_pad_token_id: int = -100
    return_tensors: str = "pt"

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> Batch:
        return _with_padded_labels(self, features, self.tokenizer)


@dataclass
class DataCollatorForMultipleChoice(DataCollatorWithPadding):
    """Pads rows whose columns hold one list for each choice: tensors ``(B, choices, S)``, ``labels`` ``(B,)``."""

    def _padded(self, inputs: Sequence[Mapping[str, Any]]) -> Batch:
        count = len(inputs[0]["input_ids"])
        if other := next((n for n, row in enumerate(inputs) if len(row["input_ids"]) != count), None):
            raise InputError(
                f"row {other} of the batch has {len(inputs[other]['input_ids'])} choices and row 0 has {count}; give "
                "rows with equally many"
            )
        flat = [{name: values[n] for name, values in row.items()} for row in inputs for n in range(count)]
        return {name: values.reshape(len(inputs), count, -1) for name, values in super()._padded(flat).items()}


@dataclass
class DataCollatorForSeq2Seq:
    """Pads texts, and the texts to write with ``label_pad_token_id``; BART and T5 make the decoder's input of these."""

    tokenizer: PreTrainedTokenizer
    model: object = None
    padding: bool | str = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    label_pad_token_id: int = -100
    return_tensors: str = "pt"

    def __call__(self, features: Sequence[Mapping[str, Any]], return_tensors: str | None = None) -> Batch:
        return _with_padded_labels(self, features, None)


@dataclass
class DataCollatorForLanguageModeling:
    """Pads rows and hides words of them, by the masking that ``bertkit pretrain`` uses.

    Draws from torch's generator, so that :func:`bertkit.set_seed` repeats a batch; a ``seed`` has a generator of its
    own. Labels are the hidden tokens, and -100 elsewhere; with ``mlm=False`` all tokens but padding.

    Deviates: of each row the share ``mlm_probability`` is hidden, rounded; ``transformers`` draws for each token anew.
    """

    tokenizer: PreTrainedTokenizer
    mlm: bool = True
    whole_word_mask: bool = False
    mlm_probability: float | None = 0.15
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    pad_to_multiple_of: int | None = None
    return_tensors: str = "pt"
    seed: int | None = None

    def __post_init__(self) -> None:
        self._generator = None if self.seed is None else torch.Generator().manual_seed(self.seed)
        if self.mlm:
            self._masking = Masking(
                unit="whole-word" if self.whole_word_mask else "token",
                rate=0.15 if self.mlm_probability is None else self.mlm_probability,
                mask_share=self.mask_replace_prob,
                random_share=self.random_replace_prob,
            )
            self._vocabulary = MaskVocabulary.of_tokenizer(self.tokenizer)
            self._vocabulary.check(self._masking)

    def __call__(self, features: Sequence[Mapping[str, Any] | Sequence[int]]) -> Batch:
        rows = [row if isinstance(row, Mapping) else {"input_ids": row} for row in features]
        pad = DataCollatorWithPadding(self.tokenizer, pad_to_multiple_of=self.pad_to_multiple_of, return_tensors="np")
        batch = pad([{name: value for name, value in row.items() if name not in LABELS} for row in rows])
        real = batch["attention_mask"] != 0
        batch["labels"] = np.full_like(batch["input_ids"], -100)
        if self.mlm:
            batch["input_ids"][real], batch["labels"][real] = self._masked(batch["input_ids"][real], real)
        else:
            batch["labels"][real] = batch["input_ids"][real]
        return batch if self.return_tensors == "np" else {name: torch.from_numpy(x) for name, x in batch.items()}

    def _masked(self, ids: np.ndarray[Any, Any], real: np.ndarray[Any, Any]) -> tuple[Any, Any]:
        ends = np.cumsum(real.sum(axis=1))
        special = np.isin(ids, self.tokenizer.all_special_ids)
        keys = torch.randint(2**62, (len(ends),), generator=self._generator).numpy().astype(np.uint64)
        return mask_rows(ids, np.append(0, ends), special, keys, self._masking, self._vocabulary)


@dataclass
class DataCollatorForWholeWordMask(DataCollatorForLanguageModeling):
    """:class:`DataCollatorForLanguageModeling` that hides whole words."""

    whole_word_mask: bool = True


def _parted(features: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[Any] | None]:
    """The columns of the tokenizer, and the labels if there are any."""
    if not features:
        raise InputError("the batch is empty: give at least one row")
    if text := next((name for name, value in features[0].items() if isinstance(value, str)), None):
        raise InputError(
            f"the column {text!r} holds texts, which make no tensor: write dataset.remove_columns([{text!r}]), or "
            "leave it out of the rows"
        )
    name = next((name for name in LABELS if features[0].get(name) is not None), None)
    inputs = [{key: value for key, value in row.items() if key not in LABELS} for row in features]
    return inputs, None if name is None else [row[name] for row in features]


def _with_padded_labels(
    how: DataCollatorForTokenClassification | DataCollatorForSeq2Seq,
    features: Sequence[Mapping[str, Any]],
    side: PreTrainedTokenizer | None,
) -> Batch:
    """A padded batch; labels are as long as its rows, or, without ``side``, as the longest of them."""
    inputs, labels = _parted(features)
    pad = DataCollatorWithPadding(
        how.tokenizer, how.padding, how.max_length, how.pad_to_multiple_of, return_tensors=how.return_tensors
    )
    batch = pad(inputs)
    if labels is None:
        return batch
    listed = [np.asarray(row).tolist() for row in labels]
    width = batch["input_ids"].shape[1] if side is not None else max(map(len, listed))
    if side is None and (multiple := how.pad_to_multiple_of):
        width = -(-width // multiple) * multiple
    fill = [[how.label_pad_token_id] * (width - len(row)) for row in listed]
    left = how.tokenizer.padding_side == "left"
    rows = [[*more, *row] if left else [*row, *more] for row, more in zip(listed, fill, strict=True)]
    return {**batch, **_as_tensors({"labels": rows}, how.return_tensors)}


def _as_tensors(columns: Mapping[str, Sequence[Any]], kind: str) -> Batch:
    if kind not in ("pt", "np"):
        raise InputError(f"return_tensors must be 'pt' or 'np', got {kind!r}")
    found: Batch = {}
    for name, rows in columns.items():
        try:
            array = np.stack([np.asarray(row) for row in rows])
        except ValueError:
            usual = "DataCollatorWithPadding(tokenizer), or give the trainer processing_class=tokenizer"
            advice = "DataCollatorForTokenClassification(tokenizer)" if name == "labels" else usual
            raise InputError(f"column {name!r} has rows of different lengths: pad them with {advice}") from None
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
        found[name] = array if kind == "np" else torch.from_numpy(array)
    return found
