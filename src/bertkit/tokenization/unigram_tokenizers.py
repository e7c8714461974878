"""SentencePiece's unigram model: the tokenizers of ALBERT, CamemBERT, DeBERTa, T5 and XLM-R."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Unpack

from bertkit.errors import CheckpointError, InputError
from bertkit.tokenization import backend as engines
from bertkit.tokenization import templates
from bertkit.tokenization.call_arguments import SharedArguments, special_tokens
from bertkit.tokenization.family_vocabularies import UnigramVocabulary
from bertkit.tokenization.fast.chunk_cache import ChunkEncoder
from bertkit.tokenization.fast.piece_lookup import FastUnigram
from bertkit.tokenization.formats.unigram_files import (
    CONTROL,
    UNKNOWN,
    Pieces,
    SentencePieceModel,
    albert_from_json,
    deberta_from_json,
    read_model,
    unigram_kind,
)
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.tokenization.vocabulary import BRACKETED, END_ONLY, AddedToken, SpecialTokens, Splits, TokenTable

#: Tokens that stand for removed text, in the published vocabularies of T5.
NUM_SENTINELS = 100
_sentinel = re.compile(r"<extra_id_(\d+)>")


class UnigramTokenizer(PreTrainedTokenizer):
    """What the tokenizers with unigram pieces share; use :class:`AlbertTokenizer` and its like.

    They are equal to those of transformers in ids, offsets and word numbers. Lone surrogates become U+FFFD.

    Args:
        vocab: every piece with its score, in the order of their ids; or the path of a SentencePiece ``.model`` file.
        vocab_file: the path of such a file, instead of ``vocab``.
        precompiled_charsmap: SentencePiece's table of characters to replace; a ``.model`` file has its own.
        do_lower_case: lower-case text.
        keep_accents: False removes accents.
        add_prefix_space: begin every word with ``▁``.
        splits: where text is cut; see :data:`~bertkit.tokenization.vocabulary.Splits`.
        unk_token, sep_token, pad_token, cls_token, mask_token: the special tokens; None: the usual ones. They are
            recognized anywhere in a text and never split; the mask includes the white space before it.
        added_tokens: further tokens that are never split.
        model_max_length, padding_side, truncation_side, clean_up_tokenization_spaces: see :class:`PreTrainedTokenizer`.
        model: the SentencePiece file that ``vocab`` is from, which :meth:`save_pretrained` writes back.
        source: how error messages name the vocabulary.

    Raises:
        CheckpointError: a special token that the vocabulary lacks, ids that are not 0 ... n-1, a damaged file or table.
        InputError: neither or both of ``vocab`` and ``vocab_file``.
    """

    replace_quotes: ClassVar[bool] = False
    _vocabulary: UnigramVocabulary

    def __init__(
        self,
        vocab: Sequence[tuple[str, float]] | str | Path | None = None,
        *,
        vocab_file: str | Path | None = None,
        precompiled_charsmap: bytes | None = None,
        do_lower_case: bool = False,
        keep_accents: bool = True,
        add_prefix_space: bool = True,
        splits: Splits = "at white space",
        model: bytes | None = None,
        **kwargs: Unpack[SharedArguments],
    ) -> None:
        special = special_tokens(kwargs, self.special_names, of=type(self).__name__)
        if (vocab is None) == (vocab_file is None):
            raise InputError(
                f"pass either vocab (pieces with scores) or vocab_file (the path of a {self.kind.files[0]})"
            )
        given = vocab_file if vocab is None else vocab
        if isinstance(given, str | Path):
            read = next(iter(self.kind.originals.values()))(Path(given))
            pieces, model = read["vocab"], read["model"]
            precompiled_charsmap = precompiled_charsmap or read["precompiled_charsmap"]
        else:
            pieces = tuple((piece, float(score)) for piece, score in given or ())
        vocabulary = UnigramVocabulary(
            names=self.kind.names,
            blank_before_mask=self.kind.blank_before_mask,
            pieces=pieces,
            charsmap=precompiled_charsmap or None,
            added=self._added(pieces, tuple(kwargs.get("added_tokens", ())), special),
            replace_quotes=self.replace_quotes,
            keep_accents=keep_accents,
            do_lower_case=do_lower_case,
            add_prefix_space=add_prefix_space,
            splits=splits,
            model=model,
            source=kwargs.get("source") or (str(given) if isinstance(given, str | Path) else "the vocabulary"),
            **special,
        )
        super().__init__(vocabulary, **kwargs)

    def _added(self, pieces: Pieces, given: tuple[AddedToken, ...], special: SpecialTokens) -> tuple[AddedToken, ...]:
        """The tokens that are never split beside the special ones: those given, and what a family has of its own."""
        return given

    def _set_up(self, vocabulary: TokenTable, clean_up_tokenization_spaces: bool) -> None:
        super()._set_up(vocabulary, clean_up_tokenization_spaces)
        self.do_lower_case = self._vocabulary.do_lower_case
        self.keep_accents = self._vocabulary.keep_accents
        self.add_prefix_space = self._vocabulary.add_prefix_space

    def _engines(self) -> tuple[Callable[[], engines.Engines], ChunkEncoder | None]:
        engine, bare, parts = engines.build_unigram(self._vocabulary, self.template)
        # The fast path cannot find a token in normalized text, or only between certain characters.
        is_fast = not any(token.single_word or token.normalized for token in self._vocabulary.never_split)
        return lambda: (engine, bare), FastUnigram(self._vocabulary, parts) if is_fast else None

    def _original_files(self) -> dict[str, bytes]:
        model = self._vocabulary.model
        return {} if model is None else {self.kind.files[0]: model}


def _number_albert(model: SentencePieceModel, path: Path) -> Pieces:
    """The pieces as they are, but one that ends in a digit and a comma gets a score so low that it is never chosen."""

    def adjusted(piece: str, score: float) -> float:
        return score - 100 if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit() else score

    return tuple((piece, adjusted(piece, score)) for piece, score in model.pieces)


def _number_xlm_roberta(model: SentencePieceModel, path: Path) -> Pieces:
    if model.kinds[:3] != (UNKNOWN, CONTROL, CONTROL):
        raise CheckpointError(f"{path} must begin with <unk>, <s>, </s>, as XLM-R's pieces do, got {model.pieces[:3]}")
    first = (("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0))
    return (*first, *model.pieces[3:], ("<mask>", 0.0))


def _number_camembert(model: SentencePieceModel, path: Path) -> Pieces:
    if model.kinds[0] != UNKNOWN:
        raise CheckpointError(f"{path} must begin with <unk>, as CamemBERT's pieces do, got {model.pieces[:1]}")
    first = (("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0), ("<unk>NOTUSED", -100.0))
    return (*first, *model.pieces[1:], ("<mask>", 0.0))


def _number_deberta(model: SentencePieceModel, path: Path) -> Pieces:
    if UNKNOWN not in model.kinds:
        raise CheckpointError(f"{path} has no piece for unknown text, which DeBERTa's pieces have")
    return model.pieces


def _number_t5(model: SentencePieceModel, path: Path) -> Pieces:
    if model.kinds[:3] != (CONTROL, CONTROL, UNKNOWN):
        raise CheckpointError(f"{path} must begin with <pad>, </s>, <unk>, as T5's pieces do, got {model.pieces[:3]}")
    return (*model.pieces, *((f"<extra_id_{number}>", 0.0) for number in reversed(range(NUM_SENTINELS))))


class AlbertTokenizer(UnigramTokenizer):
    """ALBERT's tokenizer (Lan et al. 2020): unigram pieces; rows as BERT's, with segments.

    transformers 5 leaves ``token_type_ids`` out of what a call returns; they are here, as ALBERT reads them. A piece
    that is a number and a comma (``2000,``) is not used, as in the original code; in transformers 5 only a
    ``tokenizer.json`` sees to that.

    Args and Raises: see :class:`UnigramTokenizer`; ``do_lower_case`` and ``keep_accents`` are those of the published
    models unless given.
    """

    kind = unigram_kind(
        "AlbertTokenizer",
        "spiece.model",
        _number_albert,
        templates.BERT,
        from_json=albert_from_json,
        flags=("do_lower_case", "keep_accents", "add_prefix_space"),
        required={"remove_space": True, "sp_model_kwargs": {}},
    )
    special_names: ClassVar[SpecialTokens] = {"sep_token": "[SEP]", "cls_token": "[CLS]", "mask_token": "[MASK]"}
    replace_quotes = True
    template = templates.BERT

    def __init__(
        self,
        vocab: Sequence[tuple[str, float]] | str | Path | None = None,
        do_lower_case: bool = True,
        keep_accents: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, do_lower_case=do_lower_case, keep_accents=keep_accents, **kwargs)


class FairseqUnigramTokenizer(UnigramTokenizer):
    """What the unigram tokenizers of models from fairseq share: file, rows as RoBERTa's, no segments."""

    model_input_names = ("input_ids", "attention_mask")
    template = templates.ROBERTA


