"""``RobertaTokenizer`` (BART's as well) and ``ModernBertTokenizer``: byte-level BPE."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Unpack

from bertkit.errors import InputError
from bertkit.tokenization import backend as engines
from bertkit.tokenization import templates
from bertkit.tokenization.call_arguments import SharedArguments, special_tokens
from bertkit.tokenization.family_vocabularies import BpeVocabulary
from bertkit.tokenization.fast.chunk_cache import ChunkEncoder
from bertkit.tokenization.fast.piece_lookup import FastByteBpe
from bertkit.tokenization.formats.vocabulary_files import BYTE_LEVEL_BPE, MODERNBERT, read_bpe_vocab, read_merges
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.tokenization.vocabulary import BRACKETED, TokenTable


class RobertaTokenizer(PreTrainedTokenizer):
    """RoBERTa's byte-level BPE tokenizer, equal to that of transformers in ids, offsets and word numbers.

    A word is tokenized together with the space before it, so ``"Hello"`` and ``" Hello"`` have different ids. No text
    is lost or unknown; lone surrogates, which UTF-8 cannot represent, become U+FFFD. Rows are ``<s> A </s>`` and
    ``<s> A </s></s> B </s>``; there are no segments (all ``token_type_ids`` are 0, and given only when asked for).

    Args:
        vocab: token to id, or the path of a ``vocab.json``.
        merges: pairs of tokens, the most important first, or the path of a ``merges.txt``.
        vocab_file, merges_file: the paths, instead of ``vocab`` and ``merges``.
        add_prefix_space: prepend a space to each text, so that its first word is tokenized like the others. Needed for
            texts given as lists of words.
        trim_offsets: exclude white space from offsets.
        unk_token, sep_token, pad_token, cls_token, mask_token: the special tokens. They are recognized anywhere in a
            text and never split; the mask includes the white space before it.
        added_tokens: further tokens that are never split.
        model_max_length, padding_side, truncation_side, clean_up_tokenization_spaces: see :class:`PreTrainedTokenizer`.
        source, merges_source: how error messages name the vocabulary and the merges.

    Raises:
        CheckpointError: a special token or a byte that the vocabulary lacks, ids that are not 0 ... n-1, merges of
            another vocabulary, a damaged file.
        InputError: neither or both of ``vocab`` and ``vocab_file``, or of ``merges`` and ``merges_file``.
    """

    kind = BYTE_LEVEL_BPE
    _vocabulary: BpeVocabulary
    model_input_names = ("input_ids", "attention_mask")
    template = templates.ROBERTA
    #: Whether characters and marks are composed first.
    nfc: ClassVar[bool] = False

    def __init__(
        self,
        vocab: Mapping[str, int] | str | Path | None = None,
        merges: Iterable[tuple[str, str]] | str | Path | None = None,
        *,
        vocab_file: str | Path | None = None,
        merges_file: str | Path | None = None,
        add_prefix_space: bool = False,
        trim_offsets: bool = True,
        merges_source: str | None = None,
        **kwargs: Unpack[SharedArguments],
    ) -> None:
        special = special_tokens(kwargs, self.special_names, of=type(self).__name__)
        if (vocab is None) == (vocab_file is None) or (merges is None) == (merges_file is None):
            raise InputError("pass vocab and merges, or vocab_file and merges_file (vocab.json and merges.txt)")
        tokens = vocab_file if vocab is None else vocab
        pairs = merges_file if merges is None else merges
        vocabulary = BpeVocabulary(
            names=self.kind.names,
            blank_before_mask=self.kind.blank_before_mask,
            nfc=self.nfc,
            vocab=read_bpe_vocab(Path(tokens)) if isinstance(tokens, str | Path) else dict(tokens or {}),
            merges=read_merges(Path(pairs)) if isinstance(pairs, str | Path) else tuple((a, b) for a, b in pairs or ()),
            added=tuple(kwargs.get("added_tokens", ())),
            add_prefix_space=add_prefix_space,
            trim_offsets=trim_offsets,
            source=kwargs.get("source") or (str(tokens) if isinstance(tokens, str | Path) else "the vocabulary"),
            merges_source=merges_source or (str(pairs) if isinstance(pairs, str | Path) else "the merges"),
            **special,
        )
        super().__init__(vocabulary, **kwargs)

    def _set_up(self, vocabulary: TokenTable, clean_up_tokenization_spaces: bool) -> None:
        super()._set_up(vocabulary, clean_up_tokenization_spaces)
        self.add_prefix_space = self._vocabulary.add_prefix_space
        self.trim_offsets = self._vocabulary.trim_offsets

    def _engines(self) -> tuple[Callable[[], engines.Engines], ChunkEncoder | None]:
        engine, bare, parts = engines.build_bpe(self._vocabulary, self.template)
        # The fast path cannot find a token only between certain characters.
        is_fast = not any(token.single_word for token in self._vocabulary.never_split)
        return lambda: (engine, bare), FastByteBpe(self._vocabulary, parts) if is_fast else None

    def _original_files(self) -> dict[str, bytes]:
        merges = "".join(f"{left} {right}\n" for left, right in self._vocabulary.merges)
        vocab = json.dumps(self._vocabulary.vocab, ensure_ascii=False)
        return {"vocab.json": f"{vocab}\n".encode(), "merges.txt": f"#version: 0.2\n{merges}".encode()}


class ModernBertTokenizer(RobertaTokenizer):
    """ModernBERT's tokenizer (Warner et al. 2024): byte-level BPE of composed characters (NFC); rows as BERT's.

    Offsets include the blank before a word, as those of the published files do. transformers has no class of this name:
    saved files say ``PreTrainedTokenizerFast``, as the published ones.

    Args and Raises: see :class:`RobertaTokenizer`.
    """

    kind = MODERNBERT
    saved_as = "PreTrainedTokenizerFast"
    template = templates.BERT
    nfc = True
    special_names = BRACKETED

    def __init__(
        self,
        vocab: Mapping[str, int] | str | Path | None = None,
        merges: Iterable[tuple[str, str]] | str | Path | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, merges, **{"trim_offsets": False, **kwargs})


#: Other names: all tokenizers are fast.
RobertaTokenizerFast = RobertaTokenizer
BartTokenizer = BartTokenizerFast = RobertaTokenizer
