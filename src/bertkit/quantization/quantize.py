"""``bertkit quantize``: a model in 8 bits, written only if its answers are those of the original, and faster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from bertkit import __version__
from bertkit.checkpoints.huggingface import find_weights
from bertkit.checkpoints.int8_figures import DevScores, Measured, Speed
from bertkit.checkpoints.int8_folder import VERSION, Bits, Quantization, best_bits
from bertkit.checkpoints.sentence_folder import write_sentence_parts
from bertkit.checkpoints.weight_files import INT8_FACTS, INT8_WEIGHTS
from bertkit.config.config_file import checkpoint_folder
from bertkit.engine.closeness import NEAR_ENOUGH, Closeness, closeness
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.engine.module_views import module_view
from bertkit.engine.native.library import native_library
from bertkit.errors import CheckpointError, ConfigError, counted, shorten
from bertkit.export.onnx_export import CARD, Exportable, load_for_export, write_beside
from bertkit.inference.run_files import read_task
from bertkit.model.embeddings import Embeddings
from bertkit.model.int8_model import save_int8
from bertkit.model.models import HeadModel
from bertkit.model.padded import PackedModel
from bertkit.quantization.byte_matrices import Inputs, Scheme, byte_embedding, byte_linear
from bertkit.quantization.calibrate import VECTORS, draw_texts, encode, matrices_of, observe, vectors_of
from bertkit.quantization.gate import compare_speed, read_dev
from bertkit.ragged import Ragged
from bertkit.system.atomic_files import check_new_folder, new_folder
from bertkit.system.console import progress, say
from bertkit.system.model_sources import resolve
from bertkit.system.paths import user_path
from bertkit.tasks.reading.bad_rows import OnError

#: Activations never go below this.
LEAST = {"gelu": -0.17, "gelu_new": -0.1701, "relu": 0.0}
#: At most this share of the encoder's weights may stay in float32; with more there is little left to gain.
MAX_KEPT = 0.25


@dataclass(frozen=True, slots=True)
class Quantized:
    """What was written; ``unknown``: share of the texts' tokens that are [UNK]; ``kept``: matrices in float32."""

    folder: Path
    model: str
    bits: Bits
    texts: int
    unknown: float
    kept: tuple[str, ...]
    num_matrices: int
    closeness: Closeness
    dev: DevScores | None
    speed: Speed
    num_bytes: int
    original_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {**asdict(self), "folder": str(self.folder)}

    def render(self) -> str:
        """A few lines for people."""
        lines = [f"{self.model} in {self.bits} bits: {self.folder}", *(f"  {line}" for line in self.facts())]
        return "\n".join(lines)

    def facts(self) -> list[str]:
        """What it costs and what it brings, a line each."""
        names = shorten(self.kept, limit=8) if self.kept else "none"
        larger = ""
        if self.num_bytes > self.original_bytes:
            larger = " (LARGER: the original is stored in 16 bits, and what stays in float32 takes twice as much)"
        lines = [
            f"size: {self.num_bytes / 1e6:.1f} MB, {self.num_bytes / self.original_bytes:.0%} of the original{larger}",
            f"vectors: {self.closeness}",
            f"calibrated and judged on: {counted(self.texts, 'text')}, {self.unknown:.1%} of their tokens unknown",
            f"speed: {self.speed}",
            f"matrices in float32: {names} (of {self.num_matrices})",
        ]
        return lines if self.dev is None else [*lines, f"dev: {self.dev}"]


def quantize(
    model: str | Path,
    out: str | Path,
    texts: Iterable[str],
    *,
    source: str = "the texts",
    dev: str | Path | None = None,
    bits: Bits | None = None,
    any_speed: bool = False,
    on_error: OnError = "raise",
) -> Quantized:
    """Write a model in 8 bits, if it passes the gate: near enough to the original, and faster.

    model: a folder, a Hub name or a run folder, in float32.
    texts: of the kind that the model will read; at least 100 different ones, of which at most 1,000 are taken. They
        calibrate and judge it. For a run whose task reads pairs, each is two texts with a tab between them.
    source: what to call them in messages.
    dev: labelled rows of the run's task; its main metric is compared as well.
    bits: of the weights, 8 or 7; None: as suits this processor.
    any_speed: write it also if it is not faster here, for use on another machine.
    """
    target, path = user_path(out), resolve(model)
    check_new_folder(target)
    drawn = draw_texts(texts, source)
    given = load_for_export(model)
    if given.model.quantization is not None:
        raise ConfigError(f"{path} is in 8 bits already; give the original model")
    family = given.model.config.family
    if given.model.config.attention_direction != "both":
        raise ConfigError(
            f"{path} reads {given.model.config.attention_direction}, and only models that read both ways can be "
            "rounded to 8 bits; use the model as it is, or with --precision fp16"
        )
    if family.pre_norm or family.scores != "content":
        raise ConfigError(
            f"{path} is of the {given.model.config.model_type} family, whose layers are not BERT's, and only those can "
            "be rounded to 8 bits; use the model as it is, or with --precision fp16"
        )
    labelled = None if dev is None else read_dev(path, user_path(dev), given.model, on_error)
    limit = min(given.model.config.max_input_length, given.tokenizer.model_max_length)
    known = encode(drawn, given.tokenizer, limit, source, read_task(checkpoint_folder(path)))
    scheme = Scheme(bits=bits or best_bits(native_library()))
    found, kept, judged = _search(given.model, observe(given.model, known.rows), known.rows, scheme)
    scores = None if labelled is None else labelled.compare(found)
    if scores is not None and not scores.acceptable():
        raise CheckpointError(f"{path} in 8 bits answers worse: {scores}; nothing was written")
    speed = compare_speed(given.model, found, known.rows)
    if not speed.acceptable() and not any_speed:
        raise CheckpointError(
            f"{path} in 8 bits is not faster on this machine: {speed}; nothing was written. To use it on another "
            "machine, add --any-speed"
        )
    facts = Quantization(
        version=VERSION,
        bertkit=__version__,
        model_class=type(given.model).__name__,
        bits=scheme.bits,
        apart=scheme.apart,
        smoothing=scheme.smoothing,
        kept=list(kept),
        texts=len(known.rows),
        unknown=round(known.unknown, 6),
        measured=Measured(asdict(judged), speed, scores),
    )
    return _write(target, path, given, found, facts, judged, scores, speed)


