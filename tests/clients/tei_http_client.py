"""tei-client: all that it asks of text-embeddings-inference."""

from client_helpers import DOCUMENTS, arguments, check_scores, check_vectors, shown
from tei_client import HttpClient

given = arguments()


def client_of(model: str) -> HttpClient:
    """A client of one model."""
    return HttpClient(f"{given.url}/models/{model}")


vectors = client_of(given.vectors)
assert vectors.health()
shown("info", vectors.info())
check_vectors("embed", vectors.embed(DOCUMENTS), 3)
check_vectors("embed of a text", vectors.embed(DOCUMENTS[0], truncate=True), 1)
(tokens,) = vectors.embed_all(DOCUMENTS[0])
check_vectors("embed_all", tokens, len(tokens))
(pieces,) = vectors.tokenize(DOCUMENTS[:1])
shown("tokenize", pieces)
shown("prompt_names", vectors.prompt_names())
labels = client_of(given.labels)
single = labels.classify(DOCUMENTS[0])
shown("classify", single)
ranked = client_of(given.ranks).rerank("was it good ?", DOCUMENTS, return_text=True)
check_scores("rerank", [each.score for each in ranked.ranks])
