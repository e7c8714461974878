"""``GemmaTokenizer``: BPE of characters that falls back on bytes, as mmBERT has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Unpack

from bertkit.tokenization import backend as engines
from bertkit.tokenization import templates
from bertkit.tokenization.call_arguments import SharedArguments, special_tokens
from bertkit.tokenization.family_vocabularies import FallbackVocabulary
from bertkit.tokenization.fast.chunk_cache import ChunkEncoder
from bertkit.tokenization.fast.piece_lookup import FastFallbackBpe
from bertkit.tokenization.formats.vocabulary_files import FALLBACK_BPE
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.tokenization.vocabulary import TokenTable


class GemmaTokenizer(PreTrainedTokenizer):
    """Gemma 2's tokenizer in the form that mmBERT has (Marone et al. 2025), equal to transformers' fast one.

    Blanks are written as ``▁``, and characters without a token as their bytes, ``<0xE2>``. Other white space is text
    like any other: line feeds, and runs of them, are tokens of their own. Lone surrogates become U+FFFD. Rows are
    ``<bos> A <eos>`` and ``<bos> A <eos> B <eos>``; there are no segments. Its only file is ``tokenizer.json``; saved
    files say ``PreTrainedTokenizerFast``, as the published ones, because the class of transformers 5 with this name
    puts its own steps in the place of a file's.

    Args:
        vocab: token to id.
        merges: pairs of tokens, the most important first.
        add_prefix_space: True, as mmBERT has it: cut text before every blank, and begin it with one. False, as Gemma
            has it: text is one whole, whose first word has no blank. Needed for texts given as lists of words.
        unk_token, sep_token, pad_token, cls_token, mask_token: the special tokens; ``bos_token`` is ``cls_token``, and
            ``eos_token`` is ``sep_token``. They are recognized anywhere in a text and never split; the mask includes
            the white space before it.
        added_tokens: further tokens that are never split.
        model_max_length, padding_side, truncation_side, clean_up_tokenization_spaces: see :class:`PreTrainedTokenizer`.
        source: how error messages name the vocabulary.

    Raises:
        CheckpointError: a special token that the vocabulary lacks, ids that are not 0 ... n-1, merges of another
            vocabulary.
    """

    kind = FALLBACK_BPE
    saved_as = "PreTrainedTokenizerFast"
    model_input_names = ("input_ids", "attention_mask")
    template = templates.MMBERT
    _vocabulary: FallbackVocabulary

    def __init__(
        self,
        vocab: Mapping[str, int],
        merges: Iterable[tuple[str, str]],
        *,
        add_prefix_space: bool = True,
        **kwargs: Unpack[SharedArguments],
    ) -> None:
        source = kwargs.get("source") or "the vocabulary"
        vocabulary = FallbackVocabulary(
            names=self.kind.names,
            blank_before_mask=self.kind.blank_before_mask,
            vocab=vocab if isinstance(vocab, dict) else dict(vocab),
            merges=merges if isinstance(merges, tuple) else tuple((left, right) for left, right in merges),
            added=tuple(kwargs.get("added_tokens", ())),
            add_prefix_space=add_prefix_space,
            source=source,
            merges_source=source,
            **special_tokens(kwargs, self.special_names, of=type(self).__name__),
        )
        super().__init__(vocabulary, **kwargs)

    def _set_up(self, vocabulary: TokenTable, clean_up_tokenization_spaces: bool) -> None:
        super()._set_up(vocabulary, clean_up_tokenization_spaces)
        self.add_prefix_space = self._vocabulary.add_prefix_space

    def _engines(self) -> tuple[Callable[[], engines.Engines], ChunkEncoder | None]:
        vocabulary = self._vocabulary
        engine, bare, parts = engines.build_fallback_bpe(vocabulary, self.template)
        # The fast path cannot find a token only between certain characters.
        is_fast = not any(token.single_word for token in vocabulary.never_split)
        if not vocabulary.add_prefix_space:
            is_fast = is_fast and not vocabulary.joins_words
        return lambda: (engine, bare), FastFallbackBpe(vocabulary, parts) if is_fast else None

    def _original_files(self) -> dict[str, bytes]:
        return {}


#: Other names: all tokenizers are fast.
GemmaTokenizerFast = GemmaTokenizer
