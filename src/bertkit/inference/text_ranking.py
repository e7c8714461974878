"""Documents by how relevant they are to a query: ``pipeline("text-ranking", model=...)``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from bertkit.checkpoints.cross_encoder import ACTIVATIONS, check_cross_encoder
from bertkit.config.bert_config import BertConfig
from bertkit.engine.backend import LOGITS
from bertkit.engine.inference_engine import rows_of
from bertkit.engine.rows import WindowSize
from bertkit.errors import CheckpointError, InputError
from bertkit.inference.pipeline_base import Encoding, Pipeline, check_groups, shown
from bertkit.inference.pipeline_inputs import Shaped, is_whole, request_of
from bertkit.inference.text_classification import FUNCTIONS
from bertkit.ragged import Floats
from bertkit.tasks.rerank.features import featurize_candidates
from bertkit.tasks.rerank.task import RerankExample

#: Queries that are tokenized and sorted by length together.
WINDOW = WindowSize(items=256, first=16, characters=8_000_000)
#: A query with its documents, as a caller may pass it.
Asked = Mapping[str, str | Sequence[str]]
Ranked = dict[str, int | float | str | bool]


class TextRankingPipeline(Pipeline):
    """A reranker, or cross-encoder: documents by falling relevance to a query."""

    task: ClassVar[str] = "text-ranking"
    unit: ClassVar[str] = "queries"

    def _prepare(self) -> None:
        if not isinstance(self.config, BertConfig):
            raise CheckpointError(f"a reranker is an encoder, and this is a {self.engine.model_class}")
        self.activation = self.config.activation_fn
        if self.config.num_labels != 1:
            raise CheckpointError(
                f"a reranker has one output, the relevance, and this model has {self.config.num_labels}: "
                f"{list(self.config.id2label.values())[:5]}; use the pipeline 'text-classification' for it"
            )

    def read_folder(self, folder: Path) -> None:
        super().read_folder(folder)
        check_cross_encoder(folder)

    def __call__(
        self,
        query: str | Asked | Iterable[Asked],
        documents: Sequence[str] | None = None,
        *,
        top_k: int | None = None,
        function_to_apply: Literal["sigmoid", "none"] | None = None,
        truncation: bool = False,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> Shaped[list[Ranked]]:
        """Rank; ``truncation=True`` cuts the longer text of a query and a document that do not fit together.

        A query gives ``[{"index": number of the document from 0, "score": ..., "text": ...}, ...]``, best first, equal
        scores in the order of the documents; with ``truncation=True`` each dict also says ``truncated``.

        query: a text, with ``documents``; ``{"query": ..., "documents": [...]}``; a list or an iterable of those.
        function_to_apply: ``"sigmoid"`` or ``"none"`` (the logits); not given: as the checkpoint says, where it is one
            of sentence-transformers, otherwise a sigmoid.
        """
        truncate, limit = self.read_limits(truncation, self._trained_length(max_length))
        if top_k is not None and not is_whole(top_k):
            raise InputError(f"top_k must be a whole number from 1, or None for all documents, got {top_k!r}")
        function = self._read_function(function_to_apply)
        asked: Any = query
        if isinstance(query, str):
            if documents is None:
                raise InputError("a query needs documents=, a list of one text or more")
            asked = {"query": query, "documents": documents}
        elif documents is not None:
            raise InputError("documents= goes with a single query; in a list, each query carries its own")
        request = request_of(asked, RerankExample.of, "query", one=isinstance(asked, Mapping))

        def encode(queries: list[RerankExample], first: int) -> Encoding[Floats, list[Ranked]]:
            rows = featurize_candidates(queries, self.tokenizer, limit)
            if not truncate:
                check_groups(rows, limit, first, "query", "document")

            def answers(logits: list[Floats]) -> Iterator[list[Ranked]]:
                scores, cut = function(np.concatenate(logits)), rows.sequences.truncated
                for number, texts in enumerate(each.documents for each in queries):
                    start = int(rows.groups[number])
                    order = np.argsort(-scores[start : start + len(texts)], kind="stable")[:top_k].tolist()
                    yield [
                        {
                            "index": place,
                            "score": float(scores[start + place]),
                            "text": texts[place],
                            **({"truncated": bool(cut[start + place])} if truncate else {}),
                        }
                        for place in order
                    ]

            return rows.sequences, answers

        if request.shape == "one":  # which may have more documents than others have queries
            rows, present = encode(list(request.items), 0)
            with shown(len(rows), self.task, progress, unit="documents") as advance:
                return next(iter(present(self.engine.run(rows, LOGITS, rows_of, advance))))
        return self._answer(request, encode, LOGITS, rows_of, _num_characters, progress=progress, size=WINDOW)

    def _read_function(self, name: str | None) -> Callable[[Floats], Floats]:
        saved = self.activation
        if name is None and saved is not None and saved not in ACTIVATIONS:
            raise CheckpointError(
                f"the checkpoint makes scores by {saved!r:.120}, which bertkit does not have; it has "
                f"{', '.join(ACTIVATIONS)}. Pass function_to_apply='none' for the logits, or 'sigmoid'"
            )
        chosen = name or ("sigmoid" if saved is None else ACTIVATIONS[saved])
        if chosen not in ACTIVATIONS.values():
            raise InputError(f"function_to_apply={name!r} is unknown; choose from {', '.join(ACTIVATIONS.values())}")
        return FUNCTIONS[chosen]


def _num_characters(query: RerankExample) -> int:
    return sum(len(query.query) + len(text) for text in query.documents)
