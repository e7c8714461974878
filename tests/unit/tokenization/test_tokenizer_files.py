"""Loading a tokenizer from files, saving it, and what is said about files that are damaged."""

from __future__ import annotations

import copy
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertkit.errors import CheckpointError, InputError
from bertkit.tokenization import AddedToken, AutoTokenizer, BertTokenizer, FullTokenizer, load_vocab
from everyday import some
from forked_interpreter import run_forked
from tokenizer_helpers import CASES, vocab_file

TEXTS = ["Unaffable [MASK]ing café, [E1] x[e1]y", "  İstanbul\x1c中文 don't ", "", "[E1][MASK] Foo foo bar"]
SMALL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "c", "the", "!"]


def write(folder: Path, **files: Any) -> Path:
    """A folder with these files; ``vocab=`` is vocab.txt, other names are JSON files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if name == "vocab":
            (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in content), encoding="utf-8")
        else:
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A small tokenizer as bertkit writes it."""
    folder = tmp_path / "saved"
    BertTokenizer({token: number for number, token in enumerate(SMALL)}).save_pretrained(folder)
    return folder


def change(path: Path, edit: Callable[[Any], None]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    edit(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def same(ours: Any, other: Any) -> None:
    """Two tokenizers agree, whichever package they are of."""
    for text in TEXTS:
        a = ours(text, "second", return_offsets_mapping=True, return_special_tokens_mask=True)
        b = other(text, "second", return_offsets_mapping=True, return_special_tokens_mask=True)
        assert {key: list(value) for key, value in a.items()} == {key: list(value) for key, value in b.items()}
    assert len(ours) == len(other)
    assert ours.all_special_ids == other.all_special_ids


# What is there to be loaded


@pytest.mark.parametrize("case", CASES)
def test_a_folder_with_only_a_vocabulary(shared: Path, tmp_path: Path, case: str) -> None:
    from transformers import BertTokenizer as Peer

    shutil.copy(vocab_file(shared, case), tmp_path / "vocab.txt")
    ours = BertTokenizer.from_pretrained(tmp_path, do_lower_case=case == "uncased")
    same(ours, Peer.from_pretrained(tmp_path, do_lower_case=case == "uncased"))
    same(BertTokenizer.from_pretrained(tmp_path / "vocab.txt", do_lower_case=case == "uncased"), ours)
    same(BertTokenizer(vocab_file=tmp_path / "vocab.txt", do_lower_case=case == "uncased"), ours)
    assert ours.model_max_length == 512


def test_the_real_minilm(minilm: Path, tmp_path: Path) -> None:
    """Its tokenizer.json has truncation to 128 and padding to 128 stored: neither is the tokenizer's business."""
    from transformers import AutoTokenizer

    ours = BertTokenizer.from_pretrained(minilm)
    same(ours, AutoTokenizer.from_pretrained(minilm))
    assert len(ours("word " * 300).input_ids) == 302
    shutil.copy(minilm / "tokenizer.json", tmp_path)
    same(BertTokenizer.from_pretrained(tmp_path), ours)
    same(BertTokenizer.from_pretrained(tmp_path / "tokenizer.json"), ours)


def test_a_real_folder_with_a_config(shared: Path) -> None:
    from transformers import AutoTokenizer

    folder = shared / "models" / "bert-tiny-splade-mlm"
    ours, peer = BertTokenizer.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    same(ours, peer)
    row = peer("It's , well . don ' t do n't").input_ids
    assert ours.decode(row) == peer.decode(row)
    assert ours.clean_up_tokenization_spaces


@pytest.mark.slow
@pytest.mark.parametrize("files", some(("all", "vocab.txt", "tokenizer.json"), ["all"]))
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"do_lower_case": False},
        {"do_lower_case": False, "strip_accents": True},
        {"strip_accents": False, "tokenize_chinese_chars": False},
        {"padding_side": "left", "truncation_side": "left", "model_max_length": 64},
    ],
)
def test_round_trip(shared: Path, tmp_path: Path, settings: dict[str, Any], files: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = BertTokenizer(vocab_file(shared, "uncased"), **settings)
    written = tokenizer.save_pretrained(tmp_path)
    assert {Path(path).name for path in written} == {path.name for path in tmp_path.iterdir()}
    assert {"vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"} == {
        path.name for path in tmp_path.iterdir()
    }
    if files != "all":
        (tmp_path / ({"vocab.txt", "tokenizer.json"} - {files}).pop()).unlink()
    again = BertTokenizer.from_pretrained(tmp_path)
    same(again, tokenizer)
    assert again.vocab == tokenizer.vocab
    assert set(again._vocabulary.never_split) == set(tokenizer._vocabulary.never_split)
    assert again._settings() == tokenizer._settings()
    peer = AutoTokenizer.from_pretrained(tmp_path)
    same(again, peer)
    arguments = {"padding": "max_length", "truncation": True, "max_length": 8}
    assert dict(again(TEXTS, **arguments)) == dict(peer(TEXTS, **arguments))
    assert again.model_max_length == peer.model_max_length


@pytest.mark.slow
@pytest.mark.parametrize("flags", [{}, {"lstrip": True, "rstrip": True}, {"normalized": True}, {"single_word": True}])
def test_added_tokens(shared: Path, tmp_path: Path, flags: dict[str, bool]) -> None:
    """Entity markers and the like: beyond the vocabulary, with every way of being found."""
    from transformers import AutoTokenizer

    vocab = load_vocab(vocab_file(shared, "uncased"))
    added = [AddedToken("[E1]", len(vocab), **flags), AddedToken("Foo", len(vocab) + 1, special=False, **flags)]
    tokenizer = BertTokenizer(vocab, added_tokens=added)
    assert tokenizer.convert_tokens_to_ids(["[E1]", "Foo"]) == [30522, 30523]
    assert (len(tokenizer), tokenizer.vocab_size) == (30524, 30522)
    tokenizer.save_pretrained(tmp_path)
    same(BertTokenizer.from_pretrained(tmp_path), tokenizer)
    peer = AutoTokenizer.from_pretrained(tmp_path)
    same(tokenizer, peer)
    for row, text in zip(tokenizer.encode_ragged(TEXTS), TEXTS, strict=True):
        assert row.tolist() == peer(text).input_ids
        assert tokenizer.decode(row, skip_special_tokens=True) == peer.decode(row, skip_special_tokens=True)
    (tmp_path / "tokenizer.json").unlink()
    same(BertTokenizer.from_pretrained(tmp_path), tokenizer)


def test_older_ways_to_name_added_tokens(saved: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (saved / name).unlink()
    config = {"additional_special_tokens": ["[E2]", {"content": "[E1]"}]}
    write(saved, added_tokens={"[E1]": 10}, tokenizer_config=config)
    tokenizer = BertTokenizer.from_pretrained(saved)
    assert tokenizer("a [E2][E1]").input_ids == [2, 5, 11, 10, 3]


def test_other_special_tokens(tmp_path: Path) -> None:
    names = dict(zip(("pad", "unk", "cls", "sep", "mask"), ("<pad>", "<unk>", "<s>", "</s>", "<m>"), strict=True))
    vocab = {token: number for number, token in enumerate([*names.values(), "a"])}
    tokenizer = BertTokenizer(vocab, **{f"{name}_token": token for name, token in names.items()})
    tokenizer.save_pretrained(tmp_path)
    again = BertTokenizer.from_pretrained(tmp_path)
    assert again("a<m> z", padding="max_length", max_length=6).input_ids == [2, 5, 4, 1, 3, 0]
    assert again.encode_ragged(["a<m> z"]).ids.tolist() == [2, 5, 4, 1, 3]
    assert (again.mask_token, again.all_special_tokens) == ("<m>", tokenizer.all_special_tokens)


def test_settings_of_the_config_win_over_the_tokenizer_json(saved: Path) -> None:
    change(saved / "tokenizer_config.json", lambda config: config.update(do_lower_case=False))
    assert not BertTokenizer.from_pretrained(saved).do_lower_case
    assert BertTokenizer.from_pretrained(saved, do_lower_case=True).do_lower_case


def test_a_model_without_a_limit(saved: Path) -> None:
    change(saved / "tokenizer_config.json", lambda config: config.update(model_max_length=int(1e30)))
    tokenizer = BertTokenizer.from_pretrained(saved)
    row = tokenizer("a " * 600, truncation=True, padding="max_length").input_ids
    assert len(row) == 602


def test_pickle_and_copy(shared: Path) -> None:
    tokenizer = BertTokenizer(vocab_file(shared, "uncased"), truncation_side="left")
    for again in (pickle.loads(pickle.dumps(tokenizer)), copy.deepcopy(tokenizer)):
        same(again, tokenizer)
        assert again._settings() == tokenizer._settings()
        assert again.encode_ragged(TEXTS).ids.tolist() == tokenizer.encode_ragged(TEXTS).ids.tolist()
    encoded = pickle.loads(pickle.dumps(tokenizer(TEXTS)))
    assert encoded.input_ids == tokenizer(TEXTS).input_ids
    with pytest.raises(InputError, match="known only in what calling the tokenizer returned"):
        encoded.word_ids()


def test_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes("\ufeff".encode() + "\r\n".join([*SMALL, "", ""]).encode())
    assert load_vocab(tmp_path / "vocab.txt") == {token: number for number, token in enumerate(SMALL)}


# What is damaged

BAD_VOCABULARIES = {
    "empty": (b"", r"vocab\.txt is empty"),
    "blank line": (b"[PAD]\n\na\n", r"vocab\.txt:2 is empty"),
    "repeated line": (b"[PAD]\na\nb\na\n", r"vocab\.txt:4 repeats 'a', which line 2 has already"),
    "not text": (b"[PAD]\n\xff\xfe\n", r"vocab\.txt:2 is not UTF-8"),
    "more lines than tokens": (b"a\n" * 520_001, r"vocab\.txt has 520,001 lines; a vocabulary has at most 520,000"),
    "a long line": (b"[PAD]\n" + b"a" * 10_001, r"vocab\.txt:2 has 10,001 characters, more than the limit 10,000"),
    "no special tokens": (b"a\nb\n", r"has no unk_token='\[UNK\]', sep_token='\[SEP\]'.*add the token"),
    "no mask": (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n", r"has no mask_token='\[MASK\]'"),
}


@pytest.mark.parametrize("name", BAD_VOCABULARIES)
def test_damaged_vocabularies(tmp_path: Path, name: str) -> None:
    content, message = BAD_VOCABULARIES[name]
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        BertTokenizer.from_pretrained(tmp_path)


def _model(**values: Any) -> Callable[[Any], None]:
    return lambda content: content["model"].update(values)


BAD_TOKENIZERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "another model": (_model(type="BPE"), "holds a BPE model; BertTokenizer reads WordPiece"),
    "no model": (lambda content: content.pop("model"), "model must be an object"),
    "a list": (_model(vocab=["a"]), r"model\.vocab must be an object"),
    "numbers that are none": (_model(vocab={"a": "0"}), r"model\.vocab must be an object"),
    "a number below 0": (_model(vocab={"a": -1}), r"model\.vocab must be .* whole numbers, 0 to .*, got {'a': -1"),
    "a number too large": (
        _model(vocab={"a": 2**63}),
        r"model\.vocab must be .* whole numbers, 0 to .*, got {'a': 922",
    ),
    "an unknown token that is a list": (
        _model(unk_token=[]),
        r"model\.unk_token is \[\], which is not in model\.vocab",
    ),
    "an added token below 0": (
        lambda content: content["added_tokens"].append({"content": "z", "id": -1}),
        "'z' must have an id from 0 to .*, got -1",
    ),
    "a colon before a text": (
        lambda content: content["post_processor"]["single"][0]["SpecialToken"].update(id="<a:b>"),
        "must have no ':' .*, got '<a:b>'",
    ),
    "a gap": (lambda content: content["model"]["vocab"].update(a=99), "5 is the first that no token has"),
    "one number twice": (lambda content: content["model"]["vocab"].update(a=4), "5 is the first that no token has"),
    "another normalizer": (
        lambda content: content.update(normalizer={"type": "NFC"}),
        "normalizer must be a BertNormalizer",
    ),
    "another pre-tokenizer": (lambda content: content.update(pre_tokenizer={"type": "ByteLevel"}), "BertPreTokenizer"),
    "another template": (lambda content: content["post_processor"]["single"].pop(), "post_processor must put"),
    "odd post-processor": (lambda content: content.update(post_processor=["x"]), "post_processor must put"),
    "an added token without a name": (lambda content: content["added_tokens"].append({"id": 1}), "must have a content"),
    "an added token out of order": (
        lambda content: content["added_tokens"].append({"content": "z", "id": 77}),
        "10 is the first that no token has",
    ),
    "a flag that is none": (
        lambda content: content["normalizer"].update(lowercase="yes"),
        r"must be a BertNormalizer with clean_text, got .*'lowercase': 'yes'",
    ),
    "an unknown token that is none": (
        _model(unk_token="[FOO]"),
        r"model\.unk_token is '\[FOO\]', which is not in model\.vocab",
    ),
    "an added token of another id": (
        lambda content: content["added_tokens"][0].update(id=4),
        r"the added token '\[PAD\]' has the id 4, but 0 in model\.vocab",
    ),
    "another id in the template": (
        lambda content: content["post_processor"]["special_tokens"]["[CLS]"].update(ids=[3]),
        "post_processor must put .* by their ids in model.vocab",
    ),
    "a flag of the normalizer that is missing": (lambda content: content["normalizer"].pop("lowercase"), "clean_text"),
    "a limit that is none": (_model(max_input_chars_per_word="100"), "max_input_chars_per_word must be int"),
}


@pytest.mark.parametrize("name", BAD_TOKENIZERS)
def test_damaged_tokenizer_json(saved: Path, name: str) -> None:
    edit, message = BAD_TOKENIZERS[name]
    for other in ("vocab.txt", "tokenizer_config.json"):
        (saved / other).unlink()
    change(saved / "tokenizer.json", edit)
    with pytest.raises(CheckpointError, match=message):
        BertTokenizer.from_pretrained(saved)


@pytest.mark.parametrize("name", ["an unknown token that is none", "an added token of another id"])
def test_settings_beside_it_do_not_hide_what_is_wrong_with_a_tokenizer_json(saved: Path, name: str) -> None:
    """They name the right ``unk_token`` and describe the token with the right id."""
    edit, message = BAD_TOKENIZERS[name]
    change(saved / "tokenizer.json", edit)
    with pytest.raises(CheckpointError, match=message):
        BertTokenizer.from_pretrained(saved)


def test_files_with_two_ids_for_a_token(tmp_path: Path) -> None:
    described = {"added_tokens_decoder": {"11": {"content": "[E]"}, "10": {"content": "[F]"}}}
    folder = write(tmp_path, vocab=SMALL, tokenizer_config=described, added_tokens={"[E]": 10, "[F]": 11})
    with pytest.raises(CheckpointError, match=r"the token '\[E\]' has the ids 10 and 11 in its files"):
        BertTokenizer.from_pretrained(folder)


def test_an_unknown_token_that_only_was_added(tmp_path: Path) -> None:
    """The model does not know it: the first unknown word would end in an error of the engine."""
    vocab = {token: number for number, token in enumerate(token for token in SMALL if token != "[UNK]")}
    with pytest.raises(CheckpointError, match=r"unk_token='\[UNK\]' must be in the vocabulary, not an added token"):
        BertTokenizer(vocab, added_tokens=[AddedToken("[UNK]", len(vocab))])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"tokenizer\.json:1 is not JSON"),
        ('{"model":\n  {"vocab": {"a": 0,}}}', r"tokenizer\.json:2 is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "holds a list, expected an object"),
        ('{"model": {"type": "WordPiece", "vocab": {"a": 0, "a": 1}}}', "has 'a' more than once"),
        ("{}", "model must be an object"),
        ('{"version": %s}' % ("9" * 5000), "whole number of 5,000 digits"),
        ('{"model": {"vocab": {"\\ud800": 0}}}', "half of a character"),
        ("[" + "{}," * 700_000 + "0]", "more than the limit 1,600,000"),
    ],
)
def test_broken_json(tmp_path: Path, content: str, message: str) -> None:
    write(tmp_path, tokenizer=content)
    with pytest.raises(CheckpointError, match=message):
        BertTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"])
