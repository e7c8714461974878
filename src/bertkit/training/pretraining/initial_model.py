"""The initial model of pre-training: new weights, or a checkpoint completed by the heads and words that it lacks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

import torch

from bertkit.checkpoints.huggingface import config_path, find_weights
from bertkit.checkpoints.match import Status, match
from bertkit.checkpoints.names import TABLES
from bertkit.config.any_config import is_encoder_decoder
from bertkit.config.bert_config import BertConfig
from bertkit.data.store.store_manifest import tokenizer_digest
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import BertkitError, ConfigError, DataError
from bertkit.inference.protocol import model_hash
from bertkit.model.models import BertForMaskedLM, BertForNextSentencePrediction, BertForPreTraining
from bertkit.model.resize import resize_vocabulary
from bertkit.system.console import say
from bertkit.system.model_sources import resolve
from bertkit.system.untrusted_files import Json
from bertkit.tokenization import AutoTokenizer, BertTokenizer, WordpieceTokenizer, templates
from bertkit.training.pretraining.pretrain_settings import PretrainConfig
from bertkit.training.pretraining.word_statistics import cooccurrence_vectors, unigram_logits
from bertkit.training.trainer.generators import seeded

_unused = re.compile(r"\[unused\d+\]")


@dataclass(frozen=True, slots=True)
class NewWords:
    """Tokens of an extended tokenizer that its base lacks.

    ``bertkit vocab CORPUS --extend BASE`` keeps the ids of all tokens and puts new words in the places of
    ``[unusedN]``, then after the last id. A model continues with such a tokenizer once each new word has a row of
    weights, initialized with the mean of the rows of its pieces.

    base_size, size: tokens of the base and of the extended tokenizer.
    pieces: for the id of each new token, in order, the ids of the pieces that the base splits it into, at least one.
    num_in_unused_places: new tokens that replace an ``[unusedN]`` of the base; the others follow its last token.
    num_unknown: new tokens whose only piece is ``[UNK]``.
    """

    base_size: int
    size: int
    pieces: Mapping[int, Sequence[int]]
    num_in_unused_places: int
    num_unknown: int

    def __len__(self) -> int:
        return len(self.pieces)

    def __str__(self) -> str:
        unknown = f" ({self.num_unknown:,} of them [UNK])" if self.num_unknown else ""
        return (
            f"{len(self):,} new words, {self.num_in_unused_places:,} in the places of [unusedN] and "
            f"{len(self) - self.num_in_unused_places:,} after the last token; each is initialized with the mean of the "
            f"rows of its pieces{unknown}"
        )

    def to_dict(self) -> dict[str, int | str]:
        """The record in ``metrics.json``."""
        return {
            "count": len(self),
            "in_unused_places": self.num_in_unused_places,
            "after_the_last_token": len(self) - self.num_in_unused_places,
            "began_as": "mean of the rows of their pieces",
            "began_as_unk": self.num_unknown,
        }


def find_new_words(base: BertTokenizer, extended: BertTokenizer) -> NewWords:
    """Check that a tokenizer extends another, and find how the other splits each new word.

    It does if both treat text alike, every token of ``base`` has the same id in ``extended``, except for ``[unusedN]``
    that became words, and all other tokens follow. A text without new words then has the same ids in both. Otherwise
    a DataError names the first difference.
    """
    before, after = (tokenizer.convert_ids_to_tokens(range(len(tokenizer))) for tokenizer in (base, extended))
    known = set(before)
    _check_settings(base, extended, known)
    for number, (old, new) in enumerate(zip_longest(before, after)):
        may_change = old is None or _unused.fullmatch(old)
        if new != old and (new is None or new in known or not may_change):
            was, now = ("no token" if token is None else repr(token) for token in (old, new))
            raise DataError(f"id {number:,} is {was} in the checkpoint's tokenizer, {now} in the store's")
    ids = [number for number, token in enumerate(after) if token not in known]
    split = _pieces(base, [after[number] for number in ids])
    return NewWords(
        base_size=len(before),
        size=len(after),
        pieces=dict(zip(ids, split, strict=True)),
        num_in_unused_places=sum(number < len(before) for number in ids),
        num_unknown=split.count((base.unk_token_id,)),
    )


def _check_settings(base: BertTokenizer, extended: BertTokenizer, known: set[str]) -> None:
    ours, theirs = _settings(base), _settings(extended)
    for name, was in ours.items():
        if theirs[name] != was:
            raise DataError(f"{name} is {was!r} in the checkpoint's tokenizer, {theirs[name]!r} in the store's")
    # The ids of tokens that are never split are compared elsewhere.
    whole, also_whole = (
        {token.content: replace(token, id=0) for token in tokenizer._vocabulary.never_split}
        for tokenizer in (base, extended)
    )
    # New tokens may be never-split ones; tokens of the base must not become so.
    for token in sorted(whole.keys() | (also_whole.keys() & known)):
        if whole.get(token) != also_whole.get(token):
            raise DataError(
                f"how {token!r} is found in a text is {whole.get(token)} in the checkpoint's tokenizer, "
                f"{also_whole.get(token)} in the store's"
            )


def _settings(tokenizer: BertTokenizer) -> dict[str, bool | int | str | None]:
    """What determines, besides the tokens, how a text is split."""
    vocabulary = tokenizer._vocabulary
    strips = vocabulary.strip_accents
    return {
        "do_lower_case": vocabulary.do_lower_case,
        "strip_accents": vocabulary.do_lower_case if strips is None else strips,
        "tokenize_chinese_chars": vocabulary.tokenize_chinese_chars,
        "max_input_chars_per_word": vocabulary.max_input_chars_per_word,
        "prefix": vocabulary.prefix,
        **vocabulary.special_tokens,
    }


def _pieces(base: BertTokenizer, tokens: Sequence[str]) -> list[tuple[int, ...]]:
    """The ids that ``base`` splits tokens of another vocabulary into: ``##ology`` as the end of a word."""
    if not tokens:
        return []
    vocabulary = base._vocabulary
    prefix, unknown = vocabulary.prefix, base.unk_token_id
    endings = {
        token.removeprefix(prefix): number for token, number in vocabulary.vocab.items() if token.startswith(prefix)
    }
    continuing = WordpieceTokenizer(endings, max_input_chars_per_word=vocabulary.max_input_chars_per_word, prefix="")
    whole = base.encode_ragged(tokens, add_special_tokens=False)
    found: list[tuple[int, ...]] = []
    for token, ids in zip(tokens, whole, strict=True):
        if prefix and token.startswith(prefix):
            split = [endings.get(piece.token, unknown) for piece in continuing.pieces(token.removeprefix(prefix))]
        else:
            split = ids.tolist()
        found.append(tuple(split) or (unknown,))
    return found


