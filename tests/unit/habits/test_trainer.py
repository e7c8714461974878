"""``Trainer`` and ``TrainingArguments``: each training step by step as transformers' own, on the same rows."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import bertkit
from bertkit import (
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    EarlyStoppingCallback,
    FinetuneConfig,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from bertkit.errors import ConfigError, DataError
from bertkit.habit_table import habits
from bertkit.habits.trainer_schedules import SCHEDULES
from everyday import some
from finetune_data import labelled_texts
from pipeline_helpers import save_tiny

pytestmark = pytest.mark.slow

TEXTS = labelled_texts(12, seed=5)
#: Losses and gradients of another library sum in another order.
NEAR = {"rel": 1e-4, "abs": 1e-5}


def start(folder: Path, kind: type[Any], **settings: Any) -> Path:
    """A tiny model without dropout, so that each step is the same in both libraries."""
    return save_tiny(folder / "start", kind, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **settings)


def encoded(folder: Path) -> list[dict[str, Any]]:
    tokenizer = bertkit.AutoTokenizer.from_pretrained(folder)
    return [{name: list(ids) for name, ids in tokenizer(text).items()} for text, _ in TEXTS]


def texts_of(folder: Path) -> list[dict[str, Any]]:
    return [{**row, "label": label} for row, (_, label) in zip(encoded(folder), TEXTS, strict=True)]


def tagged(folder: Path) -> list[dict[str, Any]]:
    return [
        {**row, "labels": [-100, *(n % 3 for n in row["input_ids"][1:-1]), -100], "other": "left out"}
        for row in padded(folder)
    ]


def asked(folder: Path) -> list[dict[str, Any]]:
    return [{**row, "start_positions": 1 + n % 3, "end_positions": 3 + n % 2} for n, row in enumerate(padded(folder))]


def hidden(folder: Path) -> list[dict[str, Any]]:
    return [
        {**row, "labels": [token if place % 3 == 1 else -100 for place, token in enumerate(row["input_ids"])]}
        for row in padded(folder)
    ]


def padded(folder: Path) -> list[dict[str, Any]]:
    """Rows of one length, which no collator has to pad."""
    rows = encoded(folder)
    return [{name: values[:9] for name, values in row.items()} for row in rows]


KINDS: dict[str, tuple[type[Any], Any, dict[str, Any]]] = {
    "AutoModelForSequenceClassification": (BertForSequenceClassification, texts_of, {"num_labels": 2}),
    "AutoModelForTokenClassification": (BertForTokenClassification, tagged, {"num_labels": 3}),
    "AutoModelForQuestionAnswering": (BertForQuestionAnswering, asked, {}),
    "AutoModelForMaskedLM": (BertForMaskedLM, hidden, {}),
}


def trained(library: Any, kind: str, folder: Path, rows: Any, **given: Any) -> Any:
    """A trainer of either library after its training, all rows in each step."""
    out = folder / f"out-{library.__name__}"
    model = getattr(library, kind).from_pretrained(folder / "start")
    tokenizer = library.AutoTokenizer.from_pretrained(folder / "start")
    own = dict(given.pop("trainer", {}))
    trainer_class = own.pop("trainer_class", {}).get(library.__name__, library.Trainer)
    values: dict[str, Any] = {"num_train_epochs": 5, "learning_rate": 1e-3, "logging_steps": 1, **given}
    values = {"per_device_train_batch_size": 12, "save_strategy": "no", "use_cpu": True, "report_to": "none", **values}
    args = library.TrainingArguments(str(out), disable_tqdm=True, **values)
    trainer = trainer_class(
        model=model, args=args, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer, **own
    )
    trainer.train()
    return trainer


def both(kind: str, folder: Path, **given: Any) -> tuple[Any, Any]:
    model_class, rows_of, settings = KINDS[kind]
    rows = rows_of(start(folder, model_class, **settings))
    return trained(bertkit, kind, folder, rows, **given), trained(transformers, kind, folder, rows, **given)


def weights(trainer: Any, folder: Path) -> dict[str, Any]:
    """By the names of files, without biases whose gradient is zero but for rounding, which Adam makes as large as any.

    They are those of keys, and where the softmax is over tokens those that all tokens share.
    """
    from safetensors.torch import load_file

    trainer.save_model(str(folder))
    found = load_file(folder / "model.safetensors")
    zero = ["key.bias"]
    if "qa_outputs.bias" in found:
        zero += ["qa_outputs.bias", "layer.1.output.LayerNorm.bias"]
    return {name: value for name, value in found.items() if not name.endswith(tuple(zero))}


def values(trainer: Any, name: str) -> list[float]:
    return [entry[name] for entry in trainer.state.log_history if name in entry]


@pytest.mark.parametrize("kind", some(KINDS, [*KINDS][:1]))
def test_losses_gradients_and_weights_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    ours, theirs = both(kind, tmp_path, weight_decay=0.1, warmup_steps=2, eval_strategy="epoch")
    for name in ("loss", "grad_norm", "learning_rate", "eval_loss", "epoch", "step", "train_loss"):
        assert values(ours, name) == pytest.approx(values(theirs, name), **NEAR), name
    assert values(ours, "loss")[-1] < 0.99 * values(ours, "loss")[0]  # something was learned
    mine, his = weights(ours, tmp_path / "a"), weights(theirs, tmp_path / "b")
    assert mine.keys() == his.keys()
    for name, value in mine.items():
        torch.testing.assert_close(value, his[name], rtol=0, atol=2e-5, msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_labels_and_scores_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    model_class, rows_of, settings = KINDS[kind]
    rows = rows_of(start(tmp_path, model_class, **settings))
    found = []
    for library in (bertkit, transformers):
        model = getattr(library, kind).from_pretrained(tmp_path / "start")
        tokenizer = library.AutoTokenizer.from_pretrained(tmp_path / "start")
        args = library.TrainingArguments(str(tmp_path), use_cpu=True, report_to="none", disable_tqdm=True)

        def size(given: Any) -> dict[str, float]:
            predictions, labels = given
            assert predictions is given.predictions
            assert labels is given.label_ids
            return {"size": float(np.asarray(labels[0] if isinstance(labels, tuple) else labels).size)}

        trainer = library.Trainer(model=model, args=args, processing_class=tokenizer, compute_metrics=size)
        found.append(trainer.predict(rows))
    ours, theirs = found
    for one, other in ((ours.predictions, theirs.predictions), (ours.label_ids, theirs.label_ids)):
        pairs = zip(one, other, strict=True) if isinstance(one, tuple) else [(one, other)]
        for a, b in pairs:
            np.testing.assert_allclose(a, b, atol=1e-4)
    for name in ("test_loss", "test_size"):
        assert ours.metrics[name] == pytest.approx(theirs.metrics[name], **NEAR)


@pytest.mark.parametrize(
    ("schedule", "drop_last"),
    [
        ("cosine", False),
        *(pytest.param(*case, marks=pytest.mark.campaign)
          for case in (("cosine", True), ("constant", False), ("constant", True))),
    ],
)  # fmt: skip
def test_several_steps_an_epoch_are_those_of_transformers(schedule: str, drop_last: bool, tmp_path: Path) -> None:
    ours, theirs = both(
        "AutoModelForSequenceClassification", tmp_path, per_device_train_batch_size=5, num_train_epochs=2.5,
        train_sampling_strategy="sequential", lr_scheduler_type=schedule, warmup_steps=0.2, adam_beta2=0.99,
        dataloader_drop_last=drop_last, logging_steps=2, eval_strategy="steps", eval_steps=3,
    )  # fmt: skip
    evaluated = [] if drop_last else ["eval_loss"]  # there an evaluation drops rows, too
    for name in ("loss", "grad_norm", "learning_rate", "epoch", "step", *evaluated):
        assert values(ours, name) == pytest.approx(values(theirs, name), **NEAR), name


def test_accumulated_batches_have_the_gradient_of_all_their_rows(tmp_path: Path) -> None:
    rows = texts_of(start(tmp_path, BertForSequenceClassification))
    kind = "AutoModelForSequenceClassification"
    whole = trained(bertkit, kind, tmp_path, rows)
    parts = trained(bertkit, kind, tmp_path, rows, per_device_train_batch_size=5, gradient_accumulation_steps=3)
    assert values(parts, "loss") == pytest.approx(values(whole, "loss"), **NEAR)


class Weighted:
    """A loss of one's own, as tutorials have it."""

    def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **options: Any) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = torch.nn.functional.cross_entropy(outputs.logits, labels, weight=torch.tensor([1.0, 5.0]))
        return (loss, outputs) if return_outputs else loss


