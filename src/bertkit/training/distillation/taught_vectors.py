"""A sentence encoder that is trained on the vectors of another and, optionally, to fill in masked words as well.

Letters of the array shapes: N texts, B texts of a batch, T their tokens, D width of the teacher's vectors, W of the
student's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.batch import Batch, collate
from bertkit.config.any_config import read_any_config
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import checkpoint_folder, config_path
from bertkit.config.sentence_config import Dense, Normalize, SentenceConfig
from bertkit.data.counter_random import bits, stream, uniform
from bertkit.data.examples.masking import Masking, MaskVocabulary, mask_rows
from bertkit.errors import ConfigError
from bertkit.model.heads import MaskedLMHead
from bertkit.model.losses import LossOutput, LossTerm, count_targets, masked_lm_loss
from bertkit.model.models import BertForMaskedLM, BertModel
from bertkit.model.sentence_model import DenseStep, SentenceModel
from bertkit.model.vector_losses import cosines
from bertkit.ragged import Floats, Ragged
from bertkit.system.model_sources import resolve
from bertkit.tasks.embeddings.start_model import said_by
from bertkit.tasks.embeddings.vectors import VectorEngine
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.training.distillation.distill_settings import VectorDistillation, VectorTraining
from bertkit.training.trainer.batch_plan import EpochPlan

#: Name of the teacher's vectors among the targets of a batch.
VECTORS = "vectors"


class TaughtVectors(nn.Module):
    """A sentence encoder in training; the loss of a batch is the mean over its texts.

    loss: ``mse``: the squared distance from the teacher's vector, summed over its numbers; ``cosine``: 1 - cosine.
    words_head: the masked-LM head, if masked words are learned as well. The vectors of texts with masked words are
        learned like any other.
    """

    def __init__(
        self,
        sentences: SentenceModel,
        loss: Literal["mse", "cosine"],
        words_head: MaskedLMHead | None = None,
        words_weight: float = 0.0,
    ) -> None:
        super().__init__()
        self.sentences, self.loss, self.words_weight = sentences, loss, words_weight
        self.name = "loss" if words_head is None else "vectors"
        self.words_head = words_head

    def forward_packed(self, batch: Batch) -> LossOutput:
        """The loss of a batch with the targets ``vectors`` ``(B, W)`` and, with masked words, ``labels`` ``(T,)``."""
        asked, wanted_BW = replace(batch, targets={}), batch.targets[VECTORS]
        x_TD = self.sentences.encoder.forward_packed(asked).last_hidden_state
        assert x_TD is not None
        found_BW = self.sentences.head(x_TD, batch.layout)
        with torch.autocast(found_BW.device.type, enabled=False):
            if self.loss == "mse":
                total = (found_BW.float() - wanted_BW).square().sum()
            else:
                total = (1 - cosines(found_BW.float(), wanted_BW)).sum()
        terms = {self.name: LossTerm(total, float(len(wanted_BW)))}
        if "masked_lm" in self.num_targets(batch):
            terms["masked_lm"] = self._masked_lm(x_TD, batch.targets["labels"])
        return LossOutput(terms)

    def _masked_lm(self, x_TD: Tensor, labels_T: Tensor) -> LossTerm:
        assert self.words_head is not None
        masked_R = (labels_T != -100).nonzero().squeeze(1)
        logits_RV = self.words_head(x_TD[masked_R], self.sentences.encoder.embeddings.word_embeddings.weight)
        term = masked_lm_loss(logits_RV.float(), labels_T, masked_R)
        return LossTerm(self.words_weight * term.total, term.num_targets)

    def num_targets(self, batch: Batch) -> dict[str, float]:
        """Texts, and masked words where there are any."""
        words = count_targets(batch.targets["labels"]) if "labels" in batch.targets else 0.0
        return {self.name: float(len(batch.targets[VECTORS])), **({"masked_lm": words} if words else {})}


class MaskedTexts(EpochPlan[Batch]):
    """A plan of texts in some of which, a ``share``, words are masked, drawn anew at every step."""

    def __init__(
        self, *args: Any, share: float, vocabulary: MaskVocabulary, masking: Masking | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.share, self.vocabulary, self.masking = share, vocabulary, masking or Masking()
        self._special = np.zeros(vocabulary.size, bool)
        self._special[[vocabulary.cls_id, vocabulary.sep_id]] = True

    def micro_batches(self, step: int) -> list[Batch]:
        return [self._masked(batch, step, place) for place, batch in enumerate(super().micro_batches(step))]

    def _masked(self, batch: Batch, step: int, place: int) -> Batch:
        ids = batch.input_ids.numpy()
        rows = np.arange(batch.layout.num_sequences, dtype=np.uint64)
        numbers = (np.uint64(place) << np.uint64(32)) | rows
        keys = bits(stream(self.seed, "mask", step), numbers)
        boundaries = np.array(batch.layout.boundaries)
        inputs, labels = mask_rows(ids, boundaries, self._special[ids], keys, self.masking, self.vocabulary)
        chosen = np.repeat(uniform(stream(self.seed, "masked texts", step), numbers) < self.share, batch.layout.lengths)
        return replace(
            batch.with_target("labels", torch.from_numpy(np.where(chosen, labels, -100))),
            input_ids=torch.from_numpy(np.where(chosen, inputs, ids)),
        )


def masked_words(model: BertForMaskedLM, rows: Ragged, vocabulary: MaskVocabulary, max_tokens: int) -> dict[str, float]:
    """How many masked words of some texts a model in eval mode finds; of each text 15 % of the tokens are masked.

    ``accuracy``, and ``most_frequent``, what always guessing the word that is masked most often would give.
    """
    plan = MaskedTexts(
        rows.lengths.tolist(),
        lambda numbers: collate(rows, numbers),
        step_size=len(rows),
        max_tokens=max_tokens,
        seed=0,
        share=1.0,
        vocabulary=vocabulary,
        masking=Masking(mask_share=1.0, random_share=0.0),
    )
    right, counts = 0, torch.zeros(vocabulary.size, dtype=torch.int64)
    with torch.inference_mode():
        for batch in plan.micro_batches(0):
            masked_R = (batch.targets["labels"] != -100).nonzero().squeeze(1)
            labels_R = batch.targets["labels"][masked_R]
            logits_RV = model.forward_packed(replace(batch, targets={}, logit_rows=masked_R).to(model.device)).logits
            assert logits_RV is not None
            right += int((logits_RV.argmax(dim=-1).cpu() == labels_R).sum())
            counts += torch.bincount(labels_R, minlength=vocabulary.size)
    total = int(counts.sum())
    return {"accuracy": right / total, "most_frequent": int(counts.max()) / total}


@dataclass(frozen=True, slots=True)
class WordMeans:
    """The mean of the teacher's word embeddings of a text, to be learned beside the teacher's vector.

    It is what an encoder without layers would say: which words a text has. Less the mean of all texts, and as long as
    the teacher's vectors, in the mean of squares. ``table`` is ``(V, E)``, ``center`` ``(E,)``.
    """

    table: Tensor
    tokenizer: PreTrainedTokenizer
    max_length: int
    center: Floats
    scale: float

    @classmethod
    def of(cls, teacher: str | Path, texts: Sequence[str], vectors_ND: Floats, max_length: int) -> WordMeans:
        """Centered and scaled on some texts with the teacher's vectors."""
        path = resolve(teacher)
        table = BertModel.from_pretrained(path).embeddings.word_embeddings.weight.detach()
        tokenizer = AutoTokenizer.from_pretrained(checkpoint_folder(path))
        plain = cls(table, tokenizer, max_length, np.zeros(table.shape[1], np.float32), 1.0)
        means_NE = plain(texts)
        center = means_NE.mean(axis=0)
        lengths = [float((each.astype(np.float64) ** 2).sum()) for each in (vectors_ND, means_NE - center)]
        return replace(plain, center=center, scale=math.sqrt(lengths[0] / lengths[1]) if lengths[1] else 1.0)

    def __call__(self, texts: Sequence[str]) -> Floats:
        """``(N, E)``; a text without a token has the mean of all."""
        rows = self.tokenizer.encode_ragged(
            list(texts), add_special_tokens=False, max_length=self.max_length, truncation="longest_first"
        )
        ids, firsts = torch.from_numpy(rows.ids.astype(np.int64)), torch.from_numpy(rows.boundaries[:-1])
        means_NE: Floats = nn.functional.embedding_bag(ids, self.table, firsts, mode="mean").numpy()
        means_NE[rows.lengths == 0] = self.center
        return (means_NE - self.center) * np.float32(self.scale)

    def beside(self, vectors_ND: Floats, texts: Sequence[str], weight: float) -> Floats:
        """The teacher's vectors with ``weight`` times these beside them, as long as before: ``(N, D + E)``."""
        both = np.concatenate([vectors_ND, weight * self(texts)], axis=1)
        found: Floats = (both / math.sqrt(1 + weight**2)).astype(np.float32)
        return found


