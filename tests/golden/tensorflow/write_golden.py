"""Write the golden checkpoints beside this file, with real TensorFlow.

    python3 -m venv /tmp/tensorflow && /tmp/tensorflow/bin/pip install tensorflow-cpu
    /tmp/tensorflow/bin/python tests/golden/tensorflow/write_golden.py tests/golden/tensorflow

TensorFlow is no dependency of anything here: it runs in an environment of its own, and what it wrote is kept. A marked
test in ``tests/parity/test_tensorflow_golden.py`` writes them again and compares the tensors; the other tests there
take the values that should be in the files from :func:`values`, without TensorFlow.

    original/    as the published archives: bert_model.ckpt, bert_config.json, vocab.txt; pre-training heads
    classifier/  as run_classifier.py leaves it: two checkpoints with optimizer slots, and the file `checkpoint`
    squad/       as run_squad.py leaves it
    hub/         a SavedModel with the names and shapes of TF-Hub's BERT
    albert/      as the archives of ALBERT: model.ckpt-best, albert_config.json
    expected.npz what TensorFlow computes with the first and the last two for two sentences
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np

try:
    import tensorflow as tf
except ImportError:  # the tests that only want to know the values
    tf = None

CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 8,
    "initializer_range": 0.02,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "type_vocab_size": 2,
    "vocab_size": 24,
}
#: What an ALBERT has beside the above.
ALBERT = {
    "embedding_size": 4, "num_hidden_groups": 1, "inner_group_num": 1, "net_structure_type": 0, "gap_size": 0,
    "num_memory_blocks": 0, "down_scale_factor": 1,
}  # fmt: skip
VOCAB = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "river", "ran", "fast", "in", "spring", ",", "and", "boats",
    "waited", "at", "old", "mill", ".", "##s", "a", "film", "good", "12",
]  # fmt: skip
IDS = np.array([[2, 5, 6, 7, 8, 3, 20, 22, 21, 3], [2, 5, 4, 14, 15, 5, 16, 17, 18, 3]])
SEGMENTS = np.array([[0] * 6 + [1] * 4, [0] * 10])


def shapes(heads: str) -> dict[str, tuple[int, ...]]:
    """Variables of the original code, by name."""
    width, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    found = {
        "bert/embeddings/word_embeddings": (CONFIG["vocab_size"], width),
        "bert/embeddings/position_embeddings": (CONFIG["max_position_embeddings"], width),
        "bert/embeddings/token_type_embeddings": (CONFIG["type_vocab_size"], width),
        **norm("bert/embeddings/LayerNorm", width),
    }
    for layer in range(CONFIG["num_hidden_layers"]):
        prefix = f"bert/encoder/layer_{layer}/"
        for part in ("query", "key", "value"):
            found |= dense(f"{prefix}attention/self/{part}", width, width)
        found |= dense(f"{prefix}attention/output/dense", width, width)
        found |= norm(f"{prefix}attention/output/LayerNorm", width)
        found |= dense(f"{prefix}intermediate/dense", width, inner)
        found |= dense(f"{prefix}output/dense", inner, width)
        found |= norm(f"{prefix}output/LayerNorm", width)
    found |= dense("bert/pooler/dense", width, width)
    if heads == "pretraining":
        found |= dense("cls/predictions/transform/dense", width, width)
        found |= norm("cls/predictions/transform/LayerNorm", width)
        found["cls/predictions/output_bias"] = (CONFIG["vocab_size"],)
        found |= {"cls/seq_relationship/output_weights": (2, width), "cls/seq_relationship/output_bias": (2,)}
    elif heads == "classifier":
        found |= {"output_weights": (3, width), "output_bias": (3,)}
    elif heads == "squad":
        found |= {"cls/squad/output_weights": (2, width), "cls/squad/output_bias": (2,)}
    return found


def albert_shapes() -> dict[str, tuple[int, ...]]:
    """Variables of the original ALBERT: narrow embeddings, and one layer for all."""
    width, inner, narrow = CONFIG["hidden_size"], CONFIG["intermediate_size"], ALBERT["embedding_size"]
    layer = "bert/encoder/transformer/group_0/inner_group_0/"
    found = {
        "bert/embeddings/word_embeddings": (CONFIG["vocab_size"], narrow),
        "bert/embeddings/position_embeddings": (CONFIG["max_position_embeddings"], narrow),
        "bert/embeddings/token_type_embeddings": (CONFIG["type_vocab_size"], narrow),
        **norm("bert/embeddings/LayerNorm", narrow),
        **dense("bert/encoder/embedding_hidden_mapping_in", narrow, width),
        **dense(f"{layer}attention_1/output/dense", width, width),
        **norm(f"{layer}LayerNorm", width),
        **dense(f"{layer}ffn_1/intermediate/dense", width, inner),
        **dense(f"{layer}ffn_1/intermediate/output/dense", inner, width),
        **norm(f"{layer}LayerNorm_1", width),
        **dense("bert/pooler/dense", width, width),
        **dense("cls/predictions/transform/dense", width, narrow),
        **norm("cls/predictions/transform/LayerNorm", narrow),
        "cls/predictions/output_bias": (CONFIG["vocab_size"],),
        "cls/seq_relationship/output_weights": (2, width),
        "cls/seq_relationship/output_bias": (2,),
    }
    for part in ("query", "key", "value"):
        found |= dense(f"{layer}attention_1/self/{part}", width, width)
    return found


def dense(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}


def norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/gamma": (width,), f"{name}/beta": (width,)}


def values(heads: str, seed: int) -> dict[str, np.ndarray]:
    """Random weights, large enough that every part matters."""
    draw = np.random.default_rng(seed)
    found = {}
    for name, shape in (albert_shapes() if heads == "albert" else shapes(heads)).items():
        around = 1.0 if name.endswith("gamma") else 0.0
        found[name] = (around + 0.3 * draw.standard_normal(shape)).astype(np.float32)
    return found


def save(weights: dict[str, np.ndarray], prefix: Path, *, step: int | None = None, slots: bool = False) -> None:
    """What ``tf.train.Saver`` writes."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        for name, value in weights.items():
            v1.get_variable(name, initializer=value)
            if slots and not name.endswith(("adam_m", "adam_v")):
                v1.get_variable(f"{name}/adam_m", initializer=np.full_like(value, 0.25), trainable=False)
                v1.get_variable(f"{name}/adam_v", initializer=np.full_like(value, 0.5), trainable=False)
        if step is not None:
            v1.get_variable("global_step", initializer=np.int64(step), trainable=False)
        session.run(v1.global_variables_initializer())
        v1.train.Saver(max_to_keep=None).save(
            session, str(prefix), write_meta_graph=False, latest_filename="checkpoint", write_state=step is not None
        )


