"""Commands that train and score: finetune, evaluate, predict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from bertkit.cli.options import COMMON, OUTPUT, Common, Output, write_json, write_line
from bertkit.errors import ConfigError
from bertkit.training.settings import FinetuneConfig

if TYPE_CHECKING:
    from bertkit.tasks import TextTask

Task = Annotated[
    str, Parameter(help="cola, sst2, mrpc, stsb, qqp, rte, wnli, qnli, imdb, tweets; or csv for a file of your own.")
]
Column = Annotated[str | None, Parameter(group="Columns of task csv", help="Default: guessed from the file, and told.")]
SETTINGS = FinetuneConfig()


def finetune(
    task: Task,
    /,
    *,
    data: Annotated[Path, Parameter(help="Folder with the task's files, or a training file.")],
    model: Annotated[str, Parameter(alias="-m", help="Start from this folder, .safetensors file or Hub name.")],
    out: Annotated[Path, Parameter(alias="-o", help="Run folder to write; new, unless --resume is given.")],
    resume: Annotated[
        bool, Parameter(negative=(), help="Go on with an unfinished run in --out; repeat its other options.")
    ] = False,
    text: Column = None,
    text_pair: Column = None,
    label: Column = None,
    config: Annotated[FinetuneConfig, Parameter(name="*", group="Training")] = SETTINGS,
    output: Output = OUTPUT,
) -> None:
    """Fine-tune a BERT on labelled text, and say how good it is.

    Before training comes a report on the data, beside the score that of TF-IDF
    with a linear model. RUN then holds the model, metrics.json with its protocol,
    predictions, pictures and a model card. Ctrl-C saves; --resume goes on.

    For example:

        bertkit finetune sst2 --data SST-2 --model bert-base-uncased --out run
        bertkit finetune csv --data reviews.csv --text body --label stars \\
            --model bert-base-uncased --out run --seeds 3
        bertkit finetune tweets --data tweets --model DIR --out run --freeze-encoder
    """
    from bertkit.console import set_quiet
    from bertkit.inference.pipelines import find_device
    from bertkit.training.finetune import finetune as run_finetune

    set_quiet(output.quiet)
    result = run_finetune(
        _find_task(task, data, text, text_pair, label),
        data,
        model,
        out,
        config,
        resume=resume,
        device=str(find_device(output.device)),
    )
    if output.json:
        write_json({"folder": str(result.folder), **result.to_dict()})
    else:
        write_line(result.render())


def _find_task(name: str, data: Path, text: str | None, text_pair: str | None, label: str | None) -> TextTask:
    from bertkit.tasks import csv_task, get_task

    if name == "csv":
        return csv_task(data, text=text, text_pair=text_pair, label=label)
    if text or text_pair or label:
        raise ConfigError(f"--text, --text-pair and --label belong to task csv; the columns of {name} are known")
    return get_task(name)
