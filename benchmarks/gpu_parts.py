"""The parts of gpu_all.py that compute on a GPU: each gives one dictionary after another, as it finds them."""

from __future__ import annotations

import json
import lzma
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertkit.benchmark.sample_texts import builtin_lengths
from bertkit.config.bert_config import BertConfig
from bertkit.engine.backend import Wanted
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.model.models import BertForPreTraining, BertModel
from bertkit.ragged import Floats, Ragged, boundaries_of
from gpu_correctness import (
    dropout_facts,
    families,
    graphs,
    graphs_recorded,
    kernel_errors,
    packed_and_alone,
    should_record,
)
from gpu_profile import profiler, shares_of, training_profile
from machine import PACKAGES, minilm_folder, version_of
from pretrain_peers import TRAINER_NEEDS, absent

MEAN = Wanted(("last_hidden_state",), pooling=("mean",))
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
#: Padded places that transformers computes at once.
PLACES = 32_768
TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
Found = Iterator[dict[str, Any]]


def environment(device: torch.device, tiny: bool) -> Found:
    """Versions, the card, and the fastest of some large products, in bf16 there: what shares of the peak refer to."""
    from pretrain_work import matmul_peak

    versions = {name: version_of(name) for name in (*PACKAGES, "sentence-transformers")}
    yield {"date": time.strftime("%Y-%m-%d"), "python": sys.version.split()[0], **versions}
    peak = matmul_peak(device, "bf16" if device.type == "cuda" else "fp32")
    yield {"measured_peak_tflops": round(peak / 1e12, 3)}
    if device.type == "cuda":
        yield {
            "card": torch.cuda.get_device_name(device),
            "capability": list(torch.cuda.get_device_capability(device)),
            "cuda": torch.version.cuda,
            "memory_gb": round(torch.cuda.get_device_properties(device).total_memory / 1e9, 1),
        }


def correctness(device: torch.device, tiny: bool) -> Found:
    """Attention beside the reference, dropout, packs beside single texts, families beside transformers."""
    yield from kernel_errors(device)
    yield from dropout_facts(device)
    yield from packed_and_alone(device, TINY if tiny else {"num_hidden_layers": 4})
    yield from graphs(device, TINY if tiny else {"num_hidden_layers": 4})
    if lacks := absent(["transformers"]):
        yield {"left_out": {"families beside transformers": f"needs {', '.join(lacks)}"}}
    else:
        yield from families(device)


def pretrain_128(device: torch.device, tiny: bool) -> Found:
    """Masked LM and next sentence, dropout 0.1: 600,000 tokens a second is the goal."""
    yield from pretrained(device, tiny, 128, goal=600_000)


def pretrain_512(device: torch.device, tiny: bool) -> Found:
    yield from pretrained(device, tiny, 512, goal=530_000)


def pretrained(device: torch.device, tiny: bool, length: int, goal: int) -> Found:
    """Speeds beside those of peers, where the time of three steps goes, and what ``torch.compile`` changes.

    Compiling comes last: it may take longer than the part has left.
    """
    from pretrain_peers import Bertkit, compare, compiled_by, train_in_turns
    from pretrain_work import flops_a_step, matmul_peak

    rounds, steps = (1, 2) if tiny else (2, 20)
    with tempfile.TemporaryDirectory() as scratch:
        job, shape = pretrain_job(device, tiny, length, rounds * (steps + 2) + 3, Path(scratch))
        peak = matmul_peak(device, job.precision)

        def line(found: dict[str, Any]) -> dict[str, Any]:
            work = flops_a_step(shape, found.pop("lengths"), rounds * steps) / found["tokens_a_step"]
            for system in found["systems"].values():
                system["share_of_measured_peak"] = round(work * system["tokens_per_s"] / peak, 4)
            return {"goal_tokens_per_s": goal, **found, **memory(device)}

        yield line(compare(job, rounds, steps, 2e-2 if job.precision == "bf16" else 1e-4, Path(scratch)))
        yield training_profile(Bertkit(job))
        if compiler := compiler_of(device):
            yield line(train_in_turns(job, (Bertkit, compiled_by(compiler)), rounds, steps))
        else:
            yield {"left_out": {"bertkit, compiled": "needs triton"}}


