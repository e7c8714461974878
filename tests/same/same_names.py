"""Run inside one tree by ``make same``: what public Python names compute, as files that can be compared.

    python same_names.py MODELS DATA RUNS OUT

Only ``bertkit.__all__`` and the documented modules are used.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bertkit
from bertkit import classic, hub, metrics, metrics_squad
from bertkit.model.resize import resize_vocabulary

SHAPE: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 40, "initializer_range": 0.2,
}  # fmt: skip
#: What the configs of some families have beside or in place of these.
OF_FAMILY: dict[str, dict[str, Any]] = {
    "Albert": {"embedding_size": 12},
    "Electra": {"embedding_size": 12},
    "Roberta": {"type_vocab_size": 1},
    "Camembert": {"type_vocab_size": 1},
    "XLMRoberta": {"type_vocab_size": 1},
    "DistilBert": {"type_vocab_size": 0},
}
#: Families whose configs take these sizes.
FAMILIES = ("Bert", *OF_FAMILY)
#: What the outputs of the models are called.
FIELDS = tuple(
    "loss logits start_logits end_logits prediction_logits seq_relationship_logits sop_logits last_hidden_state "
    "pooler_output hidden_states attentions".split()
)
#: Head to its labels, from ids and mask.
TARGETS: dict[str, Callable[[torch.Tensor, torch.Tensor], dict[str, torch.Tensor]]] = {
    "ForMaskedLM": lambda ids, mask: {"labels": torch.where((ids % 5 == 0) & (mask > 0), ids, -100)},
    "ForSequenceClassification": lambda ids, mask: {"labels": ids[:, 1] % 3},
    "ForTokenClassification": lambda ids, mask: {"labels": torch.where(mask > 0, ids % 3, -100)},
    "ForQuestionAnswering": lambda ids, mask: {"start_positions": ids[:, 0] % 4, "end_positions": ids[:, 1] % 4 + 2},
    "ForMultipleChoice": lambda ids, mask: {"labels": ids[:, 0, 1] % 2},
    "ForNextSentencePrediction": lambda ids, mask: {"labels": ids[:, 1] % 2},
}


def main(models: Path, data: Path, runs: Path, out: Path) -> None:
    out.mkdir(parents=True)
    texts = (data / "texts.txt").read_text(encoding="utf-8").splitlines()
    write(out / "tokenizers.json", dict(tokenizers(models, texts)))
    np.savez(out / "models.npz", **dict(models_of_all_families()))
    write(out / "pipelines.json", dict(pipelines(models, runs, texts)))
    np.savez(out / "vectors.npz", **dict(vectors(models, texts)))
    write(out / "estimator.json", dict(estimator(models, texts)))
    write(out / "classic.json", dict(originals(models, data, texts)))
    np.savez(out / "hub.npz", **dict(hub_layers(models, texts)))
    write(out / "metrics.json", dict(scores()))


def tokenizers(models: Path, texts: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for name in ("BertTokenizer", "AutoTokenizer"):
        tokenizer = getattr(bertkit, name).from_pretrained(models / "encoder")
        yield f"{name} ids", tokenizer(list(texts))["input_ids"]
        yield f"{name} tokens", [tokenizer.tokenize(text) for text in texts]
        pairs = tokenizer(
            list(texts[:20]), list(texts[-20:]), truncation=True, max_length=24, padding=True,
            return_offsets_mapping=True, return_special_tokens_mask=True, return_token_type_ids=True,
        )  # fmt: skip
        yield f"{name} pairs", {key: pairs[key] for key in sorted(pairs)}
        yield (
            f"{name} windows",
            tokenizer(list(texts), truncation=True, max_length=12, stride=4, return_overflowing_tokens=True)[
                "input_ids"
            ],
        )
        yield f"{name} decoded", [tokenizer.decode(ids) for ids in tokenizer(list(texts))["input_ids"]]
    vocab = models / "encoder" / "vocab.txt"
    yield "FullTokenizer", [bertkit.FullTokenizer(str(vocab), do_lower_case=True).tokenize(text) for text in texts]
    yield "BasicTokenizer", [bertkit.BasicTokenizer(do_lower_case=False).tokenize(text) for text in texts]


def models_of_all_families() -> Iterator[tuple[str, np.ndarray]]:
    """Outputs, loss and the norm of every gradient of each public model, with and without dropout."""
    for name in bertkit.__all__:
        found = re.fullmatch(r"([A-Z]\w*?)(Model|For[A-Z]\w+)", name)
        if found is None or name.startswith("Auto"):
            continue
        family, head = found.groups()
        torch.manual_seed(0)
        if family not in FAMILIES:
            continue
        config = getattr(bertkit, f"{family}Config")
        changes = OF_FAMILY.get(family, {})
        labels = {} if head in ("Model", "ForQuestionAnswering", "ForPreTraining") else {"num_labels": 3}
        model = getattr(bertkit, name)(config(**{**SHAPE, **changes, **labels}))
        given = inputs(head, segments=changes.get("type_vocab_size", 2))
        if head in TARGETS:
            given |= TARGETS[head](given["input_ids"], given["attention_mask"])
        for mode in ("eval", "train"):
            model.train(mode == "train")
            model.zero_grad()
            torch.manual_seed(1)
            output = model(**given, **({"output_hidden_states": True} if head == "Model" else {}))
            loss = getattr(output, "loss", None)
            flat = dict(tensors("", {key: getattr(output, key, None) for key in FIELDS}))
            (loss if loss is not None else next(iter(flat.values())).square().sum()).backward()
            for key, value in flat.items():
                yield f"{name}/{mode}{key}", value.detach().numpy()
            gradients = {key: p.grad.norm() for key, p in model.named_parameters() if p.grad is not None}
            yield f"{name}/{mode}/gradients", torch.stack(list(gradients.values())).numpy()
    torch.manual_seed(0)  # names that were added before it draw nothing
    model = bertkit.BertForMaskedLM(bertkit.BertConfig(**SHAPE))
    resize_vocabulary(model, 99, {97: [3, 4], 98: [5]})
    yield "resized", next(p for p in model.parameters() if p.shape == (99, 32)).detach().numpy()


def inputs(head: str, *, segments: int) -> dict[str, torch.Tensor]:
    """Full length, padding at the end, a short one."""
    generator = torch.Generator().manual_seed(3)
    size = (4, 2, 17) if head == "ForMultipleChoice" else (4, 17)
    mask = torch.ones(size, dtype=torch.int64)
    mask[1, ..., 9:] = 0
    mask[2, ..., 8:] = 0
    given = {"input_ids": torch.randint(2, 97, size, generator=generator), "attention_mask": mask}
    if segments:
        given["token_type_ids"] = torch.randint(0, segments, size, generator=generator)
    return given


def tensors(prefix: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in nested dictionaries and tuples, by their place."""
    if isinstance(value, torch.Tensor):
        yield prefix, value
    elif isinstance(value, Mapping):
        for key in sorted(value):
            yield from tensors(f"{prefix}/{key}", value[key])
    elif isinstance(value, tuple | list):
        for number, one in enumerate(value):
            yield from tensors(f"{prefix}/{number}", one)