#: What is trained: words and pairs of sentences, or words alone.
Network = BertForPreTraining | BertForMaskedLM
#: Where the initial model comes from: a config, a model in memory, or the folder, file or Hub name of a checkpoint.
Model = BertConfig | Network | str | Path

#: Parts of a model that a checkpoint of another class may lack, and their modules.
_HEADS = {"masked-lm head": "cls.predictions", "next-sentence head": "cls.seq_relationship"}


@dataclass(frozen=True, slots=True)
class Start:
    """Where the initial weights of a run came from, as recorded in ``metrics.json``.

    source: the checkpoint, as given; None for new weights or a model in memory.
    sha256: of the checkpoint's weights.
    new_parts: parts of the model that the checkpoint lacks, randomly initialized.
    untrained: parts that get no gradient from the objective.
    shape: the config of the model.
    new_words: number and initialization of the words that the store's tokenizer adds to the checkpoint's.
    """

    source: str | None
    sha256: str | None
    new_parts: tuple[str, ...]
    untrained: tuple[str, ...]
    shape: dict[str, Json] = field(default_factory=dict)
    new_words: dict[str, int | str] | None = None


def make_network(model: Model, store: TokenStore, config: PretrainConfig) -> tuple[Network, Start]:
    """Build or load the model, and report which parts and words are new.

    The tokenizer of ``store`` must be that of the model, or extend that of the checkpoint. A model in memory is copied
    only if ``config.dropout`` changes it.
    """
    source = sha256 = None
    new_parts: tuple[str, ...] = ()
    new_words: NewWords | None = None
    if isinstance(model, BertConfig):
        with seeded(config.seed):
            network = network_class(model, config)(model)
        if config.output_bias == "unigram":
            _begin_with_frequencies(network, store)
        if config.word_embeddings == "cooccurrence":
            _begin_with_cooccurrences(network, store, config.seed)
    elif isinstance(model, Network):
        wanted = network_class(model.config, config)
        if not isinstance(model, wanted):
            raise ConfigError(
                f"objective={config.objective!r} trains a {wanted.__name__} of the {model.config.model_type} family, "
                f"got a {type(model).__name__}"
            )
        network = model
    else:
        path = resolve(model)
        new_words = _new_words(path, store)
        network, new_parts = _from_checkpoint(path, config)
        source, sha256 = str(model), model_hash(path)
        say(f"continuing from {source}" + (f"; newly initialized: {', '.join(new_parts)}" if new_parts else ""))
        if new_words is not None:
            say(f"the tokenizer of {store.path} has {new_words}")
            # A checkpoint may have a few more rows than its tokenizer has tokens. One with fewer is refused later.
            if (num_rows := network.config.vocab_size) >= new_words.base_size:
                resize_vocabulary(network, max(num_rows, new_words.size), new_words.pieces)
        if "masked-lm head" in new_parts and config.output_bias == "unigram":
            _begin_with_frequencies(network, store)
    _check_sizes(network.config, store, config)
    if config.dropout is not None:
        shape = with_dropout(network.config, config.dropout)
        if shape != network.config:  # the same weights in a model with another dropout rate
            state = network.state_dict()
            with seeded(0):
                network = type(network)(shape)
            network.load_state_dict(state)
    pairs_unused = isinstance(network, BertForPreTraining) and config.objective == "mlm"
    untrained = ("pooler", "next-sentence head") if pairs_unused else ()
    record = None if new_words is None else new_words.to_dict()
    return network, Start(source, sha256, new_parts, untrained, network.config.to_dict(), record)


