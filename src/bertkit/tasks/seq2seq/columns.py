"""How tables of one's own hold sources and targets, and what is put before a source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from bertkit.config.file_columns import Option
from bertkit.tasks.own_files import EncodedFiles
from bertkit.tasks.seq2seq.task import Seq2SeqTask

_COLUMN = Option("Column; default: inferred from the file and reported.")


@dataclass(frozen=True)
class Seq2SeqFiles(EncodedFiles):
    """Tables of sources and targets."""

    title = "Text to text (tasks summarize, text2text)"

    source: Annotated[str | None, _COLUMN] = None
    target: Annotated[str | None, _COLUMN] = None
    prefix: Annotated[str, Option("Prefix of each source; T5 reads its task from it: 'summarize: '.")] = ""

    def with_columns(self, task: Seq2SeqTask) -> Seq2SeqTask:
        text = (self.source,) if self.source else task.columns.text
        label = (self.target,) if self.target else task.columns.label
        return replace(task, columns=replace(task.columns, text=text, label=label), prefix=self.prefix or task.prefix)
