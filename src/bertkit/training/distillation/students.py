"""What a student begins with: layers of its teacher, new weights of a smaller shape, or any checkpoint."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bertkit.config.any_config import AnyConfig, read_any_config
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import checkpoint_folder, config_path
from bertkit.errors import ConfigError
from bertkit.model.auto import class_named
from bertkit.model.keep_layers import keep_layers, shape_with, spread_layers
from bertkit.model.models import BertModel
from bertkit.system.atomic_files import new_folder
from bertkit.system.console import say
from bertkit.system.model_sources import resolve
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.training.distillation.corpus_losses import has_plain_attention, queries_keys_values
from bertkit.training.distillation.distill_settings import Student
from bertkit.training.distillation.taught_vectors import narrowing
from bertkit.training.trainer.generators import seeded

#: Width of an attention head of a new shape, as in all published sizes of BERT (Turc et al. 2019, table 1).
HEAD_WIDTH = 64


def start_of(
    student: Student,
    teacher: str | Path,
    folder: Path,
    *,
    model_class: str,
    new_class: str = "BertModel",
    seed: int = 0,
) -> Path:
    """Where the student's first weights are; those that are made are kept in ``folder``, and made once.

    Layers and new shapes have the teacher's tokenizer and family. Of layers the heads of ``model_class`` come along;
    new weights, drawn from ``seed``, are of ``new_class``.
    """
    if student.model is not None:
        return resolve(student.model)
    if (folder / "config.json").is_file():
        return folder
    path, smaller = resolve(teacher), shape_of(student, teacher)
    if student.layers is None:
        with seeded(seed):
            model: Any = class_named(new_class)(smaller)  # type: ignore[arg-type]  # of an encoder's config
            encoder = getattr(model, "bert", model)
            if student.mimetic:
                attend_to_like(encoder)
        made = f"new weights, {smaller.num_hidden_layers} layers of {smaller.hidden_size}"
        if student.teacher_embeddings:
            take_embeddings(encoder, BertModel.from_pretrained(path))
            made += ", and the teacher's embeddings"
    else:
        whole = class_named(model_class).from_pretrained(path)
        assert isinstance(whole.config, BertConfig), "shape_of refuses any other"
        layers = chosen_layers(student.layers, whole.config)
        model = keep_layers(whole, layers)
        made = f"layers {', '.join(map(str, layers))} of the teacher's {whole.config.num_hidden_layers}"
    with new_folder(folder) as draft:
        model.save_pretrained(draft)
        AutoTokenizer.from_pretrained(checkpoint_folder(path)).save_pretrained(draft)
    say(f"the student begins with {made}")
    return folder


def first_shape(student: Student, teacher: str | Path) -> AnyConfig:
    """The configuration of :func:`start_of`, made or of a checkpoint; raises as :func:`shape_of`."""
    return shape_of(student, teacher) if student.model is None else read_any_config(config_path(resolve(student.model)))


def shape_of(student: Student, teacher: str | Path) -> BertConfig:
    """The configuration of what :func:`start_of` makes of a teacher; raises what it does, and reads no weights."""
    shape = read_any_config(config_path(resolve(teacher)))
    if not isinstance(shape, BertConfig):
        raise ConfigError(
            f"{teacher} is an encoder-decoder, whose layers cannot be taken and whose shape cannot be made smaller; "
            "give a checkpoint for the student"
        )
    if student.layers is not None:
        return shape_with(shape, chosen_layers(student.layers, shape))
    assert student.shape is not None, "the student says one thing"
    smaller = small_shape(shape, student)
    ours, theirs = smaller.embedding_width, shape.embedding_width
    if student.teacher_embeddings and ours > theirs:
        raise ConfigError(
            f"teacher_embeddings: the student's embeddings have {ours} numbers, the teacher's {theirs}; "
            "they can be cut, not widened"
        )
    return smaller


def take_embeddings(student: BertModel, teacher: BertModel) -> None:
    """Give the student's tables the vectors of the teacher's, cut to its width by PCA of the words, as one of them.

    The sum of a word, a position and a segment stays what it was, as far as the width can hold it.
    """
    ours, theirs = student.embeddings, teacher.embeddings
    words_VD = theirs.word_embeddings.weight.detach()
    width = ours.word_embeddings.embedding_dim
    directions_DW, _ = narrowing(words_VD.numpy(), width)
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        table, given = getattr(ours, name), getattr(theirs, name)
        if table is not None and given is not None:
            rows = given.weight.detach()
            cut = rows if directions_DW is None else rows @ torch.from_numpy(directions_DW)
            with torch.no_grad():
                table.weight.copy_(cut)


def attend_to_like(student: BertModel) -> None:
    """Let every token begin by attending to itself and to tokens like it, in whichever of two texts they stand.

    Mimetic initialization (Trockman & Kolter 2023): pre-trained attention has learned such a diagonal, and
    training on few examples does not find it. Queries and keys of a layer are one random rotation of the states, cut
    into heads.
    Deviates: the paper adds noise to the diagonal and gives values and output a negative one; here these stay random.
    """
    if not has_plain_attention(student):
        raise ConfigError(
            "mimetic: only for attention as in BERT, in layers with weights of their own, and not for "
            f"{student.config.model_type}; leave it out"
        )
    for qkv in queries_keys_values(student, range(len(student.encoder.layer))):
        assert isinstance(qkv.weight, Tensor)
        width = qkv.weight.shape[1]
        with torch.no_grad():
            nn.init.orthogonal_(qkv.weight[:width])
            qkv.weight[width : 2 * width] = qkv.weight[:width]


def chosen_layers(layers: int | tuple[int, ...], shape: BertConfig) -> tuple[int, ...]:
    """The numbers of the layers that are kept; InputError as :func:`bertkit.model.keep_layers.shape_with`."""
    chosen = spread_layers(layers, shape.num_hidden_layers) if isinstance(layers, int) else tuple(layers)
    shape_with(shape, chosen)
    return chosen


def small_shape(shape: BertConfig, student: Student) -> BertConfig:
    """A shape of the same family and vocabulary with other layers: heads of 64, feed-forward of four widths."""
    assert student.shape is not None, "the student begins with a new shape"
    num_layers, width = map(int, student.shape.split("x"))
    heads = student.heads or max(1, width // HEAD_WIDTH)
    if width % heads:
        raise ConfigError(
            f"a width of {width} does not divide into {heads} heads; give heads, or a multiple of {HEAD_WIDTH}"
        )
    factor = shape.intermediate_size / shape.hidden_size if shape.family.pre_norm else 4.0
    return shape.replace(
        num_hidden_layers=num_layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=student.feed_forward or math.ceil(factor * width),
        initializer_range=student.initializer_range or shape.initializer_range,
        **({} if shape.layer_types is None else {"layer_types": None}),
    )
