"""The training loop: what a step computes, when it refuses, and that a stopped run goes on bit for bit."""

from __future__ import annotations

import json
import math
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bertkit.errors import CheckpointError, ResourceError, TrainingError
from bertkit.system.interrupts import Interrupted
from bertkit.training.trainer.loop_options import Progression, StepResult
from bertkit.training.trainer.run_folder import RunLog, read_log
from bertkit.training.trainer.snapshot import check
from disk_helpers import largest_file
from training_helpers import ToyData, no_dropout, tiny_model, toy_trainer, weights

DATA = ToyData()


@pytest.mark.slow
def test_training_learns_the_toy_task() -> None:
    model = tiny_model()
    at = toy_trainer(model, DATA, num_steps=100).run()
    assert at.epochs[-1]["dev_accuracy"] > 0.9
    assert at.epochs[-1]["train_loss"] < 0.5 < at.epochs[0]["train_loss"]


# ------------------------------------------------------------------------------------------------- one step


def test_micro_batches_give_the_whole_batch_step() -> None:
    whole, split = no_dropout(), no_dropout()
    trainers = [toy_trainer(whole, DATA), toy_trainer(split, DATA, max_tokens=20)]
    assert len(trainers[1].plan.micro_batches(0)) > 2
    for _ in range(5):
        results = [trainer.train_step() for trainer in trainers]
        assert results[0].loss == pytest.approx(results[1].loss, abs=1e-6)
        assert results[0].grad_norm == pytest.approx(results[1].grad_norm, rel=1e-5)
    for name, p in whole.named_parameters():
        # Adam divides by the root of a mean square, so a weight whose gradient is all rounding may move either way by
        # the learning rate; the value beside each such weight cannot hide a real difference.
        close = torch.isclose(p, dict(split.named_parameters())[name], atol=1e-5, rtol=1e-5)
        assert close.float().mean() > 0.99, name


def test_a_mean_of_means_would_be_another_step() -> None:
    """Control: with micro-batches of different sizes, dividing each by its own count changes the gradient."""
    model = no_dropout()
    trainer = toy_trainer(model, DATA, max_tokens=20)
    batches = trainer.plan.micro_batches(0)
    assert len({batch.layout.num_sequences for batch in batches}) > 1
    for batch in batches:
        loss = model.forward_packed(batch).loss
        assert loss is not None
        (loss / len(batches)).backward()
    wrong = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    total = sum(model.num_targets(batch)["loss"] for batch in batches)
    for batch in batches:
        terms = model.forward_packed(batch).loss_terms
        assert terms is not None
        (terms["loss"].total / total).backward()
    right = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    assert (wrong - right).norm() > 0.01 * right.norm()


def test_the_first_step_is_not_wasted() -> None:
    model = tiny_model()
    before = weights(model)
    trainer = toy_trainer(model, DATA)
    result = trainer.train_step()
    assert result.learning_rate > 0
    assert any(not torch.equal(before[name], p) for name, p in model.named_parameters())


def test_gradients_are_clipped_to_the_norm() -> None:
    model = no_dropout()
    trainer = toy_trainer(model, DATA, max_grad_norm=1e-3)
    seen = []
    step = trainer.optimizer.step
    trainer.optimizer.step = lambda *args: (  # type: ignore[method-assign]
        seen.append(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()),
        step(),
    )[1]
    result = trainer.train_step()
    assert result.grad_norm > 1e-2
    assert seen[0] == pytest.approx(1e-3, rel=1e-3)


def test_log_has_every_step_and_epoch() -> None:
    records: list[dict[str, Any]] = []
    trainer = toy_trainer(tiny_model(), DATA, num_steps=16)
    trainer.log = records.append
    trainer.run()
    steps = [record for record in records if "event" not in record]
    assert [record["step"] for record in steps] == list(range(1, 17))
    assert set(steps[0]) == {"step", "epoch", "loss", "lr", "grad_norm", "tokens_per_s"}
    epochs = [record for record in records if record.get("event") == "epoch"]
    assert [record["step"] for record in epochs] == [8, 16]
    first = [record["loss"] for record in steps[:8]]
    sizes = [len(trainer.plan.rows(step)) for step in range(8)]
    assert epochs[0]["train_loss"] == pytest.approx(np.average(first, weights=sizes), rel=1e-6)