class OursWeighted(Weighted, Trainer): ...


class TheirsWeighted(Weighted, transformers.Trainer): ...


def test_a_loss_of_ones_own_is_trained_with(tmp_path: Path) -> None:
    own = {"bertkit": OursWeighted, "transformers": TheirsWeighted}
    ours, theirs = both(
        "AutoModelForSequenceClassification", tmp_path, eval_strategy="epoch", trainer={"trainer_class": dict(own)}
    )
    for name in ("loss", "eval_loss"):
        assert values(ours, name) == pytest.approx(values(theirs, name), **NEAR)
    plain = trained(bertkit, "AutoModelForSequenceClassification", tmp_path, ours.train_dataset)
    assert values(plain, "loss") != pytest.approx(values(ours, "loss"), **NEAR)


def test_a_module_of_another_library_is_trained(tmp_path: Path) -> None:
    rows = texts_of(start(tmp_path, BertForSequenceClassification))
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "start")
    tokenizer = bertkit.AutoTokenizer.from_pretrained(tmp_path / "start")
    args = TrainingArguments(tmp_path / "out", per_device_train_batch_size=12, learning_rate=1e-3, logging_steps=1)
    trainer = Trainer(model, args, train_dataset=rows, processing_class=tokenizer)
    trainer.train()
    own = trained(bertkit, "AutoModelForSequenceClassification", tmp_path, rows, num_train_epochs=3, save_strategy="no")
    assert values(trainer, "loss") == pytest.approx(values(own, "loss"), **NEAR)


