"""The call that users of transformers know, for tokenizers of every kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

import numpy as np

from bertkit.errors import InputError, counted
from bertkit.habit_table import has_no_effect, refuse_others, remedy, saving_folder
from bertkit.ragged import Ids, Ints, Ragged
from bertkit.system.model_sources import resolve
from bertkit.system.untrusted_files import Json
from bertkit.tokenization.batch_encoding import BatchEncoding, Columns, columns_of, columns_of_ragged, pad_columns
from bertkit.tokenization.call_arguments import (
    Request,
    SharedArguments,
    Texts,
    checked_length,
    list_of_texts,
    parse_texts,
    request,
)
from bertkit.tokenization.fast.chunk_cache import ChunkEncoder
from bertkit.tokenization.formats.tokenizer_files import write_tokenizer_files
from bertkit.tokenization.formats.tokenizer_folder import Kind, read_tokenizer
from bertkit.tokenization.id_lookup import Decoder
from bertkit.tokenization.own_tokens import OwnTokens
from bertkit.tokenization.templates import Template, assemble, kept_lengths
from bertkit.tokenization.vocabulary import SpecialTokens, TokenTable

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

    from bertkit.tokenization.backend import Engines

#: What a call returns beside ``input_ids``, in this order, if it is asked for.
_COLUMNS = ("token_type_ids", "attention_mask", "special_tokens_mask", "offset_mapping", "length")


class PreTrainedTokenizer(OwnTokens):
    """What :class:`~bertkit.tokenization.BertTokenizer` and its relatives share: the call, bulk encoding, padding.

    Call a tokenizer to feed a model or to get offsets; use :meth:`encode_ragged` for bulk. Neither fails on any
    ``str``. Tokenizers can be pickled and shared between threads.

    A subclass has a vocabulary, engines for it (:meth:`_engines`), and files (:attr:`kind`, :meth:`_original_files`).

    Args:
        vocabulary: tokens, ids and normalization.
        model_max_length: at least 1; used by ``truncation`` and ``padding="max_length"`` when a call gives no length.
        padding_side, truncation_side: ``"right"`` or ``"left"``.
        clean_up_tokenization_spaces: decode contractions without spaces (``do n't`` as ``don't``).
    """

    #: The format of its files.
    kind: ClassVar[Kind]
    #: The ``tokenizer_class`` in saved files; None: the class's own name.
    saved_as: ClassVar[str | None] = None
    #: Special tokens that are not those of the vocabulary's kind.
    special_names: ClassVar[SpecialTokens] = {}

    def __init__(self, vocabulary: TokenTable, **kwargs: Unpack[SharedArguments]) -> None:
        self.template = kwargs.get("template", self.template)
        self._set_up(vocabulary, kwargs.get("clean_up_tokenization_spaces", False))
        self.model_max_length = checked_length(kwargs.get("model_max_length", 512))
        self.padding_side = kwargs.get("padding_side", "right")
        self.truncation_side = kwargs.get("truncation_side", "right")
        request(self)  # checks the sides

    def _set_up(self, vocabulary: TokenTable, clean_up_tokenization_spaces: bool) -> None:
        """Everything that a pickle does not hold."""
        self._vocabulary = vocabulary
        build, self._fast = self._engines()
        self._built = cache(build)
        self._around = vocabulary.id_of(vocabulary.cls_token), vocabulary.id_of(vocabulary.sep_token)
        Decoder.__init__(self, vocabulary, clean_up_tokenization_spaces)

    def _engines(self) -> tuple[Callable[[], Engines], ChunkEncoder | None]:
        """What makes the engines, once they are asked for, and the fast path if there is one."""
        raise NotImplementedError

    # Loading and saving

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, *, revision: str | None = None, **overrides: Any) -> Self:
        """Read a tokenizer. Truncation and padding stored in a ``tokenizer.json`` are ignored.

        Args:
            name_or_path: a folder, a single file that holds a whole tokenizer, or a name on the Hugging Face Hub.
            revision: branch, tag or commit on the Hub.
            overrides: arguments of the class that replace what the files say. ``use_fast`` and others that transformers
                takes have no effect.

        Raises:
            CheckpointError: no files, damaged or contradictory ones, or another kind of tokenizer; names file and line.
            InputError: an unknown argument.
        """
        classes = [each for each in cls.__mro__ if issubclass(each, PreTrainedTokenizer) and "__init__" in vars(each)]
        known = {name for each in classes[:-1] for name in signature(each).parameters if name != "kwargs"}
        known |= SharedArguments.__annotations__.keys() - {"template"}
        for name, value in list(overrides.items()):
            if name not in known:
                if not has_no_effect("tokenizer", name, value):
                    near = remedy("tokenizer", name, sorted(known))
                    raise InputError(f"{cls.__name__} has no argument {name!r}{near}")
                del overrides[name]
        path = resolve(name_or_path, files=cls.kind.files, revision=revision)
        made = cls(**cls._read(path, overrides))
        made.name_or_path = str(name_or_path)
        return made

    @classmethod
    def _read(cls, path: Path, overrides: dict[str, Any]) -> dict[str, Any]:
        """The arguments of the class that a folder or file describes, replaced by ``overrides``."""
        return {**read_tokenizer(path, cls.kind), **overrides}

    def save_pretrained(self, folder: str | Path | None = None, **ignored: object) -> tuple[str, ...]:
        """Write the vocabulary in its original format, ``tokenizer.json``, and the settings, for transformers as well.

        ``legacy_format`` and others that transformers takes have no effect.

        Returns:
            The paths written.

        Raises:
            InputError: another keyword.
            CheckpointError: ``folder`` is a file, or a token cannot stand in an original file.
            ResourceError: disk full, no permission.
        """
        folder = saving_folder(folder, ignored)
        own = {flag: getattr(self._vocabulary, flag) for flag in self.kind.flags}
        columns = {"model_input_names": list(self.model_input_names)} if self.saved_as else {}
        settings = {"tokenizer_class": self.saved_as or type(self).__name__, **own, **columns, **self._settings()}
        return write_tokenizer_files(Path(folder), self._vocabulary, self._engine, settings, self._original_files())

    def _original_files(self) -> dict[str, bytes]:
        """Content of the original files of the vocabulary, by name."""
        raise NotImplementedError

    def _settings(self) -> dict[str, Json]:
        return {
            "model_max_length": self.model_max_length,
            "padding_side": self.padding_side,
            "truncation_side": self.truncation_side,
            "clean_up_tokenization_spaces": self.clean_up_tokenization_spaces,
        }

    def __getstate__(self) -> dict[str, TokenTable | Template | Json]:
        return {"vocabulary": self._vocabulary, "template": self.template, **self._settings()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.template = state.pop("template")
        self._set_up(state.pop("vocabulary"), state.pop("clean_up_tokenization_spaces"))
        self.__dict__.update(state)

    @property
    def backend_tokenizer(self) -> Tokenizer:
        """The tokenizer of the ``tokenizers`` package that computes offsets. Do not change its settings."""
        return self._engine

    # Text to ids

    def __call__(
        self,
        text: Any = None,
        text_pair: Any = None,
        add_special_tokens: bool = True,
        padding: bool | str = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        stride: int = 0,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: str | None = None,
        return_token_type_ids: bool | None = None,
        return_attention_mask: bool | None = None,
        return_overflowing_tokens: bool = False,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
        text_target: Any = None,
        **ignored: object,
    ) -> BatchEncoding:
        """Encode texts.

        Args:
            text: a text, a list of texts, or a list of pairs (tuples of two texts).
            text_pair: the second texts of pairs, in the same form as ``text``.
            add_special_tokens: such as ``[CLS] A [SEP]`` or ``[CLS] A [SEP] B [SEP]``; see ``template``.
            padding: True or ``"longest"``: to the length of the longest row; ``"max_length"``: to ``max_length``.
            truncation: True or ``"longest_first"``, ``"only_first"``, ``"only_second"``: truncate rows to
                ``max_length``; False: never; None: only if ``max_length`` is given without padding.
            max_length: maximum tokens of a row, including special tokens; None: ``model_max_length``.
            stride: tokens that neighbouring windows share, with ``return_overflowing_tokens``.
            is_split_into_words: texts are lists of words; offsets and word numbers refer to these.
            pad_to_multiple_of: round the length of padded rows up to a multiple of this.
            padding_side: overrides the tokenizer's own.
            return_tensors: ``"pt"`` or ``"np"``: int64 ``(B, S)``, also for a single text; None: lists.
            return_token_type_ids: True to include this column, False to omit it; None: if the model reads it.
            return_attention_mask: False to omit this column.
            return_overflowing_tokens: a row for each window of a text, whose number ``overflow_to_sample_mapping`` has.
            return_special_tokens_mask: 1 for [CLS], [SEP] and padding.
            return_offsets_mapping: ``(start, end)`` of each token in its text.
            return_length: tokens of each row, including padding.
            text_target: texts to write, whose ids are added as ``labels``; without ``text`` they are encoded alone.
            **ignored: ``verbose`` and others that transformers takes and that have no effect here.

        Returns:
            The columns ``model_input_names`` and those asked for. A single text gives flat lists, unless
            ``return_tensors`` or windows were asked for.

        Raises:
            InputError: wrong arguments; rows that cannot be truncated as asked, or stacked into one tensor.
        """
        if ignored:
            refuse_others("tokenizer()", ignored, list(signature(PreTrainedTokenizer.__call__).parameters)[1:-1])
        texts = parse_texts(text_target if text is None else text, text_pair, words=is_split_into_words)
        self._check_words(is_split_into_words)
        asked = request(
            self,
            padding,
            truncation,
            max_length,
            pad_to_multiple_of=pad_to_multiple_of,
            padding_side=padding_side,
            stride=stride,
            add_special_tokens=add_special_tokens,
            words=is_split_into_words,
            windows=return_overflowing_tokens,
        )
        types = "token_type_ids" in self.model_input_names if return_token_type_ids is None else return_token_type_ids
        others = (types, return_attention_mask is not False, return_special_tokens_mask, return_offsets_mapping)
        names = ["input_ids", *(name for name, want in zip(_COLUMNS, (*others, return_length), strict=True) if want)]
        result = self._encoded(texts, asked, names)
        if not (texts.batched or return_tensors or return_overflowing_tokens):
            result.take_first_row()
        result.convert_to_tensors(return_tensors)
        if text is not None and text_target is not None:
            labels = self(text_target, None, True, padding, truncation, max_length, return_tensors=return_tensors)
            result["labels"] = labels["input_ids"]
        return result

    def _encoded(self, texts: Texts, asked: Request, names: Sequence[str]) -> BatchEncoding:
        """The columns ``names``, from the fast path unless offsets, words or windows are asked for."""
        encodings: list[Encoding] = []
        samples: list[int] = []
        if by_engine := asked.words or asked.windows or "offset_mapping" in names:
            encodings, samples = self._encodings(texts, asked)
            columns = columns_of(encodings, paired=texts.second is not None, asked=asked, template=self.template)
        else:
            ragged = self._ragged(texts.first, texts.second, asked)
            columns = columns_of_ragged(ragged, names, special=asked.add_special_tokens, template=self.template)
            length = asked.pad_to(max(map(len, columns["input_ids"]), default=0))
            columns = columns if length is None else self._padded(columns, length, asked)
        result = BatchEncoding(
            {name: columns[name] for name in names if name in columns},
            lambda: encodings if by_engine else self._encodings(texts, asked)[0],
        )
        if "offset_mapping" in names:
            result["offset_mapping"] = [row.offsets for row in encodings]
        if "length" in names:
            result["length"] = [len(row) for row in columns["input_ids"]]
        if asked.windows:
            result["overflow_to_sample_mapping"] = samples
        return result

    def _padded(self, columns: Columns, length: int, asked: Request) -> Columns:
        fill = {"input_ids": self.pad_token_id, "token_type_ids": 0, "attention_mask": 0, "special_tokens_mask": 1}
        return pad_columns(columns, length, fill=fill, left=asked.pad_left)

    def _encodings(self, texts: Texts, asked: Request) -> tuple[list[Encoding], list[int]]:
        """Padded rows from the engine, and the number of each row's text."""
        from bertkit.tokenization import backend as engines

        first = engines.encode(self._bare, texts.first, words=asked.words)
        second = None if texts.second is None else engines.encode(self._bare, texts.second, words=asked.words)
        joined = engines.cut_and_join(self._engine, first, second, asked)
        rows, samples = [], []
        for sample, encoding in enumerate(joined):
            windows = [encoding, *encoding.overflowing] if asked.windows else [encoding]
            rows += windows
            samples += [sample] * len(windows)
        length = asked.pad_to(max(map(len, joined), default=0))
        if length is not None:
            side = "left" if asked.pad_left else "right"
            for row in rows:
                row.pad(length, direction=side, pad_id=self.pad_token_id, pad_type_id=0, pad_token=self.pad_token)
        return rows, samples

    def encode_ragged(
        self,
        texts: Sequence[str],
        text_pairs: Sequence[str] | None = None,
        *,
        add_special_tokens: bool = True,
        max_length: int | None = None,
        truncation: bool | str = "longest_first",
    ) -> Ragged:
        """Token ids of many texts as one array: fast, but without offsets.

        Words seen before are looked up in a dictionary of bounded size, so a second call on similar text is faster. The
        ids are the same as when calling the tokenizer.

        Args:
            texts: B texts.
            text_pairs: B second texts, or None.
            add_special_tokens: such as ``[CLS] A [SEP]`` or ``[CLS] A [SEP] B [SEP]``; see ``template``.
            max_length: maximum tokens of a row, including special tokens; None: no limit, whatever ``truncation`` says.
            truncation: as in a call; False: no truncation.

        Raises:
            InputError: something that is not a text; rows that cannot be truncated as asked.
        """
        first, second = list_of_texts(texts), None if text_pairs is None else list_of_texts(text_pairs)
        if second is not None and len(first) != len(second):
            raise InputError(
                f"got {counted(len(first), 'text')} but {len(second)} text_pairs; give the same number of each"
            )
        cut = False if max_length is None else truncation
        return self._ragged(first, second, request(self, False, cut, max_length, add_special_tokens=add_special_tokens))

    def _ragged(self, texts: Sequence[str], text_pairs: Sequence[str] | None, asked: Request) -> Ragged:
        bodies = [self._bodies(texts)] if text_pairs is None else [self._bodies(texts), self._bodies(text_pairs)]
        lengths = [length for _, length in bodies]
        if asked.strategy and asked.max_length is not None:
            num_special = self.num_special_tokens_to_add(len(bodies) > 1) if asked.add_special_tokens else 0
            second = None if text_pairs is None else lengths[1]
            kept = kept_lengths(lengths[0], second, asked.max_length, num_special, asked.strategy)
            lengths = [length for length in kept if length is not None]
        around = self._around if asked.add_special_tokens else None
        return assemble(bodies, lengths, around, template=self.template, from_left=asked.cut_left)

    def limit_memory(self, max_chunks: int) -> None:
        """Remember the ids of at most so many different words; what calls return stays the same."""
        if self._fast is not None:
            self._fast.max_chunks = max_chunks

    def _bodies(self, texts: Sequence[str]) -> tuple[Ids, Ints]:
        if self._fast is not None:
            return self._fast.encode(texts)
        from bertkit.tokenization import backend as engines

        encodings = engines.encode(self._bare, texts, words=False)
        ids = [np.array(encoding.ids, np.int32) for encoding in encodings]
        return np.concatenate([np.zeros(0, np.int32), *ids]), engines.lengths_of(encodings)

    def tokenize(self, text: str, pair: str | None = None, add_special_tokens: bool = False) -> list[str]:
        """Tokens of a text (and its pair)."""
        ids: list[int] = self(text, pair, add_special_tokens=add_special_tokens)["input_ids"]
        return self.convert_ids_to_tokens(ids)

    def encode(self, text: Any, text_pair: Any = None, **arguments: Any) -> Any:
        """The ``input_ids`` of a call."""
        return self(text, text_pair, **arguments)["input_ids"]

    def encode_plus(self, text: Any, text_pair: Any = None, **arguments: Any) -> BatchEncoding:
        """A call, by its name in version 4 of transformers."""
        return self(text, text_pair, **arguments)

    def batch_encode_plus(self, batch_text_or_text_pairs: Any, **arguments: Any) -> BatchEncoding:
        """A call with several texts or pairs, by its name in version 4 of transformers."""
        return self(batch_text_or_text_pairs, **arguments)

    def pad(
        self,
        encoded: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        padding: bool | str = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: str | None = None,
    ) -> BatchEncoding:
        """Pad rows that are encoded already, for example in a collate function.

        Args:
            encoded: a dict of columns, or a list of dicts with one row each, with ``input_ids``; other columns (labels)
                must be numbers.
            padding: as in a call.
            max_length: as in a call.
            pad_to_multiple_of: as in a call.
            padding_side: as in a call.
            return_tensors: as in a call.
        """
        if not isinstance(encoded, Mapping):
            encoded = {key: [row[key] for row in encoded] for key in (encoded[0] if encoded else {})}
        if not all(np.ndim(row) == 1 for row in encoded.get("input_ids", [0])):
            raise InputError(f"pad needs rows of input_ids, got {', '.join(encoded) or 'nothing'}")
        columns = {key: [np.asarray(row).tolist() for row in rows] for key, rows in encoded.items()}
        columns.setdefault("attention_mask", [[1] * len(row) for row in columns["input_ids"]])
        asked = request(
            self, padding, max_length=max_length, pad_to_multiple_of=pad_to_multiple_of, padding_side=padding_side
        )
        length = asked.pad_to(max(map(len, columns["input_ids"]), default=0)) or 0
        return BatchEncoding(self._padded(columns, length, asked)).convert_to_tensors(return_tensors)
