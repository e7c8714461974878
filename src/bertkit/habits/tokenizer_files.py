"""``PreTrainedTokenizerFast`` of ``transformers``: a tokenizer made of a ``tokenizer.json``."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bertkit.errors import InputError
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.tokenization.vocabulary import SPECIAL_NAMES


class _OfAnyClass(type):
    """Every tokenizer counts as an instance: all of them are fast."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, PreTrainedTokenizer)


class PreTrainedTokenizerFast(metaclass=_OfAnyClass):
    """Makes a tokenizer of the class that its file says."""

    from_pretrained = AutoTokenizer.from_pretrained

    def __new__(  # type: ignore[misc]  # another class, on purpose
        cls, *, tokenizer_file: str | Path | None = None, tokenizer_object: Any = None, **options: Any
    ) -> PreTrainedTokenizer:
        """A tokenizer of a file, or of an object of the library ``tokenizers``.

        options: ``unk_token``, ``pad_token`` ... must be those of the file; others as for ``from_pretrained``.

        Raises:
            InputError: neither or both are given, or a special token that the file does not have.
            CheckpointError: not the file of a tokenizer that bertkit knows.
        """
        if (tokenizer_file is None) == (tokenizer_object is None):
            raise InputError("give tokenizer_file= or tokenizer_object=; a folder is read by AutoTokenizer")
        special = {name: str(options.pop(name)) for name in SPECIAL_NAMES if options.get(name) is not None}
        with TemporaryDirectory() as folder:
            file = Path(folder) / "tokenizer.json" if tokenizer_file is None else Path(tokenizer_file)
            if tokenizer_object is not None:
                tokenizer_object.save(str(file))
            made = AutoTokenizer.from_pretrained(file, **options)
        for name, token in special.items():
            if getattr(made, name) != token:
                raise InputError(
                    f"{name}={token!r}, but that of the file is {getattr(made, name)!r}; leave it out, or train the "
                    "tokenizer with it: BertTokenizerFast.train_new_from_iterator, or bertkit vocab"
                )
        return made
