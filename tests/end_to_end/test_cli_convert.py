"""``bertkit convert`` and ``bertkit inspect --verify``, as a user types them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from test_sources_hub import REPOSITORY, ModelHub

from bertkit import BertForPreTraining
from bertkit.cli import main
from bertkit.model.fingerprint import differences, fingerprint
from hub_helpers import client
from tensorflow_helpers import GOLDEN


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("convert") / "bert"
    assert main(["convert", str(GOLDEN / "original"), str(folder), "--quiet"]) == 0
    return folder


def test_what_convert_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = GOLDEN / "original" / "bert_model.ckpt"
    assert main(["convert", str(prefix), str(tmp_path / "bert")]) == 0
    out = capsys.readouterr().out
    assert "(the original BERT)" in out
    assert "saved as BertForPreTraining" in out
    assert "46 tensors with 1,618 values, read again on both sides: equal bit for bit" in out
    assert "hidden_states.2" in out
    assert sorted(path.name for path in (tmp_path / "bert").iterdir()) == [
        "config.json", "fingerprint.json", "model.safetensors", "tokenizer_config.json", "vocab.txt",
    ]  # fmt: skip
    assert main(["convert", str(prefix), str(tmp_path / "bert")]) == 2
    assert "exists already" in capsys.readouterr().err


def test_convert_as_json_with_overrides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(GOLDEN / "original" / "bert_config.json")
    vocab = str(GOLDEN / "original" / "vocab.txt")
    arguments = ["--config", config, "--vocab", vocab, "--no-lower-case", "--model-class", "BertForTokenClassification"]
    assert main(["convert", str(GOLDEN / "classifier"), str(tmp_path / "tagger"), "--json", *arguments]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["model"] == "BertForTokenClassification"
    assert done["dropped"] == {"optimizer variables": 82, "bookkeeping variables": 1}
    assert done["fingerprint"]["sentence"]
    assert json.loads((tmp_path / "tagger" / "tokenizer_config.json").read_text())["do_lower_case"] is False


def test_nothing_to_convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["convert", str(tmp_path / "empty"), str(tmp_path / "out")]) == 4
    assert "has no checkpoint to convert" in capsys.readouterr().err
    (tmp_path / "rows.csv").write_text("text,label\n")
    assert main(["convert", str(tmp_path / "rows.csv"), str(tmp_path / "out")]) == 4
    assert "rows.csv is not a checkpoint: neither a TensorFlow index" in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "gone"), str(tmp_path / "out")]) == 4
    assert not (tmp_path / "out").exists()


def test_verify_compares_with_what_convert_saw(converted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(converted), "--verify"]) == 0
    assert "fingerprint.json: the same" in capsys.readouterr().out
    assert main(["inspect", str(converted), "--verify", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["differences"] == []
    assert list(answer["fingerprint"]["activations"])[:2] == ["hidden_states.0", "hidden_states.1"]


def test_verify_against_another_model_and_a_saved_answer(
    converted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = BertForPreTraining.from_pretrained(converted)
    model.save_pretrained(tmp_path / "same")
    (tmp_path / "same" / "vocab.txt").write_bytes((converted / "vocab.txt").read_bytes())
    assert main(["inspect", str(tmp_path / "same"), "--against", str(converted)]) == 0
    assert main(["inspect", str(tmp_path / "same"), "--verify"]) == 0
    assert "nothing to compare with" in capsys.readouterr().out
    assert main(["inspect", str(tmp_path / "same"), "--verify", "--json"]) == 0
    (tmp_path / "answer.json").write_text(capsys.readouterr().out)
    dense = model.bert.encoder.layer[1].attention.out.weight
    dense.data = dense.data.T.contiguous()  # a square matrix the wrong way round: every shape is right
    model.save_pretrained(tmp_path / "same")
    for against in (str(converted), str(tmp_path / "answer.json")):
        assert main(["inspect", str(tmp_path / "same"), "--against", against]) == 4
        out = capsys.readouterr().out
        assert "NOT the same" in out
        assert "hidden_states.2 differs by" in out
        assert "hidden_states.1 differs" not in out  # the layers below are untouched


def test_the_other_form_of_gelu_is_seen(converted: Path, tmp_path: Path) -> None:
    other = tmp_path / "tanh"
    other.mkdir()
    for file in converted.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "hidden_act": "gelu_new"}))
    assert differences(fingerprint(converted), fingerprint(converted)) == []
    assert differences(fingerprint(converted), fingerprint(other))[0].startswith("hidden_states.1 differs")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"fingerprint": 1}', '{"model": "x", "sentence": 1}'])
def test_what_is_no_fingerprint(
    content: str, converted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "f.json").write_text(content)
    assert main(["inspect", str(converted), "--against", str(tmp_path / "f.json")]) == 4
    assert "f.json" in capsys.readouterr().err


def test_a_tensorflow_checkpoint_on_the_hub(tmp_path: Path) -> None:
    hub = ModelHub(
        {file.name: file.read_bytes() for file in (GOLDEN / "original").iterdir()} | {"pytorch_model.bin": b"?"}
    )
    try:
        code = "from bertkit.cli import main; import sys; sys.exit(main({}))"
        done = client(code.format(["convert", REPOSITORY, str(tmp_path / "out")]), tmp_path, hub.url)
        assert done.returncode == 0, done.stderr
        assert "saved as BertForPreTraining" in done.stdout
        assert not any("pytorch_model.bin" in path for path in hub.asked)
    finally:
        hub.stop()


@pytest.mark.campaign
def test_a_pickle_on_the_hub_is_fetched_only_when_trusted(converted: Path, tmp_path: Path) -> None:
    pickle = io.BytesIO()
    torch.save(dict(BertForPreTraining.from_pretrained(converted).bert.pooler.state_dict()), pickle)
    files = {name: (converted / name).read_bytes() for name in ("config.json", "vocab.txt")}
    hub = ModelHub({**files, "pytorch_model.bin": pickle.getvalue()})
    try:
        code = "from bertkit.cli import main; import sys; sys.exit(main(sys.argv[1:] or {}))"
        arguments = ["convert", REPOSITORY, str(tmp_path / "out")]
        refused = client(code.format(arguments), tmp_path, hub.url)
        assert refused.returncode == 4
        assert "fetched only with --trust-pickle" in refused.stderr
        assert not any("pytorch_model.bin" in path for path in hub.asked)
        opened = client(code.format([*arguments, "--trust-pickle"]), tmp_path, hub.url)
        assert any("pytorch_model.bin" in path for path in hub.asked)
        assert "gives no model that bertkit loads" in opened.stderr  # there is nothing but a pooler in it
        assert not (tmp_path / "out").exists()
    finally:
        hub.stop()
