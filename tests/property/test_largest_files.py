"""The largest vocabularies and configs that are let in, each wrong at its end: refused quickly and in little memory.

What is larger is refused by its size, its lines or its values before it is taken apart (see the unit tests); so these
are the worst that a hostile file can do. Each is read in a process of its own, for freed memory would hide growth.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from itertools import islice, product
from pathlib import Path

import pytest

from bertkit.config.config_file import MAX_CONFIG_BYTES
from bertkit.system.untrusted_files import MAX_TOKENS, MAX_VOCABULARY_BYTES, MAX_VOCABULARY_VALUES
from bertkit.tokenization import GemmaTokenizer
from bertkit.tokenization.formats.large_merges import MAX_JSON_BYTES, MAX_MERGES
from bertkit.tokenization.formats.unigram_files import MAX_PIECES
from hostile_helpers import MAX_BYTES, MAX_S

BYTES, VALUES = MAX_VOCABULARY_BYTES, MAX_VOCABULARY_VALUES - 100
EMOJI = "\U0001f600"  # one character outside the first plane makes a text take four bytes a character
MINIMAL = b"[UNK]\n[SEP]\n[PAD]\n[CLS]\n[MASK]\n"

READ = """
import sys, time
sys.path.insert(0, sys.argv[1])
from hostile_helpers import peak_bytes
from bertkit import BertConfig
from bertkit.errors import BertkitError
from bertkit.config.encoder_decoder_config import T5Config
from bertkit.tokenization import BertTokenizer, DebertaV2Tokenizer, GemmaTokenizer, RobertaTokenizer
from bertkit.tokenization import T5Tokenizer, XLMRobertaTokenizer
configs = {"config": BertConfig.from_json_file, "T5 config": T5Config.from_json_file}
read = configs.get(sys.argv[2]) or vars()[sys.argv[2]].from_pretrained
before, started = peak_bytes(forget=True), time.process_time()
try:
    read(sys.argv[3])
    said = ""
except BertkitError as error:
    said = str(error)
print(time.process_time() - started, peak_bytes() - before, len(said), said[-200:])
"""


def within(before: str, fill: Callable[[int], str], after: str, most: int) -> bytes:
    """``most`` pieces between a beginning and an end."""
    return (before + ",".join(map(fill, range(most))) + after).encode()


def in_bytes(before: str, one: str, after: str) -> bytes:
    room = BYTES - len((before + after).encode())
    return (before + one * (room // len(one)) + after).encode()


def wide_lines() -> bytes:
    """As many lines and bytes as a word list may have, one of them with an emoji; none is a special token."""
    width = BYTES // MAX_TOKENS - 1
    return b"".join(b"%0*x\n" % (width, number) for number in range(MAX_TOKENS - 1)) + EMOJI.encode()


def sentencepieces(most: int) -> bytes:
    """So many pieces and no unknown one."""
    piece = b"\x0a\x0d\x0a\x06%06x\x15" + struct.pack("<f", -1.0)
    return b"".join(piece % number for number in range(most))


def merges(last: list[str]) -> bytes:
    """As many tokens as mmBERT's file has, and most merges, as large as it may be."""
    tokens = {"<unk>": 0, "<bos>": 1, "<eos>": 2, "<pad>": 3, "<mask>": 4, EMOJI: 5}
    letters = [chr(ord("a") + number) for number in range(26)]
    words = ("".join(word) for size in range(1, 5) for word in product(letters, repeat=size))
    for word in islice(words, 256_000 - len(tokens)):
        tokens[word] = len(tokens)
    listed = [[word[:at], word[at:]] for word in [*tokens][6:] for at in range(1, len(word))][: MAX_MERGES - 1]
    content = json.loads(GemmaTokenizer(tokens, []).backend_tokenizer.to_str())
    content["model"]["merges"] = [*listed, last]
    made = json.dumps(content, ensure_ascii=False, indent=2).encode()
    return made.replace(b'"post_processor"', b" " * (MAX_JSON_BYTES - len(made) - 2) + b'"post_processor"', 1)


