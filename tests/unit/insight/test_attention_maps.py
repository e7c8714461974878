"""Attention of texts and pairs: equal to that of ``transformers``, joined to words, followed down, refused."""

from __future__ import annotations

import json
import lzma
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import family_folders
from bertkit import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
    T5EncoderModel,
    visualize,
)
from bertkit.engine.closeness import Closeness
from bertkit.engine.export_folder import MANIFEST
from bertkit.errors import ConfigError, InputError, ResourceError, TextError
from bertkit.insight import attention_reader
from bertkit.insight.attention_maps import Attention, merge, rollout
from bertkit.quantization import quantize
from everyday import some
from family_helpers import SHAPES, pair
from pipeline_helpers import VOCABULARY, WORDS, save_tiny

pytestmark = pytest.mark.slow

TEXT = "the film is good and not very bad to great end"
#: Of probabilities in float32, beside those of another order of sums.
CLOSE = 2e-6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"), BertForMaskedLM, num_hidden_layers=3)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> BertTokenizer:
    return BertTokenizer.from_pretrained(folder)


def eager(model: Any, **inputs: Any) -> Any:
    with torch.no_grad():
        return model(**inputs, output_attentions=True)


def stacked(attentions: Any) -> Any:
    """``(L, N, Q, K)`` of a batch of one."""
    return torch.stack(attentions)[:, 0].numpy()


@pytest.mark.parametrize("shape", some(SHAPES, ("bert", "deberta-v3", "modernbert")))
def test_every_family_attends_as_in_transformers(shape: str, tokenizer: BertTokenizer, tmp_path: Path) -> None:
    """Also ModernBERT, whose window is smaller than the text."""
    theirs, ours = pair(shape, "BertModel", tmp_path, vocab_size=len(VOCABULARY))
    found = visualize.attention(TEXT, model=ours, tokenizer=tokenizer)
    ids = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    expected = stacked(eager(theirs, input_ids=ids).attentions)
    np.testing.assert_allclose(found.maps["encoder"].values, expected, atol=CLOSE)
    assert expected.shape[2:] == (13, 13)
    np.testing.assert_allclose(found.matrices, expected[-1], atol=CLOSE)
    assert np.abs(expected[0] - expected[-1]).max() > 1e-3  # a wrong layer would be seen


def test_a_pair_has_segments_and_the_values_are_the_models_own(folder: Path, tokenizer: BertTokenizer) -> None:
    found = visualize.attention("the film", "is good", model=folder)
    inputs = tokenizer("the film", "is good", return_tensors="pt")
    assert inputs["token_type_ids"].sum() == 3
    theirs = transformers.BertModel.from_pretrained(folder, attn_implementation="eager")
    expected = stacked(eager(theirs, **inputs).attentions)
    np.testing.assert_allclose(found.maps["encoder"].values, expected, atol=CLOSE)
    own = BertModel.from_pretrained(folder)
    np.testing.assert_allclose(found.maps["encoder"].values, stacked(eager(own, **inputs).attentions), atol=CLOSE)
    shown = found.maps["encoder"]
    assert shown.rows == shown.columns == ("[CLS]", "the", "film", "[SEP]", "is", "good", "[SEP]")
    assert shown.row_texts == (None, 0, 0, None, 1, 1, None)


