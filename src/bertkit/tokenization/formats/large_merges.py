"""The merges at the end of a ``tokenizer.json``: most of the file, where a vocabulary has words of many languages.

Gemma's 580,604 merges are 25 of 34 MB. Parsed with the rest they would take ten times their size, because each is a
list of two texts; here they are parsed some at a time, and their tokens are the same objects as the vocabulary's.
"""

from __future__ import annotations

import codecs
import gc
import json
import re
from collections.abc import Mapping
from itertools import chain, islice
from json.encoder import encode_basestring
from pathlib import Path

from bertkit.errors import CheckpointError
from bertkit.system.untrusted_files import MAX_VOCABULARY_BYTES, Json, read_regular
from bertkit.tokenization.formats.tokenizer_files import Merges, parse_json

#: Largest tokenizer.json, and most merges; Gemma's has 34 MB.
MAX_JSON_BYTES = 36 << 20
MAX_MERGES = 600_000
_START = re.compile(rb'"merges"\s*:\s*\[')  # a quote inside of a text would follow a backslash
_END = re.compile(rb"\]\s*(\]\s*\}\s*\}\s*)\Z")
#: Longest end, blanks included.
_END_BYTES = 100
_VOCAB, _VOCAB_END = re.compile(rb'"vocab"\s*:\s*\{(\s*)'), re.compile(rb"\s*\}")
_TEXT = rb'"(?:[^"\\]|\\.)*+"'
#: Tokens of a vocabulary that are spelled at a time: more take memory.
_PAIRS = 1024
#: Some merges; only where they end is looked for.
_SOME = rb"(?:\s*+\[\s*+%b\s*+,\s*+%b\s*+\]\s*+(?:,|\Z)){1,16384}+" % (_TEXT, _TEXT)


def read_large_json(path: Path, vocab: Mapping[str, int] | None = None) -> tuple[dict[str, Json], bytes]:
    """The object in a ``tokenizer.json`` with an empty list of merges, and the text of those at its end.

    vocab: that of another file beside it. Where this one spells the same, as files mostly do, it is not parsed again.

    Merges that are elsewhere, or not lists of two texts, are left where they are, and the text is empty.
    """
    text = read_regular(path, max_bytes=MAX_JSON_BYTES).removeprefix(codecs.BOM_UTF8)
    merges = b""
    starts = list(_START.finditer(text))
    if len(starts) == 1 and (end := _END.search(text, max(len(text) - _END_BYTES, starts[0].end()))):
        first = starts[0].end()
        merges, text = text[first : end.start(1)], text[:first] + end[1]
    if len(text) > MAX_VOCABULARY_BYTES:
        raise CheckpointError(
            f"{path} has {len(text):,} bytes without merges at its end; such a file has at most "
            f"{MAX_VOCABULARY_BYTES:,}. Fetch or save it again"
        )
    content = None if vocab is None else _with_vocab(text, vocab, path)
    content = parse_json(text, path) if content is None else content
    model = content.get("model")
    if merges and not (isinstance(model, dict) and model.get("merges") == []):
        raise CheckpointError(f"{path} has merges that are not those of its model")
    return content, merges


def _with_vocab(text: bytes, vocab: Mapping[str, int], path: Path) -> dict[str, Json] | None:
    """The object in a text whose model has this vocabulary; None: it is not spelled as the package spells it."""
    start = _VOCAB.search(text)
    if start is None:
        return None
    between, colon = f",{start[1].decode()}", ": " if start[1] else ":"
    pairs, end = zip(map(encode_basestring, vocab), vocab.values(), strict=True), start.end()
    while some := [f"{between}{token}{colon}{number}" for token, number in islice(pairs, _PAIRS)]:
        spelled = "".join(some).encode("utf-8", "surrogatepass")
        spelled = spelled if end > start.end() else spelled[len(between) :]
        if not text.startswith(spelled, end):
            return None
        end += len(spelled)
    if not _VOCAB_END.match(text, end):
        return None
    cut = text[: start.end()] + text[end:]
    content = parse_json(cut, path)
    model = content.get("model")
    if not isinstance(model, dict) or model.get("vocab") != {} or _VOCAB.search(cut, start.end()):
        return None  # that of something else
    return {**content, "model": {**model, "vocab": vocab}}


def parse_merges(text: bytes, vocab: Mapping[str, int], path: Path) -> Merges:
    """The merges in a text of :func:`read_large_json`, with the tokens of ``vocab`` as far as it has them."""
    known, find = {token: token for token in vocab}, re.compile(_SOME)
    merges: list[tuple[str, str]] = []
    at, collecting = 0, gc.isenabled()
    gc.disable()  # see strict_json
    try:
        while at < len(text):
            some = find.match(text, at)
            end = at if some is None else some.end()
            whole = text[at:end] if end == len(text) else text[at : end - 1]
            pairs = [] if some is None or whole.endswith(b",") else json.loads(b"[%b]" % whole)
            flat = list(chain.from_iterable(pairs))
            tokens = map(known.setdefault, flat, flat)
            merges += zip(tokens, tokens, strict=True)  # two of them at a time
            if not pairs or len(merges) > MAX_MERGES:
                break
            at = end
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON behind merge {len(merges):,}: {error}") from None
    finally:
        if collecting:
            gc.enable()
    if len(merges) > MAX_MERGES:
        raise CheckpointError(f"{path} has more than {MAX_MERGES:,} merges")
    if at < len(text):
        said = text[at : at + 80].decode("utf-8", "replace")
        raise CheckpointError(f"{path}: merge {len(merges):,} must be two tokens, got {said!r}")
    return tuple(merges)
