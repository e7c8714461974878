"""The hidden states of every layer of an encoder, for many texts: of each token, or one vector of each text.

Letters of the array shapes: L layers that were asked for, N texts, S tokens of a text, D width of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack

import numpy as np

from bertkit.batch import split_by_budget
from bertkit.checkpoints.huggingface import is_int8
from bertkit.engine.backend import Network, Wanted
from bertkit.engine.inference_engine import InferenceEngine, rows_of, tokens_of
from bertkit.errors import InputError, counted
from bertkit.inference.feature_extraction import FeatureExtractionPipeline, Pooling
from bertkit.inference.pipeline_base import check_lengths
from bertkit.inference.pipeline_inputs import Item
from bertkit.inference.pipeline_results import Embedding
from bertkit.inference.pipelines import pipeline
from bertkit.model.models import BertModel
from bertkit.ragged import Flags, Floats, Ragged
from bertkit.system.console import Progress
from bertkit.tokenization.features import featurize_mixed
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: Tokens whose states of all layers are in memory at once, where no vector of a text is made of them.
TOKENS_AT_ONCE = 4096


_ItemT = TypeVar("_ItemT")


class NoLayersError(InputError):
    """A model that does not show the states of its layers."""


class LayerReader:
    """An encoder that shows its hidden states: layer 0 is the embeddings, :attr:`num_layers` the top.

    Texts are first made token ids by :meth:`encode`; ids that were made otherwise, such as words with tags, will do as
    well. They are computed packed, by torch and in float32 products, and a text's states do not depend on the others.

    Args:
        model: folder, name on the Hub, run folder of ``bertkit finetune``, or a model object.
        tokenizer: needed for a model object.
        pooling: how a text gets its vector; ``"model"``: with the prompt, the length and the pooling of a sentence
            model, but without the modules that follow, which are for its top layer alone; otherwise the mean.
        device: see :func:`bertkit.pipeline`.
        max_length: most tokens of a text, special tokens included; None: what the model reads.

    Raises:
        NoLayersError: an exported model, or an encoder-decoder; both show only their last vectors.
        InputError: a pooling that there is not, a model object without its tokenizer.
    """

    def __init__(
        self,
        model: str | Path | Network,
        tokenizer: str | Path | PreTrainedTokenizer | None = None,
        *,
        pooling: Pooling = "model",
        device: Any = None,
        max_length: int | None = None,
    ) -> None:
        self.pipe: FeatureExtractionPipeline = pipeline("feature-extraction", model, tokenizer, device)
        self.tokenizer, self.pooling = self.pipe.tokenizer, pooling
        self._modes = self.pipe.parts(pooling).config.pooling
        _, limit, self._skipped = self.pipe.as_read([], pooling, max_length=max_length)
        try:
            encoder: Any = self.pipe.model
        except InputError as error:
            raise NoLayersError(f"{error}, and so without layers; use the model that it was made from") from None
        if not isinstance(encoder, BertModel):
            raise NoLayersError(
                f"{type(encoder).__name__} is an encoder-decoder, whose layers are not shown one by one; its vectors "
                "of texts need no layer"
            )
        in_bytes = self.pipe.folder is not None and is_int8(self.pipe.folder)
        self._engine = InferenceEngine.of(encoder, precision="auto" if in_bytes else "fp32")
        self.num_layers: int = encoder.config.num_hidden_layers
        _, self.max_length = self.pipe.read_limits(True, limit)

    def layer(self, number: int) -> int:
        """A layer's number from 0 on; negative numbers count from the top, -1. InputError if there is no such."""
        if not -self.num_layers - 1 <= number <= self.num_layers:
            raise InputError(
                f"the model has no layer {number}: it has {self.num_layers}, and 0 is its embeddings; -1 is the top"
            )
        return number % (self.num_layers + 1)

    def encode(self, texts: Sequence[Item], *, truncation: bool = False) -> Ragged:
        """Token ids of texts or pairs; InputError without any, TextError for one too long without ``truncation``."""
        request, _, _ = self.pipe.as_read(list(texts), self.pooling)
        rows = featurize_mixed(list(request.items), self.tokenizer, self.max_length)
        if not truncation:
            check_lengths(rows, self.max_length, 0)
        return rows

    def vectors(
        self, rows: Ragged, layers: Sequence[int] | None = None, *, advance: Callable[[int], None] = lambda count: None
    ) -> Floats:
        """A vector of each row, at least one, in each of some layers or in all: float32 ``(L, N, D)``.

        ``advance`` is called with the number of rows that are done. D is that of the model, times the number of its
        ways of pooling.
        """
        wanted = self._wanted(layers, pooled=True)
        depth, ways = len(wanted.layers), len(self._modes)
        found = self._engine.run(rows, wanted, rows_of, advance)
        pooled = np.empty((depth, len(rows), found[0].size // depth), np.float32)
        for row, values in enumerate(found):
            pooled[:, row] = values.reshape(ways, depth, -1).swapaxes(0, 1).reshape(depth, -1)
        return pooled

    def states(
        self, rows: Ragged, layers: Sequence[int] | None = None, *, advance: Callable[[int], None] = lambda count: None
    ) -> Iterator[Floats]:
        """The states of the tokens of each row, special tokens included, in order: float32 ``(L, S, D)``."""
        wanted = self._wanted(layers, pooled=False)
        for part in split_by_budget(range(len(rows)), rows.lengths.tolist(), TOKENS_AT_ONCE, even=False):
            for values in self._engine.run(rows.select(part), wanted, tokens_of, advance):
                yield values.reshape(len(values), len(wanted.layers), -1).swapaxes(0, 1)

    def _wanted(self, layers: Sequence[int] | None, *, pooled: bool) -> Wanted:
        numbers = range(self.num_layers + 1) if layers is None else map(self.layer, layers)
        ways = {"pooling": self._modes, "skipped": self._skipped} if pooled else {}
        return Wanted(("hidden_states",), layers=tuple(numbers), **ways)


def cut_notes(truncated_N: Flags) -> list[str]:
    """What to say of texts that were cut: a line, or none."""
    cut = int(truncated_N.sum())
    how = "was" if cut == 1 else "were"
    return [f"{counted(cut, 'text')} had more tokens than are read, and {how} cut"] if cut else []


class ReadOptions(TypedDict, total=False):
    """How the texts of a picture become vectors.

    tokenizer: needed for a model object.
    layer: None: the vectors that the model makes of texts; 0 the embeddings, 1 the first layer, -1 the top.
    pooling: as in :class:`LayerReader`.
    max_length: most tokens of a text, special tokens included; longer texts are cut, and the result says how many.
    device: see :func:`bertkit.pipeline`.
    """

    tokenizer: str | Path | PreTrainedTokenizer | None
    layer: int | None
    pooling: Pooling
    max_length: int | None
    device: Any


def several(texts: Iterable[_ItemT]) -> list[_ItemT]:
    """Texts as a list; InputError for a single string, which would be read as one text per letter."""
    if isinstance(texts, str):
        raise InputError(f"give several texts, not one: {texts!r:.60}")
    return list(texts)


def token_reader(model: str | Path | Network, options: ReadOptions) -> LayerReader:
    """A reader of tokens: the prompts of sentence models are left out."""
    words, device, limit = options.get("tokenizer"), options.get("device"), options.get("max_length")
    return LayerReader(model, words, pooling="mean", device=device, max_length=limit)


class TextVectors(NamedTuple):
    """vectors: ``(N, D)``. truncated: which texts were cut, ``(N,)``. source: what the vectors are, for people."""

    vectors: Floats
    truncated: Flags
    source: str


def vectors_of(texts: Sequence[str], model: str | Path | Network, **options: Unpack[ReadOptions]) -> TextVectors:
    """A vector of each text, one at least."""
    layer, pooling, limit = options.get("layer"), options.get("pooling", "model"), options.get("max_length")
    words, device = options.get("tokenizer"), options.get("device")
    with Progress(len(texts), label="encoding", unit="texts") as bar:
        if layer is not None:
            reader = LayerReader(model, words, pooling=pooling, device=device, max_length=limit)
            number = reader.layer(layer)
            rows = reader.encode(texts, truncation=True)
            (vectors,) = reader.vectors(rows, [number], advance=bar.advance)
            return TextVectors(vectors, rows.truncated, _source(f"vectors of layer {number}", pooling, vectors))
        pipe: FeatureExtractionPipeline = pipeline("feature-extraction", model, words, device)
        pipe.parts(pooling)  # refuses what gives no vector of a text
        found: list[Embedding] = []
        for vector in pipe(iter(texts), pooling=pooling, truncation=True, max_length=limit, progress=False):
            found.append(vector)
            bar.advance()
    vectors = np.stack(found).view(np.ndarray)
    truncated = np.array([vector.truncated for vector in found], np.bool_)
    return TextVectors(vectors, truncated, _source("the model's vectors", pooling, vectors))


def _source(what: str, pooling: Pooling, vectors_ND: Floats) -> str:
    how = "" if pooling == "model" else f" ({pooling})"
    return f"{what}{how} of {vectors_ND.shape[1]} numbers"
