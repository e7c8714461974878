"""rerankers: the providers whose address can be given."""

from client_helpers import DOCUMENTS, arguments, check_scores
from rerankers.models.api_rankers import APIRanker

given = arguments()
for provider, path in (
    ("text-embeddings-inference", "/rerank"),
    ("cohere", "/v1/rerank"),
    ("jina", "/v1/rerank"),
):
    # Reranker() takes names of providers only, and its models by their lists.
    ranker = APIRanker(given.ranks, api_key="none", api_provider=provider, url=f"{given.url}{path}", verbose=0)
    found = ranker.rank(query="was it good ?", docs=DOCUMENTS)
    assert sorted(each.doc_id for each in found.results) == [0, 1, 2]
    check_scores(f"rank of {provider}", [each.score for each in found.results])
