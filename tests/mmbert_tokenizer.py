"""A tokenizer as mmBERT's, trained here: the original's tokens are not at hand.

SentencePiece learns the pieces with the settings in Gemma's model file; special tokens, runs of line feeds and blanks,
and HTML tags have their places. The converter's steps follow: blanks are ``▁``, the piece for a tab takes the place of
its byte, and every way to cut a piece in two is a merge, which is why the published file has 580,604 of them.
"""

from __future__ import annotations

import io
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from bertkit.tokenization import AddedToken, GemmaTokenizer
from tokenizer_helpers import read_lines

FIRST = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<2mass>", "[@BOS@]", *(f"<unused{at}>" for at in range(99))]
TURNS = ["<start_of_turn>", "<end_of_turn>"]
RUNS = [*("\n" * count for count in range(1, 32)), *("▁" * count for count in range(2, 32))]
TAGS = ["<table>", "</table>", "<h1>", "</h1>", "<strong>", "</strong>", "<s>", "</s>", "<code>", "</code>"]
#: What the last id of the published vocabulary is.
LAST = "<unused99>"
OTHER_SCRIPTS = "çéüÜßабвгдежзийклмнопрстуфхцчшщъыьэюя中文日本한국カ"
Merge = tuple[str, str]


@cache
def trained(shared: Path, size: int) -> bytes:
    """A SentencePiece model of ``size`` pieces, from English Wikipedia."""
    from sentencepiece import SentencePieceTrainer

    lines = islice(read_lines(shared / "data" / "pretrain_text" / "wikipedia_en.valid.txt.xz"), 4000)
    model = io.BytesIO()
    names = dict(zip(("pad", "eos", "bos", "unk"), FIRST[:4], strict=True))
    SentencePieceTrainer.train(
        sentence_iterator=(line for line in (each.strip("\n") for each in lines) if line),
        model_writer=model,
        model_type="bpe",
        vocab_size=size,
        byte_fallback=True,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        normalization_rule_name="identity",
        required_chars=OTHER_SCRIPTS,
        user_defined_symbols=[*FIRST[4:], *TURNS, *RUNS, *TAGS],
        num_threads=1,
        minloglevel=2,
        **{f"{name}_id": at for at, name in enumerate(names)},
        **{f"{name}_piece": piece for name, piece in names.items()},
    )
    return model.getvalue()


@cache
def vocabulary(shared: Path, size: int) -> tuple[dict[str, int], tuple[Merge, ...]]:
    """Tokens and merges as a converter makes them of the model."""
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(trained(shared, size))
    pieces = [("\t" if each.piece == "<0x09>" else each.piece, each.score) for each in model.pieces]
    vocab = {piece: number for number, (piece, _) in enumerate([*pieces, (LAST, 0.0)])}
    assert len(vocab) == size + 1
    ranked: list[tuple[float, Merge]] = []
    for piece, score in pieces:
        cuts = ((piece[:at], piece[at:]) for at in range(1, len(piece)))
        possible = [cut for cut in cuts if vocab.keys() >= {*cut}]
        ranked += [(score, cut) for cut in sorted(possible, key=lambda cut: (vocab[cut[0]], vocab[cut[1]]))]
    ranked.sort(key=lambda each: -each[0])
    return vocab, tuple(merge for _, merge in ranked)


def added_tokens(vocab: dict[str, int]) -> tuple[AddedToken, ...]:
    """The tokens that are never split: all of the first ids, seven of them special, and the last."""
    special = {*FIRST[:5], *TURNS}
    return tuple(
        AddedToken(token, vocab[token], special=token in special, lstrip=token == "<mask>")
        for token in (*FIRST, *TURNS, *RUNS, *TAGS, LAST)
    )


def mmbert(shared: Path, size: int = 6000, **settings: Any) -> GemmaTokenizer:
    vocab, merges = vocabulary(shared, size)
    return GemmaTokenizer(vocab, merges, **{"added_tokens": added_tokens(vocab), **settings})


def mmbert_peer(ours: GemmaTokenizer, *, add_prefix_space: bool = True) -> Any:
    """As the published ``tokenizer.json`` describes it; without the prefix, Gemma's in the same rows."""
    from tokenizers import AddedToken as EngineToken
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    known = ours._vocabulary
    merges = list(known.merges)
    whole = Tokenizer(models.BPE(dict(known.vocab), merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    whole.normalizer = normalizers.Replace(" ", "▁")
    cut, uncut = pre_tokenizers.Metaspace(), pre_tokenizers.Split(" ", "merged_with_previous")
    whole.pre_tokenizer = cut if add_prefix_space else uncut
    whole.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    for token in added_tokens(dict(known.vocab)):
        flags = {"special": token.special, "normalized": False, "lstrip": token.lstrip}
        whole.add_tokens([EngineToken(token.content, **flags)])
    whole.post_processor = processors.TemplateProcessing(
        single="<bos>:0 $A:0 <eos>:0",
        pair="<bos>:0 $A:0 <eos>:0 $B:0 <eos>:0",
        special_tokens=[("<bos>", 2), ("<eos>", 1)],
    )
    names: dict[str, Any] = {
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "unk_token": "<unk>",
        "sep_token": "<eos>",
        "pad_token": "<pad>",
        "cls_token": "<bos>",
        "mask_token": EngineToken("<mask>", lstrip=True, special=True),
        "additional_special_tokens": TURNS,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    return PreTrainedTokenizerFast(tokenizer_object=whole, model_max_length=512, **names)
