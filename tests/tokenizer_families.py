"""The tokenizers of RoBERTa, ALBERT, XLM-R and CamemBERT beside the peers that they must equal.

RoBERTa's is made from GPT-2's tokens and merges, which are the same but for their numbers; XLM-R's and CamemBERT's from
the pieces of ALBERT, written to SentencePiece files in the layout of these models.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.tokenization import (
    AlbertTokenizer,
    CamembertTokenizer,
    PreTrainedTokenizer,
    RobertaTokenizer,
    XLMRobertaTokenizer,
)
from bertkit.tokenization.formats.vocabulary_files import read_merges
from oracles.byte_bpe import ByteBpeTokenizer

FAMILIES = ("roberta", "albert", "xlm-roberta", "camembert")
CLASSES = {
    "roberta": RobertaTokenizer,
    "albert": AlbertTokenizer,
    "xlm-roberta": XLMRobertaTokenizer,
    "camembert": CamembertTokenizer,
}


class FamilyContestants:
    """bertkit's engine, fast path and (for BPE) readable reference, and the tokenizer of transformers."""

    def __init__(self, family: str, shared: Path, **settings: Any) -> None:
        self.ours: Any
        self.peer: Any
        self.reference: ByteBpeTokenizer | None = None
        if family == "roberta":
            vocab, merges = roberta_files(shared)
            self.ours, self.by_arrow = (RobertaTokenizer(vocab, merges, **settings) for _ in range(2))
            self.reference = ByteBpeTokenizer(vocab, merges, self.ours._vocabulary.never_split, **settings)
            self.peer = peer_class(family)(vocab=vocab, merges=list(merges), **_mask("<mask>"), **settings)
        else:
            with tempfile.TemporaryDirectory() as folder:
                file = model_file(family, shared, Path(folder))
                self.ours, self.by_arrow = (CLASSES[family](file, **settings) for _ in range(2))
            vocabulary = self.ours._vocabulary
            pieces = {"vocab": list(vocabulary.pieces), "_spm_precompiled_charsmap": vocabulary.charsmap}
            self.peer = peer_class(family)(**pieces, **_mask(vocabulary.mask_token), **settings)
        assert self.by_arrow._fast is not None
        self.by_arrow._fast.arrow_chars = 0  # as for much text, however little there is

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
        if self.reference is None:
            return True
        pieces = list(self.reference.pieces(text))
        offsets = [(piece.start, piece.end) for piece in pieces]
        return self.ours.convert_tokens_to_ids([piece.token for piece in pieces]) == row.ids and offsets == row.offsets


@cache
def family_contestants(shared: Path, family: str) -> FamilyContestants:
    return FamilyContestants(family, shared)


def peer_class(family: str) -> Any:
    import transformers

    return getattr(transformers, CLASSES[family].__name__)


def _mask(token: str) -> dict[str, Any]:
    """The mask takes the white space before it, as in every published file."""
    from tokenizers import AddedToken

    return {"mask_token": AddedToken(token, lstrip=True, special=True), "model_max_length": 512}


def roberta_files(shared: Path) -> tuple[dict[str, int], tuple[tuple[str, str], ...]]:
    """Vocabulary and merges. The tokens are numbered in RoBERTa's way: special ones first, the mask last."""
    folder = shared / "data" / "vocab"
    numbers = json.loads((folder / "gpt2-vocab.json").read_text(encoding="utf-8"))
    tokens = [token for token in sorted(numbers, key=numbers.__getitem__) if token != "<|endoftext|>"]
    names = ["<s>", "<pad>", "</s>", "<unk>", *tokens, "<mask>"]
    return {token: number for number, token in enumerate(names)}, read_merges(folder / "gpt2-merges.txt")


def model_file(family: str, shared: Path, folder: Path, *, num_pieces: int | None = None) -> Path:
    """A SentencePiece file of a family: ALBERT's own, or one with its pieces behind ``<unk>, <s>, </s>``."""
    from sentencepiece import sentencepiece_model_pb2

    source = shared / "data" / "vocab" / "albert-spiece.model"
    file = folder / CLASSES[family].kind.files[0]  # type: ignore[attr-defined]
    if family == "albert" and num_pieces is None:
        file.write_bytes(source.read_bytes())
        return file
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(source.read_bytes())
    pieces = [(each.piece, each.score, each.type) for each in model.pieces][:num_pieces]
    if family != "albert":
        first = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
        pieces = first + [(piece, score, 1) for piece, score, _ in pieces[5:]]
        model.trainer_spec.unk_id, model.trainer_spec.bos_id, model.trainer_spec.eos_id = 0, 1, 2
    del model.pieces[:]
    for piece, score, kind in pieces:
        model.pieces.add(piece=piece, score=score, type=kind)
    file.write_bytes(model.SerializeToString())
    return file


def small(family: str, shared: Path, folder: Path, **settings: Any) -> PreTrainedTokenizer:
    """A tokenizer with a few hundred tokens."""
    if family != "roberta":
        return CLASSES[family](model_file(family, shared, folder, num_pieces=400), **settings)  # type: ignore[abstract]
    vocab, merges = roberta_files(shared)
    tokens = list(vocab)[: 4 + 256]
    return RobertaTokenizer(
        {token: number for number, token in enumerate([*tokens, *("".join(pair) for pair in merges[:100]), "<mask>"])},
        merges[:100],
        **settings,
    )
