"""Our tensor names and those in published files of encoder-decoders; see :mod:`bertkit.checkpoints.names`.

Names are without the prefix ``model.`` of BART's files. The part "encoder" has the shared table of words.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from bertkit.checkpoints.rules import ClassSpec, NameTable, Rule, copied, dense, norm
from bertkit.config.encoder_decoder_config import BartConfig, EncoderDecoderConfig, T5Config

_WORDS = "shared.weight"
#: Copies of the table of words, and the part that reads each.
_COPIES = {
    "encoder.embed_tokens.weight": "encoder",
    "decoder.embed_tokens.weight": "decoder",
    "lm_head.weight": "lm head",
}


def _in(tower: str, rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules of one tower, whose layers it counts."""
    return tuple(rule._replace(stack=f"{tower}_depth") for rule in rules)


def _sizes(config: EncoderDecoderConfig, spec: ClassSpec) -> dict[str, int]:
    """Words V, positions P, width D, all heads I, distances R, heads N, outputs C; feed-forward F, the decoder's G."""
    encoder, decoder = config.tower(decoder=False), config.tower(decoder=True)
    return {
        "V": config.vocab_size,
        "P": encoder.positions + 2,
        "D": config.d_model,
        "I": encoder.heads * encoder.head_width,
        "R": encoder.buckets,
        "N": encoder.heads,
        "F": encoder.inner_width,
        "G": decoder.inner_width,
        "C": config.num_labels,
    }


def _bart_tower(tower: str, inner: str) -> tuple[Rule, ...]:
    ours, theirs = f"{tower}.layer.{{i}}.", f"{tower}.layers.{{i}}."
    cross: tuple[Rule, ...] = ()
    if tower == "decoder":
        cross = (
            *dense(ours + "cross.q", "D D", theirs + "encoder_attn.q_proj"),
            *dense(ours + "cross.kv", "D D", theirs + "encoder_attn.k_proj", theirs + "encoder_attn.v_proj"),
            *dense(ours + "cross.out", "D D", theirs + "encoder_attn.out_proj"),
            *norm(ours + "around_cross.norm", theirs + "encoder_attn_layer_norm"),
        )
    return (
        copied(f"{tower}.words.positions.weight", "P D", f"{tower}.embed_positions.weight"),
        *norm(f"{tower}.words.norm", f"{tower}.layernorm_embedding"),
        *dense(ours + "attention.qkv", "D D", *(f"{theirs}self_attn.{name}_proj" for name in "qkv")),
        *dense(ours + "attention.out", "D D", theirs + "self_attn.out_proj"),
        *norm(ours + "around_attention.norm", theirs + "self_attn_layer_norm"),
        *cross,
        *dense(ours + "ffn.up", f"{inner} D", theirs + "fc1"),
        *dense(ours + "ffn.down", f"D {inner}", theirs + "fc2"),
        *norm(ours + "around_ffn.norm", theirs + "final_layer_norm"),
        *norm(f"{tower}.norm", f"{tower}.layer_norm", needs="has_last_norm"),
    )


_GENERATION = ClassSpec("ForConditionalGeneration", ("decoder", "lm head"), base="model")
BART = NameTable(
    family="bart",
    prefix="model.",
    zeros=frozenset({"final_logits_bias"}),  # never trained; files of the bare model and of some mBARTs have none
    ignored=frozenset({"encoder.version", "decoder.version"}),  # left over from fairseq
    parts={
        "encoder": _in("encoder", (copied(_WORDS, "V D"), *_bart_tower("encoder", "F"))),
        "decoder": _in("decoder", _bart_tower("decoder", "G")),
        "lm head": (copied("final_logits_bias", "1 V"),),
        "classifier": (*dense("classification_head.dense", "D D"), *dense("classification_head.out_proj", "C D")),
        "span head": dense("qa_outputs", "2 D"),
    },
    ties=tuple((copy, _WORDS) for copy in _COPIES),
    tied_parts=_COPIES,
    prefixed=("encoder", "decoder"),
    sizes=_sizes,
    classes={
        "BartModel": ClassSpec("BartModel", ("decoder",), base="model"),
        "BartForConditionalGeneration": _GENERATION._replace(name="BartForConditionalGeneration"),
        "BartForSequenceClassification": ClassSpec(
            "BartForSequenceClassification", ("decoder", "classifier"), base="model", label_head=True
        ),
        "BartForQuestionAnswering": ClassSpec("BartForQuestionAnswering", ("decoder", "span head"), base="model"),
    },
)


