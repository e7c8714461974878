"""Measure a model in bertkit's modes and on other runtimes: answers first, then rounds in turn."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from bertkit.benchmark.benchmark_report import ORDERS, BenchmarkReport, Quality, System
from bertkit.benchmark.runtime_process import Launch, RuntimeProcess, prepare
from bertkit.benchmark.runtimes import REFERENCE, Choice, Mode, choose
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
from bertkit.checkpoints.huggingface import checkpoint_folder, config_path
from bertkit.config.bert_config import BertConfig
from bertkit.engine.onnx_backend import is_export
from bertkit.errors import ConfigError, ResourceError
from bertkit.model.models import BertModel
from bertkit.ragged import Floats
from bertkit.system.atomic_files import disk_guard
from bertkit.system.console import Progress, say
from bertkit.system.interrupts import Interrupted, Interrupts
from bertkit.system.model_sources import resolve
from bertkit.system.processor import find_processor
from bertkit.tokenization import AutoTokenizer, PreTrainedTokenizer

ResultT = TypeVar("ResultT")

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


def run_benchmark(
    model: str | Path,
    *,
    texts: Sequence[str] | None = None,
    against: Sequence[str] | None = None,
    precisions: Sequence[str] | None = None,
    threads: int | None = None,
    rounds: int = 5,
    seed: int = 0,
    python: str | None = None,
) -> BenchmarkReport:
    """Measure a model's encoder on this machine's processor.

    A first Ctrl-C ends the measurement after the request that is being answered; the report then holds the finished
    part, and says so.

    Args:
        model: folder, Hub name or run folder of any encoder checkpoint, with any head; or what ``bertkit export``
            wrote, without peers.
        texts: to be measured with; None: built-in lengths and random tokens.
        against: peers, see :data:`~bertkit.benchmark.runtimes.PEERS`; None: all that are installed.
        precisions: some of auto, fp32, bf16 and int8; None: all that this processor has.
        threads: of every runtime; None: one a core.
        rounds: how often everything is measured, at least 1.
        seed: of the texts.
        python: the interpreter that has the peers; None: this one.

    Raises:
        ConfigError: an unknown peer or precision, no rounds or threads.
        CheckpointError: the model cannot be loaded.
        DataError: no text.
        MissingExtraError: a peer that was asked for is not installed.
        ResourceError: no room for the converted files, or bertkit's own process ended.
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
        against = ()
    choice = choose(against, precisions, python, processor)
    threads = threads or processor.cores
    with tempfile.TemporaryDirectory(prefix="bertkit-benchmark-") as scratch:
        work = Path(scratch)
        has_peers = not all(mode.is_ours for mode in choice.modes)
        subject = open_subject(path, texts, work, seed, for_peers=has_peers)
        report = BenchmarkReport(
            model=str(model),
            processor=processor,
            threads=threads,
            texts=subject.sample,
            versions=choice.versions,
            absent=choice.absent,
            lengths=subject.lengths,
            systems={mode: System() for mode in choice.modes},
        )
        launch = Launch(subject.source, subject.folder, work, python, sys.executable, threads)
        with _noted(report) as interrupts:
            Session(launch, subject, report, choice, interrupts).run(rounds)
    return report


