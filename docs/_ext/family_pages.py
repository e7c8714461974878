"""The tables of families, from what the package knows of them: ``_generated/families.md``."""

from __future__ import annotations

import torch

from bertkit import BertConfig, BertModel
from bertkit.config.families import FAMILIES, Family
from bertkit.tokenization import BertTokenizer, RobertaTokenizer
from bertkit.tokenization.auto_tokenizer import MODEL_TYPES, tokenizer_class
from bertkit.tokenization.unigram_tokenizers import UnigramTokenizer

#: How the published weights were pre-trained, with the paper; a family that is not here makes the build red.
TRAINED = {
    "bert": "masked words, next sentence (Devlin et al. 2019)",
    "roberta": "masked words, masks drawn anew each time, ten times the text (Liu et al. 2019)",
    "camembert": "masked whole words, French (Martin et al. 2020)",
    "xlm-roberta": "masked words, 100 languages (Conneau et al. 2020)",
    "distilbert": "masked words, and the outputs of BERT as a teacher (Sanh et al. 2019)",
    "albert": "masked words, order of two sentences (Lan et al. 2020)",
    "electra": "which words were replaced, by a small masked LM (Clark et al. 2020)",
    "mpnet": "words in permuted order, with positions of all (Song et al. 2020)",
    "deberta-v2": "masked words; version 3: replaced words (He et al. 2021)",
    "modernbert": "masked words, 30 % masked, texts to 8,192 tokens (Warner et al. 2024)",
}
TOKENIZERS = {BertTokenizer: "WordPiece", UnigramTokenizer: "Unigram", RobertaTokenizer: "BPE of bytes"}
SCORES = {
    "rotary": "positions by rotating queries and keys; most layers see a window",
    "biased": "a bias for each distance",
    "disentangled": "scores of content and of distance apart",
}


def family_pages() -> dict[str, str]:
    """Path of the generated file -> its text: a table of shapes, and one of what else differs."""
    shapes, rest = zip(*(_rows(name, family) for name, family in FAMILIES.items()), strict=True)
    tables = (
        ("| family | layers x width | parameters | longest text | tokenizer |\n|---|--:|--:|--:|---|", shapes),
        ("| family | pre-trained on | differs from BERT in |\n|---|---|---|", rest),
    )
    return {"_generated/families.md": "\n\n".join("\n".join([head, *rows]) for head, rows in tables) + "\n"}


def _rows(name: str, family: Family) -> tuple[str, str]:
    config = BertConfig(model_type=name)
    with torch.device("meta"):
        parameters = sum(each.numel() for each in BertModel(config).parameters())
    longest = config.max_position_embeddings - (config.pad_token_id + 1 if family.positions_after_padding else 0)
    tokenizer = next(said for base, said in TOKENIZERS.items() if issubclass(tokenizer_class(MODEL_TYPES[name]), base))
    size = f"{config.num_hidden_layers} x {config.hidden_size} | {parameters / 1e6:,.0f} M"
    return (
        f"| `{name}` | {size} | {longest:,} | {tokenizer} |",
        f"| `{name}` | {TRAINED[name]} | {'; '.join(_differences(config, family))} |",
    )


def _differences(config: BertConfig, family: Family) -> list[str]:
    """What the values of a family say, in words."""
    found = {
        "no segments": config.type_vocab_size == 0,
        "embeddings of their own width": "embedding_size" in family.own,
        "all layers share weights": "num_hidden_groups" in family.own,
        "positions begin behind the padding id": family.positions_after_padding,
        SCORES.get(family.scores, ""): family.scores != "content",
        "no table of positions": not family.position_table,
        "norms before and not behind, a gated feed-forward, no biases": family.pre_norm,
        "no pooler": not family.has_pooler,
        "a layer of its own before a classifier": bool(family.poolers) or family.head_layer,
        "no dropout on what attention gives": not family.drops_attention,
    }
    return [said for said, holds in found.items() if holds] or ["-"]