def pipelines(models: Path, runs: Path, texts: Sequence[str]) -> Iterator[tuple[str, Any]]:
    def of(task: str, model: Path) -> Any:
        return bertkit.pipeline(task, model=model, device="cpu")

    texts = list(texts)
    pairs = list(zip(texts[:10], texts[10:20], strict=True))
    classify = of("text-classification", models / "classifier")
    yield "classify", classify(texts, top_k=None, truncation=True)
    yield "classify head_tail", classify(texts, truncation="head_tail", max_length=16)
    yield "classify windows", classify(texts, truncation="windows", max_length=16, overlap=4)
    yield "classify logits", classify(texts, top_k=None, truncation=True, function_to_apply="none")
    yield "classify one", classify(texts[0])
    yield "classify iterator", list(classify((text for text in texts * 4), truncation=True))
    yield "next-sentence", of("next-sentence", models / "nextsentence")(pairs)
    tag = of("token-classification", models / "tagger")
    for strategy in ("none", "simple", "first", "average", "max"):
        yield f"tag {strategy}", tag(texts, aggregation_strategy=strategy, stride=5, max_length=24)
    yield "fill-mask", of("fill-mask", models / "pretraining")([f"{text[:40]} [MASK]" for text in texts[:20]], top_k=3)
    yield "similarity", of("sentence-similarity", models / "encoder")(texts[0], texts[1:20], truncation=True)
    ask = of("question-answering", runs / "squad2")
    asked = [{"question": "how many?", "context": " ".join(texts[n : n + 4])} for n in range(12)]
    yield "answer", ask(asked, top_k=2)
    yield "answer impossible", ask(asked, handle_impossible_answer=True, max_seq_len=24, doc_stride=8)
    yield "answer pieces", ask(asked, align_to_words=False, max_answer_len=3)
    questions = [{"context": a, "choices": [b, a[:20], "good"], "start": "it"} for a, b in pairs]
    yield "choose", of("multiple-choice", models / "choices")(questions)