def _t5_tower(tower: str) -> tuple[Rule, ...]:
    ours, block = f"{tower}.layer.{{i}}.", f"{tower}.block.{{i}}.layer."
    own, last = f"{block}0.SelfAttention.", 2 if tower == "decoder" else 1
    feed_forward = f"{block}{last}.DenseReluDense."
    first = f"{tower}.block.0.layer.0.SelfAttention."  # has the biases for all layers
    rules = [
        copied(f"{tower}.distances.weight", "R N", first + "relative_attention_bias.weight"),
        Rule(ours + "attention.qkv.weight", tuple(f"{own}{name}.weight" for name in "qkv"), "I D"),
        copied(ours + "attention.out.weight", "D I", own + "o.weight"),
        copied(ours + "around_attention.norm.weight", "D", f"{block}0.layer_norm.weight"),
        copied(ours + "ffn.up.weight", "F D", feed_forward + "wi.weight", needs="has_one_product"),
        copied(ours + "ffn.up.weight", "F D", feed_forward + "wi_0.weight", needs="has_gate"),
        copied(ours + "ffn.gate.weight", "F D", feed_forward + "wi_1.weight", needs="has_gate"),
        copied(ours + "ffn.down.weight", "D F", feed_forward + "wo.weight"),
        copied(ours + "around_ffn.norm.weight", "D", f"{block}{last}.layer_norm.weight"),
        copied(f"{tower}.norm.weight", "D", f"{tower}.final_layer_norm.weight"),
    ]
    if tower == "decoder":
        cross = f"{block}1.EncDecAttention."
        rules += [
            copied(ours + "cross.q.weight", "I D", cross + "q.weight"),
            Rule(ours + "cross.kv.weight", (cross + "k.weight", cross + "v.weight"), "I D"),
            copied(ours + "cross.out.weight", "D I", cross + "o.weight"),
            copied(ours + "around_cross.norm.weight", "D", f"{block}1.layer_norm.weight"),
        ]
    return _in(tower, rules)


T5 = NameTable(
    family="t5",
    prefix="",
    # In the files of the first release; attention to the input has no distances.
    ignored=frozenset({"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"}),
    parts={
        "encoder": (copied(_WORDS, "V D"), *_t5_tower("encoder")),
        "decoder": _t5_tower("decoder"),
        "lm head": (copied("lm_head.weight", "V D", needs="has_own_output"),),
    },
    ties=tuple((copy, _WORDS) for copy in _COPIES),
    tied_parts=_COPIES,
    prefixed=("encoder", "decoder"),
    sizes=_sizes,
    classes={
        "T5Model": ClassSpec("T5Model", ("decoder",), base="model"),
        "T5EncoderModel": ClassSpec("T5EncoderModel", base="model"),
        "T5ForConditionalGeneration": _GENERATION._replace(name="T5ForConditionalGeneration"),
    },
)


def table_of(config: EncoderDecoderConfig) -> NameTable:
    """The table of a family."""
    return BART if isinstance(config, BartConfig) else T5


def with_own_output(config: EncoderDecoderConfig, names: Container[str]) -> EncoderDecoderConfig:
    """A T5 v1.1 whose config was written by transformers 5 says that output and words are tied: its file knows."""
    if not isinstance(config, T5Config) or config.scale_decoder_outputs is not False or config.has_own_output:
        return config
    return config.replace(tie_word_embeddings=not ("lm_head.weight" in names and _WORDS in names))


CLASSES: Mapping[str, ClassSpec] = {**BART.classes, **T5.classes}
