"""Question answering: the answer is a span of the context, or there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertkit.config.any_config import AnyConfig
from bertkit.config.reading_settings import ReadingSettings
from bertkit.engine.backend import SPAN_LOGITS
from bertkit.metrics.intervals import Drawn, Draws, drawn_means
from bertkit.metrics.probabilities import entropy
from bertkit.ragged import Floats
from bertkit.tasks.answering import ColumnType
from bertkit.tasks.examples import Examples, Halves, Row, Split
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.reading.splits import FileRules, NamedTask
from bertkit.tasks.report import DataReport
from bertkit.tasks.row_scores import RowScores, mean_of
from bertkit.tasks.spans.baseline import overlap_baseline
from bertkit.tasks.spans.decoding import Answers, SpanSearch, find_answers
from bertkit.tasks.spans.features import SpanSettings, SpanWindows, featurize_spans
from bertkit.tasks.spans.metrics import AnswerPoints, answer_points
from bertkit.tasks.spans.reading import hold_out, question_rules, read_questions
from bertkit.tasks.spans.report import question_report
from bertkit.tasks.spans.settings import SpanTaskSettings
from bertkit.tasks.spans.task import SpanExample, SpanTask, score_answers
from bertkit.tasks.workflow import Card, Decision, Predicted, Workflow
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

if TYPE_CHECKING:
    from bertkit.batch import Batch

#: Answers kept for each question, as in the paper's code.
N_BEST = 20


@dataclass(frozen=True, slots=True)
class SpanOutputs:
    """Start and end logits ``(T, 2)`` of the windows' tokens, end to end, and the answers of Q questions."""

    logits: Floats
    answers: list[Answers]


class Final(NamedTuple):
    """An answer: its text, the characters of the context, and its probability."""

    text: str
    start: int
    end: int
    probability: float


AnswersPredicted = Predicted[SpanExample, SpanWindows, SpanOutputs]


