"""The tokenizers of the families beside the peers that they must equal.

The published vocabularies are not at hand, but for ALBERT's and GPT-2's: RoBERTa's is made from GPT-2's tokens and
merges, which are the same but for their numbers, and so is ModernBERT's, with the added tokens of its file; MPNet's
from BERT's word pieces; the other unigram ones from the pieces of ALBERT, written to SentencePiece files in their
layout; mmBERT's is trained. Where transformers has no class that computes what a published ``tokenizer.json`` says
(ModernBERT, DeBERTa, mmBERT), the peer is put together from the parts that the file names.
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
    AddedToken,
    AlbertTokenizer,
    CamembertTokenizer,
    DebertaV2Tokenizer,
    GemmaTokenizer,
    ModernBertTokenizer,
    MPNetTokenizer,
    PreTrainedTokenizer,
    RobertaTokenizer,
    T5Tokenizer,
    XLMRobertaTokenizer,
)
from bertkit.tokenization.formats.vocabulary_files import read_merges
from bertkit.tokenization.unigram_tokenizers import UnigramTokenizer
from mmbert_tokenizer import mmbert, mmbert_peer
from oracles.byte_bpe import ByteBpeTokenizer

CLASSES: dict[str, Any] = {
    "roberta": RobertaTokenizer,
    "albert": AlbertTokenizer,
    "xlm-roberta": XLMRobertaTokenizer,
    "camembert": CamembertTokenizer,
    "modernbert": ModernBertTokenizer,
    "deberta-v2": DebertaV2Tokenizer,
    "mpnet": MPNetTokenizer,
    "mmbert": GemmaTokenizer,
    "t5": T5Tokenizer,
}
FAMILIES = tuple(CLASSES)
ENCODERS = tuple(family for family in FAMILIES if family != "t5")
UNIGRAM = tuple(family for family, each in CLASSES.items() if issubclass(each, UnigramTokenizer))
#: What stands before the pieces of a SentencePiece file, with their kinds (2 unknown, 3 control).
FIRST_PIECES = {
    "xlm-roberta": [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)],
    "camembert": [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)],
    "deberta-v2": [("[PAD]", 0.0, 3), ("[CLS]", 0.0, 3), ("[SEP]", 0.0, 3), ("[UNK]", 0.0, 2)],
    "t5": [("<pad>", 0.0, 3), ("</s>", 0.0, 3), ("<unk>", 0.0, 2)],
}
#: ModernBERT's tokens that are never split and are not special; its runs of blanks are GPT-NeoX's.
PLAIN_TOKENS = [" " * number for number in range(24, 1, -1)] + ["|||EMAIL_ADDRESS|||", "|||PHONE_NUMBER|||"]


class FamilyContestants:
    """bertkit's engine, fast path and (for BPE) readable reference, and the tokenizer of transformers."""

    def __init__(self, family: str, shared: Path, **settings: Any) -> None:
        self.ours: Any
        self.peer: Any
        self.reference: ByteBpeTokenizer | None = None
        if family in ("roberta", "modernbert"):
            vocab, merges = bpe_files(family, shared)
            added = {"added_tokens": modernbert_tokens(len(vocab))} if family == "modernbert" else {}
            self.ours, self.by_arrow = (CLASSES[family](vocab, merges, **added, **settings) for _ in range(2))
            if family == "modernbert":
                self.peer = modernbert_peer(self.ours, **settings)
            else:
                self.reference = ByteBpeTokenizer(vocab, merges, self.ours._vocabulary.never_split, **settings)
                self.peer = peer_class(family)(vocab=vocab, merges=list(merges), **_mask("<mask>"), **settings)
        elif family == "mpnet":
            words = mpnet_vocab(shared)
            self.ours, self.by_arrow = (MPNetTokenizer(words, **settings) for _ in range(2))
            self.peer = peer_class(family)(vocab=words, model_max_length=512, **settings)
        elif family == "mmbert":
            self.ours, self.by_arrow = (mmbert(shared, **settings) for _ in range(2))
            self.peer = mmbert_peer(self.ours, **settings)
        else:
            with tempfile.TemporaryDirectory() as folder:
                file = model_file(family, shared, Path(folder))
                self.ours, self.by_arrow = (CLASSES[family](file, **settings) for _ in range(2))
            self.peer = unigram_peer(family, self.ours, **settings)
        assert self.by_arrow._fast is not None
        self.by_arrow._fast.arrow_chars = 0  # as for much text, however little there is

    def mismatches(self, texts: Sequence[str], *, reference: bool = True) -> list[str]:
        """Texts that the fast path, the engine or the reference (ids and offsets) tokenizes in another way."""
        texts = list(texts)
        self.peer.backend_tokenizer.no_truncation()  # which an earlier call may have left on
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


