"""``evaluation`` of sentence-transformers: evaluators that are called with a model and return scores by name."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError
from bertkit.habits.keywords import known_keywords
from bertkit.habits.sentences.compared_vectors import as_tensor, nearest_by, similarity_function
from bertkit.habits.sentences.input_example import InputExample
from bertkit.metrics.calibration import best_threshold
from bertkit.metrics.ranking import RANKING, judge_documents
from bertkit.metrics.scores import accuracy, f1, matthews, pearson, spearman
from bertkit.ragged import Floats

if TYPE_CHECKING:
    from bertkit.habits.sentences.sentence_options import EncodeOptions
    from bertkit.habits.sentences.sentence_transformer import SentenceTransformer

#: Keywords that several evaluators have.
_COMMON = ("similarity_fn_names", "main_similarity", "main_similarity_function", "truncate_dim", "precision")


class SentenceEvaluator:
    """``evaluator(model)`` returns scores, each name behind ``name_``.

    primary_metric: the name of the score that counts, known after the first call.
    """

    greater_is_better = True

    def __init__(self, name: str = "", write_csv: bool = True, **options: Any) -> None:
        given = known_keywords(type(self).__name__, options, _COMMON)
        self.name, self.write_csv = name, write_csv
        self.primary_metric: str | None = None
        main = given.get("main_similarity") or given.get("main_similarity_function")
        self.main = None if main is None else str(main)
        self.measures: list[str] = [str(each) for each in given.get("similarity_fn_names") or ([main] if main else ())]
        found = {name: given[name] for name in ("truncate_dim", "precision") if given.get(name) is not None}
        self.encoding = cast("EncodeOptions", found)
        if self.encoding.get("precision", "float32") != "float32":
            raise InputError("evaluators compare float32 vectors; bertkit.SentenceEncoder.precision_loss says the rest")

    def __call__(
        self, model: SentenceTransformer, output_path: str | Path | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """The scores of a model; with ``output_path`` they are added to a CSV file there."""
        scores, main = self.scores(model, self.measures or [str(model.similarity_fn_name)])
        before = f"{self.name}_" if self.name else ""
        self.primary_metric = f"{before}{main}"
        found = {f"{before}{name}": float(value) for name, value in scores.items()}
        if output_path is not None and self.write_csv:
            file = Path(output_path) / f"{type(self).__name__}{'_' * bool(self.name)}{self.name}_results.csv"
            file.parent.mkdir(parents=True, exist_ok=True)
            is_new = not file.exists()
            with file.open("a", newline="", encoding="utf-8") as out:
                rows = csv.writer(out)
                if is_new:
                    rows.writerow(["epoch", "steps", *found])
                rows.writerow([epoch, steps, *found.values()])
        return found

    def scores(self, model: SentenceTransformer, measures: Sequence[str]) -> tuple[dict[str, float], str]:
        """Scores by name, and which of them counts; a subclass defines this, or ``__call__``."""
        raise NotImplementedError(f"{type(self).__name__} defines neither __call__ nor scores")

    def main_of(self, measures: Sequence[str]) -> str:
        """The measure whose score counts: ``main_similarity``, else the only one, else the best of several."""
        return self.main or ("max" if len(measures) > 1 else measures[0])

    def similarities(
        self, model: SentenceTransformer, texts1: Sequence[str], texts2: Sequence[str], measure: str
    ) -> Floats:
        """How near the texts at the same place are, ``(N,)``."""
        vectors = (as_tensor(model.encode(list(texts), **self.encoding)) for texts in (texts1, texts2))
        found: Floats = similarity_function(measure)[1](*vectors).numpy()
        return found


class EmbeddingSimilarityEvaluator(SentenceEvaluator):
    """Correlations of similarities with scores: ``pearson_cosine``, ``spearman_cosine``."""

    def __init__(
        self, sentences1: Sequence[str], sentences2: Sequence[str], scores: Sequence[float], **options: Any
    ) -> None:
        super().__init__(**options)
        _check_lengths(sentences1, sentences2, scores)
        self.sentences1, self.sentences2, self.gold = sentences1, sentences2, np.asarray(scores, np.float64)

    @classmethod
    def from_input_examples(cls, examples: Sequence[InputExample], **options: Any) -> Self:
        """Of pairs with a score as their label."""
        first, second = _columns(examples, 2)
        return cls(first, second, [each.label for each in examples], **options)

    def scores(self, model: SentenceTransformer, measures: Sequence[str]) -> tuple[dict[str, float], str]:
        found = {}
        for measure in measures:
            near = self.similarities(model, self.sentences1, self.sentences2, measure)
            found[f"pearson_{measure}"] = pearson(near, self.gold)
            found[f"spearman_{measure}"] = spearman(near, self.gold)
        if len(measures) > 1:
            for metric in ("pearson", "spearman"):
                found[f"{metric}_max"] = max(found[f"{metric}_{measure}"] for measure in measures)
        return found, f"spearman_{self.main_of(measures)}"


class TripletEvaluator(SentenceEvaluator):
    """How often an anchor is nearer to its positive than to its negative, by more than ``margin``."""

    def __init__(
        self,
        anchors: Sequence[str],
        positives: Sequence[str],
        negatives: Sequence[str],
        margin: float | Mapping[str, float] = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        _check_lengths(anchors, positives, negatives)
        self.anchors, self.positives, self.negatives, self.margin = anchors, positives, negatives, margin or 0.0

    @classmethod
    def from_input_examples(cls, examples: Sequence[InputExample], **options: Any) -> Self:
        """Of triplets."""
        first, second, third = _columns(examples, 3)
        return cls(first, second, third, **options)

    def scores(self, model: SentenceTransformer, measures: Sequence[str]) -> tuple[dict[str, float], str]:
        found = {}
        for measure in measures:
            near, far = (self.similarities(model, self.anchors, o, measure) for o in (self.positives, self.negatives))
            margin = self.margin.get(measure, 0.0) if isinstance(self.margin, Mapping) else self.margin
            found[f"{measure}_accuracy"] = float((near > far + margin).mean())
        if len(measures) > 1:
            found["max_accuracy"] = max(found.values())
        return found, f"{self.main_of(measures)}_accuracy"


class BinaryClassificationEvaluator(SentenceEvaluator):
    """How well similarities tell pairs that belong together (1) from others (0), at the best threshold of each."""

    def __init__(
        self, sentences1: Sequence[str], sentences2: Sequence[str], labels: Sequence[int], **options: Any
    ) -> None:
        super().__init__(**options)
        _check_lengths(sentences1, sentences2, labels)
        self.sentences1, self.sentences2, self.labels = sentences1, sentences2, np.asarray(labels)
        if not np.isin(self.labels, (0, 1)).all() or len(np.unique(self.labels)) < 2:
            raise InputError("labels must be 1 (belong together) and 0, both of them")

    @classmethod
    def from_input_examples(cls, examples: Sequence[InputExample], **options: Any) -> Self:
        """Of pairs with a label."""
        first, second = _columns(examples, 2)
        return cls(first, second, [int(each.label) for each in examples], **options)

    def scores(self, model: SentenceTransformer, measures: Sequence[str]) -> tuple[dict[str, float], str]:
        """Average precision, F1 and accuracy of pairs by each measure, with thresholds; and the main score's name."""
        from sklearn.metrics import average_precision_score, precision_score, recall_score

        found: dict[str, float] = {}
        for measure in measures:
            near = self.similarities(model, self.sentences1, self.sentences2, measure).astype(np.float64)
            right, sign = self.labels == 1, 1 if measure in ("cosine", "dot") else -1
            low, span = float(near.min()), float(np.ptp(near)) or 1.0  # thresholds are sought between 0 and 1
            by_accuracy, by_f1 = (
                low + span * best_threshold((near - low) / span, right, metric) for metric in ("accuracy", "f1")
            )
            said = (near >= by_f1).astype(np.int64)
            values = {
                "accuracy": accuracy((near >= by_accuracy).astype(np.int64), self.labels),
                "accuracy_threshold": sign * by_accuracy,
                "f1": f1(said, self.labels),
                "f1_threshold": sign * by_f1,
                "precision": float(precision_score(self.labels, said, zero_division=0)),
                "recall": float(recall_score(self.labels, said)),
                "ap": float(average_precision_score(self.labels, near)),
                "mcc": matthews(said, self.labels),
            }
            found.update({f"{measure}_{name}": value for name, value in values.items()})
        if len(measures) > 1:
            for name in values:
                found[f"max_{name}"] = max(found[f"{measure}_{name}"] for measure in measures)
        return found, "max_ap" if len(measures) > 1 else f"{measures[0]}_ap"


