"""TinyBERT's intermediate stage: on the texts of a task, a student's attention and states follow a teacher's.

Jiao et al. 2020, section 3. The folder is a part of that of :mod:`bertkit.training.distillation.distill_task`::

    FOLDER/
        log.jsonl      one line per step and per epoch
        model/         the student after it, with the head that it had
        checkpoints/   training state while the stage is unfinished
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertkit.batch import collate
from bertkit.config.any_config import read_any_config
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import checkpoint_folder, config_path
from bertkit.errors import ConfigError
from bertkit.model.auto import AutoModel
from bertkit.model.models import BertModel
from bertkit.ragged import Ragged
from bertkit.system.atomic_files import new_folder
from bertkit.system.console import say
from bertkit.system.json_files import printable
from bertkit.system.untrusted_files import Json
from bertkit.tasks.workflow import AnyWorkflow
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.digest import tokenizer_digest
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.training.distillation.distill_run import MODEL
from bertkit.training.distillation.distill_settings import TaskDistillation
from bertkit.training.distillation.taught_networks import TaughtStates
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.trainer.assembly import make_trainer, options_in, run_trainer
from bertkit.training.trainer.batch_plan import EpochPlan
from bertkit.training.trainer.generators import seeded
from bertkit.training.trainer.run_folder import CHECKPOINTS

#: A student with its teacher, and the tokenizer of both.
StatePair = tuple[TaughtStates, PreTrainedTokenizer]


def open_pair(
    teacher: Path, start: Path, workflow: AnyWorkflow, settings: TaskDistillation, *, seed: int, device: str
) -> StatePair:
    """A student of weights ``start`` and its teacher, and the tokenizer of both. A head is kept and not trained."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint_folder(start))
    student = _student(start, workflow).to(device)
    return TaughtStates(student, BertModel.from_pretrained(teacher), settings, seed=seed), tokenizer


def check_same_tokenizer(start: Path, teacher: Path, settings: TaskDistillation) -> None:
    """Refuse (ConfigError) a checkpoint whose states cannot be compared with the teacher's."""
    ours, theirs = (AutoTokenizer.from_pretrained(checkpoint_folder(path)) for path in (start, teacher))
    if tokenizer_digest(ours) != tokenizer_digest(theirs):
        raise ConfigError(
            f"state_epochs={settings.state_epochs}: the student {printable(start)} has another tokenizer than the "
            f"teacher {printable(teacher)}, and states are compared token by token; give a student with the teacher's "
            "tokenizer, or set state_epochs=0"
        )


def follow_states(
    pair: StatePair,
    folder: Path,
    rows: Ragged,
    settings: TaskDistillation,
    config: FinetuneConfig,
    *,
    identity: Mapping[str, Json],
    how_to_resume: str,
) -> Path:
    """Train the student of :func:`open_pair` on ``rows``, texts as it reads them; where it is afterwards."""
    taught, tokenizer = pair
    plan = EpochPlan(
        rows.lengths.tolist(),
        lambda numbers: collate(rows, numbers),
        step_size=config.batch_size * config.accumulation,
        max_tokens=config.max_tokens,
        seed=config.seed,
    )
    say(f"the student's attention and states follow the teacher's on {len(rows):,} texts")
    assert config.precision is not None, "settings must be resolved"
    with seeded(config.seed), options_in(folder, identity, "following states", how_to_resume) as options:
        num_steps = settings.state_epochs * plan.steps_per_epoch
        loop = options.loop(config, num_steps, settings.state_learning_rate, config.precision)
        run_trainer(make_trainer(taught, plan, config, loop), options)
    model = folder / MODEL
    with new_folder(model) as draft:
        taught.student.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    return model


def _student(start: Path, workflow: AnyWorkflow) -> Any:
    shape = read_any_config(config_path(start))
    if not isinstance(shape, BertConfig):
        raise ConfigError(
            f"state_epochs: the student {printable(start)} is an encoder-decoder, whose states are not compared layer "
            "by layer; give an encoder, or set state_epochs=0"
        )
    head = workflow.model_class.removeprefix("Bert")
    has_head = any(name.endswith(head) for name in shape.architectures or ())
    return (workflow.network(shape) if has_head else AutoModel).from_pretrained(start)
