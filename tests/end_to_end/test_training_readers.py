"""BARTs that read, beyond what every kind of run shows: labels, answers, classifiers of scikit-learn."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from bertkit import BartModel, BertClassifier, pipeline
from bertkit.errors import CheckpointError, ConfigError
from bertkit.tasks import csv_task
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from finetune_data import BAD, GOOD, OTHER, QUICK, labelled_texts, write_table
from pipeline_helpers import Command
from reader_folders import save_reader

KIND = "labels by a bart"
ACCURATE = 0.9


def write_questions(path: Path, count: int, seed: int) -> None:
    """SQuAD's form; the answer is the number behind "day". (The decoder reads the word before.)"""
    chance, paragraphs = random.Random(seed), []
    for number in range(count):
        words = chance.choices([word for word in (*GOOD, *BAD, *OTHER) if word not in ("day", "the", "a")], k=12)
        place, answer = chance.randrange(1, 12), str(chance.randrange(10))
        words[place - 1 : place + 1] = ["day", answer]
        start = len(" ".join(words[:place])) + 1
        question = {
            "id": f"{seed}-{number}",
            "question": "it is?",
            "answers": [{"text": answer, "answer_start": start}],
        }
        paragraphs.append({"context": " ".join(words), "qas": [question]})
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "days", "paragraphs": paragraphs}]}))


def labels_of(data: Path) -> Any:
    """The task of :func:`data`."""
    return csv_task(data, text="text", label="label")


def test_a_classifier_is_used(run: Path, command: Command) -> None:
    texts = ["a lovely film", "it was a sad and awful book", "the day is great"]
    pipe = pipeline(model=run, device="cpu")
    assert [label["label"] for label in pipe(texts)] == ["1", "0", "1"]
    _, out, _ = command("classify", "--model", run, *texts, "--device", "cpu")
    assert [line.split()[0] for line in out.splitlines()] == ["1", "0", "1"]
    theirs = transformers.BartForSequenceClassification.from_pretrained(run).eval()
    with torch.no_grad():
        logits = theirs(input_ids=torch.tensor([pipe.tokenizer(texts[1])["input_ids"]])).logits[0].numpy()
    ours = {label["label"]: label["score"] for label in pipe(texts[1], top_k=None, function_to_apply="none")}
    assert [ours["0"], ours["1"]] == pytest.approx(logits.tolist(), abs=1e-5)


def test_vectors_of_the_encoder_frozen(start: Path, data: Path, tmp_path: Path) -> None:
    """The head alone is trained, on vectors that are computed once; the model predicts what was scored."""
    config = FinetuneConfig(**{**QUICK, "epochs": 30, "learning_rate": 1e-2}, freeze_encoder=True)
    result = finetune(labels_of(data), data, start, tmp_path / "run", config, cache=tmp_path / "cache")
    assert result.scores["accuracy"] > 0.7
    assert list((tmp_path / "cache").iterdir())
    assert result.protocol["what_is_trained"] == "classification head on frozen </s> features"
    before, after = BartModel.from_pretrained(start), BartModel.from_pretrained(tmp_path / "run")
    for name, values in before.state_dict().items():
        assert torch.equal(values, after.state_dict()[name])
    rows = [json.loads(line) for line in (tmp_path / "run" / "predictions-dev.jsonl").read_text().splitlines()]
    found = pipeline(model=tmp_path / "run", device="cpu")([row["text"] for row in rows])
    assert [label["label"] for label in found] == [row["predicted"] for row in rows]


