"""The scripts that measure a GPU, as far as a machine without one can run them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmark_scripts import BENCHMARKS
from bertkit.cli import main
from bertkit.engine.backend import Pack, Values, Wanted

import gpu_all  # isort: skip
import gpu_parts  # isort: skip
import host_batches  # isort: skip
import host_path  # isort: skip
import pretrain_peers  # isort: skip

CPU = torch.device("cpu")


class ByIds(host_path.NoEncoder):
    """The vector of a token is that of its id, so that the vector of a text says which one it is."""

    def __init__(self) -> None:
        super().__init__(pools=True)
        self.num_packs = 0
        self.table_VD = torch.randn(30_000, 8, generator=torch.Generator().manual_seed(1))

    def compute(self, pack: Pack, wanted: Wanted) -> Values:
        self.num_packs += 1
        self.hidden_TD = self.table_VD[torch.from_numpy(pack.ids.astype(np.int64))]
        return super().compute(pack, wanted)


def test_the_host_s_share_of_embedding_is_computed() -> None:
    for pools in (False, True):
        found = host_path.embedded(host_path.some_texts(5_000), host_path.NoEncoder(pools))
        assert found.shape == (5_000, host_path.WIDTH)
        assert found.dtype == np.float32
        assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_the_host_s_share_of_embedding_keeps_the_order_of_the_texts() -> None:
    """Beside each text's own mean. In windows of other sizes too, in each of which the texts are sorted by length."""
    rows = host_path.some_texts(5_000)
    for window in (2_048, 5_000):
        encoder = ByIds()
        found = host_path.embedded(rows, encoder, window)
        means = np.stack([encoder.table_VD[torch.from_numpy(ids.astype(np.int64))].mean(0).numpy() for ids in rows])
        expected = means / np.linalg.norm(means, axis=1, keepdims=True)
        assert encoder.num_packs >= 2
        assert np.allclose(found, expected, atol=1e-5)
        by_length = np.argsort(rows.lengths, kind="stable")
        assert not np.allclose(found[by_length], expected, atol=1e-2)  # the control


def test_batches_are_the_same_for_any_number_of_threads() -> None:
    lines = list(host_batches.measure(num_tokens=300_000, seconds=0.05))
    assert [line["threads"] for line in lines] == [1, 2, 4]
    assert all(line["holds"] and line["tokens_per_s"] > 0 for line in lines)


def test_other_batches_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a plan that is one step ahead."""

    class Ahead(host_batches.Prefetched):
        def micro_batches(self, step: int) -> list[pretrain_peers.Batch]:
            return super().micro_batches(step + 1)

    monkeypatch.setattr(host_batches, "Prefetched", Ahead)
    assert not any(line["holds"] for line in host_batches.measure(num_tokens=300_000, seconds=0.05))


def test_the_parts_are_there_and_fit_into_their_minutes() -> None:
    assert sum(part.seconds for part in gpu_all.PARTS) <= gpu_all.WITH_GPU == 540
    for part in gpu_all.PARTS:
        assert callable(getattr(gpu_parts, part.name))
    for part in gpu_all.CHECKS:
        files = [BENCHMARKS.parent / each for each in part.tests if each.endswith(".py")]
        assert all(file.exists() for file in files or [BENCHMARKS / f"{part.name}.py"])


WITHOUT_PEERS = """
import json, sys
for name in ("transformers", "accelerate", "sentence_transformers"):
    sys.modules[name] = None  # to import it is an error, and it is not found
sys.path.append(sys.argv[1])
import torch, gpu_parts, pretrain_peers
cpu = torch.device("cpu")
print(json.dumps([*gpu_parts.environment(cpu, True), pretrain_peers.left_out(), gpu_parts.TRAINER_LACKS]))
"""


@pytest.mark.campaign
@pytest.mark.slow
def test_without_other_packages_their_part_is_left_out_and_the_line_says_so() -> None:
    command = [sys.executable, "-c", WITHOUT_PEERS, str(BENCHMARKS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    _, peak, peers, trainer = json.loads(done.stdout)
    assert peak["measured_peak_tflops"] > 0
    lacks = "needs transformers, accelerate"
    assert peers == {"transformers Trainer": lacks, "transformers, hand-written loop": "needs transformers"}
    assert trainer == {"transformers Trainer": lacks}


@pytest.mark.campaign
@pytest.mark.slow
def test_bertkit_is_timed_alone_and_in_variants(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pretrain_peers, "find_spec", lambda name: None)
    job, _ = gpu_parts.pretrain_job(CPU, True, 128, 7, tmp_path)
    found = pretrain_peers.compare(job, 1, 2, 1e-4, tmp_path)
    ways = (pretrain_peers.Bertkit, partial(pretrain_peers.Bertkit, deterministic=True))
    both = pretrain_peers.train_in_turns(job, ways, 1, 2)
    assert (list(found["systems"]), list(both["systems"])) == (["bertkit"], ["bertkit", "bertkit, deterministic"])
    for system in (*found["systems"].values(), *both["systems"].values()):
        assert system["tokens_per_s"] > 0
        assert system["first_steps_s"] is not None
        assert 5 < system["last_loss"] < 8  # near log 500 + log 2
    assert found["left_out"].keys() == {"transformers Trainer", "transformers, hand-written loop"}
    profiled = gpu_parts.training_profile(pretrain_peers.Bertkit(job))
    assert profiled["profile_of_steps"] == 3
    assert profiled["values_read"] > 0  # of a CPU each step is read


@pytest.mark.campaign
def test_what_is_repeatable_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = gpu_parts.repeatable(CPU, True)
    assert line["holds"]
    train = pretrain_peers.Bertkit.train

    def noisy(self: pretrain_peers.Bertkit, steps: range) -> pretrain_peers.Turn:
        torch.randn(int(torch.randint(1, 9, (), generator=other)))  # other dropout
        return train(self, steps)

    other = torch.Generator().manual_seed(0)
    monkeypatch.setattr(pretrain_peers.Bertkit, "train", noisy)
    (line,) = gpu_parts.repeatable(CPU, True)
    assert not line["holds"]


def test_the_commands_of_the_page_are_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Up to the store, which is not there: its message and exit code are others than those of settings that clash."""
    page = (BENCHMARKS.parent / "docs" / "gpu.md").read_text(encoding="utf-8")
    commands = re.findall(r"(?m)^bertkit (pretrain STORE .*)$", page)
    assert len(commands) == 2
    given = {"STORE": str(tmp_path / "store"), "RUN": str(tmp_path / "run"), "cuda": "cpu"}
    for command in commands:
        assert main([given.get(word, word) for word in command.split()]) == 3
        assert "is not there" in capsys.readouterr().err
    clash = commands[0].replace("--schedule linear", "--schedule polynomial")  # the control
    assert main([given.get(word, word) for word in clash.split()]) == 2
    assert "counts steps" in capsys.readouterr().err
