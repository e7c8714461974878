"""All heads of a run on one encoder at once: ``bertkit.analyze``.

Each head answers through the pipeline of its kind, whose engine shares the encoder's passes with the others; see
:mod:`bertkit.engine.head_engines`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.checkpoints.huggingface import heads_in
from bertkit.config.decision import read_decision
from bertkit.config.reading_settings import ReadingSettings
from bertkit.engine.backend import Precision
from bertkit.engine.head_engines import SharedRows
from bertkit.engine.rows import TEXTS, draw_windows
from bertkit.errors import CheckpointError, InputError
from bertkit.inference.open_pipeline import TASKS
from bertkit.inference.pipeline_base import Pipeline, shown
from bertkit.inference.pipeline_inputs import Inputs, Shaped, Text, num_characters, read_request
from bertkit.inference.run_files import read_task
from bertkit.inference.runs import Run, open_run
from bertkit.system.atomic_files import sha256_file
from bertkit.system.device import Device
from bertkit.system.model_sources import HEAD, HEADS, resolve
from bertkit.tasks.answering import ColumnType
from bertkit.tasks.examples import Example
from bertkit.tasks.text.decoding import inputs_of
from bertkit.tasks.text.task import TextTask
from bertkit.tasks.workflow import workflow_of
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.features import Truncation

#: The outputs of all heads for a text: by the name of the head what the pipeline of its kind returns.
Analysis = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Head:
    """A head with what it is called with; ``reads_pairs``: two texts at once, not one."""

    pipe: Pipeline
    options: dict[str, Any]
    reads_pairs: bool


class Analyzer:
    """The heads of a run, ready to use on texts: made by :meth:`open`, called as :func:`analyze` is.

    heads: those that read texts and pairs. answering: the pipelines of those that answer questions about a text, which
    an analysis does not ask.
    """

    def __init__(
        self, folder: Path, shared: SharedRows, heads: dict[str, Head], answering: dict[str, Pipeline] | None = None
    ) -> None:
        self.folder, self.shared, self.heads, self.answering = folder, shared, heads, answering or {}

    @classmethod
    def open(
        cls,
        run: str | Path,
        *,
        device: Device = None,
        precision: Precision = "auto",
        threads: int | None = None,
        revision: str | None = None,
        in_memory: bool = False,
    ) -> Analyzer:
        """Load a run of ``bertkit finetune multi``; arguments and errors as for :func:`bertkit.pipeline`.

        ``in_memory``: where the C library computes, no file of the run stays mapped, so that they may change.

        Heads that answer questions are not asked: they need a question beside the text, see :func:`analyze`.

        Raises:
            CheckpointError: a folder without such heads, or a damaged one.
        """
        folder = resolve(run, revision=revision)
        tasks = {name: read_task(folder / HEADS / name) for name in heads_in(folder)}
        workflows = {name: workflow_of(task) for name, task in tasks.items() if task is not None}
        decisions = {name: read_decision(folder / HEADS / name) for name in workflows}
        options = {name: workflow.pipeline_options(decisions[name]) for name, workflow in workflows.items()}
        known = {name: own for name, own in options.items() if own is not None}
        if not known:
            raise CheckpointError(
                f"{folder} has no heads that read texts: it has {', '.join(tasks) or 'no folder heads/NAME at all'}. "
                "Train some with: bertkit finetune multi"
            )
        asked = [name for name, workflow in workflows.items() if workflow.model_class == "BertForQuestionAnswering"]
        classes = {name: workflows[name].model_class for name in (*known, *asked)}
        shared = SharedRows.load(
            folder, classes, device=device, precision=precision, threads=threads, in_memory=in_memory
        )
        tokenizer = AutoTokenizer.from_pretrained(folder)
        pipes = {}
        for name, engine in shared.engines().items():
            pipe = pipes[name] = TASKS[workflows[name].card().pipeline].load()(engine, tokenizer)
            pipe.read_folder(folder / HEADS / name)
        heads = {name: Head(pipes[name], known[name], workflows[name].reads_pairs) for name in known}
        return cls(folder, shared, heads, {name: pipes[name] for name in asked})

    def __call__(self, texts: Inputs, *, progress: bool | None = None) -> Shaped[Analysis]:
        """See :func:`analyze`."""
        request = read_request(texts, tuple_is_pair=True)

        def answers() -> Iterator[Analysis]:
            with shown(request.total, "analyze", progress) as advance:
                windows = draw_windows(request.items, TEXTS, weight=num_characters, lazy=request.shape == "lazy")
                for window in windows:
                    yield from self.answer(window)
                    advance(len(window))

        if request.shape == "lazy":
            return answers()
        found = list(answers())
        return found[0] if request.shape == "one" else found

    def answer(self, texts: Sequence[Text]) -> list[Analysis]:
        """What each head says of some texts and pairs: of those that it reads."""
        found: list[Analysis] = [{} for _ in texts]
        pairs: dict[bool, list[int]] = {True: [], False: []}
        for number, (_, second) in enumerate(texts):
            pairs[second is not None].append(number)
        with self.shared.kept():
            for name, head in self.heads.items():
                numbers = pairs[head.reads_pairs]
                asked = [texts[number] if head.reads_pairs else texts[number][0] for number in numbers]
                answers = head.pipe(asked, progress=False, **head.options) if asked else []  # type: ignore[operator]
                for number, said in zip(numbers, answers, strict=True):
                    found[number][name] = said
        for number, said in enumerate(found):
            if not said:
                raise InputError(
                    f"no head reads {'a pair of texts' if texts[number][1] is not None else 'a single text'} "
                    f"({texts[number][0]!r:.60}); the heads are {', '.join(self.heads)}"
                )
        return found


def analyze(
    texts: Inputs,
    model: str | Path | Analyzer,
    *,
    device: Device = None,
    precision: Precision = "auto",
    threads: int | None = None,
    revision: str | None = None,
    progress: bool | None = None,
) -> Shaped[Analysis]:
    """Ask all heads of a run at once; the encoder reads each text once for all of them.

    Args:
        texts: a text; a pair ``("first", "second")``; a collection or an iterable of those. Pairs are for the heads
            that were trained on pairs, single texts for the others. A head that answers questions is not asked: use
            ``pipeline("question-answering", model="RUN/heads/NAME")``.
        model: a run folder of ``bertkit finetune multi``, or an :class:`Analyzer`, which is loaded once.
        device: of a run folder, as for :func:`bertkit.pipeline`.
        precision: likewise.
        threads: likewise.
        revision: likewise.
        progress: as for pipelines.

    Returns:
        Of each text a dictionary: by the name of the head what the pipeline of its kind returns. Of labels that is the
        label that the model decides for, or a list of those that apply; of tags the entities; texts that are too long
        are read as in training. A list for a collection, a lazy iterator for any other iterable. Where a head cuts
        texts at another length than the others, those that are longer are read once more for it.

    Raises:
        CheckpointError: no run with heads.
        InputError: something that is no text, or that no head reads.
    """
    if isinstance(model, Analyzer):
        return model(texts, progress=progress)
    found = Analyzer.open(model, device=device, precision=precision, threads=threads, revision=revision)
    return found(texts, progress=progress)


def open_any_run(
    run: str | Path, *, device: Device = None, precision: Precision | None = None, threads: int | None = None
) -> Run:
    """As :func:`bertkit.inference.runs.open_run`; a run of several heads answers with all of them."""
    folder = resolve(run)
    if not (folder.is_dir() and heads_in(folder)):
        return open_run(run, device=device, precision=precision, threads=threads)
    analyzer = Analyzer.open(folder, device=device, precision=precision or "fp32", threads=threads)
    first = next(iter(analyzer.heads.values())).pipe
    return _AllHeads(
        path=folder,
        workflow=workflow_of(TextTask.of_model(first.config)),
        engine=analyzer,
        shape=first.config,
        tokenizer=first.tokenizer,
        config=ReadingSettings(max_length=max(head.pipe.max_length for head in analyzer.heads.values())),
        decision={name: sha256_file(folder / HEADS / name / HEAD) for name in analyzer.heads},
    )


_ENTITY: dict[str, ColumnType] = {
    "entity_group": "string", "score": "float64", "word": "string", "start": "int64", "end": "int64"
}  # fmt: skip


class _AllHeads(Run):
    """A run of several heads, whose answer to a text is a field for each head."""

    def answer_columns(self) -> dict[str, ColumnType]:
        found: dict[str, ColumnType] = {}
        for name, head in self.engine.heads.items():
            marks: dict[str, ColumnType] = {"truncated": "bool"} if head.options.get("truncation") else {}
            if head.options.get("top_k") == "best":
                found |= {name: "string", f"{name}_score": "float64"}
                found |= {f"{name}_{mark}": kind for mark, kind in marks.items()}
            elif "top_k" in head.options:
                found[name] = [{"label": "string", "score": "float64", **marks}]
            else:
                found[name] = [{**_ENTITY, **marks}]
        return found

    def answers(
        self, examples: Sequence[Example], *, label: str = "predicting", truncation: Truncation = "longest_first"
    ) -> list[dict[str, Any]]:
        said = self.engine.answer([(example.text, example.text_pair) for example in examples])
        return [{**named, **own} for named, own in zip(inputs_of(examples), said, strict=True)]