@pytest.mark.parametrize("family", some(("mpnet", "modernbert", "deberta-v2", "bart", "t5"), ("mpnet", "bart", "t5")))
def test_folders_with_other_tokenizers_are_read(family: str, tmp_path: Path) -> None:
    """The tokens are shown as people read them, without signs for spaces and bytes."""
    family_folders.make(family, tmp_path / "model", tmp_path)
    found = visualize.attention("the river", model=tmp_path / "model")
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "model", attn_implementation="eager")
    theirs = theirs.get_encoder() if family in family_folders.WRITERS else theirs
    tokens = family_folders.tokenizer(family, tmp_path)("the river", return_tensors="pt")
    expected = stacked(eager(theirs, input_ids=tokens["input_ids"]).attentions)
    np.testing.assert_allclose(found.maps["encoder"].values, expected, atol=CLOSE)
    assert "the" in found.maps["encoder"].rows
    assert not any(set(name) & {"\u0120", "\u2581"} for name in found.maps["encoder"].rows if len(name) > 1)
    # A space that is a token by itself stays one: some tokenizers say that it stands where the next letter does.
    texts = zip(found.maps["encoder"].rows, found.maps["encoder"].row_texts, strict=True)
    shown = [name for name, text in texts if text is not None and name not in ("\u0120", "\u2581")]
    assert "".join(shown).replace("##", "") == "theriver"
    joined = visualize.attention("the river", model=tmp_path / "model", words=True)
    assert [name for name, text in zip(joined.maps["encoder"].rows, joined.maps["encoder"].row_texts, strict=True)
            if text is not None] == ["the", "river"]  # fmt: skip


@pytest.mark.parametrize("family", some(family_folders.WRITERS, ["t5"]))
def test_what_a_decoder_attends_to_is_that_of_transformers(family: str, tmp_path: Path) -> None:
    family_folders.make(family, tmp_path / "model", tmp_path)
    found = visualize.attention("the river is on", "the winter", model=tmp_path / "model")
    tokenizer = family_folders.tokenizer(family, tmp_path)
    read, wrote = (tokenizer(text)["input_ids"] for text in ("the river is on", "the winter"))
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    written = [config["decoder_start_token_id"], *wrote[:-1]]
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "model", attn_implementation="eager")
    out = eager(theirs, input_ids=torch.tensor([read]), decoder_input_ids=torch.tensor([written]))
    for name, expected in (
        ("encoder", out.encoder_attentions),
        ("decoder", out.decoder_attentions),
        ("cross", out.cross_attentions),
    ):
        np.testing.assert_allclose(found.maps[name].values, stacked(expected), atol=CLOSE)
    assert found.part == "cross"
    assert (len(found.maps["cross"].rows), len(found.maps["cross"].columns)) == (len(written), len(read))
    words = visualize.attention("the river is on", "the winter", model=tmp_path / "model", words=True)
    kept = [name for name, text in zip(words.maps["cross"].rows, words.maps["cross"].row_texts, strict=True) if text]
    assert kept == ["the", "winter"]
    np.testing.assert_allclose(words.maps["cross"].values.sum(-1), 1, atol=1e-5)
    to_first, pieces = words.maps["cross"].values[..., 0], found.maps["cross"].values[..., 0]  # of one piece
    second = words.maps["cross"].rows.index("winter")
    assert second + 1 == len(words.maps["cross"].rows)
    np.testing.assert_allclose(to_first[..., :second], pieces[..., :second], atol=CLOSE)
    np.testing.assert_allclose(to_first[..., second], pieces[..., second:].mean(-1), atol=CLOSE)
    assert to_first.shape[-1] == second + 1
    assert visualize.attention("the", "winter", model=tmp_path / "model", view="rollout").part == "encoder"


def test_the_encoder_of_a_t5_reads_one_text(tmp_path: Path) -> None:
    family_folders.make("t5", tmp_path / "model", tmp_path)
    T5EncoderModel.from_pretrained(tmp_path / "model").save_pretrained(tmp_path / "encoder")
    tokenizer = family_folders.tokenizer("t5", tmp_path)
    tokenizer.save_pretrained(tmp_path / "encoder")
    alone, whole = (visualize.attention("the river", model=tmp_path / name) for name in ("encoder", "model"))
    np.testing.assert_array_equal(alone.matrices, whole.matrices)
    for model in (tmp_path / "encoder", T5EncoderModel.from_pretrained(tmp_path / "model")):
        with pytest.raises(InputError, match=r"T5EncoderModel has no decoder, .* give one text"):
            visualize.attention("the river", "the", model=model, tokenizer=tokenizer)


