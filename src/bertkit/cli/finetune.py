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
    data: Annotated[Path, Parameter(help="Folder of the task's files, a training file, or hub:owner/name.")],
    model: Annotated[str, Parameter(alias="-m", help="Model to start from: folder, .safetensors file or Hub name.")],
    out: Annotated[Path, Parameter(alias="-o", help="Run folder to write; new, except with --resume.")],
    resume: Annotated[
        bool,
        Parameter(
            negative=(),
            help="Continue the run in --out; repeat its other options. A larger --seeds adds seeds.",
        ),
    ] = False,
    feature_cache: Annotated[
        bool,
        Parameter(help="With --freeze-encoder: keep the features for later runs; 'bertkit doctor' says where."),
    ] = True,
    columns: LabelledColumns = LABELLED_COLUMNS,
    tags: TagColumns = TAG_COLUMNS,
    config: Annotated[FinetuneConfig, Parameter(name="*", group=Group("Training", sort_key=2))] = SETTINGS,
    output: Output = OUTPUT,
) -> None:
    r"""Fine-tune a BERT on labelled text, and report how good it is.

    First prints a report on the data; the score comes with that of TF-IDF and a
    linear model. RUN then holds the model, metrics.json with its protocol,
    predictions, plots and a model card. Ctrl-C saves; --resume continues.

    Task glue runs every GLUE task found in DATA, prints one table at the end, and
    writes the submission files of tasks with a test file.

    For example:

        bertkit finetune sst2 --data SST-2 --model bert-base-uncased --out run
        bertkit finetune csv --data reviews.csv --text body --label stars \
            --model bert-base-uncased --out run --seeds 3
        bertkit finetune tweets --data tweets --model DIR --out run \
            --freeze-encoder
        bertkit finetune glue --data GLUE --model bert-base-uncased \
            --out runs --seeds 5
    """
    from bertkit.system.console import set_quiet
    from bertkit.system.device import find_device
    from bertkit.system.json_files import printable
    from bertkit.training.finetuning.finetune import finetune as run_finetune
    from bertkit.training.finetuning.glue_suite import finetune_glue

    set_quiet(output.quiet)
    device = str(find_device(output.device))
    result: FinetuneResult | GlueResult
    cache = "auto" if feature_cache else None
    if task == "glue":
        check_columns(task, columns, tags)
        result = finetune_glue(data, model, out, config, resume=resume, device=device, cache=cache)
    else:
        chosen = find_task(task, data, columns, config.on_error, tags)
        result = run_finetune(chosen, data, model, out, config, resume=resume, device=device, cache=cache)
    if output.json:
        write_json({"folder": printable(result.folder), **result.to_dict()})
    else:
        write_line(result.render())
