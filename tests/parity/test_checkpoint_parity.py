"""Checkpoints against transformers, both ways: its files give us its outputs, our files give it ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import bertkit
from bertkit.checkpoints.names import BERT
from bertkit.checkpoints.rules import NameTable

#: Largest absolute difference allowed between outputs in fp32 (observed here: below 2e-6).
ATOL = 1e-5
HEADS = tuple(BERT.classes)
TINY = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
    "initializer_range": 0.5,  # with 0.02 all outputs would look alike
}


def theirs(head: str, num_labels: int = 3, **changes: Any) -> Any:
    """A random model of transformers in which nothing is 0 or 1, not even biases and LayerNorms."""
    config = transformers.BertConfig(**{**TINY, "num_labels": num_labels, **changes})
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = getattr(transformers, head)(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def awkward_batch(head: str) -> dict[str, Tensor]:
    """Padding, both segments, a sequence of one token and a full one."""
    generator = torch.Generator().manual_seed(3)
    lengths = torch.tensor([24, 1, 7, 15])
    mask = (torch.arange(24) < lengths[:, None]).long()
    ids = torch.randint(1, 50, (4, 24), generator=generator) * mask
    segments = torch.randint(0, 2, (4, 24), generator=generator) * mask
    batch = {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
    return {key: value.view(2, 2, 24) for key, value in batch.items()} if head.endswith("Choice") else batch


def assert_same_outputs(ours: Any, reference: Any, batch: dict[str, Tensor]) -> None:
    """Every output and every layer, at real tokens (padded positions are not defined)."""
    mask = batch["attention_mask"].flatten(0, -2).bool()
    with torch.inference_mode():
        got = ours(**batch, output_hidden_states=True)
        want = reference(**batch, output_hidden_states=True)
    compared = 0
    for key, expected in want.items():
        pairs = zip(got[key], expected, strict=True) if key == "hidden_states" else [(got[key], expected)]
        for a, b in pairs:
            assert a.shape == b.shape, key
            per_token = a.shape[:2] == mask.shape
            # rtol: logits of real weights reach 30, where neighbouring fp32 numbers are 2e-6 apart.
            rtol = 5e-6 if "logits" in key else 0.0
            torch.testing.assert_close(a[mask] if per_token else a, b[mask] if per_token else b, rtol=rtol, atol=ATOL)
            compared += 1
    assert compared >= reference.config.num_hidden_layers + 2


@pytest.mark.parametrize("head", HEADS)
def test_what_transformers_saved_loads_exactly(head: str, tmp_path: Path) -> None:
    reference = theirs(head, num_labels=2 if head.endswith("Answering") else 3)
    reference.save_pretrained(tmp_path)
    ours = getattr(bertkit, head).from_pretrained(tmp_path)
    assert not ours.load_report.new
    assert not ours.load_report.unused
    assert_same_outputs(ours, reference, awkward_batch(head))


@pytest.mark.parametrize("head", HEADS)
def test_transformers_loads_what_we_save(head: str, tmp_path: Path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        ours = getattr(bertkit, head)(bertkit.BertConfig(**TINY, num_labels=3)).eval()
    ours.save_pretrained(tmp_path)
    reference, told = getattr(transformers, head).from_pretrained(tmp_path, output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    assert not told["mismatched_keys"]
    assert_same_outputs(ours, reference.eval(), awkward_batch(head))


def test_shards_written_by_transformers(tmp_path: Path) -> None:
    reference = theirs("BertModel")
    reference.save_pretrained(tmp_path, max_shard_size="4KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert_same_outputs(bertkit.BertModel.from_pretrained(tmp_path), reference, awkward_batch(""))
    index = tmp_path / "model.safetensors.index.json"
    assert_same_outputs(bertkit.BertModel.from_pretrained(index), reference, awkward_batch(""))


def test_a_single_file(tmp_path: Path) -> None:
    reference = theirs("BertModel")
    reference.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "other.safetensors")
    ours = bertkit.AutoModel.from_pretrained(tmp_path / "other.safetensors")
    assert_same_outputs(ours, reference, awkward_batch(""))


def test_a_regression_checkpoint_keeps_its_meaning(tmp_path: Path) -> None:
    reference = theirs("BertForSequenceClassification", num_labels=1, problem_type="regression")
    reference.save_pretrained(tmp_path)
    ours = bertkit.BertForSequenceClassification.from_pretrained(tmp_path)
    assert (ours.config.num_labels, ours.config.problem_type) == (1, "regression")
    assert_same_outputs(ours, reference, awkward_batch(""))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_files_load_as_float32(kind: torch.dtype, tmp_path: Path) -> None:
    reference = theirs("BertModel").to(kind)
    reference.save_pretrained(tmp_path)
    ours = bertkit.BertModel.from_pretrained(tmp_path)
    assert ours.dtype == torch.float32
    assert_same_outputs(ours, reference.float(), awkward_batch(""))
    halved = bertkit.BertModel.from_pretrained(tmp_path, dtype=kind)
    assert {parameter.dtype for parameter in halved.parameters()} == {kind}
    assert torch.equal(halved.embeddings.word_embeddings.weight, reference.embeddings.word_embeddings.weight.to(kind))


@pytest.mark.parametrize("swapped", [("query", "key"), ("key", "value"), ("intermediate", "output")])
def test_control_a_wrong_name_table_breaks_parity(
    swapped: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this passed with names exchanged, the tests above would prove nothing."""
    reference = theirs("BertModel", intermediate_size=16)
    reference.save_pretrained(tmp_path)
    table = _exchange(BERT, *swapped)
    assert table != BERT
    monkeypatch.setattr("bertkit.checkpoints.fit.TABLES", {"bert": table})
    ours = bertkit.BertModel.from_pretrained(tmp_path)
    assert not ours.load_report.problems
    with pytest.raises(AssertionError):
        assert_same_outputs(ours, reference, awkward_batch(""))


