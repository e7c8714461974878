r"""Make bertkit-tiny-en, the model in the package, from its teacher and from English text.

    python packaging/included_model.py --teacher MINILM --text wikipedia_en.train.txt.xz wikinews_en.train.txt.xz \
        --work WORK --out src/bertkit/included/bertkit-tiny-en

MINILM is sentence-transformers/all-MiniLM-L6-v2, or a folder of it. In WORK everything is kept that takes long, so that
the same command goes on after a stop. The card and the licence in OUT stay as they are. See docs/decisions/0193.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from bertkit.data.corpus.documents import read_documents
from bertkit.training.distillation.distill_vectors import distill_vectors
from bertkit.training.distillation.shrink import shrink

RECIPE = "bertkit-tiny-en"
#: Words of a sentence and of a paragraph, how many of each there are at most, and how often a token of the text occurs.
SENTENCES, PARAGRAPHS, TOKENS = (range(4, 41), 320_000), (range(41, 101), 20_000), 30
#: Bits of a 16-bit number's fraction that are kept, of 10: the others are 0, so that a wheel takes less room.
FRACTION_BITS = 4


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", required=True, help="all-MiniLM-L6-v2")
    parser.add_argument("--text", nargs="+", type=Path, required=True, help="files, as for 'bertkit prepare'")
    parser.add_argument("--work", type=Path, required=True, help="folder for what is made on the way")
    parser.add_argument("--out", type=Path, required=True, help="folder of the model")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    texts, shrunk = args.work / "texts.txt", args.work / "shrunk"
    if not texts.is_file():
        texts.write_text("".join(f"{text}\n" for text in texts_of(args.text)), encoding="utf-8")
    result = distill_vectors(args.teacher, texts, args.work / "run", RECIPE, outputs=args.work / "outputs")
    print(result.render())
    if not shrunk.is_dir():
        print(shrink(args.work / "run/model", shrunk, vocab_from=args.text, min_count=TOKENS).render())
    write(shrunk, args.out)


def texts_of(files: list[Path]) -> list[str]:
    """Sentences and paragraphs, in an order that depends on nothing but their words."""
    found: list[str] = []
    for sentences, (words, count) in (("split", SENTENCES), ("line", PARAGRAPHS)):
        documents = read_documents(files, sentences=sentences)
        found += first_by_hash(
            (text for each in documents for text in each.sentences if len(text.split()) in words), count
        )
    return found


def first_by_hash(texts: Iterable[str], count: int) -> list[str]:
    """So many of the different texts."""
    return sorted(set(texts), key=lambda text: hashlib.sha256(text.encode()).digest())[:count]


def write(model: Path, out: Path) -> None:
    """Copy a model with weights of 16 bits, of which the last are 0."""
    out.mkdir(parents=True, exist_ok=True)
    for file in sorted(model.rglob("*")):
        target = out / file.relative_to(model)
        if file.is_file() and file.name != "README.md":
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(file.read_bytes())
    weights = {name: rounded(x) for name, x in load_file(model / "model.safetensors").items()}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})


def rounded(x: np.ndarray) -> np.ndarray:
    """To the nearest number with :data:`FRACTION_BITS` bits of fraction, float16."""
    drop = 10 - FRACTION_BITS
    bits = x.astype(np.float16).view(np.uint16).astype(np.uint32)
    return ((bits + (1 << (drop - 1))) >> drop << drop).astype(np.uint16).view(np.float16)


if __name__ == "__main__":
    main()
