"""``bertkit demo --pretrain``: from running text to a BERT of your own.

Does what the commands ``vocab``, ``prepare``, ``pretrain`` and ``fill-mask`` do, and leaves the same files.
"""

from __future__ import annotations

import math
import platform
import random
import re
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.cli.common_options import Common, write_json, write_line
from bertkit.cli.demo.demo_prose import Prose, collect_prose, hold_out, write_text
from bertkit.cli.demo.demo_stage import about_pictures, as_typed, learn_tokenizer, make_room, pictures, shorten_text
from bertkit.system.console import clock, say

if TYPE_CHECKING:
    from bertkit.tokenization import BertTokenizer
    from bertkit.training.pretraining.pretrain import PretrainResult
    from bertkit.training.pretraining.pretrain_settings import PretrainConfig

PARTS = ("text", "tokenizer", "store", "held-out-store", "run")
#: Share of the words that is held out, and how many of its sentences are shown with a masked word.
HELD_OUT, SHOWN = 0.1, 6
#: Numbers of words of the sentences shown, and of letters of the masked word.
SENTENCE_WORDS, WORD_LETTERS = range(8, 19), range(4, 13)

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Size:
    """How much work.

    documents: maximum number of documents; None means all. vocabulary: maximum number of tokens. layers, width: of the
    encoder. settings: of the training.
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
        # Chosen to learn words within minutes; the recipe mini explains them.
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
    """Run the demo; see :func:`bertkit.cli.demo.demo.demo`.

    Raises:
        ConfigError: ``out`` holds something that is not the demo's.
        DataError: this Python has no sources of its standard library.
        Interrupted: Ctrl-C or SIGTERM while training.
    """
    common.begin()
    make_room(out, PARTS)
    say(f"1/5  reading the documentation of the standard library of Python {platform.python_version()}")
    train, held_out = hold_out(collect_prose(most=size.documents), share=HELD_OUT, seed=common.seed)
    (out / "text").mkdir()
    write_text(out / "text" / "train.txt", train)
    write_text(out / "text" / "held-out.txt", held_out)
    say(f"     {_count(train)} to train on, {_count(held_out)} from other files held out: {out / 'text'}")
    say("2/5  learning a vocabulary, like 'bertkit vocab'")
    texts = (paragraph for document in train for paragraph in document.paragraphs)
    tokenizer = learn_tokenizer(out / "tokenizer", texts, size.vocabulary)
    say(f"     {len(tokenizer):,} tokens: {out / 'tokenizer'}")
    say("3/5  tokenising the text once, like 'bertkit prepare'")
    num_tokens = _prepare(out, tokenizer)
    say(f"     {num_tokens:,} tokens: {out / 'store'}")
    seconds = size.settings["max_seconds"]
    length = f"{size.settings['max_steps']} steps" if seconds is None else clock(seconds)
    say(f"4/5  pre-training {size.layers} layers of width {size.width} for {length}, like 'bertkit pretrain'")
    result = _pretrain(out, size, common)
    say("5/5  asking the new model for words masked in the held-out text")
    told = {
        "folder": str(out),
        "model": str(result.model),
        "vocabulary": len(tokenizer),
        "tokens": num_tokens,
        "steps": result.progression.step,
        "seconds": round(result.progression.seconds, 1),
        "losses": _losses(out / "run", result, len(tokenizer)),
        "scores": dict(result.scores),
        "next_sentence_same_answer": _same_answer(out, tokenizer, _settings(size, common.seed)),
        "answers": _ask(result.model, held_out, tokenizer, common),
        "pictures": pictures(out / "run"),
        "next": next_commands(out),
    }
    if common.json:
        write_json(told)
    else:
        _tell(out, told)


def next_commands(out: Path) -> list[str]:
    """Commands that work as they stand when the demo is done."""
    model = out / "run" / "model"
    return as_typed(
        [
            ["fill-mask", "--model", model, "Return the [MASK] of the list."],
            ["next-sentence", "--model", model, "Open the file for reading.", "It is closed when the block ends."],
            ["similarity", "--model", model, "Open a file.", "Read the contents of a file.", "Add two fractions."],
            ["inspect", model],
            ["inspect", out / "store"],
        ]
    )


def _count(documents: list[Prose]) -> str:
    return f"{sum(document.num_words for document in documents):,} words"


def _prepare(out: Path, tokenizer: BertTokenizer) -> int:
    """Write both stores; returns the number of training tokens."""
    from bertkit.data.store.prepare import prepare

    prepare(out / "text" / "held-out.txt", tokenizer, out / "held-out-store", workers=1)
    return prepare(out / "text" / "train.txt", tokenizer, out / "store", workers=1).counts.num_tokens


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
        # 0.02 suits a width of 768; with it, so narrow an encoder needs two to three times the steps to start learning.
        initializer_range=size.width**-0.5,
        # So short a run does not overfit.
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
        raise Interrupted("stopped; run it again for the whole demo, it starts over", stop.signum) from None


def _losses(run: Path, result: PretrainResult, vocabulary: int) -> dict[str, float]:
    """Masked-LM losses in nats, from a uniform guess to the end of the run."""
    from bertkit.training.trainer.run_folder import read_log

    first = next(record for record in read_log(run / "log.jsonl") if "event" not in record)
    return {
        "uniform": math.log(vocabulary),
        "first_step": first["masked_lm_loss"],
        "unigram_entropy": result.unigram_entropy,
        "held_out": result.scores["masked_lm_loss"],
    }


def _same_answer(out: Path, tokenizer: BertTokenizer, config: PretrainConfig) -> float:
    """Share of the held-out pairs that a constant answer gets right: what NSP accuracy must beat.

    It is above one half: a document of few sentences has no true pair of the wanted length.
    """
    import torch

    from bertkit.data.examples.masking import MaskVocabulary
    from bertkit.data.store.token_store import TokenStore
    from bertkit.training.pretraining.pretrain_data import held_out_data, scored_batches

    data = held_out_data(TokenStore(out / "held-out-store"), MaskVocabulary.of_tokenizer(tokenizer), config)
    scored = scored_batches(data, config.dev_examples)
    share = float(torch.cat([batch.targets["next_sentence_label"] for batch in scored]).float().mean())
    return max(share, 1 - share)


def _ask(model: Path, held_out: list[Prose], tokenizer: BertTokenizer, common: Common) -> list[dict[str, Any]]:
    """Held-out sentences with one masked word each: the guesses of the model, and the right word."""
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


def choose_words(
    documents: list[Prose], vocabulary: Container[str], *, seed: int, count: int = SHOWN
) -> list[tuple[str, str]]:
    """Sentences with a masked word of the vocabulary, and the word; chosen without asking a model.

    Args:
        documents: sources of the sentences, at most one from each.
        vocabulary: the known tokens; only a word that is one token can be masked.
        seed: fixes the choice.
        count: maximum number.
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


