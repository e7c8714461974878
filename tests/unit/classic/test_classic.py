"""bertkit.classic beside the original: golden digests of the original's own functions, and what must hold of any run.

The digests were made under CPython 3.11 by running the algorithm of google-research/bert's create_pretraining_data.py,
its functions adapted to read files with plain Python, on the tokenizer objects that are used here.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit import classic
from bertkit.checkpoints.tensorflow.crc import crc32c, masked
from bertkit.errors import ConfigError, DataError
from bertkit.tokenization import FullTokenizer
from tokenizer_helpers import vocab_file


class Pieces:
    """A tokenizer without files: words of up to four letters, longer ones as pieces of three."""

    def __init__(self) -> None:
        tokens = ["[PAD]", "[UNK]", *map(chr, range(97, 123)), "##s", "##t"]
        self.vocab = {token: number for number, token in enumerate(tokens)}

    def tokenize(self, text: str) -> list[str]:
        words = text.split()
        return [
            ("##" if start else "") + word[start : start + 3]
            for word in words
            for start in (range(0, len(word), 3) if len(word) > 4 else [0])
        ]


def write_corpus(path: Path, *, documents: int = 12) -> Path:
    """Made-up text: documents of 1 to 9 sentences of 1 to 14 words."""
    draw = random.Random(7)
    letters = "abcdefghijklmnopqrstuvwxyz"
    lines = []
    for _ in range(documents):
        for _ in range(draw.randint(1, 9)):
            words = ["".join(draw.choices(letters, k=draw.randint(1, 9))) for _ in range(draw.randint(1, 14))]
            lines.append(" ".join(words))
        lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def digest(instances: list[classic.TrainingInstance]) -> str:
    rows = [
        [one.tokens, one.segment_ids, one.is_random_next, one.masked_lm_positions, one.masked_lm_labels]
        for one in instances
    ]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]


#: (max_seq_length, dupe_factor, short_seq_prob, masked_lm_prob, max_predictions_per_seq, seed, whole words)
SETTINGS = {
    (128, 5, 0.1, 0.15, 20, 12345, False): (99, "9bd6208adabe41bf"),
    (32, 10, 0.5, 0.15, 5, 1, False): (363, "d7863bcf2be38fd8"),
    (5, 2, 0.1, 0.9, 20, 2, False): (98, "e8f5e37ce51f30c9"),
    (64, 4, 0.1, 0.3, 9, 3, True): (92, "ede8e2ac6a819e20"),
}
#: The same for the original's sample text with bert-base-uncased's vocabulary, as its README runs it.
SAMPLE_TEXT = (60, "fe75b374588325a5")


@pytest.mark.parametrize("settings", SETTINGS)
def test_instances_are_those_of_the_original(tmp_path: Path, settings: tuple) -> None:
    *arguments, seed, whole_words = settings
    corpus = write_corpus(tmp_path / "corpus.txt")
    instances = classic.create_training_instances(
        [corpus], Pieces(), *arguments, random.Random(seed), do_whole_word_mask=whole_words
    )
    assert (len(instances), digest(instances)) == SETTINGS[settings]


def test_sample_text_as_in_the_readme_of_the_original(shared: Path) -> None:
    tokenizer = FullTokenizer(vocab_file(shared, "uncased"))
    text = shared / "data" / "pretrain_text" / "google_bert_sample_text.txt"
    instances = classic.create_training_instances(
        input_files=[text],
        tokenizer=tokenizer,
        max_seq_length=128,
        dupe_factor=5,
        short_seq_prob=0.1,
        masked_lm_prob=0.15,
        max_predictions_per_seq=20,
        rng=random.Random(12345),
    )
    assert (len(instances), digest(instances)) == SAMPLE_TEXT


@pytest.mark.parametrize("change", ["seed", "extra draw", "argument"])
def test_control_another_order_of_draws_is_seen(tmp_path: Path, change: str) -> None:
    *arguments, seed, _ = next(iter(SETTINGS))
    rng = random.Random(seed + (change == "seed"))
    if change == "extra draw":
        rng.random()
    if change == "argument":
        arguments[-1] -= 10
    instances = classic.create_training_instances([write_corpus(tmp_path / "c.txt")], Pieces(), *arguments, rng)
    assert digest(instances) != next(iter(SETTINGS.values()))[1]


def test_every_instance_is_well_formed(tmp_path: Path) -> None:
    instances = classic.create_training_instances(
        [write_corpus(tmp_path / "c.txt")], Pieces(), 40, 20, 0.1, 0.15, 6, random.Random(0)
    )
    for one in instances:
        assert one.tokens[0] == "[CLS]"
        assert one.tokens[-1] == "[SEP]"
        assert len(one.tokens) == len(one.segment_ids) <= 40
        first_end = one.segment_ids.index(1)
        assert one.tokens[first_end - 1] == "[SEP]"
        assert one.segment_ids == [0] * first_end + [1] * (len(one.tokens) - first_end)
        assert one.masked_lm_positions == sorted(set(one.masked_lm_positions))
        assert len(one.masked_lm_positions) == min(6, max(1, round(len(one.tokens) * 0.15)))
        assert not {0, first_end - 1, len(one.tokens) - 1} & set(one.masked_lm_positions)
    assert 0.3 < sum(one.is_random_next for one in instances) / len(instances) < 0.8


TOKENS = st.lists(st.sampled_from(["a", "b", "##c", "##d", "word"]), min_size=1, max_size=30)


@given(TOKENS, TOKENS, st.floats(0, 1), st.integers(1, 30), st.integers(0, 2**32), st.booleans())
def test_masking_can_be_undone(
    first: list[str], second: list[str], share: float, most: int, seed: int, whole_words: bool
) -> None:
    tokens = ["[CLS]", *first, "[SEP]", *second, "[SEP]"]
    masked, positions, labels = classic.create_masked_lm_predictions(
        tokens, share, most, ["x", "y"], random.Random(seed), do_whole_word_mask=whole_words
    )
    assert len(positions) <= most
    for position, label in zip(positions, labels, strict=True):
        assert masked[position] in ("[MASK]", label, "x", "y")
        masked[position] = label
    assert masked == tokens


def test_eighty_ten_ten() -> None:
    tokens = ["[CLS]", *["a"] * 40_000, "[SEP]"]
    masked, positions, _ = classic.create_masked_lm_predictions(tokens, 1.0, 40_000, ["b"], random.Random(0))
    counts = {token: sum(masked[at] == token for at in positions) / 40_000 for token in ("[MASK]", "a", "b")}
    # Five standard deviations of a share of 0.8 (0.1) over 40,000 draws: 0.010 (0.0075).
    assert counts == pytest.approx({"[MASK]": 0.8, "a": 0.1, "b": 0.1}, abs=0.01)


def test_whole_words_are_masked_whole() -> None:
    tokens = ["[CLS]", *["one", "##two", "##three"] * 200, "[SEP]"]
    for whole_words in (True, False):
        _, positions, _ = classic.create_masked_lm_predictions(
            tokens, 0.15, 90, ["x"], random.Random(0), do_whole_word_mask=whole_words
        )
        heads = {position for position in positions if tokens[position] == "one"}
        split = [position for position in positions if position - (position - 1) % 3 not in heads]
        assert len(positions) == 90
        assert bool(split) != whole_words


@given(st.integers(0, 60), st.integers(0, 60), st.integers(2, 80), st.integers(0, 2**32))
def test_truncation_keeps_the_middle_of_the_longer(num_a: int, num_b: int, most: int, seed: int) -> None:
    first, second = [f"a{i}" for i in range(num_a)], [f"b{i}" for i in range(num_b)]
    tokens_a, tokens_b = list(first), list(second)
    classic.truncate_seq_pair(tokens_a, tokens_b, most, random.Random(seed))
    assert len(tokens_a) + len(tokens_b) == min(num_a + num_b, most)
    for kept, whole in ((tokens_a, first), (tokens_b, second)):
        at = whole.index(kept[0]) if kept else 0
        assert kept == whole[at : at + len(kept)]
    if num_a + num_b > most:
        shorter = min(num_a, num_b, most // 2)
        assert min(len(tokens_a), len(tokens_b)) == shorter
    assert abs(len(tokens_a) - len(tokens_b)) <= max(1, abs(num_a - num_b))


def test_bad_input_says_where(tmp_path: Path) -> None:
    def create(file: Path, **changes: float) -> None:
        settings = {
            "max_seq_length": 16,
            "dupe_factor": 1,
            "short_seq_prob": 0.1,
            "masked_lm_prob": 0.15,
            "max_predictions_per_seq": 3,
        }
        classic.create_training_instances([file], Pieces(), **{**settings, **changes}, rng=random.Random(0))

    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"good line\nbad \xff line\n")
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n")
    with pytest.raises(DataError, match=r"bad\.txt:2: not UTF-8 \(byte 0xff at 4\)"):
        create(bad)
    with pytest.raises(DataError, match=r"missing\.txt cannot be read"):
        create(tmp_path / "missing.txt")
    with pytest.raises(DataError, match=r"no text .*empty\.txt"):
        create(empty)
    good = write_corpus(tmp_path / "good.txt")
    for changes, message in (
        ({"max_seq_length": 4}, "max_seq_length must be at least 5"),
        ({"dupe_factor": 0}, "dupe_factor"),
        ({"masked_lm_prob": 15}, "masked_lm_prob must be from 0 to 1, got 15"),
    ):
        with pytest.raises(ConfigError, match=message):
            create(good, **changes)


def test_import_brings_no_torch() -> None:
    import subprocess

    code = "import sys, bertkit.classic; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def fields_of(message: bytes) -> list[tuple[int, bytes]]:
    """The length-delimited fields of a protocol buffer."""
    found, at = [], 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value

    while at < len(message):
        number, kind = divmod(varint(), 8)
        assert kind == 2
        length = varint()
        found.append((number, message[at : at + length]))
        at += length
    return found


def numbers_of(feature: bytes) -> list[float]:
    ((kind, content),) = fields_of(feature)
    ((_, packed),) = fields_of(content)
    if kind == 2:
        return list(struct.unpack(f"<{len(packed) // 4}f", packed))
    assert kind == 3
    values, value, shift = [], 0, 0
    for byte in packed:
        value, shift = value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            values.append(value - 2**64 if value >= 2**63 else value)
            value = shift = 0
    return values


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), st.lists(st.floats(width=32, allow_nan=False)))
def test_features_hold_their_numbers(integers: list[int], floats: list[float]) -> None:
    assert numbers_of(classic.create_int_feature(integers)) == integers
    assert numbers_of(classic.create_float_feature(floats)) == floats


def test_records_are_those_of_the_original(tmp_path: Path) -> None:
    """Against the format's description: length, masked CRC-32C of it, tf.train.Example, masked CRC-32C."""
    tokens = ["[CLS]", "a", "[MASK]", "[SEP]", "b", "[SEP]"]
    one = classic.TrainingInstance(tokens, [0, 0, 0, 0, 1, 1], True, [2], ["c"])
    two = classic.TrainingInstance(tokens, [0, 0, 0, 0, 1, 1], False, [2], ["c"])

    class Ids(Pieces):
        def convert_tokens_to_ids(self, tokens: list[str]) -> list[int]:
            return [len(token) * 100 + ord(token[-1]) for token in tokens]

    files = [tmp_path / "0.tfrecord", tmp_path / "1.tfrecord"]
    classic.write_instance_to_example_files([one, two, one], Ids(), 8, 3, files)
    data = files[0].read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    assert struct.unpack("<I", data[8:12])[0] == masked(crc32c(data[:8]))
    record = data[12 : 12 + length]
    assert struct.unpack("<I", data[12 + length : 16 + length])[0] == masked(crc32c(record))
    ((_, features),) = fields_of(record)
    entries = [dict(fields_of(entry)) for _, entry in fields_of(features)]
    found = {entry[1].decode(): numbers_of(entry[2]) for entry in entries}
    ids = Ids().convert_tokens_to_ids(tokens)
    assert found == {
        "input_ids": [*ids, 0, 0],
        "input_mask": [1, 1, 1, 1, 1, 1, 0, 0],
        "segment_ids": [0, 0, 0, 0, 1, 1, 0, 0],
        "masked_lm_positions": [2, 0, 0],
        "masked_lm_ids": [*Ids().convert_tokens_to_ids(["c"]), 0, 0],
        "masked_lm_weights": [1.0, 0.0, 0.0],
        "next_sentence_labels": [1],
    }
    assert len(data) == 2 * len(files[1].read_bytes())  # by turns: the first and third, the second
    with pytest.raises(ConfigError, match="has 6 tokens and 1 predictions, but max_seq_length=5"):
        classic.write_instance_to_example_files([one], Ids(), 5, 3, files)
