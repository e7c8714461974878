"""A student of running text: a small general model that learns from a large one, like DistilBERT, MiniLMv2, TinyBERT.

The folder::

    OUT/
        distill.json   settings, teacher and result; written at the start, completed at the end
        student/       the model that training began with, where it was made of the teacher
        run/           the pre-training run, see :class:`bertkit.training.pretraining.pretrain.PretrainFolder`
        model/         the student and its tokenizer: load OUT/model like any checkpoint

The same command continues an interrupted run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from bertkit.config.any_config import read_any_config
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import checkpoint_folder, config_path
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import ConfigError, counted
from bertkit.inference.protocol import model_hash
from bertkit.system.device import Device, find_device
from bertkit.system.json_files import printable
from bertkit.system.model_sources import resolve
from bertkit.system.rendered import Rendered
from bertkit.system.untrusted_files import Json
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.digest import tokenizer_digest
from bertkit.training.distillation.distill_run import (
    MODEL,
    RUN,
    DistillRun,
    distilling,
    recipe_of,
    rendered,
    teacher_facts,
)
from bertkit.training.distillation.distill_settings import (
    DistillRecipe,
    StateDistillation,
    Student,
    TaskDistillation,
    VectorDistillation,
)
from bertkit.training.distillation.students import HEAD_WIDTH, first_shape
from bertkit.training.distillation.taught_networks import (
    TaughtPredictions,
    TaughtRelations,
    TaughtStates,
    check_pair,
    encoder_of,
    load_teacher,
)
from bertkit.training.pretraining.objectives import Network
from bertkit.training.pretraining.operations import encoder_flops
from bertkit.training.pretraining.pretrain import PretrainResult, pretrain
from bertkit.training.pretraining.pretrain_settings import PretrainConfig

#: The methods whose students keep a masked-LM head, and the class of the teacher's layers that they may begin with.
PREDICTS = {"distilbert": "BertForMaskedLM"}


@dataclass(frozen=True, slots=True)
class CorpusResult(Rendered):
    """The outcome of :func:`distill_corpus`: scores of held-out text; weights and operations of the encoders."""

    folder: Path
    method: str
    steps: int
    losses: Mapping[str, float]
    scores: Mapping[str, float]
    parameters: Mapping[str, int]
    megaflops: Mapping[str, float]

    def to_dict(self) -> dict[str, Json]:
        """Plain data for JSON."""
        return {**asdict(self), "folder": printable(self.folder)}

    def render(self) -> str:
        """The outcome for people."""
        rows = [("encoder", *self.parameters)]
        rows.append(("million weights", *(f"{count / 1e6:,.2f}" for count in self.parameters.values())))
        rows.append(("MFLOP a text of 128 tokens", *(f"{count:,.0f}" for count in self.megaflops.values())))
        found = {**{f"train {name}": value for name, value in self.losses.items()}, **self.scores}
        lines = [f"{name:<26} {value:.4f}" for name, value in found.items()]
        return rendered(f"{self.method}: {counted(self.steps, 'step')}", [rows], lines, self.folder / MODEL)


def distill_corpus(
    teacher: str | Path,
    store: TokenStore,
    out: str | Path,
    recipe: DistillRecipe | str | Path = "distilbert",
    *,
    dev: TokenStore | None = None,
    device: Device = None,
) -> CorpusResult:
    """Train a student on a corpus, on what its teacher makes of the same batches.

    The teacher has the store's tokenizer and, for DistilBERT, a masked-LM head. ``dev`` is held-out text, for a student
    with such a head. ``out`` is new, or that of the same call, which is continued.
    """
    given = recipe_of(recipe, "distilbert", "minilmv2", "tinybert")
    place, config = str(find_device(device, "cpu")), given.training
    config = config.replace(precision=config.precision or "fp32")  # with a teacher, bf16 was not compared with fp32
    check_training(config, given.method, dev)
    path = resolve(teacher)
    check_tokenizer(path, store, "teacher")
    given = replace(given, student=(student := student_of(given, path)))
    if student.model is not None:  # others have the teacher's
        check_tokenizer(resolve(student.model), store, "student")
    facts: dict[str, Json] = {"teacher": teacher_facts(teacher, model_hash(path))}
    with distilling(out, given, path, place, facts) as run:
        known = load_teacher(path, given.method)
        run.begin()
        start = run.start(PREDICTS.get(given.method, "BertModel"))

        def loss_for(network: Network) -> nn.Module:
            return taught(network, known, given)

        added = {"distillation": given.distillation.model_dump(), "teacher": facts["teacher"]}
        trained = pretrain(
            store, run.path / RUN, config, model=str(start), dev=dev, device=place, loss_for=loss_for, added=added
        )
        return run.finished(_finish(run, trained, known))


def student_of(recipe: DistillRecipe, teacher: Path) -> Student:
    """What the student begins with. ConfigError if it cannot be compared with the teacher, before anything is written.

    A new shape whose heads are not given has the teacher's number, if attention is compared and the width allows it.
    """
    given, theirs = recipe.begins_with(), read_any_config(config_path(teacher))
    if not isinstance(theirs, BertConfig):
        raise ConfigError(f"{teacher} is an encoder-decoder; these methods have an encoder as their teacher")
    settings, heads = recipe.distillation, theirs.num_attention_heads
    if isinstance(settings, StateDistillation) and given.shape is not None and given.heads is None:
        width = int(given.shape.partition("x")[2])
        if width % heads == 0 and heads != max(1, width // HEAD_WIDTH):
            given = given.model_copy(update={"heads": heads})
    ours = first_shape(given, teacher)
    if not isinstance(ours, BertConfig):
        raise ConfigError(f"{given.model} is an encoder-decoder; a student is an encoder (--student)")
    assert not isinstance(settings, TaskDistillation | VectorDistillation), "of other methods"
    check_pair(ours, theirs, settings)
    return given


def taught(network: Network, teacher: Any, recipe: DistillRecipe) -> nn.Module:
    """What the training loop sees of a student; ConfigError if it cannot be compared with the teacher."""
    assert hasattr(network, "bert"), "an encoder with heads"
    student: Any = network
    match recipe.method:
        case "distilbert":
            return TaughtPredictions(student, teacher, recipe.distillation)
        case "minilmv2":
            return TaughtRelations(student, teacher, recipe.distillation)
        case _:
            return TaughtStates(student, teacher, recipe.distillation, seed=recipe.training.seed)


def check_training(config: PretrainConfig, method: str, dev: TokenStore | None) -> None:
    """Refuse (ConfigError) settings that the methods do not have."""
    if config.objective != "mlm":
        raise ConfigError(f"objective={config.objective!r}: a student learns from masked text alone; use 'mlm'")
    for name in ("parallel", "gradient_checkpointing"):
        if getattr(config, name):
            raise ConfigError(f"{name}={getattr(config, name)!r} does not work with a teacher; leave it out")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("a student learns in one process; start the command without torchrun")
    if dev is not None and method not in PREDICTS:
        raise ConfigError(f"method {method} trains no masked-LM head that held-out text could score; leave dev out")


def check_tokenizer(path: Path, store: TokenStore, whose: str) -> None:
    """Refuse (ConfigError) a model that reads other tokens than the store has."""
    folder = checkpoint_folder(path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer_digest(tokenizer) != store.manifest.tokenizer.sha256:
        raise ConfigError(
            f"the {whose} {printable(folder)} has another tokenizer than the token store {printable(store.path)}, and "
            "student and teacher are compared token by token. Prepare the corpus with it (bertkit prepare TEXTS "
            f"--tokenizer {printable(folder)} --out STORE); students of fine-tuned runs (recipe task) may have another"
        )


def _finish(run: DistillRun, trained: PretrainResult, teacher: Any) -> CorpusResult:
    """Save the student, without a head that was not trained."""
    target = run.path / MODEL
    model: Any = load_teacher(trained.model, run.recipe.method)
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(trained.model).save_pretrained(target)
    encoders = {"teacher": encoder_of(teacher), "student": encoder_of(model)}
    last = trained.progression.epochs[-1]
    return CorpusResult(
        run.path,
        run.recipe.method,
        trained.progression.step,
        {"loss": float(last["train_loss"])},
        trained.scores,
        {name: encoder.num_parameters() for name, encoder in encoders.items()},
        {name: encoder_flops(encoder.config, [128], [128]) / 1e6 for name, encoder in encoders.items()},
    )
