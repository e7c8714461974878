"""llama-index: its embedding and its reranking by text-embeddings-inference."""

from client_helpers import DOCUMENTS, arguments, check_scores, check_vectors
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

given = arguments()
for address in (given.url, f"{given.url}/models/{given.vectors}"):
    embedding = TextEmbeddingsInference(base_url=address, model_name=given.vectors)
    documents = check_vectors("get_text_embedding_batch", embedding.get_text_embedding_batch(DOCUMENTS), 3)
    check_vectors("get_query_embedding", [embedding.get_query_embedding(DOCUMENTS[0])], 1)
nodes = [NodeWithScore(node=TextNode(text=text), score=0.0) for text in DOCUMENTS]
ranker = TextEmbeddingInference(base_url=given.url, top_n=2, model_name=given.ranks)
found = ranker.postprocess_nodes(nodes, query_str="was it good ?")
assert len(found) == 2
check_scores("postprocess_nodes", [each.score for each in found])
