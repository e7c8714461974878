"""Questions of SQuAD to their paragraphs among all paragraphs of 28 articles, cross-fitted by article in two halves.

    python benchmarks/retrieval.py --data ../shared/data --work retrieval --out benchmarks/results/retrieval.md

The questions are those of SQuAD v1.1 dev, more than in the files beside it; one that is asked twice of a paragraph
counts once. The halves are every other article. Each question searches the paragraphs of both halves.

- ``BM25``: by words. ``MiniLM``: by vectors of MiniLM-L6 as it is; every paragraph is compared.
- ``trained``: by those of MiniLM-L6 after `finetune pairs` on questions and paragraphs of the other half.
- ``+ BM25``: both searches, as by `bertkit search query --by both`.
- ``trained + reranker``: the first of ``trained``, in the order of a model that `finetune rerank` made of
  that encoder, with negatives that the encoder found in the other half. Some questions only, drawn from both halves.
  ``fused``: that order and the one before it, by reciprocal ranks.

The last two articles of each half are no training data but dev, by whose scores settings may be chosen, never by those
of the half that is scored. Differences are paired by question; their intervals come from a bootstrap of the articles,
because questions of an article are alike.

What is finished is kept in the work folder: run the same command again to continue.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from machine import about, block, minilm_folder, publish
from retrieval_data import FILE, Ints, Squad, ranks_fused, some

if TYPE_CHECKING:
    from bertkit.training.finetuning.finetune_results import FinetuneResult

#: Questions of the dev articles that a reranker is scored on.
RERANK_DEV = 150
METRICS = ("ndcg@10", "mrr@10", "recall@1", "recall@10")
#: Paragraphs that are found for each question.
DEPTH = 20
#: Tokens of a text that the encoder reads, and of a question with its paragraph that the reranker reads.
LENGTH, RERANK_LENGTH = 256, 320
#: Tokens of a batch of the encoder at most, so that none is computed twice.
IN_MEMORY = 16_384
#: Questions whose new order is written to disk at once.
PART = 50
#: Of the names of systems.
HYBRID, RERANKED, FUSED = " + BM25", "trained + reranker", "trained + reranker, fused"
#: (a, b): how much better a is than b.
COMPARED = (
    ("trained", "MiniLM"),
    (RERANKED, "trained"),
    (FUSED, "trained"),
    (FUSED, RERANKED),
    ("trained + BM25", "trained"),
    ("trained + BM25", "BM25"),
    ("MiniLM + BM25", "MiniLM"),
    ("MiniLM + BM25", "BM25"),
    ("trained", "BM25"),
)

#: The ``orders`` of paragraphs for some ``questions``, all by their numbers, the ``seconds`` that it took, and more.
Cell = dict[str, Any]


def main() -> None:
    args = parse_args()
    import torch

    torch.set_num_threads(args.threads)
    args.work.mkdir(parents=True, exist_ok=True)
    settings = {name: value for name, value in vars(args).items() if name not in ("data", "work", "out", "threads")}
    begun = kept(args.work / "settings.json", lambda: settings)
    if others := [name for name, value in settings.items() if begun[name] != value]:
        raise SystemExit(f"{args.work} was begun with another {', '.join(others)}: give the same, or another --work")
    squad = Squad.read(args.data / FILE, args.max_questions)
    everything, sample = list(range(len(squad.questions))), some(len(squad.questions), args.reranked)
    halves = [search_half(args, squad, half, sample) for half in (0, 1)]
    tables = [everything] if args.untrained else [everything, sample]
    without = {"questions", "orders"}
    report = {
        "about": about(args.threads),
        "settings": {name: value for name, value in settings.items() if value is not None and not args.untrained},
        "data": facts_of(squad),
        "halves": [
            {name: {key: cell[key] for key in cell.keys() - without} for name, cell in cells.items()}
            for cells in halves
        ],
        "tables": [compare(squad, halves, chosen) for chosen in tables],
    }
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with squad/")
    parser.add_argument("--work", type=Path, required=True, help="working folder; pass it again to go on")
    parser.add_argument("--max-questions", type=int, help="for a try, in another work folder: draw so many questions")
    parser.add_argument("--rows", type=int, default=1600, help="questions that an encoder is trained on")
    parser.add_argument("--untrained", action="store_true", default=None, help="only what needs no training: minutes")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--mined", type=int, default=1, help="negatives of a question that the encoder finds first")
    parser.add_argument("--reranked", type=int, default=1000, help="questions whose paragraphs are reranked")
    parser.add_argument("--first", type=int, default=10, help=f"so many of their paragraphs, at most {DEPTH}")
    parser.add_argument("--rerank-rows", type=int, default=1600, help="questions that a reranker is trained on")
    parser.add_argument("--rerank-rate", type=float, default=1e-4)
    parser.add_argument("--rerank-epochs", type=int, default=1)
    parser.add_argument("--negatives", type=int, default=3, help="of each question that a reranker is trained on")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="Markdown file for the tables")
    return parser.parse_args()


def search_half(args: argparse.Namespace, squad: Squad, half: int, sample: Sequence[int]) -> dict[str, Cell]:
    """What each system finds for the questions of a half, and how long training took on the other."""
    asked = squad.of_half(half).tolist()
    encoder = None if args.untrained else train_encoder(args, squad, half)
    models = {"MiniLM": minilm_folder()} | ({} if encoder is None else {"trained": encoder.folder})
    cells = {"BM25": kept(args.work / f"BM25-{half}.json", partial(by_words, squad, asked))}
    for name, model in models.items():
        index = args.work / f"index-{name}-{half}"
        indexed = kept(index.with_suffix(".json"), partial(build_index, squad, model, index))
        for label in (name, name + HYBRID):
            search = partial(by_vectors, squad, asked, index, hybrid=label != name)
            cells[label] = {"indexing": indexed["seconds"], **kept(args.work / f"{label}-{half}.json", search)}
    if encoder is None:
        return cells
    reranker = train_reranker(args, squad, half, encoder.folder)
    cells[RERANKED] = rerank(args, squad, half, sample, cells["trained"], reranker.folder)
    cells[FUSED] = fuse(cells["trained"], cells[RERANKED])
    for name, trained in (("trained", encoder), (RERANKED, reranker)):
        cells[name] |= {"training": trained.seeds[0].seconds, "dev": trained.scores[trained.main_metric]}
    return cells


def kept(path: Path, make: Callable[[], Cell]) -> Cell:
    """What was made before, or is made now, with the seconds that it takes."""
    if not path.exists():
        started = time.perf_counter()
        made = make()
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps({"seconds": time.perf_counter() - started, **made}), encoding="utf-8")
        draft.replace(path)
        print(f"{path.stem} is done", flush=True)
    found: Cell = json.loads(path.read_text(encoding="utf-8"))
    return found


def train_encoder(args: argparse.Namespace, squad: Squad, scored: int) -> FinetuneResult:
    """MiniLM-L6 trained on the half that is not ``scored``, in batches where no paragraph is twice."""
    from bertkit.training.finetuning.finetune import finetune
    from bertkit.training.finetuning.finetune_settings import FinetuneConfig

    out, data = args.work / f"encoder-{scored}", args.work / f"pairs-{scored}"
    squad.write(data, *squad.train_and_dev(1 - scored))
    config = FinetuneConfig(
        max_length=LENGTH, epochs=args.epochs, learning_rate=args.rate, mine_negatives=args.mined or None,
        max_train_rows=args.rows, max_tokens=IN_MEMORY, precision="fp32", baseline=False,
    )  # fmt: skip
    return finetune("pairs", data, minilm_folder(), out, config, resume=out.exists())


def train_reranker(args: argparse.Namespace, squad: Squad, scored: int, encoder: Path) -> FinetuneResult:
    """The encoder trained as a reranker on the same half, with negatives that the encoder finds there."""
    from bertkit.tasks.rerank.task import RERANK
    from bertkit.training.finetuning.finetune import finetune
    from bertkit.training.finetuning.finetune_settings import FinetuneConfig

    out, data = args.work / f"reranker-{scored}", args.work / f"rerank-{scored}"
    train, dev = squad.train_and_dev(1 - scored)
    squad.write(data, train, dev[some(len(dev), RERANK_DEV)])
    config = FinetuneConfig(
        max_length=RERANK_LENGTH, epochs=args.rerank_epochs, learning_rate=args.rerank_rate, batch_size=8,
        max_train_rows=args.rerank_rows, precision="fp32", baseline=False,
    )  # fmt: skip
    task = replace(RERANK, negatives=args.negatives, searcher=str(encoder))
    return finetune(task, data, encoder, out, config, resume=out.exists())


def build_index(squad: Squad, model: Path, folder: Path) -> Cell:
    """An index of all paragraphs, whose ids are their numbers."""
    from bertkit.inference.retrieval.index_writer import IndexWriter, index_rows
    from bertkit.inference.retrieval.source_texts import SourceText
    from bertkit.inference.retrieval.text_vectors import TextEncoder

    rows = (SourceText("squad", number, str(number), text) for number, text in enumerate(squad.paragraphs))
    with IndexWriter(folder, TextEncoder(model, by_products=True), truncate=True) as writer:
        writer.build(index_rows(rows), str(model))
    return {}


def by_words(squad: Squad, asked: Sequence[int]) -> Cell:
    from bertkit.metrics.bm25 import BM25

    index = BM25(squad.paragraphs)
    return {
        "questions": asked,
        "orders": [index.search(squad.questions[number], DEPTH)[0].tolist() for number in asked],
    }


def by_vectors(squad: Squad, asked: Sequence[int], index: Path, *, hybrid: bool) -> Cell:
    from bertkit.inference.retrieval.search_index import SearchIndex

    found = SearchIndex(index).search([squad.questions[number] for number in asked], DEPTH, hybrid=hybrid)
    return {"questions": asked, "orders": [[int(hit.id) for hit in hits] for hits in found]}


def rerank(args: argparse.Namespace, squad: Squad, half: int, sample: Sequence[int], found: Cell, model: Path) -> Cell:
    """The paragraphs that were found for the sampled questions of a half, in another order; in parts."""
    from bertkit import pipeline

    pipe = pipeline("text-ranking", model=model)
    order_of = {n: order[: args.first] for n, order in zip(found["questions"], found["orders"], strict=True)}
    chosen = [number for number in sample if number in order_of]

    def part(numbers: Sequence[int]) -> Cell:
        asked = [
            {"query": squad.questions[number], "documents": [squad.paragraphs[place] for place in order_of[number]]}
            for number in numbers
        ]
        ranked = pipe(asked, truncation=True, max_length=RERANK_LENGTH)
        orders = [
            [order_of[number][row["index"]] for row in rows] for number, rows in zip(numbers, ranked, strict=True)
        ]
        return {"questions": numbers, "orders": orders, "cut": sum(row["truncated"] for rows in ranked for row in rows)}

    parts = [
        kept(args.work / f"reranked-{half}-{first:05}.json", partial(part, chosen[first : first + PART]))
        for first in range(0, len(chosen), PART)
    ]
    return {
        "questions": [number for cell in parts for number in cell["questions"]],
        "orders": [order for cell in parts for order in cell["orders"]],
        "seconds": sum(cell["seconds"] for cell in parts),
        "cut": sum(cell["cut"] for cell in parts),
    }


def fuse(found: Cell, reranked: Cell) -> Cell:
    """Both orders of the paragraphs that were reranked, by reciprocal ranks."""
    before = dict(zip(found["questions"], found["orders"], strict=True))
    orders = [
        ranks_fused([before[number][: len(order)], order], len(order))
        for number, order in zip(reranked["questions"], reranked["orders"], strict=True)
    ]
    return {"questions": reranked["questions"], "orders": orders, "seconds": 0.0}


def facts_of(squad: Squad) -> dict[str, float]:
    """Sizes, and what the encoder does not read of the paragraphs."""
    from bertkit.tokenization import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    tokens = np.array([len(tokenizer(text)["input_ids"]) for text in squad.paragraphs])
    cut = np.maximum(tokens - LENGTH, 0)
    return {
        "articles": int(squad.articles.max()) + 1,
        "paragraphs": len(squad.paragraphs),
        "questions": len(squad.questions),
        "tokens a paragraph": round(float(tokens.mean()), 1),
        "paragraphs cut": int((cut > 0).sum()),
        "share of tokens cut": round(float(cut.sum() / tokens.sum()), 4),
    }


def compare(squad: Squad, halves: Sequence[Mapping[str, Cell]], chosen: Sequence[int]) -> dict[str, Any]:
    """Means of all systems that have an order for each of the chosen questions, and their differences in nDCG@10."""
    from bertkit.metrics.ranking import judge_documents, ranking_values

    values = {}
    for name in halves[0]:
        orders = {
            number: order
            for cells in halves
            for number, order in zip(cells[name]["questions"], cells[name]["orders"], strict=True)
        }
        if orders.keys() >= set(chosen):
            right = [{int(squad.places[number]): 1.0} for number in chosen]
            judged = judge_documents([orders[number] for number in chosen], right, DEPTH)
            values[name] = ranking_values(judged, METRICS)
    articles = squad.article_of[list(chosen)]
    return {
        "questions": len(chosen),
        "scores": {name: {metric: float(each.mean()) for metric, each in own.items()} for name, own in values.items()},
        "differences": {
            f"{a} - {b}": mean_by_article(values[a][METRICS[0]] - values[b][METRICS[0]], articles)
            for a, b in COMPARED
            if {a, b} <= values.keys()
        },
    }


def mean_by_article(values: Any, articles: Ints) -> tuple[float, float, float]:
    """Mean over the questions, with its 95 % interval, for which whole articles are drawn."""
    from bertkit.metrics.intervals import bootstrap_draws, interval_of

    _, of_article = np.unique(articles, return_inverse=True)
    sums, counts = np.bincount(of_article, values), np.bincount(of_article)
    draws = bootstrap_draws(len(counts))
    means = [float(sums[draw].sum() / counts[draw].sum()) for draw in draws]
    low, high = interval_of(means, len(counts), None) or (np.nan, np.nan)
    return float(values.mean()), low, high


def render(report: dict[str, Any]) -> list[str]:
    lines = ["# Questions of SQuAD to their paragraphs", "", *block(report["about"])]
    for title, facts in (("Data", report["data"]), ("Settings", report["settings"])):
        lines += facts and [
            "",
            f"{title}: " + ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in facts.items()) + ".",
        ]
    for table in report["tables"]:
        lines += ["", f"## {table['questions']:,} questions", ""]
        lines += [f"| system | {' | '.join(METRICS)} |", "|---|" + "---|" * len(METRICS)]
        for name, scores in table["scores"].items():
            lines.append(f"| {name} | {' | '.join(f'{value:.4f}' for value in scores.values())} |")
        lines += [
            "",
            "| difference in nDCG@10, paired by question | mean | 95 % interval, by article |",
            "|---|---|---|",
        ]
        for pair, (mean, low, high) in table["differences"].items():
            lines.append(f"| {pair} | {mean:+.4f} | {low:+.4f} to {high:+.4f} |")
    lines += [
        "",
        "## Seconds",
        "",
        "| system | training, each half | search or reranking | dev nDCG@10 |",
        "|---|---|---|---|",
    ]
    for name in report["halves"][0]:
        cells = [half[name] for half in report["halves"]]
        training, dev = (
            ", ".join(f"{cell[key]:{form}}" for cell in cells) if key in cells[0] else ""
            for key, form in (("training", ".0f"), ("dev", ".4f"))
        )
        lines.append(f"| {name} | {training} | {sum(cell['seconds'] for cell in cells):.1f} | {dev} |")
    cut, indexing = (
        [cell[key] for half in report["halves"] for cell in half.values() if key in cell] for key in ("cut", "indexing")
    )
    first = report["settings"].get("first")
    trained = (
        f" Of each question of the second table the first {first} paragraphs were reranked; {sum(cut):,} were cut, to "
        f"{RERANK_LENGTH} tokens with the question. On dev the encoder searches the paragraphs of two articles, the "
        "reranker orders one and its negatives."
    )
    return [
        *lines,
        "",
        "Search includes the start of the model and the vectors of the questions; those of all paragraphs took "
        f"{min(indexing):.0f} to {max(indexing):.0f} s more.{trained if cut else ''} Command: "
        f"`python benchmarks/retrieval.py --data DATA --work WORK{'' if cut else ' --untrained'}`",
    ]


if __name__ == "__main__":
    main()
