"""A run of several heads: each is asked by the routes of its task, and answers as in an analysis and by itself."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from bertkit import pipeline
from bertkit.tasks import csv_task, task_of
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.several_heads import finetune_heads
from browser_helpers import CHROMIUM, browser
from finetune_data import BAD, GOOD, QUICK, labelled_texts, no_pictures, tiny_start, write_heads_data, write_table
from server_helpers import ask, save_models, serving

TEXTS = ["the film was good and great", "a sad day", "it is the book", "the film"]
PAIRS = [["it is good", "very good"], ["it is great", "very sad"]]
QUESTION = {"question": "the play", "context": "the film, a fine play. " * 30}
CLOSE = {"rel": 1e-3, "abs": 1e-4}


class Place(NamedTuple):
    """A server with a classifier of its own and a run, and the folder of the run."""

    address: str
    run: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("heads")
    tiny_start(folder / "start")
    write_heads_data(folder)
    write_table(folder / "mood.csv", ("text", "label"), labelled_texts(48, 1), delimiter=",")
    pairs = [(f"it is {word}", f"very {other}", int(word == other)) for word in GOOD for other in (word, *BAD)]
    write_table(folder / "same.csv", ("text", "text_pair", "label"), pairs, delimiter=",")
    heads: dict[str, Any] = {name: (csv_task(folder / f"{name}.csv", label="label"), folder / f"{name}.csv")
                             for name in ("mood", "same")}  # fmt: skip
    heads |= {"names": (task_of("ner", folder / "ner"), folder / "ner")}
    heads |= {"play": (task_of("squad", folder / "squad"), folder / "squad")}
    with no_pictures():
        finetune_heads(heads, folder / "start", folder / "run", FinetuneConfig(**{**QUICK, "epochs": 8}), cache=None)
    models = [f"run={folder / 'run'}", *save_models(folder / "models", ("vectors",))]
    with serving(*models, precision="fp32", thresholds=("run:mood:1=0.99",)) as (_, address):
        yield Place(address, folder / "run")


def pipe_of(place: Place, head: str) -> Any:
    """The head's own pipeline, with the encoder beside it."""
    return pipeline(model=place.run / "heads" / head, precision="fp32")


def results(place: Place, path: str, body: Any) -> Any:
    return ask(place.address, f"/v1/{path}", body).results


def test_heads_are_listed_behind_their_run(place: Place) -> None:
    known = {one["name"]: one for one in ask(place.address, "/v1/info").body["models"]}
    assert list(known) == ["run", "run/mood", "run/names", "run/play", "run/same", "vectors"]
    assert [one["id"] for one in ask(place.address, "/v1/models").body["data"]] == list(known)
    assert known["run"]["tasks"][0] == "analyze"
    for head, task, model_class in (
        ("mood", "classify", "BertForSequenceClassification"),
        ("names", "tag", "BertForTokenClassification"),
        ("play", "answer", "BertForQuestionAnswering"),
    ):
        facts = known[f"run/{head}"]
        assert (facts["tasks"][0], facts["model_class"]) == (task, model_class)
        assert {task, "embed", "attention"} <= set(known["run"]["tasks"])
        assert facts["revision"] == known["run"]["revision"]
        of_run = known["run"]["dev_scores"]
        assert facts["dev_scores"]
        assert all(of_run[f"{head}/{metric}"] == share for metric, share in facts["dev_scores"].items())
    assert (known["run"]["labels"], known["run/mood"]["labels"]) == (None, ["0", "1"])


def test_classes_as_in_an_analysis_and_as_of_the_pipeline(place: Place) -> None:
    whole = results(place, "analyze", {"model": "run", "input": TEXTS})
    found = results(place, "classify", {"model": "run/mood", "input": TEXTS})
    expected = pipe_of(place, "mood")(TEXTS, top_k=None)
    for one, other, analysis in zip(found, expected, whole, strict=True):
        assert [each["label"] for each in one] == [each["label"] for each in other]
        assert [each["score"] for each in one] == pytest.approx([each["score"] for each in other], **CLOSE)
        assert one[0]["label"] == analysis["mood"]["label"]
        assert one[0]["score"] == pytest.approx(analysis["mood"]["score"], **CLOSE)
    first = ask(place.address, "/v1/classify", {"model": "run", "input": TEXTS}).body
    assert (first["model"], first["results"]) == ("run/mood", found)
    unnamed = ask(place.address, "/v1/classify", {"input": TEXTS}).body
    assert (unnamed["model"], unnamed["results"]) == ("run/mood", found)
    pairs = results(place, "classify", {"model": "run/same", "input": PAIRS})
    expected = pipe_of(place, "same")(list(map(tuple, PAIRS)), top_k=None)
    assert [one[0]["score"] for one in pairs] == pytest.approx([one[0]["score"] for one in expected], **CLOSE)
    other = results(place, "classify", {"model": "run/same", "input": TEXTS})
    assert other != found, "the control: another head says something else"


