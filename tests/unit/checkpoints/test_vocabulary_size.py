"""How many tokens lie beside the weights, counted as the tokenizer counts them and without reading more than needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from bertkit import BertConfig, BertModel, BertTokenizer, CheckpointError
from bertkit.checkpoints.huggingface import check_vocabulary, find_vocabulary
from bertkit.checkpoints.inspect import inspect
from bertkit.tokenization.formats import tokenizer_files

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", '":99', "x["]
CONFIG = BertConfig(
    vocab_size=len(TOKENS), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
    max_position_embeddings=16,
)  # fmt: skip


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\n\n\n", "\r\n\r\n"])
def test_blank_lines_at_the_end_of_a_vocabulary_are_no_tokens(tmp_path: Path, end: str) -> None:
    BertModel(CONFIG).save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_bytes(("\n".join(TOKENS) + end).encode())
    BertModel.from_pretrained(tmp_path)
    assert len(BertTokenizer.from_pretrained(tmp_path)) == len(TOKENS)
    found = find_vocabulary(tmp_path)
    assert found is not None
    assert found.size == len(TOKENS)
    (tmp_path / "vocab.txt").write_bytes(("\n".join([*TOKENS, "more"]) + end).encode())
    with pytest.raises(CheckpointError, match=r"has 10 tokens, but the embedding table has only 9 rows"):
        BertModel.from_pretrained(tmp_path)


def write_json(folder: Path, tokens: Sequence[str], *, scored: bool, indent: int | None) -> None:
    vocab = [[token, -1.5] for token in tokens] if scored else {token: at for at, token in enumerate(tokens)}
    content = {"model": {"vocab": vocab}, "added_tokens": [{"id": 0, "content": "[PAD]"}]}
    (folder / "tokenizer.json").write_text(json.dumps(content, indent=indent))


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("scored", [False, True])
def test_a_large_tokenizer_json_is_not_parsed_to_count_it(
    tmp_path: Path, scored: bool, indent: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = [*TOKENS, *(f'[{number}"' for number in range(500))]
    write_json(tmp_path, tokens, scored=scored, indent=indent)
    found = find_vocabulary(tmp_path)
    assert found is not None
    assert found.size == len(tokens)
    check_vocabulary(tmp_path, CONFIG.replace(vocab_size=len(tokens)))
    with pytest.raises(CheckpointError, match=f"has {len(tokens)} tokens"):
        check_vocabulary(tmp_path, CONFIG.replace(vocab_size=len(tokens) - 1))

    def parse(*_: object, **__: object) -> None:
        raise AssertionError("it was parsed")

    monkeypatch.setattr(tokenizer_files, "strict_json", parse)
    check_vocabulary(tmp_path, CONFIG.replace(vocab_size=len(tokens)))


def test_the_files_of_other_tokenizers(tmp_path: Path) -> None:
    """RoBERTa's vocabulary is counted, ALBERT's is only named."""
    BertModel(CONFIG).save_pretrained(tmp_path)
    assert inspect(tmp_path).tokenizer is None
    for name in ("sentencepiece.bpe.model", "spm.model", "spiece.model"):
        (tmp_path / name).write_bytes(b"pieces")
        assert f"an unknown number of tokens in {name}" in inspect(tmp_path).render()
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 8, "b": 0}))
    assert "9 tokens in vocab.json" in inspect(tmp_path).render()
    BertModel.from_pretrained(tmp_path)
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 9, "b": 0}))
    with pytest.raises(CheckpointError, match=r"vocab\.json has 10 tokens, but the embedding table has only 9 rows"):
        BertModel.from_pretrained(tmp_path)
