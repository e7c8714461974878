"""What is known of a model that is served, and of the heads of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bertkit.config.config_file import checkpoint_folder
from bertkit.config.decision import read_decision
from bertkit.errors import ConfigError
from bertkit.inference.pipeline_base import Pipeline
from bertkit.inference.run_files import read_scores
from bertkit.server.calls import ModelFacts
from bertkit.server.label_rule import LabelRule
from bertkit.server.model_tasks import OF_HEADS, OF_TOKENIZERS
from bertkit.server.open_model import OpenModel


def head_facts(facts: ModelFacts, name: str) -> ModelFacts:
    """Of a head of a run, with what is known of the run now; of the run where it is not loaded yet."""
    head = facts.heads.get(name)
    return facts if head is None else replace(head, state=facts.state, error=facts.error, revision=facts.revision)


def listed(facts: ModelFacts) -> list[ModelFacts]:
    """A model, and behind it its heads."""
    return [replace(facts, heads={}) if facts.heads else facts, *(head_facts(facts, name) for name in facts.heads)]


def facts_of(before: ModelFacts, model: OpenModel, least: Mapping[str, float]) -> ModelFacts:
    """Of a model that is loaded. ``least``: thresholds by label; of a head ``HEAD:LABEL``."""
    folder = checkpoint_folder(model.path)
    decision = read_decision(folder)
    temperature = decision.get("temperature")
    of_heads = {name: name.partition(":")[0] for name in least if name.partition(":")[0] in model.heads}
    known = replace(
        before,
        state="ready",
        error=None,
        revision=None,
        tasks=model.tasks,
        lacks=model.lacks,
        engine=model.engine_name,
        model_class=model.model_class,
        precision=model.precision,
        family=str(model.config.model_type),
        width=model.config.hidden_size,
        max_length=model.max_length,
        vocabulary=len(model.tokenizer),
        pooling=model.pooling,
        labels=model.labels,
        mask=model.tokenizer.mask_token,
        temperature=temperature if isinstance(temperature, float) else None,
        decides=_rule_of(
            model.labels if "classify" in model.tasks else None,
            model.config.problem_type,
            decision,
            {name: share for name, share in least.items() if name not in of_heads},
        ),
        dev_scores=read_scores(folder) or None,
        num_bytes=sum(file.stat().st_size for file in folder.glob("*.safetensors")),
    )
    heads = {}
    for name, pipe in model.heads.items():
        own = {label.partition(":")[2]: share for label, share in least.items() if of_heads.get(label) == name}
        heads[name] = _facts_of_head(known, name, pipe, own)
    return replace(known, heads=heads)


def _facts_of_head(run: ModelFacts, name: str, pipe: Pipeline, least: Mapping[str, float]) -> ModelFacts:
    temperature = pipe.decision.get("temperature")
    has_labels = pipe.task in ("text-classification", "token-classification")
    labels = tuple(pipe.config.id2label.values()) if has_labels else None
    classifies = labels if pipe.task == "text-classification" else None
    scores, prefix = (run.dev_scores or {}).items(), f"{name}/"
    return replace(
        run,
        name=f"{run.name}/{name}",
        source=str(pipe.folder),
        tasks=(*OF_HEADS[pipe.task], *OF_TOKENIZERS),
        lacks={},
        model_class=pipe.engine.model_class,
        max_length=pipe.max_length,
        pooling=None,
        labels=labels,
        temperature=temperature if isinstance(temperature, float) else None,
        decides=_rule_of(classifies, pipe.config.problem_type, pipe.decision, least),
        dev_scores={metric.removeprefix(prefix): share for metric, share in scores if metric.startswith(prefix)}
        or None,
        num_bytes=0,
    )


def _rule_of(
    labels: tuple[str, ...] | None, problem: str | None, decision: Mapping[str, Any], least: Mapping[str, float]
) -> LabelRule | None:
    """How a classifier with these labels decides; None: there are none."""
    if labels is None or problem == "regression":
        if least:
            raise ConfigError(
                f"thresholds are set for {', '.join(least)}, and the model is no classifier of labels; "
                "of a run with several heads name the head: HEAD:LABEL=0.9"
            )
        return None
    several = problem == "multi_label_classification" or len(labels) == 1
    try:
        return LabelRule(labels=labels, several=several, tuned=decision.get("thresholds") or {}, least=least)
    except ValueError as error:
        raise ConfigError(f"thresholds: {error}") from None
