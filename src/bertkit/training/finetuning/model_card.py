"""The model card, ``README.md`` of a run folder: what the model is, how good, how it was measured, how to use it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bertkit.errors import counted
from bertkit.metrics.class_scores import class_rows
from bertkit.metrics.intervals import interval_text
from bertkit.system.untrusted_files import Json
from bertkit.tasks.run_rows import rows_not_drawn
from bertkit.tasks.workflow import Card, Decision
from bertkit.training.finetuning.finetune_results import FinetuneResult

#: What the Hugging Face Hub calls our metrics, where it has a name of its own.
HUB_METRICS = {"macro_f1": "f1", "matthews": "matthews_correlation", "pearson": "pearsonr", "spearman": "spearmanr"}
#: What a folder of adapters is.
_ADAPTERS = (
    "This folder holds adapters and the head only; they are for the start checkpoint, which `base_model_name_or_path` "
    "in `adapter_config.json` names. `bertkit convert` makes one model of both.\n"
)


def model_card(result: FinetuneResult, card: Card, decision: Decision, pictures: Sequence[str]) -> str:
    """Markdown with the YAML front matter that the Hub reads. Every number comes from ``result``, a finished run."""
    protocol, data = result.protocol, result.protocol["data"]
    settings = [(name, _plain(value)) for name, value in _settings(protocol, decision).items()]
    held_out = ", held out of the training file" if data["dev_held_out_of_train"] else ""
    if (bad := data["bad_rows_left_out"]["dev"]) and not data.get("dev_is_train"):
        held_out += f", {counted(bad, 'bad row')} left out"
    if labels := data.get("labels_left_out", {}).get("dev"):
        held_out += f", {counted(sum(labels.values()), 'row')} left out by label"
    sections = [
        _front_matter(result, card),
        f"# {result.task}: a fine-tuned model\n",
        f"Made by `bertkit finetune {result.task}` from `{protocol['start_checkpoint']['name']}`. It predicts "
        f"{card.predicts}.\n",
        "## Scores\n",
        _table(("metric", "mean over seeds", result.baseline_name), result.score_rows(absent="not run")),
        *([f"- {result.spread_line()}"] if result.interval is not None else []),
        *(f"- {note}" for note in result.notes),
        "",
        f"Measured on {protocol['split']} ({counted(data['dev_rows'], 'row')}{held_out}). This folder has the model of "
        f"seed {result.chosen_seed}. Scores of other publications compare only under the same protocol, which "
        "`metrics.json` states in full.\n",
        *_classes(result),
        *_methods(protocol.get("few_shot")),
        *(f"![{name.removesuffix('.png')}]({name})" for name in pictures),
        "\n## How it was trained\n",
        _table(("setting", "value"), settings),
        "## Use\n",
        "```python\nfrom bertkit import pipeline\n\n"
        f'pipe = pipeline("{card.pipeline}", model="{result.shown_folder.rpartition("/")[2]}")\n{card.call}\n```\n',
        f"{card.limits.format(max_length=data['max_length'])}\n",
        *([_ADAPTERS] if "lora" in protocol else []),
        "## Limits\n",
        "It was trained and measured on one data set. For texts of another kind, time or place, measure again before "
        "relying on it. It reproduces the biases of its training texts and of its start checkpoint.\n",
    ]
    return "\n".join(sections)


def _front_matter(result: FinetuneResult, card: Card) -> str:
    """What the Hub shows and searches: https://huggingface.co/docs/hub/model-cards (JSON values are YAML, too)."""
    start, data = result.protocol["start_checkpoint"], result.protocol["data"]
    scores = {name: value for name, value in result.scores.items() if name != "loss"}
    names = list(dict.fromkeys(HUB_METRICS.get(name, name) for name in scores))
    dataset = data.get("hub_dataset")
    measured = {
        "task": {"type": card.pipeline},
        "dataset": {"name": result.task, "type": dataset or result.task, "split": result.protocol["split"]},
        "metrics": [
            {"type": HUB_METRICS.get(name, name), "name": name, "value": round(value, 6)}
            for name, value in scores.items()
        ],
    }
    fields = {
        **({"base_model": start["name"]} if start.get("from_hub") else {}),
        **({"base_model_relation": "adapter"} if start.get("from_hub") and "lora" in result.protocol else {}),
        **({"datasets": [dataset]} if dataset else {}),
        "metrics": names,
        "model-index": [{"name": result.task, "results": [measured]}],
    }
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()]
    return "\n".join(["---", "library_name: bertkit", f"pipeline_tag: {card.pipeline}", *lines, "---\n"])


