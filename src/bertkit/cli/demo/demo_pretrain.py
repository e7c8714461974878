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

from bertkit.cli.common_options import Common, Computing, open_pipeline, write_json, write_line
from bertkit.cli.demo.demo_stage import about_pictures, as_typed, learn_tokenizer, make_room, pictures, shorten_text
from bertkit.cli.demo.demo_text import Prose, collect_prose, hold_out, write_text
from bertkit.system.console import clock, say

if TYPE_CHECKING:
    from bertkit.data.store.token_store import TokenStore
    from bertkit.tokenization import BertTokenizer
    from bertkit.training.pretraining.pretrain_settings import PretrainConfig

PARTS = ("text", "tokenizer", "store", "held-out-store", "run")
#: Share of the words that is held out, and how many of its sentences are shown with a masked word.
HELD_OUT, SHOWN = 0.1, 6
#: Numbers of words of the sentences shown, and of letters of the masked word.
SENTENCE_WORDS, WORD_LETTERS = range(8, 19), range(4, 13)

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Size:
    """How much work: documents (None: all) and tokens of the vocabulary at most, the encoder, and its training."""

    documents: int | None
    vocabulary: int
    layers: int
    width: int
    settings: dict[str, float | str | None]


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
    """Run the demo; see :func:`bertkit.cli.demo.demo`."""
    common.begin()
    from bertkit.config.bert_config import BertConfig
    from bertkit.data.store.prepare import prepare
    from bertkit.data.store.token_store import TokenStore
    from bertkit.system.device import find_device
    from bertkit.training.pretraining.pretrain import pretrain
    from bertkit.training.pretraining.pretrain_settings import PretrainConfig
    from bertkit.training.trainer.run_folder import read_log

    text, run = out / "text", out / "run"
    make_room(out, PARTS)
    say(f"1/5  reading the documentation of the standard library of Python {platform.python_version()}")
    train, held_out = hold_out(collect_prose(most=size.documents), share=HELD_OUT, seed=common.seed)
    text.mkdir()
    write_text(text / "train.txt", train)
    write_text(text / "held-out.txt", held_out)
    words, others = (f"{sum(document.num_words for document in part):,} words" for part in (train, held_out))
    say(f"     {words} to train on, {others} from other files held out: {text}")
    say("2/5  learning a vocabulary, like 'bertkit vocab'")
    paragraphs = (paragraph for document in train for paragraph in document.paragraphs)
    tokenizer = learn_tokenizer(out / "tokenizer", paragraphs, size.vocabulary)
    say(f"     {len(tokenizer):,} tokens: {out / 'tokenizer'}")
    say("3/5  tokenizing the text once, like 'bertkit prepare'")
    prepare(text / "held-out.txt", tokenizer, out / "held-out-store", workers=1)
    num_tokens = prepare(text / "train.txt", tokenizer, out / "store", workers=1).counts.num_tokens
    say(f"     {num_tokens:,} tokens: {out / 'store'}")
    config = PretrainConfig(**{**size.settings, "seed": common.seed})
    length = f"{config.max_steps} steps" if config.max_seconds is None else clock(config.max_seconds)
    say(f"4/5  pre-training {size.layers} layers of width {size.width} for {length}, like 'bertkit pretrain'")
    shape = BertConfig(
        vocab_size=len(tokenizer),
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
    dev, device = TokenStore(out / "held-out-store"), str(find_device(common.device))
    result = pretrain(TokenStore(out / "store"), run, config, model=shape, dev=dev, device=device)
    say("5/5  asking the new model for words masked in the held-out text")
    first = next(record for record in read_log(run / "log.jsonl") if "event" not in record)
    facts: dict[str, Any] = {
        "folder": str(out),
        "model": str(result.model),
        "vocabulary": len(tokenizer),
        "tokens": num_tokens,
        "steps": result.progression.step,
        "seconds": round(result.progression.seconds, 1),
        "losses": {  # of masked words, in nats
            "uniform": math.log(len(tokenizer)),
            "first_step": first["masked_lm_loss"],
            "unigram_entropy": result.unigram_entropy,
            "held_out": result.scores["masked_lm_loss"],
        },
        "scores": dict(result.scores),
        "next_sentence_same_answer": _same_answer(dev, tokenizer, config),
        "answers": _ask(result.model, choose_words(held_out, tokenizer.vocab.keys(), seed=common.seed), common),
        "pictures": pictures(run),
        "next": next_commands(out),
    }
    if common.json:
        write_json(facts)
    else:
        _report(out, facts)


def next_commands(out: Path) -> list[str]:
    """Commands that work as they stand when the demo is done."""
    model = out / "run" / "model"
    return [
        as_typed("fill-mask", "--model", model, "Return the [MASK] of the list."),
        as_typed("next-sentence", "--model", model, "Open the file for reading.", "It is closed when the block ends."),
        as_typed("similarity", "--model", model, "Open a file.", "Read the contents of a file.", "Add two fractions."),
        as_typed("inspect", model),
        as_typed("inspect", out / "store"),
    ]


def _same_answer(held_out: TokenStore, tokenizer: BertTokenizer, config: PretrainConfig) -> float:
    """Share of the held-out pairs that a constant answer gets right: what NSP accuracy must beat.

    It is above one half: a document of few sentences has no true pair of the wanted length.
    """
    import torch

    from bertkit.data.examples.masking import MaskVocabulary
    from bertkit.training.pretraining.pretrain_data import held_out_data, scored_batches

    data = held_out_data(held_out, MaskVocabulary.of_tokenizer(tokenizer), config)
    scored = scored_batches(data, config.dev_examples)
    share = float(torch.cat([batch.targets["next_sentence_label"] for batch in scored]).float().mean())
    return max(share, 1 - share)


def _ask(model: Path, masked: list[tuple[str, str]], common: Common) -> list[dict[str, Any]]:
    """Texts with one masked word each: the guesses of the model, and the right word."""
    pipe = open_pipeline("fill-mask", str(model), Computing(**vars(common)))
    found = pipe([text for text, _ in masked], top_k=3)
    return [
        {
            "text": text,
            "right": word,
            "guesses": [{"token": guess["token_str"], "score": guess["score"]} for guess in guesses],
        }
        for (text, word), guesses in zip(masked, found, strict=True)
    ]


def choose_words(documents: list[Prose], vocabulary: Container[str], *, seed: int) -> list[tuple[str, str]]:
    """Sentences with a masked word, and the word; chosen without asking a model, at most one from each document.

    Only a word that is one token, so in the vocabulary, can be masked.
    """
    from bertkit.data.corpus.documents import split_lines

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
        if len(chosen) == SHOWN:
            break
    return chosen


def _report(out: Path, facts: dict[str, Any]) -> None:
    losses, scores = facts["losses"], facts["scores"]
    lines = [
        f"A BERT of your own, after {facts['steps']:,} steps in {clock(facts['seconds'])}: {facts['model']}",
        "",
        "Loss of guessing a masked word, in nats (lower is better):",
        f"  {losses['uniform']:6.2f}  a uniform guess over the vocabulary",
        f"  {losses['first_step']:6.2f}  the model before its first step",
        f"  {losses['unigram_entropy']:6.2f}  knowing only how frequent each word is",
        f"  {losses['held_out']:6.2f}  the model now, on held-out text",
        "",
        f"Masked words guessed right at the first attempt: {100 * scores['masked_lm_accuracy']:.0f} %",
        f"Does the second sentence follow the first? Right in {100 * scores['next_sentence_accuracy']:.0f} % "
        f"(always the same answer: {100 * facts['next_sentence_same_answer']:.0f} %)",
        "",
        "Held-out sentences with a masked word:",
    ]
    for answer in facts["answers"]:
        guesses = ", ".join(f"{guess['token']} {guess['score']:.2f}" for guess in answer["guesses"])
        lines += [f"  {shorten_text(answer['text'], 110)}", f"      {guesses}   (right: {answer['right']})"]
    lines += ["", about_pictures(out / "run", "Loss curve"), "", "Try next:"]
    lines += [f"  {command}" for command in facts["next"]]
    longer = ("--preset", "bert-mini", "--max-time", "1h", "--out", out / "longer-run")
    lines += ["", f"For a better model: {as_typed('pretrain', out / 'store', *longer)}"]
    lines += [f"For text of your own: {as_typed('vocab', '--help')}"]
    write_line("\n".join(lines))