# ---------------------------------------------------------------------------------------------- not finite


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_before_the_step(tmp_path: Path, bad: float) -> None:
    model = tiny_model()
    trainer = toy_trainer(model, DATA, folder=tmp_path)
    trainer.train_step()
    before, state = weights(model), {k: v.clone() for k, v in trainer.state_dict().tensors.items() if "optimizer" in k}
    hook = model.classifier.register_forward_hook(lambda module, args, out: out * bad)
    with pytest.raises(TrainingError, match=r"step 2 of 20: the loss is (nan|inf)") as caught:
        trainer.run()
    hook.remove()
    assert "weights are those of step 1" in str(caught.value)
    assert trainer.at.step == 1
    for name, p in model.named_parameters():
        assert torch.equal(before[name], p), name
    after = trainer.state_dict().tensors
    assert all(torch.equal(value, after[key]) for key, value in state.items())
    told = json.loads((tmp_path / "failed-step-00000002.json").read_text())
    assert str(tmp_path) in str(caught.value)
    assert sorted(told["rows"]) == sorted(trainer.plan.rows(1))
    kept = load_file(tmp_path / "failed-step-00000002.safetensors")
    assert torch.equal(kept["0/input_ids"], trainer.plan.micro_batches(1)[0].input_ids)
    assert torch.equal(kept["0/targets.labels"], trainer.plan.micro_batches(1)[0].targets["labels"])


def test_a_batch_that_cannot_be_saved_does_not_hide_why_training_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tiny_model()
    trainer = toy_trainer(model, DATA, folder=tmp_path)
    model.classifier.register_forward_hook(lambda module, args, out: out * math.nan)
    with largest_file(10), pytest.raises(TrainingError, match="the loss is nan") as caught:
        trainer.train_step()
    assert "The batch is saved" not in str(caught.value)
    assert "the failed batch could not be saved: no room for failed-step-00000001" in capsys.readouterr().err


def test_a_gradient_that_is_not_finite_stops_too() -> None:
    model = tiny_model()
    trainer = toy_trainer(model, DATA)
    model.classifier.weight.register_hook(lambda grad: grad * math.inf)
    before = weights(model)
    with pytest.raises(TrainingError, match=r"gradient norm (nan|inf)"):
        trainer.run()
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())


# --------------------------------------------------------------------------------------------------- resume


