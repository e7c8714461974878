"""The command that pre-trains: pretrain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from bertkit.cli.options import OUTPUT, Output, seconds_of, write_json, write_line
from bertkit.errors import ConfigError
from bertkit.training.pretrain_settings import PretrainConfig

SETTINGS = PretrainConfig()


def pretrain(
    store: Annotated[Path, Parameter(help="Folder that 'bertkit prepare' wrote.")],
    /,
    *,
    out: Annotated[Path, Parameter(alias="-o", help="Run folder to write; new, or that of a stopped run.")],
    preset: Annotated[
        str | None, Parameter(help="Shape of a new model, for example bert-mini; its vocabulary is the store's.")
    ] = None,
    model: Annotated[
        str | None, Parameter(alias="-m", help="Go on from this model's weights instead (continued pre-training).")
    ] = None,
    dev: Annotated[Path | None, Parameter(help="Token store of held-out text, scored after each epoch.")] = None,
    max_time: Annotated[
        str | None, Parameter(help="Train for this long (90s, 20m, 1h30m); the rate falls to 0 at its end.")
    ] = None,
    resume: Annotated[bool, Parameter(help="Go on with an unfinished run of the same options in --out.")] = True,
    config: Annotated[PretrainConfig, Parameter(name="*", group=Group("Training", sort_key=2))] = SETTINGS,
    output: Output = OUTPUT,
) -> None:
    """Pre-train a BERT on a token store of 'bertkit prepare'.

    Masked words, and whether one sentence follows another, are drawn while
    training, anew in each epoch. RUN/model then is a model for every other
    command. Stopped at any moment, the same command goes on, bit for bit.

    For example:

        bertkit vocab text.txt --size 8192 --out tokenizer
        bertkit prepare text.txt --tokenizer tokenizer --out store
        bertkit pretrain store --preset bert-mini --max-steps 2000 --out run
        bertkit pretrain store --preset bert-mini --max-time 20m --out run
        bertkit fill-mask --model run/model "The [MASK] of the city."
    """
    from bertkit.console import set_quiet
    from bertkit.data.store import TokenStore
    from bertkit.inference.pipelines import find_device
    from bertkit.model.bert import BertForPreTraining
    from bertkit.presets import preset as find_preset
    from bertkit.training.pretrain import pretrain as run_pretrain

    set_quiet(output.quiet)
    if max_time is not None:
        if config.max_seconds is not None:
            raise ConfigError("give --max-time or --max-seconds, not both")
        config = config.replace(max_seconds=seconds_of(max_time))
    if (preset is None) == (model is None):
        raise ConfigError("give either --preset for a new model (for example bert-mini), or --model to go on from one")
    opened = TokenStore(store)
    start = (
        BertForPreTraining.from_pretrained(model)
        if model is not None
        else find_preset(preset or "").config.replace(vocab_size=opened.manifest.tokenizer.num_tokens)
    )
    result = run_pretrain(
        opened,
        out,
        config,
        model=start,
        dev=None if dev is None else TokenStore(dev),
        resume=resume,
        device=str(find_device(output.device)),
    )
    if output.json:
        write_json({"model": str(result.model), "steps": result.progression.step, **result.scores})
        return
    write_line(f"{result.progression.step:,} steps; the model is in {result.model}")
    for name, value in result.scores.items():
        write_line(f"  {name:<24} {value:.4f}")
