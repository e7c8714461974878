"""How large is bertkit-lite, and how soon does it give its first vector, beside other runtimes?

    python benchmarks/lite_start.py --data ../shared/data --out benchmarks/results/lite-start.md

Installs the wheel of ``bertkit-lite`` and its requirements in a temporary environment (this needs a package index), or
uses the one given with ``--lite``, and reports its size, bytecode included. ONNX Runtime and CTranslate2 get one each,
with ``tokenizers``. One more has bertkit-lite and, by a path file, this environment's packages, torch among them: there
the script must not wait for torch. MiniLM-L6 is a checkpoint folder for bertkit, in fp32 and in 8 bits, a graph for
ONNX Runtime and a converted folder for CTranslate2; fp32 vectors must agree with torch's before anything is timed.
Whole processes that read the vocabulary, pool and print one vector then run in turns, a script of a few lines each and
``bertkit embed``. They are timed to the first byte of output and to their end, with all files in the page cache. Their
peak memory is the process's, also with a BERT-base of random weights. Finally, the time of bertkit's imports is broken
down by package.

    python benchmarks/lite_start.py --extra serve

measures the size alone, of bertkit-lite with that extra, and says which packages are the largest.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import embed
from bertkit import AutoTokenizer, BertModel, pipeline
from cpu_engine import Target, table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "packaging"))
from wheels import platform_here

from machine import about, block, minilm_folder, publish, random_base

ROOT = Path(__file__).resolve().parents[1]
#: Million bytes of site-packages; seconds that the command may need beyond the faster peer; largest difference of a
#: number from torch's.
MOST_MB, MOST_MORE, MOST_DIFFERENCE = 175.0, 0.1, 1e-4
#: The same with an extra.
MOST_WITH = {"serve": 200.0}
TEXT = "How soon does the first vector come?"
NUM_TEXTS, NUM_CALIBRATION = 64, 1000
#: How many of the packages that take longest to import are listed.
NUM_PACKAGES = 10
BERTKIT = [sys.executable, "-m", "bertkit"]
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
#: Scripts that print the vector of a text, given the folder of the model and the text.
SCRIPTS = {
    "bertkit": """
import sys, bertkit
pipe = bertkit.pipeline("feature-extraction", sys.argv[1], pooling="mean")
print(*pipe(sys.argv[2]))
""",
    "onnxruntime": """
import sys, numpy as np, onnxruntime
from tokenizers import Tokenizer
found = Tokenizer.from_file(sys.argv[1] + "/tokenizer.json").encode(sys.argv[2])
session = onnxruntime.InferenceSession(sys.argv[1] + "/model.onnx", providers=["CPUExecutionProvider"])
ids = np.array([found.ids])
feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
print(*session.run(["last_hidden_state"], feeds)[0][0].mean(axis=0))
""",
    "ctranslate2": """
