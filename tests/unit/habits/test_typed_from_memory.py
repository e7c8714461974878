"""What people type from memory of other libraries, and did not work at the first try."""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import openpyxl
import pandas as pd
import pytest
import torch
import transformers
from sentence_transformers.sentence_transformer.modules import Pooling

import bertkit
from bertkit import BertConfig, BertForSequenceClassification, SchedulerType, TrainingArguments
from bertkit.cli import main
from bertkit.config.file_columns import Columns
from bertkit.errors import BertkitError, ConfigError, DataError, InputError
from bertkit.habits.few_shot_data import get_templated_dataset
from bertkit.habits.followed import called_with_trial
from bertkit.optim import parameter_groups
from bertkit.sentence_transformers import SimilarityFunction, models, util
from bertkit.system.console import say
from bertkit.tasks.reading.bad_rows import BadRows
from bertkit.tasks.reading.tables import open_table
from bertkit.tasks.text.csv_task import csv_task
from pipeline_helpers import save_tiny

SHAPE = {
    "vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
    "max_position_embeddings": 20,
}  # fmt: skip


def test_a_new_vocabulary_where_special_tokens_have_high_ids(tmp_path: Path) -> None:
    """As in BERT's own vocabulary, where [UNK] is 100."""
    vocabulary = tmp_path / "vocab.txt"
    words = ["[PAD]", *(f"[unused{n}]" for n in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    vocabulary.write_text("\n".join(words))
    old, texts = bertkit.BertTokenizer(vocabulary), ["ab cd ab", "abab efgh"] * 5
    old.save_pretrained(tmp_path)
    expected = transformers.AutoTokenizer.from_pretrained(tmp_path).train_new_from_iterator(texts, 40)
    new = old.train_new_from_iterator(texts, 40)
    assert set(new.get_vocab()) == set(expected.get_vocab())
    assert new.tokenize("ab cd xyz") == expected.tokenize("ab cd xyz")
    assert {str(each): new.convert_tokens_to_ids(each) for each in new.all_special_tokens} == {
        each: expected.convert_tokens_to_ids(each) for each in expected.all_special_tokens}  # fmt: skip
    assert old.unk_token_id == 100 != new.unk_token_id


def test_both_ways_to_leave_norms_without_decay_that_the_page_names() -> None:
    model = BertForSequenceClassification(BertConfig(**SHAPE))
    groups = parameter_groups(model, weight_decay=0.01)
    kept = {name for group in groups if not group["weight_decay"] for name in group["names"]}
    names = [name for name, _ in model.named_parameters()]
    assert {name for name in names if any(part in name for part in ("bias", "norm", "Norm"))} == kept
    assert {name for name in names if any(part in name for part in ("bias", "LayerNorm.weight"))} != kept  # a control


def test_labels_and_the_loss_of_a_config_can_be_set(tmp_path: Path) -> None:
    model = BertForSequenceClassification(BertConfig(**SHAPE, num_labels=3))
    model.config.id2label = {0: "a", 1: "b", 2: "c"}
    model.config.label2id = {"a": 0, "b": 1, "c": 2}
    assert model.bert.config.id2label == {0: "a", 1: "b", 2: "c"}
    model.config.label2id = {"x": 0, "y": 1, "z": 2}
    model.config.problem_type = "multi_label_classification"
    model.config.pad_token_id = model.config.num_labels - 3  # which it is
    model.config.use_cache = False
    model.save_pretrained(tmp_path)
    again = BertForSequenceClassification.from_pretrained(tmp_path).config
    assert again.label2id == {"x": 0, "y": 1, "z": 2}
    assert again.problem_type == "multi_label_classification"
    assert model(torch.tensor([[2, 3]]), labels=torch.tensor([[1.0, 0, 1]])).loss < 2


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("id2label", {0: "a", 1: "b"}, r"and this has 3; write config = config\.replace\(num_labels=2\)"),
        ("id2label", {0: "a", 2: "b", 3: "c"}, "must number its labels"),
        ("id2label", ["a", "b", "c"], "must be an object"),
        ("label2id", {"a": 0, "b": 0, "c": 1}, "two labels have the same number"),
        ("num_labels", 5, r"write config = config\.replace\(num_labels=5\) .* or from_pretrained\(NAME, num_labels=5"),
        ("problem_type", "multi_label", "problem_type = 'multi_label'"),
        ("hidden_size", 32, r"config\.replace\(hidden_size=32\)"),
        ("my_thing", 1, "BertConfig has no field 'my_thing'"),
        ("num_layers", 1, r"no field 'num_layers'; write config\.num_hidden_layers"),
    ],
)
def test_what_cannot_be_set_on_a_config_says_the_line(name: str, value: object, told: str) -> None:
    config = BertConfig(**SHAPE, num_labels=3)
    before = config.to_dict()
    with pytest.raises(ConfigError, match=told):
        setattr(config, name, value)
    assert config.to_dict() == before


