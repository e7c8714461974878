"""How good the explanations of a fine-tuned classifier are; see ``benchmarks/results/look-inside.md``.

    bertkit finetune sst2 --data SST-2 --model MiniLM --out RUN --max-train-rows 12000 --epochs 2
    python benchmarks/explained_words.py RUN SST-2/dev.tsv

Of texts of at least eight words: how complete the gradients are, how far ``captum`` is from them, how well the two
methods agree, and how far the probability falls when the five words that speak most for the label are taken out of the
text, beside five random ones. Two controls: a model of the same shape with random weights that explains itself, and the
same model as what chooses the words for the trained one (Adebayo et al. 2018), which must be no better than chance.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import torch
from captum.attr import IntegratedGradients

from bertkit import AutoModelForSequenceClassification, AutoTokenizer
from bertkit.insight.explanation import Explainer, Explanation
from bertkit.metrics.scores import spearman

NUM_TEXTS, NUM_WORDS, FEWEST_WORDS = 200, 5, 8


def without(explanation: Explanation, places: list[int]) -> str:
    characters = list(explanation.text)
    for place in places:
        word = explanation.words[place]
        characters[word.start : word.end] = " " * (word.end - word.start)
    return " ".join("".join(characters).split()) or "."


def distance_to_captum(explainer: Explainer, found: Explanation) -> float:
    """The largest difference of a word, as a share of the largest word."""
    model, tokenizer = explainer.pipe.model, explainer.pipe.tokenizer
    inputs = tokenizer(found.text, return_tensors="pt", return_special_tokens_mask=True)
    special = inputs["special_tokens_mask"].bool()[..., None]
    table = model.bert.embeddings.word_embeddings
    with torch.no_grad():
        words = table(inputs["input_ids"])
        baseline = torch.where(special, words, table(torch.tensor(tokenizer.mask_token_id)))
    number = {name: number for number, name in model.config.id2label.items()}[found.label]
    method = IntegratedGradients(lambda embeds: model(inputs_embeds=embeds).logits)
    theirs = method.attribute(words, baseline, target=number, n_steps=found.steps, method="gausslegendre")
    sums = np.zeros(len(found.words))
    parts = zip(inputs.word_ids(0), inputs.sequence_ids(0), theirs.sum(dim=-1)[0].tolist(), strict=True)
    for word, part, value in parts:
        if part is not None:
            sums[word] += value
    return float(np.abs(sums - found.gradients).max() / np.abs(sums).max())


def falls(model: torch.nn.Module, tokenizer: object, found: Explanation, chosen: list[list[int]]) -> list[float]:
    """How far the probability of the label falls without each set of words."""
    texts = [found.text, *(without(found, places) for places in chosen)]
    number = {name: number for number, name in model.config.id2label.items()}[found.label]
    with torch.no_grad():
        logits = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    first, *others = torch.softmax(logits.double(), dim=-1)[:, number].tolist()
    return [first - other for other in others]


def main(run: str, file: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(run)
    model = AutoModelForSequenceClassification.from_pretrained(run).eval()
    torch.manual_seed(0)
    untrained = type(model)(model.config).eval()
    lines = Path(file).read_text(encoding="utf-8").splitlines()[1:]
    texts = [text for text in (line.split("\t")[0] for line in lines) if len(text.split()) >= FEWEST_WORDS]
    random.Random(0).shuffle(texts)
    texts, draw = texts[:NUM_TEXTS], random.Random(1)
    explainers = {name: Explainer(each, tokenizer) for name, each in (("trained", model), ("random", untrained))}
    found: dict[str, list[float]] = {}

    def note(name: str, value: float | None) -> None:
        found.setdefault(name, []).append(np.nan if value is None else value)

    for text in texts:
        both = {name: explainer.explain(text) for name, explainer in explainers.items()}
        own, other = both["trained"], both["random"]
        for name, each in both.items():
            chosen = draw.sample(range(len(each.words)), NUM_WORDS)
            best = np.argsort(-each.gradients)[:NUM_WORDS].tolist()
            hidden = np.argsort(-each.occlusion)[:NUM_WORDS].tolist()
            fall = falls(explainers[name].pipe.model, tokenizer, each, [best, hidden, chosen])
            note(f"{name}: completeness error", each.completeness_error)
            note(f"{name}: steps", each.steps)
            note(f"{name}: agreement", each.agreement)
            note(f"{name}: fall without the best by gradients", fall[0])
            note(f"{name}: fall without the best by occlusion", fall[1])
            note(f"{name}: fall without random words", fall[2])
            note(f"{name}: gradients beat random words", fall[0] > fall[2])
            note(f"{name}: occlusion beats random words", fall[1] > fall[2])
        note("trained: distance to captum", distance_to_captum(explainers["trained"], own))
        # The random model has a logit of its own for the label; its words are tried on the trained one.
        other = explainers["random"].explain(text, label=own.label)
        note("crossed: agreement", spearman(other.gradients, own.occlusion))
        best, chosen = np.argsort(-other.gradients)[:NUM_WORDS].tolist(), draw.sample(range(len(own.words)), NUM_WORDS)
        fall = falls(model, tokenizer, own, [best, chosen])
        note("crossed: fall without the best by gradients", fall[0])
        note("crossed: fall without random words", fall[1])
        note("crossed: gradients beat random words", fall[0] > fall[1])
    print(f"{len(texts)} texts of {file}")
    print(f"{'':52} {'mean':>8} {'median':>8} {'largest':>10}")
    for name, values in found.items():
        print(f"{name:52} {np.nanmean(values):8.4f} {np.nanmedian(values):8.4f} {np.nanmax(values):10.2g}")


if __name__ == "__main__":
    main(*sys.argv[1:])
