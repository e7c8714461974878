"""``bertkit adapt``: masked-LM training on a task's own text before fine-tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from bertkit.cli.common_options import Output
from bertkit.cli.file_options import FileColumns
from bertkit.cli.task_options import Start, TaskName
from bertkit.system.console import set_quiet
from bertkit.training.adapt_settings import AdaptConfig
from bertkit.training.finetuning.finetune_settings import FinetuneConfig


def adapt(
    task: TaskName,
    /,
    *,
    start: Start,
    out: Annotated[Path, Parameter(alias="-o", help="Folder to write; new, or of the same command.")],
    texts: Annotated[
        list[Path] | None,
        Parameter(negative=(), help="More unlabelled text of the same kind: files, as for 'bertkit prepare'."),
    ] = None,
    columns: FileColumns = FileColumns(),
    adaptation: Annotated[
        AdaptConfig, Parameter(name="*", group=Group("Masked-LM training", sort_key=1))
    ] = AdaptConfig(),
    config: Annotated[FinetuneConfig, Parameter(name="*", group=Group("Fine-tuning", sort_key=2))] = FinetuneConfig(),
    output: Output = Output(),
) -> None:
    r"""Train on a task's text without labels first, then fine-tune; compare both.

    Continues masked-LM training on the training texts (never on dev or test), then
    fine-tunes from there and from the original checkpoint, with the same settings,
    and reports both. Rows left out by --max-train-rows still give their text,
    never their label; of multiple choice, only contexts are read. Worth it if
    labels are few, or the texts unlike what the model knows. OUT/with holds the
    fine-tuned model. If stopped, the same command resumes.

    For example:

        bertkit adapt imdb --data imdb --model bert-base-uncased --out run \
            --max-train-rows 500
        bertkit adapt csv --data notes.csv --texts unlabelled.txt --model DIR \
            --out run2 --seeds 3
    """
    from bertkit.system.device import find_device
    from bertkit.training.adapt import adapt as run_adapt

    set_quiet(output.quiet)
    chosen = columns.of(task).task(task, start.data, config.on_error)
    device = str(find_device(output.device))
    result = run_adapt(chosen, start.data, start.model, out, config, adaptation, texts=texts or (), device=device)
    output.report(result, folder=str(result.folder))