class InformationRetrievalEvaluator(SentenceEvaluator):
    """How well queries find their documents: accuracy, precision, recall, nDCG, MRR and MAP at several depths.

    queries, corpus: texts by their ids. relevant_docs: ids of documents by the id of a query; queries without one are
    left out. Depths are ``ndcg_at_k=[10]`` and the like.
    """

    DEPTHS: Mapping[str, tuple[int, ...]] = {
        "mrr_at_k": (10,),
        "ndcg_at_k": (10,),
        "accuracy_at_k": (1, 3, 5, 10),
        "precision_recall_at_k": (1, 3, 5, 10),
        "map_at_k": (100,),
    }

    def __init__(
        self,
        queries: Mapping[str, str],
        corpus: Mapping[str, str],
        relevant_docs: Mapping[str, AbstractSet[str]],
        **options: Any,
    ) -> None:
        self.depths = {name: tuple(options.pop(name, usual)) for name, usual in self.DEPTHS.items()}
        prompts = ("query_prompt", "query_prompt_name", "corpus_prompt", "corpus_prompt_name")
        self.prompts = {name: options.pop(name) for name in prompts if name in options}
        super().__init__(**options)
        self.query_ids = [name for name in queries if relevant_docs.get(name)]
        if not self.query_ids:
            raise InputError("no query has a relevant document")
        self.queries, self.corpus_ids = [queries[name] for name in self.query_ids], list(corpus)
        self.corpus, self.relevant = list(corpus.values()), [relevant_docs[name] for name in self.query_ids]

    def scores(self, model: SentenceTransformer, measures: Sequence[str]) -> tuple[dict[str, float], str]:
        """Retrieval by each measure, as ``cosine_ndcg@10``; and the name of the main score."""
        queries = as_tensor(model.encode_query(self.queries, **self._options("query")))
        corpus = as_tensor(model.encode_document(self.corpus, **self._options("corpus")))
        deepest, found = max(k for depths in self.depths.values() for k in depths), dict[str, float]()
        wanted: list[Mapping[Any, float]] = [dict.fromkeys(documents, 1.0) for documents in self.relevant]
        for measure in measures:
            numbers, _ = nearest_by(similarity_function(measure)[0], queries, corpus, deepest)
            ranked = [[self.corpus_ids[place] for place in row] for row in numbers.tolist()]
            judged = judge_documents(ranked, wanted, deepest)
            hits_QK = (judged.gains > 0).cumsum(axis=1)
            for k in self.depths["accuracy_at_k"]:
                found[f"{measure}_accuracy@{k}"] = float((hits_QK[:, k - 1] > 0).mean())
            for k in self.depths["precision_recall_at_k"]:
                found[f"{measure}_precision@{k}"] = float((hits_QK[:, k - 1] / k).mean())
                found[f"{measure}_recall@{k}"] = float(RANKING["recall"](judged, k).mean())
            for name in ("ndcg", "mrr", "map"):
                for k in self.depths[f"{name}_at_k"]:
                    values = RANKING[name](judged, k)
                    if name == "map":  # which is divided there by at most k relevant documents
                        values = values * judged.num_relevant / np.minimum(judged.num_relevant, k)
                    found[f"{measure}_{name}@{k}"] = float(values.mean())
        main = f"ndcg@{max(self.depths['ndcg_at_k'])}"
        return found, f"{max(measures, key=lambda measure: found[f'{measure}_{main}'])}_{main}"

    def _options(self, side: str) -> EncodeOptions:
        given = {"prompt": self.prompts.get(f"{side}_prompt"), "prompt_name": self.prompts.get(f"{side}_prompt_name")}
        named = {name: value for name, value in given.items() if value is not None}
        return cast("EncodeOptions", {**self.encoding, **named})