def network_class(shape: BertConfig, config: PretrainConfig) -> type[BertForPreTraining] | type[BertForMaskedLM]:
    """What the objective trains in a family. BERT has both heads with any objective, so that each can follow another.

    Raises:
        ConfigError: the objective has pairs of sentences, and the family no head that judges such pairs.
    """
    pairs = {None: "", "next_sentence_label": "mlm+nsp", "sentence_order_label": "mlm+sop"}[shape.family.pair_label]
    if shape.model_type == "bert" or (pairs and config.objective == pairs):
        return BertForPreTraining
    if config.objective == "mlm":
        return BertForMaskedLM
    own = f"{pairs} or mlm" if pairs else "mlm"
    has = "judges only the order of two segments" if pairs else "has no head that judges pairs of sentences"
    raise ConfigError(
        f"objective={config.objective!r} does not fit a model of the {shape.model_type} family, which {has}; "
        f"use --objective {own}"
    )


def with_objective(config: PretrainConfig, model: Model) -> PretrainConfig:
    """The settings, with objective ``mlm`` if none is given and the model's family has no next-sentence head.

    Raises:
        ConfigError: the checkpoint of an encoder-decoder, which no objective of pre-training is for.
    """
    shape = None
    if isinstance(model, BertConfig | Network):
        shape = model if isinstance(model, BertConfig) else model.config
    elif (file := config_path(resolve(model))).is_file():  # if not, the error is told where the weights are read
        check_encoder(file)
        shape = BertConfig.from_json_file(file)
    if shape is None or "objective" in config.model_fields_set or shape.family.pair_label == "next_sentence_label":
        return config
    say(f"masked words alone are trained (--objective mlm), as usual for the {shape.model_type} family")
    return config.replace(objective="mlm")


def check_encoder(config_file: Path) -> None:
    """Refuse the ``config.json`` of an encoder-decoder with what to use instead: a ConfigError."""
    if is_encoder_decoder(config_file):
        raise ConfigError(
            f"{config_file.parent} is an encoder-decoder, and 'bertkit pretrain' and 'bertkit adapt' train encoders on "
            "masked words: fine-tune it with 'bertkit finetune text2text', or go on with its pre-training in Python, "
            "with bertkit.data.examples.denoising_batches.DenoisingData and a Trainer"
        )


def with_dropout(shape: BertConfig, rate: float) -> BertConfig:
    """The config with this rate wherever its encoder has dropout."""
    shared, own = ("hidden_dropout_prob", "attention_probs_dropout_prob"), ("embedding_dropout", "mlp_dropout")
    names = [name for name in shared if name not in shape.family.absent]
    names += [name for name in own if name in shape.family.own]
    return shape.replace(**dict.fromkeys(names, rate))


def _begin_with_frequencies(network: Network, store: TokenStore) -> None:
    """Initialize the output bias with token frequencies. A model may have more rows than the tokenizer has tokens."""
    bias, logits = network.cls.predictions.bias, torch.from_numpy(unigram_logits(store))
    if bias is None:
        raise ConfigError("output_bias='unigram' needs a bias on the scores of words; use 'zero', or decoder_bias=True")
    if len(bias) >= len(logits):  # otherwise the sizes are refused later
        with torch.no_grad():
            bias[: len(logits)] = logits


def _begin_with_cooccurrences(network: Network, store: TokenStore, seed: int) -> None:
    """Initialize the directions of the word embeddings from co-occurrences; their lengths stay random."""
    table = network.bert.embeddings.word_embeddings.weight
    if len(table) < store.manifest.tokenizer.num_tokens:
        return  # the sizes are refused later
    vectors = torch.from_numpy(cooccurrence_vectors(store, table.shape[1], seed=seed))
    rows, width = vectors.shape
    with torch.no_grad():
        drawn = table[:rows, :width]
        drawn.copy_(torch.where(vectors.any(1, keepdim=True), vectors * drawn.norm(dim=1, keepdim=True), drawn))


