"""``bertkit demo --pretrain``: from running text to a BERT of one's own, on text that every Python has.

It goes the way of the commands ``vocab``, ``prepare``, ``pretrain`` and ``fill-mask``, and leaves what they leave, so
that each of them can go on from there.
"""

from __future__ import annotations

import math
import platform
import random
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.cli.common_options import Common, write_json, write_line
from bertkit.cli.demo.demo import make_room, shorten_text
from bertkit.cli.demo.demo_corpus import Prose, collect_prose, hold_out, write_text
from bertkit.system.console import clock, say

if TYPE_CHECKING:
    from bertkit.tokenization import BertTokenizer
    from bertkit.training.pretraining.pretrain import PretrainResult
    from bertkit.training.pretraining.pretrain_settings import PretrainConfig

PARTS = ("text", "tokenizer", "store", "held-out-store", "run")
#: Share of the words that is held out, and how many of its sentences are shown with a word masked.
HELD_OUT, SHOWN = 0.1, 6
#: Sentences are shown that have so many words; the masked word has so many letters.
SENTENCE_WORDS, WORD_LETTERS = range(8, 19), range(4, 13)

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Size:
    """How much work.

    documents: most documents of text; None takes all. vocabulary: most tokens. layers, width: of the encoder.
    settings: of the training.
    """

    documents: int | None
    vocabulary: int
    layers: int
    width: int
    settings: dict[str, Any]


FULL = Size(
    documents=None,
    vocabulary=4096,
    layers=2,
    width=128,
    settings={
        # What makes words appear within minutes; the recipe mini says why.
        "max_seconds": 180.0,
        "max_seq_length": 32,
        "batch_size": 64,
        "masked_lm_prob": 0.3,
        "output_bias": "unigram",
        "optimizer": "muon",
        "learning_rate": 3e-3,
        "adam_beta2": 0.98,
        "warmup": 0.05,
        "dev_examples": 512,
    },
)
QUICK = Size(
    documents=250,
    vocabulary=1024,
    layers=1,
    width=64,
    settings={**FULL.settings, "max_seconds": None, "max_steps": 40, "dev_examples": 128},
)


def show(out: Path, size: Size, common: Common) -> None:
    """The whole show; see :func:`bertkit.cli.demo.demo.demo`.

    Raises:
        ConfigError: ``out`` holds something that is not the demo's.
        DataError: this Python comes without the sources of its standard library.
        Interrupted: Ctrl-C or SIGTERM while training.
    """
    common.begin()
    make_room(out, PARTS)
    say(f"1/5  reading the documentation of Python {platform.python_version()}'s standard library")
    train, held_out = _write_texts(out / "text", size, common.seed)
    say(f"     {_count(train)} to learn from, {_count(held_out)} held out, of other files: {out / 'text'}")
    say("2/5  learning a vocabulary, as 'bertkit vocab' does it")
    tokenizer = _learn_tokenizer(out / "tokenizer", train, size)
    say(f"     {len(tokenizer):,} tokens: {out / 'tokenizer'}")
    say("3/5  tokenising the text once, as 'bertkit prepare' does it")
    num_tokens = _prepare(out, tokenizer)
    say(f"     {num_tokens:,} tokens: {out / 'store'}")
    say(f"4/5  {_about_training(size)}")
    result = _pretrain(out, size, common)
    say("5/5  asking the new model for words that were masked in the held-out text")
    answers = _ask(result.model, held_out, tokenizer, common)
    losses = _losses(out / "run", result, len(tokenizer))
    same_answer = _same_answer(out, tokenizer, _settings(size, common.seed))
    commands = next_commands(out)
    if common.json:
        write_json(
            {
                "folder": str(out),
                "model": str(result.model),
                "vocabulary": len(tokenizer),
                "tokens": num_tokens,
                "steps": result.progression.step,
                "seconds": round(result.progression.seconds, 1),
                "losses": losses,
                "scores": dict(result.scores),
                "next_sentence_same_answer": same_answer,
                "answers": answers,
                "pictures": _pictures(out / "run"),
                "next": commands,
            }
        )
        return
    for line in _story(out, result, losses, same_answer, answers, commands):
        write_line(line)