def forward(weights: dict[str, np.ndarray], *, approximate: bool) -> dict[str, np.ndarray]:
    """The encoder and the pre-training heads, with TensorFlow's operations, on :data:`IDS`."""

    def linear(x: tf.Tensor, name: str) -> tf.Tensor:
        return tf.matmul(x, weights[f"{name}/kernel"]) + weights[f"{name}/bias"]

    def normed(x: tf.Tensor, name: str) -> tf.Tensor:
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-12) * weights[f"{name}/gamma"] + weights[f"{name}/beta"]

    def split(x: tf.Tensor) -> tf.Tensor:
        heads = CONFIG["num_attention_heads"]
        return tf.transpose(tf.reshape(x, (len(IDS), IDS.shape[1], heads, -1)), (0, 2, 1, 3))

    x = tf.gather(weights["bert/embeddings/word_embeddings"], IDS)
    x += weights["bert/embeddings/position_embeddings"][: IDS.shape[1]]
    x += tf.gather(weights["bert/embeddings/token_type_embeddings"], SEGMENTS)
    x = normed(x, "bert/embeddings/LayerNorm")
    shared = "bert/encoder/embedding_hidden_mapping_in/kernel" in weights  # an ALBERT
    if shared:
        x = linear(x, "bert/encoder/embedding_hidden_mapping_in")
    states = [x]
    for layer in range(CONFIG["num_hidden_layers"]):
        prefix = "bert/encoder/transformer/group_0/inner_group_0/" if shared else f"bert/encoder/layer_{layer}/"
        attention = f"{prefix}attention{'_1' if shared else ''}"
        query, key, value = (split(linear(x, f"{attention}/self/{part}")) for part in ("query", "key", "value"))
        scores = tf.matmul(query, key, transpose_b=True) / np.sqrt(query.shape[-1]).astype(np.float32)
        mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores), value), (0, 2, 1, 3))
        mixed = linear(tf.reshape(mixed, x.shape), f"{attention}/output/dense")
        x = normed(x + mixed, f"{prefix}LayerNorm" if shared else f"{attention}/output/LayerNorm")
        inner = linear(x, f"{prefix}{'ffn_1/' if shared else ''}intermediate/dense")
        inner = tf.nn.gelu(inner, approximate=approximate)
        inner = linear(inner, f"{prefix}{'ffn_1/intermediate/' if shared else ''}output/dense")
        x = normed(x + inner, f"{prefix}{'LayerNorm_1' if shared else 'output/LayerNorm'}")
        states.append(x)
    pooled = tf.tanh(linear(x[:, 0], "bert/pooler/dense"))
    found = {"pooled_output": pooled, **{f"hidden_{number}": state for number, state in enumerate(states)}}
    if "cls/predictions/output_bias" in weights:
        y = tf.nn.gelu(linear(x, "cls/predictions/transform/dense"), approximate=approximate)
        y = normed(y, "cls/predictions/transform/LayerNorm")
        words = weights["bert/embeddings/word_embeddings"]
        found["prediction_logits"] = tf.matmul(y, words, transpose_b=True) + weights["cls/predictions/output_bias"]
        relation = weights["cls/seq_relationship/output_weights"]
        found["relationship_logits"] = (
            tf.matmul(pooled, relation, transpose_b=True) + weights["cls/seq_relationship/output_bias"]
        )
    return {name: np.asarray(value) for name, value in found.items()}


