"""Heads of different kinds on one encoder: trained together with it, or one after the other while it is frozen.

The run folder has the encoder once and each head beside it, see :mod:`bertkit.model.shared_encoder`, and a summary::

    RUN/heads.json               task, scores, interval and baseline of each head; written last
    RUN/heads/NAME/              a model of its own: evaluate, predict, convert, export and pipelines take it

Together, ``RUN`` is a run as any other, of which a step is of one head. Frozen, heads do not touch each other, so each
``RUN/heads/NAME`` is the run of a single task with all its files, whose encoder is taken out when it is finished.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertkit.checkpoints.adapter_folder import base_fingerprint
from bertkit.checkpoints.any_names import any_table
from bertkit.checkpoints.huggingface import find_weights, is_head
from bertkit.checkpoints.weight_files import WEIGHTS
from bertkit.config.any_config import is_encoder_decoder, read_any_config
from bertkit.config.config_file import checkpoint_folder, config_path
from bertkit.errors import ConfigError, InputError, counted
from bertkit.metrics.intervals import interval_text
from bertkit.model.auto import class_named
from bertkit.model.models import BertModel, HeadModel
from bertkit.model.shared_encoder import save_encoder, save_head
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import aligned, say
from bertkit.system.device import Device
from bertkit.system.json_files import printable, read_json, write_json
from bertkit.system.model_sources import HEADS, resolve
from bertkit.system.paths import user_path
from bertkit.system.rendered import Rendered
from bertkit.tasks.multi.task import MultiTask, check_heads
from bertkit.tasks.multi.workflow import MultiWorkflow
from bertkit.tasks.own_files import task_of
from bertkit.tasks.reading.given_rows import Data, Given, given_data
from bertkit.tasks.reading.splits import SPLIT_NAMES
from bertkit.tasks.registry import Task
from bertkit.tasks.workflow import workflow_of
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_folder import FinetuneFolder
from bertkit.training.finetuning.finetune_results import FinetuneResult
from bertkit.training.finetuning.finetune_settings import FinetuneConfig

SUMMARY = "heads.json"


@dataclass(frozen=True, slots=True)
class HeadScores:
    """Dev scores of a head; ``interval`` is that of the main metric, ``baseline`` has scores by metric, if it ran."""

    task: str
    rows: int
    main_metric: str
    scores: dict[str, float]
    interval: list[float] | None
    baseline: dict[str, float]


@dataclass(frozen=True, slots=True)
class HeadsResult(Rendered):
    """A finished run of several heads, by their names; ``encoder`` is "shared" or "frozen"."""

    folder: Path
    encoder: str
    heads: dict[str, HeadScores]

    def to_dict(self) -> dict[str, Any]:
        """The content of ``heads.json``."""
        return {"encoder": self.encoder, "heads": {name: asdict(head) for name, head in self.heads.items()}}

    def render(self) -> str:
        """A line for each head."""
        rows = [("head", "task", "dev rows", "metric", "score", "95 % interval", "baseline")]
        for name, head in self.heads.items():
            base = head.baseline.get(head.main_metric)
            rows.append(
                (
                    name,
                    head.task,
                    f"{head.rows:,}",
                    head.main_metric,
                    f"{head.scores[head.main_metric]:.4f}",
                    interval_text(head.interval),
                    "" if base is None else f"{base:.4f}",
                )
            )
        lines = [f"  {line}" for line in aligned(rows)]
        return "\n".join(
            [f"{counted(len(self.heads), 'head')} on a {self.encoder} encoder", *lines, f"  {printable(self.folder)}"]
        )


def finetune_heads(
    heads: Mapping[str, tuple[str | Task, Data]],
    model: str | Path,
    out: str | Path,
    config: FinetuneConfig | None = None,
    *,
    alpha: float = 0.5,
    resume: bool = False,
    device: Device = None,
    revision: str | None = None,
    cache: str | Path | None = "auto",
    how_to_resume: str = FinetuneFolder.how_to_resume,
) -> HeadsResult:
    """Train heads of different kinds on one encoder, and leave a run folder with the encoder once.

    With ``config.freeze_encoder`` each head is trained by itself, exactly as in a run of its task alone, and has
    settings of its own where they are left open. Otherwise the encoder is trained with all heads: a step is of one
    head, drawn in proportion to its training rows to the power of ``alpha`` (Stickland & Murray 2019 take the root),
    with that head's loss; the best epoch is that with the best mean of the heads' main metrics.

    Args:
        heads: by name the task and its data, as for :func:`bertkit.finetune`: single texts, pairs, ``ner``, ``squad``.
            Of data in memory the run folder knows no place: evaluate a head on data that you give.
        model: start checkpoint, an encoder of any family.
        out: the run folder; new, or with ``resume=True`` that of an earlier run.
        config: settings for all heads; those that a head's kind has no use for are left out of it.
        alpha: from 0 (as many steps for every head) to 1 (in proportion to rows); no meaning for a frozen encoder.
        resume: as for :func:`bertkit.finetune`; of a frozen encoder there may be more heads than before.
        device: as for :func:`bertkit.finetune`.
        revision: likewise.
        cache: likewise.
        how_to_resume: likewise.

    Raises:
        ConfigError: a task that cannot share an encoder, an encoder-decoder, LoRA.
        DataError, CheckpointError, TrainingError, Interrupted, ResourceError: as :func:`bertkit.finetune`.
    """
    config = config or FinetuneConfig()
    for name, head in heads.items():
        _check_head(name, head)
    start = resolve(model, revision=revision)
    if config.lora:
        raise ConfigError("lora trains one task at a time; train the encoder as a whole, or set freeze_encoder")
    if is_encoder_decoder(config_path(start)):
        raise ConfigError(f"{model} is an encoder-decoder; heads of several tasks can only share an encoder")
    given = {name: given_data(data, None, SPLIT_NAMES, name) for name, (_, data) in heads.items()}
    tasks = {
        name: (task_of(task, given[name]) if isinstance(task, str) else task, given[name])
        for name, (task, _) in heads.items()
    }
    check_heads({name: task for name, (task, _) in tasks.items()})
    options = {"device": device, "revision": revision, "cache": cache, "how_to_resume": how_to_resume}
    folder = user_path(out)
    if config.freeze_encoder:
        found = _one_by_one(tasks, model, start, folder, config, resume, options)
        result = HeadsResult(folder, "frozen", {name: _of_run(each) for name, each in found.items()})
        write_atomically(folder / "README.md", _card(result, printable(model)))
    else:
        task = MultiTask.of({name: (own, str(given[name])) for name, (own, _) in tasks.items()}, alpha)
        # Rows in memory have no name that says which they are.
        data = Given(HEADS) if any(isinstance(each, Given) for each in given.values()) else HEADS
        trained = finetune(
            task,
            data,
            model,
            folder,
            config,
            resume=resume,
            workflow_for=lambda own: MultiWorkflow(own, given),  # type: ignore[arg-type]
            **options,  # type: ignore[arg-type]
        )
        result = HeadsResult(folder, "shared", _of_heads(trained, task))
    write_json(folder / SUMMARY, result.to_dict())
    return result


def _check_head(name: str, given: object) -> None:
    """InputError for a head that is not a task and its data."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InputError(f"head {name} must be a task and its data, ('sst2', 'DATA'), got {type(given).__name__}")


