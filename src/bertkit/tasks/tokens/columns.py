"""How files of one's own hold words and their tags."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from bertkit.config.any_config import read_config_for
from bertkit.config.config_file import config_path
from bertkit.config.file_columns import Option
from bertkit.tasks.own_files import EncodedFiles, Finished
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.registry import Task
from bertkit.tasks.tokens.reading import ner_task
from bertkit.tasks.tokens.task import TokenTask, types_of


@dataclass(frozen=True)
class TokenFiles(EncodedFiles):
    """Files with one word per line; those with character spans need no options."""

    title = "CoNLL files (task ner)"
    remarks = (
        "Texts with character spans are read as well: files of doccano, Label Studio and Prodigy, folders of brat, "
        "spaCy's DocBin, and what 'bertkit tag --json' prints."
    )

    word_column: Annotated[
        int | None, Option("Column of the words, counted from 1; default: as in training, or the first.")
    ] = None
    tag_column: Annotated[int | None, Option("Column of the tags; default: as in training, or -1, the last.")] = None
    joiner: Annotated[
        str | None,
        Option("Text between two words; '' for scripts without spaces. Default: as in training, or a space."),
    ] = None

    def task(self, name: str, data: Path, on_error: OnError = "raise", **known: Any) -> Task:
        """``known``: as in :func:`bertkit.tasks.ner_task`."""
        return ner_task(data, name=name, on_error=on_error, encoding=self.encoding, **{**known, **self.given})

    def task_for(self, name: str, data: Path, on_error: OnError, model: Finished) -> Task:
        """With the types of the model; columns that are not named are those of its run."""
        shape = read_config_for("BertForTokenClassification", config_path(model.path))
        known: dict[str, Any] = {"types": types_of(shape.id2label.values())}
        if isinstance(model.task, TokenTask):
            own = model.task.columns
            known |= {"word_column": own.word, "tag_column": own.tag, "delimiter": own.delimiter}
            known["joiner"] = model.task.joiner
        return self.task(name, data, on_error, **known)
