"""``BertTokenizer``, and the tokenizers of DistilBERT, ELECTRA and MPNet, which use the same word pieces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from bertkit.errors import InputError
from bertkit.tokenization import templates
from bertkit.tokenization.call_arguments import SharedArguments, special_tokens
from bertkit.tokenization.fast.chunk_cache import ChunkEncoder
from bertkit.tokenization.fast.fast_wordpiece import FastEncoder
from bertkit.tokenization.formats.vocabulary_files import MPNET, WORDPIECE, check_uncased, read_vocab, write_vocab
from bertkit.tokenization.post_processors import around_text
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.tokenization.vocabulary import MAX_INPUT_CHARS_PER_WORD, SpecialTokens, TokenTable, Vocabulary

if TYPE_CHECKING:
    from bertkit.tokenization.backend import Engines


class BertTokenizer(PreTrainedTokenizer):
    """BERT's WordPiece tokenizer, equal to that of transformers in ids, offsets and word numbers.

    Call it to feed :class:`~bertkit.BertModel` or to get offsets; use :meth:`encode_ragged` for bulk. Neither fails on
    any ``str``: control characters, U+FFFD and lone surrogates are removed from text. It can be pickled and shared
    between threads.

    Args:
        vocab: token to id, or the path of a ``vocab.txt``.
        do_lower_case: for "uncased" models; also strips accents, unless ``strip_accents`` says otherwise.
        strip_accents: None means the same as ``do_lower_case``.
        tokenize_chinese_chars: treat each Chinese character as a word.
        vocab_file: the path of a ``vocab.txt``, instead of ``vocab``.
        unk_token, sep_token, pad_token, cls_token, mask_token: the special tokens. They are recognized anywhere in a
            text and never split.
        added_tokens: further tokens that are never split.
        max_input_chars_per_word: longer words become ``unk_token``.
        prefix: marks tokens that continue a word.
        model_max_length: length for ``truncation`` and ``padding="max_length"`` where a call gives none.
        padding_side, truncation_side: ``"right"`` or ``"left"``.
        clean_up_tokenization_spaces: decode contractions without spaces (``do n't`` as ``don't``).
        source: how error messages name the vocabulary.

    Raises:
        CheckpointError: a special token that the vocabulary lacks, ids that are not 0 ... n-1, a damaged file; for
            ``from_pretrained`` also a vocabulary with capitals where nothing says whether to lower-case.
        InputError: neither or both of ``vocab`` and ``vocab_file``, or an invalid argument.
    """

    kind = WORDPIECE
    _vocabulary: Vocabulary

    def __init__(
        self,
        vocab: Mapping[str, int] | str | Path | None = None,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        *,
        vocab_file: str | Path | None = None,
        max_input_chars_per_word: int = MAX_INPUT_CHARS_PER_WORD,
        prefix: str = "##",
        **kwargs: Unpack[SharedArguments],
    ) -> None:
        special = special_tokens(kwargs, self.special_names, of=type(self).__name__)
        given = vocab if vocab_file is None else vocab_file
        if given is None or (vocab is not None and vocab_file is not None):
            raise InputError("pass either vocab (token to id) or vocab_file (the path of a vocab.txt)")
        vocabulary = Vocabulary(
            names=self.kind.names,
            blank_before_mask=self.kind.blank_before_mask,
            vocab=dict(given) if isinstance(given, Mapping) else read_vocab(Path(given)),
            added=tuple(kwargs.get("added_tokens", ())),
            do_lower_case=do_lower_case,
            strip_accents=strip_accents,
            tokenize_chinese_chars=tokenize_chinese_chars,
            max_input_chars_per_word=max_input_chars_per_word,
            prefix=prefix,
            source=kwargs.get("source") or ("the vocabulary" if isinstance(given, Mapping) else str(given)),
            **special,
        )
        super().__init__(vocabulary, **kwargs)

    def _set_up(self, vocabulary: TokenTable, clean_up_tokenization_spaces: bool) -> None:
        super()._set_up(vocabulary, clean_up_tokenization_spaces)
        self.do_lower_case = self._vocabulary.do_lower_case
        self.strip_accents = self._vocabulary.strip_accents
        self.tokenize_chinese_chars = self._vocabulary.tokenize_chinese_chars

    def _engines(self) -> tuple[Callable[[], Engines], ChunkEncoder | None]:
        # The fast path finds tokens only by a plain search in the raw text; white space beside them changes no id.
        is_fast = not any(each.normalized or each.single_word for each in self._vocabulary.never_split)
        around = around_text(self._vocabulary, self.template)  # refuses special tokens before the engines are needed

        def build() -> Engines:
            from bertkit.tokenization import backend

            return backend.build(self._vocabulary, around)

        return build, FastEncoder(self._vocabulary) if is_fast else None

    def __repr__(self) -> str:
        case = "uncased" if self.do_lower_case else "cased"
        return f"{type(self).__name__}({len(self):,} tokens, {case})"

    # Loading and saving

    @classmethod
    def _read(cls, path: Path, overrides: dict[str, Any]) -> dict[str, Any]:
        arguments = super()._read(path, overrides)
        if "do_lower_case" not in arguments:
            check_uncased(arguments["vocab"], path)
        return arguments

    def _original_files(self) -> dict[str, bytes]:
        return {"vocab.txt": write_vocab(self._vocabulary.vocab)}


class DistilBertTokenizer(BertTokenizer):
    """BERT's tokenizer for a model without segments: no ``token_type_ids`` unless asked for."""

    model_input_names = ("input_ids", "attention_mask")


class ElectraTokenizer(BertTokenizer):
    """BERT's tokenizer under the name in ELECTRA's files."""


class MPNetTokenizer(BertTokenizer):
    """MPNet's tokenizer (Song et al. 2020): BERT's word pieces in RoBERTa's rows.

    Rows are ``<s> A </s>`` and ``<s> A </s></s> B </s>``; there are no segments.

    Args and Raises: see :class:`BertTokenizer`.
    """

    kind = MPNET
    model_input_names = ("input_ids", "attention_mask")
    template = templates.ROBERTA
    special_names: ClassVar[SpecialTokens] = {
        "sep_token": "</s>",
        "pad_token": "<pad>",
        "cls_token": "<s>",
        "mask_token": "<mask>",
    }


#: Other names: all tokenizers are fast.
BertTokenizerFast = BertTokenizer
DistilBertTokenizerFast = DistilBertTokenizer
ElectraTokenizerFast = ElectraTokenizer
MPNetTokenizerFast = MPNetTokenizer