def _one_by_one(
    tasks: Mapping[str, tuple[Task, str | Path]],
    model: str | Path,
    start: Path,
    folder: Path,
    config: FinetuneConfig,
    resume: bool,
    options: Mapping[str, Any],
) -> dict[str, FinetuneResult]:
    """Each head as a run of its own in ``heads/NAME``, without its encoder when it is finished."""
    if folder.is_dir() and not resume and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty. {options['how_to_resume']}, or choose another --out")
    found = {}
    for name, (task, data) in tasks.items():
        own, workflow = folder / HEADS / name, workflow_of(task)
        say(f"head {name}: task {task.name}")
        found[name] = finetune(
            task, data, model, own, workflow.leave_out(config), resume=resume and own.is_dir(), **options
        )
        if not (folder / WEIGHTS).is_file():
            AutoTokenizer.from_pretrained(checkpoint_folder(start)).save_pretrained(folder)
            save_encoder(BertModel.from_pretrained(start), folder)  # last: where it is, nothing is missing
        _take_out(folder, name, workflow.model_class)
    return found


def _take_out(run: Path, name: str, model_class: str) -> None:
    """Leave of a finished head's model what the encoder in ``run`` does not have."""
    folder = run / HEADS / name
    if is_head(folder):
        return
    table = any_table(read_any_config(config_path(folder)))
    own, shared = (base_fingerprint(find_weights(each).tensors, table) for each in (folder, run / WEIGHTS))
    if own != shared:
        raise ConfigError(f"the encoder of head {name} is not that in {run}: all heads start from one checkpoint")
    head = class_named(model_class).from_pretrained(folder)
    assert isinstance(head, HeadModel)
    save_head(head, run, name)
    for model in (*folder.glob("seed-*/best"), *folder.glob("seed-*/last")):
        shutil.rmtree(model, ignore_errors=True)


def _of_run(result: FinetuneResult) -> HeadScores:
    interval = None if result.interval is None else list(result.interval)
    rows = int(result.protocol["data"]["dev_rows"])
    return HeadScores(result.task, rows, result.main_metric, result.scores, interval, result.baseline_scores)


def _of_heads(result: FinetuneResult, task: MultiTask) -> dict[str, HeadScores]:
    found: dict[str, dict[str, Any]] = read_json(result.folder / f"{HEADS}-dev.json", dict)
    return {
        name: HeadScores(
            **found[name],
            baseline={
                metric.removeprefix(f"{name}/"): value
                for metric, value in result.baseline_scores.items()
                if metric.startswith(f"{name}/")
            },
        )
        for name in task.heads
    }


def _card(result: HeadsResult, start: str) -> str:
    rows = [f"- [`{name}`]({HEADS}/{name}/README.md): task {head.task}" for name, head in result.heads.items()]
    return "\n".join(
        [
            "---\nlibrary_name: bertkit\n---\n",
            f"# {counted(len(rows), 'head')} on one encoder\n",
            f"Made by `bertkit finetune multi --freeze-encoder` from `{start.rpartition('/')[2]}`.\n",
            *rows,
            "\n## Use\n",
            '```python\nfrom bertkit import analyze\n\nanalyze(["a text"], model="RUN")\n```\n',
            f"Each folder `{HEADS}/NAME` is a model of its own, with scores, protocol and limits in its card.\n",
        ]
    )
