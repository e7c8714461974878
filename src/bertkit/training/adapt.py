"""Adapt a BERT to a task's own text, then fine-tune: continued masked-LM training, reported with and without.

Gururangan et al. 2020, "Don't Stop Pretraining": a little more masked-LM training on the texts of a task, without their
labels, helps most where labels are few or the language is special. The folder::

    OUT/
        adapt.json     settings, text and both scores; written at the start, completed at the end
        corpus.jsonl   the training texts, one per line; never those of dev or test
        store/         the same as tokens
        adapted/       the masked-LM run; adapted/model is the adapted model
        with/          the fine-tuning run from the adapted model: load OUT/with like any checkpoint
        without/       the same run from the original model

The same command continues an interrupted run.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.config.any_config import is_encoder_decoder
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import checkpoint_folder, config_path
from bertkit.data.corpus.store_folders import MANIFEST
from bertkit.data.store.prepare import prepare
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import CheckpointError, ConfigError, counted
from bertkit.inference.protocol import model_hash
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import aligned, say
from bertkit.system.device import Device, find_device
from bertkit.system.json_files import parsed, printable, read_json
from bertkit.system.model_sources import resolve
from bertkit.system.rendered import Rendered
from bertkit.system.untrusted_files import Json
from bertkit.tasks.own_files import task_of
from bertkit.tasks.registry import Task, task_to_dict
from bertkit.tasks.run_rows import read_rows
from bertkit.tasks.workflow import workflow_of
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.training.adapt_settings import AdaptConfig
from bertkit.training.finetuning.finetune import finetune, with_precision
from bertkit.training.finetuning.finetune_results import FinetuneResult, scores_of
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.pretraining.pretrain import pretrain
from bertkit.training.trainer.run_folder import CHECKPOINTS, FORMAT_VERSION, RunFolder

CORPUS, STORE, ADAPTED, WITH, WITHOUT = "corpus.jsonl", "store", "adapted", "with", "without"
#: Up to this size, tokenizing the text in one process is faster than starting several.
ONE_PROCESS_BYTES = 5_000_000


@dataclass(frozen=True, slots=True)
class AdaptResult(Rendered):
    """The outcome of adapting: the fine-tuning runs from the adapted and, if asked for, from the original model."""

    folder: Path
    adapted: FinetuneResult
    plain: FinetuneResult | None
    text: Mapping[str, Any]

    def gain(self, metric: str) -> float | None:
        """How much higher the mean score is with than without adapting; None if there is no run without."""
        return None if self.plain is None else self.adapted.mean[metric] - self.plain.mean[metric]

    def to_dict(self) -> dict[str, Json]:
        """Plain data for JSON."""
        scores = scores_of(self.adapted, self.plain)
        return {"task": self.adapted.task, "main_metric": self.adapted.main_metric, **scores, "text": dict(self.text)}

    def render(self) -> str:
        """Both scores side by side, one line per metric, and what was trained on how much text."""
        rows = [
            ("metric", "adapted", "not adapted", "gain", self.adapted.baseline_name if self.adapted.baseline else "")
        ]
        for name, score, base in self.adapted.score_rows():
            plain = "not run" if self.plain is None else self.plain.score_line(name)
            gain = self.gain(name)
            rows.append((name, score, plain, "" if gain is None else f"{gain:+.4f}", base))
        text = self.text
        files = "" if not text["files"] else " and a file" if text["files"] == 1 else f" and {text['files']:,} files"
        return "\n".join(
            [
                f"{self.adapted.task} (dev)",
                *(f"  {line}" for line in aligned(rows)),
                f"  adapted on {counted(text['texts'], 'training text')}{files} "
                f"({counted(text['tokens'], 'token')}) in {counted(text['steps'], 'step')}; "
                f"masked-LM loss {text['loss']:.3f}, unigram entropy {text['unigram_entropy']:.3f}",
                f"  {printable(self.folder / WITH)}",
            ]
        )


class AdaptFolder(RunFolder):
    """The folder of :func:`adapt`, which always continues what is there."""

    settings_file, states, how_to_resume = "adapt.json", f"{ADAPTED}/{CHECKPOINTS}", "Run the same command to continue"

    def check(self, settings: Mapping[str, Any], *, resume: bool = True, free: Collection[str] = ()) -> None:
        """As :meth:`RunFolder.check`; the number of seeds may grow."""
        path = self.path / self.settings_file
        known = parsed(read_json(path, dict).get("config"), dict, f"{path}: config") if path.exists() else {}
        more = settings["config"]["seeds"] >= known.get("seeds", 0)
        super().check(settings, resume=resume, free={*free, "result", *(["seeds"] if more else [])})

    def _completed(self, theirs: dict[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
        defaults = {
            "config": FinetuneConfig(precision="fp32").model_dump(),
            "adapt": AdaptConfig().model_dump(exclude={"compare"}),
        }
        return {"format_version": FORMAT_VERSION, **theirs} | {
            name: {**values, **parsed(theirs.get(name), dict, f"{self.path / self.settings_file}: {name}")}
            for name, values in defaults.items()
        }

    def _has_steps(self) -> bool:
        return (self.path / CORPUS).exists()  # the text that was prepared depends on the settings, too


def adapt(
    task: str | Task,
    data: str | Path,
    model: str | Path,
    out: str | Path,
    config: FinetuneConfig | None = None,
    settings: AdaptConfig | None = None,
    *,
    texts: Sequence[str | Path] = (),
    device: Device = None,
) -> AdaptResult:
    """Train the masked language model on a task's training texts, then fine-tune, with and without.

    Args:
        task: a name, or a task of any kind that has texts: texts, sentences, contexts with their questions; for
            multiple choice only the context, because the correct choice next to it would reveal the label.
        data: as in :func:`finetune`. Rows that become dev are not read here.
        model: start checkpoint. One without a masked-LM head gets a new one, which needs more steps to be useful.
        out: the folder; new, or that of the same call, perhaps with fewer seeds, which is continued.
        config: settings of both fine-tuning runs.
        settings: settings of the masked-LM training.
        texts: further files of unlabelled text of the same kind, as in ``bertkit prepare``.
        device: None is the CPU.
    """
    task = task_of(task, data) if isinstance(task, str) else task
    config, settings, run = config or FinetuneConfig(), settings or AdaptConfig(), AdaptFolder(out)
    place = str(find_device(device, "cpu"))
    start = resolve(model)
    config = with_precision(config, start, run, place)
    workflow_of(task).check_settings(config)
    facts: dict[str, Json] = {
        "task": task_to_dict(task),
        "data": printable(data),
        "model_sha256": model_hash(start),
        "texts": [printable(path) for path in texts],
        "config": config.model_dump(),
        "adapt": settings.model_dump(exclude={"compare"}),
    }
    _check_encoder(config_path(start))
    with run.claimed():
        run.check(facts)
        run.begin(facts)
        store, num_texts = _store(task, data, config, start, run.path, texts)
        num_tokens = store.manifest.counts.num_tokens
        longest = BertConfig.from_json_file(config_path(start)).max_input_length
        masked_lm = settings.pretraining(num_tokens, seed=config.seed, longest=longest)
        masked_lm = masked_lm.replace(precision=config.precision)
        assert masked_lm.max_steps is not None
        passes = masked_lm.max_steps * masked_lm.batch_size * (masked_lm.max_seq_length - 2) / num_tokens
        steps = counted(masked_lm.max_steps, "step")
        say(f"adapting to {num_tokens:,} tokens of the task's text: {steps}, {passes:.1f} passes")
        trained = pretrain(store, run.path / ADAPTED, masked_lm, model=str(start), device=place)
        adapted = _finetune(task, data, trained.model, run.path / WITH, config, place)
        plain = _finetune(task, data, model, run.path / WITHOUT, config, place) if settings.compare else None
        text = {
            "texts": num_texts,
            "files": len(texts),
            "tokens": num_tokens,
            "steps": trained.progression.step,
            "seconds": round(trained.progression.seconds, 1),
            "loss": trained.progression.epochs[-1]["train_loss"],
            "unigram_entropy": trained.unigram_entropy,
            "new_parts": list(trained.new_parts),
        }
        result = AdaptResult(run.path, adapted, plain, text)
        run.begin({**facts, "result": result.to_dict()})
    return result


def _check_encoder(config_file: Path) -> None:
    if is_encoder_decoder(config_file):
        folder = config_file.parent
        raise ConfigError(
            f"{folder} is an encoder-decoder, and 'bertkit adapt' trains encoders on masked words. Let it restore your "
            f"texts first, then fine-tune: bertkit prepare TEXTS --tokenizer {folder} --out STORE; bertkit pretrain "
            f"STORE --model {folder} --out RUN; bertkit finetune text2text --model RUN/model --data DATA --out OUT"
        )


def _store(
    task: Task, data: str | Path, config: FinetuneConfig, start: Path, folder: Path, more: Sequence[str | Path]
) -> tuple[TokenStore, int]:
    workflow = workflow_of(task)
    whole = config.model_copy(update={"max_train_rows": None})  # labels are cut, not texts
    rows = read_rows(workflow, data, whole, cross_validated=config.few_shot)
    found = list(dict.fromkeys(text for example in rows.train for text in workflow.texts_of(example)))
    if not found:
        raise ConfigError(f"task {task.name} has no texts that a masked language model could be trained on")
    corpus, manifest = folder / CORPUS, folder / STORE / MANIFEST
    lines = "".join(f"{json.dumps({'text': text}, ensure_ascii=False)}\n" for text in found)
    if not corpus.exists() or corpus.read_text(encoding="utf-8") != lines:
        if manifest.exists():
            raise CheckpointError(f"{folder}: the data has changed since its text was prepared; choose another --out")
        write_atomically(corpus, lines)
    files = [corpus, *map(Path, more)]
    tokenizer = AutoTokenizer.from_pretrained(checkpoint_folder(start))
    workers = 1 if sum(path.stat().st_size for path in files if path.is_file()) < ONE_PROCESS_BYTES else None
    if not manifest.exists():
        prepare(files, tokenizer, folder / STORE, workers=workers)
    return TokenStore(folder / STORE), len(found)


def _finetune(
    task: Task, data: str | Path, model: str | Path, out: Path, config: FinetuneConfig, device: str
) -> FinetuneResult:
    say(f"fine-tuning {'the adapted model' if out.name == WITH else 'the original model'}")
    advice = AdaptFolder.how_to_resume
    return finetune(task, data, model, out, config, resume=out.exists(), device=device, how_to_resume=advice)
