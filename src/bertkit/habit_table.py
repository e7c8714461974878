"""What people type out of habit from other libraries, and what it means here: one table for every entry.

A row is what is typed (``entry``: where; ``name``: an import, a keyword, an attribute or an option), the libraries that
have it, and its meaning here: ``same`` (it works with the meaning it has there), ``nothing`` (it is accepted and has no
effect here; the last column says why) or ``otherwise`` (it is refused; the last column is what to write instead).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Literal, NamedTuple, get_args

from bertkit.errors import did_you_mean

Meaning = Literal["same", "nothing", "otherwise"]

#: Rows are sorted by entry and name. Worlds: tf transformers, st sentence-transformers, setfit, sk scikit-learn, keras,
#: other (several tools). Entries: ``import`` (from bertkit), ``command`` (an option of any command, said where the
#: command has ours), ``settings`` (a field of any settings class), ``pipeline`` (a keyword of it or of its calls),
#: ``from_pretrained``, ``tokenizer``, ``forward`` and ``generate`` (a keyword), ``model.`` ... (an attribute).
_TABLE = """
command | --batch | other | otherwise | --batch-size
command | --bs | other | otherwise | --batch-size
command | --charset | other | otherwise | --encoding
command | --corpora.train | other | otherwise | --data
command | --csv | other | otherwise | --out X.csv
command | --decimal | other | otherwise | --excel
command | --drop | other | otherwise | --drop-label
command | --drop-labels | other | otherwise | --drop-label
command | --eval-file | other | otherwise | --data
command | --export-type | other | otherwise | --format
command | --file-type | other | otherwise | --format
command | --format | other | otherwise | --out X.xlsx (the ending is the format)
command | --gpu | other | otherwise | --device
command | --hard-negatives | st | otherwise | --mine-negatives
command | --input | other | otherwise | --data
command | --label-column | other | otherwise | --label
command | --lr | other | otherwise | --learning-rate
command | --matryoshka-dims | st | otherwise | --matryoshka
command | --max-len | other | otherwise | --max-length
command | --max-seq-length | tf | otherwise | --max-length
command | --merge-label | other | otherwise | --merge-labels
command | --min-samples | other | otherwise | --min-rows
command | --min-similarity | other | otherwise | --threshold
command | --model-name-or-path | tf | otherwise | --model
command | --normalize-labels | other | otherwise | --merge-labels
command | --num-epochs | other | otherwise | --epochs
command | --num-train-epochs | tf | otherwise | --epochs
command | --output | other | otherwise | --out
command | --output-dir | tf | otherwise | --out
command | --output-file | other | otherwise | --out
command | --output-format | other | otherwise | --out X.xlsx (the ending is the format)
command | --paths.dev | other | otherwise | --data
command | --paths.train | other | otherwise | --data
command | --per-device-train-batch-size | tf | otherwise | --batch-size
command | --report-to | tf | otherwise | --tensorboard
command | --save | other | otherwise | --out
command | --scale | st | otherwise | --temperature
command | --sep | other | otherwise | --delimiter
command | --sheet-name | other | otherwise | --sheet
command | --sheetname | other | otherwise | --sheet
command | --similarity-threshold | other | otherwise | --threshold
command | --steps | other | otherwise | --max-steps
command | --text-column | other | otherwise | --text
command | --train-data | other | otherwise | --data
command | --train-file | tf | otherwise | --data
command | --validation-file | tf | otherwise | --data
command | --vocab-size | other | otherwise | --size
command | --xlsx | other | otherwise | --out X.xlsx
import | DocBin | other | otherwise | bertkit finetune ner --data train.spacy (on the command line)
import | MLflowCallback | tf | same | finetune(..., callbacks=[MLflowCallback()])
import | TFBertModel | tf | otherwise | from bertkit import BertModel (PyTorch)
import | TensorBoardCallback | tf | same | finetune(..., callbacks=[TensorBoardCallback()])
import | read_excel | other | otherwise | csv_task("book.xlsx", sheet="data")
settings | drop_labels | other | otherwise | drop_label=
settings | eval_data | other | otherwise | finetune(..., dev=)
settings | eval_dataset | tf st | otherwise | finetune(..., dev=)
settings | feature_cache | other | otherwise | finetune(..., cache=None)
settings | label_column | other | otherwise | finetune(..., label=)
settings | lr | keras other | otherwise | learning_rate=
settings | max_len | other | otherwise | max_length=
settings | max_steps | tf setfit | same | max_steps=
settings | merge_label | other | otherwise | merge_labels=
settings | min_samples | other | otherwise | min_rows=
settings | num_epochs | setfit other | otherwise | epochs=
settings | num_train_epochs | tf | otherwise | epochs=
settings | output_dir | tf | otherwise | out=
settings | per_device_train_batch_size | tf | otherwise | batch_size=
settings | report_to | tf st | otherwise | tensorboard=True or mlflow=True
settings | sheet_name | other | otherwise | sheet=
settings | steps | other | otherwise | max_steps=
settings | text_column | other | otherwise | finetune(..., text=)
settings | val_data | other | otherwise | finetune(..., dev=)
settings | validation_data | keras | otherwise | finetune(..., dev=)
"""


class Habit(NamedTuple):
    """One row of the table."""

    entry: str
    name: str
    worlds: tuple[str, ...]
    meaning: Meaning
    ours: str


@cache
def habits() -> dict[tuple[str, str], Habit]:
    """All rows by entry and name."""
    found: dict[tuple[str, str], Habit] = {}
    for line in _TABLE.strip().splitlines():
        entry, name, worlds, meaning, ours = (cell.strip() for cell in line.split(" | ", maxsplit=4))
        assert meaning in get_args(Meaning), line
        assert (entry, name) not in found, line
        found[entry, name] = Habit(entry, name, tuple(worlds.split()), meaning, ours)  # type: ignore[arg-type]
    return found


def remedy(entry: str, name: str, known: Iterable[str]) -> str:
    """What to write instead of ``name``: what the table says, else the nearest of ``known`` by spelling, else nothing.

    The result follows the name in a message: ``; write batch_size=`` or `` (did you mean 'x'?)``.
    """
    habit = habits().get((entry, name))
    if habit is not None and habit.meaning == "otherwise":
        return f"; write {habit.ours}"
    return did_you_mean(name, known)


@cache
def without_meaning(entry: str) -> frozenset[str]:
    """Names that an entry accepts and ignores."""
    return frozenset(habit.name for habit in habits().values() if (habit.entry, habit.meaning) == (entry, "nothing"))
