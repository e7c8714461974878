"""``bertkit pretrain``: train a model of your own on a token store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from bertkit.cli.amounts import seconds_of
from bertkit.cli.common_options import Output, write_json, write_line
from bertkit.errors import ConfigError, counted
from bertkit.system.console import set_quiet
from bertkit.system.validated_settings import Field
from bertkit.training.pretraining.pretrain_settings import PretrainConfig, load_recipe, recipe_names

if TYPE_CHECKING:
    from bertkit.config.any_config import AnyConfig
    from bertkit.training.pretraining.pretrain import PretrainResult
    from bertkit.training.pretraining.pretrain_settings import Recipe


class Options(PretrainConfig):
    """The settings on the command line, where ``--max-time`` replaces ``max_seconds``."""

    max_seconds: Annotated[float | None, Parameter(show=False), Field(gt=0)] = None


@Parameter(name="*")
@dataclass(frozen=True)
class Start:
    """What a training begins with."""

    recipe: Annotated[
        str | None, Parameter(help=f"Model and settings from a TOML file, or one of: {', '.join(recipe_names())}.")
    ] = None
    preset: Annotated[
        str | None,
        Parameter(help="Architecture of a new model, such as bert-mini or t5-small; the vocabulary is the store's."),
    ] = None
    model: Annotated[
        str | None,
        Parameter(
            alias="-m", help="Continue from this model; the store must use its tokenizer, possibly extended with words."
        ),
    ] = None


def pretrain(
    store: Annotated[Path, Parameter(help="Folder written by 'bertkit prepare'.")],
    /,
    *,
    out: Annotated[Path, Parameter(alias="-o", help="Run folder; new, or of an interrupted run.")],
    start: Start = Start(),
    dev: Annotated[Path | None, Parameter(help="Token store of held-out text, scored after every epoch.")] = None,
    max_time: Annotated[
        str | None,
        Parameter(
            help="Time budget (90s, 20m, 1h30m), not counting evaluations; the learning rate reaches 0 at its end."
        ),
    ] = None,
    resume: Annotated[bool, Parameter(help="Resume an unfinished run with the same options in --out.")] = True,
    config: Annotated[Options, Parameter(name="*", group=Group("Training", sort_key=2))] = Options(),
    output: Output = Output(),
) -> None:
    r"""Pre-train a model on a token store written by 'bertkit prepare'.

    An encoder learns to fill in masked words; BART and T5 learn to restore what was
    removed from a text. Masks, sentence pairs and removed spans are drawn afresh in
    every epoch. RUN/model works with all other commands. If interrupted, the same
    command resumes, and the result is the same bit for bit. Options override the
    recipe; --preset and --model override its model.

    For example:

        bertkit vocab text.txt --size 8192 --out tokenizer
        bertkit prepare text.txt --tokenizer tokenizer --out store
        bertkit pretrain store --recipe mini --max-time 20m --out run
        bertkit pretrain store --preset bert-mini --max-steps 2000 --out run2
        bertkit fill-mask --model run/model "The [MASK] of the city."
        bertkit pretrain store --recipe bart-tiny --out run-bart
        bertkit prepare text.txt --tokenizer google/t5-v1_1-small --out store-t5
        bertkit pretrain store-t5 --preset t5-efficient-mini --out run-t5
        bertkit pretrain store-t5 --model google/t5-v1_1-small --out run-t5b
        torchrun --nproc-per-node 8 -m bertkit pretrain store \
            --recipe mini --out run8
    """
    from bertkit.data.store.token_store import TokenStore
    from bertkit.system.device import find_device
    from bertkit.training.pretraining.initial_model import with_vocabulary
    from bertkit.training.pretraining.pretrain import pretrain as run_pretrain

    set_quiet(output.quiet)
    recipe = None if start.recipe is None else load_recipe(start.recipe)
    settings = _settings(recipe.training if recipe else PretrainConfig(), config, max_time)
    model = _model(start, recipe)
    opened = TokenStore(store)
    result = run_pretrain(
        opened,
        out,
        settings,
        model=model if isinstance(model, str) else with_vocabulary(model, opened),
        dev=None if dev is None else TokenStore(dev),
        resume=resume,
        device=str(find_device(output.device)),
    )
    if os.environ.get("RANK", "0") == "0":  # under torchrun, one process reports for all
        _report(result, as_json=output.json)


def _report(result: PretrainResult, *, as_json: bool) -> None:
    from bertkit.training.trainer.run_folder import LOG, read_log

    steps = [record for record in read_log(result.model.parent / LOG) if "event" not in record]
    last = steps[-1] if steps else {}
    losses = {f"train_{name}": value for name, value in last.items() if name.endswith("loss")}
    if as_json:
        facts = {
            **losses,
            "unigram_entropy": result.unigram_entropy,
            **result.speed,
            "new_parts": list(result.new_parts),
            "num_new_words": result.num_new_words,
        }
        write_json({"model": str(result.model), "steps": result.progression.step, **result.scores, **facts})
        return
    write_line(f"{counted(result.progression.step, 'step')}; the model is in {result.model}")
    if result.new_parts:
        write_line(f"  new parts, randomly initialized: {', '.join(result.new_parts)}")
    if result.num_new_words:
        write_line(f"  new words, initialized as the mean of their pieces: {result.num_new_words:,}")
    for name, value in {**losses, **result.scores, "unigram_entropy": result.unigram_entropy}.items():
        write_line(f"  {name:<24} {value:.4f}")
    if speed := result.speed:
        share = f", {speed['peak_share']:.0%} of the measured matmul peak" if "peak_share" in speed else ""
        write_line(f"  {'tokens_per_s':<24} {speed['tokens_per_s']:,.0f}{share}")


def _settings(recipe: PretrainConfig, flags: PretrainConfig, max_time: str | None) -> PretrainConfig:
    given = flags.model_dump(include=flags.model_fields_set)
    if max_time is not None:
        if "max_seconds" in given:
            raise ConfigError("give --max-time or --max-seconds, not both")
        given["max_seconds"] = seconds_of(max_time)
    # A limit in steps replaces the recipe's in seconds, and vice versa; two given limits both hold.
    if given.keys() & {"max_steps", "max_seconds"}:
        given = {"max_steps": None, "max_seconds": None, **given}
    settings = recipe.replace(**given)
    settings.check()
    return settings


def _model(start: Start, recipe: Recipe | None) -> AnyConfig | str:
    """The config of a new model, still without its vocabulary, or the name of the model to continue from."""
    from bertkit.config.presets import preset

    if start.preset is not None and start.model is not None:
        raise ConfigError("give --preset for a new model, or --model to continue from one, not both")
    if start.model is not None:
        return start.model
    if start.preset is not None:
        return preset(start.preset).config
    if recipe is not None:
        return recipe.model
    raise ConfigError(
        "give --preset for a new model (for example bert-mini), --recipe (for example mini), or --model to continue "
        "from one"
    )
