"""The command that pre-trains: pretrain."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter
from pydantic import Field

from bertkit.cli.common_options import OUTPUT, Output, seconds_of, write_json, write_line
from bertkit.errors import ConfigError
from bertkit.training.pretraining.pretrain_settings import PretrainConfig
from bertkit.training.pretraining.recipes import load_recipe, recipe_names

if TYPE_CHECKING:
    from bertkit.config.bert_config import BertConfig
    from bertkit.training.pretraining.pretrain import PretrainResult
    from bertkit.training.pretraining.recipes import Recipe


class Options(PretrainConfig):
    """The settings as they are on the command line, where ``--max-time`` stands for ``max_seconds``."""

    max_seconds: Annotated[float | None, Parameter(show=False), Field(gt=0, allow_inf_nan=False)] = None


SETTINGS = PretrainConfig()
OPTIONS = Options()


def pretrain(
    store: Annotated[Path, Parameter(help="Folder that 'bertkit prepare' wrote.")],
    /,
    *,
    out: Annotated[Path, Parameter(alias="-o", help="Run folder to write; new, or that of a stopped run.")],
    recipe: Annotated[
        str | None,
        Parameter(help=f"Model and settings from a TOML file, or one of: {', '.join(recipe_names())}."),
    ] = None,
    preset: Annotated[
        str | None, Parameter(help="Shape of a new model, for example bert-mini; its vocabulary is the store's.")
    ] = None,
    model: Annotated[
        str | None,
        Parameter(alias="-m", help="Go on from this model; the store has its tokenizer, or that one with words added."),
    ] = None,
    dev: Annotated[Path | None, Parameter(help="Token store of held-out text, scored after each epoch.")] = None,
    max_time: Annotated[
        str | None,
        Parameter(help="Train this long (90s, 20m, 1h30m), evaluations not counted; by then the rate falls to 0."),
    ] = None,
    resume: Annotated[bool, Parameter(help="Go on with an unfinished run of the same options in --out.")] = True,
    config: Annotated[Options, Parameter(name="*", group=Group("Training", sort_key=2))] = OPTIONS,
    output: Output = OUTPUT,
) -> None:
    """Pre-train a BERT on a token store of 'bertkit prepare'.

    Masked words, and whether one sentence follows another, are drawn while
    training, anew in each epoch. RUN/model then is a model for every other
    command. Stopped at any moment, the same command goes on, bit for bit.
    Options win over the recipe, --preset and --model over its model.

    For example:

        bertkit vocab text.txt --size 8192 --out tokenizer
        bertkit prepare text.txt --tokenizer tokenizer --out store
        bertkit pretrain store --recipe mini --max-time 20m --out run
        bertkit pretrain store --preset bert-mini --max-steps 2000 --out run
        torchrun --nproc-per-node 8 -m bertkit pretrain store --recipe mini --out run
        bertkit fill-mask --model run/model "The [MASK] of the city."
    """
    from bertkit.data.store.token_store import TokenStore
    from bertkit.system.console import set_quiet
    from bertkit.system.device import find_device
    from bertkit.training.pretraining.pretrain import pretrain as run_pretrain

    set_quiet(output.quiet)
    chosen = None if recipe is None else load_recipe(recipe)
    settings = _settings(chosen.training if chosen else SETTINGS, config, max_time)
    start = _start(preset, model, chosen)
    opened = TokenStore(store)
    result = run_pretrain(
        opened,
        out,
        settings,
        model=start if isinstance(start, str) else start.replace(vocab_size=opened.manifest.tokenizer.num_tokens),
        dev=None if dev is None else TokenStore(dev),
        resume=resume,
        device=str(find_device(output.device)),
    )
    if os.environ.get("RANK", "0") == "0":  # under torchrun one process speaks for all
        _tell(result, as_json=output.json)


def _tell(result: PretrainResult, *, as_json: bool) -> None:
    if as_json:
        told = {
            "unigram_entropy": result.unigram_entropy,
            **result.speed,
            "new_parts": list(result.new_parts),
            "num_new_words": result.num_new_words,
        }
        write_json({"model": str(result.model), "steps": result.progression.step, **result.scores, **told})
        return
    write_line(f"{result.progression.step:,} steps; the model is in {result.model}")
    if result.new_parts:
        write_line(f"  new parts, drawn at random at the start: {', '.join(result.new_parts)}")
    if result.num_new_words:
        write_line(f"  new words, begun as the mean of their pieces: {result.num_new_words:,}")
    for name, value in {**result.scores, "unigram_entropy": result.unigram_entropy}.items():
        write_line(f"  {name:<24} {value:.4f}")
    if result.speed:
        share = (
            f", {result.speed['peak_share']:.0%} of the measured matmul peak" if "peak_share" in result.speed else ""
        )
        write_line(f"  {'tokens_per_s':<24} {result.speed['tokens_per_s']:,.0f}{share}")


def _settings(recipe: PretrainConfig, flags: PretrainConfig, max_time: str | None) -> PretrainConfig:
    """The recipe's settings with those that were given on the command line in their place."""
    given = flags.model_dump(include=flags.model_fields_set)
    if max_time is not None:
        if "max_seconds" in given:
            raise ConfigError("give --max-time or --max-seconds, not both")
        given["max_seconds"] = seconds_of(max_time)
    # A limit of one kind replaces the recipe's limit of the other kind; both together are kept where both are given.
    if given.keys() & {"max_steps", "max_seconds"}:
        given = {"max_steps": None, "max_seconds": None, **given}
    settings = recipe.replace(**given)
    settings.check()
    return settings


def _start(preset: str | None, model: str | None, recipe: Recipe | None) -> BertConfig | str:
    """The shape of a new model, still without its vocabulary, or the name of the one to go on from."""
    from bertkit.config.presets import preset as find_preset

    if preset is not None and model is not None:
        raise ConfigError("give --preset for a new model, or --model to go on from one, not both")
    if model is not None:
        return model
    if preset is not None:
        return find_preset(preset).config
    if recipe is not None:
        return recipe.model
    raise ConfigError(
        "give --preset for a new model (for example bert-mini), --recipe (for example mini), or --model to go on "
        "from one"
    )
