"""The client of Ollama."""

import ollama
from client_helpers import DOCUMENTS, arguments, check_vectors, shown

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
for what, keywords in {
    "an unknown model": {"model": "none-such", "input": "a"},
    "too long": {"model": given.vectors, "input": "film " * 3000, "truncate": False},
}.items():
    try:
        client.embed(**keywords)
    except ollama.ResponseError as error:
        assert error.status_code in (400, 404)
        shown(what, f"{error.status_code} {error.error}")
    else:
        raise AssertionError(f"{what} was answered")
