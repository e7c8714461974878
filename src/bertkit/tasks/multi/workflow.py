"""Several tasks trained together: each head does what its own kind of task does, and a step is of one head."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from bertkit.config.any_config import AnyConfig
from bertkit.config.bert_config import BertConfig
from bertkit.config.reading_settings import RUN_SETTINGS, ReadingSettings
from bertkit.engine.backend import Check, Precision
from bertkit.engine.inference_engine import stop_nothing
from bertkit.errors import ConfigError, InputError
from bertkit.metrics.intervals import Drawn, Draws
from bertkit.system.console import aligned
from bertkit.system.device import Device
from bertkit.system.json_files import write_json
from bertkit.system.model_sources import HEADS
from bertkit.tasks.examples import Examples, Halves, Row, Split
from bertkit.tasks.multi.features import HeadRows, head_sampler
from bertkit.tasks.multi.task import MEAN, HeadExample, MultiTask
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.registry import task_to_dict
from bertkit.tasks.report import DataReport
from bertkit.tasks.run_rows import sets_of
from bertkit.tasks.task_settings import TaskSettings
from bertkit.tasks.workflow import AnyWorkflow, Card, Decision, Predicted, SettingsT, Steps, Workflow, workflow_of
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

if TYPE_CHECKING:
    from bertkit.model.shared_encoder import SharedEncoder

#: What each head says of its rows, by name; the engine of each head, likewise.
Outputs = Mapping[str, Any]
HeadsPredicted = Predicted[HeadExample, HeadRows, Outputs]


class MultiWorkflow(Workflow[HeadExample, HeadRows, Outputs]):
    """Heads of :class:`bertkit.tasks.multi.task.MultiTask`. Examples and rows are numbered one head after the other."""

    task: MultiTask
    model_class = "BertModel"
    compares_rows = False
    classifier_rate = 5.0  # each head gets few steps; see docs/decisions/0192-several-heads-on-one-encoder.md

    def __init__(self, task: MultiTask, data: Mapping[str, str | Path] | None = None) -> None:
        """``data``: of each head, where it is not a file that the task names."""
        super().__init__(task)
        self.data: Mapping[str, str | Path] = data or task.data
        self.heads: dict[str, AnyWorkflow] = {name: workflow_of(each) for name, each in task.tasks.items()}
        self.default_max_length = max(head.default_max_length for head in self.heads.values())

    def own_settings(self, settings: ReadingSettings) -> Collection[str]:
        return {name for head in self.heads.values() for name in head.own_settings(settings)}

    def splits(self, data: str | Path) -> Mapping[Split, Path]:
        each = [head.splits(self.data[name]) for name, head in self.heads.items()]
        return {split: path for split, path in each[0].items() if all(split in found for found in each)}

    def read(self, data: str | Path, split: Split, *, on_error: OnError = "raise") -> Examples[HeadExample]:
        """The examples of all heads, from their own data, whatever ``data`` is."""
        return _joined(
            {name: head.read(self.data[name], split, on_error=on_error) for name, head in self.heads.items()}
        )

    def read_file(self, path: Path, split: Split, *, on_error: OnError = "raise") -> Examples[HeadExample]:
        raise InputError(
            f"{path}: the heads of a run have files of their own kinds; for texts use 'bertkit analyze', or give the "
            f"folder of one head, RUN/{HEADS}/NAME, as the model"
        )

    def hold_out(self, train: Examples[HeadExample], share: float, seed: int) -> Halves[HeadExample]:
        """Of heads without a dev file; the others have theirs."""
        kept, held = {}, {}
        for name, rows in _by_head(train).items():
            head, data = self.heads[name], self.data[name]
            own = Examples(rows, train.path, train.split)
            if "dev" in head.splits(data):
                kept[name], held[name] = own, head.read(data, "dev")
            else:
                kept[name], held[name] = head.hold_out(own, share, seed)
        return _joined(kept), _joined(held)

    def sample(self, train: Examples[HeadExample], num_rows: int | None, seed: int) -> Examples[HeadExample]:
        """At most ``num_rows`` examples of each head."""
        parts = _by_head(train).items()
        own = {name: self.heads[name].sample(Examples(rows), num_rows, seed) for name, rows in parts}
        return Examples(_joined(own), train.path, train.split, train.skipped)

    def content(self, example: HeadExample) -> object:
        return example.head, self.heads[example.head].content(example.example)

    def has_labels(self, examples: Sequence[HeadExample]) -> bool:
        return all(self.heads[name].has_labels(rows) for name, rows in _by_head(examples).items())

    def train_fault(self, train: Examples[HeadExample]) -> str:
        found = _by_head(train)
        faults = [f"head {name} has no training rows left" for name in self.heads if name not in found]
        each = ((name, self.heads[name].train_fault(Examples(rows))) for name, rows in found.items())
        return "; ".join([*faults, *(f"head {name}: {fault}" for name, fault in each if fault)])

    def texts_of(self, example: HeadExample) -> Sequence[str]:
        return self.heads[example.head].texts_of(example.example)

    def report(
        self, splits: Mapping[str, Examples[HeadExample]], encoded: Mapping[str, HeadRows], settings: ReadingSettings
    ) -> DataReport:
        rows = {split: _by_head(examples) for split, examples in splits.items()}
        found = {}
        for name, head in self.heads.items():
            own = {split: Examples(each[name], None, split) for split, each in rows.items()}
            parts = {split: each.parts[name] for split, each in encoded.items()}
            found[name] = head.report(own, parts, self.settings_of(name, settings))
        return DataReport(
            self.task.name,
            {f"{name}, {split}": facts for name, each in found.items() for split, facts in each.splits.items()},
            {"dev": sum(each.overlap.get("dev", 0) for each in found.values())},
            tuple(f"{name}: {leak}" for name, each in found.items() for leak in each.leaks),
            tuple(f"{name}: {note}" for name, each in found.items() for note in each.notes),
        )

    def settings_of(self, name: str, settings: SettingsT) -> SettingsT:
        """The settings as a head takes them: without those that are for other kinds of tasks."""
        return self.heads[name].leave_out(settings)

    def encode(
        self,
        examples: Sequence[HeadExample],
        tokenizer: PreTrainedTokenizer,
        settings: ReadingSettings,
        *,
        labelled: bool,
    ) -> HeadRows:
        found = _by_head(examples).items()
        return HeadRows(
            {
                name: self.heads[name].encode(rows, tokenizer, self.settings_of(name, settings), labelled=labelled)
                for name, rows in found
            }
        )

    def steps(self, train: HeadRows, size: int, seed: int, settings: ReadingSettings) -> Steps | None:
        return head_sampler([len(part) for part in train.parts.values()], size, self.task.alpha, seed)

    def collate(self, encoded: HeadRows, rows: Sequence[int]) -> Any:
        from bertkit.model.shared_encoder import HeadBatch

        name, own = encoded.locate(rows)
        return HeadBatch(name, self.heads[name].collate(encoded.parts[name], own))  # type: ignore[arg-type]

    def network(self, shape: AnyConfig) -> Any:
        """A class whose default settings suit most heads."""
        from bertkit.model.models import BertForTokenClassification

        return BertForTokenClassification

    def start_shape(self, start: Path, settings: ReadingSettings) -> AnyConfig:
        file = self.read_shape(start)
        if not isinstance(file, BertConfig):
            raise ConfigError(f"{start} is a {file.model_type}; heads of several tasks can only share an encoder")
        if getattr(settings, "lora", None):
            raise ConfigError("lora trains one task at a time; train the encoder as a whole, or freeze it")
        return file

    def new_model(self, start: str | Path, *, seed: int, device: Device, settings: ReadingSettings) -> SharedEncoder:
        from bertkit.model.shared_encoder import SharedEncoder

        return SharedEncoder(
            {
                name: head.new_model(start, seed=seed, device=device, settings=self.settings_of(name, settings))
                for name, head in self.heads.items()
            }
        )

    def set_up(self, model: Any, train: HeadRows, settings: ReadingSettings) -> None:
        for name, head in self.heads.items():
            rows, own = train.parts[name], self.settings_of(name, settings)
            head.set_up(model[name], rows, own)
            if (answer := head.constant_answer(rows, own)) is not None:
                model.start_head(name, answer)

    def loss_floor(self, train: HeadRows, settings: ReadingSettings) -> None:
        """None: of a sum of losses one head may have learned nothing, and another all."""

    def scoring_engine(self, model: Any) -> Any:
        return {name: head.scoring_engine(model[name]) for name, head in self.heads.items()}

    def open_engine(self, path: Path, *, device: Device, precision: Precision, threads: int | None) -> Any:
        return {
            name: head.open_engine(path / HEADS / name, device=device, precision=precision, threads=threads)
            for name, head in self.heads.items()
        }

    def check_model(self, model: Any, name: str) -> None:
        for each, head in self.heads.items():
            head.check_model(model[each], f"{name}, head {each}")

    def outputs(self, engine: Any, encoded: HeadRows, *, check: Check = stop_nothing, label: str) -> Outputs:
        return {
            name: self.heads[name].outputs(engine[name], part, check=check, label=f"{label}, {name}")
            for name, part in encoded.parts.items()
        }

    def decide(self, given: HeadsPredicted, settings: ReadingSettings) -> Row:
        return {name: head.decide(own, self.settings_of(name, settings)) for name, head, own in self._parts(given)}

    def write_decision(self, folder: Path, decision: Decision, settings: ReadingSettings) -> None:
        """Save the decision of all heads, and in each head's folder what makes it a run of its own."""
        super().write_decision(folder, decision, settings)
        for name, head in self.heads.items():
            own = self.settings_of(name, settings)
            reading = {key: value for key, value in own.model_dump().items() if key in TaskSettings.model_fields}
            own_folder, chosen = folder / HEADS / name, decision.get(name)
            head.write_decision(own_folder, chosen if isinstance(chosen, Mapping) else {}, own)
            write_json(own_folder / RUN_SETTINGS, {"task": task_to_dict(head.task), "config": reading})

    def notes_on(self, decision: Decision) -> list[str]:
        found = ((name, head, decision.get(name)) for name, head in self.heads.items())
        return [
            f"{name}: {note}" for name, head, own in found if isinstance(own, Mapping) for note in head.notes_on(own)
        ]

    def score(self, given: HeadsPredicted) -> dict[str, float]:
        each = {name: head.score(own) for name, head, own in self._parts(given)}
        mean = fmean(scores[self.heads[name].task.main_metric] for name, scores in each.items())
        found = {
            f"{name}/{metric}": value for name, own in each.items() for metric, value in own.items() if metric != "loss"
        }
        losses = (
            {"loss": sum(own["loss"] for own in each.values())} if all("loss" in own for own in each.values()) else {}
        )
        return {MEAN: mean, **found, **losses}

    def main_metric_of(self, given: HeadsPredicted, draws: Draws) -> Drawn | None:
        """The mean over the heads, of each as many draws of its own examples."""
        each = [
            head.main_metric_of(own, sets_of(head, own.examples, len(draws)).draws)
            for _, head, own in self._parts(given)
        ]
        known = [values for values in each if values is not None]
        return np.mean(known, axis=0) if len(known) == len(each) else None

    def prediction_rows(self, given: HeadsPredicted) -> list[Row]:
        return [{"head": name, **row} for name, head, own in self._parts(given) for row in head.prediction_rows(own)]

    def diagnose(self, given: HeadsPredicted) -> list[str]:
        return [f"{name}: {line}" for name, head, own in self._parts(given) for line in head.diagnose(own)]

    def table(self, given: HeadsPredicted) -> str:
        each = [(name, head.task.main_metric, head.score(own)) for name, head, own in self._parts(given)]
        return "\n".join(aligned([(name, metric, f"{scores[metric]:.4f}") for name, metric, scores in each]))

    def files(self, given: HeadsPredicted, split: str) -> dict[str, str]:
        own = {
            f"{name}-{file}": text
            for name, head, part in self._parts(given)
            for file, text in head.files(part, split).items()
        }
        if not self.has_labels(given.examples):
            return own
        return {**own, f"heads-{split}.json": json.dumps(self._facts(given), indent=2, ensure_ascii=False) + "\n"}

    def baseline(self, train: Examples[HeadExample], dev: Examples[HeadExample]) -> Row | None:
        rows, right = _by_head(train), _by_head(dev)
        metrics: dict[str, Any] = {}
        for name, head in self.heads.items():
            found = head.baseline(Examples(rows[name]), Examples(right[name]))
            if found is not None and isinstance(own := found["metrics"], Mapping):
                metrics |= {f"{name}/{metric}": value for metric, value in own.items()}
        mains = [metrics.get(f"{name}/{head.task.main_metric}") for name, head in self.heads.items()]
        known = [value for value in mains if isinstance(value, float)]
        mean = {MEAN: fmean(known)} if len(known) == len(mains) else {}
        return {"model": "the baseline of each head's kind of task", "name": "baseline", "metrics": {**mean, **metrics}}

    def card(self) -> Card:
        said = "; ".join(f"`{name}`: {head.card().predicts}" for name, head in self.heads.items())
        return Card(
            pipeline="feature-extraction",
            predicts=f"by several heads on one encoder: {said}",
            call='\nfrom bertkit import analyze\n\nanalyze(["a text"], model=pipe.folder)  # all heads at once',
            limits=f"Inputs are read up to {{max_length}} word pieces. Each `{HEADS}/NAME` is a model of its own.",
        )

    def facts(self, settings: ReadingSettings) -> Row:
        return {
            "what_it_predicts": "several heads",
            "sampling_alpha": self.task.alpha,
            "classifier_rate": self.classifier_rate,
            "heads": {name: head.facts(self.settings_of(name, settings)) for name, head in self.heads.items()},
        }

    def _parts(self, given: HeadsPredicted) -> Iterator[tuple[str, AnyWorkflow, Predicted[Any, Any, Any]]]:
        for name, rows in _by_head(given.examples).items():
            chosen = given.decision.get(name)
            decision = chosen if isinstance(chosen, Mapping) else {}
            yield name, self.heads[name], Predicted(rows, given.encoded.parts[name], given.outputs[name], decision)

    def _facts(self, given: HeadsPredicted) -> dict[str, dict[str, Any]]:
        found = {}
        for name, head, own in self._parts(given):
            sets = sets_of(head, own.examples)
            found[name] = {
                "task": head.task.name,
                "rows": len(own.examples),
                "main_metric": head.task.main_metric,
                "scores": head.score(own),
                "interval": sets.interval(head.main_metric_of(own, sets.draws), head.row_bounds()),
            }
        return found


def _joined(parts: Mapping[str, Examples[Any]]) -> Examples[HeadExample]:
    rows = [HeadExample(name, example) for name, examples in parts.items() for example in examples]
    first = next(iter(parts.values()))
    return Examples(rows, first.path, first.split, [row for each in parts.values() for row in each.skipped])


def _by_head(examples: Sequence[HeadExample]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for each in examples:
        found.setdefault(each.head, []).append(each.example)
    return found
