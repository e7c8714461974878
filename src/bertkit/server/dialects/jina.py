"""Reranking at the paths that Jina's, Cohere's first, vLLM's and Infinity's clients share.

They send the same, and each reads its part of the answer: Cohere's ``meta``, Jina's ``usage`` and ``model``. Documents
come back as objects with a ``text``, where they were asked for, and to Jina's clients, who say nothing, as well.
"""

from __future__ import annotations

from typing import Any

from bertkit.server.calls import Answer
from bertkit.server.dialects.ranking import RankRequest
from bertkit.server.dialects.route import Asked, Dialect, Planned, Reply, Route, json_reply, new_id, now, usage_of
from bertkit.server.failures import Failure


def _rerank(asked: Asked) -> Planned:
    body: RankRequest = asked.body

    def render(answer: Answer) -> Reply:
        usage = usage_of(answer)
        return json_reply(
            {
                "id": new_id("rank-"),
                "object": "rerank",
                "created": now(),
                "model": answer.model.name,
                "usage": usage,
                "results": body.results(answer, documents=body.return_documents is not False),
                "meta": {"api_version": {"version": "1"}, "billed_units": {"search_units": 1}},
            }
        )

    return Planned(body.call(), render)


def _error(failure: Failure, status: int) -> Any:
    return {"detail": failure.message, "message": failure.message}


_ANSWER = {
    "id": "rank-1",
    "object": "rerank",
    "created": 1764374400,
    "model": "ms-marco-MiniLM-L-6-v2",
    "usage": {"prompt_tokens": 24, "total_tokens": 24},
    "results": [{"index": 0, "relevance_score": 0.93, "document": {"text": "The side of a river."}}],
}
_SUMMARY = "A query, and documents to order by how well they answer it."
#: Fields of these clients that bertkit's own body of the same path does not have.
_THEIRS = frozenset({"top_n", "return_documents", "rank_fields", "max_tokens_per_doc", "raw_scores"})
DIALECT = Dialect(
    "jina",
    (
        Route("POST", "/v1/rerank", _rerank, _SUMMARY, RankRequest, answer=_ANSWER, keys=_THEIRS, usual=True),
        Route("POST", "/rerank", _rerank, _SUMMARY, RankRequest, answer=_ANSWER, keys=frozenset({"documents"})),
    ),
    _error,
)
