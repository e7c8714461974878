"""Pre-train a BERT on a token store: masked LM, with or without next sentence, from nothing or from a checkpoint.

Devlin et al. 2019, sections 3.1 and A.2. The run folder holds ``model/`` (a checkpoint that every class of this package
loads), ``log.jsonl``, ``metrics.json`` and, until the end, ``checkpoints/``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from bertkit.batch import Batch
from bertkit.config import BertConfig
from bertkit.data.masking import MaskVocabulary
from bertkit.data.store import TokenStore
from bertkit.errors import ConfigError
from bertkit.files import write_atomically
from bertkit.model.bert import BertForPreTraining
from bertkit.optim import OPTIMIZERS, parameter_groups
from bertkit.training.generators import seed_generators, seeded
from bertkit.training.loop import LoopOptions, Progression, Trainer
from bertkit.training.pretrain_data import held_out_data, mask_vocabulary, training_data
from bertkit.training.pretrain_evaluate import held_out_scores
from bertkit.training.pretrain_schedule import make_schedule
from bertkit.training.pretrain_settings import FREE_SETTINGS, PretrainConfig
from bertkit.training.runfolder import RunLog

MODEL, LOG, METRICS, CHECKPOINTS = "model", "log.jsonl", "metrics.json", "checkpoints"


@dataclass(frozen=True, slots=True)
class PretrainResult:
    """A finished run: its folder's ``model/``, and the scores on held-out text (empty without any)."""

    model: Path
    progression: Progression
    scores: Mapping[str, float]


def pretrain(
    store: TokenStore,
    out: str | Path,
    config: PretrainConfig | None = None,
    *,
    model: BertConfig | BertForPreTraining,
    dev: TokenStore | None = None,
    resume: bool = True,
    device: str | torch.device = "cpu",
) -> PretrainResult:
    """Train to the end.

    Args:
        store: the corpus, from :func:`bertkit.data.prepare.prepare`.
        out: the run folder; new, or the folder of a stopped run of the same settings.
        config: see :class:`PretrainConfig`.
        model: a shape, for new weights drawn from ``config.seed``; or a model whose weights are the start (continued
            pre-training), which is changed in place.
        dev: held-out text, scored after each epoch, every ``config.eval_every_steps`` steps, and at the end.
        resume: go on from the newest checkpoint in ``out``, where there is one, bit for bit (but for a run with a time
            budget, whose rate follows the clock); False: an unfinished run in ``out`` is an error.
        device: where the model is trained.

    Raises:
        ConfigError: settings that contradict each other; ``out`` holds a finished run, or with ``resume=False`` an
            unfinished one; a shape that does not fit the store.
        DataError: a store that is damaged, or ``dev`` made with another tokenizer.
        CheckpointError: the run in ``out`` was begun with other settings or data.
        TrainingError, Interrupted, ResourceError: see :meth:`Trainer.run`.
    """
    config = config or PretrainConfig()
    config.check()
    folder = Path(out).expanduser()
    _check_folder(folder, resume=resume)
    tokenizer = store.tokenizer()
    if dev is not None:
        dev.check_tokenizer(tokenizer)
    vocabulary = mask_vocabulary(tokenizer)
    network = _network(model, config, vocabulary).to(device)
    data = training_data(store, vocabulary, config)
    seed_generators(config.seed)
    evaluate = None
    if dev is not None:
        evaluate = held_out_scores(network, held_out_data(dev, vocabulary, config), config.dev_examples)
    folder.mkdir(parents=True, exist_ok=True)
    log = RunLog(folder / LOG)
    trainer: Trainer[Batch] = Trainer(
        network,
        data,
        OPTIMIZERS[config.optimizer](
            parameter_groups(network, weight_decay=config.weight_decay),
            learning_rate=config.learning_rate,
            betas=(0.9, config.adam_beta2),
        ),
        make_schedule(config, lambda: trainer.at.seconds),
        loop_options(config),
        evaluate=evaluate,
        log=log,
        folder=folder / CHECKPOINTS,
        identity={**config.model_dump(exclude=set(FREE_SETTINGS)), "store": store.manifest.model_dump(mode="json")},
    )
    log.drop_after(trainer.at.step if trainer.resume() else 0)
    try:
        at = trainer.run()
    finally:
        log.close()
    network.eval()
    network.save_pretrained(folder / MODEL)
    tokenizer.save_pretrained(folder / MODEL)
    last = at.epochs[-1]
    scores = {key.removeprefix("dev_"): value for key, value in last.items() if key.startswith("dev_")}
    told = {"settings": config.model_dump(), "progression": asdict(at), "dev": scores}
    write_atomically(folder / METRICS, json.dumps(told, indent=2) + "\n")
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    return PretrainResult(folder / MODEL, at, scores)


def loop_options(config: PretrainConfig) -> LoopOptions:
    """What the training loop needs to know of the settings."""
    return LoopOptions(
        config.num_steps,
        config.learning_rate,
        max_grad_norm=config.max_grad_norm,
        checkpoint_every_s=config.checkpoint_every_s,
        keep=config.keep_checkpoints,
        max_seconds=config.max_seconds,
        evaluate_every_steps=config.eval_every_steps,
        label="pre-training",
    )


def _check_folder(folder: Path, *, resume: bool) -> None:
    if (folder / METRICS).exists():
        raise ConfigError(
            f"{folder} already holds a run, and it is finished: its model is in {folder / MODEL}. Choose another "
            "folder for a new run"
        )
    if (folder / CHECKPOINTS).exists() and not resume:
        raise ConfigError(
            f"{folder} already holds a run that is not finished: leave out --no-resume (resume=False) to go on with "
            "it, or choose another folder"
        )


def _network(
    model: BertConfig | BertForPreTraining, config: PretrainConfig, vocabulary: MaskVocabulary
) -> BertForPreTraining:
    if isinstance(model, BertConfig):
        with seeded(config.seed):
            network = BertForPreTraining(model)
    else:
        network = model
    shape = network.config
    if shape.vocab_size < vocabulary.size or shape.max_position_embeddings < config.max_seq_length:
        raise ConfigError(
            f"the model has vocab_size={shape.vocab_size} and max_position_embeddings={shape.max_position_embeddings}; "
            f"the store needs {vocabulary.size} tokens, max_seq_length={config.max_seq_length} that many positions"
        )
    return network
