"""Pre-training from text to a checkpoint: it learns, its scores are right, a stopped run goes on bit for bit."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from itertools import combinations
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch

from bertkit.data.examples.masking import Masking, MaskVocabulary
from bertkit.data.examples.pretrain_batches import PretrainData
from bertkit.errors import CheckpointError, ConfigError, ResourceError
from bertkit.model.models import BertForMaskedLM, BertForPreTraining
from bertkit.optim import OPTIMIZERS
from bertkit.system.interrupts import Interrupted
from bertkit.tokenization import BertTokenizer
from bertkit.training.pretraining import pretrain as module
from bertkit.training.pretraining.pretrain import make_schedule, pretrain
from bertkit.training.pretraining.pretrain_data import held_out_data, scored_batches, training_data
from bertkit.training.pretraining.pretrain_settings import Optimizer, PretrainConfig
from bertkit.training.trainer.assembly import RunOptions
from pretrain_helpers import batch_of
from pretrain_runs import SETTINGS, SHAPE, interrupt_after, weights


@pytest.mark.slow
def test_it_learns_and_leaves_a_checkpoint_that_loads(stores, tmp_path) -> None:
    config = SETTINGS.replace(max_steps=100, eval_every_steps=10, checkpoint_every_s=60)
    result = pretrain(stores[0], tmp_path / "run", config, model=SHAPE, dev=stores[1])
    first, last = result.progression.epochs[0], result.progression.epochs[-1]
    assert last["dev_masked_lm_loss"] < 0.5 * first["dev_masked_lm_loss"]
    assert result.scores["masked_lm_accuracy"] > 0.45  # "the", two words of seven, alone gives 0.29
    assert set(result.scores) == {
        "masked_lm_loss", "masked_lm_accuracy", "next_sentence_loss", "next_sentence_accuracy",
    }  # fmt: skip
    BertForMaskedLM.from_pretrained(result.model)
    BertTokenizer.from_pretrained(result.model)
    records = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if "event" not in record] == list(range(1, 101))
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_scores_are_those_of_a_plain_count(stores, tmp_path) -> None:
    """The four metrics against predictions made one example at a time, padded, by the saved model."""
    result = pretrain(stores[0], tmp_path / "run", SETTINGS, model=SHAPE, dev=stores[1])
    model = BertForPreTraining.from_pretrained(result.model).eval()
    tokenizer = stores[1].tokenizer()
    data = held_out_data(stores[1], MaskVocabulary.of_tokenizer(tokenizer), SETTINGS)
    losses, hits, pair_losses, pair_hits = [], [], [], []
    assert len(data.rows(0)) == SETTINGS.dev_examples
    for step in range(1):
        for row in data.rows(step):
            batch = batch_of(data, [row])
            with torch.no_grad():
                out = model(batch.input_ids[None], token_type_ids=batch.token_type_ids[None])
            rows = batch.logit_rows
            truth = batch.targets["labels"][rows]
            logits = out.prediction_logits[0, rows]
            losses += torch.nn.functional.cross_entropy(logits, truth, reduction="none").tolist()
            hits += (logits.argmax(-1) == truth).tolist()
            pair = batch.targets["next_sentence_label"]
            pair_losses.append(float(torch.nn.functional.cross_entropy(out.seq_relationship_logits, pair)))
            pair_hits.append(bool(out.seq_relationship_logits.argmax(-1) == pair))
    expected = {
        "masked_lm_loss": losses, "masked_lm_accuracy": hits,
        "next_sentence_loss": pair_losses, "next_sentence_accuracy": pair_hits,
    }  # fmt: skip
    for name, values in expected.items():
        assert result.scores[name] == pytest.approx(sum(values) / len(values), abs=1e-5), name


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm", "mlm+sop"])
def test_stopped_runs_go_on_bit_for_bit(stores, tmp_path, monkeypatch, objective) -> None:
    config = SETTINGS.model_copy(update={"objective": objective})
    pretrain(stores[0], tmp_path / "whole", config, model=SHAPE, dev=stores[1])
    interrupt_after(monkeypatch, 3, 8)
    for attempt in range(2):
        with pytest.raises(Interrupted):
            pretrain(stores[0], tmp_path / "parts", config, model=SHAPE, dev=stores[1], resume=attempt > 0)
    pretrain(stores[0], tmp_path / "parts", config, model=SHAPE, dev=stores[1])
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    losses = [
        [json.loads(line).get("loss") for line in (tmp_path / run / "log.jsonl").read_text().splitlines()]
        for run in ("whole", "parts")
    ]
    assert losses[0] == losses[1]


def test_a_model_that_cannot_be_written_costs_no_training(stores, tmp_path, monkeypatch) -> None:
    """A full disk at the very end: the same command, once there is room, only writes the model."""

    def full(*_args, **_kwargs):
        raise ResourceError("the disk is full")

    config = SETTINGS.replace(checkpoint_every_s=1000, max_steps=4)
    monkeypatch.setattr(BertForPreTraining, "save_pretrained", full)
    with pytest.raises(ResourceError):
        pretrain(stores[0], tmp_path / "run", config, model=SHAPE, dev=stores[1])
    monkeypatch.undo()
    monkeypatch.setattr(module.Trainer, "train_step", full)
    again = pretrain(stores[0], tmp_path / "run", config, model=SHAPE, dev=stores[1])
    assert again.progression.step == 4
    monkeypatch.undo()
    whole = pretrain(stores[0], tmp_path / "whole", config, model=SHAPE, dev=stores[1])
    assert again.scores == whole.scores
    a, b = weights(tmp_path / "run"), weights(tmp_path / "whole")
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_another_seed_gives_another_run(stores, tmp_path) -> None:
    """Control for the test above."""
    for seed in (0, 1):
        config = SETTINGS.model_copy(update={"seed": seed, "max_steps": 2})
        pretrain(stores[0], tmp_path / str(seed), config, model=SHAPE)
    a, b = weights(tmp_path / "0"), weights(tmp_path / "1")
    assert any(not torch.equal(a[name], b[name]) for name in a)


@pytest.mark.slow
def test_pre_training_goes_on_from_a_checkpoint(stores, tmp_path) -> None:
    config = SETTINGS.replace(max_steps=20, checkpoint_every_s=60)
    first = pretrain(stores[0], tmp_path / "first", config, model=SHAPE, dev=stores[1])
    start = BertForPreTraining.from_pretrained(first.model)
    brief = SETTINGS.model_copy(update={"max_steps": 2, "learning_rate": 1e-5})
    second = pretrain(stores[0], tmp_path / "second", brief, model=start, dev=stores[1])
    assert second.scores["masked_lm_loss"] == pytest.approx(first.scores["masked_lm_loss"], abs=0.05)


def test_clear_errors(stores, tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"max_stepz.*max_steps"):
        PretrainConfig(max_stepz=3)
    with pytest.raises(ConfigError, match="vocab_size=10"):
        pretrain(stores[0], tmp_path / "run", SETTINGS, model=SHAPE.replace(vocab_size=10))
    assert not (tmp_path / "run").exists()
    for changes, told in (
        ({"schedule": "trapezoid", "warmup": 0.6, "cooldown": 0.5}, "at most 1 together"),
        ({"max_seconds": 9.0, "schedule": "polynomial"}, "counts steps"),
    ):
        with pytest.raises(ConfigError, match=told):
            pretrain(stores[0], tmp_path / "other", PretrainConfig(**changes), model=SHAPE)
        assert not (tmp_path / "other").exists()


def test_refused_settings_leave_nothing_and_others_may_follow(stores, tmp_path, monkeypatch) -> None:
    """What only shows when the trainer is made: a device that has no bf16, a compiler that is not there."""

    def refuse(*_args):
        raise ConfigError("this device has no bf16; use precision fp32")

    monkeypatch.setattr("bertkit.training.trainer.loop.check_precision", refuse)
    with pytest.raises(ConfigError, match="use precision fp32"):
        pretrain(stores[0], tmp_path / "run", SETTINGS.replace(max_steps=1, precision="bf16"), model=SHAPE)
    assert not (tmp_path / "run").exists()
    monkeypatch.undo()
    with monkeypatch.context() as killed:  # between the settings and the first step
        killed.setattr(module.Trainer, "train_step", lambda _: (_ for _ in ()).throw(TimeoutError))
        with pytest.raises(TimeoutError):
            pretrain(stores[0], tmp_path / "run", SETTINGS.replace(max_steps=1, precision="bf16"), model=SHAPE)
    assert (tmp_path / "run" / "pretrain.json").exists()
    assert pretrain(stores[0], tmp_path / "run", SETTINGS.replace(max_steps=1), model=SHAPE).progression.step == 1


def test_the_callers_generators_are_as_before(stores, tmp_path) -> None:
    def drawn():
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    first = []
    for train in (False, True):
        random.seed(7)
        np.random.seed(7)
        torch.manual_seed(7)
        if train:
            pretrain(stores[0], tmp_path / "run", SETTINGS.replace(max_steps=2), model=SHAPE)
        first.append(drawn())
    assert first[0] == first[1] != drawn()


def test_a_finished_run_says_so(stores, tmp_path, capsys) -> None:
    brief = SETTINGS.replace(max_steps=1)
    first = pretrain(stores[0], tmp_path / "run", brief, model=SHAPE, dev=stores[1])
    model = (first.model / "model.safetensors").stat()
    again = pretrain(stores[0], tmp_path / "run", brief, model=SHAPE, dev=stores[1])
    assert "is finished; nothing to do" in capsys.readouterr().err
    assert again == first
    assert (first.model / "model.safetensors").stat() == model
    told = json.loads((tmp_path / "run" / "metrics.json").read_text())
    told["dev"]["masked_lm_loss"] = None  # what is written when it is not finite
    (tmp_path / "run" / "metrics.json").write_text(json.dumps(told))
    again = pretrain(stores[0], tmp_path / "run", brief, model=SHAPE, dev=stores[1])
    assert again.scores.keys() == first.scores.keys() - {"masked_lm_loss"}
    with pytest.raises(ConfigError, match=r"already holds a run\. Run the same command without --no-resume"):
        pretrain(stores[0], tmp_path / "run", brief, model=SHAPE, dev=stores[1], resume=False)
    with pytest.raises(CheckpointError, match="max_steps was 1, now 2"):
        pretrain(stores[0], tmp_path / "run", brief.replace(max_steps=2), model=SHAPE, dev=stores[1])


def test_resume_refuses_other_settings(stores, tmp_path, monkeypatch) -> None:
    def signalled(trainer):
        os.kill(os.getpid(), signal.SIGTERM)
        return taken(trainer)

    taken = module.Trainer.train_step
    monkeypatch.setattr(module.Trainer, "train_step", signalled)
    with pytest.raises(Interrupted):
        pretrain(stores[0], tmp_path / "run", SETTINGS, model=SHAPE)
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="without --no-resume"):
        pretrain(stores[0], tmp_path / "run", SETTINGS, model=SHAPE, resume=False)
    with pytest.raises(CheckpointError, match=r"store was '40 documents, .*now '12 documents") as refused:
        pretrain(stores[1], tmp_path / "run", SETTINGS, model=SHAPE)
    assert len(str(refused.value)) < 500
    other = SETTINGS.model_copy(update={"learning_rate": 1e-3})
    with pytest.raises(CheckpointError, match=r"learning_rate was 0\.003, now 0\.001"):
        pretrain(stores[0], tmp_path / "run", other, model=SHAPE)
    watched = SETTINGS.replace(keep_checkpoints=1, checkpoint_every_s=60, num_workers=2, max_tokens=64)
    assert pretrain(stores[0], tmp_path / "run", watched, model=SHAPE).progression.step == 12


@pytest.mark.campaign
@pytest.mark.slow
def test_a_run_goes_on_in_the_format_that_it_began_with(stores, tmp_path, monkeypatch) -> None:
    """On another processor too, where the other format is faster."""
    start, config = tmp_path / "start", SETTINGS.replace(precision=None)
    BertForPreTraining(SHAPE.replace(vocab_size=len(stores[0].tokenizer()))).save_pretrained(start)
    stores[0].tokenizer().save_pretrained(start)
    with monkeypatch.context() as first:
        first.setattr(module, "fastest_precision", lambda device: "bf16")
        pretrain(stores[0], tmp_path / "new", config, model=SHAPE)
        interrupt_after(first, 5)
        with pytest.raises(Interrupted):
            pretrain(stores[0], tmp_path / "run", config, model=start)
    monkeypatch.setattr(module, "fastest_precision", lambda device: "fp32")
    for run in ("run", "other"):
        pretrain(stores[0], tmp_path / run, config, model=start)
    pretrain(stores[0], tmp_path / "given", SETTINGS.replace(precision="bf16"), model=start)
    formats = {
        run: json.loads((tmp_path / run / "metrics.json").read_text())["settings"]["precision"]
        for run in ("run", "other", "new")
    }
    assert formats == {"run": "bf16", "other": "fp32", "new": "fp32"}
    found = {run: weights(tmp_path / run)["bert.pooler.dense.weight"] for run in ("run", "other", "given")}
    assert torch.equal(found["run"], found["given"])
    assert not torch.equal(found["run"], found["other"])


@pytest.mark.slow
def test_batches_made_ahead_change_nothing(stores, tmp_path, monkeypatch) -> None:
    """The same log and the same bits, over the ends of epochs, evaluations and a change of length."""
    makers: dict[str, set[bool]] = {}
    made = PretrainData.micro_batches

    def watched(data, step):
        makers[run].add(threading.current_thread() is threading.main_thread())
        return made(data, step)

    monkeypatch.setattr(PretrainData, "micro_batches", watched)
    logs = []
    for run, num_workers in (("none", 0), ("two", 2)):
        makers[run] = set()
        config = SETTINGS.replace(num_workers=num_workers, eval_every_steps=5, short_seq_length=16, short_share=0.5)
        pretrain(stores[0], tmp_path / run, config, model=SHAPE, dev=stores[1])
        records = [json.loads(line) for line in (tmp_path / run / "log.jsonl").read_text().splitlines()]
        timed = {"tokens_per_s", "peak_share", "seconds"}
        logs.append([{name: value for name, value in record.items() if name not in timed} for record in records])
    assert makers == {"none": {True}, "two": {False, True}}  # held-out batches are made where they are used
    assert logs[0] == logs[1]
    none, two = weights(tmp_path / "none"), weights(tmp_path / "two")
    assert all(torch.equal(none[name], two[name]) for name in none)


@pytest.mark.slow
@pytest.mark.parametrize("end", [None, ResourceError("the disk is full"), Interrupted("stopped", signal.SIGTERM)])
def test_no_thread_outlives_a_run(stores, tmp_path, monkeypatch, end) -> None:
    taken, seen = module.Trainer.train_step, set()

    def threads() -> set[str]:
        return {thread.name for thread in threading.enumerate() if thread.name.startswith("bertkit-batches")}

    def stopped(trainer):
        result = taken(trainer)
        seen.update(threads())
        if end is not None and trainer.at.step == 3:
            raise end
        return result

    monkeypatch.setattr(module.Trainer, "train_step", stopped)
    config = SETTINGS.replace(num_workers=2, max_steps=4)
    if end is None:
        pretrain(stores[0], tmp_path / "run", config, model=SHAPE)
    else:
        with pytest.raises(type(end)):
            pretrain(stores[0], tmp_path / "run", config, model=SHAPE)
    assert seen
    assert not threads()


def test_batches_are_made_ahead_beside_a_gpu_only() -> None:
    assert [module._num_workers(PretrainConfig(), torch.device(kind)) for kind in ("cpu", "cuda")] == [0, 1]
    assert [module._num_workers(PretrainConfig(num_workers=3), torch.device(kind)) for kind in ("cpu", "cuda")] == [
        3,
        3,
    ]


@pytest.mark.slow
def test_the_settings_reach_the_optimizer(stores, tmp_path) -> None:
    """Each optimizer by its name, and each setting of it, makes another model of the same two steps."""
    assert set(get_args(Optimizer)) == OPTIMIZERS.keys()
    changes = [{"optimizer": name} for name in OPTIMIZERS] + [{"adam_beta2": 0.9}, {"weight_decay": 0.5}]
    made = []
    for number, change in enumerate(changes):
        config = SETTINGS.replace(max_steps=2, **change)
        pretrain(stores[0], tmp_path / str(number), config, model=SHAPE)
        made.append(weights(tmp_path / str(number))["bert.encoder.layer.0.output.dense.weight"])
    assert all(not torch.equal(a, b) for a, b in combinations(made, 2))


def test_masking_of_training_and_of_held_out_text(stores) -> None:
    config = SETTINGS.replace(masking="whole-word", masked_lm_prob=0.4, max_predictions_per_seq=3, seed=5)
    vocabulary = MaskVocabulary.of_tokenizer(stores[0].tokenizer())
    train, dev = training_data(stores[0], vocabulary, config), held_out_data(stores[1], vocabulary, config)
    assert train.rules.masking == Masking("whole-word", 0.4, 3)
    assert dev.rules.masking == Masking()
    most = max(int((batch_of(train, [row]).targets["labels"] != -100).sum()) for row in range(20))
    assert most == 3
    again = held_out_data(stores[1], vocabulary, config.replace(seed=6))  # scores of several seeds can be compared
    assert torch.equal(batch_of(dev, [0, 1, 2]).input_ids, batch_of(again, [0, 1, 2]).input_ids)


def test_held_out_examples_do_not_depend_on_the_batch_size(stores) -> None:
    vocabulary = MaskVocabulary.of_tokenizer(stores[1].tokenizer())

    def read(**changes) -> list[int]:
        config = SETTINGS.replace(**changes)
        return [
            token
            for batch in scored_batches(held_out_data(stores[1], vocabulary, config), config.dev_examples)
            for token in batch.input_ids.tolist()
        ]

    assert read(batch_size=8) == read(batch_size=4096)
    assert read(batch_size=8, dev_examples=10**6) == read(batch_size=4096, dev_examples=10**6)
    data = held_out_data(stores[1], vocabulary, SETTINGS)
    steps = [len(data.rows(step)) for step in range(data.steps_per_epoch)]
    assert steps[:2] == [16, 16]
    for number, num_steps in ((1, 1), (16, 1), (17, 2), (10**6, len(steps))):
        counted = sum(len(batch.layout.lengths) for batch in scored_batches(data, number))
        assert counted == sum(steps[:num_steps])


def test_the_settings_reach_the_loop() -> None:
    values = {
        "max_steps": 7, "learning_rate": 2e-3, "max_grad_norm": 0.5, "checkpoint_every_s": 3.0, "max_seconds": 9.0,
        "precision": "bf16", "compile": True,
    }  # fmt: skip
    config = PretrainConfig(**values, keep_checkpoints=5, eval_every_steps=4)
    assert config.compile == "on"  # True is what earlier versions said
    options = module.loop_options(config, RunOptions(Path("run"), how_to_resume=module.ON_ITS_OWN), compiles=True)
    told = {**values, "num_steps": 7, "keep": 5, "evaluate_every_steps": 4}
    del told["max_steps"]
    assert {name: getattr(options, name) for name in told} == told
    assert "--resume" not in options.how_to_resume  # it goes on by itself


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"gradient_checkpointing": True}, {"precision": "bf16"}])
def test_less_memory(stores, tmp_path, change) -> None:
    """Layers computed again give the same bits; bf16 gives others, near them."""
    for name, config in (
        ("plain", SETTINGS.replace(max_steps=3)),
        ("changed", SETTINGS.replace(max_steps=3, **change)),
    ):
        pretrain(stores[0], tmp_path / name, config, model=SHAPE)
    plain, changed = weights(tmp_path / "plain"), weights(tmp_path / "changed")
    same = all(torch.equal(plain[name], changed[name]) for name in plain)
    assert same == ("gradient_checkpointing" in change)
    assert all(torch.allclose(plain[name], changed[name], atol=0.02) for name in plain)


def test_evaluation_every_few_steps(stores, tmp_path) -> None:
    config = SETTINGS.replace(eval_every_steps=5)
    result = pretrain(stores[0], tmp_path / "run", config, model=SHAPE, dev=stores[1])
    assert [epoch["step"] for epoch in result.progression.epochs] == [5, 10, 12]
    assert all(epoch["dev_masked_lm_loss"] > 0 for epoch in result.progression.epochs)


@pytest.mark.slow
def test_a_time_budget_ends_the_run(stores, tmp_path) -> None:
    config = PretrainConfig(**{**SETTINGS.model_dump(), "max_steps": None, "max_seconds": 0.2})
    result = pretrain(stores[0], tmp_path / "run", config, model=SHAPE)
    assert result.progression.stopped_by_time
    assert result.progression.seconds >= 0.2
    limited = config.replace(max_steps=2, max_seconds=600.0)
    assert pretrain(stores[0], tmp_path / "steps", limited, model=SHAPE).progression.step == 2


def test_schedules_by_steps_and_by_time() -> None:
    """Against the formulas, at a few places."""
    used = 0.0
    config = PretrainConfig(max_steps=100, warmup=0.1)
    shapes = {
        "linear": {55: 45 / 90},
        "polynomial": {55: 0.02 + 0.98 * (45 / 90) ** 2, 100: 0.02},
        "trapezoid": {55: 1.0, 90: 0.5},
        "original": {0: 0.0, 5: 0.5, 55: 0.45},
    }
    for shape, values in shapes.items():
        schedule = make_schedule(config.replace(schedule=shape, power=2, end_rate=0.02), lambda: used)
        assert {step: schedule(step) for step in values} == pytest.approx(values), shape
    both = make_schedule(config.replace(max_seconds=10.0), lambda: used)
    used = 9.0
    assert both(20) == pytest.approx(1 / 9)
    used = 2.0
    assert both(91) == pytest.approx(9 / 90)
