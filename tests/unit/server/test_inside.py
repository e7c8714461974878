"""Routes that show what a model does: attention, explanations, maps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit import pipeline
from bertkit.batch import collate
from bertkit.insight import projection
from bertkit.insight.attention_reader import AttentionReader
from bertkit.insight.occlusion import occlusion
from bertkit.server import inside
from bertkit.visualize import explain
from server_helpers import ask, save_models, serving

TEXTS = ["a good film", "a great film", "the dull end", "a bad scene"]


def test_attention_is_that_of_torch(server: Any) -> None:
    reader = AttentionReader(server.folder / "labels")
    for text, second in (("a good film", None), ("a good film", "the dull end is bad")):
        rows = reader.encode([(text, second)])
        layers = reader.of(collate(rows, [0]))
        sent = text if second is None else [text, second]
        top = ask(server.address, "/v1/attention", {"model": "labels", "input": sent})
        assert (top.results["layer"], top.results["layers"], top.results["heads"]) == (2, 2, 4)
        assert [piece["id"] for piece in top.results["pieces"]] == rows.ids.tolist()
        assert [piece["segment"] for piece in top.results["pieces"]] == rows.token_type_ids.tolist()
        assert top.body["usage"] == {"tokens": len(rows.ids)}
        np.testing.assert_allclose(top.results["attentions"], layers[1][0].numpy(), atol=1e-4)
        one = ask(server.address, "/v1/attention", {"model": "labels", "input": sent, "layer": 1, "head": 3})
        np.testing.assert_allclose(one.results["attentions"], layers[0][0][2:3].numpy(), atol=1e-4)


def test_attention_in_all_models_with_layers(server: Any) -> None:
    for model in ("vectors", "tags", "answers", "choices", "masks", "next", "ranks"):
        found = ask(server.address, "/v1/attention", {"model": model, "input": "a film"}).results
        np.testing.assert_allclose(np.sum(found["attentions"], axis=-1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layer": 3}, "layer must be from 1 to 2"),
        ({"head": 5}, "head must be from 1 to 4"),
        ({"input": "film " * 100}, "64"),
        ({"input": [" ", "film"]}, "has no text"),
        ({"input": ["one"]}, "input"),
    ],
)
def test_attention_says_what_is_wrong(server: Any, change: dict[str, Any], said: str) -> None:
    reply = ask(server.address, "/v1/attention", {"model": "labels", "input": "a film", **change})
    assert reply.status == 422
    assert said in reply.body["error"]["message"]


def test_attention_of_a_text_that_is_cut(server: Any) -> None:
    reply = ask(
        server.address, "/v1/attention", {"model": "labels", "input": "film " * 100, "overflow": "truncate", "head": 1}
    )
    assert reply.body["truncated"] == [True]
    assert np.shape(reply.results["attentions"]) == (1, 64, 64)


def test_a_family_without_attention_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "why_no_plain_attention", lambda config: "positions rotate")
    with serving(*save_models(tmp_path, ("vectors",))) as (_, address):
        facts = ask(address, "/v1/info").body["models"][0]
        assert "attention" not in facts["tasks"]
        assert facts["lacks"] == {"attention": "positions rotate"}
        reply = ask(address, "/v1/attention", {"model": "vectors", "input": "a film"})
        assert reply.status == 424
        assert "does not do 'attention' because positions rotate; it does embed" in reply.body["error"]["message"]


def test_an_explanation(server: Any) -> None:
    body = {"model": "labels", "input": "the film is great"}
    found = ask(server.address, "/v1/explain", body).results
    scores = {
        one["label"]: one["score"] for one in ask(server.address, "/v1/classify", {**body, "top_k": 3}).results[0]
    }
    assert found["label"] == found["predicted"] == max(scores, key=scores.__getitem__)
    assert found["score"] == pytest.approx(scores[found["label"]], abs=1e-4)
    assert [word["text"] for word in found["words"]] == ["the", "film", "is", "great"]
    other = ask(server.address, "/v1/explain", {**body, "label": "dull"}).results
    assert other["score"] == pytest.approx(scores["dull"], abs=1e-4)
    wrong = ask(server.address, "/v1/explain", {**body, "label": "dul"})
    assert (wrong.status, wrong.body["error"]["type"]) == (422, "invalid")
    long = ask(server.address, "/v1/explain", {**body, "input": "film " * 100})
    assert (long.status, long.body["error"]["type"]) == (422, "too_long")
    cut = ask(server.address, "/v1/explain", {**body, "input": "film " * 100, "overflow": "truncate"})
    assert (cut.body["truncated"], len(cut.results["words"])) == ([True], 62)
    assert ask(server.address, "/v1/explain", {**body, "model": "vectors"}).status == 424


def test_explanations_of_a_tag_and_of_an_answer(server: Any) -> None:
    body = {"model": "tags", "input": "the film is great", "word": "great"}
    found = ask(server.address, "/v1/explain", body).results
    pipe = pipeline("token-classification", model=server.folder / "tags", precision="fp32")
    expected = occlusion(pipe, body["input"], word="great")
    assert (found["label"], found["predicted"], found["word"]) == (expected.label, expected.predicted, 3)
    assert [one["drop"] for one in found["words"]] == pytest.approx([one.drop for one in expected.words], abs=1e-4)
    assert ask(server.address, "/v1/explain", {**body, "word": 4}).results == found
    wrong = ask(server.address, "/v1/explain", {**body, "word": "graet"})
    assert (wrong.status, "did you mean 'great'" in wrong.body["error"]["message"]) == (422, True)
    asked = {"question": "is it good", "context": "the film was very good"}
    body = {"model": "answers", "input": list(asked.values())}
    found = ask(server.address, "/v1/explain", body).results
    answer = pipeline("question-answering", model=server.folder / "answers")(asked, align_to_words=False)
    assert (found["label"], found["predicted"]) == (answer["answer"], answer["answer"])
    assert found["score"] == pytest.approx(answer["score"], abs=1e-4)
    assert [(one["text"], one["second"]) for one in found["words"]][2:4] == [("good", False), ("the", True)]
    assert ask(server.address, "/v1/explain", {**body, "label": "film was"}).results["label"] == "film was"
    assert ask(server.address, "/v1/explain", {**body, "label": "scene"}).status == 422
    assert ask(server.address, "/v1/explain", {**body, "input": "a film"}).status == 422


def test_an_explanation_by_gradients(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for model, texts in (("labels", ["the film is great", "a dull end"]), ("answers", ["is it good", "the film was"])):
        expected = explain(*texts, model=server.folder / model).to_dict()
        body = {"model": model, "input": texts, "by": "gradients"}
        reply = ask(server.address, "/v1/explain", body)
        assert set(reply.results) == expected.keys() - {"task", "text", "text_pair", "truncated"}
        assert (reply.results["label"], reply.results["steps"]) == (expected["label"], expected["steps"])
        for name in ("gradients", "occlusion"):
            numbers = [word[name] for word in expected["words"]]
            assert [word[name] for word in reply.results["words"]] == pytest.approx(numbers, abs=1e-5)
        assert reply.body["usage"]["tokens"] > 96 * len(expected["words"])
    assert ask(server.address, "/v1/explain", {**body, "label": "scene"}).status == 422
    body = {"model": "tags", "input": "the film is great", "word": "great", "by": "gradients"}
    for name in ("explanation", "explained_text", "attributions"):
        monkeypatch.delitem(sys.modules, f"bertkit.insight.{name}")
    monkeypatch.setitem(sys.modules, "torch", None)
    without = ask(server.address, "/v1/explain", body)
    assert without.status == 501
    assert "gradients needs 'torch'" in without.body["error"]["message"]
    assert ask(server.address, "/v1/explain", {**body, "by": "occlusion"}).status == 200
    monkeypatch.undo()
    assert ask(server.address, "/v1/explain", body).results["word"] == 3


def test_a_map(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ask(server.address, "/v1/map", {"model": "vectors", "input": TEXTS}).results
    vectors = np.array(ask(server.address, "/v1/embed", {"model": "vectors", "input": TEXTS}).results)
    x = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    sizes = np.linalg.svd(x - x.mean(axis=0), compute_uv=False) ** 2
    np.testing.assert_allclose(found["variance"], sizes / sizes.sum(), atol=1e-3)
    assert np.shape(found["places"]) == (4, 2)
    tsne = ask(server.address, "/v1/map", {"model": "vectors", "input": TEXTS, "method": "tsne"}).results
    assert tsne["axes"] == ["t-SNE 1", "t-SNE 2"]
    assert ask(server.address, "/v1/map", {"model": "vectors", "input": TEXTS[:2]}).status == 422

    def missing(*given: Any) -> Any:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")

    monkeypatch.setattr(projection, "_tsne", missing)
    without = ask(server.address, "/v1/map", {"model": "vectors", "input": TEXTS, "method": "tsne"})
    assert without.status == 501
    assert "Run: pip install bertkit" in without.body["error"]["message"]
    assert ask(server.address, "/v1/map", {"model": "vectors", "input": TEXTS}).status == 200
