"""Pre-training data made as by the original code, for comparison in prepare_speed.py: plain Python, one core.

    python benchmarks/original_data.py LINES.txt --vocab vocab.txt --out features.bin

Text with one sentence per line goes through a character-by-character tokenizer and WordPiece without a cache. All
documents stay in memory. Every example is generated once (``dupe_factor`` 1), masked, padded to 128 tokens and written
as 32-bit integers (which is cheaper than the original's TFRecords). The examples come from ``bertkit.classic``. Prints
one line of JSON with the seconds of each part. About 2.5 s per MB.
"""

from __future__ import annotations

import argparse
import json
import time
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from bertkit.classic import TrainingInstance, create_instances_from_document

LENGTH, PREDICTIONS, RATE, SHORT = 128, 20, 0.15, 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=Path, help="one sentence per line, a blank line between documents")
    parser.add_argument("--vocab", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    started = time.perf_counter()
    tokenizer = PlainTokenizer(args.vocab)
    documents = read(args.lines, tokenizer)
    tokenized = time.perf_counter()
    instances = make_instances(documents, list(tokenizer.vocab), Random(12345))
    made = time.perf_counter()
    write(instances, tokenizer.vocab, args.out)
    written = time.perf_counter()
    print(
        json.dumps(
            {
                "instances": len(instances),
                "tokenize_s": tokenized - started,
                "instances_s": made - tokenized,
                "write_s": written - made,
                "seconds": written - started,
            }
        )
    )


class PlainTokenizer:
    """Lower-casing BERT tokenization, straight from the algorithm, without any cache.

    Args:
        vocab_file: one token per line.
    """

    def __init__(self, vocab_file: Path) -> None:
        tokens = vocab_file.read_text(encoding="utf-8").split("\n")
        self.vocab = {token: number for number, token in enumerate(tokens) if token}

    def tokenize(self, text: str) -> list[str]:
        """The word pieces of a text."""
        return [piece for word in words(text) for piece in self.pieces(word)]

    def pieces(self, word: str) -> list[str]:
        """Greedy longest match from the left; a word that cannot be covered becomes one unknown token."""
        if len(word) > 200:
            return ["[UNK]"]
        found: list[str] = []
        start = 0
        while start < len(word):
            end = len(word)
            while end > start:
                piece = word[start:end] if start == 0 else "##" + word[start:end]
                if piece in self.vocab:
                    break
                end -= 1
            if end == start:
                return ["[UNK]"]
            found.append(piece)
            start = end
        return found


def words(text: str) -> Iterator[str]:
    """The steps of the algorithm in sequence, each over all characters."""
    for token in space_out_chinese(clean(text)).split():
        yield from split_at_punctuation(strip_accents(token.lower()))


def clean(text: str) -> str:
    """Remove control characters, and replace all whitespace with blanks."""
    kept = [char for char in text if ord(char) not in (0, 0xFFFD) and not is_control(char)]
    return "".join(" " if is_space(char) else char for char in kept)


def space_out_chinese(text: str) -> str:
    """Put blanks around every Chinese character."""
    return "".join(f" {char} " if is_chinese(ord(char)) else char for char in text)


def strip_accents(token: str) -> str:
    """Decompose characters and remove combining marks."""
    return "".join(char for char in unicodedata.normalize("NFD", token) if unicodedata.category(char) != "Mn")


def split_at_punctuation(token: str) -> Iterator[str]:
    """Split so that every punctuation character is a word."""
    word: list[str] = []
    for char in token:
        if not is_punctuation(char):
            word.append(char)
            continue
        if word:
            yield "".join(word)
        yield char
        word = []
    if word:
        yield "".join(word)


def is_space(char: str) -> bool:
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def is_control(char: str) -> bool:
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def is_punctuation(char: str) -> bool:
    code = ord(char)
    if 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:
        return True
    return unicodedata.category(char).startswith("P")


def is_chinese(code: int) -> bool:
    return (
        0x4E00 <= code <= 0x9FFF
        or 0x3400 <= code <= 0x4DBF
        or 0x20000 <= code <= 0x2CEAF
        or 0xF900 <= code <= 0xFAFF
        or 0x2F800 <= code <= 0x2FA1F
    )


def read(lines: Path, tokenizer: PlainTokenizer) -> list[list[list[str]]]:
    """All documents, tokenized, in memory."""
    documents: list[list[list[str]]] = [[]]
    with lines.open(encoding="utf-8") as file:
        for line in file:
            sentence = line.strip()
            if not sentence:
                documents.append([])
            elif tokens := tokenizer.tokenize(sentence):
                documents[-1].append(tokens)
    return [document for document in documents if document]


def make_instances(documents: list[list[list[str]]], vocab: Sequence[str], chance: Random) -> list[TrainingInstance]:
    """One pass over the documents, shuffled before and after."""
    chance.shuffle(documents)
    instances: list[TrainingInstance] = []
    for number in range(len(documents)):
        instances += create_instances_from_document(documents, number, LENGTH, SHORT, RATE, PREDICTIONS, vocab, chance)
    chance.shuffle(instances)
    return instances


def write(instances: list[TrainingInstance], vocab: dict[str, int], out: Path) -> None:
    """Write ids, mask, segments, positions, labels, weights and next-sentence label of each example, padded."""
    with out.open("wb") as file:
        for one in instances:
            rest, left = LENGTH - len(one.tokens), PREDICTIONS - len(one.masked_lm_positions)
            row = [vocab[token] for token in one.tokens] + [0] * rest
            row += [1] * len(one.tokens) + [0] * rest
            row += one.segment_ids + [0] * rest
            row += one.masked_lm_positions + [0] * left
            row += [vocab[label] for label in one.masked_lm_labels] + [0] * left
            row += [1] * len(one.masked_lm_positions) + [0] * left
            row.append(int(one.is_random_next))
            file.write(array("i", row).tobytes())


if __name__ == "__main__":
    main()
