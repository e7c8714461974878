"""``convert`` and fingerprints of BART, mBART and T5: the same model comes out, or nothing at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

import bertkit
from bertkit.cli import main
from bertkit.errors import CheckpointError
from bertkit.model.convert import convert
from bertkit.model.fingerprint import Fingerprint, differences, fingerprint
from seq2seq_helpers import KINDS, close, pair

WRITES = "ForConditionalGeneration"
OLD_TABLE = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
Tensors = dict[str, Tensor]


def words(tensors: Tensors) -> str:
    return next(name for name in tensors if name.endswith("shared.weight"))


def as_of_old(folder: Path) -> Tensors:
    """The tensors of a folder as old files have them: with copies, and with what has no effect."""
    tensors = load_file(folder / "model.safetensors")
    table = words(tensors)
    prefix = table.removesuffix("shared.weight")
    copies = [f"{prefix}encoder.embed_tokens.weight", f"{prefix}decoder.embed_tokens.weight", "lm_head.weight"]
    old = {**{name: tensors[table].clone() for name in copies}, **tensors}
    return old | ({f"{prefix}encoder.version": torch.tensor([3.0])} if prefix else {OLD_TABLE: torch.randn(8, 3)})


def write_shards(tensors: Tensors, folder: Path, ending: str, save: Callable[[Tensors, Path], object]) -> None:
    weight_map = {name: f"{ending.replace('.', f'-{1 + at % 2}.', 1)}" for at, name in enumerate(sorted(tensors))}
    for shard in set(weight_map.values()):
        save({name: tensors[name] for name in tensors if weight_map[name] == shard}, folder / shard)
    (folder / f"{ending}.index.json").write_text(json.dumps({"weight_map": weight_map}))


FORMS = ["safetensors in shards", "pickle", "pickles"]
ONE_OF_EACH = {("bart", "pickle"), ("t5", "pickles")}
CASES = [
    pytest.param(
        kind,
        form,
        id=f"{kind}-{form}",
        marks=[] if form == FORMS[0] else pytest.mark.slow if (kind, form) in ONE_OF_EACH else pytest.mark.campaign,
    )
    for kind in ("bart", "mbart", "t5", "t5 v1.1")
    for form in FORMS
]


@pytest.mark.parametrize(("kind", "form"), CASES)
def test_the_same_model_comes_out(kind: str, form: str, tmp_path: Path) -> None:
    both = pair(kind, WRITES, tmp_path / "old")
    wanted, before = load_file(tmp_path / "old" / "model.safetensors"), fingerprint(tmp_path / "old")
    old = as_of_old(tmp_path / "old")
    (tmp_path / "old" / "model.safetensors").unlink()
    if form == "pickle":
        torch.save(old, tmp_path / "old" / "pytorch_model.bin")
    elif form == "pickles":
        write_shards(old, tmp_path / "old", "pytorch_model.bin", torch.save)
    else:
        write_shards(old, tmp_path / "old", "model.safetensors", save_file)
    done = convert(tmp_path / "old", tmp_path / "new", trust_pickle=form != "safetensors in shards")
    assert done.model == type(both.ours).__name__
    assert done.dropped == {"buffers": 1, "copies of tied tensors": 2 if kind == "t5 v1.1" else 3}
    assert any(line.startswith(f"outputs of {done.model} before and after") for line in done.compared)
    written = load_file(tmp_path / "new" / "model.safetensors")
    assert written.keys() == wanted.keys()
    assert all(torch.equal(value, wanted[name]) for name, value in written.items())
    assert differences(done.fingerprint, before) == []
    assert Fingerprint.from_file(tmp_path / "new" / "fingerprint.json") == done.fingerprint
    ids = torch.tensor([[5, 9, 2]])
    call = {"attention_mask": both.mask, "decoder_input_ids": ids.expand(4, 3)}
    again = type(both.peer).from_pretrained(tmp_path / "new").eval()
    assert torch.equal(again(input_ids=both.ids, **call).logits, both.peer(input_ids=both.ids, **call).logits)


def test_an_output_of_its_own_stays_even_if_it_equals_the_words(tmp_path: Path) -> None:
    both = pair("t5 v1.1", WRITES, tmp_path / "m")
    tensors = load_file(tmp_path / "m" / "model.safetensors")
    tensors["lm_head.weight"] = tensors["shared.weight"].clone()
    save_file(tensors, tmp_path / "m" / "model.safetensors", {"format": "pt"})
    convert(tmp_path / "m", tmp_path / "new")
    assert "lm_head.weight" in load_file(tmp_path / "new" / "model.safetensors")
    model = bertkit.T5ForConditionalGeneration.from_pretrained(tmp_path / "new")
    assert model.lm_head is not None
    assert model.config.output_scale == 1.0
    assert torch.equal(model.lm_head.weight, model.model.shared.weight)
    assert not torch.equal(model.lm_head.weight, both.ours.lm_head.weight)


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_copies_without_their_original(kind: str, tmp_path: Path) -> None:
    pair(kind, WRITES, tmp_path / "m")
    old, before = as_of_old(tmp_path / "m"), fingerprint(tmp_path / "m")
    table = words(old)
    expected = old.pop(table)
    save_file(old, tmp_path / "m" / "model.safetensors", {"format": "pt"})
    done = convert(tmp_path / "m", tmp_path / "new")
    assert done.dropped == {"buffers": 1, "copies of tied tensors": 2}
    written = load_file(tmp_path / "new" / "model.safetensors")
    assert torch.equal(written[table], expected)
    assert differences(fingerprint(tmp_path / "new"), before) == []


@pytest.mark.parametrize(
    ("kind", "edit", "message"),
    [
        ("bart", {"model.decoder.layers.0.cross.weight": (2, 2)}, r"unexpected \(1\)"),
        ("t5", {"encoder.block.0.layer.0.SelfAttention.b": (2,)}, r"unexpected \(1\)"),
        ("bart", {"lm_head.weight": (60, 24)}, "'lm_head.weight' differs from"),
        ("t5", {"decoder.embed_tokens.weight": (60, 24)}, "'decoder.embed_tokens.weight' differs from"),
    ],
)
def test_what_does_not_fit(kind: str, edit: dict[str, tuple[int, ...]], message: str, tmp_path: Path) -> None:
    pair(kind, WRITES, tmp_path / "m")
    tensors = load_file(tmp_path / "m" / "model.safetensors")
    tensors |= {name: torch.ones(shape) for name, shape in edit.items()}
    save_file(tensors, tmp_path / "m" / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match=message):
        convert(tmp_path / "m", tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_settings_of_generation_come_along(tmp_path: Path) -> None:
    """In a file of their own, or in the config.json of an old checkpoint, with the prefixes of its tasks."""
    pair("t5", WRITES, tmp_path / "m")
    file, config_file = tmp_path / "m" / "generation_config.json", tmp_path / "m" / "config.json"
    file.write_text('{"num_beams": 3, "max_length":  9}')
    convert(tmp_path / "m", tmp_path / "with a file")
    assert (tmp_path / "with a file" / "generation_config.json").read_bytes() == file.read_bytes()
    file.unlink()
    tasks = {"summarization": {"prefix": "summarize: ", "num_beams": 4}}
    said = {**json.loads(config_file.read_text()), "max_length": 11, "task_specific_params": tasks}
    config_file.write_text(json.dumps(said))
    convert(tmp_path / "m", tmp_path / "without")
    for folder, longest in (("with a file", 9), ("without", 11)):
        model = bertkit.T5ForConditionalGeneration.from_pretrained(tmp_path / folder)
        assert model.generation_settings.longest == longest
    assert json.loads((tmp_path / "without" / "config.json").read_text())["task_specific_params"] == tasks
    config_file.write_text(json.dumps({**said, "num_beam_groups": 2}))
    with pytest.raises(CheckpointError, match="num_beam_groups is 2; bertkit generates only with"):
        convert(tmp_path / "m", tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize("head", ["Model", "ForSequenceClassification", "ForQuestionAnswering"])
def test_other_classes_of_bart(head: str, tmp_path: Path) -> None:
    pair("bart", head, tmp_path / "m")
    assert convert(tmp_path / "m", tmp_path / "new").model == f"Bart{head}"


def test_the_encoder_of_a_t5(tmp_path: Path) -> None:
    pair("t5", "EncoderModel", tmp_path / "m")
    done = convert(tmp_path / "m", tmp_path / "new")
    assert done.model == "T5EncoderModel"
    assert list(done.fingerprint.activations) == [f"hidden_states.{number}" for number in range(3)]


@pytest.fixture
def bart(tmp_path: Path) -> Any:
    return pair("bart", WRITES, tmp_path / "m").ours


def test_a_fingerprint_has_the_layers_of_both_halves(bart: Any, tmp_path: Path) -> None:
    mark = fingerprint(tmp_path / "m")
    assert list(mark.activations) == [
        *(f"encoder_hidden_states.{number}" for number in range(3)),
        *(f"decoder_hidden_states.{number}" for number in range(4)),
        "logits",
    ]
    assert mark.input_ids[-1] == bart.config.eos_token_id
    ids = torch.tensor([mark.input_ids])
    found = bart(ids, decoder_input_ids=bart.shift_right(ids))
    assert mark.activations["logits"].mean == pytest.approx(float(found.logits.mean()), abs=1e-5)
    peer = transformers.BartForConditionalGeneration.from_pretrained(tmp_path / "m").eval()
    close(found.logits, peer(input_ids=ids, labels=ids).logits)  # which shifts them itself


def test_a_fingerprint_tells_where_models_differ(bart: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layer = bart.model.decoder.layer[1]
    layer.cross.out.weight.data = layer.cross.out.weight.data.T.contiguous()
    bart.save_pretrained(tmp_path / "other")
    assert main(["inspect", str(tmp_path / "m"), "--verify", "--json"]) == 0
    (tmp_path / "answer.json").write_text(capsys.readouterr().out)
    for against in (tmp_path / "m", tmp_path / "answer.json"):
        assert main(["inspect", str(tmp_path / "other"), "--against", str(against)]) == 4
        out = capsys.readouterr().out
        told = [line.split()[0] for line in out.splitlines() if " differs by " in line]
        assert told == ["decoder_hidden_states.2", "decoder_hidden_states.3", "logits"]
    assert main(["inspect", str(tmp_path / "m"), "--against", str(tmp_path / "m")]) == 0
    fewer = bertkit.BartModel(bart.config.replace(decoder_layers=1))
    fewer.save_pretrained(tmp_path / "fewer")
    assert differences(fingerprint(tmp_path / "m"), fingerprint(tmp_path / "fewer")) == [
        "one has 2 layers of the encoder and 3 layers of the decoder, the other 2 layers of the encoder and 1 layer "
        "of the decoder"
    ]


@pytest.mark.slow
def test_the_files_of_a_tokenizer(shared: Path, tmp_path: Path) -> None:
    from tokenizer_families import small

    tokenizer: Any = small("t5", shared, tmp_path)
    values = {**KINDS["t5"][1], "vocab_size": len(tokenizer)}
    bertkit.T5ForConditionalGeneration(bertkit.T5Config(**values)).save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    done = convert(tmp_path / "m", tmp_path / "new")
    assert done.fingerprint.sentence is not None
    assert done.fingerprint.input_ids[-1] == 1
    names = {path.name for path in (tmp_path / "m").iterdir()}
    assert {path.name for path in (tmp_path / "new").iterdir()} == names | {"fingerprint.json"}
