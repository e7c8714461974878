"""Training of vectors, dense and sparse, beyond what every kind of run shows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bertkit.batch import pack
from bertkit.cli import main
from bertkit.errors import DataError, TrainingError
from bertkit.inference.evaluate import evaluate_run
from bertkit.model.sentence_model import SentenceModel
from bertkit.tasks import check_task, get_task
from bertkit.tasks.embeddings import mining
from bertkit.tasks.embeddings.batches import epoch_batches
from bertkit.tokenization import AutoTokenizer
from bertkit.training.finetuning.finetune import finetune, load_run_config
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.trainer import loop
from bertkit.training.trainer.batch_plan import WholeSteps
from bertkit.training.trainer.callbacks import AnyTrainer, Callback
from embedding_data import rows_of, untrained, write_data, write_rows
from kind_runs import Made
from pipeline_helpers import Command

KIND = "pairs"
QUICK: dict[str, Any] = {"learning_rate": 5e-3, "epochs": 6, "batch_size": 16, "patience": 0, "baseline": False}


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """Data of every kind."""
    folder = tmp_path_factory.mktemp("data")
    for kind, dev in (("triplets", 40), ("scored-pairs", 60)):
        write_data(folder / kind, kind, dev=dev)
    (folder / "pairs").symlink_to(data)
    return folder


def vectors_of(folder: Path, texts: list[str], width: int | None = None) -> np.ndarray:
    model, tokenizer = SentenceModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        found = model(pack([tokenizer(text)["input_ids"] for text in texts]))
    return found[:, :width].numpy()


def test_what_the_run_says_of_its_scores(made: Made) -> None:
    assert evaluate_run("pairs", made.data, made.start).scores["ndcg@10"] < 0.6, "untouched"
    told = made.told()
    assert told["seeds"][0]["label_entropy"] is None
    assert "find find" in json.dumps(told["protocol"])
    assert np.mean([row["predicted"] for row in made.rows()]) > 0.6


def test_short_vectors_say_as_much(run: Path) -> None:
    """Of 8 numbers, as trained: texts of a topic are nearer than any two of different topics."""
    texts = ["find find aq ar as", "text av aw ax", "find find bq br bs", "text bv bw bx"]
    vectors = vectors_of(run, texts, 8)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors @ vectors.T
    assert min(cosines[0, 1], cosines[2, 3]) > max(cosines[0, 3], cosines[2, 1]) + 0.3


def test_the_folder_says_how_texts_are_read(run: Path) -> None:
    settings = json.loads((run / "config_sentence_transformers.json").read_text())
    assert settings["prompts"] == {"query": "find find ", "document": "text "}
    assert json.loads((run / "sentence_bert_config.json").read_text())["max_seq_length"] == 12
    assert [entry["type"].rpartition(".")[2] for entry in json.loads((run / "modules.json").read_text())] == [
        "Transformer",
        "Pooling",
        "Normalize",
    ]


@pytest.mark.campaign
def test_sentence_transformers_loads_the_run(run: Path) -> None:
    package = pytest.importorskip("sentence_transformers")
    texts = ["aq ar as", "bv bw bx by", "cq"]
    theirs = package.SentenceTransformer(str(run), device="cpu")
    found = theirs.encode_query(texts)
    np.testing.assert_allclose(found, vectors_of(run, [f"find find {text}" for text in texts]), atol=1e-5)


@pytest.mark.parametrize(
    ("task", "settings", "least"),
    [
        ("triplets", {}, 0.9),
        ("triplets", {"loss": "triplet", "margin": 0.5}, 0.9),
        ("scored-pairs", {}, 0.65),
        pytest.param("scored-pairs", {"loss": "cosine"}, 0.65, marks=pytest.mark.campaign),
        ("pairs", {"symmetric": True, "temperature": 0.1}, 0.9),
    ],
)
def test_every_loss_learns(
    task: str, settings: dict[str, Any], least: float, start: Path, more: Path, tmp_path: Path
) -> None:
    result = finetune(get_task(task), more / task, start, tmp_path / "run", FinetuneConfig(**QUICK, **settings))
    before = evaluate_run(task, more / task, start).scores[result.main_metric]
    assert before < 0.6
    assert result.scores[result.main_metric] > least


class Spoil(Callback):
    def on_begin(self, trainer: AnyTrainer) -> None:
        with torch.no_grad():
            next(trainer.model.parameters())[0] = torch.nan  # of [PAD], which no text has
            next(trainer.model.parameters())[2] = torch.nan  # of [CLS]


def test_a_batch_with_a_loss_that_is_not_finite_is_saved(start: Path, data: Path, tmp_path: Path) -> None:
    config = FinetuneConfig(**QUICK, max_train_rows=40)
    with pytest.raises(TrainingError, match="Rows of the batch"):
        finetune(get_task("pairs"), data, start, tmp_path / "run", config, callbacks=[Spoil()])
    (file,) = tmp_path.rglob("failed-step-*.safetensors")
    found = load_file(file)
    rows = json.loads(file.with_suffix(".json").read_text())["rows"]
    assert found["0/columns"].shape == (len(rows), 2)
    assert len(found["0/texts.lengths"]) == 2 * len(rows)
    assert found["0/texts.input_ids"].max() > 10


def test_steps_are_whole_and_the_same_in_every_run() -> None:
    def steps_of(epoch: int) -> list[Any]:
        return epoch_batches(np.arange(20).reshape(10, 2), 4, seed=0, epoch=epoch)

    plan = WholeSteps(list(range(10)), tuple, steps_of)
    assert plan.steps_per_epoch == 3
    assert plan.micro_batches(4) == [tuple(plan.rows(4))]
    assert plan.rows(4) == steps_of(1)[1].tolist()
    assert plan.size(4) == sum(plan.rows(4))
    assert sorted(row for step in range(3, 6) for row in plan.rows(step)) == list(range(10))


def test_parts_change_rounding_only(data: Path, tmp_path: Path) -> None:
    start = untrained(tmp_path / "start", dropout=0.0, sentence=False)
    runs = []
    for max_tokens in (30, 10_000):
        config = FinetuneConfig(**{**QUICK, "epochs": 1, "max_tokens": max_tokens, "max_train_rows": 150})
        runs.append(finetune(get_task("pairs"), data, start, tmp_path / str(max_tokens), config))
    texts = ["aq ar as", "bv bw bx by", "cq"]
    one, other = (vectors_of(run.folder, texts) for run in runs)
    np.testing.assert_allclose(one, other, atol=2e-3)
    assert np.abs(one - vectors_of(start, texts)).max() > 0.1


def test_negatives_are_mined_once(
    run: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A call that is killed after some of the vectors goes on; one that has found them reads them again."""
    monkeypatch.setattr(mining, "PART", 50)
    config = FinetuneConfig(**{**QUICK, "epochs": 1, "mine_negatives": 2, "max_train_rows": 150, "max_tokens": 500})
    given = get_task("pairs"), data, run, tmp_path / "run", config
    computed: list[int] = []
    right = mining.VectorEngine.vectors

    def vectors(self: Any, rows: Any, advance: Any) -> Any:
        if len(computed) == 2:
            computed.append(0)
            raise MemoryError
        computed.append(len(rows))
        return right(self, rows, advance)

    monkeypatch.setattr(mining.VectorEngine, "vectors", vectors)
    with pytest.raises(Exception, match="memory"):
        finetune(*given)
    assert computed == [50, 50, 0]
    finetune(*given)
    assert len(computed) > 4
    assert 50 * (len(computed) - 1) >= sum(computed)
    text = capsys.readouterr().err
    assert "mined" in text
    rows = [json.loads(line) for line in (tmp_path / "run" / mining.FOUND).read_text().splitlines()]
    assert len(rows) == 150
    found = [row for row in rows if row["negatives"]]
    assert len(found) > 100
    for row in found:
        assert all(each["cosine"] <= 0.95 * row["cosine"] + 1e-3 for each in row["negatives"])
    computed.clear()
    shutil.rmtree(tmp_path / "run" / "seed-0")
    for name in ("metrics.json", "log.jsonl"):
        (tmp_path / "run" / name).unlink()
    finetune(*given)
    assert computed == [32, 32], "the texts of dev alone: the negatives must be read from the run folder"


