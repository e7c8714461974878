"""Is a variant of the wheel slower than code that is compiled for this very processor?

Each variant of the library that ``packaging/wheels.py`` makes for this platform, beside the same kernels compiled with
``-march=native`` by the same zig and by gcc; what the variant does without is switched off there (a variant for AVX2 is
compared with AVX2 code tuned for this processor, not with AVX-512). Measured are the matrix products of MiniLM-L6 and
BERT-base at few and at many rows, and two whole jobs of MiniLM's size (random weights): a short text, and 32 texts of 4
to 128 tokens.
First all compute the same. One thread, one process; the libraries take turns, in another
order each round. Reported: the median of the ratios within a round (above 1: the wheel's is slower) with its 95 %
interval from the ranks of the ratios. What counts is the geometric mean over all products, and each job.

    python benchmarks/native_variants.py [--rounds 30] [--variant NAME ...] [--out FILE]
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "packaging"))
from wheels import compile_for, platform_here

from bertkit.engine.native.build import FLAGS, PLAIN, VARIANTS, compile_library, family
from bertkit.engine.native.library import NativeLibrary, load
from bertkit.engine.native.native_encoder import NativeEncoder
from bertkit.engine.native.self_test import drawn, in_kinds
from bertkit.weights.parts import Layer, Shape
from machine import about, block, publish

#: All that begins so: the compiler of zig switches what stands on it on again.
NO_AVX512 = tuple(
    f"-mno-avx512{name}" for name in "f cd bw dq vl ifma vbmi vbmi2 vnni bitalg vpopcntdq bf16 vp2intersect".split()
)
#: A variant -> what a compiler must not use of this processor to make the same kernels.
WITHOUT = {
    "avx512_bf16": (),
    "avx512_vbmi": ("-mno-avx512bf16",),
    "avx512_vnni": ("-mno-avx512bf16", "-mno-avx512vbmi"),
    "avx512": ("-mno-avx512bf16", "-mno-avx512vbmi", "-mno-avx512vnni"),
    "avx2_vnni": NO_AVX512,
    "avx2": (*NO_AVX512, "-mno-avxvnni"),
    "sse42": (*NO_AVX512, "-mno-avxvnni", "-mno-avx2", "-mno-fma", "-mno-f16c", "-mno-avx"),
    "neon_i8mm": (),
    "neon_dot": ("-mcpu=native+nobf16+noi8mm",),
    "neon": ("-mcpu=native+nobf16+noi8mm+nodotprod",),
}
#: Width and inner width of an encoder -> the products of a layer, outputs and inputs.
SIZES = {"MiniLM-L6": (384, 1536), "BERT-base": (768, 3072)}
ROWS = (8, 128)
#: How far answers may be apart, of numbers around 1, where what is multiplied is rounded to few bits on the way.
TOLERANCES = {"bfloat16": 0.05, "int8": 0.15}
#: Seconds that one turn of a library takes at least.
TURN = 0.002
Job = Callable[[], object]


def products(width: int, inner: int) -> tuple[tuple[int, int], ...]:
    """Outputs and inputs of a layer's four products."""
    return (3 * width, width), (width, width), (inner, width), (width, inner)


