"""The client of OpenAI: embeddings, models, moderations, errors."""

import base64
import math
import struct

import openai
from client_helpers import DOCUMENTS, arguments, check_vectors, refused, shown

given = arguments()
client = openai.OpenAI(base_url=f"{given.url}/v1", api_key="none", max_retries=0)

found = client.embeddings.create(model=given.vectors, input=DOCUMENTS)
vectors = check_vectors("embeddings.create", [each.embedding for each in found.data], 3)
assert [each.index for each in found.data] == [0, 1, 2]
assert found.model == given.vectors
assert found.usage.prompt_tokens == found.usage.total_tokens > 3
assert all(abs(math.hypot(*vector) - 1) < 1e-4 for vector in vectors)

alone = client.embeddings.create(model=given.vectors, input=DOCUMENTS[0], encoding_format="float").data[0].embedding
check_vectors("a text, encoding_format=float", [alone], 1)
assert max(abs(one - other) for one, other in zip(alone, vectors[0], strict=True)) < 1e-4

packed = client.embeddings.create(model=given.vectors, input=DOCUMENTS[0], encoding_format="base64").data[0].embedding
numbers = struct.unpack(f"<{len(alone)}f", base64.b64decode(packed))
assert max(abs(one - other) for one, other in zip(numbers, alone, strict=True)) < 1e-6
shown("encoding_format=base64", packed)

short = client.embeddings.create(model=given.vectors, input=DOCUMENTS, dimensions=8).data
assert {len(each.embedding) for each in short} == {8}
shown("dimensions=8", short[0].embedding)

ids = client.embeddings.create(model=given.vectors, input=[[5, 6, 7], [8]])
check_vectors("ids of tokens", [each.embedding for each in ids.data], 2)

models = [model.id for model in client.models.list()]
assert given.vectors in models
shown("models.list", models)
assert client.models.retrieve(given.vectors).id == given.vectors
shown("models.retrieve", given.vectors)

judged = client.moderations.create(input=DOCUMENTS, model=given.labels)
assert len(judged.results) == 3
assert judged.results[0].categories.model_dump(), judged
shown("moderations.create", judged.results[0].flagged)
assert len(client.moderations.create(input="the film was good").results) == 1
shown("moderations.create without a model", judged.results[0].category_scores)

ask = client.embeddings.create
error = refused("an unknown model", openai.NotFoundError, ask, model="none-such", input="a")
assert error.code == "model_not_found"
refused("no text", openai.BadRequestError, ask, model=given.vectors, input="")
refused("too many dimensions", openai.BadRequestError, ask, model=given.vectors, input="a", dimensions=100_000)
error = refused("a text that is too long", openai.BadRequestError, ask, model=given.vectors, input="film " * 3000)
assert error.code == "context_length_exceeded"
