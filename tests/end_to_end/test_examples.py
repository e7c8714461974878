"""The examples run, and print what the five tutorials print as far as it does not depend on bert-base's weights.

Ids, tokens, masks, shapes and keys are copied from the tutorials' printed outputs; the vocabulary is the one of
bert-base-uncased. Shapes are those of a BERT of base size, whose weights are drawn at random here.
"""

from __future__ import annotations

import csv
import importlib
import json
import lzma
import re
import shutil
import sys
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from bertkit import BertConfig, BertForPreTraining, BertModel, BertTokenizer
from bertkit.hub import Encoder, Preprocess
from pipeline_helpers import save_tiny
from tokenizer_helpers import vocab_file

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: Examples draw pictures.
DRAWS = True


def example(name: str) -> ModuleType:
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return importlib.import_module(name)


@pytest.fixture(scope="module")
def tokenizer(shared: Path) -> BertTokenizer:
    return BertTokenizer(vocab_file=vocab_file(shared, "uncased"))


@pytest.fixture(scope="module")
def base() -> BertModel:
    """BERT-base's shape; cheap random weights."""
    with torch.device("meta"):
        model = BertModel(BertConfig())
    model.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.05, 0.05)
    return model.eval()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Path:
    """A two-layer BERT with both pre-training heads and the real vocabulary."""
    folder = save_tiny(
        tmp_path_factory.mktemp("tiny"), BertForPreTraining, vocab_size=30522, max_position_embeddings=512
    )
    shutil.copy(vocab_file(shared, "uncased"), folder / "vocab.txt")
    return folder


