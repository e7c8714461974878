"""Pre-train a BERT on a token store: masked LM, with or without next sentence, from nothing or from a checkpoint.

Devlin et al. 2019, sections 3.1 and A.2. The run folder holds ``model/`` (a checkpoint that every class of this package
loads), ``log.jsonl``, ``metrics.json`` and, until the end, ``checkpoints/``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from bertkit.batch import Batch
from bertkit.config import BertConfig
from bertkit.data.loader import PretrainData
from bertkit.data.masking import Masking, MaskVocabulary
from bertkit.data.store import TokenStore
from bertkit.errors import ConfigError
from bertkit.files import write_atomically
from bertkit.model.bert import BertForPreTraining
from bertkit.optim import adamw, linear_schedule, parameter_groups
from bertkit.training.generators import seed_generators, seeded
from bertkit.training.loop import LoopOptions, Progression, Trainer
from bertkit.training.pretrain_settings import PretrainConfig
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
    resume: bool = False,
    device: str | torch.device = "cpu",
) -> PretrainResult:
    """Train to the end.

    Args:
        store: the corpus, from :func:`bertkit.data.prepare.prepare`.
        out: the run folder; new, or with ``resume`` the folder of a stopped run of the same settings.
        config: see :class:`PretrainConfig`.
        model: a shape, for new weights drawn from ``config.seed``; or a model whose weights are the start (continued
            pre-training), which is changed in place.
        dev: held-out text, scored after each epoch and at the end.
        resume: go on from the newest checkpoint in ``out``, bit for bit.
        device: where the model is trained.

    Raises:
        ConfigError: ``out`` holds a run and ``resume`` is False; a shape that does not fit the store.
        DataError: a store that is damaged, or ``dev`` made with another tokenizer.
        TrainingError, Interrupted, ResourceError, CheckpointError: see :meth:`Trainer.run`.
    """
    config = config or PretrainConfig()
    folder = Path(out).expanduser()
    if (folder / METRICS).exists() or ((folder / CHECKPOINTS).exists() and not resume):
        raise ConfigError(f"{folder} already holds a run: resume it if it is unfinished, or choose another folder")
    tokenizer = store.tokenizer()
    if dev is not None:
        dev.check_tokenizer(tokenizer)
    vocabulary = MaskVocabulary.of(tokenizer.convert_ids_to_tokens(range(len(tokenizer))))
    network = _network(model, config, vocabulary).to(device)
    train_data = _data(store, vocabulary, config)
    seed_generators(config.seed)
    folder.mkdir(parents=True, exist_ok=True)
    evaluate = None if dev is None else _evaluation(network, _data(dev, vocabulary, config), config)
    log = RunLog(folder / LOG)
    trainer: Trainer[Batch] = Trainer(
        network,
        train_data,
        adamw(parameter_groups(network, weight_decay=config.weight_decay), learning_rate=config.learning_rate),
        linear_schedule(config.max_steps, warmup=config.warmup),
        LoopOptions(
            config.max_steps,
            config.learning_rate,
            max_grad_norm=config.max_grad_norm,
            checkpoint_every_s=config.checkpoint_every_s,
            label="pre-training",
        ),
        evaluate=evaluate,
        log=log,
        folder=folder / CHECKPOINTS,
        identity={**config.model_dump(exclude={"checkpoint_every_s"}), "store": store.manifest.model_dump(mode="json")},
    )
    log.drop_after(trainer.at.step if resume and trainer.resume() else 0)
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


def _data(store: TokenStore, vocabulary: MaskVocabulary, config: PretrainConfig) -> PretrainData:
    return PretrainData(
        store,
        vocabulary,
        objective=config.objective,
        max_seq_length=config.max_seq_length,
        batch_size=config.batch_size,
        max_tokens=max(config.max_tokens, config.max_seq_length),
        masking=Masking(rate=config.masked_lm_prob),
        short_seq_prob=config.short_seq_prob,
        seed=config.seed,
    )


def _evaluation(
    network: BertForPreTraining, data: PretrainData, config: PretrainConfig
) -> Callable[[Callable[[], None]], dict[str, float]]:
    """The four metrics of the original on the same held-out examples every time."""
    steps = range(min(data.steps_per_epoch, max(1, config.dev_examples // config.batch_size)))

    def evaluate(check: Callable[[], None]) -> dict[str, float]:
        totals: dict[str, float] = {}
        for step in steps:
            for batch in data.micro_batches(step):
                check()
                for name, value in _counts(network, batch.to(next(network.parameters()).device)).items():
                    totals[name] = totals.get(name, 0.0) + value
        return {
            f"{term}_{metric}": totals[f"{term}_{metric}"] / totals[f"{term}_targets"]
            for term in ("masked_lm", "next_sentence")
            for metric in ("loss", "accuracy")
            if f"{term}_targets" in totals
        }

    return evaluate


def _counts(network: BertForPreTraining, batch: Batch) -> dict[str, float]:
    """Sums over one batch of what the metrics divide."""
    out = network.forward_packed(batch)
    assert out.loss_terms is not None
    assert batch.logit_rows is not None
    compared: dict[str, tuple[Tensor | None, Tensor]] = {
        "masked_lm": (out.prediction_logits, batch.targets["labels"][batch.logit_rows]),
    }
    if "next_sentence" in out.loss_terms:
        compared["next_sentence"] = (out.seq_relationship_logits, batch.targets["next_sentence_label"])
    counts = {}
    for term, (logits, labels) in compared.items():
        assert logits is not None
        counts[f"{term}_loss"] = float(out.loss_terms[term].total)
        counts[f"{term}_accuracy"] = float((logits.argmax(-1) == labels).sum())
        counts[f"{term}_targets"] = float(labels.numel())
    return counts
