"""Labels by thresholds, of the run that trained a model or set by whoever serves it or asks; and none: abstention."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bertkit import BertForSequenceClassification, pipeline
from bertkit.config.decision import write_decision
from bertkit.errors import ConfigError
from pipeline_helpers import VOCABULARY, save_tiny
from server_helpers import LABELS, ask, serving

WORDS = [word for word in VOCABULARY if word.isalpha()]
TEXTS = [f"{one} {other}" for one in WORDS[:6] for other in WORDS[3:9]]
TWO = {"id2label": {0: "fine", 1: "threat"}}
KEY = "for admins only"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two labels, of several that do not exclude each other, each with thresholds of a run; and without them."""
    folder = tmp_path_factory.mktemp("models")
    save_tiny(folder / "two", BertForSequenceClassification, **TWO)
    save_tiny(folder / "several", BertForSequenceClassification, problem_type="multi_label_classification", **LABELS)
    for name, label in (("two", "threat"), ("several", "bad")):
        pipe = pipeline("text-classification", model=folder / name)
        scores = sorted(one["score"] for found in pipe(TEXTS, top_k=None) for one in found if one["label"] == label)
        middle = len(scores) // 3
        thresholds = {"bad": 0.5, "good": 0.5, "dull": 0.5} if name == "several" else {}
        write_decision(folder / name, {"thresholds": {**thresholds, label: (scores[middle] + scores[middle + 1]) / 2}})
    save_tiny(folder / "plain", BertForSequenceClassification, **LABELS)
    return folder


@pytest.fixture(scope="module")
def address(models: Path) -> Iterator[str]:
    given = [f"{path.name}={path}" for path in sorted(models.iterdir())]
    with serving(*given, thresholds=("plain:good=0.7", "plain:dull=1")) as (_, address):
        yield address


def classified(address: str, model: str, **fields: Any) -> dict[str, Any]:
    reply = ask(address, "/v1/classify", {"model": model, "input": TEXTS, **fields})
    assert reply.status == 200, reply.body
    found: dict[str, Any] = reply.body
    return found


def test_labels_are_chosen_as_the_pipeline_chooses_them(models: Path, address: str) -> None:
    pipe = pipeline("text-classification", model=models / "two")
    expected = [one["label"] for one in pipe(TEXTS)]
    likeliest = [ranked[0]["label"] for ranked in pipe(TEXTS, top_k=None)]
    assert expected != likeliest, "the threshold matters"
    found = classified(address, "two", top_k=1)
    assert found["chosen"] == expected
    assert not any(found["abstained"])
    assert [ranked[0]["label"] for ranked in found["results"]] == likeliest
    vllm = ask(address, "/classify", {"model": "two", "input": TEXTS}).body["data"]
    assert [one["label"] for one in vllm] == expected
    pipe = pipeline("text-classification", model=models / "several")
    chosen = [{one["label"] for one in found} for found in pipe(TEXTS, top_k="chosen")]
    assert len({len(labels) for labels in chosen}) > 1, "some have more labels than others"
    assert list(map(set, classified(address, "several")["chosen"])) == chosen


def test_a_classifier_abstains_below_a_threshold_that_was_set(address: str) -> None:
    found = classified(address, "plain")
    assert 0 < sum(found["abstained"]) < len(TEXTS)
    least = {"bad": 0.0, "good": 0.7, "dull": 1.0}
    for ranked, chosen, abstained in zip(found["results"], found["chosen"], found["abstained"], strict=True):
        best = ranked[0]
        assert chosen == (best["label"] if best["score"] >= least[best["label"]] else None)
        assert abstained == (chosen is None)
    vllm = ask(address, "/classify", {"model": "plain", "input": TEXTS}).body["data"]
    assert [one["label"] for one in vllm] == found["chosen"]
    asked = classified(address, "plain", thresholds={"good": 0.0, "dull": 0.0})
    assert asked["chosen"] == [ranked[0]["label"] for ranked in asked["results"]]
    assert all(classified(address, "plain", threshold=1.0)["abstained"])


def test_moderations_flag_by_the_thresholds(address: str) -> None:
    for model, label in (("two", "threat"), ("several", "bad")):
        found = ask(address, "/v1/moderations", {"model": model, "input": TEXTS}).body["results"]
        chosen = classified(address, model)["chosen"]
        assert [one["categories"][label] for one in found] == [label in (labels or ()) for labels in chosen]
        assert [one["flagged"] for one in found] == [any(one["categories"].values()) for one in found]
        at_half = [one["category_scores"][label] >= 0.5 for one in found]
        assert at_half != [one["categories"][label] for one in found], "the threshold matters"


def test_thresholds_that_cannot_be(models: Path, address: str) -> None:
    for fields, said in (
        ({"thresholds": {"god": 0.5}}, "bad, good, dull"),
        ({"thresholds": {"good": 1.5}}, "thresholds"),
        ({"thresholds": {"good": 0.5}, "function": "none"}, "function"),
    ):
        reply = ask(address, "/v1/classify", {"model": "plain", "input": "film", **fields})
        assert (reply.status, said in reply.body["error"]["message"]) == (422, True), reply.body
    assert "chosen" not in ask(address, "/v1/classify", {"model": "plain", "input": "film", "function": "none"}).body
    plain = f"plain={models / 'plain'}"
    for given, said in (("good", "LABEL=SHARE"), ("good=2", "LABEL=SHARE"), ("=0.5", "LABEL=SHARE")):
        with pytest.raises(ConfigError, match=said), serving(plain, thresholds=(given,)):
            pass
    with (
        pytest.raises(ConfigError, match=r"plain:good=0\.5"),
        serving(plain, f"two={models / 'two'}", thresholds=("good=0.5",)),
    ):
        pass
    with serving(plain, thresholds=("god=0.5",)) as (app, _):
        assert app.service.models.slots["plain"].facts.state == "failed"
        assert "'god'" in str(app.service.models.slots["plain"].facts.error)


def test_info_says_how_a_model_decides(address: str) -> None:
    models = {one["name"]: one["decides"] for one in ask(address, "/v1/info").body["models"]}
    assert models["plain"]["least"] == {"good": 0.7, "dull": 1.0}
    assert set(models["two"]["tuned"]) == {"threat"}
    assert models["several"]["several"]
