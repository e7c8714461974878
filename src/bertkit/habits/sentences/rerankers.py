"""``CrossEncoder``: :mod:`bertkit`'s classifiers of pairs of texts with the names of sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertkit.checkpoints.cross_encoder import ACTIVATIONS, check_cross_encoder
from bertkit.config.any_config import read_any_config
from bertkit.config.config_file import config_path
from bertkit.errors import InputError, counted
from bertkit.habit_table import no_attribute
from bertkit.habits.keywords import known_keywords
from bertkit.inference.pipelines import pipeline
from bertkit.inference.text_classification import TextClassificationPipeline
from bertkit.model.models import BertForSequenceClassification
from bertkit.system.console import say
from bertkit.system.model_sources import resolve
from bertkit.system.paths import user_path
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

if TYPE_CHECKING:
    from bertkit.habits.sentences.sentence_training import FitOptions

#: Two texts.
Pair = tuple[str, str] | Sequence[str]
ActivationFunction = Callable[[Tensor], Tensor]
Scores = npt.NDArray[np.float32] | Tensor | list[Tensor]


class ModelOptions(TypedDict, total=False):
    """Keywords of :class:`CrossEncoder`."""

    max_length: int | None
    num_labels: int | None
    device: str | torch.device | None
    activation_fn: ActivationFunction | None
    default_activation_function: ActivationFunction | None
    revision: str | None


class PredictOptions(TypedDict, total=False):
    """Keywords of :meth:`CrossEncoder.predict`; see there."""

    sentences: Sequence[Pair] | Pair
    batch_size: int
    show_progress_bar: bool | None
    activation_fn: ActivationFunction | None
    activation_fct: ActivationFunction | None
    apply_softmax: bool | None
    convert_to_numpy: bool
    convert_to_tensor: bool


class CrossEncoder:
    """A classifier of pairs of texts, by the name and with the calls of sentence-transformers 6.

    Args:
        model_name_or_path: as for :func:`bertkit.pipeline`; a model with a head for classification.
        **options: ``max_length``, ``device``, ``revision``; ``num_labels``: of a checkpoint without a classifier, which
            gets a new one, to be trained; and ``activation_fn``, which makes scores of logits
            ``(N, C)``; not given: as the model's folder says, else a sigmoid for one output and nothing for several.

    ``pipeline("text-ranking", model)`` ranks documents and refuses texts that are too long, which are cut here.

    Raises:
        InputError: an option that there is not; the message has what to write instead.
        CheckpointError: see :func:`bertkit.pipeline`; also a folder whose prompt is put before every text.
    """

    def __init__(self, model_name_or_path: str | Path, **options: Unpack[ModelOptions]) -> None:
        known_keywords("CrossEncoder", options, ModelOptions.__annotations__)
        start: Any = model_name_or_path
        revision, count = options.get("revision"), options.get("num_labels")
        tokenizer = None
        if count is not None and not _has_head(resolve(start, revision=revision)):
            say(f"{start} has no classifier: its head of {counted(count, 'output')} is new, train it first")
            tokenizer = AutoTokenizer.from_pretrained(start, revision=revision)
            start = BertForSequenceClassification.from_pretrained(
                start, num_labels=count, new_head=True, revision=revision, device=options.get("device")
            )
        self.pipe: TextClassificationPipeline = pipeline(
            "text-classification", start, tokenizer, device=options.get("device"), revision=revision
        )
        if count not in (None, self.num_labels):
            raise InputError(
                f"num_labels={count}, but the classifier of {model_name_or_path} has {self.num_labels}; omit it, "
                "or start from a checkpoint without a classifier"
            )
        if self.pipe.folder is not None:
            check_cross_encoder(self.pipe.folder)
        self.max_seq_length = options.get("max_length") or self.pipe.max_length
        own = options.get("activation_fn") or options.get("default_activation_function")
        self.activation_fn: ActivationFunction = own or self._saved_activation()

    @property
    def max_length(self) -> int:
        """The earlier name of ``max_seq_length``: most tokens of a pair, as far as the model has positions for them."""
        return self.max_seq_length

    @max_length.setter
    def max_length(self, length: int) -> None:
        self.max_seq_length = length

    @property
    def longest(self) -> int:
        """Most tokens that are read of a pair."""
        return min(self.max_seq_length, self.pipe.max_length)

    @property
    def config(self) -> Any:
        """Shape and labels of the model."""
        return self.pipe.config

    @property
    def num_labels(self) -> int:
        """C, the outputs of the model."""
        return int(self.config.num_labels)

    @property
    def tokenizer(self) -> PreTrainedTokenizer:
        """That of the model."""
        return self.pipe.tokenizer

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return torch.device(str(self.pipe.device))

    @property
    def model(self) -> Any:
        """The model object."""
        return self.pipe.model

    def predict(self, inputs: Sequence[Pair] | Pair | None = None, **options: Unpack[PredictOptions]) -> Any:
        """Scores of pairs of texts, or of one pair.

        Args:
            inputs: ``[(first, second), ...]`` or ``(first, second)`` (also by the earlier name ``sentences``).
            **options: ``activation_fn``: in place of the model's; ``apply_softmax``: over several outputs;
                ``show_progress_bar``; ``convert_to_tensor``, ``convert_to_numpy``: what comes back. ``batch_size`` has
                no effect.

        Returns:
            Of a model of one output ``(N,)``, float32, or a number for one pair; of several ``(N, C)`` or ``(C,)``.
        """
        known_keywords("predict", options, PredictOptions.__annotations__)
        pairs = options.get("sentences") if inputs is None else inputs
        if pairs is None:
            raise InputError("predict needs a pair of texts, or a list of pairs")
        one = len(pairs) > 0 and isinstance(pairs[0], str)
        listed = [_two_texts(each, number) for number, each in enumerate([pairs] if one else pairs)]
        logits = self.pipe.logits(listed, max_length=self.longest, progress=options.get("show_progress_bar"))
        apply = options.get("activation_fn") or options.get("activation_fct") or self.activation_fn
        with torch.inference_mode():
            scores = apply(torch.from_numpy(logits))
            if options.get("apply_softmax") and self.num_labels > 1:
                scores = torch.softmax(scores, dim=1)
        scores = scores.squeeze(-1) if self.num_labels == 1 else scores
        scores = scores[0] if one else scores
        if options.get("convert_to_tensor"):
            return scores.to(self.device)
        if options.get("convert_to_numpy", True):
            return scores.numpy()[()]
        return scores if one else list(scores)

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        return_documents: bool = False,
        **options: Unpack[PredictOptions],
    ) -> list[dict[str, Any]]:
        """The documents by falling score: ``[{"corpus_id": number, "score": score}, ...]``, perhaps with ``text``.

        ``top_k``: so many; None: all. ``options``: those of :meth:`predict`.
        """
        if self.num_labels != 1:
            raise InputError(f"rank needs a model of one output, and this has {self.num_labels}; use predict()")
        scores = np.asarray(self.predict([(query, text) for text in documents], **options))
        return [
            {
                "corpus_id": place,
                "score": float(scores[place]),
                **({"text": documents[place]} if return_documents else {}),
            }
            for place in np.argsort(-scores, kind="stable")[:top_k].tolist()
        ]

    def save_pretrained(self, path: str | Path, **options: object) -> None:
        """Write a folder that bertkit, sentence-transformers and transformers load."""
        known_keywords("save_pretrained", options, ())
        self.pipe.model.save_pretrained(user_path(path))
        self.tokenizer.save_pretrained(user_path(path))

    save = save_pretrained

    def fit(self, train_dataloader: Any, **options: Unpack[FitOptions]) -> None:
        """Train on a loader of InputExamples of two texts and a label from 0 to 1: see ``SentenceTransformer.fit``."""
        from bertkit.habits.sentences.ranking_losses import BinaryCrossEntropyLoss
        from bertkit.habits.sentences.sentence_training import fit_objectives

        fit_objectives(self, [(train_dataloader, BinaryCrossEntropyLoss(self))], **options)

    def take_over(self, network: BertForSequenceClassification) -> None:
        """Go on with the weights of a trained network."""
        self.pipe = pipeline("text-classification", network.eval(), self.tokenizer)

    def eval(self) -> Self:
        """Nothing: it always computes as in eval mode."""
        return self

    def _saved_activation(self) -> ActivationFunction:
        saved = self.config.activation_fn
        if saved is not None and saved not in ACTIVATIONS:
            raise InputError(f"the model makes scores by {saved!r:.120}: pass it as activation_fn=")
        one = self.num_labels == 1 if saved is None else ACTIVATIONS[saved] == "sigmoid"
        return torch.nn.Sigmoid() if one else torch.nn.Identity()

    def __getattr__(self, name: str) -> NoReturn:
        raise no_attribute(self, "CrossEncoder.", name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.pipe!r})"


def _has_head(path: Path) -> bool:
    shape = read_any_config(config_path(path))
    return any(name.endswith("ForSequenceClassification") for name in shape.architectures or ())


def _two_texts(pair: object, number: int) -> tuple[str, str]:
    if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
        raise InputError(f"pair {number} (counted from 0) must be two texts, got {pair!r:.80}")
    return pair[0], pair[1]
