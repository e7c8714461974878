"""Measure a model in bertkit's modes and on other runtimes: answers first, then rounds in turn."""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import numpy as np

from bertkit.benchmark.benchmark_report import ORDERS, BenchmarkReport, Quality, System
from bertkit.benchmark.runtime_process import Launch, RuntimeProcess, prepare
from bertkit.benchmark.runtimes import INT8, NEEDS_INT8, REFERENCE, Mode, choose
from bertkit.benchmark.sample_texts import (
    NUM_SINGLES,
    SINGLE_LENGTHS,
    SampleTexts,
    make_sample,
    num_texts_for,
    random_rows,
    read_sample,
    save_rows,
)
from bertkit.checkpoints.huggingface import is_int8
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import checkpoint_folder, config_path
from bertkit.engine.export_folder import check_class, is_export, read_manifest
from bertkit.engine.native.library import native_library, why_not
from bertkit.errors import ConfigError, ResourceError
from bertkit.model.models import BertModel
from bertkit.ragged import Floats
from bertkit.system.atomic_files import disk_guard
from bertkit.system.console import Progress, say
from bertkit.system.interrupts import Interrupted, Interrupts
from bertkit.system.model_sources import resolve
from bertkit.system.processor import find_processor
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

ResultT = TypeVar("ResultT")
ArgumentsT = TypeVarTuple("ArgumentsT")

#: Seconds of calls with one text, in each round.
BUDGET_S = 0.3
#: Seconds of rest before a process is asked, in which the threads of the one before it stop waiting for work.
REST_S = 0.25
#: A start takes seconds, so it is measured in the first rounds only.
COLD_STARTS = 3
#: Texts whose hidden states are compared one by one.
NUM_CHECKED = 8
#: Converted copies of the weights on disk: for each runtime about one, at each precision.
COPIES_ON_DISK = 6
#: Bytes that a process takes beside one copy of the weights in float32, roughly.
PROCESS_BYTES = 100e6


def run_benchmark(
    model: str | Path,
    *,
    int8: str | Path | None = None,
    texts: Sequence[str] | None = None,
    against: Sequence[str] | None = None,
    precisions: Sequence[str] | None = None,
    threads: int | None = None,
    rounds: int = 5,
    seed: int = 0,
    python: str | None = None,
) -> BenchmarkReport:
    """Measure a model's encoder on this machine's processor.

    Ctrl-C ends the measurement; the report then holds what was measured until then, and says so.

    model: folder, Hub name or run folder of any encoder checkpoint, with any head; or what ``bertkit export``
        wrote, without peers. Its answers in float32 are what all others are compared with.
    int8: what ``bertkit quantize`` made of it; None: bertkit's int8 is left out.
    against, precisions: None: all peers that are installed, all precisions that this processor has.
    python: the interpreter that has the peers; None: this one.
    """
    for name, value in (("rounds", rounds), ("threads", threads)):
        if value is not None and value < 1:
            raise ConfigError(f"{name}={value} is below 1")
    processor = find_processor()
    python = python or sys.executable
    path = resolve(model)
    if is_export(path):
        if against:
            raise ConfigError(f"{model} is an exported graph, which peers cannot convert; measure the model it is of")
        check_class(path, read_manifest(path), BertModel.__name__)
        against = ()
    int8_path = _int8_folder(path, int8)
    choice = choose(against, precisions, python, processor, has_int8=int8 is not None)
    threads = threads or processor.cores
    with tempfile.TemporaryDirectory(prefix="bertkit-benchmark-") as scratch:
        work = Path(scratch)
        subject = open_subject(path, texts, work, seed, choice.modes)
        report = BenchmarkReport(
            model=str(model),
            int8=None if int8 is None else str(int8),
            processor=processor,
            encoder=str(native_library() or why_not()),
            threads=threads,
            texts=subject.sample,
            versions=choice.versions,
            absent=choice.absent,
            lengths=subject.lengths,
            systems={
                mode: System(error=NEEDS_INT8 if mode == INT8 and int8 is None else None) for mode in choice.modes
            },
        )
        with _noted(report) as interrupts:
            launch = Launch(
                source=path,
                int8=int8_path,
                model=subject.folder,
                work=work,
                python=python,
                own_python=sys.executable,
                threads=threads,
                check=interrupts.check,
            )
            Session(launch, subject, report).run(rounds)
    return report


