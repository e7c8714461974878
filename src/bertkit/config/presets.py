"""The published BERT sizes by name, each with its source and its published number of parameters.

``BertConfig`` of a size: ``preset("bert-base-uncased").config``. For weights, load a checkpoint by name or path.
"""

from __future__ import annotations

from dataclasses import dataclass

from bertkit.config.bert_config import BertConfig
from bertkit.errors import ConfigError, did_you_mean

_PAPER = "Devlin et al. 2019, section 3"
_SMALL = "Turc et al. 2019, table 1; google-research/bert README, 24 smaller models"


@dataclass(frozen=True, slots=True)
class Preset:
    """One published size.

    config: its shape.
    num_parameters: of embeddings, encoder and pooler; tests compare it with the formula and with a built model.
    source: where it was published, with its name there.
    """

    config: BertConfig
    num_parameters: int
    source: str


def count_parameters(config: BertConfig) -> int:
    """Number of parameters in embeddings, encoder and pooler of a model of the bert family, computed from the shape."""
    d, f = config.hidden_size, config.intermediate_size
    embeddings = (config.vocab_size + config.max_position_embeddings + config.type_vocab_size) * d + 2 * d
    layer = 4 * (d * d + d) + (d * f + f) + (f * d + d) + 2 * 2 * d
    return embeddings + config.num_hidden_layers * layer + d * d + d


def _config(num_layers: int, width: int, vocab_size: int = 30522) -> BertConfig:
    """The rule of the published sizes: heads of width 64, feed-forward four times the width."""
    return BertConfig(
        vocab_size=vocab_size,
        hidden_size=width,
        num_hidden_layers=num_layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
    )


# name: (layers, width, vocabulary, parameters, source)
_PUBLISHED: dict[str, tuple[int, int, int, int, str]] = {
    "bert-tiny": (2, 128, 30522, 4_385_920, f"{_SMALL}: uncased_L-2_H-128_A-2"),
    "bert-mini": (4, 256, 30522, 11_170_560, f"{_SMALL}: uncased_L-4_H-256_A-4"),
    "bert-small": (4, 512, 30522, 28_763_648, f"{_SMALL}: uncased_L-4_H-512_A-8"),
    "bert-medium": (8, 512, 30522, 41_373_184, f"{_SMALL}: uncased_L-8_H-512_A-8"),
    "bert-base-uncased": (12, 768, 30522, 109_482_240, f"{_PAPER}: uncased_L-12_H-768_A-12"),
    "bert-base-cased": (12, 768, 28996, 108_310_272, f"{_PAPER}: cased_L-12_H-768_A-12"),
    "bert-large-uncased": (24, 1024, 30522, 335_141_888, f"{_PAPER}: uncased_L-24_H-1024_A-16"),
    "bert-large-cased": (24, 1024, 28996, 333_579_264, f"{_PAPER}: cased_L-24_H-1024_A-16"),
    "bert-base-multilingual-uncased": (
        12, 768, 105879, 167_356_416, "google-research/bert multilingual.md: multilingual_L-12_H-768_A-12",
    ),
    "bert-base-multilingual-cased": (
        12, 768, 119547, 177_853_440, "google-research/bert multilingual.md: multi_cased_L-12_H-768_A-12",
    ),
    "bert-base-chinese": (12, 768, 21128, 102_267_648, "google-research/bert README: chinese_L-12_H-768_A-12"),
}  # fmt: skip

#: The 24 smaller models by the names of their archives; tiny, mini, small, medium and base are five of them.
_GRID = {
    name: Preset(config, count_parameters(config), f"{_SMALL}: {name}")
    for layers in (2, 4, 6, 8, 10, 12)
    for width in (128, 256, 512, 768)
    for name, config in [(f"uncased_L-{layers}_H-{width}_A-{width // 64}", _config(layers, width))]
}

PRESETS: dict[str, Preset] = {
    name: Preset(_config(layers, width, vocab_size), parameters, source)
    for name, (layers, width, vocab_size, parameters, source) in _PUBLISHED.items()
} | _GRID


def preset(name: str) -> Preset:
    """A published size by name; the ConfigError of an unknown one suggests the nearest."""
    if name not in PRESETS:
        raise ConfigError(f"no preset {name!r}{did_you_mean(name, PRESETS)}; there are {', '.join(PRESETS)}")
    return PRESETS[name]
