"""langchain-ollama: embeddings, all texts of a call in one request, with its look at the list of models before."""

from client_helpers import DOCUMENTS, arguments, check_vectors
from langchain_ollama import OllamaEmbeddings

given = arguments()
embeddings = OllamaEmbeddings(model=given.vectors, base_url=given.url, validate_model_on_init=True)
documents = check_vectors("embed_documents", embeddings.embed_documents(DOCUMENTS), 3)
(query,) = check_vectors("embed_query", [embeddings.embed_query(DOCUMENTS[0])], 1)
assert max(abs(one - other) for one, other in zip(query, documents[0], strict=True)) < 1e-4
many = [f"{text} {number}" for number in range(100) for text in DOCUMENTS]
check_vectors("embed_documents of 300", embeddings.embed_documents(many), 300)
