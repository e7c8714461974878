"""How long does BERT-base take to load from safetensors, and how much memory, compared with ``transformers``?

    python benchmarks/load.py --out benchmarks/results/load.md

A checkpoint of random weights is written once. Each load runs in its own process, because memory allocated once would
hide later peaks. The systems alternate, each once as ``from_pretrained`` leaves the model and once with every value
read afterwards, because mapped weights are only read when used. Seconds exclude imports. Memory includes mapped pages
and is given as the peak of the whole process, which is what a user pays, and as the increase caused by loading. The
logits confirm that all systems compute the same. Exits with status 1 if bertkit takes longer or has a higher process
peak than transformers, with or without reading the values, or if loading increases it by more than the limit with
every value read. Linux only.
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
    import bertkit.model.loading
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
seconds, total = time.perf_counter() - started, peak()
memory = {"bytes": total, "rise": total - before}
ids = torch.arange(100, 140)[None]
with torch.inference_mode():
    logits = model.eval()(ids).logits
print(json.dumps({"seconds": seconds, **memory, "sum": float(logits.double().abs().sum())}))
"""
#: Maximum increase of the peak by loading with every value read, relative to transformers.
MEMORY_LIMIT = 1.02
SYSTEMS = {
    "bertkit": "after `from_pretrained`",
    "bertkit, read": "with every value read once",
    "transformers": "after `from_pretrained`",
    "transformers, read": "with every value read once",
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
                if number:  # the first round warms the file cache
                    found.append(one)
    sums = {round(run["sum"], 2) for found in runs.values() for run in found}
    largest = max(sums)
    if largest - min(sums) > 1e-5 * largest:
        raise SystemExit(f"the systems do not agree: sums of the logits are {sorted(sums)}")
    seconds = {system: statistics.median(run["seconds"] for run in found) for system, found in runs.items()}
    memory, rise = (
        {system: statistics.median(run[what] for run in found) for system, found in runs.items()}
        for what in ("bytes", "rise")
    )
    lines = [
        "# Loading BERT-base",
        "",
        *block(about(1)),
        "",
        f"`BertForMaskedLM`, {num_bytes / 1e6:,.0f} MB of float32, cached; {args.rounds} rounds, one process each.",
        "",
        "| system | | seconds, median (all rounds) | peak memory of process, median | increase by loading | / file |",
        "|---|---|---|---|---|---|",
    ]
    for system, what in SYSTEMS.items():
        each = " ".join(f"{run['seconds']:.2f}" for run in runs[system])
        taken = f"{memory[system] / 1e6:,.0f} MB | {rise[system] / 1e6:,.0f} MB | {rise[system] / num_bytes:.2f}"
        lines.append(f"| {system} | {what} | {seconds[system]:.2f} ({each}) | {taken} |")
    good = rise["bertkit, read"] <= MEMORY_LIMIT * rise["transformers, read"]
    lines.append("")
    for way in ("", ", read"):
        ours, theirs = f"bertkit{way}", f"transformers{way}"
        good = good and seconds[ours] <= seconds[theirs] and memory[ours] <= memory[theirs]
        lines.append(
            f"- {SYSTEMS[ours]}: {seconds[ours] / seconds[theirs]:.2f} of transformers' time (limit: 1), "
            f"{memory[ours] / memory[theirs]:.2f} of its peak (limit: 1), {rise[ours] / rise[theirs]:.3f} of its "
            f"increase by loading{f' (limit: {MEMORY_LIMIT})' if way else ''}"
        )
    lines += [
        "",
        "Before values are read, bertkit's increase comes from the query, key and value weights of every layer, which "
        "it joins into one tensor while loading; transformers only maps pages.",
    ]
    publish(lines, {"seconds": seconds, "bytes": memory, "rise": rise, "file_bytes": num_bytes, "good": good}, args.out)
    if not good:
        raise SystemExit("bertkit is slower or uses more memory than the limits allow")


def write_checkpoint(folder: Path) -> None:
    """Random weights of BERT-base with a masked-LM head."""
    import torch

    from bertkit import BertForMaskedLM
    from bertkit.config.presets import preset

    torch.manual_seed(0)
    BertForMaskedLM(preset("bert-base-uncased").config).save_pretrained(folder)


def load(system: str, folder: str) -> dict[str, float]:
    """Load in a new process and return its measurements."""
    ran = subprocess.run([sys.executable, "-c", LOAD, system, folder], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"{system} failed:\n{ran.stderr}")
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
