"""The client of Ollama."""

import ollama
from client_helpers import DOCUMENTS, arguments, check_vectors, refused, shown

given = arguments()
client = ollama.Client(host=given.url)

found = client.embed(model=given.vectors, input=DOCUMENTS)
check_vectors("embed", found.embeddings, 3)
assert found.prompt_eval_count > 3
assert found.total_duration > 0
check_vectors("embed of a text", client.embed(model=f"{given.vectors}:latest", input=DOCUMENTS[0]).embeddings, 1)
short = client.embed(model=given.vectors, input=DOCUMENTS, dimensions=8, truncate=True, keep_alive="5m")
check_vectors("embed dimensions=8", short.embeddings, 3)
assert client.embed(model=given.vectors, input=[]).embeddings == []
check_vectors("embeddings", [client.embeddings(model=given.vectors, prompt=DOCUMENTS[0]).embedding], 1)
names = [model.model for model in client.list().models]
assert given.vectors in names
shown("list", names)
shown("ps", [model.model for model in client.ps().models])
shown("show", client.show(given.vectors).modelinfo)
error = refused("an unknown model", ollama.ResponseError, client.embed, model="none-such", input="a")
assert error.status_code == 404
long = {"input": "film " * 3000, "truncate": False}
error = refused("too long", ollama.ResponseError, client.embed, model=given.vectors, **long)
assert error.status_code == 400
