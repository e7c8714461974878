"""Named entities as a user meets them, beyond what every kind of run shows: CoNLL files, types, tags."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from bertkit import BertForTokenClassification, BertModel, BertTokenizer
from bertkit.errors import ConfigError, DataError
from bertkit.inference.evaluate import evaluate_run
from bertkit.metrics.tags import read_entities
from bertkit.tasks import TokenTask, ner_task
from bertkit.tasks.workflow import workflow_of
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from kind_runs import Made
from kinds_data import sentences
from pipeline_helpers import Command
from training_helpers import read_rows

KIND = "tags"

QUICK: dict[str, Any] = {"learning_rate": 5e-3, "epochs": 8, "precision": "fp32", "batch_size": 16, "max_length": 24}


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_the_run_folder_tells_scores_by_type(made: Made) -> None:
    scores, table = made.told()["scores"], read(made.run / "entities-dev.json")
    assert set(table["default"]["by_type"]) == {"LOC", "PER"}
    assert table["default"]["micro"]["f1"] == pytest.approx(scores["f1"], abs=1e-12)
    assert table["strict"]["micro"]["f1"] == pytest.approx(scores["strict_f1"], abs=1e-12)
    assert (made.run / "types.png").read_bytes().startswith(b"\x89PNG")


def test_the_written_predictions_are_whole(made: Made) -> None:
    rows = made.rows()
    assert max(len(row["words"]) for row in rows) > 40, "long sentences are among them, whole"
    for row in rows:
        assert len(row["words"]) == len(row["gold"]) == len(row["predicted"])
        assert [entity["type"] for entity in row["entities"]] == [
            entity.type for entity in read_entities(row["predicted"])
        ]
        assert all(row["text"][e["start"] : e["end"]] == e["word"] for e in row["entities"])
    blocks = (made.run / "predictions-dev.conll").read_text().split("\n\n")
    first = zip(rows[0]["words"], rows[0]["gold"], rows[0]["predicted"], strict=True)
    assert [line.split("\t") for line in blocks[0].splitlines()] == [list(each) for each in first]


def test_evaluating_one_file_and_another(made: Made, tmp_path: Path, command: Command) -> None:
    scores, copy = made.told()["scores"], shutil.copytree(made.run, tmp_path / "copy")
    code, out, _ = command("evaluate", "ner", "--data", made.data / "dev.conll", "--model", copy, "--json", "-q")
    assert code == 0
    assert json.loads(out)["scores"] == pytest.approx(scores, abs=1e-6)
    _, out, _ = command("evaluate", "ner", "--data", made.data, "--model", copy, "-q")
    rows = [line.split() for line in out.splitlines()]
    assert ["type", "precision", "recall", "f1", "entities"] in rows
    assert [row[:5] for row in rows if row[0] == "(micro"][-1] == [
        "(micro",
        "average)",
        *(f"{scores[name]:.4f}" for name in ("precision", "recall", "f1")),
    ]
    own = {path: path.read_bytes() for path in made.run.glob("*-dev.*")}
    (tmp_path / "other.conll").write_text(sentences(20, 8))
    evaluate_run("ner", tmp_path / "other.conll", copy)
    assert {path: (copy / path.name).read_bytes() for path in own} == own, "what the run found on its own dev rows"
    (of_others,) = copy.glob("evaluation-predictions-other.conll-*.jsonl")
    (scored,) = copy.glob("evaluation-other.conll-*.json")
    assert len(read_rows(of_others)) == read(scored)["num_rows"] == 20
    assert read(scored)["split"] == "other.conll"


def test_files_are_read_as_those_that_the_run_learned_from(
    start: Path, data: Path, tmp_path: Path, command: Command
) -> None:
    """Words in the second column, tags in the first, columns between tabs, and no blank between the words."""
    for name in ("train", "dev"):
        lines = [line.split("\t") for line in (data / f"{name}.conll").read_text().splitlines()]
        rows = ["\t".join([line[1], line[0], "x"]) if len(line) > 1 else "" for line in lines]
        (tmp_path / f"{name}.conll").write_text("\n".join(rows) + "\n")
    task = ner_task(tmp_path, word_column=2, tag_column=1, joiner="_")
    config = FinetuneConfig(**{**QUICK, "epochs": 2}, baseline=False)
    scores = finetune(task, tmp_path, start, tmp_path / "run", config, cache=None).scores
    assert scores["f1"] > 0
    again = evaluate_run("ner", tmp_path, tmp_path / "run", write=False)
    assert again.scores == pytest.approx(scores, abs=1e-6)
    assert "_" in again.predictions[0]["text"]
    evaluate = ("evaluate", "ner", "--data", tmp_path, "--model", tmp_path / "run", "--json", "-q")
    code, out, _ = command(*evaluate)
    assert code == 0
    assert json.loads(out)["scores"] == pytest.approx(scores, abs=1e-6)
    _, out, _ = command(*evaluate, "--joiner", " ")  # one option is changed, the others stay the run's
    assert json.loads(out)["scores"]["loss"] != pytest.approx(scores["loss"], abs=1e-6)
    files = ("--data", data, "--word-column", 1, "--tag-column", 2, "--joiner", "_")
    _, out, _ = command("evaluate", "ner", *files, "--model", tmp_path / "run", "--json", "-q")
    assert json.loads(out)["scores"] == pytest.approx(scores, abs=1e-6)


def test_a_model_with_labels_in_another_order_scores_the_same(run: Path, tmp_path: Path) -> None:
    short = tmp_path / "dev.conll"
    short.write_text(sentences(20, 4))
    model = BertForTokenClassification.from_pretrained(run)
    names = list(model.config.id2label.values())
    order = [3, 1, 0, 4, 2]
    other = BertForTokenClassification(model.config.replace(id2label={n: names[o] for n, o in enumerate(order)}))
    state = model.state_dict()
    state["classifier.weight"], state["classifier.bias"] = (
        state["classifier.weight"][order],
        state["classifier.bias"][order],
    )
    other.load_state_dict(state)
    other.save_pretrained(tmp_path / "m")
    BertTokenizer.from_pretrained(run).save_pretrained(tmp_path / "m")
    (tmp_path / "m" / "tokenizer_config.json").write_bytes((run / "tokenizer_config.json").read_bytes())
    theirs = evaluate_run("ner", short, tmp_path / "m", write=False).scores
    assert theirs == pytest.approx(evaluate_run("ner", short, run, write=False).scores, abs=1e-6)


def test_types_that_the_model_does_not_know_are_an_error(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "dev.conll"
    file.write_text("Ann B-PER\nof O\nRome B-GPE\n")
    with pytest.raises(DataError, match=r"dev.conll:3: tag 'B-GPE' is of no known type.*'LOC', 'PER'"):
        evaluate_run("ner", file, run)
    with pytest.raises(ConfigError, match=r"predicts .* tagged in BIO"):
        evaluate_run(ner_task(file), file, run)


def test_tag(run: Path, command: Command, tmp_path: Path) -> None:
    text = "Ann Lee saw the train in Oslo."
    code, out, _ = command("tag", "-m", run, text, "home late")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == text
    assert [(line.split()[0], line.split()[2], line.split()[3]) for line in lines[1:3]] == [
        ("PER", "0:7", "Ann"),
        ("LOC", "25:29", "Oslo"),
    ]
    assert lines[3] == "home late"
    file = tmp_path / "texts.txt"
    file.write_text(text + "\r\nthe train\n", newline="")
    code, out, _ = command("tag", "-m", run, "--file", file, "--json", "--strategy", "average")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["text"] for row in rows] == [text, "the train"]
    assert [entity["word"] for entity in rows[0]["entities"]] == ["Ann Lee", "Oslo"]
    code, out, _ = command("tag", "-m", run, "--strategy", "none", "in Rome")
    assert out.splitlines()[1].split()[0] == "B-LOC"
    code, _, err = command("tag", "-m", run, "--strategy", "firstt", "x")
    assert (code, "first" in err) == (2, True)


def test_predict_tags_a_file_of_words(run: Path, command: Command, tmp_path: Path) -> None:
    file, out = tmp_path / "test.conll", tmp_path / "out.jsonl"
    file.write_text("Bob\nFox\nwent\nin\nLima\n\nthe\n")
    code, _, err = command("predict", "--model", run, file, "--out", out)
    assert code == 0, err
    first, second = (json.loads(line) for line in out.read_text().splitlines())
    assert first["predicted"] == ["B-PER", "I-PER", "O", "O", "B-LOC"]
    assert "gold" not in first
    assert second["entities"] == []
    for name in ("eng.testa", "mydev.conll", "train.conll"):  # whatever the name says
        file.rename(tmp_path / name)
        file = tmp_path / name
        code, _, err = command("predict", "--model", run, file, "--out", tmp_path / f"{name}.jsonl")
        assert code == 0, err
        assert (tmp_path / f"{name}.jsonl").read_text() == out.read_text()


def test_finetune_on_one_file_with_options(start: Path, data: Path, tmp_path: Path, command: Command) -> None:
    """Held-out sentences, other columns, every piece labelled; and the same again by --resume."""
    lines = [
        f"x\t{tag}\t{word}" if line else ""
        for line in (data / "train.conll").read_text().split("\n")
        for word, _, tag in [line.partition("\t")]
    ]
    file = tmp_path / "words.txt"
    file.write_text("\n".join(lines))
    arguments: list[object] = ["finetune", "ner", "--data", file, "--model", start, "--out", tmp_path / "run"]
    arguments += ["--word-column", 3, "--tag-column", 2, "--label-all-pieces", "--epochs", 2, "--max-length", 24]
    code, out, err = command(*arguments, "--json")
    assert code == 0, err
    protocol = json.loads(out)["protocol"]
    assert protocol["labelled_pieces"] == "all of a word"
    assert protocol["data"]["dev_held_out_of_train"]
    assert "entities: LOC" in err
    code, again, _ = command(*arguments, "--json", "--resume")
    assert json.loads(again)["scores"] == json.loads(out)["scores"]
    code, _, err = command("finetune", "ner", "--data", file, "--model", start, "--out", tmp_path / "r2", "--text", "x")
    assert (code, "but task csv does" in err) == (2, True)
    code, _, err = command("finetune", "sst2", "--data", file, "-m", start, "-o", tmp_path / "r2", "--tag-column", 2)
    assert (code, "but task ner does" in err) == (2, True)


def test_training_goes_on_from_a_head_for_the_same_tags(run: Path, data: Path, start: Path) -> None:
    def head(folder: Path, task: TokenTask, seed: int) -> torch.Tensor:
        model = workflow_of(task).new_model(folder, seed=seed, device=None, settings=FinetuneConfig())
        return model.classifier.weight.detach()  # type: ignore[no-any-return, union-attr]

    task = ner_task(data)
    kept = BertForTokenClassification.from_pretrained(run).classifier.weight
    assert torch.equal(head(run, task, 5), kept)
    assert torch.equal(head(start, task, 5), head(start, task, 5))
    assert not torch.equal(head(start, task, 5), head(start, task, 6))
    other = TokenTask("ner", ("LOC", "ORG", "PER"))
    assert head(run, other, 5).shape[0] == 7


def test_a_frozen_encoder_stays_as_it_is(start: Path, data: Path, tmp_path: Path) -> None:
    config = FinetuneConfig(**{**QUICK, "epochs": 1}, freeze_encoder=True, baseline=False)
    result = finetune("ner", data, start, tmp_path / "run", config, cache=None)
    assert "frozen" in result.protocol["what_is_trained"]
    before = BertModel.from_pretrained(start).state_dict()
    after = BertForTokenClassification.from_pretrained(tmp_path / "run").bert.state_dict()
    assert after
    assert all(torch.equal(after[name], before[name]) for name in after)
