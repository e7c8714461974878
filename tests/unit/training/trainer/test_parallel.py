"""Two real processes (gloo on the CPU) against one: the same losses, weights and evaluations; stops and ends together.

What the ranks do is in ``tests/parallel_worker.py``; it is launched once for all scenarios of every day, and once for
those of the campaign. Sharded weights take several times as long, so that every day one run with them is looked at.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import parallel_worker as worker
from bertkit.errors import ConfigError
from bertkit.training.trainer.batch_plan import EpochPlan
from bertkit.training.trainer.parallel import SINGLE, parallel_from_environment
from bertkit.training.trainer.snapshot import check, load_snapshot
from training_helpers import TWO_PROCESSES

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[3]
SHARDED = ["fsdp:saved", "fsdp:resumed", "fsdp:exact", "fsdp:signal", "fsdp:nan", "fsdp:fp16", "fsdp:lean"]
SCENARIOS = [
    *("fsdp:plain", "fsdp:lamb"),
    *("ddp:plain", "ddp:saved", "ddp:resumed", "ddp:exact", "ddp:signal", "ddp:late", "ddp:nan"),
    *("ddp:sent", "ddp:full"),
    "ddp:killed",  # ends the processes
]
Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Launched:
    folder: Path
    exit_code: int
    stderr: str

    def outcome(self, scenario: str) -> dict[str, Any]:
        """Plain values, and dictionaries of weights."""
        snapshot = load_snapshot(self.folder / "out" / scenario)
        found: dict[str, Any] = {"weights": {}, "best_weights": {}, "expected": {}, **snapshot.values}
        for key, tensor in snapshot.tensors.items():
            kind, _, name = key.partition("/")
            found[kind][name] = tensor
        return found


@pytest.fixture(scope="module")
def both(once: Callable[..., Any]) -> Launched:
    launched: Launched = once("parallel", lambda folder: launch(folder, SCENARIOS, "ddp/out/full"))
    return launched


@pytest.fixture(scope="module")
def sharded(once: Callable[..., Any]) -> Launched:
    launched: Launched = once("parallel-sharded", lambda folder: launch(folder, SHARDED, "fsdp/out/lean"))
    return launched


def launch(folder: Path, scenarios: list[str], last: str) -> Launched:
    """``last``: what the last of the scenarios writes that ends well."""
    worker.seven_steps(worker.make_trainer(folder=folder / "by-one"))
    done = run_two(folder, scenarios)
    assert (folder / last).exists(), done.stderr[-4000:]
    return Launched(folder, done.returncode, done.stderr)


def run_two(folder: Path, scenarios: list[str], timeout: float = 300) -> subprocess.CompletedProcess[str]:
    command = [*TWO_PROCESSES, str(TESTS / "parallel_worker.py"), str(folder), *scenarios]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)


@pytest.fixture(params=["ddp", pytest.param("fsdp", marks=pytest.mark.campaign)])
def launched(request: pytest.FixtureRequest) -> Launched:
    found: Launched = request.getfixturevalue("both" if request.param == "ddp" else "sharded")
    return replace(found, folder=found.folder / request.param)


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return worker.finish(worker.make_trainer())


def assert_same(weights: Weights, expected: Weights) -> None:
    assert weights.keys() == expected.keys()
    for name, value in weights.items():
        torch.testing.assert_close(value, expected[name], atol=1e-5, rtol=1e-5, msg=name)


def assert_equal(weights: Weights, expected: Weights) -> None:
    assert weights.keys() == expected.keys()
    for name, value in weights.items():
        assert torch.equal(value, expected[name]), name


THREADS = """
import time
from contextlib import suppress
from pathlib import Path
from bertkit.training.trainer.parallel import parallel_from_environment

def of_gloo():
    names = []
    for file in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # it has just ended
            names.append(file.read_text())
    return sum("gloo" in name for name in names)

parallel = parallel_from_environment("cpu", "ddp")
import torch._dynamo  # as torch.compile does
parallel.gather(parallel.rank)
during = of_gloo()
parallel.close()
tries = 50
while (left := of_gloo()) and (tries := tries - 1):  # a joined thread is listed a little longer
    time.sleep(0.1)
