"""``AlbertTokenizer``, ``XLMRobertaTokenizer``, ``CamembertTokenizer``: SentencePiece's unigram model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Unpack

from tokenizers import Tokenizer

from bertkit.errors import CheckpointError, InputError
from bertkit.tokenization import backend as engines
from bertkit.tokenization import templates
from bertkit.tokenization.call_arguments import SharedArguments, special_tokens
from bertkit.tokenization.fast.chunk_cache import ChunkEncoder
from bertkit.tokenization.fast.piece_lookup import FastUnigram
from bertkit.tokenization.formats.unigram_files import CONTROL, UNKNOWN, Pieces, SentencePieceModel, unigram_kind
from bertkit.tokenization.roberta_tokenizer import BeginAndEnd
from bertkit.tokenization.vocabulary import SpecialTokens, TokenTable, UnigramVocabulary


class UnigramTokenizer(BeginAndEnd):
    """What the tokenizers with unigram pieces share; use :class:`AlbertTokenizer` and its like.

    They are equal to those of transformers in ids, offsets and word numbers. Lone surrogates become U+FFFD.

    Args:
        vocab: every piece with its score, in the order of their ids; or the path of a SentencePiece ``.model`` file.
        vocab_file: the path of such a file, instead of ``vocab``.
        precompiled_charsmap: SentencePiece's table of characters to replace; a ``.model`` file has its own.
        do_lower_case: lower-case text.
        keep_accents: False removes accents.
        add_prefix_space: begin every word with ``▁``.
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
            pieces=pieces,
            charsmap=precompiled_charsmap or None,
            added=tuple(kwargs.get("added_tokens", ())),
            replace_quotes=self.replace_quotes,
            keep_accents=keep_accents,
            do_lower_case=do_lower_case,
            add_prefix_space=add_prefix_space,
            model=model,
            source=kwargs.get("source") or (str(given) if isinstance(given, str | Path) else "the vocabulary"),
            **special,
        )
        super().__init__(vocabulary, **kwargs)

    def _set_up(self, vocabulary: TokenTable, clean_up_tokenization_spaces: bool) -> None:
        super()._set_up(vocabulary, clean_up_tokenization_spaces)
        self.do_lower_case = self._vocabulary.do_lower_case
        self.keep_accents = self._vocabulary.keep_accents
        self.add_prefix_space = self._vocabulary.add_prefix_space

    def _engines(self) -> tuple[Tokenizer, Tokenizer, ChunkEncoder | None]:
        engine, bare, parts = engines.build_unigram(self._vocabulary, self.template)
        # The fast path cannot find a token in normalized text, or only between certain characters.
        is_fast = not any(token.single_word or token.normalized for token in self._vocabulary.never_split)
        return engine, bare, FastUnigram(self._vocabulary, parts) if is_fast else None

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


class AlbertTokenizer(UnigramTokenizer):
    """ALBERT's tokenizer (Lan et al. 2020): unigram pieces; rows as BERT's, with segments.

    transformers 5 leaves ``token_type_ids`` out of what a call returns; they are here, as ALBERT reads them. A piece
    that is a number and a comma (``2000,``) is not used, as in the original code; in transformers 5 only a
    ``tokenizer.json`` sees to that.

    Args and Raises: see :class:`UnigramTokenizer`; ``do_lower_case`` and ``keep_accents`` are those of the published
    models unless given.
    """

    kind = unigram_kind("AlbertTokenizer", "spiece.model", _number_albert, templates.BERT, accents=True)
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

    kind = unigram_kind(
        "XLMRobertaTokenizer", "sentencepiece.bpe.model", _number_xlm_roberta, templates.ROBERTA, accents=False
    )


class CamembertTokenizer(FairseqUnigramTokenizer):
    """CamemBERT's tokenizer (Martin et al. 2020): unigram pieces of French, numbered as fairseq does.

    Rows are ``<s> A </s>`` and ``<s> A </s></s> B </s>``; there are no segments.

    Args and Raises: see :class:`UnigramTokenizer`.
    """

    kind = unigram_kind(
        "CamembertTokenizer", "sentencepiece.bpe.model", _number_camembert, templates.ROBERTA, accents=False
    )
