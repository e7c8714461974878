"""``bertkit convert``: TensorFlow and pickled checkpoints to folders that load."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Common


@Parameter(name="*")
@dataclass(frozen=True)
class Overrides:
    """What a checkpoint may not say of itself."""

    config: Annotated[
        Path | None, Parameter(help="bert_config.json, if the TensorFlow checkpoint's folder has none.")
    ] = None
    vocab: Annotated[Path | None, Parameter(help="vocab.txt, if the folder has none.")] = None
    model_class: Annotated[
        str | None,
        Parameter(help="Model class, if variable names do not tell, such as BertForTokenClassification for a tagger."),
    ] = None
    lower_case: Annotated[
        bool | None, Parameter(help="Whether the tokenizer lowercases; default: inferred from the vocabulary.")
    ] = None


def convert(
    source: Annotated[
        str,
        Parameter(
            help="TensorFlow checkpoint (folder, .index, or bert_model.ckpt), SavedModel, .zip of these, folder with "
            "pytorch_model.bin or safetensors, folder with LoRA adapters, or Hub name."
        ),
    ],
    target: Annotated[Path, Parameter(help="New folder to write, or an empty one.")],
    /,
    *,
    trust_pickle: Annotated[
        bool, Parameter(negative=(), help="Open a pickle, with torch's restricted reader in a separate process.")
    ] = False,
    overrides: Overrides = Overrides(),
    revision: Annotated[str | None, Parameter(help="Branch, tag or commit on the Hub.")] = None,
    common: Common = Common(),
) -> None:
    r"""Convert a TensorFlow or pickled checkpoint to a folder that bertkit loads.

    SOURCE may also be a SavedModel from TF-Hub. The result is read back and
    compared with the source tensor by tensor, and by its outputs if the source can be
    run. A variable that is neither known nor part of an optimizer is an error, and
    nothing is written. LoRA adapters, including those of peft, are merged into their
    base model.

    For example:

        bertkit convert uncased_L-12_H-768_A-12.zip bert-base
        bertkit convert bert_en_uncased_L-12_H-768_A-12_4 bert-base
        bertkit convert output/model.ckpt-1000 tagger \
            --config bert_config.json --model-class BertForTokenClassification
        bertkit convert --trust-pickle old-checkpoint new-checkpoint
        bertkit convert adapters model
    """
    from bertkit.model import convert_sources
    from bertkit.model.convert import convert as convert_checkpoint

    common.begin()
    given = convert_sources.Overrides(**vars(overrides))
    common.report(convert_checkpoint(source, target, trust_pickle=trust_pickle, overrides=given, revision=revision))