class XLMRobertaTokenizer(FairseqUnigramTokenizer):
    """XLM-R's tokenizer (Conneau et al. 2020): unigram pieces of 100 languages, numbered as fairseq does.

    Rows are ``<s> A </s>`` and ``<s> A </s></s> B </s>``; there are no segments.

    Args and Raises: see :class:`UnigramTokenizer`.
    """

    kind = unigram_kind("XLMRobertaTokenizer", "sentencepiece.bpe.model", _number_xlm_roberta, templates.ROBERTA)


class CamembertTokenizer(FairseqUnigramTokenizer):
    """CamemBERT's tokenizer (Martin et al. 2020): unigram pieces of French, numbered as fairseq does.

    Rows are ``<s> A </s>`` and ``<s> A </s></s> B </s>``; there are no segments.

    Args and Raises: see :class:`UnigramTokenizer`.
    """

    kind = unigram_kind("CamembertTokenizer", "sentencepiece.bpe.model", _number_camembert, templates.ROBERTA)


class DebertaV2Tokenizer(UnigramTokenizer):
    """The tokenizer of DeBERTa-v2 and v3 (He et al. 2021): unigram pieces; rows as BERT's, with segments.

    A ``spm.model`` alone is read as transformers 4 converted it, with SentencePiece's table of replacements; of a
    ``tokenizer.json`` also the form is read that transformers 5 writes, which composes characters (NFC) instead. A
    character without a piece becomes ``[UNK]``, in fast tokenizers, where SentencePiece writes its bytes.

    Args and Raises: see :class:`UnigramTokenizer`. A mask token that no piece has gets the next id.
    """

    kind = unigram_kind(
        "DebertaV2Tokenizer",
        "spm.model",
        _number_deberta,
        templates.BERT,
        from_json=deberta_from_json,
        originals={"spm.model": partial(read_model, number=_number_deberta, byte_pieces=True)},
        flags=("do_lower_case",),
        required={"split_by_punct": False, "vocab_type": "spm", "add_prefix_space": True, "sp_model_kwargs": {}},
        blank_before_mask=False,
    )
    special_names = BRACKETED
    template = templates.BERT

    def __init__(
        self,
        vocab: Sequence[tuple[str, float]] | str | Path | None = None,
        do_lower_case: bool = False,
        splits: Splits = "at blanks",
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, do_lower_case=do_lower_case, splits=splits, **kwargs)

    def _added(self, pieces: Pieces, given: tuple[AddedToken, ...], special: SpecialTokens) -> tuple[AddedToken, ...]:
        mask = special["mask_token"]
        if mask in {piece for piece, _ in pieces} | {token.content for token in given}:
            return given
        return (*given, AddedToken(mask, max([len(pieces), *(token.id + 1 for token in given)])))


