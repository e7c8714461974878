"""The model card, ``README.md`` of a run folder: what the model is, how good, how it was measured, how to use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bertkit.training.finetuning.finetune_results import FinetuneResult

if TYPE_CHECKING:
    from bertkit.tasks.workflow import Card


def model_card(result: FinetuneResult, card: Card, pictures: tuple[str, ...]) -> str:
    """Markdown. Every number comes from the result, none is written by hand.

    Args:
        result: a finished run.
        card: what its kind of task says.
        pictures: file names to show.
    """
    protocol, data = result.protocol, result.protocol["data"]
    sections = [
        f"---\nlibrary_name: bertkit\npipeline_tag: {card.pipeline}\n---\n",
        f"# {result.task}: fine-tuned BERT\n",
        f"Made by `bertkit finetune {result.task}` from `{protocol['start_checkpoint']['name']}`. It predicts "
        f"{card.predicts}.\n",
        "## Scores\n",
        _table(("metric", "mean of the seeds", result.baseline_name), _score_rows(result)),
        *([f"- {result.spread_line()}"] if result.interval is not None else []),
        *(f"- {note}" for note in result.notes),
        "",
        f"Measured on {protocol['split']} ({data['dev_rows']:,} rows"
        + (", held out of the training file" if data["dev_held_out_of_train"] else "")
        + f"); the model of seed {result.chosen_seed} is in this folder. Scores of other publications compare only "
        "under the same protocol; `metrics.json` has all of it.\n",
        *(f"![{name.removesuffix('.png')}]({name})" for name in pictures),
        "\n## How it was trained\n",
        _table(("setting", "value"), [(key, _plain(value)) for key, value in _settings(protocol).items()]),
        "## Use\n",
        "```python\nfrom bertkit import pipeline\n\n"
        f'pipe = pipeline("{card.pipeline}", model="{result.folder.name}")\n{card.call}\n```\n',
        f"{card.limits.format(max_length=data['max_length'])}\n",
        "## Limits\n",
        "It was trained and measured on one data set. On texts of another kind, time or place, measure again before "
        "relying on it. It has the habits of its training texts and of its start checkpoint, unwanted ones included.\n",
    ]
    return "\n".join(sections)


def _score_rows(result: FinetuneResult) -> list[tuple[str, str, str]]:
    baseline = result.baseline["metrics"] if result.baseline else {}
    return [
        (name, result.score_line(name), f"{baseline[name]:.4f}" if name in baseline else "not run")
        for name in result.scores
        if name != "loss"
    ]


def _settings(protocol: Mapping[str, Any]) -> dict[str, Any]:
    data = protocol["data"]
    cut = 100 * data["truncated_share"]["train"]
    return {
        "protocol": protocol["protocol"],
        "start checkpoint": f"{protocol['start_checkpoint']['name']} (sha256 {protocol['start_checkpoint']['sha256']})",
        "training rows": f"{data['train_rows']:,} ({data['train_rows_left_out']:,} left out)",
        "trained": protocol["what_is_trained"],
        "optimizer": protocol["optimizer"],
        "learning rate": protocol["learning_rate"],
        "epochs": protocol["epochs"],
        "batch size": protocol["batch_size"],
        "longest input": f"{data['max_length']} word pieces ({cut:.2f} % of rows cut)",
        "seeds": ", ".join(map(str, protocol["seeds"])),
        "chosen by": protocol["selection"],
        "versions": ", ".join(f"{name} {number}" for name, number in protocol["versions"].items()),
    }


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
