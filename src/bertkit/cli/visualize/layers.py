"""``bertkit visualize layers``: what each layer of a model knows, and how similar layers are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from bertkit.cli.cluster import TextFile, text_rows
from bertkit.cli.common_options import Common, LongestText, Model
from bertkit.cli.embed import Pool
from bertkit.cli.task_options import TextColumns
from bertkit.cli.visualize.embeddings import labels_of
from bertkit.cli.visualize.picture_options import Out, check_out, show
from bertkit.errors import ConfigError


def layers(
    file: TextFile,
    /,
    *,
    model: Model,
    other: Annotated[
        str | None, Parameter(name="--with", help="Compare the layers with those of this model, not with each other.")
    ] = None,
    label: Annotated[
        str | None, Parameter(help="Column of the label; default: a column with a usual name, if there is one.")
    ] = None,
    tags: Annotated[
        bool, Parameter(negative=(), help="The file has a word and its tag a line (CoNLL), or lists of both a row.")
    ] = False,
    word_column: Annotated[int, Parameter(help="With --tags: column of the words, from 1.")] = 1,
    tag_column: Annotated[int, Parameter(help="With --tags: column of the tags, from 1, or -1 for the last.")] = -1,
    examples: Annotated[int, Parameter(help="Of more texts, or words, sample so many.")] = 5000,
    pooling: Pool = "model",
    max_length: LongestText = None,
    out: Out = None,
    columns: TextColumns = TextColumns(),
    common: Common = Common(),
) -> None:
    r"""Show what each layer of a model knows, and how similar its layers are.

    A linear probe learns the labels from the vectors of one layer. Its control learns
    labels that mean nothing: shuffled ones, or a random one for each word. What a
    probe has beyond its control (selectivity) tells of the layer. Without labels,
    only the layers are compared: by linear CKA, 1 for layers that are the same but
    for rotation and size.

    For example:

        bertkit visualize layers tweets.csv --model DIR --out layers.png
        bertkit visualize layers dev.iob2 --tags --model DIR
        bertkit visualize layers texts.txt --model DIR --with RUN --out both.png
    """
    common.begin()
    check_out(out, own_page=False)
    texts, labels = (_words if tags else _texts)(file, columns, label, word_column, tag_column)
    from bertkit.insight.layer_study import layers as study

    found = study(
        texts,
        labels,
        model,
        other=other,
        pooling=pooling,
        examples=examples,
        seed=common.seed,
        max_length=max_length,
        device=common.device,
    )
    show(found, out, common)


def _texts(file: Path, columns: TextColumns, label: str | None, word_column: int, tag_column: int) -> tuple[Any, Any]:
    if (word_column, tag_column) != (1, -1):
        raise ConfigError("--word-column and --tag-column go with --tags, which says that the file has tagged words")
    rows = text_rows(file, columns)
    return rows.texts, labels_of(file, label, rows)


def _words(file: Path, columns: TextColumns, label: str | None, word_column: int, tag_column: int) -> tuple[Any, Any]:
    from bertkit.tasks.reading.bad_rows import BadRows
    from bertkit.tasks.tokens.conll import ConllColumns
    from bertkit.tasks.tokens.reading import read_sentences

    if label is not None:
        raise ConfigError("--label names a column of a table of texts; with --tags, choose a column by --tag-column")
    if given := columns.given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        are, have, them = ("is", "has", "it") if len(given) == 1 else ("are", "have", "them")
        raise ConfigError(f"{options} {are} for tables of texts and {have} no effect with --tags; leave {them} out")
    found = read_sentences(
        file, ConllColumns(word_column, tag_column, encoding=columns.encoding), BadRows(gather=True), tagged=True
    )
    return [sentence.words for sentence in found], [sentence.tags for sentence in found]
