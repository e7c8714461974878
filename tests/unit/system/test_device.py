"""What a device may be called, and that it means the same wherever there is a ``device``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bertkit import AutoModel, BertClassifier, pipeline
from bertkit.bulk.planner import predict_file
from bertkit.engine.native.build import compilers
from bertkit.errors import ConfigError
from bertkit.inference.evaluate import evaluate_run
from bertkit.inference.runs import open_run
from bertkit.system.device import check_device, find_device
from bertkit.tasks import csv_task
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.trainer.parallel import parallel_from_environment
from bertkit.training.trainer.precision import fastest_precision
from finetune_data import labelled_texts, tiny_start, write_splits

CPU = torch.device("cpu")
#: Names of no device, of one that computes nothing, and of no type that names one.
WRONG: list[Any] = ["gpu", "", "cpu:x", "meta", "hip", -2, "-2", True, 0.5, "cuda:-1", "\u0663", 10**30, ["cpu"]]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes torch believe in some GPUs."""

    def believe(number: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: number > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: number)

    return believe


def test_names(gpus: Callable[[int], None]) -> None:
    gpus(2)
    for name in ("cpu", -1, "-1", CPU):
        assert find_device(name) == CPU
    for name in ("auto", "cuda", torch.device("cuda")):
        assert find_device(name) == torch.device("cuda")
    for name in (1, "1", "cuda:1"):
        assert find_device(name) == torch.device("cuda:1")
    assert (find_device(None), find_device(None, "cpu")) == (torch.device("cuda"), CPU)
    for name in (2, "cuda:2"):
        with pytest.raises(ConfigError, match="no device 'cuda:2': this machine has 2 CUDA devices"):
            find_device(name)
    gpus(0)
    assert find_device("auto") == find_device(None) == CPU
    with pytest.raises(ConfigError, match="this machine has 0 CUDA devices; use 'cpu'"):
        find_device(0)


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_anything_else(wrong: Any) -> None:
    for find in (find_device, check_device):
        with pytest.raises(ConfigError, match=r"unknown device .*; use 'cpu', 'cuda', 'cuda:1', 'auto', or the number"):
            find(wrong)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_start(tmp_path_factory.mktemp("start"))


def test_all_take_the_same(start: Path, tmp_path: Path, gpus: Callable[[int], None]) -> None:
    """Every way in refuses a wrong name, with the same words and before anything is computed, and knows the others."""
    gpus(0)
    data = write_splits(tmp_path / "data", labelled_texts(8, 0), labelled_texts(4, 1))
    task = csv_task(data, text="text", label="label")
    model = AutoModel.from_pretrained(start)
    ways: list[Callable[[Any], Any]] = [
        lambda device: AutoModel.from_pretrained(start, device=device),
        lambda device: pipeline("feature-extraction", model=start, device=device),
        lambda device: pipeline("feature-extraction", model=model, tokenizer=start, device=device),
        parallel_from_environment,
        fastest_precision,
    ]
    trained: list[Callable[[Any], Any]] = [
        lambda device: finetune(task, data, start, tmp_path / "run", device=device),
        lambda device: BertClassifier(start, device=device).fit(["good", "bad"], [0, 1]),
        lambda device: BertClassifier(start, device=device, freeze_encoder=True).fit(["good", "bad"], [0, 1]),
    ]
    opened: list[Callable[[Any], Any]] = [
        lambda device: open_run(tmp_path / "classifier", device=device),
        lambda device: BertClassifier.load(tmp_path / "classifier", device=device),
        lambda device: evaluate_run(task, data, tmp_path / "classifier", device=device),
        lambda device: predict_file(tmp_path / "classifier", data / "dev.csv", tmp_path / "out.csv", device=device),
    ]
    fitted = BertClassifier(start, device=CPU, epochs=1, max_length=16).fit(["good", "bad"], [0, 1])
    fitted.save(tmp_path / "classifier")  # a torch.device is no JSON
    for way in (*ways, *trained, *opened):
        for wrong in ("gpu", -2):
            with pytest.raises(ConfigError, match="unknown device"):
                way(wrong)
    for known in ("auto", -1, "cpu", CPU, None):
        for way in ways:
            way(known)
        open_run(tmp_path / "classifier", device=known)
        BertClassifier.load(tmp_path / "classifier", device=known)
    assert not (tmp_path / "run").exists()


#: Whether a process that looks for a GPU with ``device=None`` imports torch, given where files of a GPU may be.
LOOKS = """
import sys
from bertkit.system import device
device.GPU_FILES = (sys.argv[1] + "/gpus/*",)
assert device.is_cpu(None), "this test is for machines without a GPU"
print("torch" in sys.modules)
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a library of the name of NVIDIA's driver, which has nothing in it."""
    folder = tmp_path_factory.mktemp("driver")
    compiler = next(compilers(), None)
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    (folder / "empty.c").write_text("int nothing;\n")
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", folder / "libcuda.so.1", folder / "empty.c"], check=True)
    return folder


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the library of the driver is all that is looked for")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    ("library", "card", "visible", "imports"),
    [
        # The controls: all that a machine with a GPU has.
        pytest.param(True, True, None, True, marks=pytest.mark.campaign),
        pytest.param(True, True, "0", True, marks=pytest.mark.campaign),
        (True, False, None, False),
        (True, True, "", False),
        (True, True, "-1", False),
        (False, True, None, False),
    ],
)
def test_torch_is_imported_only_where_there_may_be_a_gpu(
    library: bool, card: bool, visible: str | None, imports: bool, driver: Path, tmp_path: Path
) -> None:
    (tmp_path / "gpus").mkdir()
    if card:
        (tmp_path / "gpus" / "0000:01:00.0").mkdir()
    environment = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    environment["LD_LIBRARY_PATH"] = str(driver if library else tmp_path)
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    command = [sys.executable, "-c", LOOKS, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{imports}\n"
