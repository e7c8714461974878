"""What a run tells: the unigram line, the work of a step, the curve, TensorBoard."""

from __future__ import annotations

import json
import math
import os
import signal
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bertkit.data.examples.masking import MaskVocabulary
from bertkit.errors import MissingExtraError
from bertkit.model.kernels import products
from bertkit.model.models import BertForPreTraining
from bertkit.system.interrupts import Interrupted
from bertkit.training.pretraining import pretrain as pretraining
from bertkit.training.pretraining import pretrain_report as module
from bertkit.training.pretraining import word_statistics as pretrain_unigram
from bertkit.training.pretraining.operations import MeasuredPlan, matmul_peak, training_flops
from bertkit.training.pretraining.pretrain import PretrainFolder, pretrain
from bertkit.training.pretraining.pretrain_data import training_data
from bertkit.training.pretraining.pretrain_report import Points, Report
from bertkit.training.pretraining.word_statistics import unigram_entropy
from bertkit.training.trainer.loop import Trainer
from bertkit.visualize.figures import image_of
from bertkit.visualize.training_pictures import pretrain_curve
from pretrain_helpers import batch_of
from pretrain_runs import SETTINGS, SHAPE, interrupt_after


def log_of(run):
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def test_unigram_entropy_is_that_of_a_plain_count(stores, monkeypatch) -> None:
    store = stores[0]
    counts = Counter(int(token) for document in range(len(store)) for token in store.tokens_of(document))
    total = sum(counts.values())
    expected = -sum(n / total * math.log(n / total) for n in counts.values())
    assert unigram_entropy(store) == pytest.approx(expected)
    monkeypatch.setattr(pretrain_unigram, "_READ_TOKENS", 100)  # in many pieces
    assert unigram_entropy(store) == pytest.approx(expected)
    monkeypatch.setattr(pretrain_unigram, "COUNTED_TOKENS", total // 3)  # of a third of it
    assert unigram_entropy(store) == pytest.approx(expected, abs=0.05)
    assert unigram_entropy(store) != pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm"])
def test_flops_are_those_that_torch_counts(stores, objective, monkeypatch) -> None:
    """Counted in the products of a real step. All lengths alike, so that kernels that pad have nothing to pad."""
    config = SETTINGS.replace(objective=objective, short_seq_prob=0.0)
    data = training_data(stores[0], MaskVocabulary.of_tokenizer(stores[0].tokenizer()), config)
    rows = range(60)
    lengths = [batch_of(data, [row]).layout.num_tokens for row in rows]
    batch = batch_of(data, [row for row in rows if lengths[row] == Counter(lengths).most_common(1)[0][0]])
    model = BertForPreTraining(SHAPE.replace(hidden_dropout_prob=0, attention_probs_dropout_prob=0)).train()
    monkeypatch.setattr(products, "_plain_product", lambda: None)  # torch counts its own products only
    with FlopCounterMode(display=False) as counter:
        model.forward_packed(batch).loss.backward()
    counted = counter.get_total_flops()
    mine = training_flops(batch, SHAPE)
    assert mine == pytest.approx(counted, rel=0.03)


def test_the_peak_is_plausible_and_draws_nothing() -> None:
    before = torch.get_rng_state()
    peak = matmul_peak(SHAPE.replace(hidden_size=128, intermediate_size=512), rows=512, device=torch.device("cpu"),
                       dtype=torch.float32)  # fmt: skip
    assert 1e8 < peak < 1e14
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("precision", ["tf32", "fp32"])
def test_the_peak_is_measured_in_the_format_of_the_run(precision, monkeypatch) -> None:
    seen = []
    monkeypatch.setattr(
        pretraining, "matmul_peak", lambda *_, **__: seen.append(torch.backends.cuda.matmul.allow_tf32) or 1e9
    )
    config, plan = SETTINGS.replace(precision=precision), SimpleNamespace(steps_per_epoch=1, unit="tokens")
    pretraining._measured(plan, SimpleNamespace(config=SHAPE), config, torch.device("cpu"))
    assert seen == [precision == "tf32"]


def test_the_share_of_the_peak_follows_from_tokens_per_second(stores) -> None:
    data = training_data(stores[0], MaskVocabulary.of_tokenizer(stores[0].tokenizer()), SETTINGS)
    plan = MeasuredPlan(data, SHAPE, peak=1e9)
    batches = plan.micro_batches(4)
    flops = sum(training_flops(batch, SHAPE) for batch in batches)
    seconds = 0.02
    record = plan.with_share({"step": 5, "tokens_per_s": plan.size(4) / seconds})
    assert record["peak_share"] == pytest.approx(flops / seconds / 1e9, rel=1e-3)
    epoch = {"event": "epoch", "step": 5}
    assert plan.with_share(epoch) == epoch


@pytest.mark.slow
def test_summary_and_log_have_them_all(stores, tmp_path, capsys) -> None:
    config = SETTINGS.replace(max_steps=6, eval_every_steps=3, curve=True)
    result = pretrain(stores[0], tmp_path / "run", config, model=SHAPE, dev=stores[1])
    told = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert told["unigram_entropy"] == result.unigram_entropy == pytest.approx(unigram_entropy(stores[0]))
    records = log_of(tmp_path / "run")
    shares = [record["peak_share"] for record in records if "event" not in record]
    assert len(shares) == 6
    assert min(shares) > 0
    assert result.speed["tokens_per_s"] > 0
    assert told["matmul_peak_flops_per_s"] > 0
    said = capsys.readouterr().err
    assert f"unigram entropy of the training text: {result.unigram_entropy:.3f}" in said
    assert "step 3: held-out masked lm loss" in said
    assert (tmp_path / "run" / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_run_is_told_and_goes_on(stores, tmp_path, monkeypatch, capsys) -> None:
    def absent(*_args, **_kwargs):
        raise MissingExtraError("drawing pictures needs 'matplotlib.figure'")

    monkeypatch.setattr("bertkit.visualize.figures.require", absent)
    pretrain(stores[0], tmp_path / "run", SETTINGS.replace(max_steps=2, curve=True), model=SHAPE)
    assert capsys.readouterr().err.count("no loss.png") == 1
    assert not (tmp_path / "run" / "loss.png").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", [OSError(28, "No space left on device"), pytest.param(RuntimeError("no font"), marks=pytest.mark.campaign)]
)
def test_a_picture_that_fails_ends_no_run_and_hides_no_end(stores, tmp_path, monkeypatch, capsys, fault) -> None:
    def fail(*_args, **_kwargs):
        raise fault

    monkeypatch.setattr(module, "pretrain_curve", fail)
    monkeypatch.setattr(module, "CURVE_EVERY_S", 0.0)
    config = SETTINGS.replace(max_steps=4, eval_every_steps=1, curve=True)
    assert pretrain(stores[0], tmp_path / "run", config, model=SHAPE).progression.step == 4
    assert capsys.readouterr().err.count(f"no loss.png: {fault}") == 1
    monkeypatch.setattr(module, "CURVE_EVERY_S", 1e9)  # drawn at the end only, on the way out
    taken = Trainer.train_step

    def signalled(trainer):
        os.kill(os.getpid(), signal.SIGTERM)
        return taken(trainer)

    monkeypatch.setattr(Trainer, "train_step", signalled)
    with pytest.raises(Interrupted):
        pretrain(stores[0], tmp_path / "stopped", config, model=SHAPE)
    assert "no loss.png" in capsys.readouterr().err


def test_a_full_disk_for_tensorboard_ends_no_run(stores, tmp_path, monkeypatch, capsys) -> None:
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    def fail(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SummaryWriter, "add_scalar", fail)
    pretrain(stores[0], tmp_path / "run", SETTINGS.replace(max_steps=3, tensorboard=True), model=SHAPE)
    assert capsys.readouterr().err.count("No space left on device; continuing without it") == 1


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 100, 1024, 1025])
def test_points_are_few_even_and_from_the_first_one(monkeypatch, count) -> None:
    monkeypatch.setattr(module, "CURVE_POINTS", 8)
    points = Points()
    for step in range(count):
        points.add({"step": step})
    kept = [record["step"] for record in points.records]
    stride = 1
    while math.ceil(count / stride) > 8:
        stride *= 2
    assert kept == list(range(0, count, stride))


