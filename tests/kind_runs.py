"""One tiny run of each kind of task, made by the command, for all end-to-end tests that only read it.

Where a kind of model or of training makes the run folder another one, as adapters do, it is a kind here.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from seqeval.metrics import f1_score

from bertkit import BertConfig, BertForMaskedLM
from bertkit.cli import main
from bertkit.tasks import Columns, csv_task, get_task, ner_task
from embedding_data import untrained, write_data
from finetune_data import BAD, GOOD, OTHER, drawn, labelled_texts, no_pictures, tiny_start, write_splits
from kinds_data import (
    LISTED,
    encoder_decoder,
    sentences,
    tagger_start,
    write_choices,
    write_queries,
    write_questions,
    write_reversed,
)
from pipeline_helpers import save_tiny

Row = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """What differs between the runs of kinds, and what they must show.

    write_data: writes train and dev into a folder.
    write_start: writes the checkpoint that the run starts from.
    options: of ``bertkit finetune``.
    task_of: the task of a folder of data, as the run must have kept it.
    metrics: the main one, and all where no other may be there.
    floors: scores that a tiny model reaches.
    beside: of the baseline: a metric, and the values between which it is.
    protocol: what the protocol says, among other things.
    card: texts that stand in the model card.
    files: what is in the run folder, among other files.
    weights: the file with the weights.
    dev: the file of dev and its number of rows.
    own_score: of the rows of the predictions, a score computed another way.
    stopped: for a shorter run that is stopped at a step: changes to the settings; none: it is the run itself.
    stop_at: that step.
    killed: stopped by an error, after which only what was saved before is there; else by Ctrl-C.
    draws: pictures as well.
    """

    task: str
    write_data: Callable[[Path], object]
    write_start: Callable[[Path], object]
    options: str
    task_of: Callable[[Path], Any]
    metrics: tuple[str, ...]
    floors: dict[str, float]
    protocol: dict[str, Any]
    card: tuple[str, ...]
    dev: tuple[str, int]
    beside: tuple[str, float, float] | None = None
    files: tuple[str, ...] = ("errors-dev.jsonl",)
    weights: str = "model.safetensors"
    own_score: tuple[str, Callable[[list[Row]], float]] | None = None
    stopped: dict[str, Any] = field(default_factory=dict)
    stop_at: int = 3
    killed: bool = False
    draws: bool = False

    def make(self, folder: Path) -> Path:
        self.write_data(folder / "data")
        self.write_start(folder / "start")
        where = ["--data", folder / "data", "--model", folder / "start", "--out", folder / "run"]
        with drawn() if self.draws else no_pictures():
            assert main(["finetune", self.task, *map(str, where), *shlex.split(self.options), "--quiet"]) == 0
        return folder


@dataclass(frozen=True)
class Made:
    """A kind with the folders of its data, its start checkpoint and its run."""

    kind: Kind
    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def start(self) -> Path:
        return self.folder / "start"

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def told(self) -> Any:
        """The content of ``metrics.json``."""
        return json.loads((self.run / "metrics.json").read_text())

    def rows(self) -> list[Row]:
        """What the run predicted of dev."""
        return [json.loads(line) for line in (self.run / "predictions-dev.jsonl").read_text().splitlines()]


def share_right(rows: list[Row]) -> float:
    return float(np.mean([row["gold"] == row["predicted"] for row in rows]))


def first_relevant(rows: list[Row]) -> float:
    return float(np.mean([row["gold"][row["predicted"][0]] for row in rows]))


def seqeval_f1(rows: list[Row]) -> float:
    return float(f1_score([row["gold"] for row in rows], [row["predicted"] for row in rows]))


def splits(write: Callable[[Path, int, int], object], *files: tuple[str, int]) -> Callable[[Path], None]:
    """Writes files of so many rows, with a seed each."""

    def written(folder: Path) -> None:
        folder.mkdir(parents=True)
        for seed, (name, count) in enumerate(files):
            write(folder / name, count, seed)

    return written


def tagged(folder: Path) -> None:
    """Some dev sentences are longer than the model reads, so that they are several windows."""
    folder.mkdir(parents=True)
    (folder / "train.conll").write_text(sentences(200, 1))
    (folder / "dev.conll").write_text(sentences(40, 2) + sentences(6, 3, longest=30))


def masked_lm(folder: Path) -> None:
    """One that knows nothing."""
    untrained(folder, sentence=False)
    torch.manual_seed(0)
    BertForMaskedLM(BertConfig.from_json_file(folder / "config.json")).save_pretrained(folder)


def labelled(train: int, dev: int, seeds: tuple[int, int]) -> Callable[[Path], object]:
    return lambda folder: write_splits(folder, labelled_texts(train, seeds[0]), labelled_texts(dev, seeds[1]))


def varied(folder: Path) -> object:
    folder.mkdir(parents=True)
    return save_tiny(folder, initializer_range=0.05)


def reversing(task: str = "text2text") -> Any:
    """A task of writing with the columns of :func:`kinds_data.write_reversed`."""
    from dataclasses import replace

    columns: Any = {"columns": Columns(text=("words",), label=("reversed",))}
    return replace(get_task(task), **columns)  # type: ignore[type-var]


def answering(task: str) -> Kind:
    """Questions in texts, all of which have an answer, or not."""

    def write(path: Path, count: int, seed: int) -> None:
        write_questions(path, count, seed, no_answers=task == "squad2")

    def start(folder: Path) -> object:
        folder.mkdir(parents=True)
        return save_tiny(folder)

    return Kind(
        task=task,
        write_data=splits(write, ("train.json", 256), ("dev.json", 48)),
        write_start=start,
        options="--epochs 5 --learning-rate 3e-3 --max-length 40 --doc-stride 12 --batch-size 16 --device cpu",
        task_of=lambda data: get_task(task),
        metrics=("f1",),
        floors={"f1": 0.9},
        protocol={"doc_stride": 12, "max_query_length": 64, "max_answer_length": 30, "data": {"max_length": 40}},
        card=("question-answering",),
        files=("errors-dev.jsonl", "decision.json"),
        dev=("dev.json", 48),
        stopped={"epochs": 1},
    )


PAIRS = "--learning-rate 5e-3 --epochs 6 --batch-size 16"
KINDS = {
    "choices": Kind(
        task="swag",
        write_data=splits(write_choices, ("train.csv", 120), ("val.csv", 40)),
        write_start=varied,
        options="--learning-rate 3e-3 --epochs 12 --precision fp32 --batch-size 8 --max-length 24",
        task_of=lambda data: get_task("swag"),
        metrics=("accuracy",),
        floors={"accuracy": 0.9},
        protocol={"what_it_predicts": "choice", "data": {"train_rows": 120}},
        card=("pipeline_tag: multiple-choice",),
        dev=("val.csv", 40),
        own_score=("accuracy", share_right),
    ),
    "answers": answering("squad"),
    "answers or none": answering("squad2"),
    "tags": Kind(
        task="ner",
        write_data=tagged,
        write_start=tagger_start,
        options="--learning-rate 5e-3 --epochs 8 --precision fp32 --batch-size 16 --max-length 24 --seeds 2",
        task_of=ner_task,
        metrics=("f1", "precision", "recall", "macro_f1", "strict_f1", "tag_accuracy", "loss"),
        floors={"f1": 0.9},
        beside=("f1", 0.9, 1.0),
        protocol={"labelled_pieces": "first of a word", "data": {"truncated_share": {"train": 0.0, "dev": 0.0}}},
        card=("token-classification", "`LOC`, `PER`"),
        files=("errors-dev.jsonl", "entities-dev.json", "predictions-dev.conll", "types.png"),
        dev=("dev.conll", 46),
        own_score=("f1", seqeval_f1),
        stopped={"seeds": 1, "epochs": 1},
        draws=True,
    ),
    "pairs": Kind(
        task="pairs",
        write_data=lambda folder: write_data(folder, "pairs"),
        write_start=untrained,
        options=PAIRS + " --patience 0 --matryoshka 16,8 --query-prompt 'find find '",
        task_of=lambda data: get_task("pairs"),
        metrics=("ndcg@10",),
        floors={"ndcg@10": 0.9},
        beside=("ndcg@10", 0.0, 0.0),  # no word of an anchor is in its positive
        protocol={"loss": "in-batch", "matryoshka": [16, 8]},
        card=("pipeline_tag: feature-extraction", "sentence-transformers"),
        dev=("dev.csv", 16),
        # With batches in parts, so that the second passes are replayed after the restart as well.
        stopped={"epochs": 1, "max_tokens": 60, "max_train_rows": 100},
        killed=True,
    ),
    "sparse": Kind(
        task="sparse-pairs",
        write_data=lambda folder: write_data(folder, "pairs", train=240),
        write_start=masked_lm,
        options=PAIRS + " --precision fp32 --max-length 12",
        task_of=lambda data: get_task("sparse-pairs"),
        metrics=("ndcg@10",),
        floors={"ndcg@10": 0.5},
        protocol={"document_flops": 3e-5},
        card=(),
        files=(),
        dev=("dev.csv", 16),
        stop_at=20,
    ),
    "rerank": Kind(
        task="rerank",
        write_data=splits(write_queries, ("train.csv", 80), ("dev.csv", 30)),
        write_start=varied,
        options="--learning-rate 3e-3 --epochs 3 --batch-size 8 --max-length 24",
        task_of=lambda data: get_task("rerank"),
        metrics=("ndcg@10",),
        floors={"mrr@10": 0.95},
        beside=("mrr@10", 0.0, 0.9),
        protocol={"rank_loss": "listwise", "pooling": "cls"},
        card=("pipeline_tag: text-ranking",),
        dev=("dev.csv", 30),
        own_score=("recall@1", first_relevant),
    ),
    "texts": Kind(
        task="text2text",
        write_data=write_reversed,
        write_start=lambda folder: encoder_decoder(folder, LISTED),
        options="--source words --target reversed --learning-rate 2e-3 --epochs 10 --batch-size 64 "
        "--max-target-length 16",
        task_of=lambda data: reversing(),
        metrics=("exact_match",),
        floors={"exact_match": 0.95},
        beside=("exact_match", 0.0, 0.05),
        protocol={"max_target_length": 16},
        card=("pipeline",),
        dev=("dev.jsonl", 100),
        own_score=("exact_match", share_right),
        stopped={"epochs": 2, "learning_rate": 1e-3, "max_train_rows": 300, "num_beams": 2},
    ),
    "labels by a bart": Kind(
        task="csv",
        write_data=labelled(300, 60, (0, 1)),
        write_start=lambda folder: encoder_decoder(
            folder,
            [*GOOD, *BAD, *OTHER, *"0123456789", *"?.,"],
            head="Model",
            width=32,
            ffn=64,
            layers=1,
            longest=64,
            dropout=0.0,
            init_std=0.1,
        ),
        options="--epochs 6 --learning-rate 3e-3 --batch-size 16 --max-length 24 --device auto",
        task_of=lambda data: csv_task(data, text="text", label="label"),
        metrics=("accuracy",),
        floors={"accuracy": 0.9},
        protocol={"precision": "fp32", "what_is_trained": "all parameters"},
        card=(),
        dev=("dev.csv", 60),
        own_score=("accuracy", share_right),
    ),
    "adapters": Kind(
        task="csv",
        write_data=labelled(200, 60, (1, 2)),
        write_start=lambda folder: tiny_start(folder, width=32),
        options="--lora 4 --lora-alpha 8 --epochs 8 --batch-size 8 --learning-rate 0.01 --no-baseline --device cpu "
        "--precision fp32",
        task_of=csv_task,
        metrics=("accuracy",),
        floors={"accuracy": 0.85},
        protocol={"lora": {"lora_alpha": 8}},
        card=(),
        weights="adapter_model.safetensors",
        files=("errors-dev.jsonl", "adapter_config.json"),
        dev=("dev.csv", 60),
        own_score=("accuracy", share_right),
        stopped={"epochs": 2, "max_train_rows": 48, "lora_dropout": 0.1},
        stop_at=5,
        killed=True,
    ),
}
