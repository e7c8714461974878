"""What an embedding task is: its columns, what its rows say of texts, its scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from bertkit.config.file_columns import Columns
from bertkit.metrics.scores import check_metrics
from bertkit.tasks.examples import BuiltIn, Located

#: What a row says: these belong together; the second is nearer than the third; so much are they alike.
Comparison = Literal["pairs", "triplets", "scores"]
#: Scores of dev by what rows say.
SCORES: dict[Comparison, tuple[str, ...]] = {
    "pairs": ("ndcg@10", "mrr@10", "map@100", "recall@1", "recall@10"),
    "triplets": ("accuracy",),
    "scores": ("spearman", "pearson"),
}
ANCHOR_NAMES = tuple("anchor query question sentence1 text1 text_a sentence_a premise text sentence".split())
POSITIVE_NAMES = tuple(
    "positive pos answer passage document context sentence2 text2 text_b sentence_b hypothesis text_pair".split()
)
SCORE_NAMES = tuple("score similarity similarity_score label".split())
USUAL_COLUMNS = Columns(ANCHOR_NAMES, POSITIVE_NAMES, SCORE_NAMES)


@dataclass(frozen=True, slots=True)
class EmbeddingExample(Located):
    """An anchor, its positive and any number of negatives, as in the file; or two texts with a score."""

    texts: tuple[str, ...]
    score: float | None = None
    row: int = 0
    source: str = ""

    @property
    def text(self) -> str:
        """The anchor, or the first text."""
        return self.texts[0]

    @property
    def text_pair(self) -> str:
        """The positive, or the second text."""
        return self.texts[1]

    @property
    def label(self) -> float | int:
        """By what rows are held out evenly: their scores; all are alike without."""
        return 0 if self.score is None else self.score


@dataclass(frozen=True, slots=True)
class EmbeddingTask(BuiltIn):
    """Texts that are compared -> vectors that are near where the texts are alike.

    columns: ``text`` is where the anchors are, ``text_pair`` the positives, ``label`` the scores.
    negatives: names of the columns of negatives; None: those that are called so, such as ``negative_2``.
    """

    #: The kind of task, see :data:`bertkit.tasks.registry.KINDS`.
    form: ClassVar[str] = "embedding"

    name: str
    compares: Comparison
    metrics: tuple[str, ...]
    main_metric: str
    columns: Columns = USUAL_COLUMNS
    negatives: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_metrics(self.name, self.metrics, self.main_metric, SCORES[self.compares])


PAIRS = EmbeddingTask(
    "pairs",
    "pairs",
    SCORES["pairs"],
    "ndcg@10",
    about="texts that belong together, with or without negatives",
)
TRIPLETS = EmbeddingTask(
    "triplets",
    "triplets",
    SCORES["triplets"],
    "accuracy",
    about="a text, one that is near to it, and one that is not",
)
SCORED_PAIRS = EmbeddingTask(
    "scored-pairs",
    "scores",
    SCORES["scores"],
    "spearman",
    folders=("STS-B", "stsb"),
    about="two texts and how alike they are",
)