def _int8_folder(path: Path, int8: str | Path | None) -> Path | None:
    """The folder of the model in 8 bits, if one is given.

    Raises:
        ConfigError: ``path`` is itself in 8 bits, or the folder is not, or it was made from another model.
    """
    if _is_in_8_bits(path):
        raise ConfigError(f"{path} is in 8 bits; name the original model first, and this one with --int8 {path}")
    if int8 is None:
        return None
    folder = resolve(int8)
    if not _is_in_8_bits(folder):
        raise ConfigError(f"--int8 {folder} is not in 8 bits; make it with: bertkit quantize {path} --out FOLDER")
    ours, its = (BertConfig.from_json_file(config_path(each)) for each in (path, folder))
    for name in ("vocab_size", "hidden_size", "num_hidden_layers"):
        if (found := getattr(its, name)) != (expected := getattr(ours, name)):
            raise ConfigError(
                f"--int8 {folder} was not made from {path}: its {name} is {found}, and that of {path} is {expected}; "
                f"make it with: bertkit quantize {path} --out FOLDER"
            )
    return folder


def _is_in_8_bits(path: Path) -> bool:
    return read_manifest(path).get("precision") == "int8" if is_export(path) else is_int8(checkpoint_folder(path))


@contextmanager
def _noted(report: BenchmarkReport) -> Iterator[Interrupts]:
    """Ctrl-C ends the block, and is noted in the report; so is a second one that comes before the first took effect."""
    with Interrupts() as interrupts:
        try:
            yield interrupts
        except KeyboardInterrupt as stop:
            report.interrupted = stop if isinstance(stop, Interrupted) else Interrupted(str(stop))


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured; ``folder`` has the model's encoder alone, as transformers reads it."""

    folder: Path
    sample: SampleTexts
    lengths: tuple[int, ...]
    tokenizer: PreTrainedTokenizer
    seed: int

    def save_texts(self, work: Path) -> dict[str, Path]:
        """The files that the processes read: single texts by length, the texts, the first of them."""
        rows = {str(length): random_rows([length], self.tokenizer, self.seed) for length in self.lengths}
        all_rows = self.sample.rows
        rows["texts"] = all_rows
        rows["singles"] = all_rows.select(np.arange(min(len(all_rows), NUM_SINGLES)))
        rows["checked"] = all_rows.select(np.arange(min(len(all_rows), NUM_CHECKED)))
        return {name: save_rows(values, work / f"texts-{name}.npz") for name, values in rows.items()}


def open_subject(path: Path, texts: Sequence[str] | None, work: Path, seed: int, modes: Sequence[Mode]) -> Subject:
    """What a checkpoint is measured with, and for peers among the modes its encoder as a folder in ``work``."""
    config = BertConfig.from_json_file(config_path(path))
    tokenizer = AutoTokenizer.from_pretrained(checkpoint_folder(path))
    limit = min(config.max_input_length, tokenizer.model_max_length)
    count = num_texts_for(config)
    if texts is None:
        sample = make_sample(tokenizer, count, limit, seed)
    else:
        sample = read_sample(texts, tokenizer, count, limit, seed)
    folder = work / "model"
    if not all(mode.is_ours for mode in modes):
        encoder = BertModel.from_pretrained(path)
        size = 4 * encoder.num_parameters()
        _warn_of_memory(len(modes), size)
        room = COPIES_ON_DISK * size
        with disk_guard(work, room, what="the model in the formats of the peers", advice="Set TMPDIR to a larger disk"):
            encoder.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    lengths = tuple(length for length in SINGLE_LENGTHS if length <= limit)
    return Subject(folder, sample, lengths or (limit,), tokenizer, seed)


def _warn_of_memory(processes: int, weights: int) -> None:
    """Warn if all processes together need more memory than is free; only Linux says how much that is."""
    info = Path("/proc/meminfo")
    found = re.search(r"^MemAvailable:\s*(\d+) kB", info.read_text() if info.exists() else "", re.MULTILINE)
    needed, free = processes * (PROCESS_BYTES + weights), 1024 * int(found[1]) if found else None
    if free is not None and free < needed:
        say(
            f"{processes} processes need about {needed / 1e9:.1f} GB of memory together, and {free / 1e9:.1f} GB is "
            "free; if it runs out, choose fewer peers (--against) or precisions (--precision)"
        )


