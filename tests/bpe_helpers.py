"""RoBERTa's tokenizer from GPT-2's tokens and merges, beside the peer that it must equal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.tokenization import RobertaTokenizer
from bertkit.tokenization.byte_bpe import ByteBpeTokenizer
from bertkit.tokenization.files_bpe import read_merges


def roberta_files(shared: Path) -> tuple[dict[str, int], tuple[tuple[str, str], ...]]:
    """Vocabulary and merges. The tokens are numbered in RoBERTa's way: special ones first, the mask last."""
    folder = shared / "data" / "vocab"
    numbers = json.loads((folder / "gpt2-vocab.json").read_text(encoding="utf-8"))
    tokens = [token for token in sorted(numbers, key=numbers.__getitem__) if token != "<|endoftext|>"]
    names = ["<s>", "<pad>", "</s>", "<unk>", *tokens, "<mask>"]
    return {token: number for number, token in enumerate(names)}, read_merges(folder / "gpt2-merges.txt")


class BpeContestants:
    """bertkit's engine, fast path and readable reference, and transformers' RobertaTokenizer."""

    def __init__(self, shared: Path, *, add_prefix_space: bool = False, trim_offsets: bool = True) -> None:
        from tokenizers import AddedToken
        from transformers import RobertaTokenizer as Peer

        vocab, merges = roberta_files(shared)
        settings: dict[str, Any] = {"add_prefix_space": add_prefix_space, "trim_offsets": trim_offsets}
        self.ours = RobertaTokenizer(vocab, merges, **settings)
        self.by_arrow = RobertaTokenizer(vocab, merges, **settings)
        assert self.by_arrow._fast is not None
        self.by_arrow._fast.arrow_chars = 0  # as for much text, however little there is
        never_split = self.ours._vocabulary.never_split
        self.reference = ByteBpeTokenizer(vocab, merges, never_split, **settings)
        mask = AddedToken("<mask>", lstrip=True, special=True)
        self.peer = Peer(vocab=vocab, merges=list(merges), mask_token=mask, model_max_length=512, **settings)

    def mismatches(self, texts: Sequence[str], *, reference: bool = True) -> list[str]:
        """Texts that the fast path, the engine or the reference (ids and offsets) tokenizes in another way."""
        texts = list(texts)
        expected = self.peer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)
        ours = self.ours(texts, add_special_tokens=False, return_offsets_mapping=True)
        wrong: list[str] = []
        lengths = np.array([len(row) for row in expected])
        flat = np.fromiter((number for row in expected for number in row.ids), np.int64, int(lengths.sum()))
        for fast_path in (self.ours, self.by_arrow):
            ragged = fast_path.encode_ragged(texts, add_special_tokens=False)
            if not (np.array_equal(ragged.lengths, lengths) and np.array_equal(ragged.ids, flat)):
                rows = zip(texts, expected, ragged, strict=True)
                wrong += [text for text, row, ids in rows if ids.tolist() != row.ids]
        for text, row, ids, offsets in zip(texts, expected, ours.input_ids, ours.offset_mapping, strict=True):
            if (ids, offsets) != (row.ids, row.offsets) or (reference and not self._reference_agrees(text, row)):
                wrong.append(text)
        return wrong

    def _reference_agrees(self, text: str, row: Any) -> bool:
        pieces = list(self.reference.pieces(text))
        offsets = [(piece.start, piece.end) for piece in pieces]
        return [self.ours.vocab[piece.token] for piece in pieces] == row.ids and offsets == row.offsets


@cache
def bpe_contestants(shared: Path, add_prefix_space: bool = False, trim_offsets: bool = True) -> BpeContestants:
    return BpeContestants(shared, add_prefix_space=add_prefix_space, trim_offsets=trim_offsets)
