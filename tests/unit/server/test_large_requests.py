"""A request of many items is computed in parts, which others get between, and its answer is that of one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit import pipeline
from bertkit.server import batcher as batcher_module
from bertkit.server.calls import Call
from bertkit.server.failures import Failure
from bertkit.server.parts import Piece, cut
from bertkit.server.service import Service
from server_helpers import ask, held, itself, save_models, serving, with_service

PARAGRAPH = "the man went to the bank of the river , and the film was good . " * 2
PARAGRAPHS = [f"{number} {PARAGRAPH}" for number in range(256)]


def order_of_answers(folder: Path, monkeypatch: pytest.MonkeyPatch, *, one_client: bool = False) -> list[str]:
    """What is answered when: A, 256 paragraphs, or B, five short texts that were sent after that."""
    order: list[str] = []

    async def use(service: Service) -> None:
        with held(monkeypatch) as may_go_on:
            sent = [("A", service.submit(Call(task="embed", items=PARAGRAPHS), itself, "A"))]
            for number in range(5):
                call = Call(task="embed", items=[f"a good film {number}"])
                sent.append(("B", service.submit(call, itself, "A" if one_client else "B")))
            for name, future in sent:
                future.add_done_callback(lambda _, name=name: order.append(name))
            may_go_on.set()
            await asyncio.gather(*(future for _, future in sent))

    with_service(folder, ("vectors",), use, max_batch_tokens=512)
    return order


@pytest.mark.parametrize("one_client", [False, True])
def test_short_requests_are_answered_before_the_end_of_a_large_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_client: bool
) -> None:
    """Also those of the same client, as which a server knows all who come through one proxy."""
    assert order_of_answers(tmp_path, monkeypatch, one_client=one_client) == ["B"] * 5 + ["A"]


def test_without_parts_they_would_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(call: Call, tokens_of: Callable[[Any], int], most: int, batch: int) -> list[list[Piece]]:
        return cut(call, tokens_of, 1 << 30, 1 << 30)

    monkeypatch.setattr(batcher_module, "cut", whole)
    assert order_of_answers(tmp_path, monkeypatch) == ["A"] + ["B"] * 5


TEXTS = [f"a {word} film {number} {'of the river ' * (number % 5)}" for number in range(30) for word in ("good", "bad")]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str, Path]]:
    """A server whose batches are so small that each request of these tests has many parts."""
    folder = tmp_path_factory.mktemp("models")
    with serving(*save_models(folder), max_batch_tokens=256, precision="fp32") as (app, address):
        yield app, address, folder


def batches_of(app: Any, name: str) -> int:
    return int(app.service.models.slots[name].batcher.counts.batches)


def test_vectors_of_a_large_request_are_those_of_one_call(small: tuple[Any, str, Path]) -> None:
    app, address, folder = small
    before = batches_of(app, "vectors")
    reply = ask(address, "/v1/embed", {"input": TEXTS, "model": "vectors"})
    pipe = pipeline("feature-extraction", model=folder / "vectors", pooling="model")
    np.testing.assert_allclose(reply.results, np.stack(pipe(TEXTS)), atol=1e-5)
    assert reply.body["usage"]["tokens"] == sum(len(pipe.tokenizer(text)["input_ids"]) for text in TEXTS)
    assert batches_of(app, "vectors") - before > 1, "it had parts"


def test_as_many_texts_as_stock_clients_send_are_one_request(small: tuple[Any, str, Path]) -> None:
    _, address, _ = small
    for count, status in ((1000, 200), (2048, 200), (2049, 400)):
        reply = ask(address, "/v1/embeddings", {"input": ["film"] * count, "model": "vectors"})
        assert reply.status == status, reply.body
        assert status == 400 or len(reply.body["data"]) == count


def test_labels_pairs_and_entities_of_large_requests_keep_their_order(small: tuple[Any, str, Path]) -> None:
    _, address, folder = small
    pairs = [[text, TEXTS[-number]] for number, text in enumerate(TEXTS)]
    found = ask(address, "/v1/classify", {"input": pairs, "model": "labels"}).results
    expected = pipeline("text-classification", model=folder / "labels")(list(map(tuple, pairs)), top_k=None)
    for own, other in zip(found, expected, strict=True):
        assert [label["label"] for label in own] == [label["label"] for label in other]
        np.testing.assert_allclose(*[[label["score"] for label in each] for each in (own, other)], atol=1e-5)
    found = ask(address, "/v1/tag", {"input": TEXTS, "model": "tags"}).results
    tagged = pipeline("token-classification", model=folder / "tags")(TEXTS, aggregation_strategy="simple")
    assert [[(one["start"], one["end"]) for one in each] for each in found] == [
        [(one["start"], one["end"]) for one in each] for each in tagged
    ]


def test_a_query_with_many_documents_is_ranked_as_in_one_call(small: tuple[Any, str, Path]) -> None:
    app, address, folder = small
    documents = [*TEXTS, *TEXTS[:7]]  # equal scores, too
    before = batches_of(app, "ranks")
    body = {"query": "a good film", "documents": documents, "model": "ranks", "return_documents": True}
    reply = ask(address, "/v1/rerank", body)
    assert reply.status == 200, reply.body
    expected = pipeline("text-ranking", model=folder / "ranks")("a good film", documents)
    scores = {one["index"]: one["score"] for one in expected}
    found = reply.body["results"]
    assert sorted(one["index"] for one in found) == list(range(len(documents)))
    np.testing.assert_allclose(
        [one["relevance_score"] for one in found], [scores[one["index"]] for one in found], atol=1e-5
    )
    assert [one["document"]["text"] for one in found] == [documents[one["index"]] for one in found]
    ranks = [one["relevance_score"] for one in found]
    assert ranks == sorted(ranks, reverse=True)
    assert batches_of(app, "ranks") - before > 1
    best = ask(address, "/v1/rerank", {**body, "top_n": 3}).body["results"]
    np.testing.assert_allclose([one["relevance_score"] for one in best], ranks[:3], atol=1e-5)


def test_a_source_is_compared_with_many_sentences_and_counted_once(small: tuple[Any, str, Path]) -> None:
    app, address, folder = small
    before = batches_of(app, "vectors")
    reply = ask(address, "/v1/similarity", {"source": "the river", "sentences": TEXTS, "model": "vectors"})
    pipe = pipeline("feature-extraction", model=folder / "vectors", pooling="model")
    source, *others = np.stack(pipe(["the river", *TEXTS]))
    expected = [other @ source / np.linalg.norm(other) / np.linalg.norm(source) for other in others]
    np.testing.assert_allclose(reply.results, expected, atol=1e-5)
    texts = ["the river", *TEXTS]
    assert reply.body["usage"]["tokens"] == sum(len(pipe.tokenizer(text)["input_ids"]) for text in texts)
    assert batches_of(app, "vectors") - before > 1


def test_labels_that_are_asked_for_belong_together(small: tuple[Any, str, Path]) -> None:
    _, address, folder = small
    body = {"input": TEXTS[:20], "labels": ["sports", "rivers", "films"], "model": "nli"}
    found = ask(address, "/v1/zero-shot", body).results
    expected = pipeline("zero-shot-classification", model=folder / "nli")(TEXTS[:20], body["labels"])
    for own, other in zip(found, expected, strict=True):
        scores = dict(zip(other["labels"], other["scores"], strict=True))
        np.testing.assert_allclose([each["score"] for each in own], [scores[each["label"]] for each in own], atol=1e-5)


def test_what_is_wrong_is_named_by_its_number_in_the_request(small: tuple[Any, str, Path]) -> None:
    _, address, _ = small
    texts = [f"{text} [MASK]" for text in TEXTS]
    texts[41] = "no mask here"
    reply = ask(address, "/v1/fill-mask", {"input": texts, "model": "masks"})
    assert reply.status == 422
    assert "text 41 (counted from 0) has no [MASK]" in reply.body["error"]["message"]


def test_a_document_that_is_too_long_is_named_by_its_number_in_the_request(tmp_path: Path) -> None:
    documents = [*TEXTS]
    documents[41] = "river " * 600

    async def use(service: Service) -> None:
        item = {"query": "a film", "documents": documents}
        call = Call(task="rerank", items=[{**item, "documents": ["a"]}, item], overflow="error")
        with pytest.raises(Failure, match="query 1 with its document 41 "):
            await service.answer(call, itself)

    with_service(tmp_path, ("ranks",), use, max_batch_tokens=256)

    async def compare(service: Service) -> None:
        item = {"source_sentence": "a film", "sentences": documents}
        with pytest.raises(Failure, match="text 42 "):  # the source is text 0
            await service.answer(Call(task="similarity", items=[item], overflow="error"), itself)

    with_service(tmp_path, ("vectors",), compare, max_batch_tokens=256)


def test_a_request_that_fails_or_is_left_drops_its_other_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    computed = batcher_module.Batcher._computed

    def noting(self: Any, batch: Any) -> Any:
        seen.extend(item for entry in batch for item in entry.payload.items)
        return computed(self, batch)

    monkeypatch.setattr(batcher_module.Batcher, "_computed", noting)

    async def use(service: Service) -> None:
        batcher = service.models.slots["masks"].batcher
        assert batcher is not None
        call = Call(task="fill-mask", items=["no mask", *[f"{number} [MASK]" for number in range(200)]])
        with pytest.raises(Failure, match="text 0"):
            await service.answer(call, itself)
        other = Call(task="fill-mask", items=["a [MASK]"])
        await service.answer(other, itself)
        assert len(set(seen)) < 100, "the rest was not computed"
        assert (batcher.queue.tokens, batcher.queue.charged, len(batcher.queue)) == (0, 0, 0)
        assert batcher.counts.failed == 1
        seen.clear()
        with held(monkeypatch) as may_go_on:
            call = Call(task="fill-mask", items=[f"{number} [MASK]" for number in range(200)])
            left = service.submit(call, itself, "A")
            after = service.submit(other, itself, "B")
            left.cancel()
            await asyncio.sleep(0)
            may_go_on.set()
            await after
        await service.answer(other, itself)  # for whose batch what is left is dropped
        assert len(seen) < 100
        assert (batcher.queue.tokens, len(batcher.queue), service.open_requests) == (0, 0, 0)
        assert batcher.counts.dropped == 1

    with_service(tmp_path, ("masks",), use, max_batch_tokens=64)


def test_a_deadline_ends_a_large_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(service: Service) -> None:
        batcher = service.models.slots["vectors"].batcher
        assert batcher is not None
        with held(monkeypatch) as may_go_on:
            with pytest.raises(Failure) as failed:
                await service.answer(Call(task="embed", items=PARAGRAPHS, timeout=0.05), itself)
            assert failed.value.kind == "timeout"
            may_go_on.set()
            await service.answer(Call(task="embed", items=["a film"]), itself)
        assert batcher.counts.batches <= 2, "the one that was begun, if any was, and that of the next request"
        assert batcher.queue.tokens == 0

    with_service(tmp_path, ("vectors",), use, max_batch_tokens=256)


def test_a_request_is_taken_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(service: Service) -> None:
        batcher = service.models.slots["vectors"].batcher
        assert batcher is not None
        with held(monkeypatch) as may_go_on:
            call = Call(task="embed", items=PARAGRAPHS[:20])
            first, second = service.submit(call, itself, "A"), service.submit(call, itself, "B")
            before = (batcher.queue.tokens, len(batcher.queue))
            with pytest.raises(Failure, match="the queue is full"):
                service.submit(call, itself, "C")
            assert (batcher.queue.tokens, len(batcher.queue)) == before
            may_go_on.set()
            assert [len((await each).results) for each in (first, second)] == [20, 20]
        many = await service.answer(Call(task="embed", items=PARAGRAPHS), itself)
        assert len(many.results) == 256, "of more tokens than the queue, and of none that is too long"

    with_service(tmp_path, ("vectors",), use, max_batch_tokens=64, max_queue_tokens=800)


def test_one_text_that_is_larger_than_the_queue_is_too_long(tmp_path: Path) -> None:
    text = "the film was good . " * 400
    with serving(*save_models(tmp_path, ("tags", "vectors")), max_queue_tokens=1000) as (_, address):
        reply = ask(address, "/v1/tag", {"input": ["good", text], "model": "tags"})
        assert (reply.status, reply.body["error"]["type"]) == (422, "too_long")
        assert "input 1 (counted from 0)" in reply.body["error"]["message"]
        other = ask(address, "/models/tags", {"inputs": text})
        assert (other.status, "at most 1,000 of one input" in other.body["error"]) == (422, True)
        assert ask(address, "/v1/tag", {"input": text[:800], "model": "tags"}).status == 200
        cut_off = {"input": text, "model": "vectors", "overflow": "truncate"}
        assert ask(address, "/v1/embed", cut_off).status == 200, "of which only the beginning is computed"
