"""Files of a run that were edited, truncated or replaced: always a CheckpointError that names the file."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bertkit.errors import CheckpointError
from bertkit.inference.evaluate import evaluate_run, open_run
from bertkit.system.json_files import read_json
from bertkit.tasks import csv_task
from bertkit.training.finetuning.finetune import finetune, load_run_config
from bertkit.training.finetuning.finetune_folder import FinetuneFolder
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.trainer import snapshot
from bertkit.training.trainer.run_folder import RunLog, read_log
from finetune_data import QUICK, labelled_texts, no_pictures, write_splits
from training_helpers import ToyData, tiny_model, toy_trainer

DAMAGED = {
    "a list": b"[]",
    "deeply nested": b"[" * 100_000,
    "not UTF-8": b'{"config": "\xff\xfe"}',
    "not JSON": b'{"config": ',
    "a number": b"7",
    "empty": b"",
}
damaged = pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_splits(tmp_path_factory.mktemp("data"), labelled_texts(32, 1), labelled_texts(20, 2))


@pytest.fixture(scope="module")
def finished(start: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    out = tmp_path_factory.mktemp("run") / "run"
    with no_pictures():
        finetune(csv_task(data), data, start, out, CONFIG, cache=None)
        yield out


CONFIG = FinetuneConfig(**{**QUICK, "epochs": 1, "baseline": False})


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def resume(run: Path, data: Path, start: Path) -> Any:
    return finetune(csv_task(data), data, start, run, CONFIG, resume=True, cache=None)


@damaged
@pytest.mark.parametrize("name", ["finetune.json", "metrics.json"])
def test_a_damaged_file_of_a_finished_run(run: Path, data: Path, start: Path, name: str, content: bytes) -> None:
    (run / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=name):
        resume(run, data, start)
    with pytest.raises(CheckpointError, match=name):
        open_run(run)
    if name == "finetune.json":
        with pytest.raises(CheckpointError, match=name):
            load_run_config(run)


@damaged
def test_a_damaged_result_of_a_seed(run: Path, data: Path, start: Path, content: bytes) -> None:
    (run / "metrics.json").unlink()
    (run / "seed-0" / "metrics.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"seed-0.metrics.json"):
        resume(run, data, start)


def nulls(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all that is an object or a list in a JSON document, two levels deep."""
    if len(path) == 2 or not isinstance(value, dict | list):
        return
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(each, dict | list):
            yield (*path, key)
            yield from nulls(each, (*path, key))


def refuses(use: Callable[[], Any], run: Path) -> bool:
    """Whether it raises a CheckpointError; the message must name the run's file."""
    try:
        use()
    except CheckpointError as error:
        return str(run) in str(error) or pytest.fail(f"no file in {error}")
    return False


def with_null(values: Any, path: tuple[Any, ...]) -> bytes:
    copy = json.loads(json.dumps(values))
    inside = copy
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = None
    return json.dumps(copy).encode()


@pytest.mark.parametrize("name", ["finetune.json", "metrics.json", "seed-0/metrics.json"])
def test_a_part_that_is_null_is_read_or_refused_but_never_crashes(
    run: Path, data: Path, start: Path, name: str
) -> None:
    file = run / name
    content = file.read_bytes()
    refused = 0
    for path in nulls(json.loads(content)):
        file.write_bytes(with_null(json.loads(content), path))
        uses: list[Callable[[], Any]] = [lambda: load_run_config(run), lambda: FinetuneFolder(run).result()]
        uses += [lambda: open_run(run), lambda: FinetuneFolder(run).seed_result(0)]
        refused += sum(refuses(use, run) for use in uses)
    assert refused


def test_evaluating_a_run_whose_protocol_is_damaged(run: Path, data: Path) -> None:
    values = json.loads((run / "metrics.json").read_text())
    values["protocol"]["data"] = [1]
    (run / "metrics.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=r"metrics.json: data is damaged"):
        evaluate_run(csv_task(data), data, run)


# ------------------------------------------------------------------------------------------- states and logs


def checkpoint(folder: Path) -> Path:
    trainer = toy_trainer(tiny_model(), ToyData(16), num_steps=2, folder=folder)
    trainer.train_step()
    return trainer.save()


def sign(folder: Path) -> None:
    """A manifest that agrees with the files, as one who edits them on purpose would write it."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in manifest["files"]:
        content = (folder / name).read_bytes()
        manifest["files"][name] = {"num_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def go_on(folder: Path) -> None:
    toy_trainer(tiny_model(), ToyData(16), num_steps=2, folder=folder).resume()


@damaged
@pytest.mark.parametrize("name", ["manifest.json", "state.json"])
def test_a_damaged_training_state(tmp_path: Path, name: str, content: bytes) -> None:
    folder = checkpoint(tmp_path)
    (folder / name).write_bytes(content)
    if name == "state.json":
        sign(folder)
    with pytest.raises(CheckpointError, match=r"state\.json|manifest\.json|progression"):
        go_on(tmp_path)


@pytest.mark.parametrize("value", [None, 7, [], {"torch": None}])
@pytest.mark.parametrize("part", ["progression", "identity", "generators"])
def test_a_training_state_with_a_damaged_part(tmp_path: Path, part: str, value: Any) -> None:
    folder = checkpoint(tmp_path)
    values = json.loads((folder / "state.json").read_text())
    for damage in (lambda: values.update({part: value}), lambda: values.pop(part)):
        damage()
        (folder / "state.json").write_text(json.dumps(values))
        sign(folder)
        with pytest.raises(CheckpointError, match="step-00000001"):
            go_on(tmp_path)


def test_a_resume_hashes_each_file_of_a_checkpoint_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint(tmp_path)
    hashed: list[str] = []
    whole = snapshot.sha256_file

    def counted(path: Path) -> str:
        hashed.append(path.name)
        return whole(path)

    monkeypatch.setattr(snapshot, "sha256_file", counted)
    go_on(tmp_path)
    assert sorted(hashed) == ["state.json", "tensors.safetensors"]


LINES = {"a list": "[]", "nested": "[" * 100_000, "no step": "{}", "null": '{"step": null}', "text": '{"step": "1"}'}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
@pytest.mark.parametrize("use", [lambda path: list(read_log(path)), lambda path: RunLog(path, "").drop_after(1, 1)])
def test_a_damaged_line_of_a_log(tmp_path: Path, use: Callable[[Path], Any], line: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n' + line + "\n")
    with pytest.raises(CheckpointError, match=r"log\.jsonl:2 is damaged"):
        use(path)


def test_a_log_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b'{"step": 1, "x": "\xff"}\n')
    with pytest.raises(CheckpointError, match=r"log\.jsonl:1 is damaged"):
        list(read_log(tmp_path / "log.jsonl"))


def test_a_file_that_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").mkdir()
    with pytest.raises(CheckpointError, match="is a folder"):
        read_json(tmp_path / "metrics.json", dict)