def _write(
    target: Path,
    path: Path,
    given: Exportable,
    found: PackedModel,
    facts: Quantization,
    judged: Closeness,
    scores: DevScores | None,
    speed: Speed,
) -> Quantized:
    """The folder, whole or not at all."""
    with new_folder(target) as draft:
        save_int8(found, draft, facts)
        result = Quantized(
            folder=target,
            model=facts.model_class,
            bits=facts.bits,
            texts=facts.texts,
            unknown=facts.unknown,
            kept=tuple(facts.kept),
            num_matrices=len(matrices_of(given.model)),
            closeness=judged,
            dev=scores,
            speed=speed,
            num_bytes=(draft / INT8_WEIGHTS).stat().st_size,
            original_bytes=sum(file.stat().st_size for file in find_weights(path).files),
        )
        write_beside(draft, given.tokenizer, given.decision, given.beside)
        if given.sentence is not None:
            write_sentence_parts(draft, given.sentence, given.model.config.hidden_size)
        _write_card(draft, result)
    return result


def _search(
    model: PackedModel, seen: dict[str, Inputs], rows: Ragged, scheme: Scheme
) -> tuple[PackedModel, tuple[str, ...], Closeness]:
    """The model in 8 bits, but for as few matrices as it needs to pass, those that change the answers most.

    ``seen`` is emptied on the way: what was seen of a matrix may be as large as a layer.
    """
    matrices = matrices_of(model)
    least = LEAST.get(model.config.hidden_act)
    rounded: dict[str, nn.Module] = {
        name: byte_linear(matrix, seen.pop(name), scheme, least if name.endswith("ffn_down") else None)
        for name, matrix in progress(list(matrices.items()), label="quantizing", unit="matrices")
    }
    expected = InferenceEngine.for_scoring(model).encoder().row_outputs(rows, VECTORS, label="original")

    def judge(kept: Set[str], *, tables: bool = True) -> tuple[PackedModel, Closeness]:
        made = _view(model, {name: each for name, each in rounded.items() if name not in kept}, tables=tables)
        return made, closeness(vectors_of(made, rows, "judging"), expected)

    made, found = judge(set())
    if found.within(NEAR_ENOUGH):
        return made, (), found
    say(f"all in 8 bits: {found}; looking for the matrices that must stay in float32")
    losses = {}
    for name in progress(rounded, label="matrix by matrix", unit="matrices"):
        losses[name] = 1.0 - judge(rounded.keys() - {name}, tables=False)[1].cosine_mean
    sizes = {name: matrix.weight.numel() for name, matrix in matrices.items()}
    left, kept = MAX_KEPT * sum(sizes.values()), []
    for name in sorted(rounded, key=lambda each: losses[each] / sizes[each], reverse=True):
        if sizes[name] > left:
            continue
        left -= sizes[name]
        kept.append(name)
        made, found = judge(set(kept))
        if found.within(NEAR_ENOUGH):
            return made, tuple(kept), found
    raise CheckpointError(
        f"in {scheme.bits} bits the answers change too much: {found}, even with {len(kept)} of {len(matrices)} "
        f"matrices in float32, where {NEAR_ENOUGH.as_limit()} or more is needed. Nothing was written"
    )


def _view(model: PackedModel, rounded: Mapping[str, nn.Module], *, tables: bool) -> PackedModel:
    """The model with these matrices in place of its own, and tables in 8 bits except one that a head reads as well."""
    places: dict[nn.Module, nn.Module] = {model.get_submodule(name): module for name, module in rounded.items()}
    tied = isinstance(model, HeadModel) and model.reads == "words"
    for module in model.modules() if tables else ():
        if isinstance(module, Embeddings):
            for name, table in module.named_children():
                if isinstance(table, nn.Embedding) and not (tied and name == "word_embeddings"):
                    places[table] = byte_embedding(table.weight)
    return module_view(model, places.get)


def _write_card(folder: Path, result: Quantized) -> None:
    lines = [f"# {result.model} in {result.bits} bits", "", *(f"- {line}" for line in result.facts()), ""]
    lines.append(f"Read by bertkit {__version__} and later: `bertkit.pipeline(model=folder)`. Figures: `{INT8_FACTS}`.")
    (folder / CARD).write_text("\n".join(lines) + "\n", encoding="utf-8")
