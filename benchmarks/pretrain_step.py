"""How fast is a pre-training step on a CPU? bertkit against transformers' Trainer and a hand-written loop.

    python benchmarks/pretrain_step.py --data ../shared/data --out benchmarks/results/pretrain-step.md

A BERT of 4 layers and width 256 with a vocabulary of 8,192 on real text: masked LM and next sentence, length 128,
dropout 0.1, the same batches for all systems. Token counts exclude padding. First, with dropout off, the losses of all
systems over three optimizer steps must agree to 1e-4; otherwise no result is printed. Then the systems alternate
within each round over the same steps; ratios are computed within each round and their median is reported. About 8
minutes on 2 cores; --rounds 1 --steps 3 for a quick run. With --precision bf16 all systems compute in bf16, and the
losses must agree to 2e-2.
"""

from __future__ import annotations

import argparse
import contextlib
import lzma
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from machine import about, block, publish

VOCABULARY = 8192
#: How far the losses of the systems may differ.
TOLERANCE = {"fp32": 1e-4, "bf16": 2e-2}


def main() -> None:
    args = parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # before torch is loaded
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as set by the bertkit command, for all systems alike
    import torch
    import transformers

    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as scratch:
        report = {"about": about(args.threads), **measure(args, Path(scratch))}
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with pretrain_text/")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20, help="timed steps per turn")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, help="tokens per bertkit micro-batch; default: bertkit pretrain's")
    parser.add_argument("--precision", choices=TOLERANCE, default="fp32", help="of all systems")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--text-bytes", type=int, default=2_000_000, help="amount of text for the examples")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    return parser.parse_args()


def measure(args: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    import torch

    from bertkit.config.bert_config import BertConfig
    from bertkit.data.examples.masking import MaskVocabulary
    from bertkit.data.examples.pairs import Rules
    from bertkit.data.store.token_store import TokenStore
    from bertkit.model.models import BertForPreTraining
    from bertkit.training.pretraining.pretrain_settings import PretrainConfig
    from pretrain_peers import Examples, Job, compare
    from pretrain_work import flops_a_step, matmul_peak

    store = TokenStore(make_store(args.data / "pretrain_text", args.text_bytes, scratch))
    tokenizer = store.tokenizer()
    vocabulary = MaskVocabulary.of(tokenizer.convert_ids_to_tokens(range(len(tokenizer))))
    shape = BertConfig(
        vocab_size=VOCABULARY, hidden_size=args.width, num_hidden_layers=args.layers, intermediate_size=4 * args.width,
        num_attention_heads=args.width // 64, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
    )  # fmt: skip
    torch.manual_seed(0)
    BertForPreTraining(shape).save_pretrained(scratch / "start")
    data = Examples(
        store,
        vocabulary,
        Rules(max_seq_length=args.length),
        batch_size=args.batch_size,
        max_tokens=max(args.length, args.max_tokens or PretrainConfig().max_tokens),
    )
    device = torch.device("cpu")
    peak = matmul_peak(device, args.precision)
    job = Job(scratch / "start", data, device, args.precision)
    found = compare(job, args.rounds, args.steps, TOLERANCE[args.precision], scratch)
    work = flops_a_step(shape, found.pop("lengths"), args.rounds * args.steps)
    for system in found["systems"].values():
        system["share_of_peak"] = round(work * system["tokens_per_s"] / found["tokens_a_step"] / peak, 3)
    settings = {
        key: getattr(args, key) for key in ("layers", "width", "length", "batch_size", "rounds", "steps", "precision")
    }
    return {**settings, "max_tokens": data.max_tokens, "matmul_peak_gflops": round(peak / 1e9, 1), **found}


def make_store(texts: Path, num_bytes: int, scratch: Path) -> Path:
    """Learn a vocabulary from the first part of the Wikipedia text, and make that text a token store."""
    from bertkit.cli import main as bertkit

    with lzma.open(texts / "wikipedia_en.train.txt.xz", "rt", encoding="utf-8") as text:
        (scratch / "text.txt").write_text(text.read(num_bytes), encoding="utf-8")
    learn = ["vocab", scratch / "text.txt", "--size", VOCABULARY, "--out", scratch / "tokenizer"]
    prepare = ["prepare", scratch / "text.txt", "--tokenizer", scratch / "tokenizer", "--out", scratch / "store"]
    for command in (learn, [*prepare, "--workers", 1]):
        with contextlib.redirect_stdout(sys.stderr):
            if bertkit([*map(str, command), "--quiet"]):
                raise SystemExit(f"bertkit {command[0]} failed")
    return scratch / "store"


def render(report: dict[str, Any]) -> list[str]:
    lines = ["# A pre-training step on the CPU", "", *block(report["about"]), ""]
    lines += [
        f"A step of {report['batch_size']} examples of at most {report['length']} tokens, "
        f"{report['tokens_a_step']:,.0f} tokens on average; padding would add {report['padding_share']:.1%} of the "
        f"padded batch. Dropout 0.1. Median of {report['rounds']} rounds of {report['steps']} steps.",
        "",
        f"Losses without dropout over three steps agree to {report['largest_difference_of_losses']:.0e}.",
        f"Fastest {report['precision']} matrix product of torch measured: {report['matmul_peak_gflops']:,} GFLOP/s.",
        "",
        "| system | s per step, each round | tokens/s | useful share of peak | bertkit is faster by |",
        "|---|---|---|---|---|",
    ]
    for name, r in report["systems"].items():
        rounds = " ".join(f"{value:.3f}" for value in r["step_s"])
        ratio = "" if name == "bertkit" else f"**{r['bertkit_is_faster_by']:.2f}x**"
        lines.append(f"| {name} | {rounds} | {r['tokens_per_s']:,} | {r['share_of_peak']:.0%} | {ratio} |")
    return lines


if __name__ == "__main__":
    main()