class SequentialEvaluator:
    """Several evaluators in turn; ``main_score_function`` of their main scores counts, by default the last one."""

    greater_is_better = True

    def __init__(
        self,
        evaluators: Sequence[SentenceEvaluator],
        main_score_function: Callable[[list[float]], float] = lambda scores: scores[-1],
    ) -> None:
        self.evaluators, self.main_score_function = evaluators, main_score_function
        self.primary_metric = "sequential_score"

    def __call__(
        self, model: SentenceTransformer, output_path: str | Path | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """The scores of all, and ``sequential_score``."""
        found: dict[str, float] = {}
        main: list[float] = []
        for number, evaluator in enumerate(self.evaluators):
            scores: Any = evaluator(model, output_path=output_path, epoch=epoch, steps=steps)
            scores = scores if isinstance(scores, Mapping) else {f"evaluator_{number}": scores}
            main.append(scores[getattr(evaluator, "primary_metric", None) or next(iter(scores))])
            found.update(scores)
        return {**found, "sequential_score": self.main_score_function(main)}


def _check_lengths(*columns: Sequence[Any] | npt.NDArray[Any]) -> None:
    if len({len(column) for column in columns}) > 1 or not len(columns[0]):
        raise InputError(f"columns must have the same number of rows, 1 or more, got {[*map(len, columns)]}")


def _columns(examples: Sequence[InputExample], count: int) -> list[list[str]]:
    return [[each.texts[place] for each in examples] for place in range(count)]