@pytest.mark.parametrize("family", ["bert", "distilbert", "albert", "electra", "modernbert", "deberta-v2"])
def test_a_config_is_made_of_its_file(family: str) -> None:
    config = BertConfig(model_type=family, num_labels=3, architectures=["BertForSequenceClassification"])
    assert BertConfig(**config.to_dict()) == config
    assert BertConfig(**config.to_dict(), transformers_version="5", use_cache=True) == config
    with pytest.raises(ConfigError, match=r"'hiden_size' \(did you mean 'hidden_size'"):
        BertConfig(**config.to_dict(), hiden_size=3)


HOMES = """
from bertkit.trainer_utils import EvalPrediction, IntervalStrategy, SchedulerType, get_last_checkpoint, set_seed
from bertkit.trainer_callback import TrainerCallback
from bertkit.modeling_outputs import BaseModelOutput, SequenceClassifierOutput
from bertkit.utils import ModelOutput
from bertkit.optimization import get_linear_schedule_with_warmup
from bertkit.integrations import TensorBoardCallback
from bertkit.models.bert import BertModel, BertTokenizerFast
from bertkit.models.bert.modeling_bert import BertForMaskedLM
from bertkit.models.roberta.tokenization_roberta import RobertaTokenizer
from bertkit.models import Pooling, Transformer
from bertkit.pipelines import TextClassificationPipeline, pipeline
from bertkit.pipelines.pt_utils import KeyDataset
from bertkit.tokenization_utils_base import BatchEncoding
from bertkit.data import DataCollatorWithPadding
from bertkit.data.data_collator import DataCollatorForTokenClassification
from bertkit.util import cos_sim
from bertkit.losses import MultipleNegativesRankingLoss
from bertkit.evaluation import TripletEvaluator
from bertkit.readers import InputExample
from bertkit.sentence_transformers.base.modules import Dense
from bertkit.sentence_transformers.training_args import MultiDatasetBatchSamplers
from bertkit.sentence_transformers import __version__
""".strip().splitlines()


@pytest.mark.parametrize("line", HOMES)
def test_modules_of_other_libraries_have_their_names(line: str) -> None:
    names = line.partition(" import ")[2].split(", ")
    found: dict[str, object] = {}
    exec(line, found)
    assert all(getattr(found[name], "__name__", name) in (name, "ModelOutput", "BertTokenizer") for name in names)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("import bertkit.activations", r"No module named 'bertkit.activations'; write torch\.nn\.GELU"),
        ("import bertkit.nothing_like_it", "'bertkit.nothing_like_it'; write from bertkit import NAME"),
        (
            "from bertkit.sentence_transformers.SentenceTransformer import SentenceTransformer",
            "write from bertkit.sent",
        ),
        ("from bertkit.setfit.exporters.onnx import export_onnx", "bertkit export FOLDER"),
        ("from bertkit.setfit.nothing import a", "No module named 'bertkit.setfit.nothing'; write"),
        ("from bertkit.models.bert.modeling_bert import BertEncoder", r"write BertModel\(config\)\.encoder"),
        ("from bertkit.sentence_transformers.readers import TripletReader", r"InputExample\(texts="),
        ("from bertkit.tasks.nothing import a", "No module named 'bertkit.tasks.nothing'$"),  # one of our own rooms
        ("from bertkit import BertEncoder", r"write BertModel\(config\)\.encoder"),
    ],
)
def test_modules_that_bertkit_does_not_have_say_what_to_write(line: str, told: str) -> None:
    with pytest.raises(ImportError, match=told):
        exec(line, {})


def test_import_is_still_quick() -> None:
    slow = "('torch', 'bertkit.system', 'bertkit.habit_table')"
    script = f"import sys, bertkit; print([name for name in {slow} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_choices_are_padded_as_in_transformers(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "m")
    ours, theirs = bertkit.AutoTokenizer.from_pretrained(folder), transformers.AutoTokenizer.from_pretrained(folder)
    rows = [
        {
            **{name: list(values) for name, values in ours(["a film", "bad"], ["good", "the film is"]).items()},
            "label": 1,
        },
        {**{name: list(values) for name, values in ours(["the"], ["bad"]).items()}, "label": 0},
    ]
    rows[1] = {name: values * 2 if isinstance(values, list) else values for name, values in rows[1].items()}
    found = bertkit.DataCollatorForMultipleChoice(ours, pad_to_multiple_of=4)(rows)
    expected = transformers.DataCollatorForMultipleChoice(theirs, pad_to_multiple_of=4)([dict(row) for row in rows])
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert torch.equal(found[name], values), name
    with pytest.raises(InputError, match="row 1 of the batch has 1 choices and row 0 has 2"):
        bertkit.DataCollatorForMultipleChoice(ours)([rows[0], {"input_ids": [[2, 3]], "label": 0}])


