"""Which words moved a prediction: integrated gradients and occlusion beside each other."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from bertkit.engine.backend import Network
from bertkit.errors import InputError, counted
from bertkit.inference.pipeline_base import Pipeline
from bertkit.insight.attributions import MOST_STEPS, TOLERANCE
from bertkit.insight.explained_text import ExplainedText, open_model
from bertkit.metrics.scores import spearman
from bertkit.system.console import Progress, aligned
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.visualize.drawn import Drawn
from bertkit.visualize.figures import Floats
from bertkit.visualize.page import Json, asset, document
from bertkit.visualize.word_pictures import Span, bars, colored, signs, strongest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Baseline = Literal["mask", "pad"]
#: Words that a terminal shows.
MOST_LINES = 40


@dataclass(frozen=True, slots=True)
class ExplainedWord:
    """A word at ``start:end`` of the first or the ``second`` text, and how far it moved the score.

    gradients: its integrated gradients. occlusion: how far the score falls when it is masked.
    """

    text: str
    start: int
    end: int
    second: bool
    gradients: float
    occlusion: float


@dataclass(frozen=True)
class Explanation(Drawn):
    """Which words of a text speak for a label, a tag or an answer, and which against it, in logits.

    label: what is explained; predicted: what the model gives.
    probability: that of ``label``; None where a model gives a number, and for another answer than its own.
    score: the logit of ``label``; of an answer the logits of its start and its end together.
    baseline, baseline_score: the token that stands in place of all words at the start of the integral, and what the
        model says then. The gradients of all words sum up to ``score - baseline_score``.
    completeness_error: how far they do not, as a share; computed with so many ``steps``.
    agreement: Spearman correlation of the two methods over the words; None where it is not defined.
    word: number of the word in ``words`` whose tag is explained.
    """

    title: ClassVar[str] = "What moved the prediction"

    task: str
    text: str
    text_pair: str | None
    label: str
    predicted: str
    probability: float | None
    score: float
    baseline: str
    baseline_score: float
    steps: int
    completeness_error: float
    agreement: float | None
    words: tuple[ExplainedWord, ...]
    word: int | None = None
    truncated: bool = False

    @property
    def complete(self) -> bool:
        """Whether the gradients are complete within a hundredth."""
        return self.completeness_error <= TOLERANCE

    @property
    def gradients(self) -> Floats:
        """Integrated gradients of the words, float64 ``(W,)``."""
        return np.array([word.gradients for word in self.words])

    @property
    def occlusion(self) -> Floats:
        """How far the score falls without each word, float64 ``(W,)``."""
        return np.array([word.occlusion for word in self.words])

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "complete": self.complete}

    def heading(self) -> str:
        """What is explained, in a line."""
        of_word = "" if self.word is None else f" of word {self.word + 1}, {self.words[self.word].text!r}"
        given = "predicted" if self.label == self.predicted else f"predicted: {self.predicted}"
        share = "" if self.probability is None else f", probability {self.probability:.4f}"
        cut = "; the text was truncated" if self.truncated else ""
        return f"{self.label}{of_word} ({given}){share}; logit {self.score:.3f}{cut}"

    def facts(self) -> str:
        """How good the explanation is, in a line."""
        bound = "" if self.complete else f", more than {100 * TOLERANCE:.0f} %"
        agreement = "not defined" if self.agreement is None else f"{self.agreement:.2f}"
        error = f"{100 * self.completeness_error:.2f} % ({counted(self.steps, 'step')})"
        return (
            f"With {self.baseline} in place of all words the logit is {self.baseline_score:.3f}; the gradients add up "
            f"to the difference with an error of {error}{bound}; agreement of the two methods (Spearman) {agreement}"
        )

    def render(self) -> str:
        most = float(np.abs(self.gradients).max())
        shown = strongest(self.gradients, MOST_LINES)
        rows = [("gradients", "occlusion", "", "word")]
        for word in (self.words[place] for place in shown):
            name = " ".join(word.text.split())
            rows.append((f"{word.gradients:+.3f}", f"{word.occlusion:+.3f}", signs(word.gradients, most), name))
        left = len(self.words) - len(shown)
        more = [f"(and {left:,} weaker words)"] if left else []
        return "\n".join([self.heading(), self.facts(), *aligned(rows), *more])

    def figure(self) -> Figure:
        series = {"integrated gradients": self.gradients, "occlusion": self.occlusion}
        return bars([word.text for word in self.words], series, f"for (+) or against (-) {self.label:.40}, logits")

    def texts(self) -> list[tuple[str, int, list[Span]]]:
        """Each text, the number of its first word, and where its words are."""
        found, first = [], 0
        for text, second in ((self.text, False), (self.text_pair, True)):
            if text is not None:
                spans = [Span(word.start, word.end) for word in self.words if word.second == second]
                found.append((text, first, spans))
                first += len(spans)
        return found

    def page(self) -> str:
        """The texts in HTML, each word colored by what it moves; needs no network."""
        panels = []
        for name, values in (("Integrated gradients", self.gradients), ("Occlusion", self.occlusion)):
            most = float(np.abs(values).max())
            texts = [
                f'<p class="words">{colored(text, spans, values[first:], first=first, most=most)}</p>'
                for text, first, spans in self.texts()
            ]
            panels.append(f'<section aria-label="{name}"><h2>{name}</h2>\n{"".join(texts)}</section>')
        data: Json = {"words": [[word.text, word.gradients, word.occlusion] for word in self.words]}
        name = html.escape(self.label if len(self.label) <= 60 else self.label[:59] + "…")
        body = (
            f"<style>\n{asset('explanation.css')}</style>\n<p>{html.escape(self.heading())}</p>\n"
            f'<p class="legend"><span class="word for" style="--share:1">for {name}</span> '
            f'<span class="word against" style="--share:1">against {name}</span> '
            '<span class="quiet">Point at a word, or press Tab and the arrow keys.</span></p>\n'
            f'<p id="value" role="status" class="controls">&nbsp;</p>\n<div class="beside">{"".join(panels)}</div>\n'
            f'<p class="quiet">{html.escape(self.facts())}.</p>'
        )
        return document(self.title, body, data=data, script="explanation.js")


class Explainer:
    """A model that explains its answers; it is loaded once. See :func:`explain`."""

    def __init__(
        self,
        model: str | Path | Network,
        tokenizer: str | Path | PreTrainedTokenizer | None = None,
        *,
        baseline: Baseline = "mask",
        device: Any = None,
    ) -> None:
        if baseline not in ("mask", "pad"):
            raise InputError(f"baseline must be 'mask' or 'pad', got {baseline!r}")
        self.pipe: Pipeline = open_model(model, tokenizer, device)
        words = self.pipe.tokenizer
        self.mask: int = words.mask_token_id
        self.baseline = baseline
        self._baseline: tuple[int, str] = (
            (self.mask, words.mask_token) if baseline == "mask" else (words.pad_token_id, words.pad_token)
        )

    def explain(
        self,
        text: str,
        text_pair: str | None = None,
        *,
        label: str | None = None,
        word: int | str | None = None,
        truncation: bool = False,
        max_length: int | None = None,
        most_steps: int = MOST_STEPS,
    ) -> Explanation:
        """Explain one answer."""
        read = ExplainedText(self.pipe, text, text_pair, truncation=truncation, max_length=max_length)
        target = read.target(label, word)
        attributor, tokens = read.attributor(target.score), [each.tokens for each in read.words]
        number, baseline = self._baseline
        with Progress(None, label="gradients", unit="steps") as bar:
            found = attributor.integrated_gradients(number, most_steps=most_steps, advance=bar.advance)
        gradients = [float(found.tokens[list(own)].sum()) for own in tokens]
        occlusion: list[float] = attributor.occlusion(tokens, self.mask).tolist()
        return Explanation(
            task=self.pipe.task,
            text=text,
            text_pair=text_pair,
            label=target.label,
            predicted=target.predicted,
            probability=target.probability,
            score=found.score,
            baseline=baseline,
            baseline_score=found.baseline_score,
            steps=found.steps,
            completeness_error=found.error,
            agreement=_agreement(gradients, occlusion),
            words=tuple(
                ExplainedWord(each.text, each.start, each.end, each.second, slope, fall)
                for each, slope, fall in zip(read.words, gradients, occlusion, strict=True)
            ),
            word=target.word,
            truncated=read.truncated,
        )


def explain(
    text: str,
    text_pair: str | None = None,
    *,
    model: str | Path | Network,
    tokenizer: str | Path | PreTrainedTokenizer | None = None,
    label: str | None = None,
    word: int | str | None = None,
    baseline: Baseline = "mask",
    truncation: bool = False,
    max_length: int | None = None,
    device: Any = None,
) -> Explanation:
    """Which words of a text moved a prediction, by two methods that know nothing of each other.

    Integrated gradients (Sundararajan et al. 2017) go from a text of masks to the text, and add up to what the model
    says of it beyond what it says of the masks. Occlusion masks one word after the other, and looks how far the score
    falls. Words are what the tokenizer takes for words: punctuation stands alone.

    Args:
        text: a text; of a model that answers questions, the question.
        text_pair: the second text of a pair, or the context of a question.
        model: a folder, a Hub name, a run folder of ``bertkit finetune``, or a model object; with a head that gives a
            label or a number to a text or a pair, tags to words, or answers to questions.
        tokenizer: needed for a model object.
        label: the label, tag or answer to explain; None: what the model gives.
        word: of a tagger: the word whose tag is explained, as it is written, or its number from 1 on; None: the word
            that is most certainly no outsider.
        baseline: the token in place of all words at the start: ``"mask"`` or ``"pad"``.
        truncation: True cuts a text that is too long, False refuses it.
        max_length: most tokens of a text; None: as the model was trained.
        device: see :func:`bertkit.pipeline`.

    Raises:
        InputError: a model without such a head, in 8 bits, or exported; a label that it does not have; a word that the
            text does not have; too many texts or too few for its head.
        TextError: a text that is empty, or too long.
    """
    explainer = Explainer(model, tokenizer, baseline=baseline, device=device)
    return explainer.explain(text, text_pair, label=label, word=word, truncation=truncation, max_length=max_length)


def _agreement(gradients: Sequence[float], occlusion: Sequence[float]) -> float | None:
    found = spearman(gradients, occlusion)
    return None if math.isnan(found) else found
