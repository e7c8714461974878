"""``bertkit finetune``: train on labelled text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from bertkit.cli.common_options import Output
from bertkit.cli.file_options import FileColumns
from bertkit.cli.heads_file import read_heads
from bertkit.cli.task_options import Start, TaskName
from bertkit.cli.task_pages import MoreTask
from bertkit.errors import ConfigError
from bertkit.system.console import set_quiet
from bertkit.system.json_files import printable
from bertkit.system.settings_files import read_settings_file, settings_of_table
from bertkit.tasks.multi.task import KINDS_OF_HEADS
from bertkit.training.finetuning.finetune_settings import FinetuneConfig

if TYPE_CHECKING:
    from bertkit.training.finetuning.finetune_results import FinetuneResult
    from bertkit.training.finetuning.glue_suite import GlueResult
    from bertkit.training.finetuning.several_heads import HeadsResult

MORE_TASKS = {
    "glue": MoreTask("every GLUE task found in DATA, and the submission files", ("text",)),
    "multi": MoreTask(
        "heads of several tasks on one encoder, named by a TOML file",
        KINDS_OF_HEADS,
        "The heads are trained with the encoder or, with --freeze-encoder, on it. DATA has a table [heads.NAME] for "
        'each: task = "csv", data = "topics.csv" (a path beside it), and columns as the options name them, such as '
        "label = \"topic\". 'bertkit analyze' then asks all of them at once; each RUN/heads/NAME is a model, too.",
    ),
}


def finetune(
    task: TaskName,
    /,
    *,
    start: Start,
    out: Annotated[Path, Parameter(alias="-o", help="Run folder to write; new, except with --resume.")],
    dev: Annotated[Path | None, Parameter(help="File to evaluate on, where DATA is a file for training alone.")] = None,
    resume: Annotated[
        bool,
        Parameter(
            negative=(), help="Continue the run in --out; repeat its other options. A larger --seeds adds seeds."
        ),
    ] = False,
    settings: Annotated[
        Path | None,
        Parameter("--config", help="Read training settings from this TOML or JSON file; options typed here win."),
    ] = None,
    feature_cache: Annotated[
        bool, Parameter(help="With --freeze-encoder: keep the features for later runs; 'bertkit doctor' says where.")
    ] = True,
    columns: FileColumns = FileColumns(),
    config: Annotated[FinetuneConfig, Parameter(name="*", group=Group("Training", sort_key=2))] = FinetuneConfig(),
    output: Output = Output(),
) -> None:
    r"""Fine-tune a BERT on labelled text, and evaluate it.

    First prints a report on the data; the score comes with that of a simple
    baseline. RUN then holds the model, metrics.json with its protocol,
    predictions, plots and a model card. Ctrl-C saves; --resume continues.

    The model is an encoder of any family; or a BART for texts and for squad, a BART
    or a T5 for summarize and text2text.

    With --lora RANK only the head and small matrices next to the weights are trained;
    'bertkit convert RUN MODEL' makes a whole model of such a run.

    For example:

        bertkit finetune sst2 --data SST-2 --model bert-base-uncased --out run
        bertkit finetune csv --data reviews.csv --text body --label stars \
            --model bert-base-uncased --out run --seeds 3
        bertkit finetune csv --data thirty.csv --model MINILM --out run --few-shot
        bertkit finetune rerank --data questions.jsonl --model DIR --out run \
            --negatives 8
        bertkit finetune tweets --data tweets --model DIR --out run \
            --freeze-encoder
        bertkit finetune mnli --data MNLI --model roberta-base --out adapters \
            --lora 8
        bertkit finetune pairs --data questions.csv --model MINILM --out run \
            --text question --text-pair answer --batch-size 256
        bertkit finetune sparse-pairs --data questions.csv --model MLM --out run
        bertkit finetune multi --data heads.toml --model MINILM --out run
        bertkit finetune glue --data GLUE --model bert-base-uncased \
            --out runs --seeds 5
    """
    set_quiet(output.quiet)
    cache = "auto" if feature_cache else None
    if settings is not None:
        values, _ = read_settings_file(settings)
        beside = settings_of_table(FinetuneConfig, values, str(settings))
        typed = config.model_dump(exclude_unset=True)
        config = FinetuneConfig(**{**beside.model_dump(exclude_unset=True), **typed})
    result = _train(task, start, dev, out, columns, config, resume=resume, cache=cache, output=output)
    output.report(result, folder=printable(result.folder))


def _train(
    task: str,
    start: Start,
    dev: Path | None,
    out: Path,
    columns: FileColumns,
    config: FinetuneConfig,
    *,
    resume: bool,
    cache: str | None,
    output: Output,
) -> FinetuneResult | GlueResult | HeadsResult:
    from bertkit.system.device import find_device
    from bertkit.tasks.reading.given_rows import given_data
    from bertkit.tasks.reading.splits import SPLIT_NAMES
    from bertkit.training.finetuning.finetune import finetune as run_finetune
    from bertkit.training.finetuning.glue_suite import finetune_glue
    from bertkit.training.finetuning.several_heads import finetune_heads

    device, data, model = str(find_device(output.device)), start.data, start.model
    if task in MORE_TASKS:
        columns.refuse_others(task)
        if dev is not None:
            raise ConfigError(f"task {task} reads several data sets, so --dev cannot say of which; leave it out")
    if task == "glue":
        return finetune_glue(data, model, out, config, resume=resume, device=device, cache=cache)
    if task == "multi":
        heads, alpha = read_heads(data, config.on_error)
        return finetune_heads(heads, model, out, config, alpha=alpha, resume=resume, device=device, cache=cache)
    given = data if dev is None else given_data(data, dev, SPLIT_NAMES)
    assert isinstance(given, Path)
    chosen = columns.of(task).task(task, given, config.on_error)
    return run_finetune(chosen, given, model, out, config, resume=resume, device=device, cache=cache)