def next_commands(out: Path) -> list[str]:
    """Commands that work as they stand when the demo is done."""
    model = out / "run" / "model"
    commands = [
        ["fill-mask", "--model", model, "Return the [MASK] of the list."],
        ["next-sentence", "--model", model, "Open the file for reading.", "It is closed when the block ends."],
        ["similarity", "--model", model, "Open a file.", "Read the contents of a file.", "Add two fractions."],
        ["inspect", model],
        ["inspect", out / "store"],
    ]
    return [shlex.join(["bertkit", *map(str, command)]) for command in commands]


def _write_texts(folder: Path, size: Size, seed: int) -> tuple[list[Prose], list[Prose]]:
    train, held_out = hold_out(collect_prose(most=size.documents), share=HELD_OUT, seed=seed)
    folder.mkdir()
    write_text(folder / "train.txt", train)
    write_text(folder / "held-out.txt", held_out)
    return train, held_out


def _count(documents: list[Prose]) -> str:
    return f"{sum(document.num_words for document in documents):,} words"


def _learn_tokenizer(folder: Path, train: list[Prose], size: Size) -> BertTokenizer:
    from bertkit.tokenization import BertTokenizer
    from bertkit.tokenization.learn.wordpiece_learner import learn_vocabulary

    texts = (paragraph for document in train for paragraph in document.paragraphs)
    tokens = learn_vocabulary(texts, size.vocabulary, num_unused=99)
    tokenizer = BertTokenizer({token: number for number, token in enumerate(tokens)})
    tokenizer.save_pretrained(folder)
    return tokenizer


def _prepare(out: Path, tokenizer: BertTokenizer) -> int:
    """Both stores; the number of tokens to learn from."""
    from bertkit.data.store.prepare import prepare

    prepare(out / "text" / "held-out.txt", tokenizer, out / "held-out-store", workers=1)
    return prepare(out / "text" / "train.txt", tokenizer, out / "store", workers=1).counts.num_tokens


def _about_training(size: Size) -> str:
    seconds = size.settings["max_seconds"]
    length = f"{size.settings['max_steps']} steps" if seconds is None else clock(seconds)
    return f"pre-training {size.layers} layers of width {size.width} for {length}, as 'bertkit pretrain' does it"


def _settings(size: Size, seed: int) -> PretrainConfig:
    from bertkit.training.pretraining.pretrain_settings import PretrainConfig

    return PretrainConfig(**size.settings, seed=seed)


