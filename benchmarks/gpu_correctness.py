"""Checks of gpu_all.py on the card: each gives a dictionary that says whether it ``holds``."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertkit.batch import Layout
from bertkit.config.bert_config import BertConfig
from bertkit.engine.backend import Wanted
from bertkit.engine.captured_encoder import SIZES, SWITCH, CapturedEncoder
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.model.attention import Kernel, attend_reference
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.kernels.varlen_attention import attend_packed, backend_for, varlen_capability
from bertkit.model.models import BertModel
from bertkit.ragged import Ragged, boundaries_of

Found = Iterator[dict[str, Any]]
#: Largest error of 16-bit attention, of its values and gradients, in units of the largest value.
KERNEL_ERROR = {torch.float16: 5e-3, torch.bfloat16: 3e-2}
#: Of vectors in fp32, beside transformers and beside those of a text alone.
DIFFERENCE, LEAST_COSINE = 1e-3, 0.999
FAMILIES = (
    "bert", "roberta", "distilbert", "electra", "mpnet", "albert", "xlm-roberta", "camembert", "modernbert",
    "deberta-v2",
)  # fmt: skip
#: What their configurations have besides, or of DistilBERT in place of, the usual sizes.
FAMILY_SHAPES: dict[str, dict[str, Any]] = {
    "distilbert": {"dim": 128, "n_layers": 3, "n_heads": 2, "hidden_dim": 256},
    "deberta-v2": {
        "relative_attention": True, "pos_att_type": "p2c|c2p", "position_buckets": 16, "share_att_key": True,
        "norm_rel_ebd": "layer_norm", "position_biased_input": False, "type_vocab_size": 0,
        "max_relative_positions": -1,
    },
}  # fmt: skip


def kernel_errors(device: torch.device) -> Found:
    """The kernel that the card gets beside the reference in fp32: values and gradients, all rows and chosen ones."""
    torch.manual_seed(1)
    chance = np.random.default_rng(1)
    for dtype, most in KERNEL_ERROR.items():
        for width in (32, 64, 128):
            layout = Layout((1, 512, *chance.integers(1, 300, 14).tolist()))
            some = ChosenRows.first_and(torch.arange(0, layout.num_tokens, 7), layout)
            for rows in (None, ChosenRows(some.rows.to(device), some.lengths)):
                qkv = torch.randn(layout.num_tokens, 3, 4, width, device=device).to(dtype)
                expected = values_and_gradients(attend_reference, qkv.float(), layout, rows)
                found = values_and_gradients(attend_packed, qkv, layout, rows)
                errors = [error(x, right) for x, right in zip(found, expected, strict=True)]
                case = f"{str(dtype).removeprefix('torch.')}, width {width}, {'all' if rows is None else 'chosen'} rows"
                yield {"check": "attention", "case": case, "errors": errors, "holds": max(errors) <= most}


def values_and_gradients(attend: Kernel, qkv: Tensor, layout: Layout, rows: ChosenRows | None) -> list[Tensor]:
    leaf = qkv.clone().requires_grad_()
    out = attend(leaf, layout, 0.0, rows)
    out.backward(torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(out))
    assert leaf.grad is not None
    return [out.detach(), leaf.grad]


def error(found: Tensor, expected: Tensor) -> float:
    """The largest difference, in units of the largest value."""
    return float((found.float() - expected).abs().max() / expected.abs().max())


def dropout_facts(device: torch.device, p: float = 0.1) -> Found:
    """Dropout in attention: its mean and spread, other masks each time, and the mask of the backward pass.

    With equal scores and values of 1 an output is the share of keys that are kept, over 1 - p: its mean is 1 and its
    variance p / ((1 - p) S). The output is linear in the values, so that ``<grad V, V>`` is ``<out, direction>`` only
    if both passes drop the same. In 16 bits the factor 1 / (1 - p) is rounded by up to .4 %.
    """
    size, count = 256, 64
    layout = Layout((size,) * count)
    qkv = torch.zeros(layout.num_tokens, 3, 4, 64, device=device, dtype=torch.bfloat16)
    qkv[:, 2] = 1
    torch.manual_seed(0)
    first, second = (attend_packed(qkv, layout, p)[..., 0].float() for _ in range(2))
    expected = p / ((1 - p) * size)
    mean, variance = float(first.mean()), float(first.var())
    good = abs(mean - 1) < 4e-3 and 0.9 < variance / expected < 1.1
    yield {
        "check": "dropout statistics", "mean": mean, "variance": variance, "expected_variance": expected,
        "masks_differ": not torch.equal(first, second), "holds": good and not torch.equal(first, second),
    }  # fmt: skip
    leaf = torch.randn(layout.num_tokens, 3, 4, 64, device=device).to(torch.bfloat16).requires_grad_()
    out = attend_packed(leaf, layout, p)
    direction = torch.randn_like(out)
    out.backward(direction)
    assert leaf.grad is not None
    forward = (out.detach().double() * direction.double()).sum()
    backward = (leaf.grad[:, 2].double() * leaf.detach()[:, 2].double()).sum()
    size_of = (out.detach().double() * direction.double()).square().sum().sqrt()
    off = float((forward - backward).abs() / size_of)
    yield {"check": "dropout of the backward pass", "difference_in_spreads": off, "holds": off < 0.1}


def packed_and_alone(device: torch.device, shape: dict[str, int]) -> Found:
    """Vectors of texts in packs beside those of each text alone: in fp32, and as the card computes by itself."""
    torch.manual_seed(0)
    wanted = Wanted(("last_hidden_state",), ("mean",))
    rows = random_rows(np.random.default_rng(0).integers(2, 300, 40))
    with tempfile.TemporaryDirectory() as folder:
        BertModel(BertConfig(**shape)).save_pretrained(folder)
        exact = InferenceEngine.load(Path(folder), "BertModel", device=device, precision="fp32")
        usual = InferenceEngine.load(Path(folder), "BertModel", device=device)
    expected = np.concatenate([exact.row_outputs(rows.select([row]), wanted) for row in range(len(rows))])
    packed = float(np.abs(exact.row_outputs(rows, wanted) - expected).max())
    yield {"check": "packed as alone, fp32", "difference": packed, "holds": packed <= 1e-4}
    found = usual.row_outputs(rows, wanted)
    cosine = float(((found * expected).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)).min())
    yield {
        "check": "default precision", "dtype": usual.backend.dtype, "cosine": cosine, "holds": cosine >= LEAST_COSINE,
    }  # fmt: skip


def graphs(device: torch.device, shape: dict[str, int]) -> Found:
    """Short texts by CUDA graphs beside the same kernels launched one by one, each size often enough to be replayed."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        BertModel(BertConfig(**shape)).save_pretrained(folder)
        engine = InferenceEngine.load(Path(folder), "BertModel", device=device)
        os.environ[SWITCH] = "0"
        try:
            plain = InferenceEngine.load(Path(folder), "BertModel", device=device)
        finally:
            del os.environ[SWITCH]
    yield graphs_beside(engine, plain, len(SIZES) if should_record(device) else 0)