def test_answers_are_learned_and_used(start: Path, tmp_path: Path, command: Command) -> None:
    for name, count, seed in (("train", 256, 1), ("dev", 48, 2)):
        write_questions(tmp_path / f"{name}.json", count, seed)
    out, where = tmp_path / "run", ("--data", tmp_path, "--device", "-1", "-q")
    settings = "--epochs 6 --learning-rate 3e-3 --max-length 40 --doc-stride 12 --batch-size 16".split()
    code, _, err = command("finetune", "squad", *where, "--model", start, "--out", out, *settings)
    assert code == 0, err
    told = json.loads((out / "metrics.json").read_text())
    assert told["scores"]["f1"] > ACCURATE
    _, found, _ = command("evaluate", "squad", *where, "--model", out, "--json")
    assert json.loads(found)["scores"] == pytest.approx(told["scores"], abs=1e-6)
    context = "great film and lovely book day 7 is very good"
    _, found, _ = command("answer", "it is?", "--context", context, "--model", out, "--device", "cpu", "--json")
    assert json.loads(found)["answer"] == "7"
    assert pipeline(model=out, device="cpu")("it is?", context)["answer"] == "7"


@pytest.mark.parametrize(("task", "file"), [("sst2", "SST-2"), ("imdb", "imdb"), ("mrpc", "MRPC"), ("stsb", "STS-B")])
def test_tasks_of_texts(task: str, file: str, start: Path, tmp_path: Path) -> None:
    """Pairs, scores and long texts run as those of encoders; scores are no test here."""
    texts = labelled_texts(12, 3)
    for split in ("train", "dev"):
        where = tmp_path / "data" / file / f"{split}.tsv"
        if task in ("sst2", "imdb"):
            write_table(where, ("sentence" if task == "sst2" else "text", "label"), [*texts])
        elif task == "mrpc":
            rows = [(label, n, n, text, text) for n, (text, label) in enumerate(texts)]
            write_table(where, ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"), rows)
        else:
            names = ("index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2",
                     "score")  # fmt: skip
            write_table(where, names, [(n, *"abcdef", t, t, float(y)) for n, (t, y) in enumerate(texts)])
    config = FinetuneConfig(**{**QUICK, "epochs": 1}, class_weights="balanced" if task == "sst2" else "none")
    result = finetune(task, tmp_path / "data", start, tmp_path / "run", config)
    assert np.isfinite(result.scores["loss"])
    assert pipeline(model=tmp_path / "run", device="cpu").task == "text-classification"


@pytest.mark.campaign
def test_a_scikit_learn_classifier(start: Path, data: Path, tmp_path: Path) -> None:
    (texts, labels), (new, gold) = (zip(*labelled_texts(n, seed), strict=True) for n, seed in ((300, 0), (60, 1)))
    fitted = BertClassifier(start, epochs=6, learning_rate=3e-3, batch_size=16, max_length=24, device="auto")
    fitted.fit(list(texts), np.array(labels))
    expected = fitted.predict_proba(list(new))
    assert fitted.score(list(new), np.array(gold)) > ACCURATE
    fitted.save(tmp_path / "saved")
    for copy in (BertClassifier.load(tmp_path / "saved", device=-1), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_allclose(copy.predict_proba(list(new)), expected, atol=1e-6)
    frozen = BertClassifier(start, epochs=30, freeze_encoder=True, learning_rate=1e-2, max_length=24).fit(
        list(texts), np.array(labels)
    )
    assert frozen.score(list(new), np.array(gold)) > 0.7
    with pytest.raises(ConfigError, match="pooling is not for a bart: its classifier reads the last token"):
        BertClassifier(start, pooling="mean").fit(list(texts), np.array(labels))


def test_what_makes_no_sense_is_refused(start: Path, data: Path, tmp_path: Path) -> None:
    """With the reason, before anything is trained."""
    t5 = tmp_path / "t5"
    save_reader("ForConditionalGeneration", t5, family="t5")
    said = "t5 is an encoder-decoder without a classifier; it writes a label as text: use 'bertkit finetune text2text'"
    with pytest.raises(CheckpointError, match=said):
        finetune(labels_of(data), data, t5, tmp_path / "run")
    with pytest.raises(CheckpointError, match=said):
        BertClassifier(t5).fit(["a", "b"], [0, 1])