@pytest.mark.parametrize("own", [{}, {"lr_end": 1e-5, "power": 2.0}])
def test_the_polynomial_schedule_of_a_trainer(own: dict[str, float]) -> None:
    args = TrainingArguments("o", lr_scheduler_type=SchedulerType.POLYNOMIAL, lr_scheduler_kwargs=own, warmup_steps=3)
    factor = args.schedule(10)
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=args.learning_rate)
    theirs = transformers.get_polynomial_decay_schedule_with_warmup(optimizer, 3, 10, **own)
    for step in range(12):
        assert factor(step) == pytest.approx(theirs.lr_lambdas[0](step))
    assert args.n_gpu == int(torch.cuda.is_available())
    assert json.loads(args.to_json_string())["warmup_steps"] == 3


def test_model_init_with_an_argument_gets_none() -> None:
    def model_init(trial: object) -> BertForSequenceClassification:
        assert trial is None
        return BertForSequenceClassification(BertConfig(**SHAPE))

    trainer = bertkit.Trainer(model_init=model_init, args=TrainingArguments("o", use_cpu=True))
    assert isinstance(trainer.model, BertForSequenceClassification)
    assert trainer.callback_handler.callbacks == []
    assert called_with_trial(lambda trial="x": trial) == "x"  # a control


@pytest.mark.parametrize("form", [list, pd.DataFrame])
def test_templated_rows_have_the_form_of_the_data_set(form: type) -> None:
    given = form([{"text": "a", "label": 1}])
    found = get_templated_dataset(given, candidate_labels=["x", "y"], sample_size=3)
    assert type(found) is form
    assert len(found) == 7
    made = get_templated_dataset(candidate_labels=["x", "y"])
    assert len(made) == len(made["text"]) == 4
    assert made[0] == {"text": "This sentence is x", "label": 0}


def test_small_names() -> None:
    assert bertkit.AutoConfig.for_model("distilbert", dim=24, n_heads=2).hidden_size == 24
    pooling = Pooling(8, pooling_mode="mean")
    assert pooling.get_config_dict() == models.Pooling(8, "mean").get_config_dict()
    assert SimilarityFunction.to_similarity_fn("dot") is util.dot_score
    assert SimilarityFunction.to_similarity_fn("manhattan") is util.manhattan_sim
    assert TrainingArguments("o", neftune_noise_alpha=None, include_for_metrics=[]).learning_rate == 5e-5
    with pytest.raises(ConfigError, match="include_for_metrics=\\['inputs'\\]; write"):
        TrainingArguments("o", include_for_metrics=["inputs"])


def test_the_number_of_labels_of_a_model_is_not_set() -> None:
    model = BertForSequenceClassification(BertConfig(**SHAPE))
    model.num_labels = 2  # which it has
    with pytest.raises(InputError, match=r"from_pretrained\(NAME, num_labels=7, ignore_mismatched_sizes=True\)"):
        model.num_labels = 7


