"""langchain-openai: embeddings; of ids of another vocabulary it sends, an error that says what to do."""

import openai
from client_helpers import DOCUMENTS, arguments, check_vectors, refused
from langchain_openai import OpenAIEmbeddings

given = arguments()
address = {"base_url": f"{given.url}/v1", "api_key": "none", "model": given.vectors, "max_retries": 0}
embeddings = OpenAIEmbeddings(**address, check_embedding_ctx_length=False)
documents = check_vectors("embed_documents", embeddings.embed_documents(DOCUMENTS), 3)
(query,) = check_vectors("embed_query", [embeddings.embed_query(DOCUMENTS[0])], 1)
assert max(abs(one - other) for one, other in zip(query, documents[0], strict=True)) < 1e-4
many = [f"a film {number}" for number in range(1001)]  # it sends 1,000 in a request
(last,) = check_vectors("embed_query of the last", [embeddings.embed_query(many[-1])], 1)
found = check_vectors("embed_documents of 1,001", embeddings.embed_documents(many), 1001)
assert max(abs(one - other) for one, other in zip(last, found[-1], strict=True)) < 1e-4
short = OpenAIEmbeddings(**address, check_embedding_ctx_length=False, dimensions=8)
check_vectors("dimensions=8", short.embed_documents(DOCUMENTS), 3)
# What it sends by default, ids of OpenAI's vocabulary, where its tokenizer can be downloaded.
ask = openai.OpenAI(base_url=f"{given.url}/v1", api_key="none").embeddings.create
foreign = [[99_000, 1], [2]]
error = refused("ids of another vocabulary", openai.BadRequestError, ask, model=given.vectors, input=foreign)
assert "check_embedding_ctx_length" in error.message
