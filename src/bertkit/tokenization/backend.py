"""Sets up the ``tokenizers`` package for each tokenizer; it provides offsets, words and windows of long texts."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from tokenizers import AddedToken as EngineToken
from tokenizers import Encoding, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE, Unigram, WordPiece

from bertkit.errors import InputError
from bertkit.ragged import Ints
from bertkit.tokenization.call_arguments import Request, Text
from bertkit.tokenization.characters import SURROGATE
from bertkit.tokenization.family_vocabularies import BpeVocabulary, FallbackVocabulary, UnigramVocabulary
from bertkit.tokenization.post_processors import Description, around_text, post_processors, special_ids
from bertkit.tokenization.templates import Template, kept_lengths
from bertkit.tokenization.vocabulary import BLANK, Splits, TokenTable, Vocabulary

#: A tokenizer's engine, and one without special tokens, for texts that are cut before the first adds them.
Engines = tuple[Tokenizer, Tokenizer]


def build(vocabulary: Vocabulary, around: Description) -> Engines:
    """The engines for word pieces; see :func:`around_text`."""
    model = WordPiece(
        dict(vocabulary.vocab),
        unk_token=vocabulary.unk_token,
        max_input_chars_per_word=vocabulary.max_input_chars_per_word,
        continuing_subword_prefix=vocabulary.prefix,
    )
    engine, bare = Tokenizer(model), Tokenizer(model)
    for each in (engine, bare):
        each.normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=vocabulary.tokenize_chinese_chars,
            strip_accents=vocabulary.strip_accents,
            lowercase=vocabulary.do_lower_case,
        )
        each.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        each.decoder = decoders.WordPiece(prefix=vocabulary.prefix)
        _add_tokens(each, vocabulary)
    engine.post_processor = _processor(around)
    return engine, bare


def build_bpe(vocabulary: BpeVocabulary, template: Template) -> tuple[Tokenizer, Tokenizer, Tokenizer]:
    """The engines for byte-level BPE: as :func:`build`, and one without added tokens that never prepends a space."""
    # Without the empty affixes transformers would write other files than it does.
    model = BPE(
        dict(vocabulary.vocab),
        list(vocabulary.merges),
        continuing_subword_prefix="",
        end_of_word_suffix="",
        fuse_unk=False,
    )
    engine, bare, parts = Tokenizer(model), Tokenizer(model), Tokenizer(model)
    for each in (engine, bare):
        each.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=vocabulary.add_prefix_space)
        each.decoder = decoders.ByteLevel()
        _add_tokens(each, vocabulary)
    parts.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if vocabulary.nfc:
        for each in (engine, bare, parts):
            each.normalizer = normalizers.NFC()
    flags = {"trim_offsets": vocabulary.trim_offsets, "add_prefix_space": vocabulary.add_prefix_space}
    engine.post_processor = _processor(around_text(vocabulary, template, **flags))
    return engine, bare, parts


def build_fallback_bpe(vocabulary: FallbackVocabulary, template: Template) -> tuple[Tokenizer, Tokenizer, Tokenizer]:
    """The engines for BPE that falls back on bytes: as :func:`build_bpe`; the last never cuts nor prepends a blank."""
    model = BPE(
        dict(vocabulary.vocab),
        list(vocabulary.merges),
        unk_token=vocabulary.unk_token,
        fuse_unk=True,
        byte_fallback=True,
    )
    engine, bare, parts = Tokenizer(model), Tokenizer(model), Tokenizer(model)
    for each in (engine, bare, parts):
        each.normalizer, splitter, each.decoder = fallback_steps(add_prefix_space=vocabulary.add_prefix_space)
        if each is not parts:
            each.pre_tokenizer = splitter
            _add_tokens(each, vocabulary)
    engine.post_processor = _processor(post_processors(template, *special_ids(vocabulary))[0][0])
    return engine, bare, parts


def fallback_steps(
    *, add_prefix_space: bool
) -> tuple[normalizers.Normalizer, pre_tokenizers.PreTokenizer, decoders.Decoder]:
    """What stands around BPE that falls back on bytes, as published files have it."""
    cut = pre_tokenizers.Metaspace(replacement=BLANK, prepend_scheme="always", split=True)
    whole = pre_tokenizers.Split(" ", "merged_with_previous")  # finds none: the normalizer has replaced all blanks
    steps = [decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
    return normalizers.Replace(" ", BLANK), cut if add_prefix_space else whole, decoders.Sequence(steps)


def build_unigram(vocabulary: UnigramVocabulary, template: Template) -> tuple[Tokenizer, Tokenizer, Tokenizer]:
    """The engines for a unigram vocabulary: as :func:`build_bpe`; the last is for text between white space."""
    model = Unigram(list(vocabulary.pieces), unk_id=vocabulary.vocab[vocabulary.unk_token], byte_fallback=False)
    steps = unigram_steps(
        replace_quotes=vocabulary.replace_quotes,
        keep_accents=vocabulary.keep_accents,
        lower_case=vocabulary.do_lower_case,
        splits=vocabulary.splits,
        charsmap=vocabulary.charsmap,
    )
    scheme = "always" if vocabulary.add_prefix_space else "never"
    words: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.Metaspace(replacement=BLANK, prepend_scheme=scheme)]
    if vocabulary.splits == "at white space":
        words.insert(0, pre_tokenizers.WhitespaceSplit())
    engine, bare, parts = Tokenizer(model), Tokenizer(model), Tokenizer(model)
    for each in (engine, bare, parts):
        if steps:
            each.normalizer = normalizers.Sequence(steps) if len(steps) > 1 else steps[0]
        each.pre_tokenizer = pre_tokenizers.Sequence(words)
        each.decoder = decoders.Metaspace(replacement=BLANK, prepend_scheme=scheme)
    for each in (engine, bare):
        _add_tokens(each, vocabulary)
    engine.post_processor = _processor(post_processors(template, *special_ids(vocabulary))[0][0])
    return engine, bare, parts


def unigram_steps(
    *, replace_quotes: bool, keep_accents: bool, lower_case: bool, splits: Splits, charsmap: bytes | None
) -> list[normalizers.Normalizer]:
    """The steps of normalization before a unigram model; ``charsmap`` is SentencePiece's own table."""
    steps: list[normalizers.Normalizer] = []
    if replace_quotes:
        steps += [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not keep_accents:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if lower_case:
        steps.append(normalizers.Lowercase())
    if splits == "at blanks of NFC":
        blank = normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " ")
        return [*steps, blank, normalizers.NFC(), normalizers.Strip(left=False, right=True)]
    table = [normalizers.Precompiled(charsmap)] if charsmap else []
    if splits == "at blanks":
        return [*steps, normalizers.Strip(), *table, normalizers.Replace(Regex(" {2,}"), " ")]
    return [*steps, *table]


