"""What text-embeddings-inference says of a model and of failures, for all who speak like it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertkit.server.calls import ServerFacts, Task
from bertkit.server.dialects.inputs import FORMS, task_of
from bertkit.server.failures import Failure, Kind

#: An example of what :func:`info` says.
INFO: Mapping[str, Any] = {
    "model_id": "all-MiniLM-L6-v2",
    "model_sha": "9f1c...",
    "model_dtype": "float32",
    "served_model_name": "all-MiniLM-L6-v2",
    "model_type": {"embedding": {"pooling": "mean"}},
    "max_input_length": 256,
    "auto_truncate": True,
    "version": "0.1.0",
    "engine": "bertkit (512-bit vectors)",
    "temperature": None,
    "dev_scores": {"accuracy": 0.91},
}


def info(found: ServerFacts) -> dict[str, Any]:
    """A model and the server's limits, as text-embeddings-inference says them; behind them what only bertkit says."""
    if not found.models:
        raise Failure("unknown_model", "there is no model")
    model, limits = found.models[0], found.limits
    labels = dict(enumerate(model.labels or ()))
    named = {"id2label": labels, "label2id": {label: number for number, label in labels.items()}}
    own = task_of(model, {})
    kind = {"rerank": "reranker", "embed": "embedding", "sparse": "embedding"}.get(own, "classifier")
    pooling = "splade" if own == "sparse" else (model.pooling or "mean").replace("lasttoken", "last_token")
    return {
        "model_id": model.name,
        "model_sha": model.revision,
        "model_dtype": model.precision,
        "model_pipeline_tag": FORMS[own].name if own in FORMS else own,
        "served_model_name": model.name,
        "model_type": {kind: {"pooling": pooling} if kind == "embedding" else named},
        "max_concurrent_requests": limits.max_requests,
        "max_input_length": model.max_length,
        "max_batch_tokens": limits.max_batch_tokens,
        "max_batch_requests": None,
        "max_client_batch_size": limits.max_items,
        "auto_truncate": True,
        "tokenization_workers": 1,
        "version": found.version,
        "sha": None,
        "docker_label": None,
        "engine": model.engine,
        "temperature": model.temperature,
        "dev_scores": model.dev_scores,
    }


#: What text-embeddings-inference calls the kinds of failure.
ERROR_TYPES: Mapping[Kind, str] = {
    "empty": "Empty",
    "overloaded": "Overloaded",
    "timeout": "Overloaded",
    "not_ready": "Unhealthy",
    "wrong_task": "Backend",
    "missing_package": "Backend",
    "damaged_model": "Backend",
    "fault": "Backend",
}
#: Its statuses where they are not the usual ones.
STATUSES: Mapping[Kind, int] = {"empty": 400}


#: What it says of a model that does not do what its route asks.
_WRONG_MODEL: Mapping[Task, str] = {
    "rerank": "model is not a re-ranker model",
    "classify": "Model is not a classifier model",
    "embed": "Model is not an embedding model",
    "embed-tokens": "Model is not an embedding model",
    "similarity": "Model is not an embedding model",
}


def error(failure: Failure, status: int) -> Any:
    """A failure in the words of text-embeddings-inference; a wrong key has no body there."""
    return None if failure.kind == "unauthorized" else {"error": said(failure), "error_type": error_type(failure)}


def error_type(failure: Failure) -> str:
    """What text-embeddings-inference calls a kind of failure."""
    return ERROR_TYPES.get(failure.kind, "Validation")


def said(failure: Failure) -> str:
    """The message of a failure, in the words of text-embeddings-inference where a client may look for them."""
    numbers = failure.details
    if failure.kind == "overloaded":
        return "Model is overloaded"
    if failure.kind == "wrong_task" and failure.task in _WRONG_MODEL:
        return f"Backend error: {_WRONG_MODEL[failure.task]}"
    if failure.kind == "invalid" and "width" in numbers:
        return "Input validation error: `dimensions` should be smaller than the maximum embedding dimension."
    if failure.kind == "too_many" and "num_items" in numbers:
        return f"batch size {numbers['num_items']} > maximum allowed batch size {numbers['limit']}"
    if failure.kind == "too_long" and "num_tokens" in numbers:
        return (
            f"Input validation error: `inputs` must have less than {numbers['limit']} tokens. "
            f"Given: {numbers['num_tokens']}"
        )
    if failure.kind == "empty" and failure.param is None:
        return f"Input validation error: `inputs` cannot be empty ({failure.message})"
    return failure.message