def _from_checkpoint(path: Path, config: PretrainConfig) -> tuple[Network, tuple[str, ...]]:
    """The checkpoint with every head that it has, and the names of the parts that it lacks."""
    shape = BertConfig.from_json_file(config_path(path))
    wanted = network_class(shape, config)
    missing = _missing_parts(path, shape, wanted)
    if not missing:  # complete, or refused here for another reason than a missing head
        return wanted.from_pretrained(path), ()
    network = wanted.from_pretrained(path, new_head=True, seed=config.seed)
    owners = {"masked-lm head": BertForMaskedLM, "next-sentence head": BertForNextSentencePrediction}
    for part in TABLES[shape.model_type].classes[wanted.__name__].heads:
        if part not in missing:
            own = owners[part].from_pretrained(path).get_submodule(_HEADS[part])
            network.get_submodule(_HEADS[part]).load_state_dict(own.state_dict())
    return network, missing


def _missing_parts(path: Path, shape: BertConfig, wanted: type[Network]) -> tuple[str, ...]:
    """Heads and pooler that are completely missing, if nothing else prevents loading the file; otherwise none."""
    names = TABLES[shape.model_type]
    spec = names.classes[wanted.__name__]
    if not _HEADS.keys() >= set(spec.heads):  # ALBERT's sentence order: no class has this head alone
        return ()
    table = match(find_weights(path).tensors, shape, spec, names)
    missing = dict.fromkeys(row.part for row in table.of(Status.MISSING))
    optional = {"pooler", *_HEADS}
    if any(row.status is not Status.MISSING for row in table.problems) or not missing.keys() <= optional:
        return ()
    if any(row.part in missing for row in table.of(Status.EXACT)):  # half a head is damage
        return ()
    if "pooler" in missing and "next-sentence head" not in missing:
        return ()
    return tuple(missing)


def _new_words(path: Path, store: TokenStore) -> NewWords | None:
    """What the store's tokenizer adds to the checkpoint's; None if they are equal or cannot be compared."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except BertkitError as error:
        say(f"only the sizes of the tokenizers of {path} and of the token store are compared: {error}")
        return None
    if tokenizer_digest(tokenizer) == store.manifest.tokenizer.sha256:
        return None
    extended = store.tokenizer()
    again = f"Prepare the corpus with it: bertkit prepare CORPUS --tokenizer {path} --out STORE"
    if not isinstance(tokenizer, BertTokenizer) or not isinstance(extended, BertTokenizer):  # no others are extended
        raise DataError(
            f"the tokenizer of the token store is not that of {path}, so ids would mean other words (the checkpoint "
            f"has {tokenizer!r}, the store {extended!r}). {again}"
        )
    try:
        return find_new_words(tokenizer, extended) or None
    except DataError as error:
        raise DataError(
            f"the tokenizer of the token store is neither that of {path} nor an extension of it, so ids would mean "
            f"other words ({error}). {again}; or first add words to it: bertkit vocab CORPUS --extend {path} --out "
            "TOKENIZER"
        ) from None


def _check_sizes(shape: BertConfig, store: TokenStore, config: PretrainConfig) -> None:
    num_tokens = store.manifest.tokenizer.num_tokens
    if shape.vocab_size < num_tokens:
        raise ConfigError(
            f"the model has vocab_size={shape.vocab_size}, but the tokenizer of {store.path} has {num_tokens} tokens; "
            f"use a model with vocab_size={num_tokens}, or prepare the corpus with the model's tokenizer"
        )
    if shape.max_input_length < config.max_seq_length:
        raise ConfigError(
            f"max_seq_length={config.max_seq_length}, but the model has max_position_embeddings="
            f"{shape.max_position_embeddings}; use at most {shape.max_input_length}"
        )
    tokenizer = store.tokenizer()
    if config.objective != "mlm" and tokenizer.template != templates.BERT:
        raise ConfigError(
            f"objective={config.objective!r} makes pairs as BERT reads them, [CLS] A [SEP] B [SEP] with segments, and "
            f"{tokenizer!r} writes pairs in another way; use --objective mlm"
        )
    padding = tokenizer.pad_token_id
    if shape.family.positions_after_padding and shape.pad_token_id != padding:
        raise ConfigError(
            f"the model has pad_token_id={shape.pad_token_id}, the tokenizer of {store.path} has {padding}; in the "
            f"{shape.model_type} family positions are counted from there, so give the model the tokenizer's"
        )