import sys, numpy as np, ctranslate2
from tokenizers import Tokenizer
found = Tokenizer.from_file(sys.argv[1] + "/tokenizer.json").encode(sys.argv[2])
encoder = ctranslate2.Encoder(sys.argv[1], device="cpu")
print(*np.array(encoder.forward_batch([found.ids]).last_hidden_state)[0].mean(axis=0))
""",
}
PEERS = ("onnxruntime", "ctranslate2")
BESIDE, BASE = "bertkit, torch beside it", "BERT-base"
#: Seconds to the first byte of output and to the end of a process.
Run = tuple[float, float]
#: Runs a command and prints its peak memory in kB; a small process, because a child begins with the peak of its parent.
PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def main() -> None:
    args = parse_args()
    if args.extra:
        print("\n".join(size_with(args.extra)))
        return
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        lite = args.lite or environment(scratch, wheel_of(scratch))
        peers = {peer: environment(scratch, peer, "tokenizers", "numpy") for peer in PEERS}
        texts = embed.draw_texts(args.data, NUM_TEXTS + NUM_CALIBRATION, seed=0)
        models, base = made_models(scratch, texts[NUM_TEXTS:]), made_base(scratch)
        programs = {"bertkit": lite, BESIDE: with_torch(lite, scratch), **peers}
        commands = commands_of(programs, models, scratch)
        agreement = compare(lite, models, commands, scratch, texts[:NUM_TEXTS])
        size = size_of(lite)
        times = start_times(commands, args.rounds)
        memory = {name: peak_memory(command) for name, command in commands.items()}
        large = {
            f"{name}, {BASE}": peak_memory(command) for name, command in scripts_of(programs, base, scratch).items()
        }
        imports = import_times(lite, models["fp32"])
        facts = {**about(os.cpu_count() or 1), "compiled encoder": encoder_of(lite)}
    targets = [Target("size of site-packages, million bytes", size / 1e6, MOST_MB, at_most=True)]
    first = {name: statistics.median(run[0] for run in runs) for name, runs in times.items()}
    fastest = min(first[peer] for peer in PEERS)
    targets.append(Target("first vector of the script, seconds", first["bertkit"], fastest, at_most=True))
    targets.append(Target("the same, torch beside it, seconds", first[BESIDE], fastest, at_most=True))
    command = first["bertkit embed"]
    targets.append(Target("first vector of the command, seconds", command, fastest + MOST_MORE, at_most=True))
    least = min(memory[peer] for peer in PEERS) / 1e6
    targets.append(Target("peak memory of the script, million bytes", memory["bertkit"] / 1e6, least, at_most=True))
    least = min(large[f"{peer}, {BASE}"] for peer in PEERS) / 1e6
    most = large[f"bertkit, {BASE}"] / 1e6
    targets.append(Target(f"the same with {BASE}, million bytes", most, least, at_most=True))
    memory |= large
    report = {"size": size, "agreement": agreement, "runs": times, "memory": memory, "imports_ms": imports}
    publish(render(facts, targets, agreement, times, memory, imports), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with glue/, imdb/, tweet_sentiment/ ..")
    parser.add_argument("--extra", help="only measure the size of bertkit-lite with this extra")
    parser.add_argument("--lite", type=Path, help="an environment that has bertkit-lite alone; default: a new one")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    args = parser.parse_args()
    if not args.extra and args.data is None:
        parser.error("--data is needed")
    return args


def size_with(extra: str) -> list[str]:
    """The bytes of site-packages with an extra, beside what they may be, and those of the largest packages."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        (packages,) = environment(scratch, f"{wheel_of(scratch)}[{extra}]").glob("lib/python*/site-packages")
        sizes = Counter({each.name: bytes_in(each) for each in packages.iterdir()})
    total = sum(sizes.values())
    most = f", at most {MOST_WITH[extra]:.0f} million allowed" if extra in MOST_WITH else ""
    lines = [f"bertkit-lite[{extra}]: {total:,} bytes of site-packages{most}"]
    return lines + [f"  {size:12,}  {name}" for name, size in sizes.most_common(2 * NUM_PACKAGES)]


def bytes_in(place: Path) -> int:
    """Of a file, or of all files in a folder."""
    files = place.rglob("*") if place.is_dir() else [place]
    return sum(file.stat().st_size for file in files if file.is_file())


def wheel_of(scratch: Path) -> Path:
    """The wheel of this source tree for this machine."""
    run(sys.executable, ROOT / "packaging/wheels.py", "--out", scratch, platform_here())
    (wheel,) = scratch.glob("*manylinux*.whl")
    return wheel


def environment(scratch: Path, *packages: object) -> Path:
    """A new environment with packages and what they require, in the versions of constraints.txt."""
    folder = Path(tempfile.mkdtemp(dir=scratch)) / "environment"
    venv.create(folder, with_pip=False)
    run(*PIP, "--python", folder / "bin/python", "install", *packages, "-c", ROOT / "constraints.txt")
    return folder


def with_torch(lite: Path, scratch: Path) -> Path:
    """An environment with the packages of ``lite`` and, after them, all that this one has; torch must be among them."""
    folder = scratch / "beside"
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    (own,) = lite.glob("lib/python*/site-packages")
    (packages / "beside.pth").write_text(f"{own}\n{sysconfig.get_path('purelib')}\n")
    ask = "import bertkit, importlib.util as u; print(bertkit.__file__, u.find_spec('torch') is not None)"
    told = subprocess.run([folder / "bin/python", "-c", ask], check=True, capture_output=True, text=True).stdout.split()
    if not told[0].startswith(str(own)) or told[1] != "True":
        sys.exit(f"the environment with torch has bertkit at {told[0]}, torch: {told[1]}")
    return folder