@contextmanager
def _noted(report: BenchmarkReport) -> Iterator[Interrupts]:
    """Ctrl-C ends the block, and is noted in the report."""
    with Interrupts() as interrupts:
        try:
            yield interrupts
        except Interrupted as stop:
            report.interrupted = stop


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured.

    source: the model as given. folder: its encoder alone, as transformers reads it. lengths: of single texts.
    """

    source: Path
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


def open_subject(path: Path, texts: Sequence[str] | None, work: Path, seed: int, *, for_peers: bool) -> Subject:
    """What a checkpoint is measured with, and for peers its encoder as a folder in ``work``."""
    config = BertConfig.from_json_file(config_path(path))
    tokenizer = AutoTokenizer.from_pretrained(checkpoint_folder(path))
    limit = min(config.max_input_length, tokenizer.model_max_length)
    count = num_texts_for(config)
    sample = (
        make_sample(tokenizer, count, limit, seed)
        if texts is None
        else read_sample(texts, tokenizer, count, limit, seed)
    )
    folder = work / "model"
    if for_peers:
        encoder = BertModel.from_pretrained(path)
        size = COPIES_ON_DISK * 4 * encoder.num_parameters()
        with disk_guard(work, size, what="the model in the formats of the peers", advice="Set TMPDIR to a larger disk"):
            encoder.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    lengths = tuple(length for length in SINGLE_LENGTHS if length <= limit)
    return Subject(path, folder, sample, lengths or (limit,), tokenizer, seed)


class Session:
    """The processes of one measurement, and what they answered."""

    def __init__(
        self, launch: Launch, subject: Subject, report: BenchmarkReport, choice: Choice, interrupts: Interrupts
    ) -> None:
        self._launch = launch
        self._report = report
        self._modes = choice.modes
        self._interrupts = interrupts
        self._lengths = subject.lengths
        self._files = subject.save_texts(launch.work)

    def run(self, rounds: int) -> None:
        """Prepare and start all processes, check their answers, measure."""
        with ExitStack() as stack, Progress(len(self._modes) * (2 + rounds), label="benchmark", unit="steps") as bar:
            for mode in self._modes:
                bar.advance(note=f"converting for {mode}")
                self._try(mode, lambda mode=mode: prepare(self._launch, mode))  # type: ignore[misc]
            processes = {}
            for mode in self._alive():
                process = processes[mode] = stack.enter_context(RuntimeProcess(self._launch, mode))
                self._try(mode, process.wait_until_ready)
            reference = None
            for mode in self._alive():
                bar.advance(note=f"checking {mode}")
                found = self._try(mode, lambda mode=mode: self._answers(processes[mode]))  # type: ignore[misc]
                reference = found if mode == REFERENCE else reference
                if found is not None and reference is not None:
                    self._report.systems[mode].quality = Quality.of(found, reference)
            for number in range(rounds):
                modes = self._alive()
                for mode in modes if number % 2 == 0 else modes[::-1]:
                    bar.advance(note=f"round {number + 1}, {mode}")
                    self._try(mode, lambda mode=mode, n=number: self._round(processes[mode], n))  # type: ignore[misc]

    def _alive(self) -> list[Mode]:
        return [mode for mode in self._modes if self._report.systems[mode].error is None]

    def _try(self, mode: Mode, step: Callable[[], ResultT]) -> ResultT | None:
        """What a step gives, or None, noted, if the process of a peer failed; without the reference nothing goes on."""
        self._interrupts.check()
        try:
            return step()
        except ResourceError as error:
            self._interrupts.check()  # a second process group may have got the signal too
            if mode == REFERENCE:
                raise
            self._report.systems[mode].error = str(error)
            say(f"{mode} is left out: {error}")
            return None

    def _ask(self, process: RuntimeProcess, do: str, **request: object) -> list[float]:
        self._interrupts.check()
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

    def _round(self, process: RuntimeProcess, number: int) -> None:
        time.sleep(REST_S)
        system = self._report.systems[process.mode]
        for length in self._lengths:
            seconds = self._ask(process, "calls", texts=self._files[str(length)], budget=BUDGET_S)
            system.note(f"single_{length}", statistics.median(seconds))
        seconds = self._ask(process, "calls", texts=self._files["singles"], budget=0)
        system.note("single_own", statistics.median(seconds))
        system.note("single_own_p95", float(np.percentile(seconds, 95)))
        for order in ORDERS[:1] if process.mode.is_ours else ORDERS:
            system.note(f"pass_{order}", *self._ask(process, "pass", texts=self._files["texts"], order=order))
        system.note("memory", process.ask("memory")["bytes"])
        if number < COLD_STARTS:
            system.note("cold_start", self._cold_start(process.mode))

    def _cold_start(self, mode: Mode) -> float:
        """Seconds from the start of a new process to its first answer."""
        self._interrupts.check()
        start = time.perf_counter()
        with RuntimeProcess(self._launch, mode) as process:
            process.wait_until_ready()
            process.ask("vectors", texts=self._files[str(self._lengths[0])], out=self._launch.work / "first.npy")
            return time.perf_counter() - start