@pytest.fixture(scope="module")
def tweets(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first of the tweets: reading all 27,000 is not what is tested."""
    file = tmp_path_factory.mktemp("tweets") / "train.csv"
    source, how = shared / "data" / "tweet_sentiment" / "train.csv.xz", {"encoding": "utf-8", "newline": ""}
    with lzma.open(source, "rt", **how) as every, file.open("w", **how) as few:
        csv.writer(few).writerows(islice(csv.reader(every), 101))
    return file


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


def test_tf_hub_prints_what_the_tutorial_prints(
    base: BertModel, tokenizer: BertTokenizer, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = example("introduction_tf_hub")
    inputs = module.to_ids(Preprocess(tokenizer))
    assert list(inputs) == ["input_word_ids", "input_mask", "input_type_ids"]
    assert all(values.shape == (2, 128) and values.dtype == torch.int32 for values in inputs.values())
    assert inputs["input_mask"].tolist() == [[1] * 8 + [0] * 120] * 2
    assert inputs["input_type_ids"].tolist() == [[0] * 128] * 2
    assert inputs["input_word_ids"][:, [0, 7]].tolist() == [[101, 102]] * 2
    results = module.to_vectors(Encoder(base), inputs)
    assert list(results) == ["encoder_outputs", "pooled_output", "default", "sequence_output"]
    assert len(results["encoder_outputs"]) == 12
    assert all(layer.shape == (2, 128, 768) for layer in results["encoder_outputs"])
    equal = results["encoder_outputs"][-1] == results["sequence_output"]
    assert equal.shape == (2, 128, 768)
    assert equal.all()
    assert results["pooled_output"].shape == (2, 768)
    capsys.readouterr()
    module.main(["--model", str(tiny)])
    told = capsys.readouterr().out
    assert "bert-base-uncased    L=12  H= 768  A=12  109 million parameters" in told
    assert "[CLS] computers are not unique to computers [SEP]" in told
    assert "input_type_ids: [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0]" in told


TWEETS_PRINTED = """\
idx:       0, token:  [PAD]
idx:     101, token:  [CLS]
idx:     102, token:  [SEP]
idx:     103, token:  [MASK]
idx:   10030, token:  vacant
idx:    3029, token:  organization
idx:    5142, token:  concern
input_ids: 
tensor([[  101,  1045,  2001, 24907,   999,   102,  1045, 10749,  2300,  1024,
          1040,   102]])

token_type_ids: 
tensor([[0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]])

attention_mask: 
tensor([[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]])

tokens: [CLS] i was thirsty ! [SEP] i drank water : d [SEP]
"""


def test_sentence_encoder_prints_what_the_tutorial_prints(
    base: BertModel, tokenizer: BertTokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    module = example("sentence_encoder_tweets")
    inputs = module.tokens(tokenizer)
    assert capsys.readouterr().out.endswith(TWEETS_PRINTED)
    assert module.embeddings(base) == {"position": [512, 768], "token": [30522, 768], "sentence": [2, 768]}
    told = capsys.readouterr().out
    for line in (
        "dim. of position embeddings: [512, 768]",
        "dim. of token embeddings: [30522, 768]",
        "dim. of sentence embeddings: [2, 768]",
        "(word_embeddings): Embedding(30522, 768, padding_idx=0)",
        "(LayerNorm): LayerNorm((768,), eps=1e-12, elementwise_affine=True",
        "(dropout): Dropout(p=0.1)",
        "(0-11): 12 x EncoderLayer(",
    ):
        assert line in told
    hidden, pooled = module.outputs(base, tokenizer, inputs)
    assert (hidden.shape, pooled.shape) == ((1, 12, 768), (1, 768))
    shown = [line.split(" -> ")[0].strip() for line in capsys.readouterr().out.splitlines() if " -> [" in line]
    assert shown == "[CLS] i was thirsty ! [SEP] i drank water : d [SEP]".split()


def test_sentiment_of_tweets_is_learned_on_a_frozen_encoder(minilm: Path, tweets: Path) -> None:
    module = example("sentence_encoder_tweets")
    model, tokenizer = BertModel.from_pretrained(minilm), BertTokenizer.from_pretrained(minilm)
    before = {name: p.clone() for name, p in model.named_parameters()}
    losses, accuracy, constant = module.sentiment(model, tokenizer, tweets, 64, 8)
    assert losses[-1] < losses[0] - 0.05
    assert 0 < constant < 1
    assert 0 <= accuracy <= 1
    assert all(torch.equal(p, before[name]) and not p.requires_grad for name, p in model.named_parameters())


def test_maps_and_attention_are_drawn_by_their_scripts(tiny: Path, tweets: Path, tmp_path: Path) -> None:
    """On a few rows; what they show is looked at below."""
    maps = ["--data", str(tweets), "--rows", "50", "--out", str(tmp_path / "maps")]
    example("maps_of_tweets").main([*maps, "--model", str(tiny)])
    assert {"tweets-pca.png", "tweets-tsne.png", "bank-0.png"} < {path.name for path in (tmp_path / "maps").iterdir()}
    module = example("attention_of_a_sentence")
    found = module.heads_of_a_sentence(tiny, module.TEXT, tmp_path)
    assert found.maps["encoder"].values.shape[:2] == (2, 4)
    assert {"heads.png", "attention.html"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.campaign
def test_maps_of_tweets_and_of_the_word_bank(
    minilm: Path, shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = example("maps_of_tweets")
    data = shared / "data" / "tweet_sentiment" / "train.csv.xz"
    trusted = module.tweets(minilm, data, 300, tmp_path)
    assert trusted["tsne"] > trusted["pca"] + 0.1 > 0.6
    cosines = module.pieces(minilm, tmp_path)
    assert cosines[0] > 0.9 > cosines[6] + 0.2
    module.space(minilm, data, 100, tmp_path)
    pictures = {"tweets-pca.png", "tweets-tsne.png", "tweets-pca.html", "tweets-tsne.html", "bank-0.png", "bank-6.png"}
    assert {path.name for path in tmp_path.iterdir()} == {*pictures, "space.png"}
    assert "label by the 10 nearest texts" in capsys.readouterr().out


def test_workflow_prints_what_the_tutorial_prints(
    base: BertModel, tokenizer: BertTokenizer, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = example("architecture_and_workflow")
    assert (tokenizer.vocab_size, tokenizer.model_max_length) == (30522, 512)
    assert (tokenizer.padding_side, tokenizer.truncation_side) == ("right", "right")
    special = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}
    assert {token: tokenizer.convert_tokens_to_ids(token) for token in tokenizer.all_special_tokens} == special
    ids = [101, 14324, 2003, 1037, 10938, 2121, 2944, 1012, 2009, 2003, 2109, 2005, 2536, 17953, 2361, 8518, 1012, 102]
    inputs = module.tokenization(tokenizer)
    assert columns(inputs) == {"input_ids": [ids], "token_type_ids": [[0] * 18], "attention_mask": [[1] * 18]}
    out = module.encoder(base, inputs)
    assert (out.last_hidden_state.shape, out.pooler_output.shape) == ((1, 18, 768), (1, 768))
    told = capsys.readouterr().out
    assert "Last Hidden State Shape:  torch.Size([1, 18, 768])\nPooled Output Shape:  torch.Size([1, 768])" in told
    assert "12 layers of 12 heads, d_k = 64" in told
    inputs, place, word = module.masked_lm(tiny, tokenizer)
    masked = [101, 14324, 2003, 103, 1037, 2944, 2005, 17953, 2361, 8518, 1012, 102]
    assert columns(inputs) == {"input_ids": [masked], "token_type_ids": [[0] * 12], "attention_mask": [[1] * 12]}
    assert place.tolist() == [3]
    assert word
    inputs, logits = module.next_sentence(tiny, tokenizer)
    pair = [*ids[:8], 102, *ids[8:]]
    types = [0] * 9 + [1] * 10
    assert columns(inputs) == {"input_ids": [pair], "token_type_ids": [types], "attention_mask": [[1] * 19]}
    assert logits.shape == (1, 2)


def test_the_training_step_that_failed_is_done(tokenizer: BertTokenizer, minilm: Path, capsys: Any) -> None:
    module = example("architecture_and_workflow")
    inputs, losses = module.fine_tuning(minilm, tokenizer, steps=2)
    awesome = [101, 14324, 2003, 12476, 999, 102]
    assert columns(inputs) == {"input_ids": [awesome], "token_type_ids": [[0] * 6], "attention_mask": [[1] * 6]}
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]
    told = capsys.readouterr().out
    as_column = float(re.search(r"of shape \(1, 1\), which are read as \(1,\): ([\d.]+)", told)[1])  # type: ignore[index]
    assert as_column == pytest.approx(losses[0], rel=1e-5)
    assert "2 new, 2 unused in the file: classifier.weight, classifier.bias" in told  # mean pooling has no pooler


def test_a_missing_head_is_said_and_drawn_anew(tokenizer: BertTokenizer, minilm: Path, capsys: Any) -> None:
    _, logits = example("architecture_and_workflow").next_sentence(minilm, tokenizer)
    assert logits.shape == (1, 2)
    assert "not a next-sentence model" in capsys.readouterr().out


def test_the_background_holds(minilm: Path, shared: Path) -> None:
    module = example("bert_background")
    model, tokenizer = BertModel.from_pretrained(minilm), BertTokenizer.from_pretrained(minilm)
    with torch.inference_mode():
        cosines = module.words_in_context(model, tokenizer)
        same, other = (cosines[0, 1], cosines[2, 3]), cosines[:2, 2:]
        assert min(same) > other.max()
        assert min(module.both_sides(model, tokenizer).values()) > 0.05
        assert module.word_arithmetic(model, tokenizer)[0] == "queen"
        assert module.attention_by_hand(model, tokenizer) < 1e-6
    shares = module.masking(tokenizer)
    # Some 3,000 tokens are chosen: four standard deviations of 0.8 and 0.1 are 0.03 and 0.022.
    assert shares == pytest.approx(
        {"to be predicted": 0.15, "[MASK]": 0.8, "random": 0.1, "left as it is": 0.1}, abs=0.03
    )
    text = shared / "data" / "pretrain_text" / "google_bert_sample_text.txt"
    assert 0.5 < module.next_sentences(tokenizer, text) < 0.8
    assert module.one_more_layer(minilm) == ("classifier.weight", "classifier.bias")


@pytest.mark.filterwarnings("ignore:.* longer than max_length:UserWarning")
def test_annotated_bert_runs_whole(tiny: Path, shared: Path, tmp_path: Path, capsys: Any) -> None:
    module = example("annotated_bert")
    out = tmp_path / "examples.jsonl"
    for split in ("train", "test"):  # the first rows: reading 15,000 reviews is not what is tested
        with lzma.open(shared / "data" / "imdb" / f"{split}.jsonl.xz", "rt", encoding="utf-8") as lines:
            (tmp_path / f"{split}.jsonl").write_text("".join(islice(lines, 16)), encoding="utf-8")
    arguments = ["--model", str(tiny), "--out", str(out), "--steps", "3", "--reviews", "16", "--freeze"]
    arguments += ["--imdb", str(tmp_path)]
    module.main(arguments)
    told = capsys.readouterr().out
    for line in (
        "get_sequence_output(): (1, 17, 32)",
        "get_all_encoder_layers(): 2 layers",
        "full       una ##ffa ##ble transformers token ##ize naive words , 北 京 too !",
        "3668 examples to train on, 408 dev; the first: InputExample(guid='train-1', text_a='Amrozi accused",
        "109,483,778 parameters, 109,482,240 of them in the encoder",
        "343 steps of 32, 34 of them warm-up",
        "16 reviews to train on, 8 to score on",
    ):
        assert line in told
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert len(rows) > 20
    assert all(row["tokens"][0] == "[CLS]" and len(row["tokens"]) <= 64 for row in rows)


def test_annotated_bert_computes_what_it_says(tiny: Path, tokenizer: BertTokenizer, shared: Path) -> None:
    """The parts that are stubs in the notebook: a layer by hand, the classifier's loss, pre-training that learns."""
    module = example("annotated_bert")
    full = module.tokenization.FullTokenizer(tokenizer.vocab)
    model = BertModel.from_pretrained(tiny)
    with torch.no_grad():
        assert module.layer_from_inside(model, tokenizer) < 1e-5
        result = module.classification(model, full)
    labels = torch.tensor([1, 0])
    torch.testing.assert_close(result["loss"], torch.nn.functional.cross_entropy(result["logits"], labels))
    torch.testing.assert_close(result["probabilities"].sum(-1), torch.ones(2))
    text = shared / "data" / "pretrain_text" / "google_bert_sample_text.txt"
    losses = module.pretraining(tiny, module.pretraining_data(full, text, None), full, 8)
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.campaign
def test_attention_of_a_sentence_is_drawn(minilm: Path, tmp_path: Path, capsys: Any) -> None:
    """Heads that look at the neighbor, and one in which the pronoun finds its noun."""
    module = example("attention_of_a_sentence")
    module.main(["--out", str(tmp_path)])
    told = capsys.readouterr().out
    names = {"heads.png", "attention.html", "lines.png", "rollout.png", "statistics.png", "statistics.html"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert "attention: 6 layers of 12 heads, 15 tokens" in told
    found = module.heads_of_a_sentence(minilm, module.TEXT, tmp_path)
    layer, head = module.head_for_a_word(found, "it", "animal")
    rows = found.maps["encoder"].rows
    assert found.maps["encoder"].values[layer - 1, head - 1, rows.index("it"), rows.index("animal")] > 0.5
    assert module.heads_over_texts(minilm, tmp_path).values["previous"].max() > 0.9


def test_verification_agrees_with_transformers(tiny: Path) -> None:
    """On weights that are here: with the numbers that transformers computes, every check passes; with others, not."""
    module = example("verify_bert_base")
    printed = printed_by_transformers(module, tiny)
    told: list[str] = []
    assert module.verify(tiny, printed, told.append) == []
    assert len(told) == 13
    assert all(line.startswith("ok") for line in told)
    for name, value in (
        ("next_sentence", (9.0, 9.0)),
        ("masked_lm.answer", (0, "[PAD]")),
        ("tokens.pooled", [9.0] * 10),
    ):
        wrong = module.verify(tiny, {**printed, name: value}, told.append)
        assert len(wrong) == 1
        assert str(wrong[0]).startswith("FAIL")


def test_verification_says_when_nothing_was_checked(tiny: Path, tmp_path: Path, capsys: Any) -> None:
    module = example("verify_bert_base")
    assert module.main(["--model", str(tmp_path / "nowhere")]) == 3
    assert "NOTHING WAS CHECKED" in capsys.readouterr().err
    assert module.main(["--model", str(tiny)]) == 1
    assert "12 checks failed" in capsys.readouterr().out  # the tokens are right, for the vocabulary is
    encoder = tmp_path / "encoder"
    BertModel.from_pretrained(tiny).save_pretrained(encoder)
    shutil.copy(tiny / "vocab.txt", encoder)
    assert module.main(["--model", str(encoder)]) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert "NOTHING WAS CHECKED" in told.err


def columns(inputs: Any) -> dict[str, list[list[int]]]:
    return {name: values.tolist() for name, values in inputs.items()}


def printed_by_transformers(module: ModuleType, folder: Path) -> dict[str, Any]:
    """:data:`verify_bert_base.PRINTED` for the weights of ``folder``."""
    import transformers

    transformers.logging.set_verbosity_error()
    model = transformers.BertModel.from_pretrained(folder)
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    ends = list(module.ENDS)

    def rows(values: torch.Tensor, keys: Any) -> dict[Any, list[float]]:
        return {key: values[key][ends].tolist() for key in keys}

    def run(loaded: Any, *texts: str, **keywords: Any) -> Any:
        with torch.no_grad():
            return loaded(**tokenizer(*texts, return_tensors="pt", **keywords))

    names = {"position": "position_embeddings", "token": "word_embeddings", "sentence": "token_type_embeddings"}
    printed: dict[str, Any] = {
        f"embeddings.{name}": rows(getattr(model.embeddings, attribute).weight, module.PRINTED[f"embeddings.{name}"])
        for name, attribute in names.items()
    }
    pair = run(model, "I was thirsty!", "I drank water :D")
    vectors = pair.last_hidden_state[0, :, :10].tolist()
    printed["tokens"] = [(token, row) for (token, _), row in zip(module.PRINTED["tokens"], vectors, strict=True)]
    printed["tokens.pooled"] = pair.pooler_output[0, :10].tolist()
    text = run(model, "BERT is a transformer model. It is used for various NLP tasks.")
    printed["workflow"] = rows(text.last_hidden_state[0], module.PRINTED["workflow"])
    printed["workflow.pooled"] = text.pooler_output[0, :29].tolist()
    logits = run(transformers.BertForMaskedLM.from_pretrained(folder), "BERT is [MASK] a model for NLP tasks.").logits[
        0
    ]
    printed["masked_lm"] = rows(logits, module.PRINTED["masked_lm"])
    best = int(logits[3].argmax())
    printed["masked_lm.answer"] = (best, tokenizer.decode([best]))
    judge = transformers.BertForNextSentencePrediction.from_pretrained(folder)
    pair = run(judge, "BERT is a transformer model.", "It is used for various NLP tasks.")
    printed["next_sentence"] = pair.logits[0].tolist()
    tanh_form = transformers.BertModel.from_pretrained(folder, hidden_act="gelu_new")
    texts = ["This is a spam mail", "Computers are not unique to computers"]
    hub = run(tanh_form, texts, padding="max_length", max_length=128)
    printed["hub.sequence"] = rows(hub.last_hidden_state, module.PRINTED["hub.sequence"])
    printed["hub.pooled"] = rows(hub.pooler_output, module.PRINTED["hub.pooled"])
    return printed


def test_bank_has_other_vectors_in_other_senses(minilm: Path, tmp_path: Path) -> None:
    module, out = example("bank_senses"), tmp_path / "bank.svg"
    (same, other), found = module.main(["--model", str(minilm), "--out", str(out)])
    assert same > other
    assert max(found.layers) > 0.5
    assert found.words[0].static == 0
    assert found.neighbours < max(found.layers)
    assert "river" in out.read_text()