def encoder_of(lite: Path) -> str:
    """The compiled encoder of the environment that is measured, not of this one."""
    told = subprocess.run([lite / "bin/bertkit", "doctor", "--json"], check=True, capture_output=True, text=True).stdout
    return str(json.loads(told)["compiled_encoder"]).partition(" (")[0]


def run(*command: object) -> None:
    """Run a command and discard its standard output."""
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)


def made_models(scratch: Path, calibration: Sequence[str]) -> dict[str, Path]:
    """MiniLM-L6 for each program: a checkpoint, one in 8 bits, a graph, and a folder of CTranslate2."""
    (scratch / "calibration.txt").write_text("\n".join(calibration) + "\n", encoding="utf-8")
    names = ("fp32", "int8", *PEERS)
    found = {name: scratch / f"model-{name}" for name in names}
    BertModel.from_pretrained(minilm_folder()).save_pretrained(found["fp32"])
    AutoTokenizer.from_pretrained(minilm_folder()).save_pretrained(found["fp32"])
    run(*BERTKIT, "quantize", minilm_folder(), "--out", found["int8"], "--calibrate", scratch / "calibration.txt",
        "--any-speed", "--quiet")  # fmt: skip
    convert_for_peers(found)
    return found


def made_base(scratch: Path) -> dict[str, Path]:
    """The same of a BERT-base with random weights, without one in 8 bits."""
    found = {name: scratch / f"base-{name}" for name in ("fp32", *PEERS)}
    random_base(found["fp32"])
    convert_for_peers(found)
    return found


def convert_for_peers(models: dict[str, Path]) -> None:
    """Write the folders of the peers from the checkpoint ``fp32``."""
    run(*BERTKIT, "export", models["fp32"], "--out", models["onnxruntime"], "--variant", "padded", "--quiet")
    run(sys.executable, "-m", "ctranslate2.converters.transformers", "--model", models["fp32"], "--output_dir",
        models["ctranslate2"])  # fmt: skip
    for peer in PEERS:
        AutoTokenizer.from_pretrained(models["fp32"]).save_pretrained(models[peer])


def scripts_of(programs: dict[str, Path], models: dict[str, Path], scratch: Path) -> dict[str, list[object]]:
    """The scripts that print a vector, by the name of the environment, but for the text."""
    made: dict[str, list[object]] = {}
    for name, environment in programs.items():
        kind = "bertkit" if name == BESIDE else name
        file = scratch / f"first-{kind}.py"
        file.write_text(SCRIPTS[kind])
        made[name] = [environment / "bin/python", file, models["fp32" if kind == "bertkit" else kind]]
    return made


def commands_of(programs: dict[str, Path], models: dict[str, Path], scratch: Path) -> dict[str, list[object]]:
    """What prints a vector, by name, but for the text."""
    made = scripts_of(programs, models, scratch)
    for precision in ("fp32", "int8"):
        name = "bertkit embed" if precision == "fp32" else "bertkit embed, int8"
        made[name] = [programs["bertkit"] / "bin/bertkit", "embed", "--pooling", "mean", "--model", models[precision]]
    return made


