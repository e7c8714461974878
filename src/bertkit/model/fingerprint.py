"""The activation fingerprint of a checkpoint: what a fixed sentence does in every layer, in a few numbers each.

Two copies of a model are the same model exactly when they compute the same; names, shapes and even hashes of files say
less. The numbers are compared with a tolerance, because another processor rounds otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertkit.checkpoints.huggingface import config_path, find_weights
from bertkit.checkpoints.match import saved_as
from bertkit.checkpoints.names import TABLES
from bertkit.config.bert_config import BertConfig
from bertkit.errors import CheckpointError
from bertkit.model.auto import MODEL_CLASSES
from bertkit.model.loading import load_model
from bertkit.system.model_sources import resolve
from bertkit.system.untrusted_files import open_regular, strict_json
from bertkit.tokenization import AutoTokenizer

#: File beside the weights that holds the fingerprint they had when they were converted.
FINGERPRINT = "fingerprint.json"
SENTENCE = "The river ran fast in spring, and 12 boats waited at the old mill."
#: Largest difference that is rounding, in standard deviations of the activations.
TOLERANCE = 1e-4
#: Values taken from each tensor, evenly over it.
_SAMPLES = 6
_MAX_TOKENS = 64
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Activation:
    """One tensor in numbers: mean, standard deviation, and some of its values, evenly over it."""

    mean: float
    sd: float
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a model makes of the fixed sentence.

    model: the class that was run.
    sentence: the text; None where there is no tokenizer, and fixed ids were taken.
    input_ids: of the sentence.
    activations: by name: ``hidden_states.0`` (embeddings) and one for each layer, then what the heads gave.
    """

    model: str
    sentence: str | None
    input_ids: tuple[int, ...]
    activations: Mapping[str, Activation]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_file(cls, file: Path) -> Fingerprint:
        """Read what :meth:`to_dict` gave.

        Raises:
            CheckpointError: not such a file.
        """
        with open_regular(file) as stream:
            text = stream.read(_MAX_BYTES + 1)
        try:
            if len(text) > _MAX_BYTES:
                raise ValueError(f"it has more than {_MAX_BYTES:,} bytes")
            content = strict_json(text)
            content = content.get("fingerprint", content)  # the whole answer of inspect --verify --json
            return cls(
                str(content["model"]),
                None if content["sentence"] is None else str(content["sentence"]),
                tuple(int(number) for number in content["input_ids"]),
                {
                    str(name): Activation(
                        float(one["mean"]), float(one["sd"]), tuple(float(value) for value in one["values"])
                    )
                    for name, one in content["activations"].items()
                },
            )
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise CheckpointError(f"{file} is no fingerprint of a model: {error}") from None

    def render(self) -> str:
        """A table for a terminal."""
        rows = [
            (name, f"{one.mean:+.5f}", f"{one.sd:.5f}", " ".join(f"{value:+.4f}" for value in one.values))
            for name, one in self.activations.items()
        ]
        width = max(len(row[0]) for row in rows)
        said = (
            repr(self.sentence) if self.sentence is not None else "fixed ids, for want of a tokenizer that can be read"
        )
        lines = [f"fingerprint of {self.model} on {said} ({len(self.input_ids)} tokens)"]
        lines.append(f"  {'':<{width}}  {'mean':>9}  {'sd':>9}  some values")
        lines += [f"  {name:<{width}}  {mean:>9}  {sd:>9}  {values}" for name, mean, sd, values in rows]
        return "\n".join(lines)


def fingerprint(name_or_path: str | Path, *, revision: str | None = None) -> Fingerprint:
    """Run the fixed sentence through a checkpoint: float32, on the CPU, in eval mode.

    The class is the one the checkpoint was saved from, so that its heads are seen too; else the bare encoder.

    Raises:
        CheckpointError: it does not load.
    """
    path = resolve(name_or_path, revision=revision)
    config = BertConfig.from_json_file(config_path(path))
    sentence, ids = _input(path, config)
    name, outputs = run(path, ids)
    return Fingerprint(name, sentence, ids, {key: _activation(value) for key, value in outputs.items()})


