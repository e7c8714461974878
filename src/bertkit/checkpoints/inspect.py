"""What a checkpoint contains, without building the model: as text, and as a dict for programs.

Reads headers, config and vocabulary; weights only to hash them and to find values that are not finite. Of a checkpoint
that cannot be loaded it says why, as long as the header is readable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bertkit.checkpoints.any_names import any_specs, any_table, any_ties
from bertkit.checkpoints.explain import explain, printable, ranges
from bertkit.checkpoints.huggingface import Weights, check_vocabulary, find_vocabulary, find_weights, heads_in
from bertkit.checkpoints.match import Row, Status, match, surplus
from bertkit.checkpoints.names import TABLES, class_spec
from bertkit.checkpoints.rules import ClassSpec, NameTable, layer_number
from bertkit.checkpoints.safetensors_format import TensorInfo, first_not_finite
from bertkit.checkpoints.seq2seq_names import with_own_output
from bertkit.config.any_config import AnyConfig, read_any_config
from bertkit.config.bert_config import OWN_MODEL_TYPE, BertConfig
from bertkit.config.config_file import CONFIG, config_path
from bertkit.config.encoder_decoder_config import EncoderDecoderConfig
from bertkit.config.families import FAMILIES
from bertkit.errors import CheckpointError, counted
from bertkit.system.atomic_files import sha256_file
from bertkit.system.model_sources import HEAD, HEADS, resolve
from bertkit.system.untrusted_files import open_regular

_BLOCK = 1 << 22
FoundT = TypeVar("FoundT")


@dataclass(frozen=True, slots=True)
class FileReport:
    """One weights file; its hexadecimal SHA-256 is None if it was not asked for."""

    name: str
    num_bytes: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class ModelReport:
    """What :func:`inspect` found.

    loadable: whether at least one class loads it without a new head.
    viewed_as: the class that :attr:`tensors` refers to: the one it was saved from, otherwise the bare encoder.
    num_parameters: values in the file, without copies and buffers; ``parameters``: the same by part.
    classes: for each class "exact", what to add ("num_labels=", "new_head=True"), or "no".
    own_heads: the heads in folders of their own, ``heads/NAME``.
    """

    path: str
    loadable: bool
    problems: tuple[str, ...]
    config: dict[str, Any] | None
    viewed_as: str
    num_parameters: int
    parameters: dict[str, int]
    dtypes: dict[str, int]
    tensors: tuple[Row, ...]
    heads: dict[str, bool]
    classes: dict[str, str]
    unused: tuple[str, ...]
    labels: tuple[str, ...] | None
    tokenizer: dict[str, Any] | None
    files: tuple[FileReport, ...]
    own_heads: dict[str, dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        plain = asdict(self)
        plain["tensors"] = [{**row._asdict(), "status": row.status.value} for row in self.tensors]
        return plain

    def render(self) -> str:
        """Text for a terminal; equal layers share a line."""
        width = max(len(key) for key, _ in self._facts())
        lines = [f"{key:<{width}}  {value}".rstrip() for key, value in self._facts()]
        lines += ["", f"tensors as seen by {self.viewed_as} (ours <- theirs):", *_table(self.tensors)]
        if self.problems:
            lines += ["", *(f"problem: {problem}" for problem in self.problems)]
        return "\n".join(line.rstrip() for line in lines)

    def _facts(self) -> list[tuple[str, str]]:
        config, tokenizer = self.config or {}, self.tokenizer
        facts = [("model", self.path), ("can be loaded", "yes" if self.loadable else "no, see the problems below")]
        if config:
            facts.append(
                ("family", f"{config['model_type']}, saved from {', '.join(config.get('architectures') or ['?'])}")
            )
            family = FAMILIES.get(config["model_type"].removeprefix(OWN_MODEL_TYPE))
            keys = _SHAPE_KEYS if family is None else [family.keys.get(key, key) for key in _SHAPE_KEYS]
            facts.append(("shape", ", ".join(f"{key} {config[key]:,}" for key in keys if key in config)))
        types = ", ".join(f"{count} {dtype}" for dtype, count in self.dtypes.items())
        facts.append(
            ("parameters", f"{self.num_parameters:,} in {counted(sum(self.dtypes.values()), 'tensor')} ({types})")
        )
        facts += [("", f"{count:>13,}  {part}") for part, count in self.parameters.items()]
        facts.append(("heads in the file", ", ".join(head for head, there in self.heads.items() if there) or "none"))
        facts.append(("heads not there", ", ".join(head for head, there in self.heads.items() if not there) or "none"))
        for verdict in dict.fromkeys(self.classes.values()):
            names = ", ".join(name for name, other in self.classes.items() if other == verdict)
            facts.append((_VERDICTS.get(verdict, verdict), names))
        if self.labels is not None:
            shown = ", ".join(printable(label) for label in self.labels[:20])
            facts.append(("labels", f"{len(self.labels)}: {shown}{', ...' if len(self.labels) > 20 else ''}"))
        if tokenizer is None:
            facts.append(("tokenizer", "none beside the weights"))
        else:
            count = "an unknown number of" if tokenizer["size"] is None else f"{tokenizer['size']:,}"
            facts.append(("tokenizer", f"{count} tokens in {tokenizer['file']}"))
        for name, own in self.own_heads.items():
            labels = ", ".join(map(printable, own["labels"][:8])) + (", ..." if len(own["labels"]) > 8 else "")
            facts.append((f"head {name}", f"{own['class']}: {labels} ({own['num_bytes']:,} bytes)"))
        facts += [
            ("file", f"{file.name}, {file.num_bytes:,} bytes" + (f", sha256 {file.sha256}" if file.sha256 else ""))
            for file in self.files
        ]
        return facts


_SHAPE_KEYS = """
    num_hidden_layers num_hidden_groups hidden_size embedding_size num_attention_heads intermediate_size vocab_size
    max_position_embeddings type_vocab_size encoder_layers decoder_layers num_layers num_decoder_layers d_model d_kv
    encoder_attention_heads decoder_attention_heads num_heads encoder_ffn_dim decoder_ffn_dim d_ff
