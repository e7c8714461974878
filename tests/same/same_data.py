"""The material of ``make same``: small corpora and labelled files in every format, the same bytes every time."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: What a tiny model can learn a label from.
GOOD = ("good", "fine", "great", "lovely", "brilliant")
BAD = ("bad", "poor", "awful", "sad", "dreadful")
FIRST = ("Ann", "Bob", "Eve", "Tom", "Zoë", "Max")
LAST = ("Lee", "Ray", "Kim", "Fox")
TOWNS = ("Rome", "Oslo", "Bonn", "Lima", "Riga", "Malmö")
PLAIN = tuple(
    "the a river film book day was is it very and went to saw in then home late by train old mill boats waited spring "
    "after rain slowly under bridge walked house never quite story told between long quiet evenings".split()
)
#: What tokenizers get wrong: accents, capitals, Chinese, numbers, punctuation, blanks of all kinds, long words.
DIFFICULT = (
    "Crème brûlée, à la carte!",
    "Straße und ÜBERGRÖSSE",
    "北京 was 3,141.59 km away - or not?",
    "don't stop... \t now (e-mail: a.b@c.org)",
    "unaffableness " + "x" * 120,
    "[MASK] and [SEP] in the text",
    "ﬁne ligatures, zero\u200bwidth, soft\u00adhyphen, é composed",
    "🙂 emoji are unknown 🙂🙂",
    " ",
)
LABELS = ("news", "sport", "arts")


def write_all(folder: Path) -> None:
    """Everything below ``folder``, which must exist."""
    write_corpus(folder / "corpus.txt", 120, seed=1)
    write_corpus(folder / "dev.txt", 24, seed=2)
    write_texts(folder / "texts.txt", 40, seed=3)
    write_texts(folder / "lines.txt", 120, seed=6)
    write_pair_lines(folder / "pair-lines.txt", 12, seed=4)
    write_documents(folder / "documents.jsonl", 30, seed=5)
    write_reviews(folder / "reviews", 96, 40)
    write_pairs(folder / "pairs", 96, 40)
    write_scored_pairs(folder / "STS-B", 96, 40)
    write_tagged_topics(folder / "topics", 96, 40)
    write_conll(folder / "ner", 120, 40)
    write_conll(folder / "words", 150, 8)
    write_squad(folder / "squad", 96, 24, no_answers=False)
    write_squad(folder / "squad2", 96, 24, no_answers=True)
    write_swag(folder / "swag", 96, 40)
    write_codah(folder / "codah", 64, 24)
    write_recipes(folder)


def sentence(chance: random.Random, shortest: int = 3, longest: int = 12) -> list[str]:
    """Some plain words."""
    return [chance.choice(PLAIN) for _ in range(chance.randint(shortest, longest))]


def write_corpus(path: Path, num_documents: int, seed: int) -> None:
    """Running text, a blank line between documents; a few documents stand there twice, or nearly."""
    chance = random.Random(seed)
    documents: list[str] = []
    for number in range(num_documents):
        if number % 20 == 19:
            documents.append(max(chance.sample(documents, 8), key=len).replace("river", "stream", 1))
            continue
        name = f"{chance.choice(FIRST)} {chance.choice(LAST)}"
        said = []
        for _ in range(chance.randint(2, 9)):
            words = sentence(chance)
            words.insert(chance.randrange(len(words)), chance.choice((name, *TOWNS, *GOOD, *BAD)))
            said.append(" ".join(words).capitalize() + chance.choice((".", ".", "?", "!")))
        if number % 10 == 0:
            said.append(chance.choice(DIFFICULT[:4]))
        documents.append(chance.choice((" ", "\n")).join(said))
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")


def write_documents(path: Path, num_documents: int, seed: int) -> None:
    """JSON lines with a document each, the column ``body``."""
    chance = random.Random(seed)
    rows = []
    for number in range(num_documents):
        text = ". ".join(" ".join(sentence(chance)).capitalize() for _ in range(4)) + "."
        rows.append(json.dumps({"id": number, "body": text}))
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def write_texts(path: Path, count: int, seed: int) -> None:
    """One text a line, of mixed lengths, the difficult ones among them."""
    chance = random.Random(seed)
    lines = [" ".join(sentence(chance, 1, 25)) for _ in range(count)]
    lines += [text.replace("\t", " ") for text in DIFFICULT if text.strip() and "[MASK]" not in text]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_pair_lines(path: Path, count: int, seed: int) -> None:
    """Two texts a line with a tab in between."""
    chance = random.Random(seed)
    lines = [" ".join(sentence(chance)) + "\t" + " ".join(sentence(chance)) for _ in range(count)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_reviews(folder: Path, num_train: int, num_dev: int) -> None:
    """Columns id, body, stars: one word decides; some texts are longer than a model reads."""
    for name, count, seed in (("train", num_train, 11), ("dev", num_dev, 12)):
        chance = random.Random(seed)
        rows = []
        for number in range(count):
            words = sentence(chance, 3, 60 if number % 7 == 0 else 14)
            words.insert(chance.randrange(len(words)), chance.choice((BAD, GOOD)[number % 2]))
            rows.append((f"{name}-{number}", " ".join(words), ("poor", "fine")[number % 2]))
        write_csv(folder / f"{name}.csv", ("id", "body", "stars"), rows)


def write_pairs(folder: Path, num_train: int, num_dev: int) -> None:
    """Columns text, text_pair, label: does the second say the same of it?"""
    for name, count, seed in (("train", num_train, 21), ("dev", num_dev, 22)):
        chance = random.Random(seed)
        rows = []
        for number in range(count):
            first, second = chance.choice((GOOD, BAD)), chance.choice((GOOD, BAD))
            texts = (" ".join([*sentence(chance, 2, 8), chance.choice(kind)]) for kind in (first, second))
            rows.append((*texts, "same" if first is second else "other" if number % 5 else "unclear"))
        write_csv(folder / f"{name}.csv", ("text", "text_pair", "label"), rows)


def write_scored_pairs(folder: Path, num_train: int, num_dev: int) -> None:
    """As STS-B: tab-separated, a score from 0 to 5, by how many words two texts share."""
    for name, count, seed in (("train", num_train, 31), ("dev", num_dev, 32)):
        chance = random.Random(seed)
        rows = []
        for number in range(count):
            words = [chance.choice(PLAIN) for _ in range(5)]
            shared = chance.randint(0, 5)
            other = words[:shared] + [chance.choice(GOOD + BAD) for _ in range(5 - shared)]
            rows.append((str(number), " ".join(words), " ".join(other), f"{shared:.3f}"))
        lines = ["\t".join(row) for row in (("index", "sentence1", "sentence2", "score"), *rows)]
        write_lines(folder / f"{name}.tsv", lines)


def write_tagged_topics(folder: Path, num_train: int, num_dev: int) -> None:
    """Columns text, label with any number of labels a row, as in ``news|sport``."""
    word_of = dict(zip(LABELS, ("report", "match", "paint"), strict=True))
    for name, count, seed in (("train", num_train, 41), ("dev", num_dev, 42)):
        chance = random.Random(seed)
        rows = []
        for _ in range(count):
            labels = [label for label in LABELS if chance.random() < 0.4]
            words = [*sentence(chance, 3, 10), *(word_of[label] for label in labels)]
            chance.shuffle(words)
            rows.append((" ".join(words), "|".join(labels)))
        write_csv(folder / f"{name}.csv", ("text", "label"), rows)


def write_conll(folder: Path, num_train: int, num_dev: int) -> None:
    """People of two names, towns, and other words; some dev sentences are longer than a model reads."""
    for name, count, seed in (("train", num_train, 51), ("dev", num_dev, 52)):
        chance = random.Random(seed)
        lines = []
        for number in range(count):
            for _ in range(chance.randint(1, 30 if number % 9 == 8 else 4)):
                kind = chance.randrange(3)
                if kind == 0:
                    lines += [f"{chance.choice(FIRST)}\tB-PER", f"{chance.choice(LAST)}\tI-PER"]
                elif kind == 1:
                    lines += ["in\tO", f"{chance.choice(TOWNS)}\tB-LOC"]
                lines.append(f"{chance.choice(PLAIN)}\tO")
            lines += [".\tO", ""]
        write_lines(folder / f"{name}.conll", lines)


def write_squad(folder: Path, num_train: int, num_dev: int, *, no_answers: bool) -> None:
    """The answer is the number in the text; with ``no_answers`` a third of the texts have none."""
    for name, count, seed in (("train", num_train, 61), ("dev", num_dev, 62)):
        articles: list[dict[str, Any]] = []
        for number in range(count):
            chance = random.Random(f"{seed}-{number}")
            words = chance.choices(PLAIN, k=chance.choice((6, 10, 60)))
            answer, place = str(chance.randrange(10)), chance.randrange(len(words))
            has_answer = not no_answers or number % 3 > 0
            if has_answer:
                words[place] = answer
            start = len(" ".join(words[:place])) + (place > 0)
            question = {
                "id": f"{name}-{number}",
                "question": f"{chance.choice(('what', 'how many'))} was it?",
                "is_impossible": not has_answer,
                "answers": [{"text": answer, "answer_start": start}] * 2 if has_answer else [],
            }
            articles.append({"title": str(number), "paragraphs": [{"context": " ".join(words), "qas": [question]}]})
        write_lines(folder / f"{name}.json", [json.dumps({"version": "2.0", "data": articles})])


def write_swag(folder: Path, num_train: int, num_dev: int) -> None:
    """The ending that says what the context says is right."""
    for name, count, seed in (("train", num_train, 71), ("val", num_dev, 72)):
        chance = random.Random(seed)
        rows = []
        for number in range(count):
            label = chance.randrange(4)
            endings = [" ".join(sentence(chance, 1, 4)) for _ in range(4)]
            word = chance.choice(GOOD)
            endings[label] += f" {word}"
            rows.append((number, f"{' '.join(sentence(chance))} {word}", "it was", *endings, label))
        columns = ("", "sent1", "sent2", "ending0", "ending1", "ending2", "ending3", "label")
        write_csv(folder / f"{name}.csv", columns, rows)


def write_codah(folder: Path, num_train: int, num_dev: int) -> None:
    """As CODAH: tab-separated, without a header."""
    for name, count, seed in (("train", num_train, 81), ("dev", num_dev, 82)):
        chance = random.Random(seed)
        lines = []
        for number in range(count):
            label = chance.randrange(4)
            endings = [" ".join(sentence(chance, 2, 5)) for _ in range(4)]
            endings[label] += " good"
            lines.append("\t".join(("o", f"{' '.join(sentence(chance))} {number}", *endings, str(label))))
        write_lines(folder / f"{name}.tsv", lines)


def write_recipes(folder: Path) -> None:
    """Two ways to pre-train, each 20 steps of a tiny model."""
    model = (
        "# Two layers of 32.\n[model]\nhidden_size = 32\nnum_hidden_layers = 2\nnum_attention_heads = 4\n"
        "intermediate_size = 64\nmax_position_embeddings = 64\n[training]\nmax_steps = 20\nbatch_size = 16\n"
        "max_seq_length = 48\nlearning_rate = 2e-3\ndev_examples = 64\neval_every_steps = 10\ncurve = false\n"
    )
    (folder / "pairs.toml").write_text(model + 'objective = "mlm+nsp"\nwarmup = 0.1\nshort_seq_length = 24\n')
    (folder / "order.toml").write_text(
        model + 'objective = "mlm+sop"\nmasking = "whole-word"\noptimizer = "lamb"\nschedule = "trapezoid"\n'
        'output_bias = "unigram"\nword_embeddings = "cooccurrence"\n'
    )
    (folder / "words.toml").write_text(
        model + 'objective = "mlm"\nmasking = "span"\noptimizer = "muon"\nschedule = "polynomial"\nmax_tokens = 256\n'
    )
    (folder / "original.toml").write_text(
        model + 'protocol = "original"\ndupe_factor = 2\nschedule = "original"\noptimizer = "adam-weight-decay"\n'
        "max_predictions_per_seq = 8\n"
    )


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *rows])


def write_lines(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
