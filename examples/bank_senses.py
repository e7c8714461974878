"""One word, several senses: "bank" as money, as the side of a river, as a store.

    python examples/bank_senses.py [--model FOLDER|HUB-NAME] [--out bank.png]

After the part of tutorials that contrasts word vectors with BERT's. A word vector is the same in every sentence, so it
cannot tell the senses apart; the vectors that BERT gives the word in its sentence can. The score is the adjusted Rand
index of groups found without the senses: 1 all right, 0 as by chance. The sentences come with bertkit, ten a sense.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bertkit import pipeline
from bertkit.insight.word_senses import SenseScores
from bertkit.visualize import senses
from material import heading, minilm_folder

#: Two sentences in which a bank is money, and one in which it is the side of a river.
SENTENCES = ("I paid the cheque into the bank.", "The bank lends money.", "We sat on the bank of the river.")


def one_word_three_sentences(model: str | Path) -> list[float]:
    """Cosines of "bank" in the first sentence with "bank" in the others: the same word, other vectors."""
    heading('"bank" in three sentences')
    pipe = pipeline("feature-extraction", model)
    vectors = []
    for sentence in SENTENCES:
        tokens = pipe.tokenizer.tokenize(sentence, add_special_tokens=True)
        vector = np.asarray(pipe(sentence))[0][tokens.index("bank")]
        vectors.append(vector / np.linalg.norm(vector))
    cosines = [float(vectors[0] @ other) for other in vectors[1:]]
    print(f"{SENTENCES[0]!r}: cosine of its 'bank' with that of")
    for sentence, cosine in zip(SENTENCES[1:], cosines, strict=True):
        print(f"  {cosine:.3f}  {sentence!r}")
    return cosines


def thirty_sentences(model: str | Path) -> SenseScores:
    """How far groups of the word's vectors are its senses, layer by layer."""
    heading('"bank" in thirty sentences')
    found = senses(model, words=["bank"])
    print(found.render())
    return found


def main(arguments: Sequence[str] | None = None) -> tuple[list[float], SenseScores]:
    """All steps; returns what they found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a BERT; default: MiniLM")
    parser.add_argument("--out", type=Path, help="write the picture: .png, .svg, .pdf, .html or (the numbers) .json")
    args = parser.parse_args(arguments)
    model = args.model or minilm_folder()
    cosines, found = one_word_three_sentences(model), thirty_sentences(model)
    if args.out is not None:
        print(f"\nwrote {found.save(args.out)}")
    return cosines, found


if __name__ == "__main__":
    main()
