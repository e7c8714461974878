r"""Make bertkit-tiny-en, the model in the package, from its teacher and from English text.

    python packaging/included_model.py --teacher MINILM --text wikipedia_en.train.txt.xz wikinews_en.train.txt.xz \
        --work WORK --out src/bertkit/included/bertkit-tiny-en

MINILM is sentence-transformers/all-MiniLM-L6-v2, or a folder of it. In WORK everything is kept that takes long, so that
the same command goes on after a stop. The card and the licence in OUT stay as they are. See docs/decisions/0193.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from bertkit.config.config_file import CONFIG
from bertkit.data.corpus.documents import read_documents
from bertkit.data.store.prepare import prepare
from bertkit.data.store.store_manifest import MANIFEST
from bertkit.data.store.token_store import TokenStore
from bertkit.model.fingerprint import FINGERPRINT, fingerprint
from bertkit.model.models import BertForPreTraining
from bertkit.system.json_files import write_json
from bertkit.training.distillation.distill_settings import Student, load_recipe
from bertkit.training.distillation.distill_vectors import distill_vectors
from bertkit.training.distillation.shrink import shrink
from bertkit.training.distillation.students import start_of
from bertkit.training.pretraining import pretrain_settings
from bertkit.training.pretraining.initial_model import make_network
from bertkit.training.pretraining.pretrain import pretrain

#: Of the two recipes: masked words, then masked words and vectors.
RECIPE = "bertkit-tiny-en"
#: What pre-training begins with.
START = Student(shape="2x256", teacher_embeddings=True, initializer_range=0.05)
#: How often a token must occur to stay in the vocabulary.
MIN_COUNT = 30
#: Words of a sentence and of a paragraph, and how many of each are taught.
SENTENCES, PARAGRAPHS = (range(4, 41), 320_000), (range(41, 101), 20_000)
#: Bits of a 16-bit number's fraction that are kept, of 10: the others are 0, so that a wheel takes less room.
FRACTION_BITS = 3


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", required=True, help="all-MiniLM-L6-v2")
    parser.add_argument("--text", nargs="+", type=Path, required=True, help="files, as for 'bertkit prepare'")
    parser.add_argument("--work", type=Path, required=True, help="folder for what is made on the way")
    parser.add_argument("--out", type=Path, required=True, help="folder of the model")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    small = begin(args.teacher, args.text, args.work)
    store = args.work / "store"
    if not (store / MANIFEST).is_file():  # which is written last
        prepare(args.text, small, store)
    learn_words(TokenStore(store), small, args.work / "words")
    texts = args.work / "texts.txt"
    if not texts.is_file():
        texts.write_text("".join(f"{text}\n" for text in texts_of(args.text)), encoding="utf-8")
    recipe = replace(load_recipe(RECIPE), student=Student(model=str(args.work / "words/model")))
    result = distill_vectors(args.teacher, texts, args.work / "vectors", recipe, outputs=args.work / "outputs")
    print(result.render())
    write(args.work / "vectors/model", args.out)


def begin(teacher: str, files: list[Path], work: Path) -> Path:
    """New weights with the teacher's embeddings of the tokens that occur in the text."""
    small = work / "small"
    if not small.is_dir():
        name = "BertForMaskedLM"
        start = start_of(START, teacher, work / "start", model_class=name, new_class=name)
        print(shrink(start, small, vocab_from=files, min_count=MIN_COUNT).render())
    return small


def learn_words(store: TokenStore, start: Path, out: Path) -> None:
    """Pre-train all but the word embeddings, which would forget what rare words mean."""
    settings = pretrain_settings.load_recipe(RECIPE).training
    network, _ = make_network(start, store, settings)
    assert isinstance(network, BertForPreTraining)
    network.bert.embeddings.word_embeddings.requires_grad_(False)
    pretrain(store, out, settings, model=network)


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
    """Copy a model with weights of 16 bits, of which the last are 0, and its fingerprint; what else is there stays."""
    out.mkdir(parents=True, exist_ok=True)
    for file in sorted(model.rglob("*")):
        target = out / file.relative_to(model)
        if not file.is_file() or file.name == "README.md":
            continue
        target.parent.mkdir(exist_ok=True)
        if file.suffix == ".safetensors":
            weights = {name: rounded(x) for name, x in load_file(file).items()}
            save_file(weights, target, metadata={"format": "pt"})
        else:
            target.write_bytes(file.read_bytes())
    config = json.loads((out / CONFIG).read_text(encoding="utf-8"))
    # Other software would compute in the 16 bits of the file; bertkit never does.
    write_json(out / CONFIG, {**config, "torch_dtype": "float32"})
    write_json(out / FINGERPRINT, fingerprint(out).to_dict())


def rounded(x: np.ndarray) -> np.ndarray:
    """To the nearest number with :data:`FRACTION_BITS` bits of fraction, float16."""
    drop = 10 - FRACTION_BITS
    bits = x.astype(np.float16).view(np.uint16).astype(np.uint32)
    return ((bits + (1 << (drop - 1))) >> drop << drop).astype(np.uint16).view(np.float16)


if __name__ == "__main__":
    main()