def model_type(family: str) -> str:
    """What config.json says of a model with the tokenizer of a family."""
    return "modernbert" if family == "mmbert" else family


@cache
def family_contestants(shared: Path, family: str) -> FamilyContestants:
    return FamilyContestants(family, shared)


def peer_class(family: str) -> Any:
    """The class of transformers that reads a ``tokenizer.json`` of the family as it is."""
    import transformers

    is_own = family not in ("modernbert", "mmbert", "deberta-v2")
    return getattr(transformers, CLASSES[family].__name__) if is_own else transformers.PreTrainedTokenizerFast


def unigram_peer(family: str, ours: Any, **settings: Any) -> Any:
    import transformers

    vocabulary = ours._vocabulary
    pieces = list(vocabulary.pieces)
    if family == "t5":
        return transformers.T5Tokenizer(vocab=pieces, _spm_precompiled_charsmap=vocabulary.charsmap, **settings)
    if family == "deberta-v2" and settings.get("splits") == "at blanks of NFC":
        return transformers.DebertaV2Tokenizer(vocab=pieces, do_lower_case=settings.get("do_lower_case", False))
    if family == "deberta-v2":
        return deberta_peer(pieces, vocabulary.charsmap, lower=settings.get("do_lower_case", False))
    charsmap = {"_spm_precompiled_charsmap": vocabulary.charsmap}
    return peer_class(family)(vocab=pieces, **charsmap, **_mask(vocabulary.mask_token), **settings)


def deberta_peer(pieces: list[tuple[str, float]], charsmap: bytes, *, lower: bool) -> Any:
    """What the converter of transformers 4 made of ``spm.model``, as in every ``tokenizer.json`` that it wrote."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    whole = Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=False))
    steps = [normalizers.Strip(), normalizers.Precompiled(charsmap), normalizers.Replace(Regex(" {2,}"), " ")]
    whole.normalizer = normalizers.Sequence([*[normalizers.Lowercase()] * lower, *steps])
    whole.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(prepend_scheme="always")])
    whole.decoder = decoders.Metaspace(prepend_scheme="always")
    whole.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    names = {"bos_token": "[CLS]", "eos_token": "[SEP]", **BERT_NAMES}
    made = PreTrainedTokenizerFast(tokenizer_object=whole, **names)
    # It copies the tokenizer through JSON; the parser there changes the last bit of many scores, which decides ties.
    made.backend_tokenizer.model = models.Unigram(pieces, unk_id=3, byte_fallback=False)
    return made


def modernbert_peer(ours: Any, *, add_prefix_space: bool = False) -> Any:
    """As the published ``tokenizer.json`` describes it."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = ours._vocabulary
    whole = Tokenizer(models.BPE(dict(vocabulary.vocab), list(vocabulary.merges)))
    whole.normalizer = normalizers.NFC()
    whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    whole.decoder = decoders.ByteLevel()
    for token in modernbert_tokens(len(vocabulary.vocab)):
        flags = {"special": token.special, "normalized": token.normalized, "lstrip": token.lstrip}
        whole.add_tokens([AddedToken(token.content, **flags)])
    ids = [(name, whole.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    whole.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=ids
    )
    names = {**BERT_NAMES, "mask_token": AddedToken("[MASK]", lstrip=True, special=True)}
    return PreTrainedTokenizerFast(
        tokenizer_object=whole, additional_special_tokens=["<|endoftext|>"], model_max_length=512, **names
    )


BERT_NAMES: dict[str, Any] = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}


def _mask(token: str) -> dict[str, Any]:
    """The mask takes the white space before it, as in every published file."""
    from tokenizers import AddedToken

    return {"mask_token": AddedToken(token, lstrip=True, special=True), "model_max_length": 512}


