"""What the scripts of the runtimes share: padding, order, pooling, the protocol."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from bertkit.benchmark.runtimes import PEERS_FOLDER
from bertkit.engine.export_folder import MANIFEST

#: A runtime in which a hidden state depends on the whole text, so that a wrong mask or order shows.
TOY = """
import numpy as np
from peer import PaddedRunner, main

def encode(ids, mask, segments):
    sums = np.cumsum((ids * mask + 10 * segments), axis=1, dtype=np.float32)
    total = (ids * mask).sum(axis=1, keepdims=True) / 1000
    return np.stack([sums + total, ids.astype(np.float32)], axis=2).astype(np.float32)

if __name__ == "__main__":
    print("noise on standard output")
    main(lambda setup: PaddedRunner(encode, pad_id=7))
"""


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(PEERS_FOLDER))
    import peer

    return peer


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    boundaries = np.concatenate([[0], np.cumsum(rng.integers(1, 30, 70))])
    ids = rng.integers(1, 100, boundaries[-1])
    np.savez(tmp_path / "texts.npz", ids=ids, segments=rng.integers(0, 2, len(ids)), boundaries=boundaries)
    return tmp_path / "texts.npz"


def by_hand(path: Path) -> list[np.ndarray]:
    """The toy's hidden states of each text by itself, without any padding."""
    with np.load(path) as arrays:
        ids, segments, ends = arrays["ids"], arrays["segments"], arrays["boundaries"]
    states = []
    for start, end in pairwise(ends.tolist()):
        own = ids[start:end]
        states.append(np.stack([np.cumsum(own + 10 * segments[start:end]) + own.sum() / 1000, own], axis=1))
    return states


@pytest.mark.parametrize("order", ["arrival", "sorted"])
def test_vectors_do_not_depend_on_the_batch(peer: ModuleType, texts: Path, order: str) -> None:
    namespace: dict[str, object] = {"__name__": "toy"}
    exec(TOY, namespace)
    runner = peer.PaddedRunner(namespace["encode"], pad_id=7)
    given = peer.Texts.read(str(texts))
    expected = np.stack([states.mean(axis=0) for states in by_hand(texts)])
    numbers, batches = peer.in_batches(given, runner.batch_size, order)
    assert [len(batch.lengths) for batch in batches] == [32, 32, 6]
    assert np.allclose(np.concatenate([runner.vectors(batch) for batch in batches]), expected[numbers], rtol=1e-5)
    found = peer.all_vectors(runner, given)
    assert np.allclose(found, expected, rtol=1e-5)
    assert not np.allclose(found[::-1], expected, rtol=1e-5)  # the order is the texts' own


def test_a_runtime_that_sorts_by_itself_gets_all_texts_at_once(peer: ModuleType, texts: Path) -> None:
    given = peer.Texts.read(str(texts))
    numbers, (batch,) = peer.in_batches(given, None, "arrival")
    assert np.array_equal(numbers, np.arange(70))
    assert np.array_equal(batch.ids, given.ids)


def test_batches_are_put_together_before_the_clock_runs(
    peer: ModuleType, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    select = peer.Texts.select
    monkeypatch.setattr(peer.Texts, "select", lambda self, numbers: events.append("select") or select(self, numbers))
    monkeypatch.setattr(peer.time, "perf_counter", lambda: events.append("clock") or 0.0)

    class Counted(peer.PaddedRunner):  # type: ignore[name-defined, misc]
        def vectors(self, texts: object) -> None:
            events.append("vectors")

    request = {"do": "pass", "texts": str(texts), "order": "sorted"}
    assert peer._answer(Counted(None), request) == {"seconds": [0.0]}
    assert events == 3 * ["select"] + ["clock"] + 3 * ["vectors"] + ["clock"]


def test_exports_get_the_number_of_threads(peer: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import run_bertkit

    given: list[object] = []
    monkeypatch.setattr(
        run_bertkit, "pipeline", lambda *_, threads, **__: given.append(threads) or SimpleNamespace(engine=0)
    )
    setup = peer.Setup(tmp_path, tmp_path, "fp32", 3)
    run_bertkit.Runner(setup)
    (tmp_path / MANIFEST).write_text("{}")
    run_bertkit.Runner(setup)
    assert given == [None, 3]


def test_a_conversion_that_fails_says_the_same_again(
    peer: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: str) -> None:
        raise RuntimeError("no such layer")

    converters = SimpleNamespace(TransformersConverter=fail)
    monkeypatch.setitem(sys.modules, "ctranslate2", SimpleNamespace(converters=converters, Encoder=None))
    import run_ctranslate2

    monkeypatch.setattr(run_ctranslate2, "ctranslate2", sys.modules["ctranslate2"])
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    setup = peer.Setup(tmp_path / "model", tmp_path, "fp32", 1)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no such layer"):
            run_ctranslate2.prepare(setup)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def ask(process: subprocess.Popen[str], **request: object) -> dict[str, object]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    answer: dict[str, object] = json.loads(process.stdout.readline())
    return answer


def test_a_process_answers_requests_until_its_input_ends(texts: Path, tmp_path: Path) -> None:
    script = tmp_path / "run_toy.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(PEERS_FOLDER)!r})\n{TOY}")
    command = [sys.executable, str(script), "--model", str(tmp_path), "--work", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        # Redirected only once main() runs: what a script prints before would be its own fault.
        assert process.stdout.readline() == "noise on standard output\n"
        assert json.loads(process.stdout.readline()) == {"ready": True}
        out = tmp_path / "out.npy"
        ask(process, do="hidden", texts=str(texts), out=str(out))
        assert np.allclose(np.load(out), np.concatenate(by_hand(texts)), rtol=1e-5)
        ask(process, do="vectors", texts=str(texts), out=str(out))
        assert np.load(out).shape == (70, 2)
        seconds = ask(process, do="calls", texts=str(texts), budget=0)["seconds"]
        assert isinstance(seconds, list)
        assert len(seconds) == 70  # each text once
        assert min(seconds) > 0
        assert len(ask(process, do="pass", texts=str(texts), order="arrival")["seconds"]) == 1  # type: ignore[arg-type]
        memory = ask(process, do="memory")["bytes"]
        assert isinstance(memory, int)
        assert 5e6 < memory < 1e9
        process.stdin.close()  # type: ignore[union-attr]
        assert process.wait(10) == 0


def test_half_a_graph_is_not_taken_for_a_whole_one(
    peer: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnx_files

    optimizer = pytest.importorskip("onnxruntime.transformers.optimizer")
    quantization = pytest.importorskip("onnxruntime.quantization")
    (tmp_path / "config.json").write_text('{"num_attention_heads": 2, "hidden_size": 8}')
    setup = peer.Setup(tmp_path, tmp_path, "int8", 1)
    full = True

    def write(path: str | Path) -> None:
        Path(path).write_text("half")
        if full:
            raise OSError("the disk is full")
        Path(path).write_text("whole")

    monkeypatch.setattr(optimizer, "optimize_model", lambda *_, **__: SimpleNamespace(save_model_to_file=write))
    monkeypatch.setattr(quantization, "quantize_dynamic", lambda source, path, **_: write(path))
    (tmp_path / "model.onnx").touch()
    for made in (onnx_files.fused_graph_of, onnx_files.int8_graph_of):
        full = True
        with pytest.raises(OSError, match="full"):
            made(setup)
        full = False
        assert made(setup).read_text() == "whole"
    assert not list(tmp_path.glob("*draft*"))