class T5Tokenizer(UnigramTokenizer):
    """T5's tokenizer (Raffel et al. 2020): unigram pieces, and sentinels that stand for removed text.

    Rows are ``A </s>`` and ``A </s> B </s>``; there are no segments, no mask and no token at the start: ``mask_token``
    and ``cls_token`` are None. A sentinel that a text contains, as it is written (``<extra_id_0>``), is that sentinel.

    Args and Raises: see :class:`UnigramTokenizer`. Pieces named like sentinels are never split.
    """

    kind = unigram_kind("T5Tokenizer", "spiece.model", _number_t5, templates.T5, names=END_ONLY)
    model_input_names = ("input_ids", "attention_mask")
    template = templates.T5

    def _added(self, pieces: Pieces, given: tuple[AddedToken, ...], special: SpecialTokens) -> tuple[AddedToken, ...]:
        known = {token.content for token in given}
        found = ((number, piece) for number, (piece, _) in enumerate(pieces) if _sentinel.fullmatch(piece))
        return (*given, *(AddedToken(piece, number) for number, piece in found if piece not in known))

    def get_sentinel_tokens(self) -> list[str]:
        """The sentinels, ``<extra_id_0>`` first."""
        found = [(int(match[1]), token) for token in self.all_special_tokens if (match := _sentinel.fullmatch(token))]
        return [token for _, token in sorted(found)]

    def get_sentinel_token_ids(self) -> list[int]:
        """Their ids, in the same order."""
        return self.convert_tokens_to_ids(self.get_sentinel_tokens())


#: Other names: all tokenizers are fast.
AlbertTokenizerFast = AlbertTokenizer
CamembertTokenizerFast = CamembertTokenizer
DebertaV2TokenizerFast = DebertaV2Tokenizer
T5TokenizerFast = T5Tokenizer
XLMRobertaTokenizerFast = XLMRobertaTokenizer