def test_settings_behind_a_broken_link_are_not_taken_for_absent(saved: Path, name: str) -> None:
    (saved / name).unlink(missing_ok=True)
    BertTokenizer.from_pretrained(saved)  # control: they need not be there
    (saved / name).symlink_to(saved / "gone.json")
    with pytest.raises(CheckpointError, match=f"{name} is a link to a file that does not exist"):
        BertTokenizer.from_pretrained(saved)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "does not tokenize as BertTokenizer does"),
        ({"do_lower_case": "no"}, "do_lower_case must be bool"),
        ({"do_basic_tokenize": False}, "computes only do_basic_tokenize=True"),
        ({"never_split": ["x"]}, "never_split"),
        ({"mask_token": 5}, "mask_token must be a token"),
        ({"mask_token": "[M]"}, r"has no mask_token='\[M\]'"),
        ({"added_tokens_decoder": ["x"]}, "added_tokens_decoder must be an object"),
        ({"added_tokens_decoder": {"4": {"content": "[E]"}}}, "10 is the first that no token has"),
        ({"added_tokens_decoder": {"9" * 5000: {"content": "[E]"}}}, "added_tokens_decoder must be an object"),
        ({"padding_side": "top"}, "padding_side"),
        ({"model_max_length": float("inf")}, "holds Infinity"),
        ({"model_max_length": float("nan")}, "holds NaN"),
        ({"model_max_length": -5}, "model_max_length must be a finite number from 1, got -5"),
        ({"model_max_length": True}, "model_max_length must be int or float"),
    ],
)
def test_wrong_settings(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    folder = write(tmp_path, vocab=SMALL, tokenizer_config=config)
    with pytest.raises((CheckpointError, InputError), match=message):
        BertTokenizer.from_pretrained(folder)


def test_a_length_beyond_all_numbers(tmp_path: Path) -> None:
    (write(tmp_path, vocab=SMALL) / "tokenizer_config.json").write_text('{"model_max_length": 1e400}')
    with pytest.raises(CheckpointError, match="it holds 1e400, which is too large for a number"):
        BertTokenizer.from_pretrained(tmp_path)


def test_files_that_contradict_each_other(saved: Path) -> None:
    write(saved, vocab=[*SMALL[:5], "c", *SMALL[6:7], "a", *SMALL[8:]])
    with pytest.raises(CheckpointError, match=r"vocab\.txt:6 gives 'c' the number 5, but in .*json it has 7"):
        BertTokenizer.from_pretrained(saved)
    write(saved, vocab=SMALL[:-1])
    with pytest.raises(CheckpointError, match="only 9 of them"):
        BertTokenizer.from_pretrained(saved)


def test_a_cased_vocabulary_asks_for_a_decision(shared: Path, tmp_path: Path) -> None:
    """Lower-casing it, the default everywhere, would quietly turn half of all words into [UNK]."""
    shutil.copy(vocab_file(shared, "cased"), tmp_path / "vocab.txt")
    with pytest.raises(CheckpointError, match="do_lower_case=False"):
        BertTokenizer.from_pretrained(tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no vocab\.txt and no tokenizer\.json"):
        BertTokenizer.from_pretrained(tmp_path)
    with pytest.raises(CheckpointError):
        BertTokenizer.from_pretrained(tmp_path / "absent")
    with pytest.raises(CheckpointError, match=r"absent\.txt does not exist"):
        FullTokenizer(tmp_path / "absent.txt")
    with pytest.raises(InputError, match="either vocab"):
        BertTokenizer()
    with pytest.raises(InputError, match="either vocab"):
        BertTokenizer({"a": 0}, vocab_file="x")


def test_an_absurdly_large_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "vocab.txt").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(CheckpointError, match=r"1,000,000,000,000 bytes"):
        BertTokenizer.from_pretrained(tmp_path)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tokenizer = BertTokenizer({token: number for number, token in enumerate(SMALL)})
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="cannot be written"):
        tokenizer.save_pretrained(tmp_path / "file")
    odd = BertTokenizer({token: number for number, token in enumerate([*SMALL, "x\ny"])})
    with pytest.raises(CheckpointError, match="cannot stand on a line"):
        odd.save_pretrained(tmp_path / "folder")