@pytest.mark.parametrize(
    "form",
    [
        "numbers",
        *(pytest.param(form, marks=pytest.mark.campaign)
          for form in ("several labels", "optimizer and schedule", "several data sets")),
    ],
)  # fmt: skip
def test_other_forms_of_rows_and_optimizers_as_in_transformers(form: str, tmp_path: Path) -> None:
    outputs = {"numbers": 1, "several labels": 3}.get(form, 2)
    more = {"problem_type": "multi_label_classification"} if outputs == 3 else {}
    rows = texts_of(start(tmp_path, BertForSequenceClassification, num_labels=outputs, **more))
    if outputs != 2:
        rows = [{**row, "label": [1.0, float(row["label"]), 0.0][:outputs]} for row in rows]
        rows = [{**row, "label": row["label"][0] if outputs == 1 else row["label"]} for row in rows]
    found = []
    for library in (bertkit, transformers):
        own: dict[str, Any] = {}
        model = library.AutoModelForSequenceClassification.from_pretrained(tmp_path / "start")
        if form == "optimizer and schedule":
            optimizer = torch.optim.SGD(
                [{"params": model.bert.parameters()}, {"params": model.classifier.parameters(), "lr": 0.2}], lr=0.05
            )
            own["optimizers"] = (optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step))
        args = library.TrainingArguments(
            str(tmp_path / "out"), per_device_train_batch_size=12, num_train_epochs=4, logging_steps=1, use_cpu=True,
            eval_strategy="epoch", save_strategy="no", report_to="none", disable_tqdm=True, learning_rate=1e-3,
        )  # fmt: skip
        trainer = library.Trainer(
            model=model,
            args=args,
            train_dataset=rows,
            eval_dataset={"a": rows, "b": rows[:3]} if form == "several data sets" else rows,
            processing_class=library.AutoTokenizer.from_pretrained(tmp_path / "start"),
            **own,
        )
        trainer.train()
        found.append(trainer)
    ours, theirs = found
    evaluated = ["eval_a_loss", "eval_b_loss"] if form == "several data sets" else ["eval_loss"]
    for name in ("loss", "grad_norm", "learning_rate", *evaluated):
        assert values(ours, name) == pytest.approx(values(theirs, name), **NEAR), name


