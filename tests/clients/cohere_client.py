"""The client of Cohere: embed and rerank of its two versions."""

import cohere
import numpy as np
from client_helpers import DOCUMENTS, arguments, check_scores, check_vectors, refused, shown

given = arguments()
newer = cohere.ClientV2(api_key="none", base_url=given.url)
older = cohere.Client(api_key="none", base_url=given.url)

found = newer.embed(model=given.vectors, input_type="search_document", texts=DOCUMENTS, embedding_types=["float"])
vectors = np.array(check_vectors("v2.embed", found.embeddings.float_, 3))
kinds = newer.embed(
    model=given.vectors,
    input_type="search_query",
    texts=DOCUMENTS,
    embedding_types=["float", "int8", "uint8", "binary", "ubinary", "base64"],
).embeddings
width = vectors.shape[1]
for name in ("int8", "uint8"):
    numbers = np.array(getattr(kinds, name), np.float32) - (128 if name == "uint8" else 0)
    cosines = (numbers * vectors).sum(1) / np.linalg.norm(numbers, axis=1) / np.linalg.norm(vectors, axis=1)
    assert cosines.min() > 0.999, cosines
    shown(f"v2.embed {name}", cosines)
for name in ("binary", "ubinary"):
    packed = np.array(getattr(kinds, name))
    assert packed.shape == (3, -(-width // 8))
    signs = np.unpackbits((packed + (128 if name == "binary" else 0)).astype(np.uint8), axis=1)[:, :width]
    assert (signs == (vectors > 0)).all()
    shown(f"v2.embed {name}", packed[0])
shown("v2.embed base64", kinds.base64)
short = newer.embed(model=given.vectors, input_type="clustering", texts=DOCUMENTS, output_dimension=8, truncate="END")
check_vectors("v2.embed output_dimension=8", short.embeddings.float_, 3)
mixed = newer.embed(
    model=given.vectors,
    input_type="search_query",
    inputs=[{"content": [{"type": "text", "text": DOCUMENTS[0]}]}],
    embedding_types=["float"],
)
check_vectors("v2.embed inputs", mixed.embeddings.float_, 1)

check_vectors("v1.embed", older.embed(model=given.vectors, input_type="search_query", texts=DOCUMENTS).embeddings, 3)
typed = older.embed(model=given.vectors, input_type="search_query", texts=DOCUMENTS, embedding_types=["int8"])
shown("v1.embed int8", typed.embeddings.int8)

ranked = newer.rerank(model=given.ranks, query="was it good ?", documents=DOCUMENTS)
check_scores("v2.rerank", [each.relevance_score for each in ranked.results])
assert sorted(each.index for each in ranked.results) == [0, 1, 2]
assert len(newer.rerank(model=given.ranks, query="good ?", documents=DOCUMENTS, top_n=2).results) == 2
texts = [{"text": text} for text in DOCUMENTS]
ranked = older.rerank(model=given.ranks, query="was it good ?", documents=texts, return_documents=True, top_n=2)
assert [each.document.text for each in ranked.results] == [DOCUMENTS[each.index] for each in ranked.results]
shown("v1.rerank", ranked.results)

once = {"input_type": "search_query", "request_options": {"max_retries": 0}}
refused("an unknown model", cohere.NotFoundError, newer.embed, model="none-such", texts=["a"], **once)
refused("no texts", cohere.BadRequestError, newer.embed, model=given.vectors, texts=[], **once)
long = ["film " * 3000]
refused("too long", cohere.BadRequestError, newer.embed, model=given.vectors, texts=long, truncate="NONE", **once)
