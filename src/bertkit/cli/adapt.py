"""The command that adapts a model to a task's own text before it is fine-tuned: adapt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from bertkit.cli.common_options import OUTPUT, Output, write_json, write_line
from bertkit.cli.task_options import LABELLED_COLUMNS, TAG_COLUMNS, LabelledColumns, TagColumns, Task, find_task
from bertkit.training.adapt_settings import AdaptConfig
from bertkit.training.finetuning.finetune_settings import FinetuneConfig

SETTINGS, ADAPT_SETTINGS = FinetuneConfig(), AdaptConfig()


def adapt(
    task: Task,
    /,
    *,
    data: Annotated[Path, Parameter(help="Folder with the task's files, a training file, or hub:owner/name.")],
    model: Annotated[str, Parameter(alias="-m", help="Start from this folder, .safetensors file or Hub name.")],
    out: Annotated[Path, Parameter(alias="-o", help="Folder to write; new, or that of the same command.")],
    texts: Annotated[
        list[Path] | None,
        Parameter(negative=(), help="More unlabelled text of the same kind: files, as for 'bertkit prepare'."),
    ] = None,
    columns: LabelledColumns = LABELLED_COLUMNS,
    tags: TagColumns = TAG_COLUMNS,
    adaptation: Annotated[
        AdaptConfig, Parameter(name="*", group=Group("Masked-LM training", sort_key=1))
    ] = ADAPT_SETTINGS,
    config: Annotated[FinetuneConfig, Parameter(name="*", group=Group("Fine-tuning", sort_key=2))] = SETTINGS,
    output: Output = OUTPUT,
) -> None:
    r"""Train on a task's text without its labels first, then fine-tune; both reported.

    The masked language model goes on learning on the training texts (never those
    of dev or test). Then a model is fine-tuned from there, and one from the start
    checkpoint as it was, with the same settings: the table shows what it brought.
    Rows that --max-train-rows cuts give their text, never their label; of multiple
    choice only contexts are read.
    Worth it where labels are few, or the texts are unlike what the model knows.
    OUT/with is the fine-tuned model. The same command goes on where it stopped.

    For example:

        bertkit adapt imdb --data imdb --model bert-base-uncased --out run --max-train-rows 500
        bertkit adapt csv --data notes.csv --texts unlabelled.txt --model DIR --out run --seeds 3
    """
    from bertkit.system.console import set_quiet
    from bertkit.system.device import find_device
    from bertkit.training.adapt import adapt as run_adapt

    set_quiet(output.quiet)
    result = run_adapt(
        find_task(task, data, columns, config.on_error, tags),
        data,
        model,
        out,
        config,
        adaptation,
        texts=texts or (),
        device=str(find_device(output.device)),
    )
    if output.json:
        write_json({"folder": str(result.folder), **result.to_dict()})
    else:
        write_line(result.render())