def test_a_head_has_thresholds_of_its_own(place: Place) -> None:
    found = ask(place.address, "/v1/classify", {"model": "run/mood", "input": TEXTS, "facts": True}).body
    assert found["facts"]["decides"]["least"] == {"1": 0.99}
    for labels, chosen in zip(found["results"], found["chosen"], strict=True):
        best = labels[0]
        assert chosen == (None if best["label"] == "1" and best["score"] < 0.99 else best["label"])
    assert (
        ask(place.address, "/v1/classify", {"model": "run/same", "input": TEXTS, "facts": True}).body["facts"][
            "decides"
        ]["least"]
        == {}
    )


def test_tags_and_placeholders(place: Place) -> None:
    pipe = pipe_of(place, "names")
    strategy = "first"  # what an analysis uses
    whole = results(place, "analyze", {"model": "run", "input": TEXTS})
    found = results(place, "tag", {"model": "run/names", "input": TEXTS, "aggregation": strategy})
    assert any(found), "the model finds something"
    for one, other, analysis in zip(found, pipe(TEXTS, aggregation_strategy=strategy), whole, strict=True):
        for theirs in (other, analysis["names"]):
            assert [(each["start"], each["end"], each["entity_group"]) for each in one] == [
                (each["start"], each["end"], each["entity_group"]) for each in theirs
            ]
    redacted = results(place, "redact", {"input": TEXTS})
    assert [len(one["spans"]) for one in redacted] == [len(one) for one in results(place, "tag", {"input": TEXTS})]


def test_answers_also_of_a_long_context(place: Place) -> None:
    (found,) = results(place, "answer", {"model": "run", "input": [QUESTION]})
    expected = pipe_of(place, "play")(QUESTION)
    assert (found["start"], found["end"]) == (expected["start"], expected["end"])
    assert found["score"] == pytest.approx(expected["score"], **CLOSE)
    assert QUESTION["context"][found["start"] : found["end"]] == found["answer"] != ""


def test_vectors_of_the_shared_encoder(place: Place) -> None:
    found = results(place, "embed", {"model": "run", "input": TEXTS})
    expected = np.stack(pipeline("feature-extraction", model=place.run, precision="fp32", pooling="model")(TEXTS))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    unnamed = ask(place.address, "/v1/embed", {"input": TEXTS}).body
    assert unnamed["model"] == "vectors", "whose own task it is"
    assert ask(place.address, "/v1/embeddings", {"model": "run", "input": TEXTS}).status == 200


def test_other_clients_name_a_head_in_their_shapes(place: Place) -> None:
    (own,) = results(place, "classify", {"model": "run/mood", "input": TEXTS[:1]})
    for path, body, read in (
        ("/models/run/mood", {"inputs": TEXTS[0]}, lambda said: said[0]),
        ("/models/run/pipeline/text-classification", {"inputs": TEXTS[0]}, lambda said: said[0]),
        ("/models/run/mood/predict", {"inputs": TEXTS[0]}, lambda said: said),
    ):
        reply = ask(place.address, path, body)
        assert reply.status == 200, reply.body
        assert [one["label"] for one in read(reply.body)] == [one["label"] for one in own]
    tags = ask(place.address, "/models/run/names", {"inputs": TEXTS}).body
    assert [len(one) for one in tags] == [len(one) for one in results(place, "tag", {"input": TEXTS})]
    assert ask(place.address, "/v1/models/run/mood").body["id"] == "run/mood"
    assert ask(place.address, "/v1/tokenize", {"model": "run/mood", "input": "film"}).body["model"] == "run/mood"