def num_to_learn(teacher: str | Path, vectors: int, settings: VectorDistillation) -> int:
    """Numbers of what is to be learned of a text: the teacher's vector, and perhaps the mean of its word embeddings."""
    if not (settings.embedding_weight or settings.final_embedding_weight):
        return vectors
    config = read_any_config(config_path(resolve(teacher)))
    if not isinstance(config, BertConfig):
        raise ConfigError(f"embedding_weight: the teacher {teacher} is no encoder of BERT's kind; set it to 0")
    return vectors + (config.embedding_width if settings.embedding_weight else 0)


def ends_normalized(config: SentenceConfig) -> bool:
    """Whether a model's vectors have length 1."""
    return bool(config.steps) and isinstance(config.steps[-1], Normalize)


def student_head(
    start: Path | None,
    hidden_size: int,
    teacher: SentenceConfig,
    width: int,
    settings: VectorDistillation,
    config: VectorTraining,
) -> SentenceConfig:
    """What follows a student's encoder: pooling, a linear layer if its width is to be another, length 1.

    A checkpoint (``start``) of sentence-transformers keeps its pooling and its own dense layers; any other is pooled as
    the teacher is, or as ``settings`` say. Where the teacher's vectors have length 1, the student's have. ``width`` is
    how many numbers are to be learned of a text.
    """
    said = None if start is None else said_by(checkpoint_folder(start))
    if said is not None and has_layers(said):
        if settings.pooling is not None or settings.dimensions is not None:
            raise ConfigError(
                f"pooling, dimensions: the student {start} makes vectors by layers of its own; begin with its encoder "
                "alone, without modules.json, or leave both out"
            )
        if (own_width := said.widths(hidden_size)[-1]) > width:
            raise ConfigError(
                f"the student {start} makes vectors of {own_width} numbers by layers of its own, the teacher of "
                f"{width}; begin with its encoder alone, without modules.json"
            )
        head, is_new = said, False
    else:
        pooling = settings.pooling or (said or teacher).pooling
        pooled = hidden_size * len(pooling)
        own_width = settings.dimensions or min(pooled, width)
        if own_width > width:
            raise ConfigError(
                f"dimensions={own_width}: what is to be learned of a text has {width} numbers; give at most that"
            )
        is_new = own_width != pooled
        dense = Dense(in_features=pooled, out_features=own_width, activation="Identity")
        steps = (*((dense,) if is_new else ()), *((Normalize(),) if ends_normalized(teacher) else ()))
        head = SentenceConfig(pooling=pooling, steps=steps, similarity=teacher.similarity, max_length=config.max_length)
    if settings.final_embedding_weight is not None and not is_new:
        raise ConfigError(
            "final_embedding_weight: the student has no new linear layer that could be fitted; give dimensions as "
            "well, or leave it out"
        )
    return head