""".split()
_VERDICTS = {
    "exact": "loads exactly",
    "num_labels=": "with num_labels=N",
    "new_head=True": "with new_head=True",
    "no": "does not load",
}


def inspect(name_or_path: str | Path, *, hash_files: bool = True) -> ModelReport:
    """Look into a checkpoint: folder, ``.safetensors`` file, ``.index.json`` of shards, or name on the Hub."""
    path = resolve(name_or_path)
    weights = find_weights(path)
    problems: list[str] = []
    config = _attempt(problems, lambda: read_any_config(config_path(path)))
    if isinstance(config, EncoderDecoderConfig):
        config = with_own_output(config, weights.tensors)
    table = TABLES["bert"] if config is None else any_table(config)
    if config is not None:
        _attempt(problems, lambda: check_vocabulary(weights.folder, config))
    broken = [printable(info.name) for info in weights.tensors.values() if _is_broken(info)]
    if broken:
        problems.append(f"values that are not finite in {', '.join(broken[:20])}{' ...' if len(broken) > 20 else ''}")
    sound = not problems
    view, classes = None, {}
    if config is not None:
        specs, saved_from = _specs(config, table)
        classes = {spec.name: _verdict(weights, config, spec, table) for spec in specs}
        view = match(weights.tensors, config, saved_from, table)
        if view.problems:
            problems.append(explain(view, weights.where))
    parts = _parameters(weights.tensors.values(), config, table)
    heads = {part: part in parts for part in table.parts if part != "encoder"}
    labelled = any(there for head, there in heads.items() if "classifier" in head)
    found = _attempt(problems, lambda: find_vocabulary(weights.folder))
    return ModelReport(
        path=str(path),
        loadable=sound and "exact" in classes.values(),
        problems=tuple(dict.fromkeys(problems)),
        config=None if config is None else config.to_dict(),
        viewed_as=view.spec.name if view is not None else "no class (the config is unusable)",
        num_parameters=sum(parts.values()),
        parameters=parts,
        dtypes=dict(Counter(info.dtype for info in weights.tensors.values())),
        tensors=view.rows if view is not None else tuple(map(surplus, weights.tensors.values())),
        heads=heads,
        classes=classes,
        unused=view.unused if view is not None else (),
        labels=tuple(config.id2label.values()) if config is not None and labelled else None,
        tokenizer=None if found is None else {"file": found.file.name, "size": found.size, "settings": found.settings},
        files=tuple(
            FileReport(file.name, file.stat().st_size, sha256_file(file) if hash_files else None)
            for file in weights.files
        ),
        own_heads=_own_heads(weights.folder),
    )


def _own_heads(folder: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for name in heads_in(folder):
        config, file = read_any_config(folder / HEADS / name / CONFIG), folder / HEADS / name / HEAD
        saved_as = (config.architectures or ["?"])[0]
        found[name] = {"class": saved_as, "labels": list(config.id2label.values()), "num_bytes": file.stat().st_size}
    return found


def _attempt(problems: list[str], look: Callable[[], FoundT]) -> FoundT | None:
    """The result of ``look``, or None, with its error added to the problems."""
    try:
        return look()
    except CheckpointError as error:
        problems.append(str(error))
        return None


def _specs(config: AnyConfig, table: NameTable) -> tuple[list[ClassSpec], ClassSpec]:
    """All classes of a family, and that which a checkpoint was saved from."""
    specs = list(table.classes.values())
    if isinstance(config, BertConfig):
        specs = [class_spec(spec.name, config.model_type, config.pooling) for spec in specs]
    return specs, [*any_specs(config), *specs][0]


def _verdict(weights: Weights, config: AnyConfig, spec: ClassSpec, table: NameTable) -> str:
    predicts_words = isinstance(config, EncoderDecoderConfig) or config.tie_word_embeddings or config.has_own_decoder
    if "masked-lm head" in spec.heads and not predicts_words:
        return "no"
    if not match(weights.tensors, config, spec, table).problems:
        return "exact"
    if spec.heads and not match(weights.tensors, config, spec, table, labels=True).problems:
        return "num_labels="
    if spec.heads and not match(weights.tensors, config, spec, table, new_head=True).problems:
        return "new_head=True"
    return "no"


def _parameters(tensors: Iterable[TensorInfo], config: AnyConfig | None, table: NameTable) -> dict[str, int]:
    """Number of values by part, the encoder split into embeddings and layers; without tied copies and buffers."""
    counts = Counter[str]()
    names = {rule.theirs[0].partition(".")[0]: part for part, rules in table.parts.items() for rule in rules}
    ties = dict(table.ties) if config is None else any_ties(config)
    kept = {table.canonical(info.name): info for info in tensors}
    for name, info in kept.items():
        if name in table.ignored or (name in ties and ties[name] in kept):
            continue
        part = table.part_of(name) or names.get(name.partition(".")[0], "unknown")
        if part == "encoder":
            part = "layers" if layer_number(name) is not None else "embeddings"
        counts[part] += info.num_values
    order = ["embeddings", "layers", *table.parts, "unknown"]
    return {part: counts[part] for part in order if part in counts}


def _is_broken(info: TensorInfo) -> bool:
    if info.sum is not None:
        return any(_is_broken(part) for part in (info.sum.whole, info.sum.left, info.sum.right))
    with open_regular(info.file) as stream:
        stream.seek(info.start)
        for start in range(info.start, info.end, _BLOCK):
            size = min(info.end - start, _BLOCK)
            block = stream.read(size)
            if len(block) < size:
                raise CheckpointError(f"{info.file} was cut off while {info.name!r} was being read")
            if first_not_finite(np.frombuffer(block, np.uint8), info.dtype) is not None:
                return True
    return False


def _table(rows: Iterable[Row]) -> list[str]:
    """One line for rows that differ only in the layer: status, shape, type, ours <- theirs."""
    layers: dict[tuple[str, ...], list[int]] = {}
    for row in rows:
        number = layer_number(row.ours or row.theirs[0])
        ours, theirs = row.ours or "-", _together(row.theirs[: 1 if row.status is Status.TIED else None])
        if number is not None:
            ours, theirs = (text.replace(f".{number}.", ".{#}.") for text in (ours, theirs))
        key = (row.status.value, ours, theirs, " x ".join(map(str, row.shape)), row.dtype or "-", row.note)
        layers.setdefault(key, []).extend([] if number is None else [number])
    lines = []
    for (status, ours, theirs, shape, dtype, note), numbers in layers.items():
        filled = [
            printable(name.replace("{#}", ranges(numbers))) if numbers else printable(name) for name in (ours, theirs)
        ]
        same = "same name" if filled[0] == filled[1] else filled[1]
        lines.append((status, filled[0], same, shape, dtype, note))
    widths = [max((len(line[column]) for line in lines), default=0) for column in (0, 1, 3, 4)]
    return [
        f"  {status:<{widths[0]}}  {shape:>{widths[2]}}  {dtype:<{widths[3]}}  {ours:<{widths[1]}} <- {theirs} {note}"
        for status, ours, theirs, shape, dtype, note in lines
    ]


def _together(names: tuple[str, ...]) -> str:
    """``a.{query,key,value}.weight`` for names that differ in one part."""
    if len(names) < 2:
        return names[0] if names else "-"
    columns = (list(dict.fromkeys(column)) for column in zip(*(name.split(".") for name in names), strict=True))
    return ".".join(column[0] if len(column) == 1 else f"{{{','.join(column)}}}" for column in columns)
