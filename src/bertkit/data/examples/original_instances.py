"""Pre-training examples as the original BERT code makes them.

The algorithm and the order of the calls of ``random.Random`` are those of ``create_pretraining_data.py`` of
google-research/bert (Devlin et al. 2019, sections 3.1 and A.2): the same seed, vocabulary and input give the same
examples, so that old results can be reproduced. Everything is in memory and in plain Python;
:mod:`bertkit.data.examples.pairs` is for corpora of any size and has none of the weaknesses kept here:

* a "random" second segment comes from the document itself when ten draws in a row hit it (always, where there is only
  one document), and is labelled random all the same;
* a chunk of one sentence never gives a true pair, so more than half of all pairs are random;
* a random token may be a special or unused token of the vocabulary.

Deviations from the original: settings are an object, not arguments and global flags; settings that leave no room are
errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random

from bertkit.errors import ConfigError

#: Tries to find another document for a random second segment.
RANDOM_DOCUMENT_TRIES = 10
#: [CLS], two [SEP] and one token on each side.
MIN_SEQ_LENGTH = 5

#: The tokens of one sentence, and the sentences of one document.
Sentence = list[str]
TokenizedDocument = Sequence[Sentence]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSettings:
    """The original's flags, by their names.

    max_seq_length: maximum tokens of an example, special tokens included; at least 5.
    dupe_factor: passes over the corpus, each with other pairs and masks.
    short_seq_prob: share of documents cut into shorter examples.
    masked_lm_prob: share of tokens to predict.
    max_predictions_per_seq: maximum tokens to predict in one example.
    do_whole_word_mask: mask all pieces of a word or none.

    Raises:
        ConfigError: a setting out of bounds.
    """

    max_seq_length: int
    dupe_factor: int = 1
    short_seq_prob: float
    masked_lm_prob: float
    max_predictions_per_seq: int
    do_whole_word_mask: bool = False

    def __post_init__(self) -> None:
        if self.max_seq_length < MIN_SEQ_LENGTH:
            raise ConfigError(
                f"max_seq_length must be at least {MIN_SEQ_LENGTH} ([CLS], two [SEP], a token on each side), "
                f"got {self.max_seq_length}"
            )
        for name in ("dupe_factor", "max_predictions_per_seq"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("short_seq_prob", "masked_lm_prob"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} must be from 0 to 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class TrainingInstance:
    """One example: a pair of segments with some tokens masked.

    tokens: ``[CLS] A [SEP] B [SEP]`` after masking.
    segment_ids: 0 up to the first [SEP], 1 behind it; one for each token.
    is_random_next: whether B was drawn at random instead of following A.
    masked_lm_positions: places in ``tokens`` to predict, ascending.
    masked_lm_labels: what stood there before.
    """

    tokens: list[str]
    segment_ids: list[int]
    is_random_next: bool
    masked_lm_positions: list[int]
    masked_lm_labels: list[str]


@dataclass(frozen=True, order=True)
class MaskedLmInstance:
    """One prediction: the place of a token and what stood there."""

    index: int
    label: str


def instances_from_documents(
    all_documents: list[TokenizedDocument], vocab_words: Sequence[str], settings: InstanceSettings, rng: Random
) -> Iterator[TrainingInstance]:
    """The examples of a tokenized corpus, before the original's last shuffle.

    ``all_documents``, none of them empty, are shuffled in place. Random tokens come from ``vocab_words``, all
    randomness from ``rng``.
    """
    rng.shuffle(all_documents)
    for _ in range(settings.dupe_factor):
        for document_index in range(len(all_documents)):
            yield from document_instances(all_documents, document_index, vocab_words, settings, rng)


def document_instances(
    all_documents: Sequence[TokenizedDocument],
    document_index: int,
    vocab_words: Sequence[str],
    settings: InstanceSettings,
    rng: Random,
) -> list[TrainingInstance]:
    """The examples of one document.

    Sentences are collected until they fill an example, then cut at a random sentence into A and B; half of the time a
    stretch of another document takes the place of B, and the sentences that made up B are used again.
    """
    document = all_documents[document_index]
    max_num_tokens = settings.max_seq_length - 3
    target_seq_length = max_num_tokens
    if rng.random() < settings.short_seq_prob:
        target_seq_length = rng.randint(2, max_num_tokens)
    instances: list[TrainingInstance] = []
    start = 0
    while start < len(document):
        end, length = start, 0
        while end < len(document) and length < target_seq_length:
            length += len(document[end])
            end += 1
        a_end = start + 1 if end - start == 1 else start + rng.randint(1, end - start - 1)
        tokens_a = list(chain.from_iterable(document[start:a_end]))
        # The draw must not happen where there is only one sentence: every call moves the generator on.
        is_random_next = end - start == 1 or rng.random() < 0.5
        if is_random_next:
            tokens_b = _random_segment(all_documents, document_index, target_seq_length - len(tokens_a), rng)
            start = a_end
        else:
            tokens_b = list(chain.from_iterable(document[a_end:end]))
            start = end
        truncate_seq_pair(tokens_a, tokens_b, max_num_tokens, rng)
        tokens = ["[CLS]", *tokens_a, "[SEP]", *tokens_b, "[SEP]"]
        masked, positions, labels = create_masked_lm_predictions(
            tokens,
            settings.masked_lm_prob,
            settings.max_predictions_per_seq,
            vocab_words,
            rng,
            do_whole_word_mask=settings.do_whole_word_mask,
        )
        segment_ids = [0] * (len(tokens_a) + 2) + [1] * (len(tokens_b) + 1)
        instances.append(TrainingInstance(masked, segment_ids, is_random_next, positions, labels))
    return instances


def create_masked_lm_predictions(
    tokens: Sequence[str],
    masked_lm_prob: float,
    max_predictions_per_seq: int,
    vocab_words: Sequence[str],
    rng: Random,
    *,
    do_whole_word_mask: bool = False,
) -> tuple[list[str], list[int], list[str]]:
    """Choose tokens to predict and hide them: 80 % as ``[MASK]``, 10 % as a random token, 10 % not at all.

    Args:
        tokens: one example, with ``[CLS]`` and ``[SEP]``, which are never chosen.
        masked_lm_prob: share of ``tokens`` to predict, at least one token.
        max_predictions_per_seq: maximum tokens to predict.
        vocab_words: where random tokens come from.
        rng: the only source of randomness.
        do_whole_word_mask: choose words, all pieces at once; a word with more pieces than may still be chosen is
            passed over. Each piece is hidden by its own draw.

    Returns:
        The tokens after hiding, the places chosen in ascending order, and what stood there.
    """
    num_to_predict = min(max_predictions_per_seq, max(1, round(len(tokens) * masked_lm_prob)))
    candidates = list(_candidates(tokens, do_whole_word_mask))
    rng.shuffle(candidates)
    output_tokens = list(tokens)
    chosen: list[MaskedLmInstance] = []
    for places in candidates:
        if len(chosen) >= num_to_predict:
            break
        if len(chosen) + len(places) > num_to_predict:
            continue
        for index in places:
            if rng.random() < 0.8:
                output_tokens[index] = "[MASK]"
            elif rng.random() >= 0.5:
                output_tokens[index] = vocab_words[rng.randint(0, len(vocab_words) - 1)]
            chosen.append(MaskedLmInstance(index, tokens[index]))
    chosen.sort()
    return output_tokens, [one.index for one in chosen], [one.label for one in chosen]


def truncate_seq_pair(tokens_a: list[str], tokens_b: list[str], max_num_tokens: int, rng: Random) -> None:
    """Shorten two segments in place until together they have ``max_num_tokens``.

    One token at a time goes from the longer segment (from B where both are of one length), from its front or its back
    with equal chance.
    """
    while len(tokens_a) + len(tokens_b) > max_num_tokens:
        longer = tokens_a if len(tokens_a) > len(tokens_b) else tokens_b
        del longer[0 if rng.random() < 0.5 else -1]


def _candidates(tokens: Sequence[str], whole_words: bool) -> Iterator[list[int]]:
    """Places that are chosen together: each token for itself, or the pieces of a word.

    As in the original a piece joins the candidate before it, even across a [SEP] that stands between them.
    """
    group: list[int] = []
    for index, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        if whole_words and group and token.startswith("##"):
            group.append(index)
            continue
        if group:
            yield group
        group = [index]
    if group:
        yield group


def _random_segment(
    all_documents: Sequence[TokenizedDocument], document_index: int, target_length: int, rng: Random
) -> list[str]:
    """Whole sentences of some document, from a random one on, until the target is reached; at least one sentence."""
    drawn = document_index
    for _ in range(RANDOM_DOCUMENT_TRIES):
        drawn = rng.randint(0, len(all_documents) - 1)
        if drawn != document_index:
            break
    document = all_documents[drawn]
    segment: list[str] = []
    for sentence in document[rng.randint(0, len(document) - 1) :]:
        segment += sentence
        if len(segment) >= target_length:
            break
    return segment