def expected_fingerprint(name_or_path: str | Path, against: str | None) -> tuple[str | None, Fingerprint | None]:
    """What a model should compute: its source in words and the fingerprint, or (None, None) where nobody knows.

    Args:
        name_or_path: the model.
        against: another model, or a file with a fingerprint; None looks for ``fingerprint.json`` beside the weights.

    Raises:
        CheckpointError: ``against`` is neither.
    """
    if against is not None:
        file = Path(against).expanduser()
        is_answer = file.suffix == ".json" and not file.name.endswith(".index.json") and file.is_file()
        return against, Fingerprint.from_file(file) if is_answer else fingerprint(against)
    beside = config_path(resolve(name_or_path)).with_name(FINGERPRINT)
    return (str(beside), Fingerprint.from_file(beside)) if beside.is_file() else (None, None)


def run(path: Path, input_ids: tuple[int, ...]) -> tuple[str, dict[str, Tensor]]:
    """All that a checkpoint computes for one sequence of ids: the class that was run, and its tensors by name.

    Raises:
        CheckpointError: it does not load.
    """
    model = _load(path)
    ids_BS = torch.tensor([input_ids])
    if type(model).__name__.endswith("ForMultipleChoice"):
        ids_BS = ids_BS[:, None]
    with torch.inference_mode():
        found = model(input_ids=ids_BS, output_hidden_states=True)
    outputs = {f"hidden_states.{number}": state for number, state in enumerate(found.hidden_states)}
    for name in found:
        if isinstance(found[name], Tensor) and name != "last_hidden_state":
            outputs[name] = found[name]
    return type(model).__name__, outputs


def differences(one: Fingerprint, other: Fingerprint) -> list[str]:
    """In what two fingerprints differ beyond rounding; one sentence each, none where they are those of one model.

    Heads that only one of them has do not count: a model may have got another.
    """
    if one.input_ids != other.input_ids:
        return [
            f"the tokenizers differ: the sentence has the ids {_short(one.input_ids)} and {_short(other.input_ids)}"
        ]
    layers = [{name for name in each.activations if name.startswith("hidden_states.")} for each in (one, other)]
    if layers[0] != layers[1]:
        return [f"one has {len(layers[0]) - 1} layers, the other {len(layers[1]) - 1}"]
    found = []
    for name in one.activations.keys() & other.activations.keys():
        mine, theirs = one.activations[name], other.activations[name]
        scale = max(mine.sd, theirs.sd, 1e-6)
        pairs = zip((mine.mean, mine.sd, *mine.values), (theirs.mean, theirs.sd, *theirs.values), strict=False)
        worst = max(abs(left - right) / scale for left, right in pairs)
        if len(mine.values) != len(theirs.values) or not isfinite(worst) or worst > TOLERANCE:
            found.append(f"{name} differs by {worst:.2g} standard deviations, more than {TOLERANCE:g}")
    return sorted(found, key=lambda line: list(one.activations).index(line.partition(" ")[0]))


def _load(path: Path) -> Any:
    """The class the checkpoint was saved from, if its heads are in the file; else the bare encoder."""
    config = BertConfig.from_json_file(config_path(path))
    spec = saved_as(find_weights(path).tensors, config, TABLES[config.model_type])
    return load_model(MODEL_CLASSES["BertModel" if spec is None else spec.name], path)


def _input(path: Path, config: BertConfig) -> tuple[str | None, tuple[int, ...]]:
    """The sentence and its ids; without a tokenizer that can be read, ids spread over the whole vocabulary."""
    longest = min(_MAX_TOKENS, config.max_input_length)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except CheckpointError:
        return None, tuple((7 + 101 * number) % config.vocab_size for number in range(min(longest, 16)))
    ids = tuple(tokenizer(SENTENCE, truncation=True, max_length=longest)["input_ids"])
    if max(ids) >= config.vocab_size:
        raise CheckpointError(
            f"the tokenizer in {path} gives the number {max(ids):,}, the embedding table of the model has "
            f"{config.vocab_size:,} rows: the tokenizer belongs to another model"
        )
    return SENTENCE, ids


def _activation(tensor: Tensor) -> Activation:
    flat = tensor.double().flatten()
    places = torch.linspace(0, len(flat) - 1, min(_SAMPLES, len(flat))).round().long()
    sd = float(flat.std(unbiased=False))
    return Activation(_rounded(float(flat.mean())), _rounded(sd), tuple(_rounded(float(flat[at])) for at in places))


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _short(ids: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, ids[:12]))}{', ...' if len(ids) > 12 else ''}]"


def write_fingerprint(found: Fingerprint, folder: Path) -> None:
    """Put it beside the weights."""
    (folder / FINGERPRINT).write_text(json.dumps(found.to_dict(), indent=1) + "\n", encoding="utf-8")