def test_explanations_of_a_head(place: Place) -> None:
    found = ask(place.address, "/v1/explain", {"model": "run/mood", "input": TEXTS[0]}).results
    labels = results(place, "classify", {"model": "run/mood", "input": TEXTS[:1]})[0]
    assert found["label"] == labels[0]["label"]
    assert found["score"] == pytest.approx(labels[0]["score"], **CLOSE)
    tag = ask(place.address, "/v1/explain", {"model": "run/names", "input": TEXTS[3], "word": 2})
    assert tag.status == 200, tag.body


def test_a_head_of_a_run_that_is_not_loaded_yet(place: Place) -> None:
    with serving(f"run={place.run}", precision="fp32", lazy=True) as (app, address):

        def asked(model: str) -> Any:
            return ask(address, "/v1/classify", {"model": model, "input": TEXTS})

        for model in ("run/mood", "run/other"):
            assert (asked(model).status, asked(model).headers["retry-after"]) == (503, "1")
        assert asked("other/mood").status == 404
        while app.service.models.slots["run"].batcher is None:
            time.sleep(0.01)
        assert asked("run/mood").results == results(place, "classify", {"model": "run/mood", "input": TEXTS})
        assert asked("run/other").status == 404
        app.service.models.unload(app.service.models.slots["run"])
        assert [one["state"] for one in ask(address, "/v1/info").body["models"]] == ["unloaded"] * 5
        assert asked("run/mood").status == 503, "it comes back"


@pytest.mark.campaign
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.slow
def test_heads_have_tabs_of_their_own_once_they_are_known(place: Place, tmp_path: Path) -> None:
    def names(within: str) -> list[str]:
        tabs = f"[...document.querySelectorAll('{within} [role=tab]')].map((tab) => tab.dataset.name)"
        found: list[str] = page.value(tabs)
        return found

    run = f"run={place.run}"
    with serving(run, playground=True, lazy=True) as (_, address), browser(tmp_path / "profile") as page:
        page.open(f"{address}/playground")
        page.wait("document.querySelectorAll('#models [role=tab]').length === 1")
        page.value("document.querySelector('#model button').click()")
        page.wait("document.querySelectorAll('#models [role=tab]').length === 5")
        assert names("#models") == ["run", "run/mood", "run/names", "run/play", "run/same"]
        assert {"analyze", "embed"} <= set(names(".tasks"))
        assert not {"classify", "explain"} & set(names(".tasks"))
        page.value("document.querySelector('[data-name=\"run/mood\"]').click()")
        assert names(".tasks") == ["classify", "explain", "tokenize"]
        page.value("document.querySelector('.ask textarea').focus()")
        page.write(TEXTS[0])
        page.press("Control+Enter")
        page.wait("document.querySelector('.result')?.innerText.includes('The model gives: ')")


def test_files_that_are_overwritten_in_place_change_no_answer(place: Place, tmp_path: Path) -> None:
    run = shutil.copytree(place.run, tmp_path / "run")
    with serving(f"run={run}", precision="fp32") as (_, address):

        def answers() -> list[Any]:
            tag = ask(address, "/v1/tag", {"input": TEXTS}).results
            return [tag, ask(address, "/v1/embed", {"input": TEXTS}).results]

        before = answers()
        assert any(before[0])
        for weights in run.rglob("*.safetensors"):
            if "seed-0" not in weights.parts:
                with weights.open("r+b") as file:
                    file.write(bytes(weights.stat().st_size))
        assert answers() == before


def test_what_a_head_does_not_do_is_said(place: Place) -> None:
    for body, status, said in (
        ({"model": "run/names", "input": "a"}, 424, "run/names is a BertForTokenClassification"),
        ({"model": "run/other", "input": "a"}, 404, "run/mood"),
        ({"model": "vectors/mood", "input": "a"}, 404, "run/mood"),
    ):
        refused = ask(place.address, "/v1/classify", body)
        assert (refused.status, said in refused.body["error"]["message"]) == (status, True), refused.body


def test_a_run_whose_heads_all_read_pairs_is_served(place: Place, tmp_path: Path) -> None:
    run = shutil.copytree(place.run, tmp_path / "run")
    for name in ("mood", "names", "play"):
        shutil.rmtree(run / "heads" / name)
    with serving(f"pairs={run}", precision="fp32") as (_, address):
        said = ask(address, "/v1/classify", {"input": [PAIRS[0]]})
        assert said.status == 200, said.body