class Session:
    """The processes of one measurement, and what they answered."""

    def __init__(self, launch: Launch, subject: Subject, report: BenchmarkReport) -> None:
        self._launch = launch
        self._report = report
        self._lengths = subject.lengths
        self._files = subject.save_texts(launch.work)

    def run(self, rounds: int) -> None:
        """Prepare and start all processes, check their answers, measure."""
        steps = len(self._alive()) * (2 + rounds * len(self._figures()))
        with ExitStack() as stack, Progress(steps, label="benchmark", unit="steps") as bar:
            for mode in self._alive():
                bar.advance(note=f"converting for {mode}")
                self._try(mode, prepare, self._launch, mode)
            processes = {}
            for mode in self._alive():
                process = processes[mode] = stack.enter_context(RuntimeProcess(self._launch, mode))
                self._try(mode, process.wait_until_ready)
            reference = None
            for mode in self._alive():
                bar.advance(note=f"checking {mode}")
                found = self._try(mode, self._answers, processes[mode])
                reference = found if mode == REFERENCE else reference
                if found is not None and reference is not None:
                    self._report.systems[mode].quality = Quality.of(found, reference)
            for number in range(rounds):
                for what, measure in self._figures().items():
                    modes = self._alive()
                    for mode in modes if number % 2 == 0 else modes[::-1]:
                        bar.advance(note=f"round {number + 1}, {what}, {mode}")
                        time.sleep(REST_S)
                        self._try(mode, measure, processes[mode])

    def _alive(self) -> list[Mode]:
        return [mode for mode, system in self._report.systems.items() if system.error is None]

    def _try(self, mode: Mode, step: Callable[[*ArgumentsT], ResultT], *given: *ArgumentsT) -> ResultT | None:
        """The result of a step; None if the mode's process failed, which is noted. The reference must not fail."""
        try:
            return step(*given)
        except ResourceError as error:
            self._launch.check()  # the signal may have ended the process too
            if mode == REFERENCE:
                raise
            self._report.systems[mode].error = str(error)
            say(f"{mode} is left out: {error}")
            return None

    def _ask(self, process: RuntimeProcess, do: str, **request: object) -> list[float]:
        answer = process.ask(do, **request)
        return [float(value) for value in answer.get("seconds", [])]

    def _answers(self, process: RuntimeProcess) -> tuple[Floats, Floats]:
        """Hidden states of a few texts ``(T, D)``, the vectors of all ``(B, D)``."""
        found = []
        for do, texts in (("hidden", "checked"), ("vectors", "texts")):
            out = self._launch.work / "answer.npy"
            self._ask(process, do, texts=self._files[texts], out=out)
            found.append(np.load(out))
        return found[0], found[1]

    def _figures(self) -> dict[str, Callable[[RuntimeProcess], None]]:
        """What a round measures, system after system, within seconds: the speed of a shared machine changes."""
        single = {f"1 x {length}": partial(self._note_single, length) for length in self._lengths}
        return {**single, "own texts": self._note_own, "all texts": self._note_passes, "a start": self._note_rest}

    def _note_single(self, length: int, process: RuntimeProcess) -> None:
        seconds = self._ask(process, "calls", texts=self._files[str(length)], budget=BUDGET_S)
        self._report.systems[process.mode].note(f"single_{length}", statistics.median(seconds))

    def _note_own(self, process: RuntimeProcess) -> None:
        seconds = self._ask(process, "calls", texts=self._files["singles"], budget=0)
        system = self._report.systems[process.mode]
        system.note("single_own", statistics.median(seconds))
        system.note("single_own_p95", float(np.percentile(seconds, 95)))

    def _note_passes(self, process: RuntimeProcess) -> None:
        for order in ORDERS[:1] if process.mode.is_ours else ORDERS:
            seconds = self._ask(process, "pass", texts=self._files["texts"], order=order)
            self._report.systems[process.mode].note(f"pass_{order}", *seconds)

    def _note_rest(self, process: RuntimeProcess) -> None:
        system = self._report.systems[process.mode]
        system.figures["memory"] = [process.ask("memory")["bytes"]]  # the most so far, that of earlier rounds included
        if len(system.figures.get("cold_start", ())) < COLD_STARTS:
            system.note("cold_start", self._cold_start(process.mode))

    def _cold_start(self, mode: Mode) -> float:
        start = time.perf_counter()
        with RuntimeProcess(self._launch, mode) as process:
            process.wait_until_ready()
            process.ask("vectors", texts=self._files[str(self._lengths[0])], out=self._launch.work / "first.npy")
            return time.perf_counter() - start
