"""haystack (huggingface-api-haystack): its ranker, embedders and sparse embedders."""

from client_helpers import DOCUMENTS, arguments, check_scores, check_vectors
from haystack import Document
from haystack_integrations.components.embedders.huggingface_api import (
    HuggingFaceAPIDocumentEmbedder,
    HuggingFaceAPITextEmbedder,
)
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker

given = arguments()
place = {"api_type": "text_embeddings_inference", "api_params": {"url": f"{given.url}/models/{given.vectors}"}}
check_vectors("text embedder", [HuggingFaceAPITextEmbedder(**place).run(text=DOCUMENTS[0])["embedding"]], 1)
documents = [Document(content=text) for text in DOCUMENTS]
found = HuggingFaceAPIDocumentEmbedder(**place).run(documents=documents)["documents"]
check_vectors("document embedder", [each.embedding for each in found], 3)
ranker = HuggingFaceTEIRanker(url=given.url, top_k=2, timeout=30, max_retries=0)
for direction in (None, "Right", "Left"):
    ranker_input = {"query": "was it good ?", "documents": documents}
    if direction is not None:
        from haystack_integrations.components.rankers.huggingface_api.ranker import TruncationDirection

        ranker_input["truncation_direction"] = TruncationDirection(direction)
    ranked = ranker.run(**ranker_input)["documents"]
    assert len(ranked) == 2
    check_scores(f"ranker, truncation {direction}", [each.score for each in ranked])