def pretrain_job(device: torch.device, tiny: bool, length: int, num_steps: int, folder: Path) -> tuple[Any, BertConfig]:
    """Masked LM and next sentence of BERT-base with random weights on so many steps of made-up text; its shape."""
    from gpu_text import made_up_examples
    from pretrain_peers import Job

    shape = BertConfig(vocab_size=500, **TINY) if tiny else BertConfig()
    torch.manual_seed(0)
    BertForPreTraining(shape).save_pretrained(folder / "start")
    examples = made_up_examples(shape.vocab_size, length, max(1, (512 if tiny else 32_768) // length), num_steps)
    return Job(folder / "start", examples, device, "bf16" if device.type == "cuda" else "fp32"), shape


def compiler_of(device: torch.device) -> str | None:
    """What compiles there; on a CPU, which only tries this script, what needs no compiler of C++."""
    if device.type != "cuda":
        return "aot_eager"
    return "inductor" if find_spec("triton") else None


def repeatable(device: torch.device, tiny: bool) -> Found:
    """What ``--deterministic`` costs, and whether it does what it says: two runs of some steps to the same losses."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read at a process's first product, so for both ways
    from pretrain_peers import WARM, Bertkit

    steps = range(WARM + (2 if tiny else 20))
    with tempfile.TemporaryDirectory() as scratch:
        job, _ = pretrain_job(device, tiny, 128, len(steps), Path(scratch))
        seconds, losses = {}, {}
        for name in ("usual", "deterministic", "again"):
            torch.manual_seed(0)
            turn = Bertkit(job, deterministic=name != "usual").train(steps)
            seconds[name], losses[name] = turn.seconds, turn.losses
    yield {
        "check": "deterministic", "steps": len(steps), "holds": losses["deterministic"] == losses["again"],
        "usual_is_the_same_too": losses["usual"] == losses["deterministic"],
        "seconds": {name: round(value, 4) for name, value in seconds.items()},
        "cost": round(min(seconds["deterministic"], seconds["again"]) / seconds["usual"], 3),
    }  # fmt: skip


def finetune(device: torch.device, tiny: bool) -> Found:
    """Whole commands, start and evaluation included: ``bertkit finetune`` and Trainer in turns.

    MiniLM with two seeds, then BERT-base with one on fewer rows. Its weights are random, so that only its times say
    something.
    """
    rows, fewer = (64, 64) if tiny else (20_000, 4_000)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, count in (("data", rows), ("fewer", fewer), ("warm", 64)):
            sst2_files(folder / name, count)
        yield {"data": "SST-2" if (DATA / "glue").exists() else "made up", "left_out": TRAINER_LACKS}
        for name in FINETUNERS:
            FINETUNERS[name](minilm_folder(), folder / "warm", folder / f"warm-{name}", 0, device)
        for seed in range(1 if tiny else 2):
            yield from both_finetuned("MiniLM", minilm_folder(), folder / "data", rows, seed, device)
        yield from both_finetuned("BERT-base", random_bert(folder / "base", tiny), folder / "fewer", fewer, 0, device)


def both_finetuned(name: str, model: Path, data: Path, rows: int, seed: int, device: torch.device) -> Found:
    """A line for each system: bertkit first with even seeds, last with odd ones."""
    for system in list(FINETUNERS) if seed % 2 == 0 else list(FINETUNERS)[::-1]:
        begun = time.perf_counter()
        accuracy = FINETUNERS[system](model, data, data.parent / f"{system}-{name}-{seed}", seed, device)
        seconds = round(time.perf_counter() - begun, 2)
        yield {
            "model": name, "rows": rows, "system": system, "seed": seed, "seconds": seconds, "accuracy": accuracy,
            "goal": "3 x Trainer",
        }  # fmt: skip


def random_bert(folder: Path, tiny: bool) -> Path:
    """A folder with BERT-base's shape, random weights and MiniLM's tokenizer, whose vocabulary is BERT's."""
    from bertkit import AutoTokenizer

    torch.manual_seed(0)
    BertModel(BertConfig(**(TINY if tiny else {}))).save_pretrained(folder)
    AutoTokenizer.from_pretrained(minilm_folder()).save_pretrained(folder)
    return folder


def by_bertkit(model: Path, data: Path, out: Path, seed: int, device: torch.device) -> float:
    command = [
        "-m", "bertkit", "finetune", "sst2", "--data", str(data), "--model", str(model), "--out",
        str(out), "--epochs", "2", "--batch-size", "32", "--learning-rate", "1e-4", "--seed", str(seed), "--device",
        device.type, "--pooling", "cls", "--patience", "0", "--no-baseline", "--quiet",
    ]  # fmt: skip
    subprocess.run([sys.executable, *command], check=True, stdout=sys.stderr)
    found = json.loads((out / "metrics.json").read_text())
    return float(found["seeds"][0]["last_scores"]["accuracy"])


def by_trainer(model: Path, data: Path, out: Path, seed: int, device: torch.device) -> float:
    script = str(Path(__file__).with_name("gpu_trainer.py"))
    command = [sys.executable, script, str(model), str(data), "2", str(seed), device.type]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(json.loads(said.splitlines()[-1])["accuracy"])


FINETUNERS: dict[str, Callable[[Path, Path, Path, int, torch.device], float]] = {"bertkit": by_bertkit}
TRAINER_LACKS = {"transformers Trainer": f"needs {', '.join(lacks)}"} if (lacks := absent(TRAINER_NEEDS)) else {}
if not TRAINER_LACKS:
    FINETUNERS["transformers Trainer"] = by_trainer


def sst2_files(folder: Path, count: int) -> None:
    """SST-2's first rows; without its data, rows of words of which one says the label."""
    folder.mkdir()
    source = DATA / "glue" / "SST-2"
    if source.exists():
        with lzma.open(source / "train.tsv.xz", "rt", encoding="utf-8") as file:
            train = file.readlines()[: count + 1]
        dev = (source / "dev.tsv").read_text(encoding="utf-8").splitlines(keepends=True)[: count + 1]
    else:
        train, dev = made_up_rows(count, seed=0), made_up_rows(min(count, 872), seed=1)
    (folder / "train.tsv").write_text("".join(train), encoding="utf-8")
    (folder / "dev.tsv").write_text("".join(dev), encoding="utf-8")


def made_up_rows(count: int, seed: int) -> list[str]:
    chance = np.random.default_rng(seed)
    texts = made_up_texts(count, seed)
    labels = chance.integers(0, 2, count)
    says = ("awful", "wonderful")
    return ["sentence\tlabel\n", *(f"{says[y]} {text}\t{y}\n" for text, y in zip(texts, labels, strict=True))]


def made_up_texts(count: int, seed: int) -> list[str]:
    """Texts of whole words of MiniLM's vocabulary, as long as the built-in lengths."""
    chance = np.random.default_rng(seed)
    lines = (minilm_folder() / "vocab.txt").read_text(encoding="utf-8").splitlines()
    words = np.array([word for word in lines if word.isalpha() and word.isascii() and len(word) > 1])
    sizes = builtin_lengths(count, 512, seed=seed) - 2
    return [" ".join(chance.choice(words, size)) for size in sizes.tolist()]


def inference(device: torch.device, tiny: bool) -> Found:
    """BERT-base from ids to mean vectors on the host: bertkit as it chooses by itself, transformers in bf16."""
    share = 64 if tiny else 1
    loads = {
        "mean 128": (np.linspace(16, 240, 4_096 // share).round().astype(np.int64), 2_200_000),
        "ragged, mean 33": (builtin_lengths(16_384 // share, 512, seed=0), 2_000_000),
    }
    with tempfile.TemporaryDirectory() as scratch:
        torch.manual_seed(0)
        BertModel(BertConfig(**(TINY if tiny else {}))).save_pretrained(scratch)
        systems: dict[str, Callable[[Ragged], Floats]] = {"bertkit": bertkit_run(Path(scratch), device)}
        if lacks := absent(["transformers"]):
            yield {"left_out": {"transformers SDPA bf16, sorted": f"needs {', '.join(lacks)}"}}
        else:
            systems["transformers SDPA bf16, sorted"] = transformers_run(Path(scratch), device)
        for load, (lengths, goal) in loads.items():
            rows = random_rows(lengths)
            vectors = {name: run(rows) for name, run in systems.items()}  # warms up
            yield {"load": load, "least_cosine": least_cosine(list(vectors.values()))}
            for name, seconds in in_turns(systems, rows, 1 if tiny else 5).items():
                speed = round(int(lengths.sum()) / statistics.median(seconds))
                yield {"load": load, "system": name, "tokens_per_s": speed, "goal_tokens_per_s": goal}


def bertkit_run(folder: Path, device: torch.device) -> Callable[[Ragged], Floats]:
    engine = InferenceEngine.load(folder, "BertModel", device=device)
    return lambda rows: engine.row_outputs(rows, MEAN)


def transformers_run(folder: Path, device: torch.device) -> Callable[[Ragged], Floats]:
    """Rows sorted by length, in padded batches of ``PLACES`` places; mean pooling on the device."""
    import transformers

    transformers.logging.set_verbosity_error()
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = transformers.BertModel.from_pretrained(
        folder, add_pooling_layer=False, attn_implementation="sdpa", dtype=dtype
    )
    model = model.to(device).eval()

    @torch.inference_mode()
    def run(rows: Ragged) -> Floats:
        found = np.empty((len(rows), model.config.hidden_size), np.float32)
        for numbers in padded_batches(rows):
            ids, mask = (x.to(device) for x in pad([rows[number] for number in numbers]))
            hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
            found[numbers] = ((hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)).cpu().numpy()
        return found

    return run


def texts(device: torch.device, tiny: bool) -> Found:
    """``SentenceEncoder`` with MiniLM from text: 80,000 texts a second, ten times sentence-transformers."""
    from bertkit import SentenceEncoder

    given = made_up_texts(100 if tiny else 20_000, seed=0)
    ours = SentenceEncoder(minilm_folder(), device=device)
    systems: dict[str, Callable[[Any], Floats]] = {"bertkit": ours.encode}
    if lacks := absent(["sentence_transformers"]):
        yield {"left_out": {"sentence-transformers": f"needs {', '.join(lacks)}"}}
    else:
        from sentence_transformers import SentenceTransformer

        theirs = SentenceTransformer(str(minilm_folder()), device=device.type)
        theirs = theirs.bfloat16() if device.type == "cuda" else theirs
        systems["sentence-transformers"] = lambda rows: theirs.encode(rows, convert_to_numpy=True, batch_size=256)
    vectors = [run(given[:2_000]) for run in systems.values()]
    yield {"least_cosine": least_cosine(vectors)}
    for name, seconds in in_turns(systems, given, 1 if tiny else 3).items():
        yield {"system": name, "texts_per_s": round(len(given) / statistics.median(seconds)), "goal": 80_000}


def one_text(device: torch.device, tiny: bool) -> Found:
    """One text of 16 tokens, the whole call from the string to the vector, with and without CUDA graphs: medians.

    It holds if the graph that is said to be replayed was recorded.
    """
    from bertkit import SentenceEncoder
    from bertkit.engine.captured_encoder import SWITCH

    text = " ".join(["word"] * 14)
    with tempfile.TemporaryDirectory() as scratch:
        base = random_bert(Path(scratch), tiny)
        for name, folder, goal in (("MiniLM", minilm_folder(), 0.5), ("BERT-base", base, 0.8)):
            for asked in (True, False):
                os.environ[SWITCH] = str(int(asked))
                encoder = SentenceEncoder(folder, device=device)
                seconds = [timed(lambda: encoder.encode(text)) for _ in range(20 if tiny else 400)]  # noqa: B023
                milliseconds = round(1000 * statistics.median(seconds[len(seconds) // 2 :]), 3)
                recorded = graphs_recorded(encoder.pipeline.engine)
                yield {
                    "model": name, "graphs": recorded > 0, "milliseconds": milliseconds, "goal_milliseconds": goal,
                    "holds": recorded == int(asked and should_record(device)),
                }  # fmt: skip


def profile(device: torch.device, tiny: bool) -> Found:
    """Of BERT-base inference: how often the host waits, and what share of the card's time goes where."""
    with tempfile.TemporaryDirectory() as scratch:
        BertModel(BertConfig(**(TINY if tiny else {}))).save_pretrained(scratch)
        run = bertkit_run(Path(scratch), device)
    rows = random_rows(builtin_lengths(100 if tiny else 8_192, 512, seed=0))
    run(rows)
    with profiler(device) as found:
        run(rows)
    yield {"packs": -(-int(rows.lengths.sum()) // PLACES), **shares_of(found)}


def memory(device: torch.device) -> dict[str, float]:
    return {"peak_gb": round(torch.cuda.max_memory_allocated(device) / 1e9, 2)} if device.type == "cuda" else {}


def random_rows(lengths: np.ndarray) -> Ragged:
    chance = np.random.default_rng(0)
    sizes = chance.permutation(lengths)
    ids = chance.integers(1000, 30_000, int(sizes.sum()), dtype=np.int32)
    return Ragged(ids, boundaries_of(sizes), np.zeros(len(ids), np.int8), sizes)


def in_turns(systems: dict[str, Callable[[Any], Floats]], rows: Any, rounds: int) -> dict[str, list[float]]:
    """Seconds of each system, in the other order each time. Vectors are on the host, so nothing is still running."""
    found: dict[str, list[float]] = {name: [] for name in systems}
    for turn in range(rounds):
        for name in list(systems) if turn % 2 == 0 else list(systems)[::-1]:
            found[name].append(timed(lambda: systems[name](rows)))  # noqa: B023
    return found


def timed(run: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def least_cosine(vectors: list[Floats]) -> float | None:
    """Of the first system's vectors and the second's; None if there is no second."""
    if len(vectors) < 2:
        return None
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in vectors)
    return round(float((a * b).sum(1).min()), 5)


def padded_batches(rows: Ragged) -> list[list[int]]:
    """Numbers of rows of similar length, at most ``PLACES`` places a batch with its padding."""
    batches: list[list[int]] = [[]]
    for number in np.argsort(rows.lengths, kind="stable")[::-1].tolist():
        if batches[-1] and rows.lengths[batches[-1][0]] * (len(batches[-1]) + 1) > PLACES:
            batches.append([])
        batches[-1].append(number)
    return batches


def pad(given: list[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask, int64 ``(B, S)``."""
    ids = np.zeros((len(given), max(map(len, given))), np.int64)
    mask = np.zeros_like(ids)
    for row, text in enumerate(given):
        ids[row, : len(text)], mask[row, : len(text)] = text, 1
    return torch.from_numpy(ids), torch.from_numpy(mask)
