"""Does every class of every family match ``transformers``, at odd sizes too, and do they write the same texts?

    python benchmarks/families.py --out benchmarks/results/families.md
    python benchmarks/families.py --parts encoders seq2seq                                quicker
    python benchmarks/families.py --done families.jsonl --out ...                         goes on where it was stopped

Random models, written by ``transformers`` and read by bertkit. Each line of the first table is one class: the largest
error over all its outputs, hidden states and attentions (padded call), over the outputs of the same sequences packed,
of the loss, and over the gradients of all parameters, from the padded and the packed call; each the larger of eval and
training mode. "engine" is the inference engine with its encoder in C: in "fp32", and in "auto", which keeps weights
with 16 significant bits and has a limit of its own. The last column says whether ``transformers`` loads what bertkit
saved, with no missing or unexpected tensors and identical bits. An error is the largest difference divided by the
largest value (or by 1 if that is larger), in float32.

Sizes: "usual" are widths of 24 to 32 and texts of up to 17 tokens; "odd" are width 36, 3 heads and 5 layers, with texts
of 1, 63, 64, 65, 66, 127, 128, 129 and 130 tokens, each alone and all together (ModernBERT's windows are the published
128 there); "odd, 8,191 tokens" is one text.

Generation compares token for token, in float64 and in float32. In float32 texts may differ where two scores that the
search had to choose from were nearer than 1e-4 ("undecided"); how near, transformers says itself, in float64. Controls
are mistakes made on purpose. Exits with status 1 if anything is above its limit.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

from machine import about, block, publish

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import family_measures
import seq2seq_measures
from bertkit.config.families import FAMILIES
from family_helpers import CASES, EDGES, SHAPES, odd
from generation_cases import DTYPES, NEAR, Outcome, cases_of_models, compare_model, wrong_cache
from parity_measures import ENGINE_LIMITS, LIMIT, Parity
from seq2seq_helpers import CASES as SEQ2SEQ_CASES
from seq2seq_helpers import KINDS
from seq2seq_helpers import odd as seq2seq_odd

PARTS = ("encoders", "odd", "seq2seq", "generation", "controls")
#: Lengths of the texts of each batch at odd sizes.
ODD_BATCHES = ((1,), *((length,) for length in EDGES), (*EDGES, 1))
#: What is found for one job, as JSON; and a job, given a folder for what it saves.
Record = dict[str, Any]
Job = Callable[[Path], Record]


def main() -> None:
    args = parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.manual_seed(0)
    jobs = {name: job for part in args.parts for name, job in JOBS[part](args.cases).items()}
    done = read_done(args.done)
    for number, (name, job) in enumerate(jobs.items(), 1):
        if name in done:
            continue
        print(f"{number} of {len(jobs)}: {name}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            done[name] = job(Path(folder))
        if args.done is not None:
            with args.done.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"name": name, **done[name]}) + "\n")
    found = {name: done[name] for name in jobs}
    good = all(record["good"] for record in found.values())
    publish(render(found), {"limit": LIMIT, "engine": ENGINE_LIMITS, "good": good, "results": found}, args.out)
    if not good:
        raise SystemExit("above a limit, other texts, or a control that nobody notices: " + ", ".join(
            name for name, record in found.items() if not record["good"]
        ))  # fmt: skip


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the tables to this Markdown file")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what is compared; default: all")
    parser.add_argument("--cases", type=int, default=500, help="of generation, for each family and type (500)")
    parser.add_argument("--done", type=Path, help="file of results: those in it are not computed again, new ones added")
    return parser.parse_args()


def read_done(path: Path | None) -> dict[str, Record]:
    if path is None or not path.exists():
        return {}
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {record.pop("name"): record for record in records}


# --- jobs ------------------------------------------------------------------------------------------------------------


def encoder(shape: str, head: str, sizes: str, folder: Path) -> Record:
    """One class of an encoder at some sizes."""
    more: dict[str, Any] = {}
    if sizes == "odd":
        more = {**odd(shape), "batches": ODD_BATCHES}
    elif sizes == "odd, 8,191 tokens":
        # The probabilities of so long a text, which "eager" attention returns, take a gigabyte a layer.
        more = {**odd(shape), "max_position_embeddings": 8192, "batches": ((8191,),), "attention": "sdpa"}
    name = FAMILIES[SHAPES[shape][0]].their_class(head)
    return parity(shape, name, sizes, family_measures.measure(shape, head, folder, **more))


def encoder_decoder(kind: str, head: str, sizes: str, folder: Path) -> Record:
    """One class of an encoder-decoder at some sizes."""
    more = {**seq2seq_odd(kind), "batches": ODD_BATCHES} if sizes == "odd" else {}
    return parity(kind, KINDS[kind][0] + head, sizes, seq2seq_measures.measure(kind, head, folder, **more))


def parity(family: str, name: str, sizes: str, found: Parity) -> Record:
    return {"family": family, "class": name, "sizes": sizes, **asdict(found), "good": found.good}


def generation(kind: str, dtype: str, seed: int, cases: int, folder: Path) -> Record:
    """What one model writes."""
    found = compare_model(kind, DTYPES[dtype], seed, cases, folder)
    return {"family": kind, "dtype": dtype, **asdict(found), "good": not found.wrong}


def control(measure: Callable[[Path], float], folder: Path) -> Record:
    """A mistake that must be noticed, in the engine too."""
    found = measure(folder)
    return {"found": f"error {found:.1e}", "good": found > 100 * LIMIT and found > 10 * ENGINE_LIMITS["auto"]}


def control_of_generation(dtype: str, folder: Path) -> Record:
    """The same for what is written."""
    found = wrong_cache(folder, DTYPES[dtype])
    text = f"{len(found.wrong)} of {found.rows} texts wrong, {found.undecided} undecided"
    return {"found": text, "good": len(found.wrong) > max(5, found.undecided)}


def encoders_at(sizes: str, families: tuple[str, ...] = tuple(FAMILIES)) -> dict[str, Job]:
    wanted = [(shape, head) for shape, head in CASES if SHAPES[shape][0] in families]
    return {f"encoder, {sizes}: {shape}, {head}": partial(encoder, shape, head, sizes) for shape, head in wanted}


def seq2seq_at(sizes: str) -> dict[str, Job]:
    return {
        f"encoder-decoder, {sizes}: {kind}, {head}": partial(encoder_decoder, kind, head, sizes)
        for kind, head in SEQ2SEQ_CASES
    }


def generations(cases: int) -> dict[str, Job]:
    return {
        f"generation, {dtype}: {kind}, model {seed}, {count} cases": partial(generation, kind, dtype, seed, count)
        for kind in KINDS
        for dtype in DTYPES
        for seed, count in cases_of_models(DTYPES[dtype], cases).items()
    }


def controls() -> dict[str, Job]:
    known = {**family_measures.CONTROLS, **seq2seq_measures.CONTROLS}
    of_models = {f"control: {name}": partial(control, measure) for name, measure in known.items()}
    name = "control: generation, {}: one value of what is kept of each token is another"
    return {**of_models, **{name.format(dtype): partial(control_of_generation, dtype) for dtype in DTYPES}}


#: The jobs of each part by their names, for so many cases of generation.
JOBS: Mapping[str, Callable[[int], dict[str, Job]]] = {
    "encoders": lambda _: encoders_at("usual"),
    "odd": lambda _: {**encoders_at("odd"), **encoders_at("odd, 8,191 tokens", ("modernbert",))},
    "seq2seq": lambda _: {**seq2seq_at("usual"), **seq2seq_at("odd")},
    "generation": generations,
    "controls": lambda _: controls(),
}


# --- the tables ------------------------------------------------------------------------------------------------------


def render(found: Mapping[str, Record]) -> list[str]:
    """The tables as Markdown."""
    classes = [record for record in found.values() if "class" in record]
    written = [record for record in found.values() if "dtype" in record]
    lines = ["# Model families compared with transformers", "", *block(about(torch.get_num_threads())), ""]
    if classes:
        lines += [summary(classes), "", *class_table(classes), ""]
    if written:
        lines += ["## Generation, token for token", "", *generation_table(written), ""]
    mistakes = {name: record for name, record in found.items() if "found" in record}
    if mistakes:
        lines += ["## Controls: mistakes made on purpose", "", "| mistake | found |", "|---|---|"]
        lines += [f"| {name.removeprefix('control: ')} | {record['found']} |" for name, record in mistakes.items()]
        lines += [""]
    return lines


def summary(classes: list[Record]) -> str:
    worst = max(Parity(**{name: record[name] for name in Parity.__dataclass_fields__}).worst for record in classes)
    engine = {name: max(record[name] or 0.0 for record in classes) for name in ("engine", "engine_auto")}
    bad = sum(not record["good"] for record in classes)
    return (
        f"{len(classes)} lines. The largest error is {worst:.1e} (limit {LIMIT:.0e}); of the engine in fp32 "
        f"{engine['engine']:.1e} (limit {ENGINE_LIMITS['fp32']:.0e}), in auto {engine['engine_auto']:.1e} (limit "
        f"{ENGINE_LIMITS['auto']:.0e}). Above a limit: {bad}. The columns are explained in `benchmarks/families.py`."
    )


def class_table(classes: list[Record]) -> list[str]:
    columns = {
        "forward": "forward", "packed": "packed", "loss": "loss", "gradients": "gradient", "engine, fp32": "engine",
        "engine, auto": "engine_auto",
    }  # fmt: skip
    lines = [
        f"| sizes | family | class | {' | '.join(columns)} | saved and loaded back |",
        "|" + "---|" * (len(columns) + 4),
    ]
    for record in classes:
        errors = ["" if record[name] is None else f"{record[name]:.1e}" for name in columns.values()]
        back = "same bits" if record["round_trip"] else "**no**"
        lines.append(f"| {record['sizes']} | {record['family']} | {record['class']} | {' | '.join(errors)} | {back} |")
    return lines


def generation_table(written: list[Record]) -> list[str]:
    lines = [
        f"| family | type | models | cases | texts | other texts | undecided (two scores nearer than {NEAR:.0e}) |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    for kind, dtype in dict.fromkeys((record["family"], record["dtype"]) for record in written):
        mine = [record for record in written if (record["family"], record["dtype"]) == (kind, dtype)]
        sums = Outcome(sum(record["cases"] for record in mine), sum(record["rows"] for record in mine))
        for record in mine:
            sums.wrong += record["wrong"]
            sums.gaps += record["gaps"]
        near = f"{sums.undecided}; the widest {max(sums.gaps):.1e}" if sums.gaps else "0"
        lines.append(f"| {kind} | {dtype} | {len(mine)} | {sums.cases} | {sums.rows} | {len(sums.wrong)} | {near} |")
    return lines


if __name__ == "__main__":
    main()
