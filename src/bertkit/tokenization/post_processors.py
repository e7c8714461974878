"""Rows with special tokens as a ``tokenizer.json`` describes them, in the words of the ``tokenizers`` package."""

from __future__ import annotations

from itertools import product

from bertkit.errors import CheckpointError
from bertkit.system.untrusted_files import Json
from bertkit.tokenization.templates import Template
from bertkit.tokenization.vocabulary import TokenTable

#: The ``post_processor`` of a file.
Description = dict[str, Json]


def post_processors(
    template: Template, first: tuple[str, int], last: tuple[str, int]
) -> list[tuple[Description, Template]]:
    """Every description of a template, the first as files have it.

    ``first`` and ``last`` are the tokens before ([CLS]) and behind a text ([SEP]), with their ids. Token types count
    only if the template has segments; otherwise each comes with the template that shows those of the file.
    """
    cls, sep = first[0], last[0]
    if wrong := next((token for token in (cls, sep) if ":" in token or token.startswith("$")), None):
        said = "must have no ':' and not begin with '$', which the tokenizers package reserves for its templates"
        raise CheckpointError(f"cls_token and sep_token {said}, got {wrong!r:.80}; choose another token")
    plain, shown = template._replace(shown=False), template._replace(shown=not template.segments)
    kinds = [(1, shown)] if template.segments else [(0, plain), (1, shown)]
    tokens = [first, last] if template.begins else [last]
    single = [*[_token(cls)] * template.begins, _text("A", 0), _token(sep)]
    found: list[tuple[Description, Template]] = [
        (
            {
                "type": "TemplateProcessing",
                "single": single,
                "pair": [*single, *[_token(sep)] * (template.between - 1), _text("B", kind), _token(sep, kind)],
                "special_tokens": {token: {"id": token, "ids": [id], "tokens": [token]} for token, id in tokens},
            },
            meant,
        )
        for kind, meant in (reversed(kinds) if template.shown else kinds)
    ]
    if template.begins and template.between == 1:
        found.append(({"type": "BertProcessing", "sep": [*last], "cls": [*first]}, shown))
    elif template.begins:
        flags = product((True, False), repeat=2)
        found += [(_roberta(first, last, trims, adds), plain) for trims, adds in flags]
    return found


def around_text(
    vocabulary: TokenTable, template: Template, *, trim_offsets: bool = True, add_prefix_space: bool = False
) -> Description:
    """The description that published files of word pieces and byte-level BPE have; refuses special tokens that it
    cannot have (CheckpointError).
    """
    first, last = special_ids(vocabulary)
    if template.segments or template.shown:
        return post_processors(template, first, last)[0][0]
    return _roberta(first, last, trim_offsets, add_prefix_space)


def special_ids(vocabulary: TokenTable) -> tuple[tuple[str, int], tuple[str, int]]:
    """The tokens before and behind a text, with their ids."""
    cls, sep = vocabulary.cls_token, vocabulary.sep_token
    return (cls, vocabulary.id_of(cls)), (sep, vocabulary.id_of(sep))


def _text(name: str, kind: int) -> Json:
    return {"Sequence": {"id": name, "type_id": kind}}


def _token(token: str, kind: int = 0) -> Json:
    return {"SpecialToken": {"id": token, "type_id": kind}}


def _roberta(first: tuple[str, int], last: tuple[str, int], trim_offsets: bool, add_prefix_space: bool) -> Description:
    return {
        "type": "RobertaProcessing",
        "sep": [*last],
        "cls": [*first],
        "trim_offsets": trim_offsets,
        "add_prefix_space": add_prefix_space,
    }
