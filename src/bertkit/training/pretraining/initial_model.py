"""The initial model of pre-training: new weights, or a checkpoint completed by the heads and words that it lacks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from bertkit.checkpoints.huggingface import find_weights
from bertkit.checkpoints.match import Status, match
from bertkit.checkpoints.names import TABLES
from bertkit.config.any_config import AnyConfig, read_any_config
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import config_path
from bertkit.config.encoder_decoder_config import BartConfig, EncoderDecoderConfig, T5Config
from bertkit.data.examples.denoising_batches import DenoisingVocabulary
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import ConfigError, counted
from bertkit.inference.protocol import model_hash
from bertkit.model.models import BertForMaskedLM, BertForNextSentencePrediction, BertForPreTraining
from bertkit.model.resize import resize_vocabulary
from bertkit.model.seq2seq.conditional_generation import ConditionalGeneration
from bertkit.system.console import say
from bertkit.system.model_sources import resolve
from bertkit.system.untrusted_files import Json
from bertkit.tokenization import templates
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.training.pretraining.new_words import NewWords, new_words_of
from bertkit.training.pretraining.objectives import Model, Network, network_class
from bertkit.training.pretraining.pretrain_settings import PretrainConfig
from bertkit.training.pretraining.word_statistics import cooccurrence_vectors, unigram_logits
from bertkit.training.trainer.generators import seeded

#: What is trained of an encoder.
Encoder = BertForPreTraining | BertForMaskedLM

#: Rates of dropout on hidden vectors and attention: of T5, and of BART.
_DROPOUTS = ("dropout_rate", "dropout", "attention_dropout")
#: Parts of a model that a checkpoint of another class may lack, and their modules.
_HEADS = {"masked-lm head": "cls.predictions", "next-sentence head": "cls.seq_relationship"}


@dataclass(frozen=True, slots=True)
class Start:
    """Where the initial weights of a run came from, as recorded in ``metrics.json``.

    source: the checkpoint, as given; None for new weights or a model in memory.
    new_parts: parts of the model that the checkpoint lacks, randomly initialized.
    untrained: parts that get no gradient from the objective.
    new_words: number and initialization of the words that the store's tokenizer adds to the checkpoint's.
    """

    source: str | None
    sha256: str | None
    new_parts: tuple[str, ...]
    untrained: tuple[str, ...]
    shape: dict[str, Json] = field(default_factory=dict)
    new_words: dict[str, int | str] | None = None


def make_network(model: Model, store: TokenStore, config: PretrainConfig) -> tuple[Network, Start]:
    """Build or load the model, and report which parts and words are new; one in memory is copied for other dropout."""
    source = sha256 = None
    new_parts: tuple[str, ...] = ()
    new_words: NewWords | None = None
    if isinstance(model, BertConfig | EncoderDecoderConfig):
        network = _new_network(model, store, config)
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
        new_words = new_words_of(path, store)
        network, new_parts = _from_checkpoint(path, config)
        source, sha256 = str(model), model_hash(path)
        say(f"continuing from {source}" + (f"; newly initialized: {', '.join(new_parts)}" if new_parts else ""))
        if new_words is not None:
            say(f"the tokenizer of {store.path} has {new_words}")
            _add_words(network, new_words)
        if isinstance(network, Encoder) and "masked-lm head" in new_parts and config.output_bias == "unigram":
            _begin_with_frequencies(network, store)
    _check_sizes(network.config, store, config)
    if config.dropout is not None:
        network = _dropping(network, with_dropout(network.config, config.dropout))
    pairs_unused = isinstance(network, BertForPreTraining) and config.objective == "mlm"
    untrained = ("pooler", "next-sentence head") if pairs_unused else ()
    record = None if new_words is None else new_words.to_dict()
    return network, Start(source, sha256, new_parts, untrained, network.config.to_dict(), record)


def with_vocabulary(shape: AnyConfig, store: TokenStore) -> AnyConfig:
    """The config of a new model with the vocabulary of a store's tokenizer, and the ids of its special tokens."""
    tokenizer = store.tokenizer()
    ids = {"vocab_size": store.manifest.tokenizer.num_tokens, "pad_token_id": tokenizer.pad_token_id}
    return shape.replace(**ids, **_special_ids(shape, tokenizer))


def _special_ids(shape: AnyConfig, tokenizer: PreTrainedTokenizer) -> dict[str, int | None]:
    """What the config of an encoder-decoder says of a tokenizer: how texts begin and end, and what is read first."""
    if not isinstance(shape, EncoderDecoderConfig):
        return {}
    special = DenoisingVocabulary.of(tokenizer)
    start, end = (special.before or (None,))[0], special.behind[-1]
    if isinstance(shape, T5Config):
        return {"bos_token_id": start, "eos_token_id": end, "decoder_start_token_id": tokenizer.pad_token_id}
    return {"bos_token_id": start, "eos_token_id": end, "decoder_start_token_id": end, "forced_eos_token_id": end}


def _new_network(shape: AnyConfig, store: TokenStore, config: PretrainConfig) -> Network:
    with seeded(config.seed):
        network = network_class(shape, config)(shape)  # type: ignore[arg-type]  # a class of the config's family
    if isinstance(network, Encoder):
        if config.output_bias == "unigram":
            _begin_with_frequencies(network, store)
        if config.word_embeddings == "cooccurrence":
            _begin_with_cooccurrences(network, store, config.seed)
    return network


