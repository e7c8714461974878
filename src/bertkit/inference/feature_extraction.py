"""Vectors of texts, and how near two texts are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, partial
from importlib import import_module
from typing import Any, ClassVar, Literal

import numpy as np

from bertkit.checkpoints.sentence_folder import SentenceParts, read_sentence_parts
from bertkit.checkpoints.static_folder import static_folder
from bertkit.config.sentence_config import POOLING_MODES, PoolingMode, SentenceConfig, Similarity
from bertkit.engine.backend import Pack, Values, Wanted
from bertkit.engine.inference_engine import Read, rows_of, tokens_of
from bertkit.errors import InputError, did_you_mean
from bertkit.inference.pipeline_base import AnswerT, Pipeline, TextRow
from bertkit.inference.pipeline_inputs import Inputs, Request, Shaped, Text, read_request
from bertkit.inference.pipeline_results import Embedding, Score
from bertkit.inference.sentence_steps import sentence_vectors
from bertkit.metrics.vector_similarity import paired_similarities, unit_vectors
from bertkit.ragged import Floats

#: How a text gets one vector: as its model says, or by one way of pooling alone.
Pooling = Literal["model"] | PoolingMode
POOLINGS: tuple[Pooling, ...] = ("model", *POOLING_MODES)


def hidden_states(modes: tuple[PoolingMode, ...] | None, skipped: int = 0) -> tuple[Wanted, Read[Floats]]:
    """What is wanted of each text, and how it is read: a vector ``(D,)``, or the matrix ``(S, D)`` of its tokens."""
    return Wanted(("last_hidden_state",), modes, skipped), tokens_of if modes is None else rows_of


@cache
def _plain_parts(mode: PoolingMode) -> SentenceParts:
    return SentenceParts(SentenceConfig(pooling=(mode,)))


class FeatureExtractionPipeline(Pipeline):
    """Text to vectors: ``pipeline("feature-extraction", model=...)``.

    Those of a BART are its decoder's, which reads the text too, as in its paper, in ``transformers`` and in
    ``sentence-transformers``; those of a T5 its encoder's, whose mean is what sentence-T5 and GTR use.
    """

    task: ClassVar[str] = "feature-extraction"

    def _prepare(self) -> None:
        self.engine = self.engine.encoder()

    @cached_property
    def sentence(self) -> SentenceParts:
        """How the model makes vectors of texts: as its folder says, otherwise the mean of the token vectors."""
        width, static = self.config.hidden_size, None if self.folder is None else static_folder(self.folder)
        if static is not None:
            return static.sentence_parts(width)
        parts = None if self.folder is None else read_sentence_parts(self.folder, width)
        return parts or SentenceParts(SentenceConfig())

    @property
    def max_length(self) -> int:
        """Most tokens of one input, special tokens included; what a sentence model says overrules its tokenizer."""
        known: SentenceParts | None = vars(self).get("sentence")
        said = None if known is None else known.config.max_length
        return min(self.config.max_input_length, max(said or 0, self.tokenizer.model_max_length))

    def __call__(
        self,
        inputs: Inputs,
        *,
        pooling: Pooling | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
        return_tensors: bool | str = False,
        truncation: bool = False,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> Shaped[Any]:
        """Encode texts; a pair may take the place of a text.

        A text gives an :class:`~bertkit.inference.pipeline_results.Embedding`: a float32 array ``(D,)``, or
        ``(1, S, D)`` without pooling, so that ``found[0][0]`` is the vector of [CLS], as in ``transformers``.

        pooling: ``"model"``: one vector per text, as the model says: in a folder of sentence-transformers its modules,
            its default prompt and its length; otherwise the mean. ``"mean"``, ``"cls"``, ``"max"``, ``"lasttoken"``,
            ``"weightedmean"`` or ``"mean_sqrt_len_tokens"``: this alone. None: one vector per token, as in
            ``transformers``.
        prompt: put before each text. None: with ``"model"`` its default prompt, otherwise none.
        prompt_name: the same, by a name that the model has for it.
        normalize: True scales each vector to length 1, so that a dot product is the cosine. None leaves that to the
            model; False leaves out a normalization at the end of its modules.
        dimensions: keep only the first numbers of each vector of a text (of models that are trained for it, see
            Kusupati et al. 2022, Matryoshka representations). None: as the model says, or all.

        return_tensors: True or ``"pt"`` gives tensors of torch.

        Deviates: ``transformers`` returns nested lists where these are arrays.
        """
        if return_tensors not in (True, False, "pt", "np"):
            raise InputError(f"return_tensors must be True, False, 'pt' or 'np', got {return_tensors!r}")
        tensors = return_tensors in (True, "pt")

        def present(values: Floats, row: TextRow) -> Any:
            if pooling is None:
                values = (unit_vectors(values) if normalize else values)[None]
            values = values.copy()  # one result does not keep all others
            if tensors:
                return import_module("torch").from_numpy(values)
            return Embedding.of(values, num_tokens=row.num_tokens, truncated=row.truncated)

        if pooling is not None:
            reading = (truncation, prompt, prompt_name, max_length, progress)
            return self._vectors(inputs, partial(map, present), pooling, normalize, dimensions, *reading)
        if dimensions is not None:
            raise InputError("dimensions= needs one vector per text: set pooling=, for example pooling='model'")
        request, limit, skipped = self.as_read(inputs, pooling, prompt, prompt_name, max_length)
        wanted, read = hidden_states(None, skipped)
        return self._answer_texts(request, wanted, read, partial(map, present), truncation, limit, progress)

    def matrix(
        self,
        texts: Sequence[str],
        *,
        pooling: Pooling = "model",
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
        truncation: bool = False,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> Floats:
        """One vector of each text, at least one, as the rows of a float32 array ``(texts, D)``.

        The same numbers and the same keywords as of a call, without an object for each text.
        """
        reading = (truncation, prompt, prompt_name, max_length, progress)
        whole = self._vectors(list(texts), lambda found, facts: [found], pooling, normalize, dimensions, *reading)
        return np.concatenate(list(whole))

    def _vectors(
        self,
        inputs: Inputs,
        present: Callable[[Floats, Iterable[TextRow]], Iterable[AnswerT]],
        pooling: Pooling,
        normalize: bool | None,
        dimensions: int | None,
        truncation: bool,
        prompt: str | None,
        prompt_name: str | None,
        max_length: int | None,
        progress: bool | None,
    ) -> Shaped[AnswerT]:
        """What is made of the vectors ``(B, D)`` of some texts and their facts."""
        parts = self.parts(pooling)
        request, limit, skipped = self.as_read(inputs, pooling, prompt, prompt_name, max_length)

        def read(pack: Pack, values: Values) -> Floats:
            (pooled_BD,) = values.values()
            return sentence_vectors(pooled_BD, parts, normalize=normalize, dimensions=dimensions)

        wanted, run = Wanted(("last_hidden_state",), parts.config.pooling, skipped), self.engine.matrix
        return self._answer_texts(request, wanted, read, present, truncation, limit, progress, run)

    def as_read(
        self,
        inputs: Inputs,
        pooling: Pooling | None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        max_length: int | None = None,
    ) -> tuple[Request[Text], int | None, int]:
        """The texts as the tokenizer gets them, most tokens of each, and how many first tokens are not pooled."""
        parts = None if pooling is None else self.parts(pooling)
        named = self.sentence.config.prompt if pooling == "model" or prompt_name is not None else None
        before = named(prompt, prompt_name) if named else prompt or ""
        limit = max_length
        if max_length is None and pooling != "model":
            limit = super().max_length  # the folder's length is for its own vectors, whatever was asked before
        elif max_length is None and parts is not None and parts.config.max_length is not None:
            limit = min(parts.config.max_length, self.max_length)
        request = self._prepared(read_request(inputs, tuple_is_pair=False), before, parts)
        skipped = 0 if parts is None or parts.config.include_prompt else self._prompt_tokens(before, limit)
        if skipped and self.tokenizer.truncation_side == "left":
            raise InputError(
                "the model does not pool the tokens of its prompt, which cutting texts at their left side would move: "
                "cut them at the right side, or pass prompt=''"
            )
        return request, limit, skipped

    def measure(self, pooling: Pooling) -> Similarity:
        """How vectors of a pooling are compared."""
        return self.sentence.config.similarity if pooling == "model" else "cosine"

    def parts(self, pooling: Pooling) -> SentenceParts:
        """How vectors of texts are made by a pooling; InputError if there is no such."""
        if pooling not in POOLINGS:
            raise InputError(
                f"pooling={pooling!r} is unknown{did_you_mean(str(pooling), POOLINGS)}; choose from "
                f"{', '.join(POOLINGS)}, or None for one vector a token"
            )
        return self.sentence if pooling == "model" else _plain_parts(pooling)

    def _prepared(self, request: Request[Text], prompt: str, parts: SentenceParts | None) -> Request[Text]:
        """The texts as the tokenizer gets them: behind the prompt, and in lower case if the model wants it."""
        lowers = parts is not None and parts.config.lower_case and not getattr(self.tokenizer, "do_lower_case", False)
        if not prompt and not lowers:
            return request
        special = "|".join(map(re.escape, self.tokenizer.all_special_tokens))

        def lowered(text: str) -> str:
            pieces = re.split(f"({special})", text)  # special tokens stay as they are
            return "".join(piece if odd % 2 else "".join(map(str.lower, piece)) for odd, piece in enumerate(pieces))

        def prepared(text: Text) -> Text:
            first, second = prompt + text[0], text[1]
            return (lowered(first), None if second is None else lowered(second)) if lowers else (first, second)

        return request._replace(items=map(prepared, request.items))

    def _prompt_tokens(self, prompt: str, limit: int | None) -> int:
        """Tokens before a text that are not pooled: [CLS] and the prompt."""
        if not prompt:
            return 0
        ids = self.tokenizer.encode_ragged([prompt]).ids
        count = len(ids) - int(ids[-1] in self.tokenizer.all_special_ids)
        if count >= (most := self.max_length if limit is None else limit):
            raise InputError(
                f"the prompt {prompt!r:.60} has {count} tokens, and at most {most} are read, so that nothing of a text "
                "would be left: give a shorter prompt or a larger max_length"
            )
        return count


class SentenceSimilarityPipeline(FeatureExtractionPipeline):
    """How near texts are: ``pipeline("sentence-similarity", model=...)``."""

    task: ClassVar[str] = "sentence-similarity"

    def __call__(  # type: ignore[override]  # a similarity has two sides
        self,
        inputs: Inputs | Mapping[str, str | Sequence[str]],
        sentences: str | Sequence[str] | None = None,
        *,
        pooling: Pooling = "model",
        prompt: str | None = None,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        truncation: bool = False,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> Shaped[Score]:
        """How near the two texts' vectors are: their cosine, or what a sentence model says in its place.

        A pair gives a :class:`~bertkit.inference.pipeline_results.Score` (a float with ``truncated``), a source a list
        of them.

        inputs: the source text, with ``sentences``; or ``{"source_sentence": ..., "sentences": [...]}``; or one pair
            ``("first", "second")``; or a collection or iterable of pairs.
        sentences: what the source is compared with: a text or a list of texts.
        pooling, prompt, prompt_name, dimensions: see :class:`FeatureExtractionPipeline`; with another pooling than
            ``"model"`` the cosine is computed.
        """
        if pooling is None:
            raise InputError(
                f"sentence-similarity compares one vector per text: choose a pooling of {', '.join(POOLINGS)}"
            )
        keywords: dict[str, Any] = {
            "pooling": pooling,
            "prompt": prompt,
            "prompt_name": prompt_name,
            "dimensions": dimensions,
            "truncation": truncation,
            "max_length": max_length,
        }
        measure = self.measure(pooling)
        source, sentences = _read_source(inputs, sentences)
        if source is not None:
            listed = [sentences] if isinstance(sentences, str) else list(sentences)
            first, *others = super().__call__([source, *listed], progress=progress, **keywords)
            compared = [compare(first, other, measure) for other in others]
            return compared[0] if isinstance(sentences, str) else compared
        request = read_request(inputs, tuple_is_pair=True, pair_required=True)
        halves = (half for pair in request.items for half in pair if half is not None)
        vectors = iter(super().__call__(halves, progress=progress, **keywords))
        scores = (compare(first, next(vectors), measure) for first in vectors)
        if request.shape == "lazy":
            return scores
        return next(scores) if request.shape == "one" else list(scores)


def _read_source(inputs: Any, sentences: Any) -> tuple[str | None, Any]:
    if isinstance(inputs, Mapping) and "source_sentence" in inputs:
        if sentences is not None or set(inputs) != {"source_sentence", "sentences"}:
            raise InputError("expected {'source_sentence': text, 'sentences': [texts]} and nothing else")
        inputs, sentences = inputs["source_sentence"], inputs["sentences"]
    elif sentences is None:
        return None, None
    if not isinstance(inputs, str):
        raise InputError(f"the source must be one text when sentences are given, got {type(inputs).__name__}")
    return inputs, sentences


def compare(a: Embedding, b: Embedding, measure: Similarity) -> Score:
    """How near two vectors ``(D,)`` are."""
    found = float(paired_similarities(np.asarray(a), np.asarray(b), measure))
    if measure == "cosine":
        found = max(-1.0, min(1.0, found))  # rounding may push it a little past 1
    return Score(found, truncated=bool(a.truncated or b.truncated))
