"""What all arms of an ablation share: the vocabulary, the token stores, and pairs of sentences with labels."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from bertkit.ablations.plan import MADE, Corpus, Plan
from bertkit.data.corpus.documents import read_documents
from bertkit.data.corpus.store_folders import MANIFEST
from bertkit.data.store.prepare import prepare
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import ConfigError, DataError
from bertkit.system.atomic_files import awaited_lock, write_atomically
from bertkit.system.console import say
from bertkit.system.json_files import as_stored, read_json, write_json
from bertkit.tasks.registry import Task
from bertkit.tasks.text.csv_task import csv_task
from bertkit.tokenization.bert_tokenizer import BertTokenizer
from bertkit.tokenization.learn.word_counts import DEFAULT_MEMORY, count_words
from bertkit.tokenization.learn.wordpiece_learner import BYTES_PER_WORD, vocabulary_from_counts

#: Pairs of a made task: to learn from, and to score.
NUM_PAIRS = {"train": 8000, "dev": 2000}
#: Documents that pairs are drawn from.
MOST_DOCUMENTS = 4000
#: Words that each sentence of a pair has at least.
FEWEST_WORDS = 5
LABELS = {"next-sentence": ("next", "random"), "sentence-order": ("in order", "swapped")}


def find_data(plan: Plan, folder: Path | None) -> None:
    """Refuse a plan whose files are not there, before anything runs."""
    corpus = () if plan.corpus is None else (*plan.corpus.train, *plan.corpus.dev)
    wanted = [*corpus, *(m.data for m in plan.measures.values() if m.data is not None and m.data not in MADE)]
    if missing := [name for name in dict.fromkeys(wanted) if not ((folder or Path()) / name).exists()]:
        more = f" (and {len(missing) - 1} more)" if missing[1:] else ""
        where = "here; give the folder that has it with --data" if folder is None else f"in --data {folder}"
        raise DataError(f"plan {plan.name} reads {missing[0]}{more}, which is not {where}")


class SharedData:
    """A folder with ``tokenizer/``, the token stores ``train/`` and ``dev/``, and ``pairs/``; one process makes it."""

    def __init__(self, folder: Path, corpus: Corpus, data: Path) -> None:
        self.folder, self.corpus, self.data = folder, corpus, data

    def prepare(self) -> None:
        """Make what is not there yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        busy = "another process prepares it"

        def waiting() -> None:
            say(f"waiting for {self.folder}: {busy}")

        with awaited_lock(self.folder / ".lock", busy, waiting=waiting):
            self._check_corpus()
            tokenizer = self.folder / "tokenizer"
            if not (tokenizer / "tokenizer_config.json").exists():
                say(f"learning a vocabulary of {self.corpus.vocab_size:,} tokens")
                documents = read_documents(self._paths("train"), sentences="line")
                texts = (sentence for document in documents for sentence in document.sentences)
                with count_words(texts, True) as counted:
                    counts = counted.most_frequent(DEFAULT_MEMORY // BYTES_PER_WORD)
                learned = vocabulary_from_counts(counts, self.corpus.vocab_size)
                BertTokenizer({token: n for n, token in enumerate(learned)}, True).save_pretrained(tokenizer)
            for split in ("train", "dev"):
                if not (self.folder / split / MANIFEST).exists():
                    prepare(self._paths(split), tokenizer, self.folder / split, workers=1)

    def _check_corpus(self) -> None:
        """Refuse a folder that was made of other text: names, sizes of files and of the vocabulary."""
        sizes = {name: _num_bytes(self.data / name) for name in (*self.corpus.train, *self.corpus.dev)}
        ours, place = as_stored({**self.corpus.model_dump(), "bytes": sizes}), self.folder / "corpus.json"
        if place.exists() and (theirs := read_json(place, dict)) != ours:
            changed = ", ".join(key for key in ours if ours[key] != theirs.get(key))
            raise ConfigError(f"{self.folder} was made of another corpus (other values in {changed}): choose another")
        write_json(place, ours)

    def store(self, split: str) -> TokenStore:
        """The prepared text of a split."""
        return TokenStore(self.folder / split)

    def pairs(self, name: str) -> Task:
        """A task of pairs from the text, written where it is missing to :meth:`pairs_folder`."""
        folder = self.pairs_folder(name)
        for split, count in NUM_PAIRS.items():
            if not (path := folder / f"{split}.csv").exists():
                folder.mkdir(parents=True, exist_ok=True)
                write_atomically(path, _table(self._documents(split), name, count))
        return csv_task(folder, text="text", text_pair="text_pair", label="label", labels=LABELS[name])

    def pairs_folder(self, name: str) -> Path:
        """Where :meth:`pairs` are."""
        return self.folder / "pairs" / name

    def _documents(self, split: str) -> list[Sequence[str]]:
        found = islice(read_documents(self._paths(split)), MOST_DOCUMENTS)
        kept = ([text for text in document.sentences if len(text.split()) >= FEWEST_WORDS] for document in found)
        return [sentences for sentences in kept if len(sentences) > 1]

    def _paths(self, split: str) -> list[str]:
        return [str(self.data / name) for name in getattr(self.corpus, split)]


def _num_bytes(place: Path) -> int:
    """Of a file, or of all files in a folder."""
    return sum(file.stat().st_size for file in (place, *place.rglob("*")) if file.is_file())


def _table(documents: list[Sequence[str]], name: str, count: int) -> str:
    """Pairs of neighbours, half of them swapped, or with a sentence of another document in place of the second."""
    draw = random.Random(f"{name} {count}")
    if len(documents) < 2:
        raise ConfigError("the corpus has fewer than two documents with two sentences; pairs cannot be made of it")
    places = [(number, at) for number, document in enumerate(documents) for at in range(len(document) - 1)]
    buffer = io.StringIO()
    rows = csv.writer(buffer, lineterminator="\n")
    rows.writerow(("text", "text_pair", "label"))
    for number, at in draw.sample(places, min(count, len(places))):
        first, second = documents[number][at : at + 2]
        is_true = draw.random() < 0.5
        if not is_true and name == "sentence-order":
            first, second = second, first
        elif not is_true:
            other = draw.randrange(len(documents) - 1)
            second = draw.choice(documents[other + (other >= number)])
        rows.writerow((first, second, LABELS[name][0 if is_true else 1]))
    return buffer.getvalue()