def bpe_files(family: str, shared: Path) -> tuple[dict[str, int], tuple[tuple[str, str], ...]]:
    """Vocabulary and merges. The tokens are numbered in RoBERTa's way: special ones first, the mask last.

    ModernBERT's special tokens are added to the vocabulary instead.
    """
    folder = shared / "data" / "vocab"
    numbers = json.loads((folder / "gpt2-vocab.json").read_text(encoding="utf-8"))
    tokens = [token for token in sorted(numbers, key=numbers.__getitem__) if token != "<|endoftext|>"]
    names = tokens if family == "modernbert" else ["<s>", "<pad>", "</s>", "<unk>", *tokens, "<mask>"]
    return {token: number for number, token in enumerate(names)}, read_merges(folder / "gpt2-merges.txt")


def modernbert_tokens(first: int) -> tuple[AddedToken, ...]:
    """The tokens that ModernBERT's file adds, from the id ``first`` on."""
    plain = [AddedToken(token, 0, special=False, normalized=True) for token in PLAIN_TOKENS]
    special = [AddedToken(token, 0) for token in ("<|endoftext|>", "[UNK]", "[CLS]", "[SEP]", "[PAD]")]
    unused = [AddedToken(f"[unused{number}]", 0, special=False, normalized=True) for number in range(83)]
    listed = [*plain, *special, AddedToken("[MASK]", 0, lstrip=True), *unused]
    return tuple(token._replace(id=first + number) for number, token in enumerate(listed))


def mpnet_vocab(shared: Path, *, size: int | None = None) -> dict[str, int]:
    """BERT's word pieces between the special tokens of MPNet."""
    lines = (shared / "data" / "vocab" / "bert-base-uncased-vocab.txt").read_text(encoding="utf-8").split("\n")
    words = [line for line in lines if line and line not in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")]
    kept = words if size is None else [*words[:200], *words[960 : 960 + size]]
    names = ["<s>", "<pad>", "</s>", "<unk>", *kept, "<mask>"]
    return {token: number for number, token in enumerate(names)}


def model_file(family: str, shared: Path, folder: Path, *, num_pieces: int | None = None) -> Path:
    """A SentencePiece file of a family: ALBERT's own, or one with its pieces behind the family's first ones."""
    from sentencepiece import sentencepiece_model_pb2

    source = shared / "data" / "vocab" / "albert-spiece.model"
    file = folder / CLASSES[family].kind.files[0]
    if family == "albert" and num_pieces is None:
        file.write_bytes(source.read_bytes())
        return file
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(source.read_bytes())
    pieces = [(each.piece, each.score, each.type) for each in model.pieces][:num_pieces]
    if family != "albert":
        pieces = FIRST_PIECES[family] + [(piece, score, 1) for piece, score, _ in pieces[5:]]
        names = [piece for piece, _, _ in pieces]
        spec = model.trainer_spec
        spec.unk_id = next(number for number, piece in enumerate(pieces) if piece[2] == 2)
        spec.unk_piece = names[spec.unk_id]
        spec.bos_id, spec.eos_id, spec.pad_id = (
            names.index(name) if name in names else -1 for name in ("<s>", "</s>", "<pad>")
        )
    if family == "deberta-v2":  # has a piece for each byte, which fast tokenizers take for its name
        pieces += [(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
        model.trainer_spec.byte_fallback = True
    del model.pieces[:]
    for piece, score, kind in pieces:
        model.pieces.add(piece=piece, score=score, type=kind)
    file.write_bytes(model.SerializeToString())
    return file


def small(family: str, shared: Path, folder: Path, num_merges: int = 100, **settings: Any) -> PreTrainedTokenizer:
    """A tokenizer with a few hundred tokens; ``num_merges``: of byte-level BPE."""
    made: PreTrainedTokenizer
    if family == "mpnet":
        return MPNetTokenizer(mpnet_vocab(shared, size=300), **settings)
    if family == "mmbert":
        return mmbert(shared, 800, **settings)
    if family not in ("roberta", "modernbert"):
        made = CLASSES[family](model_file(family, shared, folder, num_pieces=400), **settings)
        return made
    vocab, merges = bpe_files(family, shared)
    first = 4 if family == "roberta" else 0
    names = [*list(vocab)[: first + 256], *("".join(pair) for pair in merges[:num_merges]), *["<mask>"] * (first > 0)]
    if family == "modernbert":
        settings = {"added_tokens": modernbert_tokens(len(names)), **settings}
    made = CLASSES[family]({token: number for number, token in enumerate(names)}, merges[:num_merges], **settings)
    return made
