"""Vectors of texts on a GPU: bertkit with the variable-length kernel and with buckets, and transformers.

    python benchmarks/gpu_inference.py --out benchmarks/results/gpu-inference.md

BERT-base with random weights, from token ids to mean-pooled vectors in the memory of the host. Three loads: one batch
of 32 texts that fill half of 32 x 128 places; many short texts; texts of all lengths up to 512. Transformers gets what
suits it best: texts sorted by length, in padded batches of as many places as bertkit computes tokens at once.

Checks come first, and a failed one means no result. The variable-length kernel against the reference: outputs and
gradients, of all rows and of chosen ones, no further away than twice the buckets in the same type. Vectors against
bertkit's in fp32: 1e-3 in fp32, a cosine of 0.999 in 16 bits. Then the systems take turns, until the rounds or the
minutes are over. A system that this machine lacks is named with the reason.

Needs a CUDA device and the test dependencies; --device cpu --tiny only checks that the script works.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertkit.batch import Layout
from bertkit.benchmark.sample_texts import builtin_lengths
from bertkit.config.bert_config import BertConfig
from bertkit.engine.backend import Precision, Wanted
from bertkit.engine.inference_engine import InferenceEngine, rows_of
from bertkit.errors import BertkitError
from bertkit.model.attention import Kernel, SelfAttention, attend_reference
from bertkit.model.kernels.bucketed_attention import attend_bucketed
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.kernels.varlen_attention import attend_packed, attend_varlen, has_varlen
from bertkit.model.models import BertModel
from bertkit.ragged import Floats, Ragged, boundaries_of
from machine import about, about_device, block, publish

LARGEST_DIFFERENCE, LEAST_COSINE = 1e-3, 0.999
MEAN = Wanted(("last_hidden_state",), pooling=("mean",))
#: Tokens or padded places that are computed at once.
PLACES = 32_768
#: The system that the ratios refer to, if the machine has it, else the first.
OURS = "bertkit bf16"

Run = Callable[[Ragged], Floats]


@dataclass(frozen=True)
class System:
    """One system: token ids to vectors, and whether its answers must be those of fp32."""

    name: str
    run: Run
    exact: bool


def main() -> None:
    args = parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device found: this benchmark needs one (--device cpu --tiny only tests the script)")
    deadline = time.monotonic() + 60 * args.minutes
    device = torch.device(args.device, 0)
    checked = check_kernel(device)
    report: dict[str, Any] = {
        "about": {**about(torch.get_num_threads()), **about_device(device)},
        "kernel": checked,
        "settings": {"rounds": args.rounds, "minutes": args.minutes, "tiny": args.tiny},
    }
    with tempfile.TemporaryDirectory() as scratch:
        systems, report["left_out"] = make_systems(random_model(Path(scratch), args.tiny), device)
        report["base"] = next((system.name for system in systems if system.name == OURS), systems[0].name)
        loads = make_loads(args.tiny)
        report["farthest"] = {name: check_answers(rows, systems) for name, rows in loads.items()}
        report["loads"] = {
            name: measure(rows, systems, report["base"], args.rounds, share_of(deadline, len(loads) - number))
            for number, (name, rows) in enumerate(loads.items())
        }
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--tiny", action="store_true", help="a two-layer model and few texts, to test the script")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=8.0, help="no new round after this long; one is always run")
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    return parser.parse_args()


def random_model(folder: Path, tiny: bool) -> Path:
    """A saved BERT with random weights, large enough that 16 bits make a difference."""
    torch.manual_seed(0)
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    BertModel(BertConfig(**(small if tiny else {}))).save_pretrained(folder / "model")
    return folder / "model"


def make_loads(tiny: bool) -> dict[str, Ragged]:
    """Texts of random ids by what is measured with them."""
    share = 64 if tiny else 1
    half = np.concatenate([np.linspace(8, 112, 31).round(), [128]]).astype(np.int64)
    return {
        "32 texts, half of 32 x 128": random_texts(half),
        "short texts, 33 tokens on average": random_texts(builtin_lengths(16_384 // share, 512, seed=0)),
        "all lengths up to 512": random_texts(np.linspace(2, 512, 2_048 // share).round().astype(np.int64)),
    }


def random_texts(lengths: np.ndarray) -> Ragged:
    """Texts of these lengths in random order; the ids mean nothing."""
    chance = np.random.default_rng(0)
    sizes = chance.permutation(lengths)
    ids = chance.integers(1000, 30_000, int(sizes.sum()), dtype=np.int32)
    return Ragged(ids, boundaries_of(sizes), np.zeros(len(ids), np.int8), sizes)


# Checks.


def check_kernel(device: torch.device) -> dict[str, Any]:
    """Errors of both kernels relative to the reference in fp32, the largest of each case; exits if one is too large."""
    if not has_varlen(device):
        return {"variable-length kernel": "not on this machine"}
    found: dict[str, Any] = {}
    torch.manual_seed(1)
    chance = np.random.default_rng(1)
    for dtype in (torch.float16, torch.bfloat16):
        for width in (32, 64, 128):
            layout = Layout((1, 512, *chance.integers(1, 300, 14).tolist()))
            some = ChosenRows.first_and(torch.arange(0, layout.num_tokens, 7), layout)
            for name, rows in (("all rows", None), ("chosen rows", ChosenRows(some.rows.to(device), some.lengths))):
                qkv = torch.randn(layout.num_tokens, 3, 4, width, device=device).to(dtype)
                expected = values_and_gradients(attend_reference, qkv.float(), layout, rows)
                ours, buckets = (
                    [
                        error(x, right)
                        for x, right in zip(values_and_gradients(k, qkv, layout, rows), expected, strict=True)
                    ]
                    for k in (attend_varlen, attend_bucketed)
                )
                case = f"{str(dtype).removeprefix('torch.')}, width {width}, {name}"
                found[case] = {"varlen": ours, "buckets": buckets}
                if any(a > 2 * b + 1e-3 for a, b in zip(ours, buckets, strict=True)):
                    sys.exit(f"{case}: the variable-length kernel is wrong by {ours}, the buckets by {buckets}")
    return found


def values_and_gradients(attend: Kernel, qkv: Tensor, layout: Layout, rows: ChosenRows | None) -> list[Tensor]:
    leaf = qkv.clone().requires_grad_()
    out = attend(leaf, layout, 0.0, rows)
    direction = torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(out)
    out.backward(direction)
    assert leaf.grad is not None
    return [out.detach(), leaf.grad]


def error(found: Tensor, expected: Tensor) -> float:
    """The largest difference, in units of the largest value."""
    return float((found.float() - expected).abs().max() / expected.abs().max())


def check_answers(rows: Ragged, systems: Sequence[System]) -> dict[str, str]:
    """How far each system's vectors are from the first one's, which is bertkit in fp32; exits if too far."""
    first, *others = systems
    expected, found = first.run(rows), {}
    for system in others:
        vectors = system.run(rows)
        cosine = float((unit(vectors) * unit(expected)).sum(1).min())
        difference = float(np.abs(vectors - expected).max())
        found[system.name] = f"{difference:.1e}, cosine at least {cosine:.5f}"
        if cosine < LEAST_COSINE or (system.exact and difference > LARGEST_DIFFERENCE):
            sys.exit(f"{system.name} computes other vectors than {first.name}: {found[system.name]}; no result")
    return found


def unit(x: Floats) -> Floats:
    wide = x.astype(np.float64)
    return wide / np.linalg.norm(wide, axis=1, keepdims=True)


# Systems.


def make_systems(folder: Path, device: torch.device) -> tuple[list[System], dict[str, str]]:
    """The systems, and why others are left out."""
    fp32, bf16 = torch.float32, torch.bfloat16
    makers: dict[str, tuple[bool, Callable[[], Run]]] = {
        "bertkit fp32": (True, partial(bertkit, folder, device, attend_packed, "fp32", fp32)),
        OURS: (False, partial(bertkit, folder, device, attend_packed, "bf16", fp32)),
        "bertkit bf16, buckets": (False, partial(bertkit, folder, device, attend_bucketed, "bf16", fp32)),
        "bertkit, weights in bf16": (False, partial(bertkit, folder, device, attend_packed, "auto", bf16)),
        "bertkit, weights in bf16, buckets": (False, partial(bertkit, folder, device, attend_bucketed, "auto", bf16)),
        "transformers eager fp32": (True, partial(hugging_face, folder, device, "eager", fp32)),
        "transformers sdpa fp32": (True, partial(hugging_face, folder, device, "sdpa", fp32)),
        "transformers eager bf16": (False, partial(hugging_face, folder, device, "eager", bf16)),
        "transformers sdpa bf16": (False, partial(hugging_face, folder, device, "sdpa", bf16)),
        "transformers flash bf16": (False, partial(hugging_face, folder, device, "flash_attention_2", bf16)),
    }
    systems, left_out = [], {}
    for name, (exact, make) in makers.items():
        try:
            systems.append(System(name, make(), exact))
        except BertkitError as reason:
            left_out[name] = str(reason)
    return systems, left_out


def bertkit(folder: Path, device: torch.device, attend: Kernel, precision: Precision, dtype: torch.dtype) -> Run:
    """The engine with this kernel."""
    model = BertModel.from_pretrained(folder).to(device=device, dtype=dtype)
    for module in model.modules():
        if isinstance(module, SelfAttention):
            module.attend = attend
    engine = InferenceEngine.of(model, precision=precision)
    return lambda rows: np.stack(engine.run(rows, MEAN, rows_of))


def hugging_face(folder: Path, device: torch.device, attention: str, dtype: torch.dtype) -> Run:
    """A model of transformers, its weights in ``dtype``; mean pooling on the device."""
    for package in ("transformers", *(["flash_attn"] if attention == "flash_attention_2" else [])):
        if find_spec(package) is None:
            raise BertkitError(f"the package {package} is not installed")
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    made = transformers.BertModel.from_pretrained(
        folder, add_pooling_layer=False, attn_implementation=attention, dtype=dtype
    )
    model = made.to(device).eval()

    @torch.inference_mode()
    def run(rows: Ragged) -> Floats:
        found = np.empty((len(rows), model.config.hidden_size), np.float32)
        for numbers in padded_batches(rows):
            ids, mask = (x.to(device) for x in pad([rows[number] for number in numbers]))
            hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
            pooled = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
            found[numbers] = pooled.cpu().numpy()
        return found

    return run


def padded_batches(rows: Ragged) -> list[list[int]]:
    """Numbers of rows of similar length, at most ``PLACES`` places a batch with its padding."""
    longest = int(rows.lengths.max())
    order = np.argsort(rows.lengths, kind="stable")[::-1]
    if longest * len(rows) <= PLACES:
        return [order.tolist()]
    batches: list[list[int]] = [[]]
    for number in order.tolist():
        if batches[-1] and rows.lengths[batches[-1][0]] * (len(batches[-1]) + 1) > PLACES:
            batches.append([])
        batches[-1].append(number)
    return batches


def pad(texts: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Ids and mask, int64 ``(B, S)``."""
    ids = np.zeros((len(texts), max(map(len, texts))), np.int64)
    mask = np.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, : len(text)], mask[row, : len(text)] = text, 1
    return torch.from_numpy(ids), torch.from_numpy(mask)


