"""How long does BERT-base take to load from safetensors, and how much memory, beside ``transformers``?

    python benchmarks/load.py --out benchmarks/results/load.md

A checkpoint of random weights is written once. Each load is a process of its own, for memory that was taken once shows
in no later peak; the systems take turns, each once as ``from_pretrained`` leaves the model and once with every value
read after it, for weights that are mapped are only read when they are used. Seconds are without imports; memory is what
the peak of the process rose by, mapped pages counted. That all compute the same is checked by the logits. Ends with
status 1 when bertkit, with every value read, is slower than transformers or takes more memory than the limit. Linux.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import about, block, publish

LOAD = """
import json, sys, time
import torch
torch.set_num_threads(1)
system, folder = sys.argv[1:]
if system.startswith("bertkit"):
    from bertkit import BertForMaskedLM as Model
    import bertkit.checkpoints.pretrained
else:
    from transformers import BertForMaskedLM as Model
    from transformers.utils import logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()
peak = lambda: 1024 * int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
before, started = peak(), time.perf_counter()
model = Model.from_pretrained(folder)
if system.endswith("read"):
    for tensor in model.state_dict().values():
        tensor.sum()
seconds, rise = time.perf_counter() - started, peak() - before
ids = torch.arange(100, 140)[None]
with torch.inference_mode():
    logits = model.eval()(ids).logits
print(json.dumps({"seconds": seconds, "bytes": rise, "sum": float(logits.double().abs().sum())}))
"""
#: Most memory with every value read, as a share of what transformers takes.
MEMORY_LIMIT = 1.02
SYSTEMS = {
    "bertkit": "as `from_pretrained` leaves it",
    "bertkit, read": "and every value read once",
    "transformers": "as `from_pretrained` leaves it",
    "transformers, read": "and every value read once",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder))
        num_bytes = (Path(folder) / "model.safetensors").stat().st_size
        runs: dict[str, list[dict[str, float]]] = {system: [] for system in SYSTEMS}
        for number in range(args.rounds + 1):
            for system, found in runs.items():
                one = load(system, folder)
                if number:  # the first round brings the file into the cache
                    found.append(one)
    sums = {round(run["sum"], 2) for found in runs.values() for run in found}
    largest = max(sums)
    if largest - min(sums) > 1e-5 * largest:
        raise SystemExit(f"the systems do not compute the same: sums of the logits are {sorted(sums)}")
    seconds = {system: statistics.median(run["seconds"] for run in found) for system, found in runs.items()}
    memory = {system: statistics.median(run["bytes"] for run in found) for system, found in runs.items()}
    lines = [
        "# Loading BERT-base",
        "",
        *block(about(1)),
        "",
        f"`BertForMaskedLM`, {num_bytes / 1e6:,.0f} MB of float32, in the cache; {args.rounds} rounds, a process each.",
        "",
        "| system | | seconds, median (all rounds) | peak memory, median | memory / file |",
        "|---|---|---|---|---|",
    ]
    for system, what in SYSTEMS.items():
        each = " ".join(f"{run['seconds']:.2f}" for run in runs[system])
        taken = f"{memory[system] / 1e6:,.0f} MB | {memory[system] / num_bytes:.2f}"
        lines.append(f"| {system} | {what} | {seconds[system]:.2f} ({each}) | {taken} |")
    ratio = seconds["transformers, read"] / seconds["bertkit, read"]
    share = memory["bertkit, read"] / memory["transformers, read"]
    good = ratio >= 1 and share <= MEMORY_LIMIT
    lines += [
        "",
        f"With every value read, transformers takes {ratio:.2f} times as long as bertkit (limit: 1), and bertkit "
        f"{share:.3f} of its memory (limit: {MEMORY_LIMIT}).",
    ]
    publish(lines, {"seconds": seconds, "bytes": memory, "file_bytes": num_bytes, "good": good}, args.out)
    if not good:
        raise SystemExit("with every value read, bertkit is slower or takes more memory than the limits allow")


def write_checkpoint(folder: Path) -> None:
    """Random weights of BERT-base with a masked-LM head."""
    import torch

    from bertkit import BertForMaskedLM
    from bertkit.presets import preset

    torch.manual_seed(0)
    BertForMaskedLM(preset("bert-base-uncased").config).save_pretrained(folder)


def load(system: str, folder: str) -> dict[str, float]:
    """One process."""
    ran = subprocess.run([sys.executable, "-c", LOAD, system, folder], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"{system} failed:\n{ran.stderr}")
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