def student_model(start: Path, head: SentenceConfig, seed: int, words: BertForMaskedLM | None = None) -> SentenceModel:
    """The student of the checkpoint ``start``; ``words`` is the same with a masked-LM head, and gives its encoder."""
    if has_own_layers(start):
        made = SentenceModel.from_pretrained(start)
        if words is not None:
            made.encoder = words.bert
        return made
    return SentenceModel(BertModel.from_pretrained(start) if words is None else words.bert, head, seed=seed)


def has_layers(config: SentenceConfig) -> bool:
    """Whether more follows the pooling than a length of 1."""
    return any(not isinstance(step, Normalize) for step in config.steps)


def has_own_layers(start: Path) -> bool:
    """Whether a checkpoint says that more follows its pooling than a length of 1."""
    said = said_by(checkpoint_folder(start))
    return said is not None and has_layers(said)


def fit_linear(sentences: SentenceModel, rows: Ragged, targets_NW: Floats) -> None:
    """Set the linear layer that follows the pooling to the least squares of some texts."""
    layer = sentences.head.steps[0]
    assert isinstance(layer, DenseStep)
    plain = SentenceModel(sentences.encoder, SentenceConfig(pooling=sentences.head.config.pooling))
    pooled_ND = VectorEngine(plain).vectors(rows, lambda count: None).astype(np.float64)
    x_NE = np.concatenate([pooled_ND, np.ones((len(rows), 1))], axis=1)
    ridge = 1e-5 * len(rows) * np.eye(x_NE.shape[1])
    weights_EW = torch.from_numpy(np.linalg.solve(x_NE.T @ x_NE + ridge, x_NE.T @ targets_NW).astype(np.float32))
    with torch.no_grad():
        layer.linear.weight.copy_(weights_EW[:-1].T)
        layer.linear.bias.copy_(weights_EW[-1])


def narrowing(vectors_ND: Floats, width: int) -> tuple[Floats | None, float]:
    """The directions ``(D, W)`` in which the vectors are longest, and what share of their squared length they hold.

    The first W of principal component analysis without subtracting the mean, which keeps dot products best of all
    projections (Eckart & Young 1936). None and 1 where the vectors are no wider.
    """
    if vectors_ND.shape[1] <= width:
        return None, 1.0
    wide = vectors_ND.astype(np.float64)
    values, directions_DD = np.linalg.eigh(wide.T @ wide)
    chosen_DW = directions_DD[:, ::-1][:, :width]
    largest = np.abs(chosen_DW).argmax(axis=0)
    chosen_DW = chosen_DW * np.sign(chosen_DW[largest, np.arange(width)])  # whose sign is arbitrary
    return chosen_DW.astype(np.float32), float(values[::-1][:width].sum() / values.sum())
