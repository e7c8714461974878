"""The pipeline of rerankers: equal to transformers and a sigmoid; what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertkit import BertForSequenceClassification, pipeline
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import config_path
from bertkit.errors import CheckpointError, InputError
from bertkit.metrics.probabilities import sigmoid
from pipeline_helpers import TOLERANCES, save_tiny

transformers = pytest.importorskip("transformers")

QUERY = "the good film"
DOCUMENTS = ["a great scene", "the dull end of it", "bad", "not very good . it was a bad film"]
IDENTITY = "torch.nn.modules.linear.Identity"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("ranker"), BertForSequenceClassification, num_labels=1)


def logits_elsewhere(folder: Path) -> Any:
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer([QUERY] * len(DOCUMENTS), DOCUMENTS, padding=True, return_tensors="pt")
    with torch.inference_mode():
        return model(**ids).logits[:, 0].numpy()


def with_note(folder: Path, home: Path, **keys: Any) -> Path:
    """A copy of a model with more keys in its config.json."""
    home.mkdir(parents=True)
    for file in folder.iterdir():
        (home / file.name).write_bytes(file.read_bytes())
    values = json.loads((home / "config.json").read_text())
    (home / "config.json").write_text(json.dumps(values | keys))
    return home


def test_equal_to_transformers_and_a_sigmoid(folder: Path) -> None:
    logits = logits_elsewhere(folder)
    for precision in ("fp32", "auto"):
        pipe = pipeline("text-ranking", model=folder, device="cpu", precision=precision)
        found = pipe(QUERY, DOCUMENTS)
        assert [row["index"] for row in found] == np.argsort(-logits).tolist()
        assert [row["text"] for row in found] == [DOCUMENTS[row["index"]] for row in found]
        tolerance = TOLERANCES[precision]
        assert [row["score"] for row in found] == pytest.approx(np.sort(sigmoid(logits))[::-1].tolist(), abs=tolerance)
        raw = pipe(QUERY, DOCUMENTS, function_to_apply="none")
        assert [row["score"] for row in raw] == pytest.approx(np.sort(logits)[::-1].tolist(), abs=10 * tolerance)
    assert len({round(row["score"], 3) for row in found}) == 4, "control: documents differ"


def test_shapes_and_top_k(folder: Path) -> None:
    pipe = pipeline("text-ranking", model=folder, device="cpu", precision="fp32")
    asked = [{"query": QUERY, "documents": DOCUMENTS}, {"query": "a scene", "documents": DOCUMENTS[:1]}]
    one, other = pipe(asked)
    assert pipe(asked[0]) == pipe(QUERY, documents=DOCUMENTS)
    assert [row["index"] for row in pipe(asked[0])] == [row["index"] for row in one]
    assert len(other) == 1
    assert list(pipe(iter(asked), top_k=2)) == [one[:2], other]
    same = pipe(QUERY, ["bad", "bad", "bad"])
    assert [row["index"] for row in same] == [0, 1, 2]


@pytest.mark.parametrize(
    ("note", "function"),
    [
        ({"sentence_transformers": {"activation_fn": IDENTITY, "version": "4.1.0"}}, "none"),
        ({"sbert_ce_default_activation_function": IDENTITY}, "none"),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}, "sigmoid"),
        ({"sentence_transformers": {"version": "4.1.0"}}, "sigmoid"),
    ],
)
def test_the_activation_of_the_checkpoint(folder: Path, tmp_path: Path, note: dict[str, Any], function: Any) -> None:
    noted = with_note(folder, tmp_path / "noted", **note)
    pipe = pipeline("text-ranking", model=noted, device="cpu", precision="fp32")
    assert pipe(QUERY, DOCUMENTS) == pipe(QUERY, DOCUMENTS, function_to_apply=function)
    pipe.model.save_pretrained(tmp_path / "again")  # and it is kept when the model is saved
    config = BertConfig.from_json_file(config_path(tmp_path / "again"))
    assert config.activation_fn == (IDENTITY if function == "none" else pipe.config.activation_fn)


def test_settings_beside_the_classifier(folder: Path, tmp_path: Path) -> None:
    """As release 6 of sentence-transformers writes them."""
    home = with_note(folder, tmp_path / "six")
    settings = {"model_type": "CrossEncoder", "activation_fn": IDENTITY, "default_prompt_name": None, "prompts": {}}
    (home / "config_sentence_transformers.json").write_text(json.dumps(settings))
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
    ]
    (home / "modules.json").write_text(json.dumps(modules))
    pipe = pipeline("text-ranking", model=home, device="cpu", precision="fp32")
    assert pipe(QUERY, DOCUMENTS) == pipe(QUERY, DOCUMENTS, function_to_apply="none")
    more = [*modules, {"idx": 1, "name": "1", "path": "1_Dense", "type": "sentence_transformers.base.modules.Dense"}]
    (home / "modules.json").write_text(json.dumps(more))
    with pytest.raises(CheckpointError, match="the modules Transformer, Dense"):
        pipeline("text-ranking", model=home, device="cpu")
    (home / "modules.json").write_text(json.dumps(modules))
    (home / "config_sentence_transformers.json").write_text(json.dumps(settings | {"default_prompt_name": "query"}))
    with pytest.raises(CheckpointError, match="default prompt 'query'"):
        pipeline("text-ranking", model=home, device="cpu")


def test_what_is_refused(folder: Path, tmp_path: Path) -> None:
    noted = with_note(folder, tmp_path / "noted", sbert_ce_default_activation_function="my.Own")
    pipe = pipeline("text-ranking", model=noted, device="cpu")
    with pytest.raises(CheckpointError, match=r"by 'my\.Own'"):
        pipe(QUERY, DOCUMENTS)
    assert len(pipe(QUERY, DOCUMENTS, function_to_apply="none")) == 4
    for given, said in (
        ((QUERY,), "a query needs documents="),
        ((QUERY, []), "the query has no documents"),
        ((QUERY, "bad"), "must be a list of texts, got str"),
        ((QUERY, ["bad", 3]), "holds a int, 3"),
        (([{"query": QUERY}],), "query 0 must be a dict with 'query' and 'documents'"),
        (([{"query": QUERY, "documents": ["bad"]}], ["bad"]), "goes with a single query"),
    ):
        with pytest.raises(InputError, match=said):
            pipe(*given, function_to_apply="none")
    with pytest.raises(InputError, match=r"query 0 with its document 1 .* 85 tokens"):
        pipe(QUERY, ["bad", "film " * 79], function_to_apply="none")
    (cut, whole) = sorted(pipe(QUERY, ["bad", "film " * 79], function_to_apply="none", truncation=True),
                          key=lambda row: -row["index"])  # fmt: skip
    assert (cut["truncated"], whole["truncated"]) == (True, False)
    with pytest.raises(InputError, match="function_to_apply='softmax' is unknown"):
        pipe(QUERY, DOCUMENTS, function_to_apply="softmax")
    with pytest.raises(InputError, match="top_k"):
        pipe(QUERY, DOCUMENTS, function_to_apply="none", top_k=0)
    two = save_tiny(tmp_path / "two", BertForSequenceClassification)
    with pytest.raises(CheckpointError, match=r"has 2: .*text-classification"):
        pipeline("text-ranking", model=two, device="cpu")
