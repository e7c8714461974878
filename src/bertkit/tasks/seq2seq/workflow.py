"""Text to text: a BART or T5 that learns to write a target for each source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertkit.config.any_config import AnyConfig, read_any_config
from bertkit.config.config_file import config_path
from bertkit.config.encoder_decoder_config import EncoderDecoderConfig
from bertkit.config.families import ENCODER_DECODERS
from bertkit.config.reading_settings import ReadingSettings
from bertkit.engine.backend import Check
from bertkit.engine.inference_engine import stop_nothing
from bertkit.errors import CheckpointError, ConfigError
from bertkit.metrics.intervals import Drawn, Draws, drawn_means
from bertkit.metrics.probabilities import entropy
from bertkit.system.console import Progress
from bertkit.system.device import Device
from bertkit.tasks.answering import ColumnType
from bertkit.tasks.examples import Examples, Row, Split
from bertkit.tasks.hold_out import plain_text, text_key
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.report import DataReport, SplitFacts, find_leaks
from bertkit.tasks.row_scores import RowScores, mean_of
from bertkit.tasks.seq2seq.features import TextPairs, featurize_seq2seq
from bertkit.tasks.seq2seq.reading import read_seq2seq
from bertkit.tasks.seq2seq.scoring import copy_baseline, text_scores
from bertkit.tasks.seq2seq.settings import Seq2SeqTaskSettings
from bertkit.tasks.seq2seq.task import EXACT_MATCH, Seq2SeqExample, Seq2SeqTask
from bertkit.tasks.text.report import add_lengths
from bertkit.tasks.workflow import Card, Predicted, Workflow, check_for_decoder
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.tokenization.text_inputs import read_text

if TYPE_CHECKING:
    from bertkit.batch import Batch
    from bertkit.engine.text_generator import TextGenerator
    from bertkit.model.seq2seq.conditional_generation import ConditionalGeneration

#: Tokens of the longest target, where the user says nothing.
USUAL_TARGET_LENGTH = 128


@dataclass(frozen=True, slots=True)
class Written:
    """What a model wrote for each of R rows, and how likely it found the targets if there are any.

    losses: cross-entropy of each target, the mean over its tokens ``(R,)``. loss: the mean over all tokens.
    """

    texts: list[str]
    losses: npt.NDArray[np.float64] | None = None
    loss: float | None = None


PairsPredicted = Predicted[Seq2SeqExample, TextPairs, Written]


class Seq2SeqWorkflow(Workflow[Seq2SeqExample, TextPairs, Written]):
    """Sources and targets of :class:`bertkit.tasks.seq2seq.task.Seq2SeqTask`; outputs are the texts written."""

    task: Seq2SeqTask
    model_class = "ConditionalGeneration"
    default_max_length = 512
    fields = ("text",)

    def check_settings(self, settings: ReadingSettings) -> None:
        super().check_settings(settings)
        check_for_decoder(settings, f"task {self.task.name}")
        if getattr(settings, "freeze_encoder", None):
            raise ConfigError(
                f"freeze_encoder is not for task {self.task.name}: the decoder reads all layers of what is written. "
                "Leave it out"
            )

    def read_file(self, path: Path, split: Split, *, on_error: OnError = "raise") -> Examples[Seq2SeqExample]:
        return read_seq2seq(self.task, path, split, on_error=on_error)

    def example_of(self, item: Mapping[str, object], where: str) -> Seq2SeqExample:
        return Seq2SeqExample(read_text(item, where)[0])

    def train_fault(self, train: Examples[Seq2SeqExample]) -> str:
        if len({example.target for example in train}) > 1:
            return ""
        return f"all {len(train):,} training rows have the same target; training needs at least two targets"

    def report(
        self,
        splits: Mapping[str, Examples[Seq2SeqExample]],
        encoded: Mapping[str, TextPairs],
        settings: ReadingSettings,
    ) -> DataReport:
        reports = {}
        for name, rows in splits.items():
            reports[name] = facts = SplitFacts(rows, "row")
            sources, targets = encoded[name].sources, encoded[name].targets
            add_lengths(facts, sources.num_tokens_before, settings.max_length, name="sources")
            if targets is not None:
                add_lengths(facts, targets.num_tokens_before, target_length(settings), name="targets")
            facts.count_repeats(
                [text_key(row) for row in rows], [plain_text(row.target or "") for row in rows], ("source", "targets")
            )
        overlap, leaks = find_leaks(splits, text_key, "row")
        return DataReport(self.task.name, reports, overlap, leaks, self.task.notes)

    def encode(
        self,
        examples: Sequence[Seq2SeqExample],
        tokenizer: PreTrainedTokenizer,
        settings: ReadingSettings,
        *,
        labelled: bool,
    ) -> TextPairs:
        return featurize_seq2seq(
            examples,
            self.task.prefix,
            tokenizer,
            max_length=settings.max_length,
            max_target_length=target_length(settings),
            labelled=labelled,
        )

    def collate(self, encoded: TextPairs, rows: Sequence[int]) -> Batch:
        from bertkit.engine.text_generator import pairs_batch

        assert encoded.targets is not None
        return pairs_batch(encoded.sources, encoded.targets, rows)

    def network(self, shape: AnyConfig) -> type[ConditionalGeneration]:
        from bertkit.model.seq2seq.conditional_generation import ConditionalGeneration

        return ConditionalGeneration

    def new_model(
        self, start: str | Path, *, seed: int, device: Device, settings: ReadingSettings
    ) -> ConditionalGeneration:
        """The start checkpoint, whose settings of generation become those of this run; nothing in it is drawn."""
        from bertkit.model.seq2seq.conditional_generation import AutoModelForSeq2SeqLM

        model = AutoModelForSeq2SeqLM.from_pretrained(start, device=device)
        model.generation_settings = model.generation_settings.replace(
            max_new_tokens=target_length(settings),
            num_beams=settings.of(Seq2SeqTaskSettings).num_beams,
            num_return_sequences=1,
        )
        return model

    def read_shape(self, path: Path) -> EncoderDecoderConfig:
        file = config_path(path)
        found = read_any_config(file)
        if not isinstance(found, EncoderDecoderConfig):
            raise CheckpointError(
                f"{file}: model_type is {found.model_type!r:.80}; task {self.task.name} needs a model that writes "
                f"text, one of {', '.join(ENCODER_DECODERS)}"
            )
        return found

    def start_shape(self, start: Path, settings: ReadingSettings) -> EncoderDecoderConfig:
        shape, most = self.read_shape(start), target_length(settings)
        if most > shape.max_input_length:
            raise ConfigError(
                f"max_target_length={most} but the model has {shape.max_input_length} positions; give at most that many"
            )
        return shape

    def scoring_engine(self, model: ConditionalGeneration) -> TextGenerator:
        from bertkit.engine.text_generator import TextGenerator

        return TextGenerator(model)

    def open_engine(self, path: Path, *, device: Device, precision: str, threads: int | None) -> TextGenerator:
        from bertkit.model.seq2seq.conditional_generation import AutoModelForSeq2SeqLM

        if precision not in ("auto", "fp32") or threads is not None:
            raise ConfigError(f"task {self.task.name} runs in fp32; omit precision and threads")
        return self.scoring_engine(AutoModelForSeq2SeqLM.from_pretrained(path, device=device))

    def loss_floor(self, train: TextPairs, settings: ReadingSettings) -> float:
        assert train.targets is not None
        return entropy(np.bincount(train.targets.ids))

    def outputs(self, engine: TextGenerator, encoded: TextPairs, *, check: Check = stop_nothing, label: str) -> Written:
        check()
        with Progress(len(encoded), label=label, unit="rows", check=check) as bar:
            settings, num_words = engine.model.generation_settings, len(encoded.tokenizer)
            found = engine.generate(encoded.sources, settings, num_words=num_words, advance=bar.advance)
        first = [texts[0] for texts in found]
        texts = [text.strip() for text in encoded.tokenizer.batch_decode(first, skip_special_tokens=True)]
        if encoded.targets is None:
            return Written(texts)
        losses, counts = engine.losses(encoded.sources, encoded.targets)
        return Written(texts, losses / counts, float(losses.sum() / counts.sum()))

    def decide(self, given: PairsPredicted, settings: ReadingSettings) -> Row:
        return {"max_length": settings.max_length, "prefix": self.task.prefix}

    def score(self, given: PairsPredicted) -> dict[str, float]:
        assert given.outputs.loss is not None
        scores = self._scores(given)
        return {**{name: float(scores[name].mean()) for name in self.task.metrics}, "loss": given.outputs.loss}

    def prediction_rows(self, given: PairsPredicted) -> list[Row]:
        return [
            {
                "row": example.row,
                "source": example.text,
                **({} if example.target is None else {"gold": example.target}),
                "predicted": text,
                "truncated": cut,
            }
            for example, text, cut in zip(
                given.examples, given.outputs.texts, given.encoded.truncated.tolist(), strict=True
            )
        ]

    def answer_columns(self, config: AnyConfig) -> dict[str, ColumnType]:
        return {"predicted": "string", "truncated": "bool"}

    def badness(self, given: PairsPredicted) -> npt.NDArray[np.float64] | None:
        return given.outputs.losses

    def row_bounds(self) -> tuple[float, float] | None:
        return 0.0, 1.0

    def main_metric_of(self, given: PairsPredicted, draws: Draws) -> Drawn | None:
        return drawn_means(self._scores(given)[self.task.main_metric], draws)

    def row_scores(self, rows: Sequence[Mapping[str, Any]]) -> RowScores:
        gold, predicted = ([row[name] for row in rows] for name in ("gold", "predicted"))
        scores = text_scores(predicted, gold)
        return RowScores(
            keys=[(row["source"], row["gold"]) for row in rows],
            shown=[row["source"] for row in rows],
            gold=gold,
            predicted=predicted,
            right=scores[EXACT_MATCH] > 0,
            metric=mean_of(scores[self.task.main_metric]),
        )

    def diagnose(self, given: PairsPredicted) -> list[str]:
        texts = given.outputs.texts
        if len(texts) < 2 or len(set(texts)) > 1:
            return []
        return [f"ALL ANSWERS ARE THE SAME: {texts[0]!r:.80} for each of {len(texts):,} sources"]

    def baseline(self, train: Examples[Seq2SeqExample], dev: Examples[Seq2SeqExample]) -> Row:
        return copy_baseline(dev, self.task)

    def card(self) -> Card:
        return Card(
            pipeline="text2text-generation" if self.task.lead is None else "summarization",
            predicts="a text for a text" if self.task.lead is None else "a summary of a text",
            call='pipe(["a text"])',
            limits="Texts are read up to {max_length} tokens; a longer one is refused, or cut at its end with "
            "`truncation=True`.",
        )

    def facts(self, settings: ReadingSettings) -> Row:
        beams = settings.of(Seq2SeqTaskSettings).num_beams
        return {
            "what_it_predicts": "text",
            "prefix": self.task.prefix,
            "max_target_length": target_length(settings),
            "num_beams": "as the start checkpoint says" if beams is None else beams,
            "rouge": "F1, without stemming; each line is a sentence of rougeLsum",
        }

    def _scores(self, given: PairsPredicted) -> dict[str, npt.NDArray[np.float64]]:
        return text_scores(given.outputs.texts, [example.target or "" for example in given.examples])


def target_length(settings: ReadingSettings) -> int:
    """Most tokens of a target, special tokens included."""
    return settings.of(Seq2SeqTaskSettings).max_target_length or USUAL_TARGET_LENGTH