# Measurement.


def share_of(deadline: float, num_left: int) -> float:
    """When to stop the first of ``num_left`` measurements that are to end at ``deadline``."""
    now = time.monotonic()
    return now + (deadline - now) / num_left


def measure(rows: Ragged, systems: Sequence[System], base: str, rounds: int, deadline: float) -> dict[str, Any]:
    """Seconds of every system for all of ``rows``: each takes its turn in every round, in the other order each time."""
    repeats = 20 if len(rows) < 100 else 1
    times: dict[str, list[float]] = {system.name: [] for system in systems}
    for turn in range(rounds):
        if turn and time.monotonic() > deadline:
            break
        for system in systems if turn % 2 == 0 else systems[::-1]:
            system.run(rows)  # warm up
            start = time.perf_counter()
            for _ in range(repeats):
                system.run(rows)  # the vectors are on the host at the end, so nothing is still running
            times[system.name].append((time.perf_counter() - start) / repeats)
    tokens = int(rows.lengths.sum())
    return {
        name: {
            "seconds": [round(value, 6) for value in seconds],
            "tokens_per_s": round(tokens / statistics.median(seconds)),
            "bertkit_is_faster_by": round(
                statistics.median(a / b for a, b in zip(seconds, times[base], strict=True)), 3
            ),
        }
        for name, seconds in times.items()
    }


def render(report: dict[str, Any]) -> list[str]:
    worst = [max(case["varlen"]) for case in report["kernel"].values() if isinstance(case, dict)]
    kernel = f"at most {max(worst):.1e} from the reference" if worst else "not on this machine: buckets everywhere"
    lines = ["# Vectors of texts on a GPU", "", *block(report["about"]), ""]
    lines += [f"Variable-length kernel: {kernel}. Medians of up to {report['settings']['rounds']} rounds; ratios to "
              f"`{report['base']}` within each round.", ""]  # fmt: skip
    lines += [
        f"| load | system | tokens/s | ms | {report['base']} faster by | from fp32 |",
        "|---|---|---|---|---|---|",
    ]
    for load, found in report["loads"].items():
        for name, r in found.items():
            lines.append(
                f"| {load} | {name} | {r['tokens_per_s']:,} | {statistics.median(r['seconds']) * 1000:.2f} | "
                f"{r['bertkit_is_faster_by']:.2f}x | {report['farthest'][load].get(name, '')} |"
            )
    lines += ["", *(f"Left out: {name}: {why}" for name, why in report["left_out"].items())]
    return lines


if __name__ == "__main__":
    main()
