"""The client of Hugging Face: every task that a BERT does."""

from client_helpers import DOCUMENTS, arguments, check_scores, check_vectors, refused, shown
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

given = arguments()


def client_of(model: str) -> InferenceClient:
    """A client of one model."""
    return InferenceClient(f"{given.url}/models/{model}")


vectors = client_of(given.vectors)
check_vectors("feature_extraction", vectors.feature_extraction(DOCUMENTS[0]), 1)
check_vectors("feature_extraction of several", vectors.feature_extraction(DOCUMENTS, normalize=True), 3)
check_vectors("with options", vectors.feature_extraction(DOCUMENTS[0], truncate=True, truncation_direction="right"), 1)
similar = vectors.sentence_similarity(DOCUMENTS[0], DOCUMENTS)
assert len(similar) == 3
assert abs(similar[0] - 1) < 1e-3
shown("sentence_similarity", similar)

labels = client_of(given.labels).text_classification(DOCUMENTS[0])
check_scores("text_classification", [each.score for each in labels])
assert len(client_of(given.labels).text_classification(DOCUMENTS[0], top_k=1)) == 1
raw = client_of(given.labels).text_classification(DOCUMENTS[0], function_to_apply="none")
shown("function_to_apply=none", raw)

tags = client_of(given.tags).token_classification("the man went to the bank")
assert all("the man went to the bank"[each.start : each.end] == each.word for each in tags)
shown("token_classification", tags)
shown("aggregation none", client_of(given.tags).token_classification("the man", aggregation_strategy="none"))

context = "the man went to the bank . the film was good"
answer = client_of(given.answers).question_answering(question="who went ?", context=context)
assert context[answer.start : answer.end] == answer.answer
shown("question_answering", answer)
several = client_of(given.answers).question_answering(question="who went ?", context=context, top_k=3)
assert len(several) == 3
shown("top_k=3", several)

guesses = client_of(given.masks).fill_mask("the man went to the [MASK]")
assert len(guesses) == 5
check_scores("fill_mask", [each.score for each in guesses])
assert len(client_of(given.masks).fill_mask("the [MASK] was good", top_k=2)) == 2

judged = client_of(given.nli).zero_shot_classification(DOCUMENTS[0], candidate_labels=["film", "bank", "river"])
check_scores("zero_shot_classification", [each.score for each in judged])
judged = client_of(given.nli).zero_shot_classification(DOCUMENTS[0], ["film", "bank"], multi_label=True)
check_scores("multi_label", [each.score for each in judged])

address = f"{given.url}/models/{given.vectors}"
hosted = InferenceClient(provider="hf-inference")
shown("get_endpoint_info", hosted.get_endpoint_info(model=address))
assert hosted.health_check(address)
shown("health_check", True)
error = refused("an unknown model", HfHubHTTPError, client_of("none-such").feature_extraction, "a")
assert error.response.status_code == 404