def test_generate_takes_its_input_by_the_other_name() -> None:
    sizes = {"vocab_size": 40, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
             "decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}  # fmt: skip
    model = bertkit.BartForConditionalGeneration(bertkit.BartConfig(**sizes)).eval()
    ids = torch.tensor([[0, 5, 6, 2]])
    assert torch.equal(model.generate(inputs=ids, max_new_tokens=4), model.generate(ids, max_new_tokens=4))
    with pytest.raises(InputError, match="generate needs input_ids"):
        model.generate(max_new_tokens=4)


def test_decimal_commas_are_named(tmp_path: Path) -> None:
    file = tmp_path / "scores.csv"
    file.write_text("text;score\n" + "".join(f"text {n};{n},25\n" for n in range(30)))
    with pytest.raises(DataError, match=r"holds numbers with decimal commas, such as '0,25'\. Write them .* '0\.25'"):
        csv_task(file, label="score")
    file.write_text(file.read_text().replace(",", "."))
    assert csv_task(file, label="score").labels is None  # a control: with points they are scores


def test_an_error_of_a_spreadsheet_is_no_text(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in (["text", "label"], ["good", "a"], ["#N/A", "b"], ["n/a #N/A", "b"]):
        book.active.append(row)
    assert book.active["A3"].data_type == "e"
    book.save(tmp_path / "x.xlsx")
    table = open_table(tmp_path / "x.xlsx", Columns(text="text"), BadRows())
    assert [cells for _, cells in table.rows(["text", "label"])] == [("good", "a"), ("", "b"), ("n/a #N/A", "b")]


def test_arguments_of_a_training_speak_of_one_process(tmp_path: Path) -> None:
    ours, theirs = (library.TrainingArguments(str(tmp_path)) for library in (bertkit, transformers))
    for name in ("world_size", "process_index", "local_process_index", "local_rank", "should_save", "should_log"):
        assert getattr(ours, name) == getattr(theirs, name), name
    with pytest.raises(
        AttributeError, match=r"no attribute 'set_lr_scheduler'; write TrainingArguments\(lr_scheduler_"
    ):
        ours.set_lr_scheduler(name="cosine")
    assert copy.deepcopy(ours).world_size == pickle.loads(pickle.dumps(ours)).world_size == 1


GIVEN = {
    "TEXTS": ["a good film", "a bad film", "the sea", "the lake"],
    "TABLE": pd.DataFrame({"text": ["a good film"], "stars": [5]}),
    "SHAPE": SHAPE,
}


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("bertkit.BertTokenizerFast(tokenizer_file='tokenizer.json')", r"write AutoTokenizer\.from_pretrained\(FILE\)"),
        ("bertkit.SearchIndex.load('index')", r"write SearchIndex\(folder\)"),
        ("bertkit.SearchIndex.from_texts(['a'])", r"write SearchIndex\.build\(folder, texts\)"),
        ("bertkit.SearchIndex.biuld('index')", "did you mean 'build'"),
        ("bertkit.find_clusters(TEXTS, k=2).topics", r"write result\.clusters, each with words"),
        ("bertkit.find_clusters(TEXTS, k=2).labels_", r"write result\.assigned"),
        ("bertkit.find_clusters(TEXTS, n_clusters=2)", "write k="),
        ("bertkit.find_duplicates(TEXTS, min_similarity=0.9)", "write threshold="),
        ("bertkit.SearchIndex.build('index', TEXTS).search('film')[0].score", r"write hits\[0\]\.score"),
        ("bertkit.finetune('sentiment', {'text': TEXTS}, 'm', 'run')", "unknown task 'sentiment'; write csv"),
        ("bertkit.finetune('token-classification', {'text': TEXTS}, 'm', 'run')", "write ner"),
        ("bertkit.finetune(train=TEXTS)", r"finetune needs task=, data=, model=, out=; for train= write finetune\("),
        ("bertkit.finetune('csv', TEXTS)", r'needs model=, out=, as in finetune\("csv", data=table, model='),
        ("bertkit.finetune(TEXTS, {'text': TEXTS}, 'bertkit-tiny-en', 'o')", "task is a list, expected a name"),
        ("bertkit.finetune('csv', {'text': TEXTS}, 'm', 'o', {'epochs': 3})", "config is a dict, expected a FinetuneC"),
        ("bertkit.SearchIndex.build(TEXTS)", r'needs texts=, as in SearchIndex\.build\("index", texts\)'),
        ("bertkit.FinetuneConfig(gradient_accumulation_steps=2)", "; write accumulation="),
        ("bertkit.FinetuneConfig(eval_strategy='epoch')", "; write nothing: every epoch is scored on dev"),
        ("bertkit.FinetuneConfig(output_dir='o')", r"; write finetune\(\.\.\., out=\)"),
        (
            "bertkit.FinetuneConfig(hub_token='o')",
            r"; write TrainingArguments\(hub_token=\.\.\.\), for",
        ),
        ("bertkit.pipeline(TABLE)", r"task is a DataFrame, expected its name: pipeline\('fill-mask'"),
        ("import_module('bertkit.losses').SoftmaxLoss", r'write bertkit\.finetune\("mnli"'),
        ("import_module('bertkit.hub').load('m')", r"write hub\.KerasLayer\(folder\)"),
        ("bertkit.BertTextClassifier", r"write from bertkit import BertClassifier; BertClassifier\(model=MODEL\)"),
        ("bertkit.BertClassifier.from_preset('m')", r"write BertClassifier\(model=MODEL\)"),
        ("bertkit.BertModel(bertkit.BertConfig(**SHAPE)).compile(optimizer='adam')", r"write torch\.optim\.AdamW"),
        ("bertkit.BertModel(bertkit.BertConfig(**SHAPE)).get_weights()", r"write model\.state_dict\(\)"),
        (
            "bertkit.BertTokenizer.from_pretrained('bertkit-tiny-en')('a', return_tensors='tf')",
            "write return_tensors='np'",
        ),
        ("bertkit.SentenceEncoder.from_pretrained('bertkit-tiny-en').encode(TABLE)", r"pass one column of it"),
        ("bertkit.SentenceEncoder.from_pretrained('bertkit-tiny-en').encode(5)", "an iterable of texts, got int"),
        ("bertkit.SetFitModel('m', object())", "write make_pipeline"),
        ("bertkit.WandbCallback", "write from bertkit import MLflowCallback"),
        ("bertkit.LoraConfig(r=8)", r"config=FinetuneConfig\(lora=8\)"),
        ("bertkit.AutoModelForTextEncoding", "write from bertkit import AutoModel"),
    ],
)
def test_a_name_of_elsewhere_is_answered(
    typed: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((AttributeError, ImportError, TypeError, BertkitError), match=told):
        eval(typed, {**GIVEN, "bertkit": bertkit, "import_module": import_module})


def test_how_much_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    from bertkit.utils import logging

    assert logging is bertkit.logging
    try:
        for level, heard in (("error", False), ("info", True), ("warning", False), ("debug", True)):
            getattr(logging, f"set_verbosity_{level}")()
            say("a note")
            assert ("a note" in capsys.readouterr().err) == heard
        assert logging.get_verbosity() == logging.DEBUG
        logging.disable_progress_bar()
        say("a note")
        assert capsys.readouterr().err == ""
    finally:
        logging.enable_progress_bar()
        logging.set_verbosity_info()


def test_modules_of_others_are_attributes() -> None:
    assert bertkit.pipelines.pipeline is bertkit.pipeline
    assert bertkit.trainer_utils.IntervalStrategy.EPOCH == "epoch"


def test_outputs_are_read_as_mappings_and_as_tuples() -> None:
    out = BertForSequenceClassification(BertConfig(**SHAPE))(torch.tensor([[2, 3]]), labels=torch.tensor([1]))
    assert len(out) == 2
    assert out.get("logits") is out.logits
    assert out.get("hidden_states", "none") == "none"


SETTINGS_FILES = [
    ("a.json", '{"lr": 8}', "a.json: unknown field 'lr'; write learning_rate="),
    ("a.toml", "per_device_train_batch_size = 2", "unknown field 'per_device_train_batch_size'; write batch_size="),
    ("a.yaml", "fp16: true\nepochs: 2\n", 'name it a.toml, with a line such as learning_rate = 2e-5 for'),
    ("a.yaml", "fp16: true\nepochs: 2\n", 'for each setting; for fp16 write precision="fp16"'),
    ("a.toml", "epochs 2", "a.toml cannot be read as TOML: "),
    ("a.json", "[1]", "a.json holds a list, expected an object of settings"),
    ("a.toml", "epochs = 0", "a.toml: epochs = 0: "),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "told"), SETTINGS_FILES)
