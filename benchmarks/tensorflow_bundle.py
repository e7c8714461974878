"""How fast, and with how much memory, is a TensorFlow checkpoint read without TensorFlow?

    python benchmarks/tensorflow_bundle.py --tensorflow /tmp/tensorflow/bin/python --out benchmarks/results/bundle.md

Real TensorFlow (an interpreter that has it) writes checkpoints of random values in the shapes of BERT-tiny, -small and
-base. Each is read, every checksum is verified, and the values are compared bit for bit with the original ones.
"reading the bytes" reads the data file into memory in the same way, without verifying checksums. The two alternate,
each in its own process that reads the file once before timing starts, so that it is in the system's cache for both.
"converted" is all of ``bertkit convert``: read, transpose, write, flush to disk, read both sides again, run. Exits
with status 1 if reading the base size takes more time or memory than the limits.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from machine import about, block, publish

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "tensorflow"
SIZES = {"tiny": (2, 128), "small": (4, 512), "base": (12, 768)}
#: For the base size: time relative to reading the bytes, peak memory relative to the file size.
TIME_LIMIT, PEAK_LIMIT = 3.0, 1.3
RUNS = 7
VOCAB = 30_522
SEED = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensorflow", type=Path, help="interpreter with TensorFlow")
    parser.add_argument("--work", type=Path, help="folder for the checkpoints; existing ones are reused")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    parser.add_argument("--child", choices=["write", "read", "bytes", "convert"], help=argparse.SUPPRESS)
    parser.add_argument("--size", choices=SIZES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(CHILDREN[args.child](args.work / args.size, args.size)))
        return
    with tempfile.TemporaryDirectory() as spare:
        work = args.work or Path(spare)
        rows = {size: measure(size, work, args) for size in SIZES}
    lines = ["# Reading TensorFlow checkpoints", "", *block(about(1)), ""]
    lines += ["| | MB | reading the bytes, s | bertkit, s | ratio | ratio of CPU time | peak memory / file | "]
    lines[-1] += "converted, s | peak / file |"
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for size, row in rows.items():
        lines.append(
            f"| {size} | {row['mb']:.0f} | {row['bytes_s']:.3f} | {row['read_s']:.3f} | {row['ratio']:.2f} | "
            f"{row['cpu_ratio']:.2f} | {row['peak_ratio']:.2f} | {row['convert_s']:.1f} | "
            f"{row['convert_peak_ratio']:.2f} |"
        )
    lines += [
        "",
        f"Median of {args.runs} alternating runs; ratio: median of the ratios of adjacent runs. Every value was equal, "
        "bit for bit, to the one passed to TensorFlow. CPU time is least affected by other load on the machine. Peak "
        "memory: above that of the process after its imports. Limits for base: a ratio below "
        f"{TIME_LIMIT}, a peak below {PEAK_LIMIT} of the file.",
    ]
    publish(lines, rows, args.out)
    if rows["base"]["ratio"] >= TIME_LIMIT or rows["base"]["peak_ratio"] >= PEAK_LIMIT:
        raise SystemExit("reading the base size takes more time or memory than the limits allow")


def measure(size: str, work: Path, args: argparse.Namespace) -> dict[str, float]:
    """Measure one size."""
    work.mkdir(parents=True, exist_ok=True)
    if not (work / size / "bert_model.ckpt.index").is_file():
        if args.tensorflow is None:
            raise SystemExit("pass --tensorflow: an interpreter that can write the checkpoints")
        child(args.tensorflow, "write", size, work)
    pairs = []
    for number in range(args.runs):
        order = ("bytes", "read") if number % 2 else ("read", "bytes")  # neither always runs after the other
        found = {what: child(sys.executable, what, size, work) for what in order}
        pairs.append((found["bytes"], found["read"]))
    converted = child(sys.executable, "convert", size, work)
    data = (work / size / "bert_model.ckpt.data-00000-of-00001").stat().st_size
    assert all(read["equal"] for _, read in pairs), "the values differ from those that were written"
    return {
        "mb": data / 1e6,
        "bytes_s": statistics.median(plain["seconds"] for plain, _ in pairs),
        "read_s": statistics.median(read["seconds"] for _, read in pairs),
        "ratio": statistics.median(read["seconds"] / plain["seconds"] for plain, read in pairs),
        "cpu_ratio": statistics.median(read["cpu"] / plain["cpu"] for plain, read in pairs),
        "peak_ratio": max(read["peak"] for _, read in pairs) / data,
        "convert_s": converted["seconds"],
        "convert_peak_ratio": converted["peak"] / data,
    }


def child(python: Path | str, what: str, size: str, work: Path) -> dict[str, Any]:
    """One measurement, in its own process."""
    command = [str(python), __file__, "--child", what, "--size", size, "--work", str(work)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def golden_script(size: str) -> Any:
    """The script that writes the golden files, with the sizes of a real model."""
    spec = importlib.util.spec_from_file_location("write_golden", GOLDEN / "write_golden.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    layers, width = SIZES[size]
    script.CONFIG |= {
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "max_position_embeddings": 512,
        "num_attention_heads": width // 64,
        "num_hidden_layers": layers,
        "vocab_size": VOCAB,
    }
    return script


def write(folder: Path, size: str) -> dict[str, Any]:
    script = golden_script(size)
    script.save(script.values("pretraining", SEED), folder / "bert_model.ckpt")
    (folder / "bert_config.json").write_text(json.dumps(script.CONFIG))
    return {}


def read(folder: Path, size: str) -> dict[str, Any]:
    from bertkit.checkpoints.tensorflow.bundle import BundleReader, open_bundle

    bundle = open_bundle(folder / "bert_model.ckpt.index")
    read_bytes_of(folder)
    before = peak()
    started, busy = time.perf_counter(), time.process_time()
    bundle = open_bundle(folder / "bert_model.ckpt.index")
    found = {}
    with BundleReader(bundle) as reader:
        for name, info in bundle.tensors.items():
            raw = np.empty(info.end - info.start, np.uint8)
            reader.read(name, raw)
            found[name] = raw.view("<f4").reshape(info.shape)
    seconds, cpu, after = time.perf_counter() - started, time.process_time() - busy, peak()
    wanted = golden_script(size).values("pretraining", SEED)
    equal = found.keys() == wanted.keys() and all(
        np.array_equal(value.view(np.uint32), wanted[name].view(np.uint32)) for name, value in found.items()
    )
    return {"seconds": seconds, "cpu": cpu, "peak": after - before, "equal": equal}


def read_bytes_of(folder: Path) -> None:
    """Read the file once, 1 MiB at a time: it is then in the system's cache, and uses no memory here."""
    with (folder / "bert_model.ckpt.data-00000-of-00001").open("rb") as stream:
        while stream.read(1 << 20):
            pass


def read_bytes(folder: Path, size: str) -> dict[str, Any]:
    file = folder / "bert_model.ckpt.data-00000-of-00001"
    read_bytes_of(folder)
    before = peak()
    started, busy = time.perf_counter(), time.process_time()
    content = np.empty(file.stat().st_size, np.uint8)
    with file.open("rb") as stream:
        stream.readinto(content)  # type: ignore[arg-type]
    seconds, cpu = time.perf_counter() - started, time.process_time() - busy
    return {"seconds": seconds, "cpu": cpu, "peak": peak() - before}


def convert(folder: Path, size: str) -> dict[str, Any]:
    from bertkit.model.convert import convert as convert_checkpoint

    read_bytes_of(folder)
    before = peak()
    with tempfile.TemporaryDirectory(dir=folder) as spare:
        started = time.perf_counter()
        convert_checkpoint(folder, Path(spare) / "out")
        return {"seconds": time.perf_counter() - started, "peak": peak() - before}


def peak() -> int:
    """Peak resident size of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


CHILDREN = {"write": write, "read": read, "bytes": read_bytes, "convert": convert}

if __name__ == "__main__":
    main()
