"""Small files of tagged words, of choices and of questions, which tiny models learn in seconds."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from finetune_data import start_with_words
from pipeline_helpers import WORDS

FIRST = ["ann", "bob", "eve", "tom", "zoe", "max"]
LAST = ["lee", "ray", "kim", "fox"]
TOWNS = ["rome", "oslo", "bonn", "lima", "riga"]
OTHER = ["the", "a", "went", "to", "saw", "in", "and", "then", "home", "late", "by", "train"]
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
