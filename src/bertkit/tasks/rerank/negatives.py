"""Documents that are near to a query and not known to be relevant: what a reranker has to tell from those that are.

Found among all documents of a file, by BM25 or by the vectors of a model. A document that nobody labelled may be
relevant all the same. By vectors, such a one is left out if it is nearly as near as a relevant one (Moreira et al.
2024, "NV-Retriever", TopK-PercPos); by words nothing is, because a hard negative often shares more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bertkit.config.sentence_config import QUERY
from bertkit.metrics.bm25 import BM25
from bertkit.metrics.vector_similarity import unit_vectors
from bertkit.model.sentence_model import SentenceModel
from bertkit.ragged import Floats, Ints
from bertkit.system.console import Progress, say
from bertkit.system.model_sources import resolve
from bertkit.tasks.embeddings.vectors import VectorEngine
from bertkit.tasks.examples import Examples
from bertkit.tasks.hold_out import plain_text
from bertkit.tasks.rerank.features import numbers_of_documents
from bertkit.tasks.rerank.task import BM25_SEARCH, RerankExample
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.features import featurize_texts
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: A document whose cosine reaches this share of the lowest one of the query's relevant documents may be relevant too.
NEARLY = 0.95
#: Queries whose vectors are compared with those of all documents at once.
BLOCK = 256
#: So many more documents are looked at than needed, because some may be those of the query in other letters or blanks.
SPARE = 16
#: From the number of a query, the numbers of its relevant documents and how many are wanted, to the nearest documents.
Search = Callable[[int, Sequence[int], int], Ints]


def add_negatives(examples: Examples[RerankExample], count: int, searcher: str) -> Examples[RerankExample]:
    """The examples, labelled ones each with up to ``count`` more documents of the others as not relevant."""
    if not count or any(example.gains is None for example in examples):
        return examples
    numbers = numbers_of_documents(examples)
    documents, plain = list(numbers), [plain_text(text) for text in numbers]
    search = _by_words(examples, documents) if searcher == BM25_SEARCH else _by_vectors(examples, documents, searcher)
    found, added = [], 0
    with Progress(len(examples), label="finding negatives", unit="queries") as shown:
        for row, example in enumerate(examples):
            own = [numbers[text] for text in example.documents]
            same = {plain[number] for number in own}
            assert example.gains is not None
            relevant = [number for number, gain in zip(own, example.gains, strict=True) if gain > 0]
            near = search(row, relevant, count + len(own) + SPARE).tolist()
            chosen = [documents[number] for number in near if plain[number] not in same][:count]
            added += len(chosen)
            gains = (*example.gains, *[0.0] * len(chosen))
            found.append(replace(example, documents=(*example.documents, *chosen), gains=gains))
            shown.advance()
    say(f"found {added:,} negatives for {len(examples):,} queries among {len(documents):,} documents ({searcher})")
    return Examples(found, examples.path, examples.split, examples.skipped)


def _by_words(examples: Sequence[RerankExample], documents: Sequence[str]) -> Search:
    index = BM25(documents)
    return lambda row, relevant, count: index.search(examples[row].query, count)[0]


def _by_vectors(examples: Sequence[RerankExample], documents: Sequence[str], model: str) -> Search:
    path = resolve(model)
    engine, tokenizer = VectorEngine(SentenceModel.from_pretrained(path)), AutoTokenizer.from_pretrained(path)
    config = engine.model.head.config
    vectors_DW = _vectors(engine, tokenizer, documents, config.document_prompt, "documents")
    queries_QW = _vectors(engine, tokenizer, [example.query for example in examples], QUERY, "queries")
    block: tuple[int, Floats] = (-1, vectors_DW)

    def search(row: int, relevant: Sequence[int], count: int) -> Ints:
        nonlocal block
        first = row - row % BLOCK
        if block[0] != first:
            block = (first, queries_QW[first : first + BLOCK] @ vectors_DW.T)
        cosines = block[1][row - first]
        bound = NEARLY * min((float(cosines[number]) for number in relevant), default=np.inf)
        candidates = np.flatnonzero(cosines < bound)
        if len(candidates) > count:
            candidates = candidates[np.argpartition(-cosines[candidates], count)[:count]]
        return candidates[np.argsort(-cosines[candidates], kind="stable")]

    return search


def _vectors(
    engine: VectorEngine, tokenizer: PreTrainedTokenizer, texts: Sequence[str], prompt_name: str, what: str
) -> Floats:
    """Vectors of length 1, ``(texts, width)``, of texts behind a prompt; long texts are truncated."""
    config, longest = engine.model.head.config, engine.model.encoder.config.max_input_length
    prompt = config.prompt(prompt_name=prompt_name)
    limit = min(longest, config.max_length or tokenizer.model_max_length)
    rows = featurize_texts([prompt + text for text in texts], None, tokenizer, max_length=limit)
    return unit_vectors(engine.shown_vectors(rows, label=f"encoding {what}"))