print(f"threads {during > 0} {left}\\n", end="")  # in one piece
"""


@pytest.mark.campaign
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="lists threads as Linux does")
def test_no_thread_outlives_its_group(tmp_path: Path) -> None:
    """A gloo thread that frees a tensor while the interpreter shuts down aborts the process."""
    (tmp_path / "threads.py").write_text(THREADS)
    command = [*TWO_PROCESSES, str(tmp_path / "threads.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == ["threads True 0"] * 2


@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_two_ranks_compute_what_one_does(mode: str, both: Launched, alone: dict[str, Any]) -> None:
    told = replace(both, folder=both.folder / mode).outcome("plain")
    first, second = told["micro_batches"]
    assert second[-1] == 0  # the case that could hang: nothing to do for rank 1
    assert any(a != b for a, b in zip(first, second, strict=True))
    assert told["losses"] == pytest.approx(alone["losses"], abs=1e-5)
    assert told["norms"] == pytest.approx(alone["norms"], rel=1e-4)
    assert_same(told["weights"], alone["weights"])
    for epoch, expected in zip(told["epochs"], alone["epochs"], strict=True):
        assert epoch == pytest.approx(expected, abs=1e-5)
    assert told["best"] == alone["best"]
    assert_same(told["best_weights"], alone["best_weights"])


def test_gradients_are_sent_while_the_backward_pass_runs(both: Launched, alone: dict[str, Any]) -> None:
    told = replace(both, folder=both.folder / "ddp").outcome("sent")
    assert_same(told["weights"], alone["weights"])
    first, second = told["sent"]
    assert told["buffers"] > 10
    assert all(sent == told["buffers"] for sent in first)
    assert set(second) == {told["buffers"], 0}  # 0 where the rank has no micro-batch: it sends zeros at the end


def test_a_step_that_is_repeated_keeps_what_was_sent(both: Launched, alone: dict[str, Any]) -> None:
    told = replace(both, folder=both.folder / "ddp").outcome("full")
    assert told["told"][0] > 5
    assert told["losses"] == pytest.approx(alone["losses"], abs=1e-5)
    assert_same(told["weights"], alone["weights"])


def test_the_steps_are_not_trivial(alone: dict[str, Any]) -> None:
    """Control: clipping acts, and the weights move by far more than the tolerance."""
    assert max(alone["norms"]) > 0.5
    begun = dict(worker.make_trainer().model.named_parameters())
    moved = [(value - begun[name]).abs().max() for name, value in alone["weights"].items()]
    assert sum(change > 1e-3 for change in moved) > len(moved) / 2


def test_a_run_of_two_ranks_goes_on_with_one(launched: Launched, alone: dict[str, Any]) -> None:
    trainer = worker.make_trainer(folder=launched.folder / "by-two")
    assert trainer.resume()
    assert trainer.at.step == 7
    told = worker.finish(trainer)
    assert told["losses"] == pytest.approx(alone["losses"][7:], abs=1e-5)
    assert_same(told["weights"], alone["weights"])
    assert_same(told["best_weights"], alone["best_weights"])


def test_a_run_of_one_rank_goes_on_with_two(launched: Launched, alone: dict[str, Any]) -> None:
    told = launched.outcome("resumed")
    assert told["losses"] == pytest.approx(alone["losses"][7:], abs=1e-5)
    assert_same(told["weights"], alone["weights"])
    assert_same(told["best_weights"], alone["best_weights"])


def test_resume_with_as_many_ranks_is_bit_for_bit_with_dropout(launched: Launched) -> None:
    told = launched.outcome("exact")
    assert_equal(told["weights"], told["expected"])
    assert told["losses"] == told["expected_losses"][7:]
    assert told["draws"][0] != told["draws"][1]  # each rank draws masks of its own


def test_dropout_acts_in_that_test(launched: Launched, alone: dict[str, Any]) -> None:
    """Control."""
    told = launched.outcome("exact")
    assert told["expected_losses"] != pytest.approx(alone["losses"], abs=1e-3)


@pytest.mark.campaign
def test_with_dropout_two_ranks_train_as_one_does(tmp_path: Path) -> None:
    """Masks differ, so losses do; their means by no more than three runs of one number of ranks differ among them.

    The control: another rate of dropout is outside of that.
    """
    done = run_two(tmp_path, ["ddp:spread", "fsdp:spread"], timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    alone, other = worker.last_losses(SINGLE, 0.1), worker.last_losses(SINGLE, 0.3)
    assert len(set(alone)) == 3
    for mode in ("ddp", "fsdp"):
        told = Launched(tmp_path / mode, 0, "").outcome("spread")["last_losses"]
        assert not set(told) & set(alone)
        assert within_spread(told, alone), (told, alone)
        assert not within_spread(told, other), (told, other)


def within_spread(one: list[float], other: list[float]) -> bool:
    """Whether two means differ by at most what the values of one of them differ by."""
    most = max(max(each) - min(each) for each in (one, other))
    return abs(sum(one) / len(one) - sum(other) / len(other)) <= most


def test_a_signal_to_one_rank_stops_all_after_the_same_step(launched: Launched) -> None:
    told = launched.outcome("signal")
    assert told["told"][0] == told["told"][1]
    assert told["told"][0].startswith("143 stopped by SIGTERM after step 3 of 10")
    assert check(launched.folder / "signal" / "step-00000003") is None
    assert len(list((launched.folder / "signal").iterdir())) == 1  # rank 0 alone wrote


def test_a_signal_that_comes_after_the_ranks_have_agreed_is_for_the_next_time(both: Launched) -> None:
    first, second = replace(both, folder=both.folder / "ddp").outcome("late")["told"]
    assert first == second
    assert first.startswith("143 stopped by SIGTERM after step 3 of 10")


def test_a_loss_that_is_not_finite_on_one_rank_stops_all_before_the_step(launched: Launched) -> None:
    told = launched.outcome("nan")
    assert told["steps"] == [1, 1]
    for rank, message in enumerate(told["told"]):
        assert message.startswith("TrainingError: step 2 of 10: the loss is nan")
        name = "failed-step-00000002" + ("-rank1" if rank else "")
        assert f"{name}.json" in message
        assert (launched.folder / "nan" / f"{name}.safetensors").exists()


def test_a_killed_rank_ends_the_run_with_a_message(both: Launched) -> None:
    assert both.exit_code != 0
    assert "rank 0 of 2 lost another rank" in both.stderr
    assert "continue from the newest checkpoint" in both.stderr
    assert not (both.folder / "ddp" / "out" / "killed").exists()


@pytest.mark.campaign
def test_sharded_fp16_skips_a_step_on_all_ranks_together(sharded: Launched) -> None:
    first, second = replace(sharded, folder=sharded.folder / "fsdp").outcome("fp16")["state"]
    assert first == second  # the number of skipped steps, the scale, and the seconds, by the clock of rank 0
    assert first[0] > 0


@pytest.mark.campaign
def test_sharded_layers_can_be_computed_again_for_their_gradients(sharded: Launched) -> None:
    told = replace(sharded, folder=sharded.folder / "fsdp").outcome("lean")
    assert_equal(told["weights"], told["expected"])


def test_optimizers_that_need_whole_matrices_refuse_parts(both: Launched) -> None:
    told = replace(both, folder=both.folder / "fsdp").outcome("lamb")["told"]
    assert told == "Lamb does not work on sharded weights; use the optimizer adamw, or mode ddp"


# ------------------------------------------------------------------------------------------------ without ranks


@pytest.fixture
def no_torchrun(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_without_torchrun_a_run_is_of_one_process(no_torchrun: pytest.MonkeyPatch) -> None:
    assert parallel_from_environment("cpu") == SINGLE
    with pytest.raises(ConfigError, match="torchrun --nproc-per-node N -m bertkit"):
        parallel_from_environment("cpu", "fsdp")
    with pytest.raises(ConfigError, match="ddp or fsdp, got 'dp'"):
        parallel_from_environment("cpu", "dp")  # type: ignore[arg-type]
    assert parallel_from_environment("auto").device.type in ("cpu", "cuda")
    with pytest.raises(ConfigError, match="unknown device 'gpu'"):
        parallel_from_environment("gpu")


def test_torchrun_with_one_process_needs_no_others(no_torchrun: pytest.MonkeyPatch) -> None:
    no_torchrun.setenv("RANK", "0")
    no_torchrun.setenv("WORLD_SIZE", "1")
    assert parallel_from_environment("cpu", "fsdp") == SINGLE


def test_the_parts_of_the_ranks_are_the_step() -> None:
    data = worker.DATA
    plans = [
        EpochPlan(data.lengths, lambda rows: rows, step_size=5, max_tokens=20, seed=3, rank=rank, num_ranks=3)
        for rank in range(3)
    ]
    for step in range(8):
        parts = [[row for part in plan.micro_batches(step) for row in part] for plan in plans]
        assert (
            sorted(row for part in parts for row in part) == sorted(plans[0].rows(step)) == sorted(plans[2].rows(step))
        )
        # Sorted by length and dealt out, the parts differ by less than one example in tokens, whatever the lengths are.
        tokens = [sum(data.lengths[row] for row in part) for part in parts]
        assert max(tokens) - min(tokens) <= max(data.lengths[row] for row in plans[0].rows(step))
    with pytest.raises(ConfigError, match="at most as many as examples in a step"):
        EpochPlan(data.lengths, lambda rows: rows, step_size=2, max_tokens=20, seed=3, rank=0, num_ranks=3)