def vectors(models: Path, texts: Sequence[str]) -> Iterator[tuple[str, np.ndarray]]:
    embed = bertkit.pipeline("feature-extraction", model=models / "encoder", device="cpu")
    for pooling in ("mean", "cls", "max"):
        yield pooling, np.stack(list(embed(list(texts), pooling=pooling, truncation=True)))
        yield (
            f"{pooling} normalized",
            np.stack(list(embed(list(texts), pooling=pooling, truncation=True, normalize=True))),
        )
    yield (
        "tokens",
        np.concatenate([np.reshape(one, (-1, np.shape(one)[-1])) for one in embed(list(texts), truncation=True)]),
    )


def estimator(models: Path, texts: Sequence[str]) -> Iterator[tuple[str, Any]]:
    chance = random.Random(7)
    rows = [" ".join([*chance.choice(texts).split()[:12], ("poor", "fine")[n % 2]]) for n in range(40)]
    labels = [("low", "high")[n % 2] for n in range(40)]
    for frozen in (False, True):
        one = bertkit.BertClassifier(
            str(models / "encoder"), epochs=2, batch_size=8, max_length=32, learning_rate=3e-3, freeze_encoder=frozen
        )
        one.fit(rows, labels)
        yield f"frozen={frozen}", {"probabilities": one.predict_proba(rows), "labels": one.predict(rows)}


def originals(models: Path, data: Path, texts: Sequence[str]) -> Iterator[tuple[str, Any]]:
    tokenizer = classic.FullTokenizer(str(models / "encoder" / "vocab.txt"), do_lower_case=True)
    for whole_words in (False, True):
        made = classic.create_training_instances(
            [data / "dev.txt"], tokenizer, 32, 2, 0.1, 0.15, 5, random.Random(5), do_whole_word_mask=whole_words
        )
        yield f"instances {whole_words}", [vars(one) if hasattr(one, "__dict__") else str(one) for one in made]
    examples = [classic.InputExample(str(n), text, texts[-n - 1], "a") for n, text in enumerate(texts[:9])]
    yield (
        "features",
        [
            [one.input_ids, one.input_mask, one.segment_ids, one.label_id]
            for one in classic.convert_examples_to_features(examples, ["b", "a"], 20, tokenizer)
        ],
    )
    weight = torch.nn.Parameter(torch.arange(6.0))
    optimizer = classic.create_optimizer([weight], 0.1, 10, 2)
    for step in range(10):
        optimizer.zero_grad()
        (weight * (step + 1)).square().sum().backward()
        optimizer.step()
    yield "optimizer", weight.detach().tolist()


def hub_layers(models: Path, texts: Sequence[str]) -> Iterator[tuple[str, np.ndarray]]:
    given = hub.Preprocess(str(models / "encoder"), seq_length=24)(list(texts))
    yield from ((key, value.numpy()) for key, value in given.items())
    made = hub.Encoder(str(models / "encoder"))(given)
    yield from ((key, value.detach().numpy()) for key, value in tensors("", made))


def scores() -> Iterator[tuple[str, Any]]:
    rng = np.random.default_rng(0)
    said, right = rng.integers(0, 3, 50), rng.integers(0, 3, 50)
    for name in ("accuracy", "macro_f1", "matthews", "pearson", "spearman"):
        yield name, getattr(metrics, name)(said, right)
    yield "f1", metrics.f1(said, right, positive=2)
    references = {"1": ["the cat", "a cat"], "2": [], "3": ["42"]}
    answers = {"1": "cat!", "2": "", "3": "41 or 42"}
    yield "squad", metrics_squad.squad_metrics(answers, {key: value or ["none"] for key, value in references.items()})
    yield "squad2", metrics_squad.squad2_metrics(answers, references)


def write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=0, default=plain, sort_keys=True), encoding="utf-8")


def plain(value: Any) -> Any:
    """What JSON cannot hold, as what it can."""
    if isinstance(value, np.ndarray | np.generic | torch.Tensor):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    return vars(value) if hasattr(value, "__dict__") else str(value)


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:]))
