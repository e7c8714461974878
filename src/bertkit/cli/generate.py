"""``bertkit generate``: summarize, translate or rewrite texts with BART and T5."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Group, Parameter

from bertkit.cli.common_options import (
    Common,
    Source,
    Texts,
    TrainedModel,
    Truncate,
    read_rows,
    with_texts,
    write_json,
    write_line,
)
from bertkit.cli.placed import located
from bertkit.cli.results import facts_of, with_id
from bertkit.config.generation_settings import GenerationOptions
from bertkit.errors import ConfigError
from bertkit.system.console import one_line

NOTHING_SET = GenerationOptions()


def generate(
    *text: Texts,
    model: TrainedModel,
    task: Annotated[
        str | None,
        Parameter(
            help="summarization, translation, translation_en_to_de ...: applies the prefix and settings that the "
            "model's config.json names for it."
        ),
    ] = None,
    prefix: Annotated[
        str | None, Parameter(help="Prefix of each text, for example 'summarize: '; default: that of --task.")
    ] = None,
    truncate: Truncate = False,
    stream: Annotated[
        bool, Parameter(negative=(), help="Write each word as soon as it is generated; no beams.")
    ] = False,
    source: Source = Source(),
    settings: Annotated[
        GenerationOptions, Parameter(name="*", group=Group("Generation", sort_key=1), negative=(), show_default=False)
    ] = NOTHING_SET,
    common: Common = Common(),
) -> None:
    r"""Summarize, translate or rewrite texts with BART or T5.

    Prints the generated texts, one per line; with --json one object per input.
    Settings default to those of the model. The original T5 reads its task from a
    prefix.

    For example:

        bertkit generate --model DIR --file articles.txt --num-beams 4
        bertkit generate --model DIR --task translation_en_to_de "Good morning."
        bertkit generate --model DIR --prefix "summarize: " --stream "A long text."
        bertkit generate --model DIR --do-sample --temperature 0.7 \
            --num-return-sequences 3 "Write me."
    """
    if stream and common.json:
        raise ConfigError("--stream writes words as they are generated, --json whole objects; leave one out")
    rows = read_rows(text, source, model)
    common.begin()
    from bertkit.inference.generation_tasks import RESULTS, kind_of
    from bertkit.inference.pipelines import pipeline

    if task is not None and kind_of(task) is None:
        raise ConfigError(f"--task {task}: this command is for {', '.join(RESULTS)}, translation_en_to_de and so on")
    pipe = pipeline(task or "text2text-generation", model=model, device=common.device)
    options = {
        "prefix": prefix,
        "truncation": truncate,
        "seed": common.seed,
        "settings": settings.model_dump(exclude_unset=True),
    }
    if stream:
        for number, row in enumerate(rows):
            with located(rows, first=number):
                for piece in pipe.stream(row.text, **options):
                    write_line(piece, end="")
            write_line("")
        return
    for row, found in with_texts(rows, lambda given: pipe((each.text for each in given), **options)):
        results = found if isinstance(found, list) else [found]
        written = [text for result in results for text in result.values()]
        if common.json:
            write_json({**facts_of(row), "generated": written})
            continue
        for each in written:
            write_line(with_id(row, one_line(each)))