def test_a_module_that_returns_a_tuple_is_trained_and_saved(tmp_path: Path) -> None:
    folder = start(tmp_path, BertForSequenceClassification)

    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = bertkit.AutoModel.from_pretrained(folder)
            self.head = torch.nn.Linear(32, 2)

        def forward(self, input_ids: Any, attention_mask: Any = None, labels: Any = None) -> Any:
            vectors = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            logits = self.head(vectors[:, 0])
            return (logits,) if labels is None else (torch.nn.functional.cross_entropy(logits, labels), logits)

    args = TrainingArguments(tmp_path / "out", learning_rate=1e-3, num_train_epochs=20, save_strategy="no")
    rows = texts_of(folder)
    tokenizer = bertkit.AutoTokenizer.from_pretrained(folder)
    trainer = Trainer(Own(), args, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < 0.7 * before
    unlabelled = trainer.predict([{name: row[name] for name in row if name != "label"} for row in rows])
    assert unlabelled.predictions.shape == (len(rows), 2)
    assert unlabelled.label_ids is None
    trainer.save_model(str(tmp_path / "saved"))
    assert (tmp_path / "saved" / "model.safetensors").exists()


def test_a_forward_of_ones_own_is_called(tmp_path: Path) -> None:
    rows = texts_of(start(tmp_path, BertForSequenceClassification))

    class Doubled(BertForSequenceClassification):
        def forward(self, *inputs: Any, **options: Any) -> Any:
            out = super().forward(*inputs, **options)
            return {"loss": 2 * out.loss, "logits": out.logits}

    losses = []
    for kind in (BertForSequenceClassification, Doubled):
        args = TrainingArguments(tmp_path / "out", max_steps=1, logging_steps=1, per_device_train_batch_size=12)
        tokenizer = bertkit.AutoTokenizer.from_pretrained(tmp_path / "start")
        model = kind.from_pretrained(tmp_path / "start")
        trainer = Trainer(model, args, train_dataset=rows, processing_class=tokenizer)
        trainer.train()
        losses += values(trainer, "loss")
    assert losses[1] == pytest.approx(2 * losses[0], **NEAR)


def recorder(library: Any, events: list[Any]) -> Any:
    names = "train_begin epoch_begin step_begin step_end log evaluate save epoch_end train_end".split()

    def method(event: str) -> Any:
        def call(self: Any, args: Any, state: Any, control: Any, **given: Any) -> None:
            events.append((event, state.global_step))

        return call

    return type("Recorder", (library.TrainerCallback,), {f"on_{name}": method(name) for name in names})()


@pytest.mark.parametrize("strategy", ["no", "epoch", "steps"])
def test_callbacks_are_called_in_the_order_of_transformers(strategy: str, tmp_path: Path) -> None:
    rows = texts_of(start(tmp_path, BertForSequenceClassification))
    found = []
    for library in (bertkit, transformers):
        events: list[Any] = []
        given = {"eval_steps": 2, "save_steps": 2} if strategy == "steps" else {}
        trained(
            library, "AutoModelForSequenceClassification", tmp_path, rows, per_device_train_batch_size=4,
            num_train_epochs=2, logging_steps=2, eval_strategy=strategy, save_strategy=strategy, **given,
            trainer={"callbacks": [recorder(library, events)]},
        )  # fmt: skip
        found.append(events)
    ours, theirs = found
    if strategy == "steps":  # in a step that ends an epoch, the end of the epoch is told before its evaluation
        assert sorted(ours) == sorted(theirs)
    else:
        assert ours == theirs


def scores(falling: list[float]) -> Any:
    """Scores in a fixed order, so that both libraries judge alike."""
    left = iter(falling)
    return lambda given: {"made": next(left)}


@pytest.mark.slow
def test_early_stopping_and_the_best_checkpoint_as_in_transformers(tmp_path: Path) -> None:
    given = [0.1, 0.5, 0.4, 0.5, 0.2, 0.9]
    found = []
    for library in (bertkit, transformers):
        rows = texts_of(start(tmp_path, BertForSequenceClassification))
        trainer = trained(
            library, "AutoModelForSequenceClassification", tmp_path, rows, num_train_epochs=6, eval_strategy="epoch",
            save_strategy="epoch", load_best_model_at_end=True, metric_for_best_model="made", save_total_limit=2,
            trainer={"compute_metrics": scores(given), "callbacks": [library.EarlyStoppingCallback(3)]},
        )  # fmt: skip
        found.append(trainer)
        state = trainer.state
        assert (state.global_step, state.best_metric, state.best_global_step) == (5, 0.5, 2)
        kept = sorted(each.name for each in Path(trainer.args.output_dir).glob("checkpoint-*"))
        assert kept == ["checkpoint-2", "checkpoint-5"]
        assert Path(state.best_model_checkpoint).name == "checkpoint-2"
    mine, his = weights(found[0], tmp_path / "a"), weights(found[1], tmp_path / "b")
    for name, value in mine.items():
        torch.testing.assert_close(value, his[name], rtol=0, atol=2e-5, msg=name)


def test_a_training_continues_from_its_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    rows = texts_of(save_tiny(tmp_path / "start", BertForSequenceClassification))  # with dropout

    class Stop(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            control.should_training_stop = state.global_step == 4

    def trainer(name: str, **options: Any) -> Trainer:
        model = BertForSequenceClassification.from_pretrained(tmp_path / "start")
        args = TrainingArguments(tmp_path / name, max_steps=7, save_steps=2, per_device_train_batch_size=5)
        tokenizer = bertkit.AutoTokenizer.from_pretrained(tmp_path / "start")
        return Trainer(model, args, train_dataset=rows, processing_class=tokenizer, **options)

    whole = trainer("whole")
    whole.train()
    trainer("parts", callbacks=[Stop]).train()
    resumed = trainer("parts")
    out = resumed.train(resume_from_checkpoint=True)
    assert out.global_step == 7
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other)
    from bertkit import pipeline

    pipeline("text-classification", model=str(tmp_path / "parts" / "checkpoint-7"))("a good film")


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_those_of_transformers(name: str) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = transformers.get_scheduler(name, optimizer, num_warmup_steps=3, num_training_steps=11)
    ours = SCHEDULES[name](11, 0 if name == "constant" else 3, {"lr": 1.0})
    assert [ours(step) for step in range(11)] == pytest.approx([theirs.lr_lambdas[0](step) for step in range(11)])


def test_the_same_training_is_said_in_our_words() -> None:
    with pytest.raises(ConfigError) as told:
        TrainingArguments(
            "runs/x", learning_rate=3e-5, num_train_epochs=4, per_device_train_batch_size=16, warmup_ratio=0.2,
            weight_decay=0.01, metric_for_best_model="f1", bf16=True, deepspeed="ds.json",
        )  # fmt: skip
    call = re.search(r"bertkit\.FinetuneConfig\((.*?)\)", str(told.value))
    assert call is not None
    keywords = ast.parse(f"f({call[1]})", mode="eval").body.keywords  # type: ignore[attr-defined]
    config = FinetuneConfig(**{each.arg: ast.literal_eval(each.value) for each in keywords})
    assert (config.learning_rate, config.epochs, config.batch_size, config.warmup) == (3e-5, 4, 16, 0.2)
    assert (config.weight_decay, config.metric_for_best, config.precision) == (0.01, "f1", "bf16")
    command = str(told.value).partition("command line: ")[2].split()
    assert command[:3] == ["bertkit", "finetune", "csv"]
    assert command[command.index("--out") + 1] == "runs/x"
    with pytest.raises(ConfigError, match=r"FinetuneConfig\(max_steps=40\).*--max-steps 40$"):
        TrainingArguments("runs/x", max_steps=40, num_train_epochs=9, deepspeed="ds.json")
    assert FinetuneConfig(max_steps=40).max_steps == 40


def test_commands_take_the_options_that_are_named() -> None:
    from bertkit.habits.training_arguments import _OURS

    assert set(_OURS.values()) - {"precision"} <= set(FinetuneConfig.model_fields) | {"metric_for_best"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"deepspeed": "x"}, "bertkit finetune csv"),
        ({"optim": "adafactor"}, "bertkit.finetune"),
        ({"label_smoothing_factor": 0.1}, "compute_loss"),
        ({"report_to": "wandb"}, "on_log"),
        ({"push_to_hub": True}, "push_to_hub\\('NAME'\\)"),
        ({"batch_size": 8}, "per_device_train_batch_size="),
        ({"load_best_model_at_end": True}, "save_strategy='epoch'"),
        ({"eval_strategy": "epochs"}, "'epoch'"),
    ],
)
def test_what_is_refused_says_what_to_write(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        TrainingArguments("out", **given)


def test_what_has_no_meaning_here_is_accepted() -> None:
    args = TrainingArguments(
        "out", dataloader_num_workers=4, fsdp=None, group_by_length=True, evaluation_strategy="epoch"
    )
    assert args.dataloader_num_workers == 4
    assert args.eval_strategy == "epoch"


def test_rows_that_cannot_be_trained_on_are_named(tmp_path: Path) -> None:
    folder = start(tmp_path, BertForSequenceClassification)
    model = BertForSequenceClassification.from_pretrained(folder)

    def failing(rows: Any, **options: Any) -> str:
        with pytest.raises((DataError, bertkit.InputError, ConfigError)) as told:
            Trainer(model, TrainingArguments(tmp_path / "out"), train_dataset=rows, **options).train()
        return str(told.value)

    assert "labels" in failing(padded(folder))
    assert "processing_class=tokenizer" in failing(texts_of(folder))
    assert "encode the texts" in failing([{"text": "a", "rating": 1}])
    assert "no rows" in failing([])
    assert "list(" in failing(iter(padded(folder)))
    with pytest.raises(bertkit.InputError, match="model=AutoModel"):
        Trainer("bert-base-uncased")  # type: ignore[arg-type]


def test_early_stopping_needs_a_metric(tmp_path: Path) -> None:
    folder = start(tmp_path, BertForSequenceClassification)
    model = BertForSequenceClassification.from_pretrained(folder)
    rows = [{**row, "label": 1} for row in padded(folder)]
    with pytest.raises(ConfigError, match="metric_for_best_model"):
        Trainer(model, train_dataset=rows, callbacks=[EarlyStoppingCallback()]).train()


def test_callbacks_may_evaluate_and_say_what_is_done_after_a_step(tmp_path: Path) -> None:
    rows = texts_of(start(tmp_path, BertForSequenceClassification))
    found = []
    for library in (bertkit, transformers):
        events: list[Any] = []

        class Decides(library.TrainerCallback):  # type: ignore[misc, name-defined]
            def on_step_end(self, args: Any, state: Any, control: Any, model: Any, **given: Any) -> Any:
                model.eval()  # as an evaluation leaves it
                if state.global_step == 2:
                    control.should_evaluate = control.should_log = control.should_save = True
                return control

            def on_epoch_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
                events.append(("asked", state.global_step, control.should_evaluate))  # noqa: B023
                control.should_evaluate = state.global_step == 6

        trainer = trained(
            library, "AutoModelForSequenceClassification", tmp_path, rows, per_device_train_batch_size=4,
            num_train_epochs=2, logging_steps=100, eval_strategy="epoch",
            trainer={"callbacks": [recorder(library, events), Decides()]},
        )  # fmt: skip
        found.append((events, sorted(each.name for each in Path(trainer.args.output_dir).iterdir())))
    assert found[0] == found[1]


def test_a_callback_that_evaluates_leaves_dropout_on(tmp_path: Path) -> None:
    rows = texts_of(save_tiny(tmp_path / "start", BertForSequenceClassification))  # with dropout

    class Evaluates(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any, **given: Any) -> None:
            model.eval()

    losses = []
    for callbacks in ([], [Evaluates]):
        trainer = trained(
            bertkit, "AutoModelForSequenceClassification", tmp_path, rows, trainer={"callbacks": callbacks}
        )
        losses.append(values(trainer, "loss"))
    assert losses[0] == losses[1]


def rows_of_table(entry: str, meaning: str) -> list[str]:
    return [row.name for row in habits().values() if (row.entry, row.meaning) == (entry, meaning)]


@pytest.mark.parametrize("entry", ["TrainingArguments", "setfit.TrainingArguments"])
def test_arguments_are_those_of_the_table(entry: str) -> None:
    from bertkit import setfit

    arguments: Any = TrainingArguments if entry == "TrainingArguments" else setfit.TrainingArguments
    own = {each.name for each in dataclasses.fields(arguments)} | set(arguments.older)
    assert set(rows_of_table(entry, "same")) <= own
    if entry == "TrainingArguments":  # what transformers has is there, has no effect, or is refused with a line to copy
        theirs = {each.name for each in dataclasses.fields(transformers.TrainingArguments)}
        listed = {row.name for row in habits().values() if row.entry == entry}
        assert theirs - listed == set()
    for name in rows_of_table(entry, "nothing"):
        arguments("out", **{name: None})
    for name in rows_of_table(entry, "otherwise"):
        with pytest.raises(ConfigError, match=r"write .*bertkit finetune csv --data"):
            arguments("out", **{name: 1})


def test_names_of_the_table_are_imported_or_answered() -> None:
    from bertkit import setfit

    for entry, module in (("import", bertkit), ("setfit", setfit)):
        for name in rows_of_table(entry, "same"):
            assert getattr(module, name) is not None
        for name in rows_of_table(entry, "otherwise"):
            assert not hasattr(module, name)
            with pytest.raises(ImportError, match="write "):
                exec(f"from {module.__name__} import {name}")


def test_a_training_that_is_refused_names_the_task_of_the_model(tmp_path: Path) -> None:
    model = BertForTokenClassification.from_pretrained(start(tmp_path, BertForTokenClassification))

    class Other(Trainer):
        def get_train_dataloader(self) -> Any:
            return []

    trainer = Other(model, TrainingArguments("runs/y", num_train_epochs=2), train_dataset=[{"input_ids": [1]}])
    with pytest.raises(ConfigError, match=r"finetune\('ner', .*epochs=2.*bertkit finetune ner .*--epochs 2"):
        trainer.train()
    assert len(list(Trainer(model, train_dataset=padded(tmp_path / "start")).get_train_dataloader())) == 2
    with pytest.raises(AttributeError, match=r"--search 20"):
        trainer.hyperparameter_search()


def test_losses_and_scores_are_reported_to_tensorboard(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    rows = texts_of(start(tmp_path, BertForSequenceClassification))
    trainer = trained(
        bertkit, "AutoModelForSequenceClassification", tmp_path, rows, eval_strategy="epoch", report_to="tensorboard",
        logging_dir=str(tmp_path / "board"),
    )  # fmt: skip
    (folder,) = {each.parent for each in (tmp_path / "board").rglob("events*")}
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    for tag, name in (("training/loss", "loss"), ("held-out/eval_loss", "eval_loss")):
        assert [each.value for each in events.Scalars(tag)] == pytest.approx(values(trainer, name), rel=1e-5)


def test_steps_of_evaluation_alone_ask_for_none() -> None:
    assert TrainingArguments("out", eval_steps=100).eval_strategy == "no"


def test_a_checkpoint_that_was_not_finished_is_passed_over(tmp_path: Path) -> None:
    rows = texts_of(save_tiny(tmp_path / "start", BertForSequenceClassification))

    def trainer(steps: int) -> Trainer:
        model = BertForSequenceClassification.from_pretrained(tmp_path / "start")
        args = TrainingArguments(tmp_path / "out", max_steps=steps, save_steps=1, per_device_train_batch_size=5)
        return Trainer(
            model, args, train_dataset=rows, processing_class=bertkit.AutoTokenizer.from_pretrained(tmp_path / "start")
        )

    trainer(2).train()
    (tmp_path / "out" / "checkpoint-2" / "trainer_state.json").unlink()
    assert trainer(2).train(resume_from_checkpoint=True).global_step == 2