def compare(
    lite: Path, models: dict[str, Path], commands: dict[str, list[object]], scratch: Path, texts: Sequence[str]
) -> dict[str, float]:
    """Of each program the largest difference of a number from torch's, and the mean cosine of 8 bits with fp32."""
    file = scratch / "texts.txt"
    file.write_text("\n".join(" ".join(text.split()) for text in texts) + "\n", encoding="utf-8")

    def vectors(command: Sequence[object], model: Path) -> np.ndarray:
        target = scratch / "vectors.npy"
        run(
            *command, "embed", "--model", model, "--file", file, "--normalize", "--truncate", "--out", target, "--quiet"
        )
        found: np.ndarray = np.load(target)
        target.unlink()
        return found

    exact, small = vectors(BERTKIT, minilm_folder()), vectors([lite / "bin/bertkit"], models["int8"])
    found = {"int8": float((small * exact).sum(1).mean())}
    model = BertModel.from_pretrained(models["fp32"])
    pipe = pipeline(model=model, tokenizer=models["fp32"], precision="fp32", device="cpu")
    right = np.asarray(pipe(TEXT, pooling="mean"))
    for name in ("bertkit embed", BESIDE, *SCRIPTS):
        printed = subprocess.run([*map(str, commands[name]), TEXT], check=True, capture_output=True, text=True).stdout
        found[name] = float(np.abs(np.array(printed.split(), float) - right).max())
        if not found[name] <= MOST_DIFFERENCE:
            sys.exit(f"{name} differs from torch by {found[name]:.1e}, more than {MOST_DIFFERENCE}: nothing was timed")
    return found


def size_of(lite: Path) -> int:
    """Bytes of all files in site-packages."""
    (packages,) = lite.glob("lib/python*/site-packages")
    return bytes_in(packages)


def start_times(commands: dict[str, list[object]], rounds: int) -> dict[str, list[Run]]:
    """Every round but one that warms the page cache, the programs in turns."""
    found: dict[str, list[Run]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            began = time.perf_counter()
            with subprocess.Popen([*map(str, command), TEXT], stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                process.stdout.read(1)
                first = time.perf_counter() - began
                process.stdout.read()
            if process.returncode:
                sys.exit(process.returncode)
            if number:
                found[name].append((first, time.perf_counter() - began))
    return found


def peak_memory(command: Sequence[object]) -> int:
    """Bytes, the most of three runs."""
    launched = [sys.executable, "-S", "-c", PEAK, *map(str, command), TEXT]
    told = [subprocess.run(launched, check=True, capture_output=True, text=True).stdout for _ in range(3)]
    return max(int(line) for line in told) * 1024


def import_times(lite: Path, model: Path) -> dict[str, float]:
    """Milliseconds that the imports of each package take, in one process that takes the time of each."""
    command = [lite / "bin/python", "-X", "importtime", "-m", "bertkit", "embed", "--model", model, TEXT]
    log = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    found: Counter[str] = Counter()
    for line in log.splitlines():
        own, bar, module = line.removeprefix("import time:").partition("|")
        if bar and own.strip().isdigit():
            found[module.rpartition("|")[2].strip().partition(".")[0]] += int(own)
    rest = sum(found.values())
    most = {package: own / 1000 for package, own in found.most_common(NUM_PACKAGES)}
    return {**most, "all others": rest / 1000 - sum(most.values())}


def render(
    facts: dict[str, object],
    targets: Sequence[Target],
    agreement: dict[str, float],
    times: dict[str, list[Run]],
    memory: dict[str, int],
    imports: dict[str, float],
) -> list[str]:
    lines = ["# The start of bertkit-lite", "", *block(facts), *table(targets), ""]
    lines += ["| program | first vector, s | lowest | highest | process ended, s | peak memory, million bytes |"]
    lines += ["|---|--:|--:|--:|--:|--:|"]
    for name, runs in times.items():
        first, ended = zip(*runs, strict=True)
        lines.append(
            f"| {name} | {statistics.median(first):.2f} | {min(first):.2f} | {max(first):.2f} | "
            f"{statistics.median(ended):.2f} | {memory[name] / 1e6:.0f} |"
        )
    lines += ["", "| program, first vector | peak memory, million bytes |", "|---|--:|"]
    lines += [f"| {name} | {most / 1e6:.0f} |" for name, most in memory.items() if name not in times]
    taken = ", ".join(f"{package} {own:.0f}" for package, own in imports.items())
    apart = ", ".join(f"{name} {off:.1e}" for name, off in agreement.items() if name != "int8")
    return [
        *lines,
        "",
        f"- The vector of the text beside torch's, largest difference of a number: {apart}. Cosines of {NUM_TEXTS} "
        f"texts in 8 bits are {agreement['int8']:.4f} on average.",
        f"- Milliseconds of the imports, in a process that measures each: {taken}.",
    ]


if __name__ == "__main__":
    main()
