"""Reranking as Cohere, Jina, Infinity and vLLM do it: one body for all, and what each makes of the answer."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from bertkit.server.calls import Answer, Call
from bertkit.server.dialects.route import Count, LenientBody, call_of, some
from bertkit.server.failures import Failure


class RankRequest(LenientBody):
    """A query, and documents to order by how well they answer it."""

    query: Annotated[str, Field(examples=["What is a bank?"])]
    documents: Annotated[
        list[str | dict[str, Any]],
        Field(
            description="texts, or objects with a `text`; of other objects `rank_fields` says what is read",
            examples=[["The side of a river.", "A tall tree."]],
        ),
    ]
    model: Annotated[str | None, Field(description="by default the first that reranks")] = None
    top_n: Annotated[Count | None, Field(description="the best of them; by default all")] = None
    return_documents: bool | None = None
    rank_fields: Annotated[list[str] | None, Field(min_length=1)] = None
    max_tokens_per_doc: Annotated[
        int | None, Field(ge=8, description="most tokens of a query and a document together")
    ] = None
    raw_scores: Annotated[bool, Field(description="the model's numbers in place of probabilities")] = False

    def texts(self) -> list[str]:
        """What is read of the documents."""
        return [self._text(number, given) for number, given in enumerate(self.documents)]

    def _text(self, number: int, given: str | dict[str, Any]) -> str:
        if isinstance(given, str):
            return given
        names = self.rank_fields or ["text"]
        found = [given[name] for name in names if name in given]
        if not found or not all(isinstance(part, str) for part in found):
            raise Failure(
                "invalid", f"documents[{number}] must be a text or have texts as {', '.join(names)}", param="documents"
            )
        return "\n".join(found)

    def call(self) -> Call:
        """Its only item is the query with its documents."""
        some(self.documents, "documents")
        item = {"query": self.query, "documents": self.texts()}
        function = "none" if self.raw_scores else "sigmoid"
        options = {"top_k": self.top_n, "function_to_apply": function, "max_length": self.max_tokens_per_doc}
        return call_of("rerank", [item], self.model, "truncate", **options)

    def results(self, answer: Answer, *, documents: bool, plain: bool = False) -> list[dict[str, Any]]:
        """Best first; with the documents, as objects or as plain texts."""
        texts = self.texts() if documents else []
        shown = [text if plain else {"text": text} for text in texts]
        return [
            {"index": each["index"], "relevance_score": each["score"]}
            | ({"document": shown[each["index"]]} if documents else {})
            for each in answer.results[0]
        ]