@pytest.mark.parametrize("token", ["<a:b>", "$A"])
def test_a_token_that_no_template_holds(token: str) -> None:
    vocab = {each: number for number, each in enumerate([*SMALL, token])}
    for name in ("cls_token", "sep_token"):
        with pytest.raises(CheckpointError, match=r"must have no ':' and not begin with '\$'.*; choose another"):
            BertTokenizer(vocab, **{name: token})


def test_a_tokenizer_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    paths = BertTokenizer({token: number for number, token in enumerate(SMALL)}).save_pretrained("~/mine")
    assert str(tmp_path / "mine" / "vocab.txt") in paths
    assert len(BertTokenizer.from_pretrained("~/mine")) == len(SMALL)


def test_saving_over_another_tokenizer_leaves_nothing_of_it(tmp_path: Path) -> None:
    """added_tokens.json is read and never written: an old one would add its tokens to the new tokenizer."""
    write(tmp_path, vocab=SMALL, added_tokens={"zzz": 10})
    assert len(BertTokenizer.from_pretrained(tmp_path)) == 11
    BertTokenizer({token: number for number, token in enumerate(SMALL)}).save_pretrained(tmp_path)
    assert len(BertTokenizer.from_pretrained(tmp_path)) == 10


DISK_FULL = """
import resource, signal, sys
from bertkit import BertTokenizer
from bertkit.errors import ResourceError
tokenizer = BertTokenizer({**BertTokenizer.from_pretrained(sys.argv[1]).vocab, "new": 10})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
room = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (room, -1))
try:
    tokenizer.save_pretrained(sys.argv[1])
except ResourceError as error:
    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))  # what is printed goes to a file
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("room", [10, 500])  # none; for vocab.txt and not for tokenizer.json
def test_a_full_disk_leaves_the_old_tokenizer(room: int, tmp_path: Path) -> None:
    """A limit on file sizes makes the system refuse the write in the middle, as a full disk does."""
    BertTokenizer({token: number for number, token in enumerate(SMALL)}).save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(before["vocab.txt"]) < 500 < len(before["tokenizer.json"])
    done = run_forked(DISK_FULL, str(tmp_path), str(room))
    assert "the tokenizer cannot be written to" in done.stdout
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "link to nothing"])
def test_what_is_no_regular_file_is_not_passed_over(name: str, kind: str, tmp_path: Path) -> None:
    """The other file alone would do, and could be another tokenizer."""
    BertTokenizer({"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5}).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tmp_path)  # a control
    file = tmp_path / name
    file.unlink()
    AutoTokenizer.from_pretrained(tmp_path)  # a control: it may be absent
    {"pipe": os.mkfifo, "folder": os.mkdir, "link to nothing": lambda path: os.symlink("nothing", path)}[kind](file)
    for read in (AutoTokenizer.from_pretrained, BertTokenizer.from_pretrained):
        with pytest.raises(CheckpointError, match=f"{name} is there, but is no regular file"):
            read(tmp_path)


def test_added_tokens_of_old_folders_have_the_flags_that_transformers_gives_them(tmp_path: Path) -> None:
    """Named ones are special; others are found in normalized text; a tokenizer.json knows better than this file."""
    vocab = [*SMALL, "[E1]"]
    named = {"additional_special_tokens": ["[E1]"]}
    folder = write(tmp_path / "old", vocab=vocab, special_tokens_map=named, added_tokens={"covid": len(vocab)})
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.tokenize("the COVID [E1] !") == ["the", "covid", "[E1]", "!"]
    assert len(vocab) - 1 in tokenizer.all_special_ids
    saved = tmp_path / "saved"
    known = BertTokenizer({token: number for number, token in enumerate(SMALL)})
    known.add_tokens(["covid"])
    known.save_pretrained(saved)
    change(saved / "tokenizer.json", lambda values: values["added_tokens"][-1].update(normalized=True))
    change(saved / "tokenizer_config.json", lambda values: values.pop("added_tokens_decoder", None))
    write(saved, added_tokens={"covid": len(SMALL)})
    assert AutoTokenizer.from_pretrained(saved).tokenize("COVID") == ["covid"]