class SpanWorkflow(Workflow[SpanExample, SpanWindows, SpanOutputs]):
    """Answers of :class:`SpanTask`; a row is a window.

    The decision holds how windows are cut and how long answers may be, and for ``squad2`` the ``null_threshold``.
    """

    task: SpanTask
    model_class = "BertForQuestionAnswering"
    wanted = SPAN_LOGITS
    of_tokens = True
    fields = ("question", "context")
    default_max_length = 384

    @property
    def sources(self) -> tuple[NamedTask, FileRules]:
        return self.task, question_rules(self.task)

    def read_file(self, path: Path, split: Split, *, on_error: OnError = "raise") -> Examples[SpanExample]:
        return read_questions(self.task, path, split, on_error=on_error)

    def example_of(self, item: Mapping[str, object], where: str) -> SpanExample:
        return SpanExample.of(item, where)

    def hold_out(self, train: Examples[SpanExample], share: float, seed: int) -> Halves[SpanExample]:
        return hold_out(train, share, seed)

    def texts_of(self, example: SpanExample) -> Sequence[str]:
        return (example.context, example.question)

    def content(self, example: SpanExample) -> object:
        answers = None if example.answers is None else [tuple(answer) for answer in example.answers]
        return example.id, example.question, example.context, answers

    def train_fault(self, train: Examples[SpanExample]) -> str:
        if any(example.answers for example in train):
            return ""
        return f"none of {len(train):,} training questions has an answer to learn from"

    def report(
        self, splits: Mapping[str, Examples[SpanExample]], encoded: Mapping[str, SpanWindows], settings: ReadingSettings
    ) -> DataReport:
        return question_report(self.task, splits, encoded)

    def encode(
        self,
        examples: Sequence[SpanExample],
        tokenizer: PreTrainedTokenizer,
        settings: ReadingSettings,
        *,
        labelled: bool,
    ) -> SpanWindows:
        return featurize_spans(examples, tokenizer, _span_settings(settings), labelled=labelled)

    def collate(self, encoded: SpanWindows, rows: Sequence[int]) -> Batch:
        from bertkit.batch import collate

        return collate(encoded.rows, rows, {"start_positions": encoded.starts, "end_positions": encoded.ends})

    def loss_floor(self, train: SpanWindows, settings: ReadingSettings) -> float:
        """The share of windows without the answer is known; where they have one, each context token is as likely."""
        assert train.ends is not None
        holds = train.ends > 0
        places = np.log(np.maximum(train.context_size[holds], 1))
        return entropy(np.bincount(holds)) + float(places.sum()) / len(train)

    def arrange(self, encoded: SpanWindows, values: Floats, config: AnyConfig) -> SpanOutputs:
        return self.answered(encoded, values)

    def answered(self, encoded: SpanWindows, logits: Floats) -> SpanOutputs:
        """The logits ``(T, 2)`` with the answers that they give."""
        search = SpanSearch(N_BEST, encoded.settings.max_answer_length, with_null=self.task.no_answers)
        return SpanOutputs(logits, find_answers(encoded, logits[:, 0], logits[:, 1], search))

    def decide(self, given: AnswersPredicted, settings: ReadingSettings) -> Row:
        decision: Row = asdict(given.encoded.settings)
        if self.task.no_answers:
            texts, margins = _best_answers(given)
            decision["null_threshold"] = score_answers(self.task, given.examples, texts, margins).threshold
        return decision

    def notes_on(self, decision: Decision) -> list[str]:
        if "null_threshold" not in decision:
            return []
        return [
            f"TUNED ON DEV: the threshold of 'no answer' ({self._threshold(decision):.4f} of the model in this folder) "
            "was chosen for the best F1 on the questions that it is scored on, as the official best_f1 is; expect less "
            "on others"
        ]

    def score(self, given: AnswersPredicted) -> dict[str, float]:
        texts, margins = _best_answers(given)
        nulls = margins if self.task.no_answers else None
        scores = score_answers(self.task, given.examples, texts, nulls, self._threshold(given.decision)).scores
        return {**scores, "loss": span_loss_of(given.encoded, given.outputs.logits)}

    def prediction_rows(self, given: AnswersPredicted) -> list[Row]:
        points = self._points(given) if self.has_labels(given.examples) else None
        windows = np.diff(given.encoded.first_rows).tolist()
        rows = []
        for number, (example, final) in enumerate(zip(given.examples, self._finals(given), strict=True)):
            row: Row = {
                "row": example.row,
                "id": example.id,
                "question": example.question,
                "context": example.context,
                "gold": None if example.answers is None else list(dict.fromkeys(a.text for a in example.answers)),
                "predicted": final.text,
                "start": final.start,
                "end": final.end,
                "probability": final.probability,
            }
            if self.task.no_answers:
                row["null_margin"] = _finite(given.outputs.answers[number].margin)
            if points is not None:
                row |= {"exact_match": float(points.exact[number]), "f1": float(points.f1[number])}
            rows.append({**row, "windows": windows[number]})
        return rows

    def answer_columns(self, config: AnyConfig) -> dict[str, ColumnType]:
        margin: dict[str, ColumnType] = {"null_margin": "float64"} if self.task.no_answers else {}
        place: dict[str, ColumnType] = {"predicted": "string", "start": "int64", "end": "int64"}
        return {**place, "probability": "float64", **margin, "windows": "int64"}

    def badness(self, given: AnswersPredicted) -> npt.NDArray[np.float64] | None:
        """What is missing to full points; of equally bad answers the surer one is worse."""
        if not self.has_labels(given.examples):
            return None
        missing = 1.0 - self._points(given).f1
        return np.asarray(missing * (1.0 + np.array([answer.probability for answer in self._finals(given)])))

    def row_bounds(self) -> tuple[float, float] | None:
        return 0.0, 1.0

    def main_metric_of(self, given: AnswersPredicted, draws: Draws) -> Drawn | None:
        return drawn_means(self._points(given).f1, draws)

    def row_scores(self, rows: Sequence[Mapping[str, Any]]) -> RowScores:
        values = {name: np.array([row[name] for row in rows], dtype=np.float64) for name in ("exact_match", "f1")}
        return RowScores(
            keys=[(row["id"], row["question"], tuple(row["gold"])) for row in rows],
            shown=[row["question"] for row in rows],
            gold=[" / ".join(row["gold"]) or "(no answer)" for row in rows],
            predicted=[row["predicted"] or "(no answer)" for row in rows],
            right=values["exact_match"] > 0,
            metric=mean_of(values["f1"]),
        )

    def files(self, given: AnswersPredicted, split: str) -> dict[str, str]:
        """What the official scripts read, and the n best answers of each question."""
        pairs = list(zip(given.examples, given.outputs.answers, strict=True))
        written: Row = {
            f"answers-{split}.json": {
                example.id: final.text for example, final in zip(given.examples, self._finals(given), strict=True)
            },
            f"n-best-{split}.json": {example.id: self._n_best(example, found) for example, found in pairs},
        }
        if self.task.no_answers:
            written[f"null-odds-{split}.json"] = {example.id: _finite(found.margin) for example, found in pairs}
        return {name: json.dumps(content, ensure_ascii=False) + "\n" for name, content in written.items()}

    def baseline(self, train: Examples[SpanExample], dev: Examples[SpanExample]) -> Row:
        return overlap_baseline(train, dev, self.task)

    def card(self) -> Card:
        none = ", or that it holds none" if self.task.no_answers else ""
        return Card(
            pipeline="question-answering",
            predicts=f"the answer to a question, as a piece of a context{none}",
            call='pipe(question="Who wrote it?", context="It was written by her.")',
            limits="Contexts of any length are read in windows of {max_length} word pieces that overlap.",
        )

    def facts(self, settings: ReadingSettings) -> Row:
        known = asdict(_span_settings(settings))
        del known["max_length"]
        tuned = {"null_threshold": "tuned on dev for the highest F1"} if self.task.no_answers else {}
        return {"what_it_predicts": "span of the context", **known, "n_best": N_BEST, **tuned}

    def _threshold(self, decision: Decision) -> float:
        """What was tuned on dev; of a model without a decision the original's default."""
        value = decision.get("null_threshold")
        return float(value) if isinstance(value, (int, float)) else 0.0

    def _finals(self, given: AnswersPredicted) -> list[Final]:
        """The answer of each question that counts: the best span, or "no answer"."""
        threshold, finals = self._threshold(given.decision), []
        for example, found in zip(given.examples, given.outputs.answers, strict=True):
            if not found.spans or (self.task.no_answers and found.is_null(threshold)):
                finals.append(Final("", 0, 0, found.null_probability))
            else:
                best = found.spans[0]
                finals.append(Final(example.context[best.start : best.end], best.start, best.end, best.probability))
        return finals

    def _points(self, given: AnswersPredicted) -> AnswerPoints:
        final = [answer.text for answer in self._finals(given)]
        references = [[answer.text for answer in example.answers or ()] for example in given.examples]
        return answer_points(final, references, no_answers=self.task.no_answers)

    def _n_best(self, example: SpanExample, found: Answers) -> list[Row]:
        rows: list[Row] = [
            {
                "text": example.context[span.start : span.end],
                "start": span.start,
                "end": span.end,
                "probability": span.probability,
                "score": span.score,
            }
            for span in found.spans
        ]
        if self.task.no_answers:
            null = {"probability": found.null_probability, "score": found.null_score}
            rows.append({"text": "", "start": 0, "end": 0, **null})
        return rows


