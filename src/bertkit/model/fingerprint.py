"""The activation fingerprint of a checkpoint: a few numbers from every layer for one fixed sentence.

Two checkpoints are the same model if they compute the same; names, shapes and even file hashes say less. The numbers
are compared with a tolerance because processors round differently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from inspect import signature
from math import isfinite
from pathlib import Path

import torch
from torch import Tensor

from bertkit.checkpoints.any_names import any_specs, any_table
from bertkit.checkpoints.huggingface import find_weights
from bertkit.checkpoints.match import saved_as
from bertkit.checkpoints.seq2seq_names import with_own_output
from bertkit.config.any_config import AnyConfig, read_any_config
from bertkit.config.config_file import config_path
from bertkit.config.encoder_decoder_config import EncoderDecoderConfig
from bertkit.errors import CheckpointError, counted
from bertkit.model.auto import class_named
from bertkit.model.padded import PackedModel
from bertkit.model.seq2seq.seq2seq_models import Seq2SeqModel
from bertkit.system.json_files import parsed
from bertkit.system.model_sources import resolve
from bertkit.system.paths import user_path
from bertkit.system.untrusted_files import Json, read_object
from bertkit.tokenization.auto_tokenizer import AutoTokenizer

#: File beside the weights with their fingerprint at conversion.
FINGERPRINT = "fingerprint.json"
SENTENCE = "The river ran fast in spring, and 12 boats waited at the old mill."
#: Largest difference attributed to rounding, in standard deviations of the activations.
TOLERANCE = 1e-4
#: Values sampled from each tensor, evenly spaced.
_SAMPLES = 6
_MAX_TOKENS = 64
#: Outputs with one tensor for each layer, and whose layers they are.
_LAYERS = {
    "hidden_states": "",
    "encoder_hidden_states": " of the encoder",
    "decoder_hidden_states": " of the decoder",
}


@dataclass(frozen=True, slots=True)
class Activation:
    """One tensor in numbers: mean, standard deviation, and some evenly spaced values."""

    mean: float
    sd: float
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a model computes for the fixed sentence, or, where ``sentence`` is None, for fixed ids.

    activations: by name: ``hidden_states.0`` (embeddings), one for each layer, and the outputs of the heads. In
        encoder-decoders these are ``encoder_hidden_states.0`` ..., ``decoder_hidden_states.0`` ...
    """

    model: str
    sentence: str | None
    input_ids: tuple[int, ...]
    activations: Mapping[str, Activation]

    def to_dict(self) -> dict[str, Json]:
        """Plain data, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_file(cls, file: Path) -> Fingerprint:
        """Read the JSON of :meth:`to_dict`."""
        content = read_object(file, max_bytes=1 << 20)
        # It may stand in the whole output of inspect --verify --json.
        return parsed(content.get("fingerprint", content), cls, f"the fingerprint {file}")

    def render(self) -> str:
        """A table for a terminal."""
        rows = [
            (name, f"{one.mean:+.5f}", f"{one.sd:.5f}", " ".join(f"{value:+.4f}" for value in one.values))
            for name, one in self.activations.items()
        ]
        width = max(len(row[0]) for row in rows)
        text = "fixed ids, because no tokenizer can be loaded" if self.sentence is None else repr(self.sentence)
        lines = [f"fingerprint of {self.model} on {text} ({len(self.input_ids)} tokens)"]
        lines.append(f"  {'':<{width}}  {'mean':>9}  {'sd':>9}  some values")
        lines += [f"  {name:<{width}}  {mean:>9}  {sd:>9}  {values}" for name, mean, sd, values in rows]
        return "\n".join(lines)


def fingerprint(name_or_path: str | Path) -> Fingerprint:
    """Run the fixed sentence through a checkpoint, as the class it was saved from; float32, on the CPU."""
    path = resolve(name_or_path)
    sentence, ids = _input(path, read_any_config(config_path(path)))
    name, outputs = run(path, ids)
    return Fingerprint(name, sentence, ids, {key: _activation(value) for key, value in outputs.items()})


def expected_fingerprint(name_or_path: str | Path, against: str | None) -> tuple[str | None, Fingerprint | None]:
    """Where it is from, and the fingerprint of ``against`` (model or file; None: what lies beside the weights)."""
    if against is not None:
        file = user_path(against)
        is_answer = file.suffix == ".json" and not file.name.endswith(".index.json") and file.is_file()
        return against, Fingerprint.from_file(file) if is_answer else fingerprint(against)
    beside = config_path(resolve(name_or_path)).with_name(FINGERPRINT)
    return (str(beside), Fingerprint.from_file(beside)) if beside.is_file() else (None, None)


def run(path: Path, input_ids: tuple[int, ...]) -> tuple[str, dict[str, Tensor]]:
    """Class and outputs for some ids: the class it was saved from if its heads are there, else without a head."""
    model = _load(path)
    ids_BS = torch.tensor([input_ids])
    call = {"input_ids": ids_BS}
    if type(model).__name__.endswith("ForMultipleChoice"):
        call["input_ids"] = ids_BS[:, None]
    if isinstance(model, Seq2SeqModel) and "decoder_input_ids" in signature(model.forward).parameters:
        call["decoder_input_ids"] = model.shift_right(ids_BS)  # the heads that read do that themselves
    with torch.inference_mode():
        found = model(**call, output_hidden_states=True)
    outputs: dict[str, Tensor] = {}
    for name in _LAYERS:
        outputs |= {f"{name}.{number}": state for number, state in enumerate(getattr(found, name, None) or ())}
    outputs |= {
        name: found[name]
        for name in found
        if isinstance(found[name], Tensor) and not name.endswith("last_hidden_state")
    }
    return type(model).__name__, outputs


def _load(path: Path) -> PackedModel | Seq2SeqModel:
    config, tensors = read_any_config(config_path(path)), find_weights(path).tensors
    table, specs = any_table(config), any_specs(config)
    if isinstance(config, EncoderDecoderConfig):
        config, specs = with_own_output(config, tensors), [*specs, *table.classes.values()]
    spec = saved_as(tensors, config, specs, table)
    return class_named(next(iter(table.classes)) if spec is None else spec.name).from_pretrained(path)


def fixed_ids(config: AnyConfig, first: int, step: int, count: int) -> tuple[int, ...]:
    """Ids from all over the vocabulary, at most what the model reads; an encoder-decoder's end like a text."""
    ids = tuple((first + step * number) % config.vocab_size for number in range(min(count, config.max_input_length)))
    return (*ids[:-1], config.eos_token_id) if isinstance(config, EncoderDecoderConfig) else ids


