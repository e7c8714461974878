"""infinity-client: embeddings, rerank, classify, models, health."""

from client_helpers import DOCUMENTS, arguments, check_scores, check_vectors, shown
from infinity_client import Client
from infinity_client.api.default import classify, embeddings, health, models, rerank
from infinity_client.models import ClassifyInput, OpenAIEmbeddingInputText, RerankInput

given = arguments()
client = Client(base_url=f"{given.url}/infinity", raise_on_unexpected_status=True)
found = embeddings.sync(client=client, body=OpenAIEmbeddingInputText(input_=DOCUMENTS, model=given.vectors))
check_vectors("embeddings", [each.embedding for each in found.data], 3)
ranked = rerank.sync(
    client=client,
    body=RerankInput(query="was it good ?", documents=DOCUMENTS, model=given.ranks, return_documents=True),
)
check_scores("rerank", [each.relevance_score for each in ranked.results])
assert [each.document for each in ranked.results] == [DOCUMENTS[each.index] for each in ranked.results]
judged = classify.sync(client=client, body=ClassifyInput(input_=DOCUMENTS, model=given.labels))
check_scores("classify", [each.score for each in judged.data[0]])
shown("models", [each.id for each in models.sync(client=client).data])
shown("health", health.sync(client=client))