def test_pairs_without_negatives_and_rows_that_are_all_alike(start: Path, data: Path, tmp_path: Path) -> None:
    config = FinetuneConfig(**QUICK, loss="triplet")
    with pytest.raises(DataError, match=r"train.csv:2: no negative .*--mine-negatives"):
        finetune(get_task("pairs"), data, start, tmp_path / "run", config)
    same = write_rows(tmp_path / "same.csv", [{"anchor": "aq", "positive": "av"}] * 20)
    with pytest.raises(DataError, match="too few to hold any out"):
        finetune(get_task("pairs"), same, start, tmp_path / "run", FinetuneConfig(**QUICK))
    folder = tmp_path / "one"
    write_rows(folder / "train.csv", [{"anchor": f"a{letter}", "positive": "av"} for letter in "qrst"])
    write_rows(folder / "dev.csv", rows_of("pairs", 20, 3))
    with pytest.raises(DataError, match="all 4 training rows have the same text"):
        finetune(get_task("pairs"), folder, start, tmp_path / "run", FinetuneConfig(**QUICK))


def test_a_file_without_dev_and_columns_of_other_names(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"q": row["anchor"], "a": row["positive"]} for row in rows_of("pairs", 200, 1)]
    file = write_rows(tmp_path / "faq.jsonl", rows)
    options = "--learning-rate 5e-3 --epochs 2 --no-baseline --quiet --text q --text-pair a".split()
    where = ["--data", str(file), "--model", str(start), "--out", str(tmp_path / "run")]
    assert main(["finetune", "pairs", *where, *options]) == 0
    told = json.loads((tmp_path / "run/metrics.json").read_text())
    assert told["protocol"]["data"]["dev_held_out_of_train"]
    columns = json.loads((tmp_path / "run/finetune.json").read_text())["task"]["columns"]
    assert (columns["text"], columns["text_pair"]) == (["q"], ["a"])
    capsys.readouterr()
    assert main(["evaluate", "pairs", "--data", str(file), "--model", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_rows"] == told["protocol"]["data"]["dev_rows"]


# ---------------------------------------------------------------------------------------------------- sparse

SPARSE = get_task("sparse-pairs")


@pytest.fixture(scope="module")
def sparse(kinds: Callable[[str], Made]) -> Made:
    return kinds("sparse")


def test_sparse_vectors_find_more(sparse: Made) -> None:
    before = evaluate_run(SPARSE, sparse.data, sparse.start, write=False)
    told = sparse.told()
    assert told["scores"]["ndcg@10"] > before.scores["ndcg@10"] + 0.2
    assert told["baseline"]["name"] == "BM25"


def test_a_stronger_penalty_leaves_fewer_words(sparse: Made, tmp_path: Path) -> None:
    changes = {"query_flops": 0.3, "document_flops": 0.3, "baseline": False}
    settings = load_run_config(sparse.run).model_copy(update=changes)
    strict = finetune(SPARSE, sparse.data, sparse.start, tmp_path / "strict", settings)
    assert strict.scores["document_words"] < sparse.told()["scores"]["document_words"]


def test_the_loss_does_not_depend_on_when_results_are_read(
    sparse: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The penalties grow with the steps; on a GPU results are read every 20 steps."""
    settings = load_run_config(sparse.run).model_copy(update={"baseline": False, "epochs": 1})
    losses = []
    for name in ("later", "at-once"):
        if name == "later":
            monkeypatch.setattr(loop, "runs_ahead", lambda device: True)
            monkeypatch.setattr(loop, "can_skip", lambda optimizer: True)
        finetune(SPARSE, sparse.data, sparse.start, tmp_path / name, settings)
        monkeypatch.undo()
        records = map(json.loads, (tmp_path / name / "log.jsonl").read_text().splitlines())
        losses.append([record["flops_loss"] for record in records if "event" not in record])
    assert len(losses[0]) > 2
    assert losses[0] == losses[1]


def test_commands_with_sparse_vectors(sparse: Made, command: Command, tmp_path: Path) -> None:
    code, out, _ = command("embed", "--sparse", "--model", sparse.run, "aq ar as", "--json", "-q")
    assert code == 0
    assert json.loads(out)["embedding"]
    where = ["--data", sparse.data, "--model", sparse.start, "--out", tmp_path / "run", "-q"]
    code, _, err = command("finetune", "sparse-pairs", *where, "--temperature", "0.1")
    assert (code, "has no effect" in err) == (2, True)
    assert check_task(SPARSE, sparse.data)[-1].startswith("the task survives")