Reference = tuple[dict[str, torch.Tensor], Progression, list[StepResult]]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Of a run that nothing stops: its weights, where it is at the end, and its steps."""
    model = tiny_model()
    folder = tmp_path_factory.mktemp("whole")
    trainer = toy_trainer(model, DATA, num_steps=20, folder=folder, checkpoint_every_s=1e9)
    results: list[StepResult] = []
    step = trainer.train_step
    trainer.train_step = lambda: results.append(step()) or results[-1]  # type: ignore[method-assign, func-returns-value]
    trainer.run()
    return weights(model), trainer.at, results


@pytest.mark.slow
@pytest.mark.parametrize("stop_after", [1, 7, 8, 10, 16, 19])
def test_resume_is_bit_for_bit(reference: Reference, tmp_path: Path, stop_after: int) -> None:
    expected, at, results = reference

    first = toy_trainer(tiny_model(), DATA, folder=tmp_path / "parts")
    for _ in range(stop_after):
        first.train_step()
        if first._epoch_ended():
            first._end_epoch(lambda: None)
    first.save()

    random.seed(999)
    np.random.seed(999)
    torch.manual_seed(999)  # a new process knows nothing of the old one's generators
    model = tiny_model(seed=5)
    second = toy_trainer(model, DATA, folder=tmp_path / "parts", seed=None)
    assert second.resume()
    assert second.at.step == stop_after
    rest: list[StepResult] = []
    step = second.train_step
    second.train_step = lambda: rest.append(step()) or rest[-1]  # type: ignore[method-assign, func-returns-value]
    second.run()
    assert rest == results[stop_after:]
    for name, p in model.named_parameters():
        assert torch.equal(p, expected[name]), name
    assert second.at.epochs == at.epochs
    assert (second.at.best_step, second.at.best_score) == (at.best_step, at.best_score)


def test_resume_without_the_generators_would_differ(reference: Reference, tmp_path: Path) -> None:
    """Control: the test above can fail; dropout really draws from the saved state."""
    expected, _, _ = reference
    first = toy_trainer(tiny_model(), DATA, folder=tmp_path / "parts", evaluate=False)
    for _ in range(10):
        first.train_step()
    first.save()
    model = tiny_model()
    second = toy_trainer(model, DATA, folder=tmp_path / "parts", evaluate=False)
    second.resume()
    torch.manual_seed(123)
    second.run()
    assert any(not torch.equal(p, expected[name]) for name, p in model.named_parameters())


def test_an_evaluation_that_is_made_again_is_in_the_log_once(tmp_path: Path) -> None:
    """Killed after an evaluation and before the next saved state: that state is from before the evaluation."""
    first = toy_trainer(tiny_model(), DATA, folder=tmp_path / "states", checkpoint_every_s=0.0)
    first.log, step = RunLog(tmp_path / "log.jsonl", "repeat it"), first.train_step
    last = first.plan.steps_per_epoch

    def killed() -> StepResult:
        if first.at.step == last:
            raise TimeoutError
        return step()

    first.train_step = killed  # type: ignore[method-assign]
    with pytest.raises(TimeoutError):
        first.run()
    assert "event" in list(read_log(tmp_path / "log.jsonl"))[-1]
    second = toy_trainer(tiny_model(), DATA, folder=tmp_path / "states")
    second.log = log = RunLog(tmp_path / "log.jsonl", "repeat it")
    assert second.resume()
    assert (second.at.step, second.at.evaluated_step) == (last, 0)
    log.drop_after(second.at.step, second.at.evaluated_step)
    second.run()
    records = list(read_log(tmp_path / "log.jsonl"))
    evaluated = [record["step"] for record in records if "event" in record]
    assert evaluated == [epoch["step"] for epoch in second.at.epochs]
    assert len(evaluated) == len(set(evaluated)) > 1
    assert [record["step"] for record in records if "event" not in record] == list(range(1, 21))


def test_a_full_disk_says_how_the_run_goes_on(tmp_path: Path) -> None:
    trainer = toy_trainer(tiny_model(), DATA, folder=tmp_path, how_to_resume="Run the same command to go on")
    trainer.save()
    with largest_file(1000), pytest.raises(ResourceError) as caught:
        trainer.save()
    assert str(caught.value).endswith("Nothing was overwritten. Make room. Run the same command to go on")
    assert toy_trainer(tiny_model(), DATA, folder=tmp_path).resume()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_saves_and_resumes_exactly(
    reference: Reference, tmp_path: Path, number: signal.Signals
) -> None:
    expected, _, _ = reference
    first = toy_trainer(tiny_model(), DATA, folder=tmp_path / "parts")
    step = first.train_step

    def signalled() -> StepResult:
        if first.at.step == 5:
            os.kill(os.getpid(), number)
        return step()

    first.train_step = signalled  # type: ignore[method-assign]
    handler = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt) as caught:
        first.run()
    assert isinstance(caught.value, Interrupted)
    assert caught.value.exit_code == 128 + number
    assert "after step 6 of 20" in str(caught.value)
    assert "--resume" in str(caught.value)
    assert signal.getsignal(number) is handler

    model = tiny_model()
    second = toy_trainer(model, DATA, folder=tmp_path / "parts", seed=7)
    assert second.resume()
    second.run()
    assert all(torch.equal(p, expected[name]) for name, p in model.named_parameters())


def test_a_signal_during_evaluation_evaluates_again(reference: Reference, tmp_path: Path) -> None:
    expected, at, _ = reference
    model = tiny_model()
    first = toy_trainer(model, DATA, folder=tmp_path / "parts")

    def interrupted(check: Any) -> dict[str, float]:
        os.kill(os.getpid(), signal.SIGTERM)
        check()
        raise AssertionError("check() did not stop")

    first.evaluate = interrupted
    with pytest.raises(Interrupted):
        first.run()
    model = tiny_model()
    second = toy_trainer(model, DATA, folder=tmp_path / "parts")
    assert second.resume()
    assert (second.at.step, second.at.evaluated_step) == (8, 0)
    second.run()
    assert second.at.epochs == at.epochs
    assert all(torch.equal(p, expected[name]) for name, p in model.named_parameters())


def test_a_second_signal_stops_at_once() -> None:
    trainer = toy_trainer(tiny_model(), DATA)

    def twice() -> StepResult:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("still here")

    trainer.train_step = twice  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt, match="at once"):
        trainer.run()


def test_resume_refuses_another_run(tmp_path: Path) -> None:
    first = toy_trainer(tiny_model(), DATA, folder=tmp_path)
    first.train_step()
    first.save()
    other = toy_trainer(tiny_model(), DATA, folder=tmp_path, num_steps=30)
    with pytest.raises(CheckpointError, match="num_steps was 20, now 30"):
        other.resume()
    wider = toy_trainer(tiny_model(intermediate_size=48), DATA, folder=tmp_path)
    with pytest.raises(CheckpointError, match="a model with other shapes"):
        wider.resume()


def test_resume_without_a_checkpoint_begins(tmp_path: Path) -> None:
    assert not toy_trainer(tiny_model(), DATA, folder=tmp_path).resume()


# --------------------------------------------------------------------------------- best weights, early stop


def scripted(
    scores: list[float], losses: list[float] | None = None, **options: Any
) -> tuple[Any, dict[int, dict[str, torch.Tensor]]]:
    model = tiny_model()
    trainer = toy_trainer(model, DATA, num_steps=8 * len(scores), **options)
    snapshots: dict[int, dict[str, torch.Tensor]] = {}

    def evaluate(check: Any) -> dict[str, float]:
        snapshots[trainer.at.step] = weights(model)
        number = trainer.at.step // 8 - 1
        return {"accuracy": scores[number], **({} if losses is None else {"loss": losses[number]})}

    trainer.evaluate = evaluate
    trainer.run()
    return trainer, snapshots


def test_the_best_evaluation_is_kept_and_the_first_of_equals() -> None:
    trainer, snapshots = scripted([0.1, 0.7, 0.7, 0.3])
    assert (trainer.at.best_step, trainer.at.best_score) == (16, 0.7)
    trainer.restore_best()
    assert all(torch.equal(p, snapshots[16][name]) for name, p in trainer.model.named_parameters())


def test_of_equal_scores_the_lower_dev_loss_is_kept() -> None:
    trainer, snapshots = scripted([0.7, 1.0, 1.0, 1.0, 0.9], losses=[0.8, 0.676, 0.55, 0.6, 0.5])
    assert (trainer.at.best_step, trainer.at.best_score, trainer.at.best_loss) == (24, 1.0, 0.55)
    trainer.restore_best()
    assert all(torch.equal(p, snapshots[24][name]) for name, p in trainer.model.named_parameters())


def test_a_lower_dev_loss_at_the_same_score_counts_as_progress_for_patience() -> None:
    trainer, _ = scripted([1.0, 1.0, 1.0, 1.0, 1.0], losses=[0.6, 0.5, 0.4, 0.4, 0.45], patience=2)
    assert (trainer.at.best_step, trainer.at.step, trainer.at.stopped_early) == (24, 40, True)


def test_a_loss_that_is_not_a_number_never_wins_a_tie() -> None:
    trainer, _ = scripted([1.0, 1.0, 1.0], losses=[math.nan, 0.5, math.nan])
    assert (trainer.at.best_step, trainer.at.best_loss) == (16, 0.5)


def test_a_tie_across_a_resume_is_broken_the_same_way(tmp_path: Path) -> None:
    first, _ = scripted([1.0, 1.0], losses=[0.6, 0.5], folder=tmp_path)
    first.save()
    again = toy_trainer(tiny_model(), DATA, num_steps=16, folder=tmp_path)
    assert again.resume()
    assert (again.at.best_step, again.at.best_loss) == (16, 0.5)
    again.at.step = 24
    assert not again.at.is_best(1.0, 0.55, None)
    assert again.at.is_best(1.0, 0.45, None)


def test_patience_stops_early() -> None:
    trainer, _ = scripted([0.5, 0.4, 0.3, 0.9, 0.9], patience=2)
    assert trainer.at.step == 24
    assert trainer.at.stopped_early
    assert trainer.at.best_step == 8


def test_a_score_that_is_not_a_number_is_worst() -> None:
    trainer, _ = scripted([math.nan, 0.2, math.nan])
    assert (trainer.at.best_step, trainer.at.best_score) == (16, 0.2)
    assert trainer.at.epochs[0]["dev_accuracy"] is None


def test_best_weights_survive_a_resume(tmp_path: Path) -> None:
    trainer, snapshots = scripted([0.9, 0.1], folder=tmp_path)
    trainer.save()
    again = toy_trainer(tiny_model(seed=3), DATA, num_steps=16, folder=tmp_path)
    assert again.resume()
    again.restore_best()
    assert all(torch.equal(p, snapshots[8][name]) for name, p in again.model.named_parameters())


def test_checkpoints_are_thinned_out(tmp_path: Path) -> None:
    trainer = toy_trainer(tiny_model(), DATA, num_steps=6, folder=tmp_path, checkpoint_every_s=0.0)
    trainer.run()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000005", "step-00000006"]


def test_a_damaged_checkpoint_does_not_count_as_kept(tmp_path: Path) -> None:
    """It has the highest number, so the states of the resumed run would be the ones to go."""
    first = toy_trainer(tiny_model(), DATA, num_steps=9, folder=tmp_path, keep=2)
    for _ in range(2):
        for _ in range(3):
            first.train_step()
        first.save()
    (tmp_path / "step-00000006" / "state.json").unlink()
    again = toy_trainer(tiny_model(1), DATA, num_steps=9, folder=tmp_path, keep=1)
    assert again.resume()
    names = []
    for _ in range(3):
        again.train_step()
        names.append(again.save().name)
        assert [path.name for path in tmp_path.iterdir()] == names[-1:]
        assert check(tmp_path / names[-1]) is None
    assert names == ["step-00000004", "step-00000005", "step-00000006"]


def test_without_a_score_the_last_weights_stay_after_a_resume(tmp_path: Path) -> None:
    """A checkpoint of an evaluated step holds the weights of that step; they must not come back at the end."""
    first = toy_trainer(tiny_model(), DATA, folder=tmp_path, evaluate=False, num_steps=DATA.plan().steps_per_epoch)
    first.run()
    first.save()
    again = toy_trainer(tiny_model(1), DATA, folder=tmp_path, evaluate=False, num_steps=first.at.step)
    assert again.resume()
    assert again.at.best_step == again.at.step
    again.train_step()
    last = weights(again.model)
    again.restore_best()
    assert all(torch.equal(last[name], p) for name, p in again.model.named_parameters())
    assert not any(key.startswith("best/") for key in again.state_dict().tensors)
