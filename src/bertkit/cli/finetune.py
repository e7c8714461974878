"""``bertkit finetune``: train on labelled text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from bertkit.cli.common_options import OUTPUT, Output, write_json, write_line
from bertkit.cli.task_options import (
    LABELLED_COLUMNS,
    TAG_COLUMNS,
    LabelledColumns,
    TagColumns,
    Task,
    check_columns,
    find_task,
)
from bertkit.training.finetuning.finetune_settings import FinetuneConfig

if TYPE_CHECKING:
    from bertkit.training.finetuning.finetune_results import FinetuneResult
    from bertkit.training.finetuning.glue_suite import GlueResult

SETTINGS = FinetuneConfig()


def finetune(
    task: Task,
    /,
    *,
    data: Annotated[Path, Parameter(help="Folder with the task's files, a training file, or hub:owner/name.")],
    model: Annotated[str, Parameter(alias="-m", help="Start from this folder, .safetensors file or Hub name.")],
    out: Annotated[Path, Parameter(alias="-o", help="Run folder to write; new, unless --resume is given.")],
    resume: Annotated[
        bool,
        Parameter(
            negative=(),
            help="Go on with the run in --out; repeat its other options. More --seeds than it has are added to it.",
        ),
    ] = False,
    columns: LabelledColumns = LABELLED_COLUMNS,
    tags: TagColumns = TAG_COLUMNS,
    config: Annotated[FinetuneConfig, Parameter(name="*", group=Group("Training", sort_key=2))] = SETTINGS,
    output: Output = OUTPUT,
) -> None:
    r"""Fine-tune a BERT on labelled text, and say how good it is.

    Before training comes a report on the data, beside the score that of TF-IDF
    with a linear model. RUN then holds the model, metrics.json with its protocol,
    predictions, pictures and a model card. Ctrl-C saves; --resume goes on.

    Task glue is all of GLUE that DATA has, with one table at the end, and the
    files of a submission for the tasks that have a test file.

    For example:

        bertkit finetune sst2 --data SST-2 --model bert-base-uncased --out run
        bertkit finetune csv --data reviews.csv --text body --label stars \
            --model bert-base-uncased --out run --seeds 3
        bertkit finetune tweets --data tweets --model DIR --out run --freeze-encoder
        bertkit finetune glue --data GLUE --model bert-base-uncased --out runs --seeds 5
    """
    from bertkit.system.console import set_quiet
    from bertkit.system.device import find_device
    from bertkit.training.finetuning.finetune import finetune as run_finetune
    from bertkit.training.finetuning.glue_suite import finetune_glue

    set_quiet(output.quiet)
    device = str(find_device(output.device))
    result: FinetuneResult | GlueResult
    if task == "glue":
        check_columns(task, columns, tags)
        result = finetune_glue(data, model, out, config, resume=resume, device=device)
    else:
        chosen = find_task(task, data, columns, config.on_error, tags)
        result = run_finetune(chosen, data, model, out, config, resume=resume, device=device)
    if output.json:
        write_json({"folder": str(result.folder), **result.to_dict()})
    else:
        write_line(result.render())