def span_loss_of(windows: SpanWindows, logits: Floats) -> float:
    """Mean over the windows of the two cross-entropies' mean of logits ``(T, 2)``: training loss without dropout."""
    assert windows.starts is not None
    assert windows.ends is not None
    firsts = windows.rows.boundaries[:-1]
    values = logits.astype(np.float64)
    tops = np.maximum.reduceat(values, firsts)
    masses = np.log(np.add.reduceat(np.exp(values - np.repeat(tops, windows.lengths, axis=0)), firsts)) + tops
    chosen = np.stack([values[firsts + windows.starts, 0], values[firsts + windows.ends, 1]], axis=1)
    return float((masses - chosen).mean())


def _span_settings(settings: ReadingSettings) -> SpanSettings:
    assert settings.max_length is not None, "settings must be resolved"
    own = settings.of(SpanTaskSettings)
    return SpanSettings(settings.max_length, own.doc_stride, own.max_query_length, own.max_answer_length)


def _best_answers(given: AnswersPredicted) -> tuple[list[str], npt.NDArray[np.float64]]:
    """The best answer of each question that is not "no answer", and how much "no answer" is preferred to it."""
    pairs = list(zip(given.examples, given.outputs.answers, strict=True))
    texts = [e.context[found.spans[0].start : found.spans[0].end] if found.spans else "" for e, found in pairs]
    return texts, np.array([_finite(found.margin) for _, found in pairs])


def _finite(margin: float) -> float:
    """A context without tokens has no span at all: JSON and sums take a large number in the place of infinity."""
    return min(max(margin, -1e9), 1e9)
