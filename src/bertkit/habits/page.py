"""The table of habits as a page: ``python -m bertkit.habits.page > docs/habits.md``."""

from __future__ import annotations

from itertools import groupby

from bertkit.habit_table import Habit, habits

_WORLDS = {
    "tf": "transformers",
    "st": "sentence-transformers",
    "setfit": "SetFit",
    "sk": "scikit-learn",
    "keras": "Keras",
    "other": "several tools",
}
_MEANINGS = {"same": "the same here", "nothing": "accepted, without effect", "otherwise": "refused"}
_HEAD = """# What you type from other libraries

Names, arguments and options of other libraries, and what they mean in bertkit: *the same here*, *accepted, without
effect* (with the reason), or *refused* with what to write instead, which is also what the error says. This page is
generated from `bertkit/habit_table.py`.

## What is different on purpose

- **Names of parameters.** Norms of a layer are `attention_norm` and `ffn_norm`; `LayerNorm` is that of the embeddings.
  For a training without decay of biases and norms write
  `AdamW(bertkit.optim.parameter_groups(model, weight_decay=0.01), lr=2e-5)`, or `no_decay = ["bias", "norm", "Norm"]`.
  Queries, keys and values are one matrix `attention.qkv`: targets of LoRA are `["qkv"]`. `model.load_state_dict` reads
  the names of published files too, and `save_pretrained` writes them. A layer has the names of `transformers` as well
  (`layer.attention.self.query.weight`, `layer.output.dense`): to read, to call, and to write into in place.
- **Padding.** It is never computed. At padded positions `last_hidden_state`, hidden states and the logits of tokens are
  0; `start_logits` and `end_logits` are the smallest value of their type, so that an `argmax` or a softmax never
  chooses them. The loss of answers is over real tokens only; in `transformers` padding takes part in its softmax.
- **Padding on the left.** Positions count from the first real token, and heads read that token; `transformers` counts
  the padding. Outputs for a text are the same wherever it is padded.
"""


def page() -> str:
    """The page in Markdown: a table for each entry."""
    rows = sorted(habits().values())
    sections = [_section(entry, list(found)) for entry, found in groupby(rows, key=lambda row: row.entry)]
    return "\n".join([_HEAD, *sections])


def _section(entry: str, rows: list[Habit]) -> str:
    lines = [f"## `{entry}`\n", "| typed | known from | here | |", "| --- | --- | --- | --- |"]
    for row in rows:
        worlds = ", ".join(_WORLDS[world] for world in row.worlds)
        told = row.ours.replace("|", "\\|")
        lines.append(f"| `{row.name}` | {worlds} | {_MEANINGS[row.meaning]} | {_code(told, row)} |")
    return "\n".join([*lines, ""])


def _code(told: str, row: Habit) -> str:
    return f"`{told}`" if row.meaning == "otherwise" and told else told


if __name__ == "__main__":
    print(page(), end="")
