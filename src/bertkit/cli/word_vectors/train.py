"""``bertkit word-vectors train``: word vectors of a corpus."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bertkit.cli.common_options import Common, Corpus, check_format, paths_of
from bertkit.system.console import say


@Parameter(name="*")
@dataclass(frozen=True)
class WordOptions:
    """Which words have a vector, and how it is learned."""

    method: Annotated[
        Literal["cooccurrence", "skip-gram"],
        Parameter(help="Factors of co-occurrence counts, or skip-gram with negative sampling (extra gensim)."),
    ] = "cooccurrence"
    dimensions: Annotated[int, Parameter(help="Numbers of a vector.")] = 128
    window: Annotated[int, Parameter(help="Words on each side that count as near.")] = 8
    min_count: Annotated[int, Parameter(help="Leave out words that occur less often.")] = 5
    max_vocabulary: Annotated[int, Parameter(help="Keep only so many words, the most frequent.")] = 100_000
    cased: Annotated[bool, Parameter(negative=(), help="Keep capitals and accents.")] = False
    epochs: Annotated[int, Parameter(help="Epochs of skip-gram.")] = 5
    text: Annotated[str | None, Parameter(help="Text column of .jsonl and .parquet files.")] = None


def train(
    *corpus: Corpus,
    out: Annotated[Path, Parameter(alias="-o", help="File to write: .vec or .txt, or compressed .vec.gz, .txt.gz.")],
    options: WordOptions = WordOptions(),
    common: Common = Common(),
) -> None:
    """Learn word vectors from a corpus.

    Words are those of BERT, before it cuts them into pieces. OUT is in word2vec's text
    format, the most frequent words first.

    For example:

        bertkit word-vectors train text.txt --out own.vec
        bertkit word-vectors nearest bank --vectors own.vec
    """
    common.refuse_device("word vectors are learned on the CPU")
    common.begin()
    from dataclasses import asdict

    from bertkit.engine.static.vector_files import TEXT_ENDINGS
    from bertkit.errors import ConfigError
    from bertkit.training.word_vectors.learn_words import learn_words

    if not out.name.endswith(TEXT_ENDINGS):
        raise ConfigError(f"--out {out}: unknown format; the name must end in {', '.join(TEXT_ENDINGS)}")
    check_format(out, (out.suffix,))
    found = learn_words(paths_of(corpus, "learn from"), seed=common.seed, **asdict(options))
    found.save(out)
    say(f"wrote {len(found):,} vectors of {found.vectors.shape[1]} numbers to {out}")
    if common.json:
        common.show({"out": str(out), "words": len(found), "dimensions": found.vectors.shape[1]}, "")