def graphs_beside(engine: InferenceEngine, plain: InferenceEngine, wanted: int) -> dict[str, Any]:
    """Vectors of an engine with graphs beside those of one without; ``wanted``: how many graphs it must have then."""
    mean = Wanted(("last_hidden_state",), ("mean",))
    least = 1.0
    for lengths in [(3,), (16,), (16, 9), (40, 20), (100,), (60, 50, 90), (500,), (300, 200, 500)] * 3:
        rows = random_rows(np.array(lengths), engine.config.vocab_size)
        found, expected = engine.row_outputs(rows, mean), plain.row_outputs(rows, mean)
        norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
        least = min(least, float(((found * expected).sum(1) / norms).min()))
    recorded, without = graphs_recorded(engine), graphs_recorded(plain)
    return {
        "check": "graphs", "cosine": least, "recorded": recorded, "wanted": wanted, "recorded_without": without,
        "holds": least >= LEAST_COSINE and recorded == wanted and without == 0,
    }  # fmt: skip


def should_record(device: torch.device) -> bool:
    """Whether the device is a GPU on which an encoder in 16 bits has graphs."""
    return backend_for(varlen_capability(device), torch.bfloat16, 64).name == "variable-length"


def graphs_recorded(engine: InferenceEngine) -> int:
    """How many graphs the engine's encoders have and use."""
    fused = getattr(engine.backend, "_fused", None)
    parts = [] if fused is None else fused.view.modules()
    return sum(part.num_graphs for part in parts if isinstance(part, CapturedEncoder))


def families(device: torch.device) -> Found:
    """Small models of each family with random weights: hidden vectors beside those of transformers in fp32.

    Ours in fp32 and, by cosine, in bf16.
    """
    import transformers

    import bertkit

    transformers.logging.set_verbosity_error()
    shape = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 256}
    for name in FAMILIES:
        torch.manual_seed(0)
        more = FAMILY_SHAPES.get(name, {})
        config = transformers.AutoConfig.for_model(
            name, vocab_size=1000, pad_token_id=1, **(more if name == "distilbert" else shape | more)
        )
        theirs = transformers.AutoModel.from_config(config).eval()
        with tempfile.TemporaryDirectory() as folder:
            theirs.save_pretrained(folder)
            ours = bertkit.AutoModel.from_pretrained(folder).to(device).eval()
        ids = torch.randint(5, 1000, (4, 60), generator=torch.Generator().manual_seed(0)).to(device)
        mask = (torch.arange(60) < torch.tensor([60, 33, 7, 50])[:, None]).to(device)
        ids = ids.masked_fill(~mask, 1)
        with torch.inference_mode():
            expected = theirs.to(device)(input_ids=ids, attention_mask=mask.long()).last_hidden_state[mask]
            found = ours(input_ids=ids, attention_mask=mask.long()).last_hidden_state[mask]
            half = ours.bfloat16()(input_ids=ids, attention_mask=mask.long()).last_hidden_state[mask]
        off = float((found - expected).abs().max())
        yield {"check": "family", "name": name, "difference": off, "holds": off <= DIFFERENCE}
        cosine = float(torch.nn.functional.cosine_similarity(half.float(), expected, dim=1).min())
        yield {"check": "family in bf16", "name": name, "cosine": cosine, "holds": cosine >= LEAST_COSINE}


def random_rows(lengths: np.ndarray, vocab_size: int = 30_000) -> Ragged:
    ids = np.random.default_rng(0).integers(0, vocab_size, int(lengths.sum()), dtype=np.int32)
    return Ragged(ids, boundaries_of(lengths), np.zeros(len(ids), np.int8), lengths)
