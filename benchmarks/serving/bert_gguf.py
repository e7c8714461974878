"""A BERT in the format of llama.cpp, as its own converter writes it: matrices in float16, the rest in float32.

    python bert_gguf.py MODEL FILE.gguf

MODEL is a folder of sentence-transformers with mean pooling. Needs the packages ``gguf`` and ``safetensors``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, PoolingType, TokenType
from safetensors.numpy import load_file

#: Names of a layer's tensors: of the checkpoint, and of llama.cpp.
LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
TABLES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}
SPECIAL = ("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]")


def piece(word: str) -> str:
    """A word piece as llama.cpp knows it: what begins a word has a mark, what continues one has none."""
    if word.startswith("[") and word.endswith("]"):
        return word
    return word.removeprefix("##") if word.startswith("##") else f"\u2581{word}"


def main() -> None:
    """Convert."""
    folder, out = map(Path, sys.argv[1:])
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    words = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")[: config["vocab_size"]]
    writer = GGUFWriter(out, "bert")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(PoolingType.MEAN)
    writer.add_tokenizer_model("bert")
    writer.add_token_list([piece(word) for word in words])
    writer.add_token_types([TokenType.CONTROL if word in SPECIAL else TokenType.NORMAL for word in words])
    writer.add_token_type_count(config["type_vocab_size"])
    for add, word in (
        (writer.add_bos_token_id, "[CLS]"),
        (writer.add_sep_token_id, "[SEP]"),
        (writer.add_eos_token_id, "[SEP]"),
        (writer.add_pad_token_id, "[PAD]"),
        (writer.add_unk_token_id, "[UNK]"),
        (writer.add_mask_token_id, "[MASK]"),
    ):
        add(words.index(word))
    names = TABLES | {
        f"encoder.layer.{number}.{theirs}": f"blk.{number}.{ours}"
        for number in range(config["num_hidden_layers"])
        for theirs, ours in LAYER.items()
    }
    for name, values in load_file(folder / "model.safetensors").items():
        stem, _, kind = name.removeprefix("bert.").rpartition(".")
        if stem not in names:  # numbers of positions, and the pooler, which mean pooling does not read
            continue
        is_matrix = values.ndim == 2 and stem.startswith("encoder.")
        kept = values.astype(np.float16 if is_matrix else np.float32)
        kept_as = GGMLQuantizationType.F16 if is_matrix else GGMLQuantizationType.F32
        writer.add_tensor(f"{names[stem]}.{kind}", kept, raw_dtype=kept_as)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