def encoder(library: NativeLibrary, size: tuple[int, int], kind: str, layers: int) -> NativeEncoder:
    """One of random weights, whose products of a layer are added as matrices too."""
    width, inner = size
    chance = np.random.default_rng(0)
    made = dict(in_kinds([drawn(chance, *each) for each in products(width, inner)], bf16=library.bf16))
    matrices = tuple(made[kind])
    norms = ((np.ones(width, np.float32), np.zeros(width, np.float32)),) * 2
    shape = Shape(tuple(range(layers)), width, width // 32, inner, "gelu", 1e-12)
    return NativeEncoder(library, shape, [Layer(matrices, norms)] * layers, added=matrices)


def jobs(libraries: Sequence[NativeLibrary]) -> Iterator[tuple[str, list[Job]]]:
    """What is measured: its name, and the same call of each library."""
    kinds = ["float32", "float24"]
    kinds += ["bfloat16"] if all(each.bf16 for each in libraries) else []
    kinds += ["int8"] if all(each.fast_bytes for each in libraries) else []
    chance = np.random.default_rng(1)
    for kind in kinds:
        for name, size in SIZES.items():
            layers = 6 if name == "MiniLM-L6" else 1
            made = [encoder(library, size, kind, layers) for library in libraries]
            for number, (outputs, inputs) in enumerate(products(*size)):
                for rows in ROWS:
                    x = chance.normal(size=(rows, inputs)).astype(np.float32)
                    calls: list[Job] = [lambda e=each, n=number, x=x: e.multiply(n, x) for each in made]
                    yield f"product, {kind}, {rows} x {inputs} x {outputs}", calls
            if name == "MiniLM-L6":
                for job, lengths in (("a text of 16", [16]), ("32 ragged texts", list(range(4, 132, 4)))):
                    starts = np.cumsum([0, *lengths]).astype(np.int32)
                    x = chance.normal(size=(int(starts[-1]), size[0])).astype(np.float32)
                    yield f"job, {kind}, {job}", [lambda e=each, x=x, s=starts: e(x, s) for each in made]


def timed(calls: Sequence[Job], rounds: int) -> list[list[float]]:
    """Seconds of each call in each round, in turn; a turn repeats its call until it can be measured."""
    first = time.perf_counter()
    calls[0]()
    repeats = max(1, math.ceil(TURN / max(time.perf_counter() - first, 1e-7)))
    found: list[list[float]] = [[] for _ in calls]
    order = list(range(len(calls)))
    for _ in range(rounds):
        random.shuffle(order)
        for number in order:
            call = calls[number]
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            found[number].append((time.perf_counter() - start) / repeats)
    return found


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The median, and its 95 % interval: the ranks between which it lies by the binomial distribution."""
    ordered, half = sorted(ratios), 0.98 * math.sqrt(len(ratios))
    low, high = max(0, math.floor(len(ratios) / 2 - half)), min(len(ratios) - 1, math.ceil(len(ratios) / 2 + half))
    return statistics.median(ordered), ordered[low], ordered[high]


def made(variant: str, wheel: NativeLibrary, folder: Path) -> dict[str, NativeLibrary]:
    """The variant of the wheel, and its kernels for this very processor by each compiler."""
    compilers = {"zig": (sys.executable, "-m", "ziglang", "cc"), "gcc": ("gcc",)}
    found = {"wheel": wheel.with_variant(variant)}
    for name, compiler in compilers.items():
        if shutil.which(compiler[0]) is None:
            continue
        native = ("-mcpu=native",) if family() == "aarch64" else ("-march=native",)
        target = folder / f"{variant}-{name}.so"
        flags = (*native, *WITHOUT[variant])
        failure = compile_library(compiler, target, {"here": flags}, FLAGS)
        if failure:
            raise SystemExit(f"{name}: {failure}")
        found[name] = load(target)
        assert found[name].lanes == found["wheel"].lanes, f"{name} made other kernels"
        if (name, variant) == ("zig", "sse42"):
            del found[name]  # it writes AVX instructions all the same
    return found


def main() -> None:
    """Measure, and write a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--variant", action="append", help="only this one; may be repeated")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = ["# Variants of the wheel beside code for this very processor", "", *block(about(1))[:-1]]
    lines += [f"ziglang: {version('ziglang')}", f"rounds: {options.rounds}", "```", ""]
    lines += ["| variant | of | products: geometric mean | slowest | jobs |", "|--|--|--|--|--|"]
    details, report = [], {}
    with TemporaryDirectory() as scratch:
        wheel = load(compile_for(platform_here(), Path(scratch)))
        running = [info.name.decode() for info in wheel.variants() if info.runs]
        for variant in options.variant or [name for name in VARIANTS[family()] if name in running and name != PLAIN]:
            libraries = made(variant, wheel, Path(scratch))
            names = list(libraries)
            ratios: dict[str, dict[str, tuple[float, float, float]]] = {name: {} for name in names[1:]}
            for job, calls in jobs(list(libraries.values())):
                answers = [np.asarray(call()) for call in calls]
                for answer in answers[1:]:
                    kind = job.split(", ")[1]
                    np.testing.assert_allclose(answers[0], answer, atol=TOLERANCES.get(kind, 2e-4), rtol=0)
                times = timed(calls, options.rounds)
                for name, other in zip(names[1:], times[1:], strict=True):
                    ratios[name][job] = interval([x / y for x, y in zip(times[0], other, strict=True)])
            for name, found in ratios.items():
                mean = statistics.geometric_mean(found[job][0] for job in found if job.startswith("product"))
                slowest = max((job for job in found if job.startswith("product")), key=lambda job: found[job][0])
                whole = "; ".join(
                    f"{job.removeprefix('job, ')} {median:.3f} ({low:.3f} to {high:.3f})"
                    for job, (median, low, high) in found.items()
                    if job.startswith("job")
                )
                lines.append(
                    f"| {variant} | {name} | {mean:.3f} | {slowest.removeprefix('product, ')}: {found[slowest][0]:.3f} "
                    f"| {whole} |"
                )
                details += [
                    f"| {variant} | {name} | {job} | {median:.3f} | {low:.3f} to {high:.3f} |"
                    for job, (median, low, high) in found.items()
                ]
                report[f"{variant}/{name}"] = found
                print(lines[-1], file=sys.stderr, flush=True)
    lines += ["", "Ratios of times, the wheel's to the other's; 95 % intervals.", ""]
    lines += ["| variant | of | what | median | interval |", "|--|--|--|--|--|", *details]
    publish(lines, report, options.out)


if __name__ == "__main__":
    main()