def with_dropout(shape: AnyConfig, rate: float) -> AnyConfig:
    """The config with this rate wherever the model has dropout on hidden vectors and attention."""
    if isinstance(shape, EncoderDecoderConfig):
        return shape.replace(**{name: rate for name in _DROPOUTS if name in type(shape).model_fields})
    shared, own = ("hidden_dropout_prob", "attention_probs_dropout_prob"), ("embedding_dropout", "mlp_dropout")
    names = [name for name in shared if name not in shape.family.absent]
    names += [name for name in own if name in shape.family.own]
    return shape.replace(**dict.fromkeys(names, rate))


def _dropping(network: Network, shape: AnyConfig) -> Network:
    """The same weights in a model with other dropout rates; the model itself if they are the same."""
    if shape == network.config:
        return network
    with seeded(0):
        copy = type(network)(shape)  # type: ignore[arg-type]  # the config of the same class
    copy.load_state_dict(network.state_dict())
    if isinstance(copy, ConditionalGeneration) and isinstance(network, ConditionalGeneration):
        copy.generation_settings = network.generation_settings
    return copy


def _begin_with_frequencies(network: Encoder, store: TokenStore) -> None:
    """Initialize the output bias with token frequencies. A model may have more rows than the tokenizer has tokens."""
    bias, logits = network.cls.predictions.bias, torch.from_numpy(unigram_logits(store))
    if bias is None:
        raise ConfigError("output_bias='unigram' needs a bias on the scores of words; use 'zero', or decoder_bias=True")
    if len(bias) >= len(logits):  # otherwise the sizes are refused later
        with torch.no_grad():
            bias[: len(logits)] = logits


def _begin_with_cooccurrences(network: Encoder, store: TokenStore, seed: int) -> None:
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
    shape = read_any_config(config_path(path))
    wanted = network_class(shape, config)
    missing = _missing_parts(path, shape, wanted) if isinstance(shape, BertConfig) else ()
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


def _add_words(network: Network, words: NewWords) -> None:
    if not isinstance(network, Encoder):
        raise ConfigError(
            f"the token store was prepared with {counted(len(words), 'word')} more than the checkpoint has, and words "
            "can be added to encoders only; prepare the corpus with the checkpoint's own tokenizer"
        )
    # A checkpoint may have a few more rows than its tokenizer has tokens. One with fewer is refused later.
    if (num_rows := network.config.vocab_size) >= words.base_size:
        resize_vocabulary(network, max(num_rows, words.size), words.pieces)


def _check_sizes(shape: AnyConfig, store: TokenStore, config: PretrainConfig) -> None:
    num_tokens = store.manifest.tokenizer.num_tokens
    if shape.vocab_size < num_tokens:
        raise ConfigError(
            f"the model has vocab_size={shape.vocab_size}, but the tokenizer of {store.path} has {num_tokens} tokens; "
            f"use a model with vocab_size={num_tokens}, or prepare the corpus with the model's tokenizer"
        )
    if isinstance(shape, BertConfig | BartConfig) and shape.max_input_length < config.max_seq_length:
        raise ConfigError(
            f"max_seq_length={config.max_seq_length}, but the model has max_position_embeddings="
            f"{shape.max_position_embeddings}; use at most {shape.max_input_length}"
        )
    tokenizer = store.tokenizer()
    if isinstance(shape, EncoderDecoderConfig):
        _check_special_tokens(shape, store, tokenizer)
        return
    if config.objective in ("mlm+nsp", "mlm+sop") and tokenizer.template != templates.BERT:
        raise ConfigError(
            f"objective={config.objective!r} makes pairs as BERT reads them, [CLS] A [SEP] B [SEP] with segments, and "
            f"{tokenizer!r} writes pairs differently; use --objective mlm"
        )
    padding = tokenizer.pad_token_id
    if shape.family.positions_after_padding and shape.pad_token_id != padding:
        raise ConfigError(
            f"the model has pad_token_id={shape.pad_token_id}, the tokenizer of {store.path} has {padding}; in the "
            f"{shape.model_type} family positions are counted from there, so give the model the tokenizer's"
        )


def _check_special_tokens(shape: EncoderDecoderConfig, store: TokenStore, tokenizer: PreTrainedTokenizer) -> None:
    """Refuse ids with which the model would never end a text, or begin it otherwise than in training."""
    wanted = {"pad_token_id": tokenizer.pad_token_id, **_special_ids(shape, tokenizer)}
    # What a decoder reads first may differ, but for an mBART, which is trained to begin with the end of its target.
    checked = ["pad_token_id", "eos_token_id", *["decoder_start_token_id"] * (shape.model_type == "mbart")]
    if differing := [name for name in checked if getattr(shape, name) != wanted[name]]:
        ours, theirs = ({name: values[name] for name in differing} for values in (shape.model_dump(), wanted))
        raise ConfigError(
            f"the model has {ours}, the tokenizer of {store.path} {theirs}; a model and its tokenizer must agree on "
            "where a text ends: use the tokenizer of the model, or a config with these ids"
        )