def hub_variables(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same weights under the names and in the shapes of TF-Hub's BERT, version 2 and later."""
    heads, width = CONFIG["num_attention_heads"], CONFIG["hidden_size"]
    to_heads, from_heads = (width, heads, width // heads), (heads, width // heads, width)
    pairs = [
        ("embeddings/word_embeddings", "word_embeddings/embeddings", None),
        ("embeddings/position_embeddings", "position_embedding/embeddings", None),
        ("embeddings/token_type_embeddings", "type_embeddings/embeddings", None),
    ]
    pairs += [(f"embeddings/LayerNorm/{end}", f"embeddings/layer_norm/{end}", None) for end in ("gamma", "beta")]
    pairs += [(f"pooler/dense/{end}", f"pooler_transform/{end}", None) for end in ("kernel", "bias")]
    for layer in range(CONFIG["num_hidden_layers"]):
        old, new = f"encoder/layer_{layer}/", f"transformer/layer_{layer}/"
        for part in ("query", "key", "value"):
            pairs.append((f"{old}attention/self/{part}/kernel", f"{new}self_attention/{part}/kernel", to_heads))
            pairs.append((f"{old}attention/self/{part}/bias", f"{new}self_attention/{part}/bias", to_heads[1:]))
        output = (f"{old}attention/output/dense", f"{new}self_attention/attention_output")
        pairs.append((f"{output[0]}/kernel", f"{output[1]}/kernel", from_heads))
        pairs.append((f"{output[0]}/bias", f"{output[1]}/bias", None))
        for kind, name in (("attention/output", "self_attention_layer_norm"), ("output", "output_layer_norm")):
            pairs += [(f"{old}{kind}/LayerNorm/{end}", f"{new}{name}/{end}", None) for end in ("gamma", "beta")]
        for kind in ("intermediate", "output"):
            pairs += [(f"{old}{kind}/dense/{end}", f"{new}{kind}/{end}", None) for end in ("kernel", "bias")]
    return {
        new: weights[f"bert/{old}"] if shape is None else weights[f"bert/{old}"].reshape(shape)
        for old, new, shape in pairs
    }


def save_hub(weights: dict[str, np.ndarray], folder: Path, vocab: Path) -> None:
    """A SavedModel that holds the variables, the vocabulary, and a function in which the tanh form of GELU is."""
    module = tf.Module()
    module.variables_of_the_model = [tf.Variable(value, name=name) for name, value in hub_variables(weights).items()]
    module.do_lower_case = tf.Variable(True, trainable=False, name="do_lower_case")
    module.vocab_file = tf.saved_model.Asset(str(vocab))
    inner = next(v for v in module.variables_of_the_model if v.name == "transformer/layer_0/intermediate/kernel:0")

    @tf.function(input_signature=[tf.TensorSpec((None, CONFIG["hidden_size"]), tf.float32)])
    def feed(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.gelu(tf.matmul(x, inner), approximate=True)

    module.feed = feed
    tf.saved_model.save(module, str(folder))
    (folder / "fingerprint.pb").unlink(missing_ok=True)


def main(folder: Path) -> None:
    for name in ("original", "classifier", "squad", "hub", "albert"):
        shutil.rmtree(folder / name, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    pretraining = values("pretraining", 1)
    save(pretraining, folder / "original" / "bert_model.ckpt")
    vocab = folder / "original" / "vocab.txt"
    vocab.write_text("".join(f"{word}\n" for word in VOCAB))
    (folder / "original" / "bert_config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    save(values("classifier", 2), folder / "classifier" / "model.ckpt-0", step=0)
    save(values("classifier", 3), folder / "classifier" / "model.ckpt-7", step=7, slots=True)
    save(values("squad", 4), folder / "squad" / "model.ckpt-5", step=5)
    save_hub(values("pretraining", 5), folder / "hub", vocab)
    albert = values("albert", 6)
    save(albert, folder / "albert" / "model.ckpt-best")
    (folder / "albert" / "albert_config.json").write_text(json.dumps({**CONFIG, **ALBERT}, indent=2) + "\n")
    expected = {f"original/{key}": value for key, value in forward(pretraining, approximate=False).items()}
    encoder = {key: value for key, value in values("pretraining", 5).items() if key.startswith("bert/")}
    expected |= {f"hub/{key}": value for key, value in forward(encoder, approximate=True).items()}
    expected |= {f"albert/{key}": value for key, value in forward(albert, approximate=False).items()}
    np.savez_compressed(folder / "expected.npz", ids=IDS, segments=SEGMENTS, **expected)
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.suffix != ".py":
            print(file.relative_to(folder), file.stat().st_size)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
