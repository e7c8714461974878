"""Every kind of task from files to a run folder, its scores, and what evaluates, predicts and serves with it."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit import SentenceEncoder, pipeline
from bertkit.errors import CheckpointError, ConfigError
from bertkit.inference.evaluate import evaluate_run
from bertkit.inference.runs import open_run
from bertkit.metrics.probabilities import sigmoid
from bertkit.system.interrupts import Interrupted
from bertkit.tasks.registry import task_from_dict
from bertkit.training.finetuning.finetune import finetune, load_run_config
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.trainer.callbacks import AnyTrainer, Callback
from kind_runs import KINDS, Made
from pipeline_helpers import Command
from training_helpers import read_rows


@pytest.fixture(scope="module", params=KINDS)
def made(request: pytest.FixtureRequest, kinds: Callable[[str], Made]) -> Made:
    return kinds(request.param)


def test_the_run_folder_tells_all(made: Made) -> None:
    kind, told = made.kind, made.told()
    assert told["main_metric"] == kind.metrics[0]
    assert len(kind.metrics) == 1 or set(told["scores"]) == set(kind.metrics)
    for name, floor in kind.floors.items():
        assert told["mean"][name] > floor, "a tiny model learns it"
    if len(told["seeds"]) == 1:
        assert told["interval"][0] <= told["mean"][kind.metrics[0]] <= told["interval"][1]
    if kind.beside is not None:
        name, least, most = kind.beside
        assert least <= told["baseline"]["metrics"][name] <= most
    for name, value in kind.protocol.items():
        found = told["protocol"][name]
        assert value == ({key: found[key] for key in value} if isinstance(value, dict) else found), name
    card = (made.run / "README.md").read_text()
    assert all(text in card for text in kind.card)
    there = {path.name for path in made.run.iterdir()}
    assert there >= {*kind.files, "finetune.json", "log.jsonl"}
    assert {name for name in there if name.endswith(".safetensors")} == {kind.weights}
    saved = task_from_dict(json.loads((made.run / "finetune.json").read_text())["task"])
    assert saved == kind.task_of(made.data) == open_run(made.run).task


def test_the_scores_are_those_of_the_written_predictions(made: Made) -> None:
    rows = made.rows()
    assert len(rows) == made.kind.dev[1]
    if made.kind.own_score is not None:
        name, score = made.kind.own_score
        assert score(rows) == pytest.approx(made.told()["scores"][name], abs=1e-12)


def test_evaluation_says_the_same_as_the_run(made: Made, tmp_path: Path, command: Command) -> None:
    """Of the folder and by the command, which leaves what the run found on its own dev rows."""
    scores = pytest.approx(made.told()["scores"], abs=1e-5)
    again = evaluate_run(open_run(made.run).task, made.data, open_run(made.run), device="meta", write=False)
    assert again.scores == scores
    assert again.protocol["hardware"]["device"] == "cpu"  # where the model is, whatever was asked for
    copy = shutil.copytree(made.run, tmp_path / "run")
    own = {path: path.read_bytes() for path in copy.glob("*-dev.*")}
    assert {path.name for path in own} >= {name for name in made.kind.files if "-dev." in name}
    where = ("--data", made.data, "--model", copy, "--device", "cpu")
    code, out, err = command("evaluate", made.kind.task, *where, "--json", "-q")
    assert code == 0, err
    assert json.loads(out)["scores"] == scores
    assert {path: path.read_bytes() for path in own} == own


def test_a_file_is_predicted_as_it_was_scored(made: Made, tmp_path: Path, command: Command) -> None:
    out, file = tmp_path / "out.jsonl", made.data / made.kind.dev[0]
    code, _, err = command("predict", file, "--model", made.run, "--out", out, "--device", "cpu", "-q")
    assert code == 0, err
    found, expected = ([row["predicted"] for row in rows] for rows in (read_rows(out), made.rows()))
    assert found == (pytest.approx(expected, abs=1e-5, rel=1e-3) if isinstance(expected[0], float) else expected)


# ------------------------------------------------------------------------------------------- what serves them


def choices(run: Path, rows: list[Any]) -> None:
    questions = [{name: row[name] for name in ("context", "start", "choices")} for row in rows]
    for answer, row in zip(pipeline("multiple-choice", model=run, device="cpu")(questions), rows, strict=True):
        assert answer["index"] == row["predicted"]
        assert answer["scores"] == pytest.approx(row["probabilities"], abs=1e-5)


def tags(run: Path, rows: list[Any]) -> None:
    """Serving and scoring are one: same windows, same pieces, same tags."""
    pipe = pipeline("ner", model=run, device="cpu")
    found = pipe([row["text"] for row in rows], aggregation_strategy="first")
    assert pipe.decision == {"max_length": 24}
    for row, entities in zip(rows, found, strict=True):
        assert [(e["entity_group"], e["start"], e["end"], e["word"]) for e in entities] == [
            (e["type"], e["start"], e["end"], e["word"]) for e in row["entities"]
        ]


def pairs(run: Path, rows: list[Any]) -> None:
    encoder = SentenceEncoder(run)
    queries = encoder.encode_query([row["text"] for row in rows])
    documents = encoder.encode_document([row["text_pair"] for row in rows])
    assert [row["predicted"] for row in rows] == pytest.approx((queries * documents).sum(axis=1).tolist(), abs=1e-4)


def sparse(run: Path, rows: list[Any]) -> None:
    pipe = pipeline("sparse-encoding", model=run)
    assert pipe.max_length == 12
    anchors, positives = (pipe([row[name] for row in rows]) for name in ("text", "text_pair"))
    products = np.array([[anchor.dot(positive) for positive in positives] for anchor in anchors])
    assert [row["predicted"] for row in rows] == pytest.approx(products.diagonal().tolist(), rel=1e-3)
    ranks = (products > products.diagonal()[:, None]).sum(axis=1)
    scores = json.loads((run / "metrics.json").read_text())["scores"]
    assert scores["recall@1"] == pytest.approx((ranks == 0).mean(), abs=1e-6)
    assert scores["query_words"] == pytest.approx(np.mean([len(anchor.ids) for anchor in anchors]), abs=0.3)


def rerank(run: Path, rows: list[Any]) -> None:
    asked = [{"query": row["query"], "documents": row["documents"]} for row in rows]
    for ranked, row in zip(pipeline("text-ranking", model=run, device="cpu")(asked), rows, strict=True):
        scores = {found["index"]: found["score"] for found in ranked}
        assert [scores[n] for n in range(3)] == pytest.approx(sigmoid(np.array(row["logits"])).tolist(), abs=1e-4)


def texts(run: Path, rows: list[Any]) -> None:
    found = pipeline("text2text-generation", model=run, device="cpu")([row["source"] for row in rows])
    assert [each["generated_text"] for each in found] == [row["predicted"] for row in rows]


def labels(run: Path, rows: list[Any]) -> None:
    pipe = pipeline(model=run, device="cpu")
    assert pipe.task == "text-classification"
    for found, row in zip(pipe([row["text"] for row in rows], top_k=None), rows, strict=True):
        assert found[0]["label"] == row["predicted"]
        assert {each["label"]: each["score"] for each in found} == pytest.approx(row["probabilities"], abs=1e-4)


def answers(run: Path, rows: list[Any]) -> None:
    asked = [{"question": row["question"], "context": row["context"]} for row in rows]
    found = pipeline("question-answering", model=run, device="cpu")(asked, align_to_words=False)
    assert [answer["answer"] for answer in found] == [row["predicted"] for row in rows]
    assert [answer["score"] for answer in found] == pytest.approx([row["probability"] for row in rows], abs=1e-4)


SERVED = {
    "choices": choices,
    "answers": answers,
    "answers or none": answers,
    "tags": tags,
    "pairs": pairs,
    "sparse": sparse,
    "rerank": rerank,
    "texts": texts,
}


def test_the_pipeline_finds_what_the_evaluation_found(made: Made) -> None:
    (name,) = (name for name, kind in KINDS.items() if kind is made.kind)
    SERVED.get(name, labels)(made.run, made.rows())


# --------------------------------------------------------------------------------------------------- stopped


class Stop(Callback):
    def __init__(self, made: Made) -> None:
        self.kind = made.kind

    def on_step(self, trainer: AnyTrainer, record: Any) -> None:
        if record["step"] == self.kind.stop_at:
            if self.kind.killed:
                raise RuntimeError("killed")
            signal.raise_signal(signal.SIGINT)


#: Kinds whose state has something of its own: other passes, a penalty, generation, adapters. Others: in the campaign.
OWN_STATE = ("pairs", "sparse", "texts", "adapters")


@pytest.mark.parametrize(
    "made",
    [pytest.param(name, marks=() if name in OWN_STATE else pytest.mark.campaign) for name in KINDS],
    indirect=True,
)
def test_a_run_that_ended_early_goes_on_and_ends_alike(made: Made, tmp_path: Path) -> None:
    """With the weights and the predictions of one that did not."""
    kind, whole = made.kind, made.run
    changes = {**kind.stopped, "baseline": False, **({"checkpoint_every_s": 0.0} if kind.killed else {})}
    config = load_run_config(made.run).model_copy(update=changes)
    given = open_run(made.run).task, made.data, made.start
    if kind.stopped:
        whole = finetune(*given, tmp_path / "whole", config, cache=None).folder
    with pytest.raises(RuntimeError if kind.killed else Interrupted):
        finetune(*given, tmp_path / "parts", config, cache=None, callbacks=[Stop(made)])
    state = max((tmp_path / "parts" / "seed-0" / "checkpoints").glob("step-*"))
    assert int(state.name.removeprefix("step-")) == kind.stop_at - kind.killed
    if kind.weights != "model.safetensors":
        limit = 4 * (whole / kind.weights).stat().st_size + 20_000
        assert (state / "tensors.safetensors").stat().st_size < limit, "adapters, not the model"
    finetune(*given, tmp_path / "parts", config, cache=None, resume=True)
    for name in (kind.weights, "predictions-dev.jsonl"):
        assert (tmp_path / "parts" / name).read_bytes() == (whole / name).read_bytes()


# --------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("name", "task", "settings", "message"),
    [
        ("tags", "", {"class_weights": "balanced"}, "class_weights"),
        ("pairs", "", {"batch_size": 1}, "one alone teaches nothing"),
        ("pairs", "", {"loss": "cosent"}, "does not fit task pairs"),
        ("pairs", "scored-pairs", {"loss": "triplet"}, "does not fit task scored-pairs"),
        ("pairs", "scored-pairs", {"mine_negatives": 3}, "mine_negatives=3 has no effect"),
        ("pairs", "scored-pairs", {"symmetric": True}, "symmetric=True has no effect"),
        ("pairs", "", {"matryoshka": "64,8"}, "vectors have 32 numbers"),
        ("pairs", "", {"pooling": "cls"}, "pools by mean"),
        ("pairs", "", {"freeze_encoder": True}, "trains the encoder"),
        ("pairs", "sst2", {"loss": "cosine"}, "loss='cosine' has no effect"),
        ("sparse", "", {"lora": 2}, "lora"),
        ("texts", "", {"freeze_encoder": True}, "freeze_encoder is not for task text2text"),
        ("texts", "", {"layer_decay": 0.9}, "layer_decay is not for task text2text"),
        ("texts", "", {"class_weights": "balanced"}, "class_weights='balanced' has no effect"),
        ("texts", "", {"max_length": 65, "max_target_length": 64}, "max_length=65 but the model has 64 positions"),
        ("texts", "", {"max_target_length": 65}, "max_target_length=65 but the model has 64 positions"),
        ("texts", "sst2", {"max_target_length": 9}, "max_target_length=9 has no effect in task sst2"),
        ("labels by a bart", "", {"pooling": "mean"},
         "pooling is not for a bart: its classifier reads the last token of the decoder"),
        ("labels by a bart", "", {"layer_decay": 0.9},
         "layer_decay is not for a bart: encoder and decoder have layers of their own"),
        ("adapters", "", {"lora": 8, "freeze_encoder": True}, "with freeze_encoder.*choose one"),
        ("adapters", "", {"lora": 8, "protocol": "original"}, "lora cannot be combined with protocol 'original'"),
        ("adapters", "", {"lora_alpha": 8.0}, "lora_alpha needs lora"),
        ("adapters", "", {"lora_targets": "query"}, "lora_targets needs lora"),
        ("adapters", "", {"lora": 0}, "lora = 0"),
        ("adapters", "", {"lora": 8, "lora_dropout": 1.0}, "lora_dropout"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit(
    begun: Callable[[str], Made], name: str, task: str, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    made, out = begun(name), tmp_path / "run"
    with pytest.raises(ConfigError, match=message):
        finetune(task or made.kind.task_of(made.data), made.data, made.start, out, FinetuneConfig(**settings))
    assert not list(out.rglob("*")) or "matryoshka" in settings  # for which the model is read first


@pytest.mark.parametrize(
    ("name", "start", "message"),
    [
        ("texts", "tags", "task text2text needs a model that writes text"),
        ("sparse", "adapters", "masked-lm head"),
        ("tags", "labels by a bart", "bart is an encoder-decoder without a head for tokens; use an encoder"),
    ],
)
def test_models_that_do_not_fit(
    begun: Callable[[str], Made], name: str, start: str, message: str, tmp_path: Path
) -> None:
    made, out = begun(name), tmp_path / "run"
    with pytest.raises(CheckpointError, match=message):
        finetune(made.kind.task_of(made.data), made.data, begun(start).start, out)
    assert not list(out.rglob("*")) or name == "sparse"  # for which the model is read first