def _tell(out: Path, told: dict[str, Any]) -> None:
    losses, scores = told["losses"], told["scores"]
    lines = [
        f"A BERT of your own, after {told['steps']:,} steps in {clock(told['seconds'])}: {told['model']}",
        "",
        "Loss of guessing a masked word, in nats (lower is better):",
        f"  {losses['uniform']:6.2f}  a uniform guess over the vocabulary",
        f"  {losses['first_step']:6.2f}  the model before its first step",
        f"  {losses['unigram_entropy']:6.2f}  knowing only how frequent each word is",
        f"  {losses['held_out']:6.2f}  the model now, on held-out text",
        "",
        f"Masked words guessed right at the first attempt: {100 * scores['masked_lm_accuracy']:.0f} %",
        f"Does the second sentence follow the first? Right in {100 * scores['next_sentence_accuracy']:.0f} % "
        f"(always the same answer: {100 * told['next_sentence_same_answer']:.0f} %)",
        "",
        "Held-out sentences with a masked word:",
    ]
    for answer in told["answers"]:
        guesses = ", ".join(f"{guess['token']} {guess['score']:.2f}" for guess in answer["guesses"])
        lines += [f"  {shorten_text(answer['text'], 110)}", f"      {guesses}   (right: {answer['right']})"]
    longer = ["pretrain", out / "store", "--preset", "bert-mini", "--max-time", "1h", "--out", out / "longer-run"]
    lines += ["", about_pictures(out / "run", "Loss curve"), "", "Try next:"]
    lines += [f"  {command}" for command in told["next"]]
    lines += ["", f"For a better model: {as_typed([longer])[0]}"]
    lines += [f"For text of your own: {as_typed([['vocab', '--help']])[0]}"]
    for line in lines:
        write_line(line)