def test_the_log_is_read_once(stores, tmp_path) -> None:
    """Curve and speed of a long run come from what was told since, and from what a resumed run found."""
    folder = tmp_path / "run"
    told = {"step": 1, "loss": 3.0, "tokens_per_s": 10}
    first = Report(PretrainFolder(folder), 6.0, curve=True, tensorboard=False)
    first.begin(0, 0)
    for step in (1, 2, 3):
        first({**told, "step": step, "tokens_per_s": 10 * step})
    first.close()
    again = Report(PretrainFolder(folder), 6.0, curve=True, tensorboard=False)
    again.begin(2, 0)
    (folder / "log.jsonl").unlink()
    (folder / "loss.png").unlink()
    assert again.speed() == {"tokens_per_s": 15}
    again.draw()
    assert (folder / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_the_curve_has_the_line() -> None:
    """The pictures with the line at two heights differ; the same twice is the same."""
    records = [{"step": step, "loss": 5.0, "masked_lm_loss": 8 / step} for step in range(1, 30)]
    records.append({"event": "epoch", "step": 29, "dev_masked_lm_loss": 0.5, "dev_next_sentence_accuracy": 0.8})
    pictures = [image_of(pretrain_curve(records, unigram_entropy=height), "png") for height in (6.0, 6.0, 2.0)]
    assert pictures[0] == pictures[1] != pictures[2]


def test_the_curve_of_a_model_that_reads_one_way_has_its_held_out_loss() -> None:
    records = [{"step": step, "loss": 8 / step} for step in (1, 2)]
    records.append({"event": "epoch", "step": 2, "dev_next_word_loss": 3.5, "dev_next_word_accuracy": 0.2})
    losses, accuracies = pretrain_curve(records, unigram_entropy=6.0).axes
    assert 3.5 in {float(y) for line in losses.lines for y in line.get_ydata()}
    assert [list(line.get_ydata()) for line in accuracies.lines] == [[0.2]]


def test_tensorboard_says_what_the_log_says_also_after_a_resume(stores, tmp_path, monkeypatch) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = SETTINGS.replace(max_steps=5, eval_every_steps=2, tensorboard=True)
    interrupt_after(monkeypatch, 3)
    with pytest.raises(Interrupted):
        pretrain(stores[0], tmp_path / "run", config, model=SHAPE, dev=stores[1])
    pretrain(stores[0], tmp_path / "run", config, model=SHAPE, dev=stores[1])
    board = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    board.Reload()
    steps = [record for record in log_of(tmp_path / "run") if "event" not in record]
    events = board.Scalars("training/loss")
    assert [(event.step, pytest.approx(event.value, rel=1e-6)) for event in events] == [
        (record["step"], record["loss"]) for record in steps
    ]
    assert [event.step for event in board.Scalars("held-out/masked_lm_accuracy")] == [2, 4, 5]


def test_tensorboard_is_asked_for_before_anything_is_written(stores, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"bertkit\[tensorboard\]"):
        pretrain(stores[0], tmp_path / "run", SETTINGS.replace(tensorboard=True), model=SHAPE)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_mlflow_says_what_the_log_says_also_after_a_resume(stores, tmp_path, monkeypatch) -> None:
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    config = SETTINGS.replace(max_steps=5, eval_every_steps=2, mlflow=True)
    interrupt_after(monkeypatch, 3)
    with pytest.raises(Interrupted):
        pretrain(stores[0], tmp_path / "run", config, model=SHAPE, dev=stores[1])
    pretrain(stores[0], tmp_path / "run", config, model=SHAPE, dev=stores[1])
    client = MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("bertkit").experiment_id])
    assert (run.info.run_name, run.info.status, run.data.params["max_steps"]) == ("run", "FINISHED", "5")
    losses = [(record["step"], record["loss"]) for record in log_of(tmp_path / "run") if "event" not in record]
    assert [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, "training/loss")] == losses
    scored = client.get_metric_history(run.info.run_id, "held-out/masked_lm_accuracy")
    assert [each.step for each in scored] == [2, 4, 5]
