"""Small files of every kind, which tiny models learn in seconds."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bertkit
from bertkit.tokenization import BertTokenizer
from finetune_data import start_with_words
from pipeline_helpers import WORDS

FIRST = ["ann", "bob", "eve", "tom", "zoe", "max"]
LAST = ["lee", "ray", "kim", "fox"]
TOWNS = ["rome", "oslo", "bonn", "lima", "riga"]
OTHER = ["the", "a", "went", "to", "saw", "in", "and", "then", "home", "late", "by", "train"]
LISTED = "ash bay cod dew elm fig gem hay ivy jam kit log map nut oak pea".split()
# Without articles: an answer "a" counts as empty in the official scores, but not in their search for a threshold.
PLAIN = [word for word in WORDS if word.isalpha() and word not in ("a", "the")]


def tagger_start(folder: Path) -> Path:
    """A tiny random BERT whose vocabulary cuts towns in two."""
    towns = sorted({town[:2] for town in TOWNS} | {f"##{town[2:]}" for town in TOWNS})
    return start_with_words([*FIRST, *LAST, *OTHER, *towns, *".,!?"], folder, width=32, layers=2, heads=4)


def sentences(count: int, seed: int, longest: int = 5) -> str:
    """CoNLL text: people of two names, towns, and words that are neither."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        for _ in range(int(rng.integers(1, longest))):
            kind = int(rng.integers(3))
            if kind == 0:
                lines += [f"{rng.choice(FIRST).title()}\tB-PER", f"{rng.choice(LAST).title()}\tI-PER"]
            elif kind == 1:
                lines += ["in\tO", f"{rng.choice(TOWNS).title()}\tB-LOC"]
            lines += [f"{rng.choice(OTHER)}\tO"]
        lines += [".\tO", ""]
    return "\n".join(lines) + "\n"


def write_choices(path: Path, count: int, seed: int) -> Path:
    """The choice that says what the context says is right."""
    generator = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["", "sent1", "sent2", "ending0", "ending1", "label"])
        for number in range(count):
            label = int(generator.integers(2))
            filler = " ".join(generator.choice(["the", "film", "of", "scene"], 3))
            good, bad = ("good", "bad") if generator.random() < 0.5 else ("bad", "good")
            endings = (good, bad) if label == 0 else (bad, good)
            rows.writerow([number, f"{good} {filler}", "it is", *endings, label])
    return path


def write_questions(path: Path, count: int, seed: int, *, no_answers: bool) -> None:
    """The answer is the number in the text; where questions may have no answer, a third of the texts have no number."""
    articles: list[dict[str, Any]] = []
    for number in range(count):
        generator = random.Random(f"{seed}-{number}")
        words = generator.choices(PLAIN, k=generator.choice([6, 10, 60]))
        answer = str(generator.randrange(10))
        place = generator.randrange(len(words))
        has_answer = not no_answers or number % 3 > 0
        if has_answer:
            words[place] = answer
        context = " ".join(words)
        start = len(" ".join(words[:place])) + (place > 0)
        question = {
            "id": f"{path.stem}-{number}",
            "question": "what was it?",
            "is_impossible": not has_answer,
            "answers": [{"text": answer, "answer_start": start}] * 2 if has_answer else [],
        }
        articles.append({"title": str(number), "paragraphs": [{"context": context, "qas": [question]}]})
    path.write_text(json.dumps({"version": "2.0", "data": articles}))


def write_queries(path: Path, count: int, seed: int) -> Path:
    """A document that says something good of a film is relevant, which BM25 cannot know."""
    generator = np.random.default_rng(seed)
    with path.open("w") as file:
        file.write("query,document,label\n")
        for number in range(count):
            fillers = [" ".join(generator.choice(["the", "film", "of", "scene"], 3)) for _ in range(3)]
            for place, filler in enumerate(fillers):
                said = "great" if place == number % 3 else "dull"
                file.write(f"a film {1000 * seed + number},{said} {filler} {place},{int(place == number % 3)}\n")
    return path


def write_reversed(folder: Path) -> Path:
    """Lists of two or three words, and the same reversed; no list of dev is in train."""
    folder.mkdir(parents=True)
    chance, lists = random.Random(0), set[tuple[str, ...]]()
    while len(lists) < 2100:
        lists.add(tuple(chance.sample(LISTED, chance.randint(2, 3))))
    rows = [{"words": " ".join(words), "reversed": " ".join(reversed(words))} for words in sorted(lists)]
    chance.shuffle(rows)
    for name, part in (("train", rows[:2000]), ("dev", rows[2000:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    return folder


def encoder_decoder(
    folder: Path,
    words: list[str],
    family: str = "bart",
    *,
    head: str = "ForConditionalGeneration",
    width: int = 64,
    ffn: int = 256,
    layers: int = 2,
    heads: int = 4,
    longest: int = 512,
    **changes: Any,
) -> Path:
    """A random BART or T5 with a tokenizer of these words."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "words.txt").write_text("\n".join(names) + "\n")
    BertTokenizer(folder / "words.txt", model_max_length=longest).save_pretrained(folder)
    (folder / "words.txt").unlink()
    values: dict[str, Any] = {"vocab_size": len(names), "d_model": width, "pad_token_id": 0, "eos_token_id": 3}
    if family == "t5":
        values |= {"d_kv": width // heads, "d_ff": ffn, "num_layers": layers, "num_heads": heads}
        values |= {"decoder_start_token_id": 0}
    else:
        tower = {"layers": layers, "ffn_dim": ffn, "attention_heads": heads}
        values |= {f"{name}_{key}": value for name in ("encoder", "decoder") for key, value in tower.items()}
        values |= {"bos_token_id": 2, "decoder_start_token_id": 3, "forced_eos_token_id": 3}
        values |= {"max_position_embeddings": 64}
    prefix = family.capitalize()
    torch.manual_seed(0)
    shape = getattr(bertkit, f"{prefix}Config")(**values, **changes)
    getattr(bertkit, prefix + head)(shape).save_pretrained(folder)
    return folder
