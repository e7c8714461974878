"""Pre-training BERT-base on a GPU in bf16: tokens per second and share of the peak, compared with transformers.

    python benchmarks/gpu_pretrain.py --out benchmarks/results/gpu-pretrain.md

Masked LM and next sentence with dropout 0.1 on synthetic documents (random ids, realistic lengths), at lengths 128 and
512. First, with dropout off, the losses of all systems over three optimizer steps must agree to 2e-2, the precision of
bf16; then the systems alternate. The peak is that of the fastest square matrix product measured here; the vendor's
dense figure is shown next to it if known. About 6 minutes on an H100. Needs a CUDA device; --device cpu --tiny only
checks that the script works.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from bertkit.config.bert_config import BertConfig
from bertkit.data.examples.masking import MaskVocabulary
from bertkit.data.examples.pairs import Rules
from bertkit.model.models import BertForPreTraining
from machine import about, about_device, block, publish
from pretrain_peers import Examples, Job, Precision, compare, flops_a_step, matmul_peak

#: Dense bf16 figures of the vendors' data sheets, in TFLOP/s, by a part of the device name.
NOMINAL_TFLOPS = {"H200": 989.0, "H100": 989.0, "A100": 312.0, "L40S": 362.0, "L4": 121.0}
TOLERANCE = {"bf16": 2e-2, "fp32": 1e-4}
NUM_SPECIAL = 5


class MadeUpText:
    """Documents of random ids with the interface of a token store.

    Args:
        vocab_size: ids are drawn from those after the special ones.
        num_tokens: approximate total.
        seed: fixes everything.
    """

    def __init__(self, vocab_size: int, num_tokens: int, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        lengths = random.integers(5, 46, num_tokens // 25)  # of sentences; 25 tokens on average
        self.sentence_boundaries = np.concatenate([[0], np.cumsum(lengths)])
        cuts = np.unique(random.integers(1, len(lengths), len(lengths) // 40))  # 40 sentences per document
        self.document_boundaries = np.concatenate([[0], cuts, [len(lengths)]])
        self._ids = random.integers(NUM_SPECIAL, vocab_size, self.sentence_boundaries[-1], dtype=np.int32)

    def tokens(self, first_sentence: int, end_sentence: int) -> np.ndarray:
        """Ids of consecutive sentences."""
        start, end = self.sentence_boundaries[[first_sentence, end_sentence]]
        return self._ids[start:end]


def main() -> None:
    args = parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device found: this benchmark needs one (--device cpu --tiny only tests the script)")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    device = torch.device(args.device)
    shape = BertConfig() if not args.tiny else BertConfig(
        vocab_size=500, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128
    )  # fmt: skip
    precision: Precision = "bf16" if device.type == "cuda" else "fp32"
    peak = matmul_peak(device, precision)
    report: dict[str, Any] = {
        "about": {**about(torch.get_num_threads()), **about_device(device)},
        "matmul_peak_tflops": round(peak / 1e12, 3),
        "nominal_tflops": args.nominal_tflops or nominal(device),
        "settings": {key: getattr(args, key) for key in ("tokens", "rounds", "steps", "tiny")},
        "lengths": {},
    }
    for length in args.lengths:
        report["lengths"][length] = measure(length, shape, device, precision, peak, args)
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--tiny", action="store_true", help="a two-layer model, to test the script")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--tokens", type=int, default=32_768, help="tokens per step, including padding")
    parser.add_argument("--max-tokens", type=int, help="bertkit's tokens per micro-batch; default: the whole step")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20, help="timed steps per turn")
    parser.add_argument("--nominal-tflops", type=float, help="the vendor's dense figure, if not in the built-in table")
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    return parser.parse_args()


def nominal(device: torch.device) -> float | None:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return next((figure for part, figure in NOMINAL_TFLOPS.items() if part in name.replace("-", " ").split()), None)


def measure(
    length: int, shape: BertConfig, device: torch.device, precision: Precision, peak: float, args: argparse.Namespace
) -> dict[str, Any]:
    """Measure all systems at one length."""
    size = max(1, args.tokens // length)
    num_examples = size * (args.rounds * (args.steps + 2) + 3)
    text = MadeUpText(shape.vocab_size, min(num_examples * length, 20_000_000))
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(shape.vocab_size - NUM_SPECIAL))]
    data = Examples(
        text,
        MaskVocabulary.of(names),
        Rules(max_seq_length=length),
        batch_size=size,
        max_tokens=max(length, args.max_tokens or args.tokens),
    )
    with tempfile.TemporaryDirectory() as scratch:
        torch.manual_seed(0)
        BertForPreTraining(shape).save_pretrained(Path(scratch) / "start")
        job = Job(Path(scratch) / "start", data, device, precision)
        found = compare(job, args.rounds, args.steps, TOLERANCE[precision], Path(scratch))
    work = flops_a_step(shape, found.pop("lengths"), args.rounds * args.steps)
    for system in found["systems"].values():
        speed = work * system["tokens_per_s"] / found["tokens_a_step"]
        system["tflops"], system["share_of_peak"] = round(speed / 1e12, 3), round(speed / peak, 4)
    return {"batch_size": size, "peak_memory_gb": peak_memory(device), **found}


def peak_memory(device: torch.device) -> float | None:
    return round(torch.cuda.max_memory_allocated(device) / 1e9, 2) if device.type == "cuda" else None


def render(report: dict[str, Any]) -> list[str]:
    nominal_tflops = report["nominal_tflops"]
    told = f"; the vendor's dense figure is {nominal_tflops:g}" if nominal_tflops else ""
    settings = report["settings"]
    lines = ["# Pre-training BERT-base on a GPU", "", *block(report["about"]), ""]
    lines += [f"Fastest matrix product measured: {report['matmul_peak_tflops']:,} TFLOP/s{told}. Median of "
              f"{settings['rounds']} rounds of {settings['steps']} steps. Useful work only: no padding, output layer "
              "at masked positions only.", ""]  # fmt: skip
    lines += [
        "| length | batch | system | tokens/s | TFLOP/s | of measured peak | of vendor's figure | bertkit faster by |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for length, found in report["lengths"].items():
        for name, r in found["systems"].items():
            makers = f"{r['tflops'] / nominal_tflops:.1%}" if nominal_tflops else ""
            ratio = "" if name == "bertkit" else f"**{r['bertkit_is_faster_by']:.2f}x**"
            lines.append(
                f"| {length} | {found['batch_size']} | {name} | {r['tokens_per_s']:,} | {r['tflops']:.1f} | "
                f"{r['share_of_peak']:.1%} | {makers} | {ratio} |"
            )
    return lines


if __name__ == "__main__":
    main()
