"""litellm: its providers that can point at a server of one's own."""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from client_helpers import DOCUMENTS, arguments, check_scores, check_vectors, refused, shown

given = arguments()
litellm.suppress_debug_info = True


for provider, base in (
    ("openai", f"{given.url}/v1"),
    ("hosted_vllm", f"{given.url}/v1"),
    ("infinity", f"{given.url}/infinity"),
    ("jina_ai", f"{given.url}/v1"),
    ("ollama", given.url),
    ("huggingface", f"{given.url}/models/{given.vectors}"),
    ("cohere", f"{given.url}/v2/embed"),
):
    found = litellm.embedding(
        model=f"{provider}/{given.vectors}",
        input=DOCUMENTS,
        api_base=base,
        api_key="none",
        **({"input_type": "feature-extraction"} if provider == "huggingface" else {}),
    )
    check_vectors(f"embedding of {provider}", [each["embedding"] for each in found.data], 3)
for provider, base in (
    ("cohere", given.url),
    ("infinity", f"{given.url}/infinity"),
    ("hosted_vllm", f"{given.url}/rerank"),
    ("jina_ai", given.url),
    ("huggingface", given.url),
):
    found = litellm.rerank(
        model=f"{provider}/{given.ranks}",
        query="was it good ?",
        documents=DOCUMENTS,
        top_n=3,
        return_documents=True,
        api_base=base,
        api_key="none",
    )
    check_scores(f"rerank of {provider}", [each["relevance_score"] for each in found.results])
judged = litellm.moderation(input=DOCUMENTS[0], model=given.labels, api_base=f"{given.url}/v1", api_key="none")
shown("moderation", judged.results[0].flagged)
place = {"api_base": f"{given.url}/v1", "api_key": "none", "max_retries": 0}
refused("an unknown model", litellm.NotFoundError, litellm.embedding, model="openai/none-such", input=["a"], **place)