def test_settings_in_a_file_are_answered_by_their_names(
    name: str, text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not by the options of the command line, which a file does not have."""
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)
    command = ["finetune", "csv", "--data", "a.csv", "--model", "m", "--out", "run", "--config", name]
    assert main(command) == 2
    assert told in capsys.readouterr().err


def test_options_win_over_a_file_of_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.toml").write_text("epochs = 2\nbatch_size = 8\n")
    seen: list[object] = []
    monkeypatch.setattr("bertkit.cli.finetune._train", lambda *given, **more: seen.append(given[-1]) or sys.exit(0))
    with contextlib.suppress(SystemExit):
        main(["finetune", "csv", "--data", "a", "--model", "m", "--out", "o", "--batch-size", "4",
              "--config", str(tmp_path / "a.toml")])  # fmt: skip
    assert seen == [bertkit.FinetuneConfig(epochs=2, batch_size=4)]


def test_options_of_other_trainers_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    for option, told in [
        ("--fp16", "Did you mean --precision fp16?"),
        ("--warmup-ratio", "Did you mean --warmup?"),
        ("--evaluation_strategy", "write nothing: every epoch is scored on dev"),
    ]:
        assert main(["finetune", "csv", "--data", "a", "--model", "m", "--out", "o", option]) == 2
        assert told in capsys.readouterr().err