#: What -> (class that reads it, name of the file, its content, what the error says)
Case = tuple[str, str, Callable[[], bytes], str]
CASES: dict[str, Case] = {
    "one text": ("BertTokenizer", "tokenizer.json", lambda: in_bytes('{"a": "', "x", EMOJI + '"}'), "model must be"),
    "blanks": ("BertTokenizer", "tokenizer.json", lambda: in_bytes('{"a": ' + f'"{EMOJI}"', " ", "}"), "model must be"),
    "empty lists": (
        "BertTokenizer", "tokenizer.json", lambda: within('{"a": [', lambda _: "[]", "]}", VALUES // 2),
        "model must be",
    ),
    "empty objects": (
        "BertTokenizer", "tokenizer.json", lambda: within('{"a": [', lambda _: "{}", "]}", VALUES // 5),
        "model must be",
    ),
    "numbers": (
        "BertTokenizer", "tokenizer.json", lambda: within('{"a": [', lambda at: f"{at + 10**8}", "]}", VALUES),
        "model must be",
    ),
    "texts": (
        "BertTokenizer", "tokenizer.json", lambda: within('{"a": [', lambda at: f'"{at:x}"', "]}", VALUES),
        "model must be",
    ),
    "word pieces": (
        "BertTokenizer", "tokenizer.json",
        lambda: within('{"model": {"vocab": {', lambda at: f'"{at:x}": {at}', "}}}", VALUES // 3), "None model",
    ),
    "pairs": (
        "XLMRobertaTokenizer", "tokenizer.json",
        lambda: within('{"model": {"unk_id": 0, "vocab": [', lambda at: f'["{at:x}", -{at}.5]', "]}}", VALUES // 3),
        "pre_tokenizer must be",
    ),
    "added tokens": (
        "BertTokenizer", "tokenizer.json",
        lambda: within('{"added_tokens": [', lambda at: f'{{"id": {at}, "content": "{at:x}"}}', "]}", VALUES // 10),
        "model must be",
    ),
    "lines": ("BertTokenizer", "vocab.txt", wide_lines, "add the token to the vocabulary"),
    "one line": ("BertTokenizer", "vocab.txt", lambda: in_bytes("", "a", EMOJI), "characters, more than"),
    "a merge": ("RobertaTokenizer", "merges.txt", wide_lines, "must be two tokens"),
    "pieces": ("XLMRobertaTokenizer", "sentencepiece.bpe.model", lambda: sentencepieces(MAX_PIECES), "must begin with"),
    "a config": (
        "config", "config.json", lambda: within('{"a": [', lambda _: "[]", "]}", 499_000), "unknown field 'a'",
    ),
    "a config of T5": (
        "T5 config", "config.json", lambda: within('{"a": [', lambda _: "[]", "]}", 499_000), "unknown field 'a'",
    ),
    "types of layers": (
        "config", "config.json",
        lambda: within(
            '{"model_type": "modernbert", "num_hidden_layers": 199990, "layer_types": [',
            lambda at: '"sliding_attention"' if at else '"full_attention"', "]}", 199_990,
        ),
        "num_hidden_layers = 199990",
    ),
    "labels that are none": (
        "config", "config.json", lambda: within('{"id2label": {', lambda at: f'"{at}": 1', "}}", 330_000),
        "id2label uses a label twice",
    ),
    "pieces of DeBERTa": ("DebertaV2Tokenizer", "spm.model", lambda: sentencepieces(MAX_PIECES), "no piece for unk"),
    "merges": ("GemmaTokenizer", "tokenizer.json", lambda: merges(["a", "-"]), "and '-', but '-' is not in"),
    "a merge that is none": ("GemmaTokenizer", "tokenizer.json", lambda: merges(["a"]), "must be two tokens"),
    "pieces of T5": ("T5Tokenizer", "spiece.model", lambda: sentencepieces(MAX_PIECES), "must begin with <pad>"),
}  # fmt: skip


@pytest.mark.campaign
@pytest.mark.parametrize("case", CASES)
def test_the_largest_files_take_little(case: str, tmp_path: Path) -> None:
    reader, name, make, expected = CASES[case]
    if name == "merges.txt":
        (tmp_path / "vocab.json").write_text('{"a": 0}')
    path = tmp_path / name
    path.write_bytes(make())
    is_config = reader.endswith("config")
    has_merges = reader == "GemmaTokenizer"
    assert path.stat().st_size <= (MAX_CONFIG_BYTES if is_config else MAX_JSON_BYTES if has_merges else BYTES)
    arguments = [str(Path(__file__).parent.parent), reader, str(path if is_config else tmp_path)]
    ran = subprocess.run([sys.executable, "-c", READ, *arguments], capture_output=True, text=True, check=False)
    assert not ran.returncode, ran.stderr
    seconds, taken, length, said = ran.stdout.split(" ", 3)
    print(f"{case}: {float(seconds):.2f} s, {int(taken) / 1e6:.0f} MB: {said}")
    assert expected in said
    assert int(length) < 2_000
    assert float(seconds) < MAX_S
    assert int(taken) < MAX_BYTES