def test_a_model_that_reads_one_way_attends_to_nothing_ahead(tokenizer: BertTokenizer) -> None:
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2, "attention_direction": "left-to-right"}
    model = BertModel(BertConfig(vocab_size=len(VOCABULARY), **sizes))
    found = visualize.attention(TEXT, model=model, tokenizer=tokenizer).maps["encoder"]
    assert np.triu(found.values, 1).max() == 0
    np.testing.assert_allclose(found.values.sum(-1), 1, atol=1e-5)
    heads = visualize.heads([TEXT], model=model, tokenizer=tokenizer)
    assert heads.values["next"].max() == 0
    assert np.isfinite(heads.values["entropy"]).all()


def test_models_in_training_mode_and_in_bytes(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout is off, and the mode of the model stays; a head does not matter."""
    expected = visualize.attention(TEXT, model=folder).maps["encoder"].values
    head = BertForSequenceClassification.from_pretrained(folder, num_labels=2, new_head=True).train()
    found = visualize.attention(TEXT, model=head, tokenizer=folder).maps["encoder"].values
    np.testing.assert_allclose(found, expected, atol=CLOSE)
    assert head.training
    texts = [f"{word} {other} {end}" for word in WORDS[:6] for other in WORDS[:6] for end in WORDS[6:10]]
    monkeypatch.setattr(quantize, "NEAR_ENOUGH", Closeness(-1.0, -1.0, 0.0))
    quantize.quantize(folder, tmp_path / "bytes", texts, any_speed=True)
    in_bytes = visualize.attention(TEXT, model=tmp_path / "bytes").maps["encoder"].values
    inputs = BertTokenizer.from_pretrained(folder)(TEXT, return_tensors="pt")
    own = eager(BertModel.from_pretrained(tmp_path / "bytes"), **inputs)
    np.testing.assert_allclose(in_bytes, stacked(own.attentions), atol=1e-5)


def test_words_are_sums_over_targets_and_means_over_sources(folder: Path) -> None:
    text = "Good filming"  # good film ##i ##n ##g in pieces, of the second word
    pieces = visualize.attention(text, model=folder).maps["encoder"]
    words = visualize.attention(text, model=folder, words=True).maps["encoder"]
    assert pieces.rows[2:-1] != ("filming",)
    assert pieces.rows[3].startswith("##")
    said = visualize.attention(text, model=folder, words=True, view="lines").render()
    assert "3 layers of 4 heads, 4 words and special tokens\n" in said
    assert "what each word attends to most" in said
    assert words.rows == ("[CLS]", "Good", "filming", "[SEP]")  # as in the text, which the model reads in lower case
    spans = [(0, 1), (1, 2), (2, len(pieces.rows) - 1), (len(pieces.rows) - 1, len(pieces.rows))]
    for name, whole, joined in (("values", pieces.values, words.values), ("rollout", pieces.rollout, words.rollout)):
        for row, (start, end) in enumerate(spans):
            for column, (first, last) in enumerate(spans):
                expected = whole[..., start:end, first:last].sum(-1).mean(-1)
                np.testing.assert_allclose(joined[..., row, column], expected, atol=CLOSE, err_msg=name)


def test_words_of_a_pair_stay_apart(folder: Path) -> None:
    """The last word of the first text and the first of the second have numbers of their own."""
    found = visualize.attention("filming", "filming filming", model=folder, words=True).maps["encoder"]
    assert found.rows == ("[CLS]", "filming", "[SEP]", "filming", "filming", "[SEP]")
    assert found.row_texts == (None, 0, None, 1, 1, None)


def test_merge_keeps_rows_that_sum_to_one() -> None:
    values = np.random.default_rng(0).dirichlet(np.ones(5), size=(2, 3, 4)).astype(np.float32)
    merged = merge(values, [0, 1, 1, 2], [0, 0, 1, 2, 2])
    assert merged.shape == (2, 3, 3, 3)
    np.testing.assert_allclose(merged.sum(-1), 1, atol=1e-6)


def test_rollout_is_the_sum_over_all_ways_down() -> None:
    """Of three layers and four tokens, every way from the top to the input one by one."""
    values = np.random.default_rng(0).dirichlet(np.ones(4), size=(3, 2, 4)).astype(np.float32)
    step = values.mean(1) / 2 + np.eye(4) / 2
    found = rollout(values)
    for start in range(4):
        for end in range(4):
            ways = [step[2, start, a] * step[1, a, b] * step[0, b, end] for a in range(4) for b in range(4)]
            assert found[2, start, end] == pytest.approx(sum(ways), abs=1e-6)
    np.testing.assert_allclose(found[0], step[0], atol=1e-6)


def test_views_have_the_numbers_that_they_name(folder: Path) -> None:
    def of(**options: Any) -> Attention:
        return visualize.attention(TEXT, model=folder, **options)

    values = of().maps["encoder"].values
    np.testing.assert_array_equal(of(layer=1).matrices, values[0])
    np.testing.assert_array_equal(of(layer=-3).matrices, values[0])
    np.testing.assert_array_equal(of(view="lines", layer=2, head=3).matrices, values[1, 2][None])
    np.testing.assert_allclose(of(view="lines").matrices, values[2].mean(0)[None], atol=1e-6)
    np.testing.assert_allclose(of(view="average").matrices, values.mean((0, 1))[None], atol=1e-6)
    np.testing.assert_allclose(of(view="average", layer=2).matrices, values[1].mean(0)[None], atol=1e-6)
    np.testing.assert_allclose(of(view="rollout", layer=2).matrices, rollout(values)[1][None], atol=1e-6)
    np.testing.assert_allclose(of(view="rollout").matrices, rollout(values)[2][None], atol=1e-6)
    said = of(view="lines", layer=2, head=3).to_dict()
    assert (said["layer"], [each["head"] for each in said["matrices"]]) == (2, [3])
    np.testing.assert_allclose(said["matrices"][0]["weights"], values[1, 2], atol=1e-6)
    assert [each["head"] for each in of().to_dict()["matrices"]] == [1, 2, 3, 4]


def test_what_is_shown_in_a_terminal_names_the_strongest(folder: Path) -> None:
    found = visualize.attention("the film", model=folder)
    values = np.zeros((1, 1, 4, 4), np.float32)
    values[0, 0, :, 0] = 1
    values[0, 0, 1] = [0.25, 0, 0.75, 0]
    made = replace(found, maps={"encoder": replace(found.maps["encoder"], values=values)}, layer=1)
    assert made.render().splitlines()[-1] == "  head 1  the → film 0.75"
    assert "  the    film 0.75, [CLS] 0.25" in replace(made, view="lines", head=1).render()


def test_a_text_of_one_token_and_one_that_is_cut(folder: Path) -> None:
    assert visualize.attention("film", model=folder).maps["encoder"].rows == ("[CLS]", "film", "[SEP]")
    with pytest.raises(TextError, match="has 72 tokens, special tokens included; the limit is 64"):
        visualize.attention("good " * 70, model=folder)
    cut = visualize.attention("good " * 70, model=folder, truncation=True)
    assert len(cut.maps["encoder"].rows) == 64
    cut = visualize.attention("good " * 70, model=folder, truncation=True, max_length=10)
    assert cut.maps["encoder"].values.shape == (3, 4, 10, 10)


def test_without_a_limit_a_text_has_512_tokens_at_most(tmp_path: Path) -> None:
    model = save_tiny(tmp_path, max_position_embeddings=600, num_hidden_layers=1, num_attention_heads=1)
    with pytest.raises(TextError, match="the limit is 512"):
        visualize.attention("good " * 520, model=model)
    assert visualize.attention("good " * 520, model=model, max_length=600).matrices.shape == (1, 522, 522)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"layer": 4}, InputError, "the model has no layer 4: it has 3, counted from 1; -1 is the top"),
        ({"layer": 0}, InputError, "no layer 0"),
        ({"layer": -4}, InputError, "no layer -4"),
        ({"view": "lines", "head": 5}, InputError, "no head 5: each layer has 4"),
        ({"view": "lines", "head": 0}, InputError, "no head 0"),
        ({"head": 1}, InputError, "head=1 is for view='lines'"),
        ({"view": "line"}, InputError, r"view must be one of .*got 'line' \(did you mean 'lines'\?\)"),
        ({"part": "cross"}, InputError, "part='cross' is for a pair"),
        ({"part": "crosses"}, InputError, "part must be one of None, encoder"),
        ({"max_length": 65}, InputError, "max_length must be from 3 to 64 for this model, got 65"),
        ({"text": " \n"}, TextError, "is empty"),
        ({"text": "", "text_pair": " "}, TextError, "is empty"),
    ],
)
def test_what_cannot_be_is_refused(folder: Path, options: dict[str, Any], error: type[Exception], told: str) -> None:
    given = {"text": TEXT, "model": folder, **options}
    with pytest.raises(error, match=told):
        visualize.attention(**given)


def test_models_without_attention_are_refused(folder: Path, tokenizer: BertTokenizer, monkeypatch: Any) -> None:
    none = BertModel(BertConfig(vocab_size=len(VOCABULARY), hidden_size=8, num_attention_heads=2, num_hidden_layers=0))
    with pytest.raises(InputError, match="has no layers, and so no attention"):
        visualize.attention(TEXT, model=none, tokenizer=tokenizer)
    with pytest.raises(InputError, match="tokenizer"):
        visualize.attention(TEXT, model=none)
    monkeypatch.setattr(attention_reader, "MOST_BYTES", 1000)
    with pytest.raises(ResourceError, match="choose a smaller max_length"):
        visualize.attention(TEXT, model=folder)


def test_an_exported_model_says_what_to_use(folder: Path, tmp_path: Path) -> None:
    exported = Path(shutil.copytree(folder, tmp_path / "exported"))
    (exported / MANIFEST).write_text("{}")
    with pytest.raises(InputError, match=r"is an exported model.* use the model that it was exported from"):
        visualize.attention(TEXT, model=exported)


def test_an_unknown_ending_is_refused_before_anything_is_written(folder: Path, tmp_path: Path) -> None:
    found = visualize.attention("the film", model=folder)
    with pytest.raises(ConfigError, match="the name must end in"):
        found.save(tmp_path / "heads.gif")
    assert not list(tmp_path.iterdir())


@pytest.mark.campaign
def test_real_weights_attend_as_in_transformers(minilm: Path, shared: Path) -> None:
    """MiniLM on sentences and pairs, and the sum over layers and heads that ``heads`` makes of them."""
    with lzma.open(shared / "data" / "imdb" / "test.jsonl.xz", "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"][:400] for line in islice(lines, 40)]
    tokenizer = BertTokenizer.from_pretrained(minilm)
    theirs = transformers.BertModel.from_pretrained(minilm, attn_implementation="eager")
    largest, entropies, count = 0.0, np.zeros((6, 12)), 0
    for number, (first, second) in enumerate(zip(texts[::2], texts[1::2], strict=True)):
        pair = (first, second) if number % 2 else (first, None)
        expected = stacked(eager(theirs, **tokenizer(*pair, return_tensors="pt")).attentions)
        found = visualize.attention(*pair, model=minilm).maps["encoder"].values
        largest = max(largest, float(np.abs(found - expected).max()))
        entropies += -(expected * np.log(np.maximum(expected, 1e-30))).sum((-2, -1), dtype=np.float64)
        count += expected.shape[-1]
    print(f"largest difference of {count} rows in 72 heads: {largest:.1e}")
    assert largest < 1e-5
    pairs = [
        {"text": a, "text_pair": b} if n % 2 else a
        for n, (a, b) in enumerate(zip(texts[::2], texts[1::2], strict=True))
    ]
    np.testing.assert_allclose(visualize.heads(pairs, model=minilm).values["entropy"], entropies / count, rtol=1e-4)