def differences(one: Fingerprint, other: Fingerprint) -> list[str]:
    """The differences beyond rounding, one sentence each; heads that only one of them has do not count."""
    if one.input_ids != other.input_ids:
        ids = (f"[{', '.join(map(str, x.input_ids[:12]))}{', ...' * (len(x.input_ids) > 12)}]" for x in (one, other))
        return [f"the tokenizers differ: the sentence has the ids {' and '.join(ids)}"]
    depths = [_depth(each) for each in (one, other)]
    if depths[0] != depths[1]:
        return [f"one has {depths[0]}, the other {depths[1]}"]
    found = []
    for name in one.activations.keys() & other.activations.keys():
        mine, theirs = one.activations[name], other.activations[name]
        scale = max(mine.sd, theirs.sd, 1e-6)
        pairs = zip((mine.mean, mine.sd, *mine.values), (theirs.mean, theirs.sd, *theirs.values), strict=False)
        worst = max(abs(left - right) / scale for left, right in pairs)
        if len(mine.values) != len(theirs.values) or not isfinite(worst) or worst > TOLERANCE:
            found.append(f"{name} differs by {worst:.2g} standard deviations, more than {TOLERANCE:g}")
    return sorted(found, key=lambda line: list(one.activations).index(line.partition(" ")[0]))


def _depth(of: Fingerprint) -> str:
    """The number of layers, in words; an encoder-decoder has two."""
    counts = Counter(name.rpartition(".")[0] for name in of.activations)
    return " and ".join(counted(counts[name] - 1, "layer") + where for name, where in _LAYERS.items() if counts[name])


def _input(path: Path, config: AnyConfig) -> tuple[str | None, tuple[int, ...]]:
    """The sentence and its ids; without a usable tokenizer, ids spread over the whole vocabulary."""
    longest = min(_MAX_TOKENS, config.max_input_length)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except CheckpointError:
        return None, fixed_ids(config, 7, 101, 16)
    ids = tuple(tokenizer(SENTENCE, truncation=True, max_length=longest)["input_ids"])
    if max(ids) >= config.vocab_size:
        raise CheckpointError(
            f"the tokenizer in {path} gives the id {max(ids):,}, but the embedding table has {config.vocab_size:,} "
            "rows: the tokenizer belongs to another model"
        )
    return SENTENCE, ids


def _activation(tensor: Tensor) -> Activation:
    flat = tensor.double().flatten()
    places = torch.linspace(0, len(flat) - 1, min(_SAMPLES, len(flat))).round().long()
    numbers = [flat.mean(), flat.std(unbiased=False), *flat[places]]
    mean, sd, *values = (float(f"{float(number):.6g}") for number in numbers)
    return Activation(mean, sd, tuple(values))
