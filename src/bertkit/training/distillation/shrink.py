"""A smaller model without training: fewer tokens, fewer layers.

A multilingual model spends most of its weights on words of languages that its user does not read; without their rows it
answers the same, bit for bit (Abdaoui et al. 2020, "Load What You Need"). Layers that are taken out change the answers:
fine-tune or distill the result.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from bertkit.batch import collate
from bertkit.checkpoints.sentence_folder import write_sentence_parts
from bertkit.data.corpus.documents import read_documents
from bertkit.errors import CheckpointError, ConfigError
from bertkit.export.onnx_export import Exportable, load_for_export, write_beside
from bertkit.model.keep_layers import keep_layers
from bertkit.model.models import BertModel, HeadModel
from bertkit.model.padded import PackedModel
from bertkit.model.resize import keep_rows
from bertkit.ragged import Floats, Ints, Ragged
from bertkit.system.atomic_files import check_new_folder, new_folder
from bertkit.system.console import progress
from bertkit.system.json_files import printable
from bertkit.system.paths import user_path
from bertkit.system.untrusted_files import Json
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.tokenization.smaller_vocabulary import cut_vocabulary
from bertkit.training.distillation.distill_settings import Student
from bertkit.training.distillation.students import chosen_layers

#: Texts that are tokenized at once; texts whose tokens, and texts whose vectors, must be the same afterwards.
AT_ONCE, CHECKED, COMPUTED = 1000, 1000, 8


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What was written; each pair is before and after.

    checked: texts that are split and, without other layers, answered exactly as before.
    """

    folder: Path
    tokens: tuple[int, int]
    parameters: tuple[int, int]
    num_layers: tuple[int, int]
    checked: int

    def to_dict(self) -> dict[str, Json]:
        """Plain data for JSON."""
        return {**asdict(self), "folder": printable(self.folder)}

    def render(self) -> str:
        """A few lines for people."""
        same = self.num_layers[0] == self.num_layers[1]
        lines = [f"{printable(self.folder)}: {self.parameters[1] / self.parameters[0]:.1%} of the weights"]
        for name, (before, after) in (
            ("weights", self.parameters),
            ("tokens", self.tokens),
            ("layers", self.num_layers),
        ):
            lines.append(f"  {name}: {after:,} of {before:,}")
        if self.checked:
            lines.append(f"  {self.checked:,} texts are split as before" + (" and answered as before" if same else ""))
        return "\n".join(lines if same else [*lines, "  layers are missing: train the model before you use it"])


def shrink(
    model: str | Path,
    out: str | Path,
    *,
    vocab_from: Sequence[str | Path] = (),
    min_count: int = 1,
    layers: str | None = None,
) -> Shrunk:
    """Write a model with the tokens that some texts need, with some of its layers, or both.

    The new model keeps special and added tokens and all single characters (of byte-level BPE: bytes), so it can read
    any text that the old one can; texts whose tokens are all kept have the same hidden states, bit for bit.
    ``vocab_from`` are files of texts, as for ``bertkit prepare``; ``layers`` are ``3`` (so many, evenly from first to
    last) or ``0,2,5``. Gemma's tokenizer, which mmBERT has, cannot be cut (InputError).
    """
    target = user_path(out)
    check_new_folder(target)
    if not vocab_from and layers is None:
        raise ConfigError("nothing to take away: give texts for the vocabulary (vocab_from), layers, or both")
    if min_count != 1 and not vocab_from:
        raise ConfigError(f"min_count={min_count} counts tokens in the texts of vocab_from; give both or neither")
    given = load_for_export(model)
    old = given.model
    if old.quantization is not None:
        raise ConfigError(
            f"{printable(model)} is in 8 bits, which cannot be changed; shrink the original, then quantize"
        )
    if min_count < 1:
        raise ConfigError(f"min_count must be at least 1, got {min_count}")
    small = given
    if layers is not None:
        wanted = Student.parse(layers).layers
        if wanted is None:
            raise ConfigError(f"layers {layers!r}: give a number, such as 3, or the numbers of layers, such as 0,2,4")
        small = small._replace(model=keep_layers(old, chosen_layers(wanted, old.config)))
    checked = 0
    if vocab_from:
        sample, seen = _count(given.tokenizer, _lines(vocab_from), min_count)
        tokenizer, rows = cut_vocabulary(given.tokenizer, seen)
        small = small._replace(model=copy.deepcopy(small.model), tokenizer=tokenizer)
        keep_rows(small.model, rows)
        checked = _check(given, small, sample, np.array(rows), answers=layers is None)
    sizes = [sum(p.numel() for p in each.model.parameters()) for each in (given, small)]
    with new_folder(target) as draft:
        small.model.save_pretrained(draft)
        write_beside(draft, small.tokenizer, small.decision, small.beside)
        if small.sentence is not None:
            write_sentence_parts(draft, small.sentence, small.model.config.hidden_size)
    return Shrunk(
        target,
        (len(given.tokenizer), len(small.tokenizer)),
        (sizes[0], sizes[1]),
        (old.config.num_hidden_layers, small.model.config.num_hidden_layers),
        checked,
    )


def _lines(files: Sequence[str | Path]) -> Iterator[str]:
    for document in read_documents(list(files), sentences="line"):
        yield from document.sentences


def _count(tokenizer: PreTrainedTokenizer, texts: Iterable[str], min_count: int) -> tuple[list[str], Ints]:
    """Some of the texts, and the ids that occur often enough; at the beginning of a text and behind a blank."""
    counts, sample = np.zeros(len(tokenizer), np.int64), list[str]()
    source = progress(texts, label="reading tokens", unit="texts")
    while part := list(islice(source, AT_ONCE)):
        sample += part[: CHECKED - len(sample)]
        ids = tokenizer.encode_ragged(part, add_special_tokens=False).ids
        inner = tokenizer.encode_ragged([f" {text}" for text in part], add_special_tokens=False).ids
        counts += np.maximum(*(np.bincount(each, minlength=len(counts)) for each in (ids, inner)))
    return sample, np.flatnonzero(counts >= min_count)


def _check(old: Exportable, new: Exportable, texts: Sequence[str], rows: Ints, *, answers: bool) -> int:
    """How many of the texts have kept all of their tokens; these must be split, and answered, exactly as before."""
    limit = min(old.model.config.max_input_length, old.tokenizer.model_max_length)
    before, after = (each.tokenizer.encode_ragged(texts, max_length=limit) for each in (old, new))
    places = np.full(len(old.tokenizer), -1)
    places[rows] = np.arange(len(rows))
    whole = [number for number, ids in enumerate(before) if (places[ids] >= 0).all()]
    for number in whole:
        if not np.array_equal(places[before[number]], after[number]):
            raise CheckpointError(
                f"the smaller tokenizer splits {texts[number][:60]!r} differently, although it has all of its "
                "tokens; nothing was written. Please report this with the tokenizer"
            )
    some = whole[:COMPUTED]
    if answers and some and not np.array_equal(_states(old.model, before, some), _states(new.model, after, some)):
        raise CheckpointError("the smaller model gives other answers; nothing was written. Please report this")
    return len(whole)


def _states(model: PackedModel, rows: Ragged, numbers: Sequence[int]) -> Floats:
    encoder = model.bert if isinstance(model, HeadModel) else model
    assert isinstance(encoder, BertModel), "an encoder, with or without a head"
    with torch.inference_mode():
        states = encoder.forward_packed(collate(rows, numbers)).last_hidden_state
    assert states is not None
    found: Floats = states.numpy()
    return found
