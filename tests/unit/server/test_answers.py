"""What the server answers is what the pipelines answer, for one text, for many, and for many clients at once."""

from __future__ import annotations

import base64
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from bertkit import pipeline
from bertkit.inference.redaction import restore
from bertkit.server.dialects import bertkit
from server_helpers import NDJSON, ask, body_of, lines_of

TEXTS = ["a good film", "not bad", "the dull end of a very bad scene is great", "in it was a start", "film"]
QUESTION = {"question": "was it good", "context": "the film was very good and the end was dull. " * 20}
CLOSE = {"rel": 1e-3, "abs": 1e-4}


def near(found: Any, expected: Any) -> None:
    """The same structure, numbers to some digits."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            near(found[key], value)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            near(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, **CLOSE)
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("path", "body", "task", "model", "expected"),
    [
        ("classify", {"input": TEXTS}, "text-classification", "labels", lambda pipe: pipe(TEXTS, top_k=None)),
        (
            "classify",
            {"input": [["a film", "the end"], "not bad"], "model": "labels", "top_k": 1},
            "text-classification",
            "labels",
            lambda pipe: pipe([("a film", "the end"), "not bad"], top_k=1),
        ),
        (
            "tag",
            {"input": TEXTS},
            "token-classification",
            "tags",
            lambda pipe: pipe(TEXTS, aggregation_strategy="simple"),
        ),
        ("answer", {"input": QUESTION}, "question-answering", "answers", lambda pipe: pipe([QUESTION])),
        (
            "answer",
            {"input": [QUESTION], "top_k": 3},
            "question-answering",
            "answers",
            lambda p: p([QUESTION], top_k=3),
        ),
        (
            "choose",
            {"input": {"context": "a film", "choices": ["the end", "a start", "not bad"]}},
            "multiple-choice",
            "choices",
            lambda pipe: pipe([{"context": "a film", "choices": ["the end", "a start", "not bad"]}]),
        ),
        (
            "fill-mask",
            {"input": ["a [MASK] film", "the [MASK] is [MASK]"], "top_k": 2},
            "fill-mask",
            "masks",
            lambda pipe: pipe(["a [MASK] film", "the [MASK] is [MASK]"], top_k=2),
        ),
        (
            "next-sentence",
            {"input": ["a film", "the end"]},
            "next-sentence",
            "next",
            lambda pipe: pipe([("a film", "the end")]),
        ),
    ],
)
def test_tasks_answer_as_pipelines(
    server: Any, path: str, body: dict[str, Any], task: str, model: str, expected: Callable[[Any], Any]
) -> None:
    pipe = pipeline(task, model=server.folder / model, precision="fp32")
    near(ask(server.address, f"/v1/{path}", {"model": model, **body}).results, expected(pipe))


def test_vectors_as_numbers_and_as_base64(server: Any) -> None:
    pipe = pipeline("feature-extraction", model=server.folder / "vectors", pooling="model")
    found = ask(server.address, "/v1/embed", {"model": "vectors", "input": TEXTS, "normalize": True})
    expected = np.stack(pipe(TEXTS, normalize=True))
    np.testing.assert_allclose(found.results, expected, atol=1e-5)
    body = {"model": "vectors", "input": TEXTS, "normalize": True, "encoding": "base64"}
    coded = ask(server.address, "/v1/embed", body).results
    np.testing.assert_allclose([np.frombuffer(base64.b64decode(one), "<f4") for one in coded], expected, atol=1e-5)
    assert found.body["usage"]["tokens"] == sum(vector.num_tokens for vector in pipe(TEXTS))
    tokens = ask(server.address, "/v1/embed", {"model": "vectors", "input": TEXTS[0], "tokens": True}).results
    assert np.shape(tokens) == (1, 5, 32)


def test_ids_stand_for_their_text(server: Any) -> None:
    tokenizer = pipeline("feature-extraction", model=server.folder / "vectors").tokenizer
    ids = [tokenizer(text)["input_ids"] for text in TEXTS]
    by_text, by_ids = (ask(server.address, "/v1/embed", {"model": "vectors", "input": x}).results for x in (TEXTS, ids))
    np.testing.assert_allclose(by_text, by_ids, atol=1e-6)
    refused = ask(server.address, "/v1/embed", {"model": "vectors", "input": [1, 99_999]})
    assert refused.status == 422
    assert "99999" in refused.body["error"]["message"]


def test_similarity_and_ranks(server: Any) -> None:
    pipe = pipeline("sentence-similarity", model=server.folder / "vectors")
    body = {"model": "vectors", "source": TEXTS[0], "sentences": TEXTS[1:]}
    near(ask(server.address, "/v1/similarity", body).results, [float(x) for x in pipe(TEXTS[0], TEXTS[1:])])


RANKED = {"query": "was it good", "documents": TEXTS}


def test_documents_are_ranked_as_the_pipeline_does(server: Any) -> None:
    pipe = pipeline("text-ranking", model=server.folder / "ranks", precision="fp32")
    expected = [{"index": each["index"], "score": each["score"]} for each in pipe(RANKED)]
    body = {**RANKED, "model": "ranks", "facts": True}
    found = ask(server.address, "/v1/rerank", body)
    near(found.results, expected)
    assert found.body["truncated"] == [False]
    assert found.body["facts"]["engine"]
    near(ask(server.address, "/v1/rerank", {**RANKED, "top_k": 2}).results, expected[:2])
    (line,) = lines_of(ask(server.address, "/v1/bulk/rerank", body_of(RANKED), **NDJSON))
    near(line["results"], expected)
    theirs = ask(server.address, "/v1/rerank", {**RANKED, "top_n": 2, "unknown": 1})
    assert [one["relevance_score"] for one in theirs.results] == pytest.approx([e["score"] for e in expected[:2]])
    assert "truncated" not in theirs.body, "what the clients of Jina and Cohere read stays as it is"


def test_the_own_body_of_reranking_names_what_it_does_not_have(server: Any) -> None:
    long = {**RANKED, "documents": ["film", "a very good film and " * 40]}
    assert ask(server.address, "/v1/rerank", long).status == 200, "Jina's clients expect that it is cut"
    refused = ask(server.address, "/v1/rerank", {**long, "overflow": "error"})
    assert (refused.status, refused.body["error"]["type"]) == (422, "too_long")
    cut = ask(server.address, "/v1/rerank", {**long, "overflow": "truncate"})
    assert cut.body["truncated"] == [True]
    for fields, said in (
        ({"timeout": 5, "unknown": 1}, "unknown"),
        ({"timeout": 0}, "timeout"),
        ({"priority": "high"}, "priority"),
        ({"timeout": 5, "top_n": 1}, "different requests"),
    ):
        refused = ask(server.address, "/v1/rerank", {**RANKED, **fields})
        assert refused.status == 422, fields
        assert said in str(refused.body), fields


def test_labels_that_the_model_was_not_trained_on(server: Any) -> None:
    pipe = pipeline("zero-shot-classification", model=server.folder / "nli")
    found = ask(server.address, "/v1/zero-shot", {"model": "nli", "input": TEXTS[:2], "labels": ["film", "scene"]})
    expected = pipe(TEXTS[:2], candidate_labels=["film", "scene"])
    for one, other in zip(found.results, expected, strict=True):
        assert [label["label"] for label in one] == other["labels"]
        assert [label["score"] for label in one] == pytest.approx(other["scores"], **CLOSE)


def test_redacted_text_can_be_restored(server: Any) -> None:
    texts = [text * 3 for text in TEXTS]
    found = ask(server.address, "/v1/redact", {"model": "tags", "input": texts}).results
    assert any(one["spans"] for one in found), "the model finds something"
    for text, one in zip(texts, found, strict=True):
        assert restore(one["text"], one["spans"]) == text
        for span in one["spans"]:
            assert text[span["start"] : span["end"]] == span["word"]
            assert one["text"][span["redacted_start"] : span["redacted_end"]] == span["placeholder"]


CODECS = {"codepoint": ("utf-32-le", 4), "utf16": ("utf-16-le", 2), "utf8": ("utf-8", 1)}
WIDE = "\U0001f642 é a good film. \U0001f642 the end was dull."


def sliced(text: str, start: int, end: int, unit: str) -> str:
    """A part of a text as a client sees it whose strings are of such units."""
    codec, size = CODECS[unit]
    return text.encode(codec)[start * size : end * size].decode(codec)


@pytest.mark.parametrize("unit", CODECS)
def test_all_places_are_in_the_unit_that_was_asked_for(server: Any, unit: str) -> None:
    def results(path: str, **body: Any) -> Any:
        return ask(server.address, f"/v1/{path}", {"input": WIDE, "unit": unit, **body}).results

    plain = ask(server.address, "/v1/redact", {"input": WIDE, "model": "tags"}).results[0]
    (found,) = results("redact", model="tags")
    assert found["text"] == plain["text"]
    assert [span["word"] for span in found["spans"]] == [span["word"] for span in plain["spans"]] != []
    for span in found["spans"]:
        assert sliced(WIDE, span["start"], span["end"], unit) == span["word"]
        assert sliced(found["text"], span["redacted_start"], span["redacted_end"], unit) == span["placeholder"]
    (chunks,) = results("embed", model="vectors", chunk="sentence")
    assert [sliced(WIDE, each["start"], each["end"], unit) for each in chunks] == [
        "\U0001f642 é a good film.",
        "\U0001f642 the end was dull.",
    ]
    (pieces,) = results("tokenize", model="vectors")
    words = [sliced(WIDE, one["start"], one["stop"], unit) for one in pieces if not one["special"]]
    assert words[:5] == ["\U0001f642", "é", "a", "good", "film"]
    pair = [WIDE, "\U0001f600 film"]
    read = results("explain", model="labels", input=pair)["words"]
    assert [sliced(pair[one["second"]], one["start"], one["end"], unit) for one in read] == [
        one["text"] for one in read
    ]
    shown = [one for one in results("attention", model="labels", input=pair)["pieces"] if not one["special"]]
    assert [sliced(pair[one["second"]], one["start"], one["stop"], unit) for one in shown][-2:] == [
        "\U0001f600",
        "film",
    ]
    if unit != "codepoint":  # the control: other numbers
        assert found["spans"] != plain["spans"]
        refused = ask(server.address, "/v1/embed", {"input": [5, 6], "unit": unit, "chunk": 4, "model": "vectors"})
        assert (refused.status, refused.body["error"]["param"]) == (422, "unit")


def test_places_in_other_units(server: Any) -> None:
    text = "\U0001f600 é a good film"
    found = {
        unit: ask(server.address, "/v1/tag", {"model": "tags", "input": text, "unit": unit}).results[0]
        for unit in ("codepoint", "utf16", "utf8")
    }
    assert found["codepoint"], "the model finds something"
    coded = {"codepoint": text.encode("utf-32-le"), "utf16": text.encode("utf-16-le"), "utf8": text.encode()}
    for unit, size in (("codepoint", 4), ("utf16", 2), ("utf8", 1)):
        codec = {"codepoint": "utf-32-le", "utf16": "utf-16-le", "utf8": "utf-8"}[unit]
        for span in found[unit]:
            assert coded[unit][span["start"] * size : span["end"] * size].decode(codec) == span["word"]


def test_pieces_and_back(server: Any) -> None:
    pieces = ask(server.address, "/v1/tokenize", {"model": "vectors", "input": "a good film"}).results[0]
    assert [one["text"] for one in pieces] == ["[CLS]", "a", "good", "film", "[SEP]"]
    assert [(one["start"], one["stop"]) for one in pieces[1:4]] == [(0, 1), (2, 6), (7, 11)]
    ids = [one["id"] for one in pieces]
    assert ask(server.address, "/v1/decode", {"model": "vectors", "ids": ids}).results == ["a good film"]


def test_a_long_text_is_refused_cut_or_read_in_windows_and_it_is_said(server: Any) -> None:
    long = "a very good film and " * 40
    refused = ask(server.address, "/v1/embed", {"model": "vectors", "input": ["film", long]})
    assert (refused.status, refused.body["error"]["type"]) == (422, "too_long")
    assert "202 tokens" in refused.body["error"]["message"]
    cut = ask(server.address, "/v1/embed", {"model": "vectors", "input": ["film", long], "overflow": "truncate"})
    assert cut.body["truncated"] == [False, True]
    assert cut.headers["x-truncated"] == "1"
    body = {"model": "labels", "input": long, "overflow": "window"}
    whole = ask(server.address, "/v1/classify", body)
    pipe = pipeline("text-classification", model=server.folder / "labels")
    (expected,) = pipe([long], top_k=None, truncation="windows")
    near(whole.results, [[{key: label[key] for key in ("label", "score")} for label in expected]])
    assert whole.body["truncated"] == [False]


def test_what_is_read_in_windows_may_be_refused_or_cut(server: Any) -> None:
    long = "a very good film and " * 40

    def asked(path: str, **body: Any) -> Any:
        return ask(server.address, f"/v1/{path}", body)

    for path, model in (("tag", "tags"), ("redact", "tags")):
        whole = asked(path, model=model, input=["film", long])
        assert asked(path, model=model, input=["film", long], overflow="window").results == whole.results
        refused = asked(path, model=model, input=["film", long], overflow="error")
        assert (refused.status, refused.body["error"]["type"]) == (422, "too_long")
        assert "202 tokens" in refused.body["error"]["message"]
        assert asked(path, model=model, input=["film"], overflow="error").status == 200
    cut = asked("tag", model="tags", input=["film", long], overflow="truncate").body
    assert cut["truncated"] == [False, True]
    assert len(cut["results"][1]) < len(asked("tag", model="tags", input=[long]).results[0])
    assert asked("answer", model="answers", input=QUESTION, overflow="window").status == 200
    assert asked("answer", model="answers", input=QUESTION, overflow="error").body["error"]["type"] == "too_long"
    short = {**QUESTION, "context": "the film was very good"}
    assert asked("answer", model="answers", input=short, overflow="error").status == 200
    labels = {"model": "nli", "input": long, "labels": ["film", "scene"]}
    assert asked("zero-shot", **labels).body["error"]["type"] == "too_long"
    assert asked("zero-shot", **labels, overflow="truncate").body["truncated"] == [True]
    for path, overflow in (("answer", "truncate"), ("redact", "truncate"), ("zero-shot", "window")):
        body = {"answer": {"input": QUESTION}, "redact": {"input": "a"}, "zero-shot": labels}[path]
        assert asked(path, **body, overflow=overflow).body["error"]["param"] == "overflow"


def test_chunks_by_overflow(server: Any) -> None:
    body = {"model": "vectors", "input": "the film was good. the end was dull."}
    found = [
        ask(server.address, "/v1/embed", {**body, **fields}).results
        for fields in ({"overflow": "chunk"}, {"chunk": "sentence"}, {"overflow": "chunk", "chunk": 3}, {"chunk": 3})
    ]
    near(found[0], found[1])
    near(found[2], found[3])
    assert len(found[0][0]) == 2 < len(found[2][0])
    refused = ask(server.address, "/v1/embed", {**body, "overflow": "error", "chunk": 3})
    assert refused.body["error"]["param"] == "overflow"


def test_many_clients_at_once_get_their_own_answers(server: Any) -> None:
    texts = [f"{text} {number}" for number in range(40) for text in TEXTS]
    pipe = pipeline("feature-extraction", model=server.folder / "vectors", pooling="model")
    expected = np.stack(pipe(texts))
    before = server.app.service.models.slots["vectors"].batcher.counts.batches
    with ThreadPoolExecutor(32) as pool:
        found = list(
            pool.map(lambda text: ask(server.address, "/v1/embed", {"model": "vectors", "input": text}), texts)
        )
    np.testing.assert_allclose([one.results[0] for one in found], expected, atol=1e-5)
    batches = server.app.service.models.slots["vectors"].batcher.counts.batches - before
    assert batches < len(texts), "some were computed together"


def test_one_that_cannot_be_answered_fails_alone(server: Any) -> None:
    def answer(number: int) -> int:
        text = "no mask here" if number % 7 == 3 else "a [MASK] film"
        return ask(server.address, "/v1/fill-mask", {"model": "masks", "input": text}).status

    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(answer, range(70)))
    assert statuses == [422 if number % 7 == 3 else 200 for number in range(70)]


def test_sentences_and_parts_in_their_context(server: Any) -> None:
    parts = ["the film was good.", "not very bad.", "the end was dull."]
    body = {"model": "vectors", "input": " ".join(parts), "chunk": "sentence", "normalize": True}
    (chunks,) = ask(server.address, "/v1/embed", body).results
    assert [(one["start"], one["end"]) for one in chunks] == [(0, 18), (19, 32), (33, 50)]
    jina = {"model": "vectors", "input": parts, "late_chunking": True}
    reply = ask(server.address, "/v1/embeddings", jina)
    found = [each["embedding"] for each in reply.body["data"]]
    np.testing.assert_allclose(found, [one["vector"] for one in chunks], atol=1e-5)
    alone = ask(server.address, "/v1/embeddings", {**jina, "late_chunking": False}).body["data"]
    assert np.abs(np.array(found) - [each["embedding"] for each in alone]).max() > 0.01, "the control"
    assert reply.body["usage"]["total_tokens"] > 10
    for fields in ({"input": [[5, 6]]}, {"input": ["a", ""]}, {"input": ["a", "film " * 70]}):
        assert ask(server.address, "/v1/embeddings", {**jina, **fields}).status == 400


def test_parts_of_a_text_that_is_longer_than_the_model_reads(server: Any) -> None:
    text = "a very good film and " * 40
    found = ask(
        server.address, "/v1/embed", {"model": "vectors", "input": text, "chunk": 20, "normalize": True}
    ).results
    (chunks,) = found
    assert "".join(text[one["start"] : one["end"]] for one in chunks).replace(" ", "") == text.replace(" ", "")
    assert np.shape([one["vector"] for one in chunks]) == (len(chunks), 32)
    np.testing.assert_allclose(np.linalg.norm([one["vector"] for one in chunks], axis=1), 1, atol=1e-5)


def keys(value: Any) -> Any:
    """The keys of all objects; of a list those of its first element."""
    if isinstance(value, dict):
        return {name: keys(part) for name, part in value.items()}
    return [keys(value[0])] if isinstance(value, list) and value else []


@pytest.mark.parametrize(
    ("task", "body"),
    [
        ("embed", {"input": "a"}),
        ("similarity", {"source": "a", "sentences": ["film"]}),
        ("classify", {"model": "labels", "input": "a film"}),
        ("next-sentence", {"input": ["a film", "the end"]}),
        ("zero-shot", {"model": "nli", "input": "a film", "labels": ["good", "bad"]}),
        ("tag", {"input": TEXTS[2]}),
        ("redact", {"input": TEXTS[2]}),
        ("answer", {"input": QUESTION}),
        ("choose", {"input": {"context": "a film", "choices": ["the end", "a start"]}}),
        ("fill-mask", {"input": "a [MASK] film"}),
        ("tokenize", {"input": "a film"}),
        ("decode", {"ids": [5, 6]}),
        ("attention", {"input": "a film", "head": 1}),
        ("explain", {"model": "labels", "input": "a film"}),
        ("map", {"input": TEXTS}),
    ],
)
def test_answers_have_the_form_that_the_description_shows(server: Any, task: str, body: dict[str, Any]) -> None:
    (example,) = [each.answer for each in bertkit.DIALECT.routes if each.path == f"/v1/{task}"]
    assert keys(ask(server.address, f"/v1/{task}", body).body) == keys(example)
