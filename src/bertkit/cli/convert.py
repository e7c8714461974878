"""The command that brings checkpoints of other kinds home: convert."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import COMMON, Common, write_json, write_line


def convert(
    source: Annotated[
        str,
        Parameter(
            help="TensorFlow checkpoint (folder, .index, or bert_model.ckpt), SavedModel, .zip of these, folder with "
            "pytorch_model.bin or safetensors, or Hub name."
        ),
    ],
    target: Annotated[Path, Parameter(help="Folder to make; it must not exist, or be empty.")],
    /,
    *,
    trust_pickle: Annotated[
        bool, Parameter(negative=(), help="Open a pickle, with torch's restricted reader in a process of its own.")
    ] = False,
    config: Annotated[
        Path | None, Parameter(help="bert_config.json of a TensorFlow checkpoint that has none beside it.")
    ] = None,
    vocab: Annotated[Path | None, Parameter(help="vocab.txt of a TensorFlow checkpoint, likewise.")] = None,
    model_class: Annotated[
        str | None,
        Parameter(help="Class it was trained as, where names do not tell: BertForTokenClassification for a tagger."),
    ] = None,
    lower_case: Annotated[
        bool | None, Parameter(help="Whether the tokenizer lower-cases; default: by the vocabulary.")
    ] = None,
    revision: Annotated[str | None, Parameter(help="Branch, tag or commit on the Hub.")] = None,
    common: Common = COMMON,
) -> None:
    """Convert a checkpoint of TensorFlow, or a pickled one, into a folder that bertkit loads.

    The result is read again and compared with the source, tensor by tensor, and by its outputs where the source can be
    run. A variable that is neither known nor part of an optimizer is an error, and then nothing is written.

    For example:

        bertkit convert uncased_L-12_H-768_A-12.zip bert-base
        bertkit convert output/model.ckpt-1000 tagger --config bert_config.json --model-class BertForTokenClassification
        bertkit convert bert_en_uncased_L-12_H-768_A-12_4 bert-base      a SavedModel from TF-Hub
        bertkit convert --trust-pickle old-checkpoint new-checkpoint     a folder with pytorch_model.bin
    """
    from bertkit.model.convert import Wishes
    from bertkit.model.convert import convert as convert_checkpoint

    common.begin()
    wishes = Wishes(config, vocab, model_class, lower_case)
    done = convert_checkpoint(source, target, trust_pickle=trust_pickle, wishes=wishes, revision=revision)
    if common.json:
        write_json(done.to_dict())
    else:
        write_line(done.render())
