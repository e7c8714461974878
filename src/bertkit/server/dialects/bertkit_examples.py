"""Examples of what bertkit's own routes answer, by the name of the task, for the description of the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_RIVER: Mapping[str, Any] = {
    "id": 2314, "text": "river", "special": False, "segment": 0, "second": False, "word": 3, "start": 16, "stop": 21
}  # fmt: skip
_PLACE = {"entity_group": "LOC", "score": 0.98, "word": "London", "start": 22, "end": 28}
_HIT = {"id": "17", "text": "Refunds are paid within a week.", "source": "faq.txt", "score": 0.87}
_LABELS = [{"label": "good", "score": 0.91}, {"label": "bad", "score": 0.09}]

_RESULTS: Mapping[str, Any] = {
    "embed": [[0.0125, -0.0531, 0.0342]],
    "sparse": [{"river": 1.42, "bank": 1.13}],
    "similarity": [0.83, 0.12],
    "rerank": [{"index": 0, "score": 0.93}, {"index": 1, "score": 0.02}],
    "classify": [_LABELS],
    "next-sentence": [{"label": "is_next", "score": 0.97, "is_next": 0.97}],
    "zero-shot": [[{"label": "politics", "score": 0.88}, {"label": "sports", "score": 0.12}]],
    "tag": [[_PLACE]],
    "redact": [
        {
            "text": "Ada Lovelace lived in [LOC_1].",
            "spans": [
                {
                    "start": 22,
                    "end": 28,
                    "redacted_start": 22,
                    "redacted_end": 29,
                    "label": "LOC",
                    "score": 0.98,
                    "word": "London",
                    "placeholder": "[LOC_1]",
                }
            ],
        }
    ],
    "answer": [{"score": 0.93, "start": 12, "end": 24, "answer": "by the river"}],
    "choose": [{"choice": "The water boiled.", "index": 0, "score": 0.96, "scores": [0.96, 0.04]}],
    "fill-mask": [[{"score": 0.31, "token": 2217, "token_str": "side", "sequence": "the side of the river."}]],
    "generate": [{"generated_text": "A summary of the text."}],
    "tokenize": [[_RIVER]],
    "decode": ["the river"],
    "search": [{"index": "texts", "by": "vectors", "hits": [_HIT]}],
    "analyze": [{"sentiment": _LABELS, "places": [_PLACE]}],
    "attention": {"layer": 6, "layers": 6, "heads": 12, "head": 1, "pieces": [_RIVER], "attentions": [[[1.0]]]},
    "explain": {
        "label": "good",
        "predicted": "good",
        "score": 0.91,
        "hidden_by": "mask",
        "words": [{"text": "remember", "start": 10, "end": 18, "second": False, "score": 0.62, "drop": 0.29}],
        "word": None,
    },
    "map": {
        "places": [[0.07, 0.22], [-0.26, -0.06], [0.19, -0.16]],
        "axes": ["PC 1 (58.0 % of variance)", "PC 2 (42.0 % of variance)"],
        "notes": [],
        "method": "pca",
        "variance": [0.58, 0.42],
        "trustworthiness": 1.0,
        "trustworthiness_neighbours": 1,
    },
}
#: Whole answers.
ANSWERS: Mapping[str, Any] = {
    name: {
        "model": "MODEL",
        "results": results,
        **({"chosen": ["good"], "abstained": [False]} if name == "classify" else {}),
        "truncated": [False],
        "usage": {"tokens": 9},
    }
    for name, results in _RESULTS.items()
}
