"""Export a model to ONNX files in a folder, with its tokenizer and labels, and check them by running them.

``model_packed.onnx`` takes sequences end to end, so that padding costs nothing outside attention; ``model.onnx`` takes
padded batches under the usual names, for other software. All axes are dynamic. See ``docs/decisions/0115-onnx.md``.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

import torch
from torch import Tensor
from torch.export import Dim

from bertkit import __version__
from bertkit.checkpoints.int8_folder import Quantization
from bertkit.checkpoints.sentence_folder import (
    MODULES,
    SentenceParts,
    read_sentence_parts,
    saved_pooling,
    write_sentence_parts,
)
from bertkit.config.any_config import is_encoder_decoder
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import CONFIG, checkpoint_folder
from bertkit.config.decision import read_decision, write_decision
from bertkit.config.families import FAMILIES
from bertkit.engine.export_folder import FILES, MANIFEST, WEIGHTS, Variant, checksums_of, is_export
from bertkit.engine.module_views import own_view
from bertkit.errors import ConfigError, InputError, did_you_mean, require, shorten
from bertkit.export.onnx_check import NUM_CHECKS, check_graph
from bertkit.export.onnx_graph import Graph, PackedGraph, PaddedGraph, traceable
from bertkit.export.onnx_int8 import byte_layers, byte_nodes, float_stand_in
from bertkit.export.onnx_weights import LinearNodes, WeightsFile, replace_linears
from bertkit.inference.run_files import SETTINGS
from bertkit.inference.runs import settings_for_use
from bertkit.model import auto
from bertkit.model.configured_model import ConfiguredModel
from bertkit.model.models import BertModel
from bertkit.model.padded import PackedModel
from bertkit.model.seq2seq.seq2seq_models import Seq2SeqModel
from bertkit.system.atomic_files import check_new_folder, disk_guard, make_folder, new_folder, sha256_file
from bertkit.system.console import say
from bertkit.system.json_files import write_json
from bertkit.system.model_sources import resolve
from bertkit.system.paths import user_path
from bertkit.system.untrusted_files import Json
from bertkit.tasks.examples import Fact
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

GRAPHS: dict[str, type[Graph]] = {"padded": PaddedGraph, "packed": PackedGraph}
#: Version of ONNX's operators: the one torch recommends, and those it can write.
OPSET = 20
OPSETS = range(18, 24)
#: For whoever runs the graphs.
CARD = "README.md"
#: Task to the end of the name of its class.
HEADS = {
    "feature-extraction": "",
    "fill-mask": "MaskedLM",
    "next-sentence": "NextSentencePrediction",
    "text-classification": "SequenceClassification",
    "token-classification": "TokenClassification",
    "question-answering": "QuestionAnswering",
    "multiple-choice": "MultipleChoice",
    "pre-training": "PreTraining",
}

_AFTER_THE_GRAPH = (
    f"- `{MODULES}`: what makes the vector of a text of the graph's vectors of tokens, in the layout of "
    "sentence-transformers; `bertkit embed` and `bertkit.SentenceEncoder` compute it."
)
#: Why an encoder-decoder is refused, and what there is instead.
_NO_GRAPH = (
    "is an encoder-decoder, which is neither exported to ONNX nor quantized: a decoder that writes runs once for each "
    "token, with a cache and a beam search around it, and a graph holds neither. Use it as it is, with pipeline() and "
    "the commands ('bertkit generate', 'classify', 'answer', 'embed'). Encoders with any head are exported: "
    f"{', '.join(FAMILIES)}; those whose layers are BERT's are quantized as well"
)


class GraphFile(TypedDict):
    """One graph; ``largest_difference`` is that from the model in the check, None without one."""

    file: str
    sha256: str
    #: The inputs and outputs with their axes.
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]
    largest_difference: float | None


@dataclass(frozen=True)
class Exported:
    """What was written; ``precision`` is that of the products, ``token_outputs`` have one row per token."""

    folder: Path
    model: str
    precision: Literal["fp32", "int8"]
    opset: int
    variants: dict[str, GraphFile]
    token_outputs: list[str]


def export_onnx(
    model: PackedModel,
    tokenizer: PreTrainedTokenizer | None,
    folder: str | Path,
    *,
    variants: Sequence[Variant] = ("packed",),
    opset: int = OPSET,
    check: bool = True,
    seed: int = 0,
    decision: Mapping[str, Fact] | None = None,
    beside: Mapping[str, Json] | None = None,
    sentence: SentenceParts | None = None,
    linear_nodes: LinearNodes | None = None,
) -> Exported:
    """Write a model as ONNX, with ``config.json`` (labels included), its tokenizer and a ``README.md`` for its users.

    model: any model class, in float32 on the CPU; it is not changed, and other threads may use it meanwhile.
    folder: must not exist, or be empty. It is written whole or not at all.
    variants: which graphs to write; they share one file of weights.
    check: run every graph with ONNX Runtime on batches of random shapes and compare it with the model.
    beside: further JSON files, content by name; see :func:`load_for_export`.
    sentence: what follows the encoder of a sentence model. It is written beside the graph, which gives vectors of
        tokens; :func:`bertkit.pipeline` and ``bertkit embed`` compute it.
    linear_nodes: how linear layers are computed instead; see :mod:`bertkit.export.onnx_weights`.
    """
    target = user_path(folder)
    _check_request(model, target, variants, opset)
    for package in ("onnx", "onnxscript", *(("onnxruntime",) if check else ())):
        require(package, extra="onnx", needed_for="exporting to ONNX")
    make_folder(target.parent)
    model, size = own_view(model), _num_bytes(model)
    precision: Literal["fp32", "int8"] = "fp32" if model.quantization is None else "int8"
    exported = Exported(target, type(model).__name__, precision, opset, {}, [])
    with disk_guard(target.parent, size, what="the exported model"), new_folder(target) as draft:
        weights = WeightsFile(draft / WEIGHTS)
        for number, variant in enumerate(variants, start=1):
            say(f"graph {number} of {len(variants)}: {FILES[variant]} ({size / 1e6:,.0f} MB of weights)")
            path = draft / FILES[variant]
            graph = _write(model, path, variant, opset, weights, linear_nodes)
            exported.variants[variant] = _facts(graph, model, path, variant, seed if check else None)
        outputs = next(iter(exported.variants.values()))["outputs"]
        if "last_hidden_state" not in outputs:  # a graph that guesses words has nothing to pool
            sentence = None
        exported.token_outputs.extend(name for name in outputs if name in model.token_fields)
        model.config.replace(architectures=[type(model).__name__]).save_pretrained(draft)
        write_beside(draft, tokenizer, decision, beside)
        if sentence is not None:
            write_sentence_parts(draft, sentence, model.config.hidden_size)
        facts = {**asdict(exported), "problem_type": model.config.problem_type, "crc32": checksums_of(draft)}
        facts |= {"format": "onnx", "bertkit": __version__, "torch": torch.__version__}
        del facts["folder"]
        (draft / MANIFEST).write_text(json.dumps(facts, indent=2) + "\n")
        (draft / CARD).write_text(_card(exported, model, sentence), encoding="utf-8")
    return exported


def _num_bytes(model: PackedModel) -> int:
    """Of the weights, each counted once; those in 8 bits are buffers, no parameters."""
    return sum({x.data_ptr(): x.nbytes for x in model.state_dict().values()}.values())


def _card(exported: Exported, model: PackedModel, sentence: SentenceParts | None) -> str:
    """What a user of the graphs must know that the files do not say."""
    segments = model.config.type_vocab_size
    bits = "" if model.quantization is None else f" in {model.quantization.bits} bits"
    lines = [f"# {exported.model}{bits} as ONNX, opset {exported.opset}", ""]
    for variant, facts in exported.variants.items():
        shapes = [f"`{name}` ({', '.join(axes)})" for name, axes in {**facts["inputs"], **facts["outputs"]}.items()]
        lines.append(f"- `{facts['file']}` ({variant}): {', '.join(shapes)}; inputs are int64, outputs float32.")
    lines += [
        f"- `{WEIGHTS}`: the weights; it must lie beside the graphs.",
        *([] if sentence is None else [_AFTER_THE_GRAPH]),
        *([] if model.quantization is None else _cost(model.quantization)),
        "",
        "`bertkit.pipeline(model=folder)` runs texts and checks its input, without torch. A graph raises no errors: "
        "run directly, it returns meaningless numbers for",
        "",
        f"- ids outside 0 ... {model.config.vocab_size - 1}, such as -1, which some runtimes count from the end;",
        "- a row whose `attention_mask` is 0 everywhere, or a sequence without tokens;",
        *(
            ["- a row of the padded graph with padding between its tokens;"]
            if "padded" in exported.variants and model.config.longest_with_gaps is not None
            else []
        ),
        *([f"- `token_type_ids` outside 0 ... {segments - 1};"] if segments else []),
        f"- more than {model.config.max_input_length} tokens in a sequence.",
    ]
    return "\n".join(lines) + "\n"


def _cost(facts: Quantization) -> list[str]:
    """Lines of the card: what 8 bits cost, as ``bertkit quantize`` measured it before the export."""
    kept = shorten(facts.kept, limit=8) if facts.kept else "none"
    lines = [f"- {facts.bits} bits, calibrated on {facts.texts:,} texts; matrices that stay in float32: {kept}."]
    lines.append(f"- Vectors compared with those in float32: {facts.measured.vectors()}.")
    if facts.measured.dev is not None:
        lines.append(f"- On labelled rows: {facts.measured.dev}.")
    return lines


class Exportable(NamedTuple):
    """A model and what belongs to it, as :func:`export_onnx` takes them.

    beside: of a fine-tuning run its task and how it reads.
    sentence: of a sentence model, also one with a masked-LM head, what follows the encoder.
    """

    model: PackedModel
    tokenizer: PreTrainedTokenizer
    decision: dict[str, Json]
    beside: dict[str, Json]
    sentence: SentenceParts | None


def load_for_export(name_or_path: str | Path, task: str | None = None) -> Exportable:
    """A model in the class it was saved from, or that a task of :data:`HEADS` needs, with what belongs to it."""
    if task is not None and task not in HEADS:
        raise ConfigError(f"unknown task {task!r}{did_you_mean(task, HEADS)}; known: {', '.join(HEADS)}")
    path = resolve(name_or_path)
    if is_export(path):
        raise ConfigError(
            f"{path} is an exported model, whose graphs cannot be changed; give the model that it was exported from"
        )
    folder = checkpoint_folder(path)
    if is_encoder_decoder(folder / CONFIG):
        raise ConfigError(f"{folder} {_NO_GRAPH}")
    if task is None:
        # Our names: another class that ends in "Model", such as a decoder, is not a bare encoder.
        saved = (BertConfig.from_json_file(folder / CONFIG).architectures or [""])[0]
        head = saved.partition("For")[2] if "For" in saved else "" if saved == BertModel.__name__ else None
    else:
        head = HEADS[task]
    loader = None if head is None else getattr(auto, f"AutoModelFor{head}" if head else "AutoModel", None)
    if loader is None:
        named = f"names the class {saved}, which cannot be exported" if saved else "does not say what the model is for"
        raise ConfigError(
            f"{folder / CONFIG} {named}; give a task: {', '.join(HEADS)}; a command without --task needs the class in "
            f'config.json, for example "architectures": ["{BertModel.__name__}"]'
        )
    model = loader.from_pretrained(path)
    settings = settings_for_use(folder)
    # The encoder of a sentence model may have kept its masked-LM head; modules of sparse vectors have no such pooling.
    reads_texts = not head or (head == "MaskedLM" and bool(saved_pooling(folder)))
    return Exportable(
        model,
        AutoTokenizer.from_pretrained(folder),
        read_decision(folder),
        {SETTINGS: settings} if settings else {},
        read_sentence_parts(folder, model.config.hidden_size) if reads_texts else None,
    )


def write_beside(
    folder: Path,
    tokenizer: PreTrainedTokenizer | None,
    decision: Mapping[str, Fact] | None,
    beside: Mapping[str, Json] | None,
) -> None:
    """Write what belongs to a model, as in :class:`Exportable`, into its folder."""
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    write_decision(folder, decision or {})
    for name, content in (beside or {}).items():
        write_json(folder / name, content)


def _check_request(model: ConfiguredModel, target: Path, variants: Sequence[str], opset: int) -> None:
    if not variants or set(variants) - GRAPHS.keys() or len(set(variants)) < len(variants):
        raise ConfigError(f"variants must be some of {', '.join(GRAPHS)}, each once, got {list(variants)}")
    if opset not in OPSETS:
        raise ConfigError(f"opset must be from {OPSETS[0]} to {OPSETS[-1]}, got {opset}")
    check_new_folder(target)
    if isinstance(model, Seq2SeqModel):
        raise InputError(f"{type(model).__name__} {_NO_GRAPH}")
    if model.device.type != "cpu" or model.dtype != torch.float32:
        raise InputError(f"export needs a float32 model on the CPU, got {model.dtype} on {model.device}")


def _write(
    model: PackedModel, path: Path, variant: str, opset: int, weights: WeightsFile, linear_nodes: LinearNodes | None
) -> Graph:
    in_bytes = byte_layers(model)
    traced, nodes_of = (float_stand_in(model), byte_nodes(in_bytes)) if in_bytes else (model, linear_nodes)
    graph = GRAPHS[variant](traced).eval()
    arguments, shapes = _sample(graph)
    with torch.no_grad(), traceable(traced), _less_talk():
        program = torch.onnx.export(
            graph,
            arguments,
            input_names=graph.inputs,
            output_names=graph.outputs,
            opset_version=opset,
            dynamic_shapes=shapes,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # source lines with paths of this machine
    proto = program.model_proto
    if nodes_of is not None:
        left = in_bytes.keys() - replace_linears(proto.graph, nodes_of)
        assert not left, f"in the graph these are still those of the stand-in: {shorten(sorted(left))}"
    weights.take(proto.graph)
    path.write_bytes(proto.SerializeToString())
    return graph


def _facts(graph: Graph, model: PackedModel, path: Path, variant: str, seed: int | None) -> GraphFile:
    """The entry of a graph in the manifest; with a seed it is checked."""
    tokens = {"padded": ["batch", "sequence"], "packed": ["tokens"]}[variant]
    axes = {**dict.fromkeys(graph.inputs, tokens), "cu_seqlens": ["sequences + 1"], "logit_rows": ["rows"]}
    of_tokens = ["rows"] if "logit_rows" in graph.inputs else tokens
    worst = None
    if seed is not None:
        say(f"comparing {path.name} with the model on {NUM_CHECKS} random batches")
        worst = check_graph(path, model, variant, seed=seed)
    return {
        "file": path.name,
        "sha256": sha256_file(path),
        "inputs": {name: axes[name] for name in graph.inputs},
        "outputs": {name: of_tokens if name in model.token_fields else ["batch"] for name in graph.outputs},
        "largest_difference": worst,
    }


def _sample(graph: Graph) -> tuple[tuple[Tensor, ...], Any]:
    """Example arguments for tracing, and the names of their axes. Sizes 0 and 1 would be taken as fixed."""
    if isinstance(graph, PaddedGraph):
        shape = {0: Dim("batch"), 1: Dim("sequence")}
        ids = torch.zeros((2, 3), dtype=torch.int64)
        examples = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": ids.clone()}
        return tuple(examples[name] for name in graph.inputs), (shape,) * len(graph.inputs)
    tokens = {0: Dim("tokens")}
    ids = torch.zeros(9, dtype=torch.int64)
    samples: dict[str, tuple[Tensor, dict[int, Dim]]] = {
        "input_ids": (ids, tokens),
        "cu_seqlens": (torch.tensor([0, 4, 9]), {0: Dim("bounds")}),
        "token_type_ids": (ids.clone(), tokens),
        "logit_rows": (torch.tensor([1, 3, 6]), {0: Dim("rows")}),
    }
    first, bounds, *others = (samples[name] for name in graph.inputs)
    # What ``forward`` takes as *others is one argument to the exporter.
    shapes = (first[1], bounds[1], *([tuple(shape for _, shape in others)] if others else []))
    return (first[0], bounds[0], *(x for x, _ in others)), shapes


@contextmanager
def _less_talk() -> Iterator[None]:
    """Suppress the exporter's messages about optional packages and its own deprecations."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