def _exchange(table: NameTable, a: str, b: str) -> NameTable:
    def other(name: str) -> str:
        if not name.startswith("encoder.layer.{i}.") or (a == "intermediate" and "attention" in name):
            return name
        if "LayerNorm" in name:
            return name
        return name.replace(f".{a}.", ".#.").replace(f".{b}.", f".{a}.").replace(".#.", f".{b}.")

    encoder = tuple(rule._replace(theirs=tuple(other(name) for name in rule.theirs)) for rule in table.parts["encoder"])
    return replace(table, parts={**table.parts, "encoder": encoder})


SENTENCE = [101, 1996, 3007, 1997, 2605, 2003, 3000, 1012, 102]


def real_batch() -> dict[str, Tensor]:
    ids = torch.tensor([SENTENCE, [*SENTENCE[:4], 102, 0, 0, 0, 0]])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "token_type_ids": torch.zeros_like(ids)}


def test_real_weights_minilm(minilm: Path) -> None:
    ours = bertkit.AutoModel.from_pretrained(minilm)
    assert str(ours.load_report) == "BertModel: 79 exact, 0 new, 0 unused in the file"
    reference = transformers.AutoModel.from_pretrained(minilm).eval()
    assert_same_outputs(ours, reference, real_batch())


def test_real_weights_with_old_names_and_masked_lm_head(shared: Path) -> None:
    folder = shared / "models" / "bert-tiny-splade-mlm"
    ours = bertkit.BertForMaskedLM.from_pretrained(folder)
    reference = transformers.BertForMaskedLM.from_pretrained(folder).eval()
    assert_same_outputs(ours, reference, real_batch())
    bare = bertkit.BertModel.from_pretrained(folder)
    assert bare.pooler is None
    assert_same_outputs(bare, reference.bert, real_batch())


def test_real_weights_come_back_the_same(minilm: Path, shared: Path, tmp_path: Path) -> None:
    for number, (head, folder) in enumerate(
        [("BertModel", minilm), ("BertForMaskedLM", shared / "models" / "bert-tiny-splade-mlm")]
    ):
        first = getattr(bertkit, head).from_pretrained(folder)
        first.save_pretrained(tmp_path / str(number))
        second = getattr(bertkit, head).from_pretrained(tmp_path / str(number))
        for name, tensor in first.state_dict().items():
            assert torch.equal(tensor, second.state_dict()[name]), name