def _processor(description: Description) -> processors.PostProcessor:
    whole = {"added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}, "post_processor": description}
    made: processors.PostProcessor = Tokenizer.from_str(json.dumps(whole)).post_processor
    return made


def _add_tokens(engine: Tokenizer, vocabulary: TokenTable) -> None:
    for token in sorted(vocabulary.never_split, key=lambda token: token.id):
        described = token._asdict()
        del described["id"]
        engine.add_tokens([EngineToken(described.pop("content"), **described)])
        assert engine.token_to_id(token.content) == token.id


def encode(bare: Tokenizer, texts: Sequence[Text], *, words: bool) -> list[Encoding]:
    """Encode texts (or lists of words) without special tokens; lone surrogates, which UTF-8 lacks, become U+FFFD."""
    if words:
        whole = [[SURROGATE.sub("\ufffd", word) for word in text] for text in texts]
        return bare.encode_batch(whole, is_pretokenized=True)
    return bare.encode_batch([SURROGATE.sub("\ufffd", str(text)) for text in texts])


def lengths_of(encodings: Sequence[Encoding]) -> Ints:
    """Number of tokens of each encoding, int64 ``(B,)``."""
    return np.array([len(encoding) for encoding in encodings], np.int64)


def cut_and_join(
    engine: Tokenizer, first: Sequence[Encoding], second: Sequence[Encoding] | None, asked: Request
) -> list[Encoding]:
    """Truncate as asked, join pairs, add special tokens; windows are in ``encoding.overflowing``, if asked for."""
    if asked.strategy and asked.max_length is not None:
        num_special = engine.num_special_tokens_to_add(second is not None) if asked.add_special_tokens else 0
        sizes = lengths_of(first), None if second is None else lengths_of(second)
        kept = kept_lengths(*sizes, asked.max_length, num_special, asked.strategy)
        stride = asked.stride if asked.windows else 0
        for encodings, lengths in zip((first, second), kept, strict=True):
            if encodings is None or lengths is None:
                continue
            for row, (encoding, length) in enumerate(zip(encodings, lengths.tolist(), strict=True)):
                if length < len(encoding):
                    if asked.windows and stride >= length:
                        raise InputError(
                            f"text {row} would be cut into windows of {length} tokens, which must be more than "
                            f"stride={stride}, the tokens that windows share; raise max_length={asked.max_length}"
                        )
                    encoding.truncate(length, stride=stride, direction="left" if asked.cut_left else "right")
    pairs = [None] * len(first) if second is None else second
    return [engine.post_process(a, b, asked.add_special_tokens) for a, b in zip(first, pairs, strict=True)]