def _settings(protocol: Mapping[str, Any], decision: Decision) -> dict[str, Json]:
    data = protocol["data"]
    cut = 100 * data["truncated_share"]["train"]
    bad = data["bad_rows_left_out"]["train"]
    left_out = f"{rows_not_drawn(data) + bad:,} left out"
    bad_rows = f", bad rows among them: {bad:,}" if bad else ""
    labels = data.get("labels_left_out", {}).get("train", {})
    dropped = [f"{count:,} of {label}" for label, count in labels.items()]
    asked = f"{sum(labels.values()):,}: {', '.join(dropped)}"
    chosen = {name: decision[name] for name in ("temperature", "thresholds", "null_threshold") if name in decision}
    return {
        "protocol": protocol["protocol"],
        "start checkpoint": f"{protocol['start_checkpoint']['name']} (sha256 {protocol['start_checkpoint']['sha256']})",
        "training rows": f"{data['train_rows']:,} ({left_out}{bad_rows})",
        **({"training rows left out by label": asked} if dropped else {}),
        "trained": protocol["what_is_trained"],
        "optimizer": protocol["optimizer"],
        "learning rate": protocol["learning_rate"],
        "epochs": protocol["epochs"],
        **({"steps": protocol["max_steps"]} if "max_steps" in protocol else {}),
        "patience": protocol["patience"] or "none: all epochs",
        "batch size": protocol["batch_size"],
        "class weights": protocol["class_weights"],
        "longest input": f"{data['max_length']} word pieces ({cut:.2f} % of rows truncated)",
        "seeds": ", ".join(map(str, protocol["seeds"])),
        "chosen by": protocol["selection"],
        **{f"{name.replace('_', ' ')} (chosen on dev)": value for name, value in chosen.items()},
        "versions": ", ".join(f"{name} {number}" for name, number in protocol["versions"].items()),
    }


def _classes(result: FinetuneResult) -> list[str]:
    if result.classes is None or not result.classes["by_class"]:
        return []
    found, num_others = class_rows(result.classes)
    rows = [(name, *(f"{score:.4f}" for score in scores), f"{support:,}") for name, *scores, support in found]
    more = f"- {counted(num_others, 'class')} with a higher F1: in `metrics.json`\n" if num_others else ""
    title = "Scores by class, of the model in this folder:\n"
    return [title, _table(("class", "precision", "recall", "F1", "rows"), rows), *([more] if more else [])]


def _methods(few_shot: Mapping[str, Any] | None) -> list[str]:
    if few_shot is None or not few_shot["compared"]:
        return []
    rows = [
        (
            each["method"] + (" (chosen)" if each["method"] == few_shot["chosen"] else ""),
            f"{each['score']:.4f} ({interval_text(each['interval'])})",
            "" if each is few_shot["compared"][0] else f"{each['below']:.4f} ({interval_text(each['below_interval'])})",
        )
        for each in few_shot["compared"]
    ]
    return [
        f"Methods compared by cross-validation on the {counted(few_shot['rows'], 'training row')} "
        f"({few_shot['folds']} parts), with 95 % intervals, those of differences paired by row:\n",
        _table(("method", few_shot["metric"], "below the chosen"), rows),
    ]


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def _plain(value: Json) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(part)}" for name, part in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
