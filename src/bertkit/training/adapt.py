"""Adapt a BERT to a task's own text, then fine-tune: continued masked-LM training, reported with and without.

Gururangan et al. 2020, "Don't Stop Pretraining": a little more masked-LM training on the texts of a task, whose labels
it does not need, is the largest known gain where labels are few or the language of the texts is special. The folder::

    OUT/
        adapt.json     settings, text and both scores; written at the start, completed at the end
        corpus.jsonl   the training texts, one a line; never those of dev or test
        store/         the same as tokens
        adapted/       the masked-LM run; adapted/model is the adapted model
        with/          the fine-tuning run that begins with it: load OUT/with like any checkpoint
        without/       the same run from the model as it was

The same command goes on where it was stopped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.checkpoints.huggingface import config_path
from bertkit.config.bert_config import BertConfig
from bertkit.data.store.prepare import prepare
from bertkit.data.store.store_manifest import MANIFEST
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import CheckpointError, ConfigError
from bertkit.inference.protocol import model_hash
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import say
from bertkit.system.json_files import read_json, write_json
from bertkit.system.model_sources import resolve
from bertkit.tasks import task_of
from bertkit.tasks.registry import Task, task_to_dict
from bertkit.tasks.run_rows import read_rows
from bertkit.tasks.workflow import workflow_of
from bertkit.tokenization import AutoTokenizer
from bertkit.training.adapt_settings import AdaptConfig
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_results import FinetuneResult
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.pretraining.pretrain import PretrainResult, pretrain

SETTINGS = "adapt.json"
CORPUS, STORE, ADAPTED, WITH, WITHOUT = "corpus.jsonl", "store", "adapted", "with", "without"
#: Below this much text one process tokenises faster than several can be started.
ONE_PROCESS_BYTES = 5_000_000


@dataclass(frozen=True, slots=True)
class AdaptResult:
    """What adapting brought.

    folder: see the module.
    adapted: the fine-tuning run that began with the adapted model.
    plain: the one that began with the model as it was; None where it was not asked for.
    text: texts, tokens, optimizer steps and unigram entropy of the masked-LM training, and its last training loss.
    """

    folder: Path
    adapted: FinetuneResult
    plain: FinetuneResult | None
    text: Mapping[str, Any]

    def gain(self, metric: str) -> float | None:
        """How much higher the mean score is with than without; None where there is no run without."""
        return None if self.plain is None else self.adapted.mean[metric] - self.plain.mean[metric]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        runs = {"with": self.adapted, "without": self.plain}
        told = {
            name: {"mean": run.mean, "sd": run.sd, "seeds": [seed.seed for seed in run.seeds]}
            for name, run in runs.items()
            if run is not None
        }
        return {"task": self.adapted.task, "main_metric": self.adapted.main_metric, **told, "text": dict(self.text)}

    def render(self) -> str:
        """Both scores side by side, each metric a line, and what was trained on how much text."""
        head = ("metric", "adapted", "as it was", "gain", self.adapted.baseline_name if self.adapted.baseline else "")
        rows = [head, *(self._row(name) for name in self.adapted.scores if name != "loss")]
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        lines = [f"{self.adapted.task} (dev)"]
        lines += ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        text = self.text
        lines.append(
            f"  adapted on {text['texts']:,} texts ({text['tokens']:,} tokens) in {text['steps']:,} steps; masked-LM "
            f"loss {text['loss']:.3f}, unigram entropy {text['unigram_entropy']:.3f}"
        )
        lines.append(f"  {self.folder / WITH}")
        return "\n".join(line.rstrip() for line in lines)

    def _row(self, metric: str) -> tuple[str, str, str, str, str]:
        gain = self.gain(metric)
        baseline = (self.adapted.baseline or {}).get("metrics", {})
        return (
            metric,
            self.adapted.score_line(metric),
            self.plain.score_line(metric) if self.plain is not None else "not run",
            "" if gain is None else f"{gain:+.4f}",
            f"{baseline[metric]:.4f}" if metric in baseline else "",
        )


def adapt(
    task: str | Task,
    data: str | Path,
    model: str | Path,
    out: str | Path,
    config: FinetuneConfig | None = None,
    settings: AdaptConfig | None = None,
    *,
    texts: Sequence[str | Path] = (),
    device: str | None = None,
    revision: str | None = None,
) -> AdaptResult:
    """Train the masked language model on a task's training texts, then fine-tune, with and without.

    Args:
        task: a name or a task of any kind that has texts: texts, sentences, contexts with their questions; of multiple
            choice the context alone, because the right choice beside it would tell the label.
        data: as in :func:`bertkit.training.finetuning.finetune.finetune`. Rows that become dev are not read here.
        model: start checkpoint. One without a masked-LM head gets a new one, which needs more steps to be of use.
        out: the folder; new, or that of the same call, perhaps with fewer seeds, which goes on.
        config: settings of both fine-tuning runs.
        settings: settings of the masked-LM training.
        texts: further files of unlabelled text of the same kind, as in ``bertkit prepare``.
        device: ``"cpu"`` (default) or ``"cuda"``.
        revision: branch, tag or commit of a Hub checkpoint.

    Raises:
        ConfigError: ``out`` holds something else; a kind of task without text.
        Everything that preparing text, pre-training and fine-tuning raise.
    """
    task = task_of(task, data) if isinstance(task, str) else task
    config, settings, folder = config or FinetuneConfig(), settings or AdaptConfig(), Path(out).expanduser()
    workflow_of(task).check_settings(config)
    start = resolve(model, revision=revision)
    _begin(
        folder,
        {
            "task": task_to_dict(task),
            "data": str(data),
            "model_sha256": model_hash(start),
            "texts": [str(path) for path in texts],
            "config": config.model_dump(),
            "adapt": settings.model_dump(exclude={"compare"}),
        },
    )
    store, num_texts = _store(task, data, config, start, folder, texts)
    trained = _train(store, folder, start, config, settings, device)
    adapted = _finetune(task, data, trained.model, folder / WITH, config, device)
    plain = _finetune(task, data, start, folder / WITHOUT, config, device) if settings.compare else None
    last = trained.progression.epochs[-1]["train_loss"]
    told = {
        "texts": num_texts,
        "tokens": store.manifest.counts.num_tokens,
        "steps": trained.progression.step,
        "seconds": round(trained.progression.seconds, 1),
        "loss": last,
        "unigram_entropy": trained.unigram_entropy,
        "new_parts": list(trained.new_parts),
    }
    result = AdaptResult(folder, adapted, plain, told)
    write_json(folder / SETTINGS, {**read_json(folder / SETTINGS, dict), "result": result.to_dict()})
    return result


def _begin(folder: Path, settings: dict[str, Any]) -> None:
    """See that the folder is new or holds the same work, perhaps with fewer seeds, and write down what the work is.

    Raises:
        ConfigError: it holds something else.
        CheckpointError: it holds the same kind of work with other settings.
    """
    path = folder / SETTINGS
    plain = json.loads(json.dumps(settings))
    if path.exists():
        before = read_json(path, dict)
        result = before.pop("result", None)
        more = plain["config"]["seeds"] >= before.get("config", {}).get("seeds", 0)
        differ = sorted(_differing(before, plain) - ({"config.seeds"} if more else set()))
        if differ:
            raise CheckpointError(
                f"{folder} was begun with other settings ({', '.join(differ)}); repeat them to go on, or choose "
                "another --out"
            )
        write_json(path, plain if result is None else {**plain, "result": result})
        return
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty and was not begun by adapt: choose a new folder for --out")
    write_json(path, plain)


def _differing(before: Mapping[str, Any], now: Mapping[str, Any], within: str = "") -> set[str]:
    """Names of the settings that differ; of a group of settings, those in it."""
    told = set()
    for key in before.keys() | now.keys():
        was, new = before.get(key), now.get(key)
        if isinstance(was, dict) and isinstance(new, dict):
            told |= _differing(was, new, f"{within}{key}.")
        elif was != new:
            told.add(f"{within}{key}")
    return told


def _store(
    task: Task, data: str | Path, config: FinetuneConfig, start: Path, folder: Path, more: Sequence[str | Path]
) -> tuple[TokenStore, int]:
    """The training texts as a token store, and how many there are."""
    workflow = workflow_of(task)
    rows = read_rows(workflow, data, config.model_copy(update={"max_train_rows": None}))  # labels are cut, not texts
    found = list(dict.fromkeys(text for example in rows.train for text in workflow.texts_of(example)))
    if not found:
        raise ConfigError(f"task {task.name} has no texts that a masked language model could be trained on")
    corpus, manifest = folder / CORPUS, folder / STORE / MANIFEST
    lines = "".join(_lines(found))
    if not corpus.exists() or corpus.read_text(encoding="utf-8") != lines:
        if manifest.exists():
            raise CheckpointError(f"{folder}: the data has changed since its text was prepared; choose another --out")
        write_atomically(corpus, lines)
    files = [corpus, *map(Path, more)]
    tokenizer = AutoTokenizer.from_pretrained(start if start.is_dir() else start.parent)
    workers = 1 if sum(path.stat().st_size for path in files if path.is_file()) < ONE_PROCESS_BYTES else None
    if not manifest.exists():
        prepare(files, tokenizer, folder / STORE, workers=workers)
    return TokenStore(folder / STORE), len(found)


def _lines(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield json.dumps({"text": text}, ensure_ascii=False) + "\n"


def _train(
    store: TokenStore, folder: Path, start: Path, config: FinetuneConfig, settings: AdaptConfig, device: str | None
) -> PretrainResult:
    shape = BertConfig.from_json_file(config_path(start))
    num_tokens = store.manifest.counts.num_tokens
    told = settings.pretraining(num_tokens, seed=config.seed, longest=shape.max_input_length)
    told = told.replace(precision=config.precision)
    passes = told.max_steps * told.batch_size * (told.max_seq_length - 2) / num_tokens if told.max_steps else math.nan
    say(f"adapting to {num_tokens:,} tokens of the task's text: {told.max_steps:,} steps, {passes:.1f} passes over it")
    return pretrain(store, folder / ADAPTED, told, model=str(start), device=device or "cpu")


def _finetune(
    task: Task, data: str | Path, model: Path, out: Path, config: FinetuneConfig, device: str | None
) -> FinetuneResult:
    say(f"fine-tuning {'the adapted model' if out.name == WITH else 'the model as it was'}")
    return finetune(task, data, model, out, config, resume=out.exists(), device=device)