def _pretrain(out: Path, size: Size, common: Common) -> PretrainResult:
    from bertkit.config.bert_config import BertConfig
    from bertkit.data.store.token_store import TokenStore
    from bertkit.system.device import find_device
    from bertkit.system.interrupts import Interrupted
    from bertkit.training.pretraining.pretrain import pretrain

    store, config = TokenStore(out / "store"), _settings(size, common.seed)
    shape = BertConfig(
        vocab_size=store.manifest.tokenizer.num_tokens,
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.width // 32,
        intermediate_size=4 * size.width,
        max_position_embeddings=128,
        # 0.02 is for a width of 768; with it so narrow an encoder takes two to three times the steps to begin to learn.
        initializer_range=size.width**-0.5,
        # So short a run never learns its text by heart.
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    try:
        return pretrain(
            store,
            out / "run",
            config,
            model=shape,
            dev=TokenStore(out / "held-out-store"),
            device=str(find_device(common.device)),
        )
    except Interrupted as stop:
        raise Interrupted("stopped; run it again for the whole show, it begins anew", stop.signum) from None


def _losses(run: Path, result: PretrainResult, vocabulary: int) -> dict[str, float]:
    """Masked-LM losses in nats, from knowing nothing to the end of the run."""
    from bertkit.training.trainer.run_log import read_log

    first = next(record for record in read_log(run / "log.jsonl") if "event" not in record)
    return {
        "uniform": math.log(vocabulary),
        "first_step": first["masked_lm_loss"],
        "unigram_entropy": result.unigram_entropy,
        "held_out": result.scores["masked_lm_loss"],
    }


def _same_answer(out: Path, tokenizer: BertTokenizer, config: PretrainConfig) -> float:
    """Share of the held-out pairs that one and the same answer gets right: what NSP accuracy must beat.

    It is above a half: a document of few sentences has no true pair of the wanted length.
    """
    import torch

    from bertkit.data.examples.masking import MaskVocabulary
    from bertkit.data.store.token_store import TokenStore
    from bertkit.training.pretraining.held_out_scores import scored_batches
    from bertkit.training.pretraining.pretrain_data import held_out_data

    data = held_out_data(TokenStore(out / "held-out-store"), MaskVocabulary.of_tokenizer(tokenizer), config)
    scored = scored_batches(data, config.dev_examples)
    share = float(torch.cat([batch.targets["next_sentence_label"] for batch in scored]).float().mean())
    return max(share, 1 - share)


def _ask(model: Path, held_out: list[Prose], tokenizer: BertTokenizer, common: Common) -> list[dict[str, Any]]:
    """Held-out sentences, each with one word masked: what the model says, and the right word."""
    from bertkit.inference.pipelines import pipeline

    chosen = choose_words(held_out, tokenizer.vocab.keys(), seed=common.seed)
    found = pipeline("fill-mask", model=model, device=common.device)([text for text, _ in chosen], top_k=3)
    return [
        {
            "text": text,
            "right": word,
            "guesses": [{"token": guess["token_str"], "score": guess["score"]} for guess in guesses],
        }
        for (text, word), guesses in zip(chosen, found, strict=True)
    ]


def choose_words(documents: list[Prose], vocabulary: Any, *, seed: int, count: int = SHOWN) -> list[tuple[str, str]]:
    """Sentences with a word of the vocabulary masked, and the word; drawn without looking at what a model says.

    Args:
        documents: where the sentences are from, at most one of each.
        vocabulary: the known tokens; a word that is several tokens has no single mask.
        seed: fixes the choice.
        count: how many at most.
    """
    from bertkit.data.corpus.sentences import split_lines

    chance = random.Random(seed)
    chosen: list[tuple[str, str]] = []
    for document in chance.sample(documents, len(documents)):
        candidates = []
        for sentence in split_lines(document.paragraphs):
            words = list(_WORD.finditer(sentence))
            if len(words) in SENTENCE_WORDS and sentence.endswith("."):
                known = [w for w in words[1:] if len(w[0]) in WORD_LETTERS and w[0] in vocabulary]
                candidates += [(sentence, word) for word in known]
        if candidates:
            sentence, word = chance.choice(candidates)
            chosen.append((f"{sentence[: word.start()]}[MASK]{sentence[word.end() :]}", word[0]))
        if len(chosen) == count:
            break
    return chosen


def _pictures(run: Path) -> list[str]:
    return [str(path) for path in sorted(run.glob("*.png"))]


def _story(
    out: Path,
    result: PretrainResult,
    losses: dict[str, float],
    same_answer: float,
    answers: list[dict[str, Any]],
    commands: list[str],
) -> list[str]:
    """What the demo prints at its end."""
    at, scores = result.progression, result.scores
    lines = [
        f"A BERT of your own, after {at.step:,} steps in {clock(at.seconds)}: {result.model}",
        "",
        "Loss of guessing a masked word, in nats (lower is better):",
        f"  {losses['uniform']:6.2f}  every token of the vocabulary alike",
        f"  {losses['first_step']:6.2f}  the model before its first step",
        f"  {losses['unigram_entropy']:6.2f}  what you get for knowing only how frequent each word is",
        f"  {losses['held_out']:6.2f}  the model now, on text it never saw",
        "",
        f"Masked words it guesses right at once: {100 * scores['masked_lm_accuracy']:.0f} %",
        f"Does the second sentence follow the first? Right in {100 * scores['next_sentence_accuracy']:.0f} % "
        f"(always the same answer: {100 * same_answer:.0f} %)",
        "",
        "Sentences it never saw, with a word masked:",
    ]
    for answer in answers:
        guesses = ", ".join(f"{guess['token']} {guess['score']:.2f}" for guess in answer["guesses"])
        lines += [f"  {shorten_text(answer['text'], 110)}", f"      {guesses}   (right: {answer['right']})"]
    pictures = _pictures(out / "run")
    lines += ["", "Loss curve: " + (", ".join(pictures) if pictures else "none; pip install 'bertkit[plots]' for it")]
    longer = ["pretrain", out / "store", "--preset", "bert-mini", "--max-time", "1h", "--out", out / "longer-run"]
    return [
        *lines,
        "",
        "Try next:",
        *(f"  {command}" for command in commands),
        f"  {shlex.join(['bertkit', *map(str, longer)])}        for a better one",
        "  bertkit vocab --help        to begin with text of your own",
    ]
