"""The published sizes of BERT, BART and T5 by name, each with its source and its published number of parameters.

The config of a size: ``preset("bert-base-uncased").config``. For weights, load a checkpoint by name or path.
"""

from __future__ import annotations

from dataclasses import dataclass

from bertkit.config.any_config import AnyConfig
from bertkit.config.bert_config import BertConfig
from bertkit.config.encoder_decoder_config import BartConfig, EncoderDecoderConfig, T5Config
from bertkit.config.tower import Tower
from bertkit.errors import ConfigError, did_you_mean

_PAPER = "Devlin et al. 2019, section 3"
_T5 = "Raffel et al. 2020, section 3.7"
_T5_1_1 = "google-research/text-to-text-transfer-transformer, released_checkpoints.md"
_T5_EFFICIENT = "Tay et al. 2021 (Scale Efficiently); google/t5-efficient-tiny and -mini"
_BART = "Lewis et al. 2019, section 2.1; fairseq, examples/bart"
_MBART = "Liu et al. 2020 (mBART), section 2.1; fairseq, examples/mbart"
_SMALL = "Turc et al. 2019, table 1; google-research/bert README, 24 smaller models"


@dataclass(frozen=True, slots=True)
class Preset:
    """One published size; ``num_parameters``: of embeddings, encoder and pooler, or of a whole encoder-decoder."""

    config: AnyConfig
    num_parameters: int
    source: str


def count_parameters(config: AnyConfig) -> int:
    """Number of parameters, computed from the shape: of embeddings, encoder and pooler; of BART and T5 all."""
    if isinstance(config, EncoderDecoderConfig):
        words = config.vocab_size * config.d_model * (2 if config.has_own_output else 1)
        return words + sum(_count(config.tower(decoder=decoder), attentions=1 + decoder) for decoder in (False, True))
    d, f = config.hidden_size, config.intermediate_size
    embeddings = (config.vocab_size + config.max_position_embeddings + config.type_vocab_size) * d + 2 * d
    layer = 4 * (d * d + d) + (d * f + f) + (f * d + d) + 2 * 2 * d
    return embeddings + config.num_hidden_layers * layer + d * d + d


def _count(tower: Tower, attentions: int) -> int:
    d, heads, bias = tower.width, tower.heads * tower.head_width, tower.biases
    norm = 2 * d if bias else d
    attention = 4 * d * heads + (3 * heads + d) * bias + norm
    feed_forward = (3 if tower.gated else 2) * d * tower.inner_width + (tower.inner_width + d) * bias + norm
    positions = (tower.positions + 2) * d + norm if tower.positions else 0  # two rows are left over, in front
    around = positions + tower.buckets * tower.heads + norm * tower.pre_norm
    return tower.layers * (attentions * attention + feed_forward) + around


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

# name: (layers of each half, width, inside the feed-forward, heads, width of a head, parameters, source)
_T5_SIZES: dict[str, tuple[int, int, int, int, int, int, str]] = {
    "t5-efficient-tiny": (4, 256, 1024, 4, 64, 15_570_688, _T5_EFFICIENT),
    "t5-efficient-mini": (4, 384, 1536, 8, 64, 31_220_480, _T5_EFFICIENT),
    "t5-small": (6, 512, 2048, 8, 64, 60_506_624, _T5),
    "t5-base": (12, 768, 3072, 12, 64, 222_903_552, _T5),
    "t5-large": (24, 1024, 4096, 16, 64, 737_668_096, _T5),
    "t5-3b": (24, 1024, 16384, 32, 128, 2_851_598_336, _T5),
    "t5-11b": (24, 1024, 65536, 128, 128, 11_307_321_344, _T5),
    "t5-v1_1-small": (8, 512, 1024, 6, 64, 76_961_152, _T5_1_1),
    "t5-v1_1-base": (12, 768, 2048, 12, 64, 247_577_856, _T5_1_1),
    "t5-v1_1-large": (24, 1024, 2816, 16, 64, 783_150_080, _T5_1_1),
    "t5-v1_1-xl": (24, 2048, 5120, 32, 64, 2_849_757_184, _T5_1_1),
    "t5-v1_1-xxl": (24, 4096, 10240, 64, 64, 11_135_332_352, _T5_1_1),
}


def _t5(name: str, layers: int, width: int, inner: int, heads: int, head_width: int) -> T5Config:
    """Those of version 1.1 have gates and an output of their own."""
    newer = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    return T5Config(
        d_model=width,
        d_kv=head_width,
        d_ff=inner,
        num_layers=layers,
        num_heads=heads,
        **(newer if name.startswith("t5-v1_1") else {}),
    )


_BART_BASE = BartConfig(
    d_model=768,
    encoder_layers=6,
    encoder_ffn_dim=3072,
    encoder_attention_heads=12,
    decoder_layers=6,
    decoder_ffn_dim=3072,
    decoder_attention_heads=12,
)

PRESETS: dict[str, Preset] = {
    **{
        name: Preset(_config(layers, width, vocab_size), parameters, source)
        for name, (layers, width, vocab_size, parameters, source) in _PUBLISHED.items()
    },
    **_GRID,
    "bart-base": Preset(_BART_BASE, 139_420_416, _BART),
    "bart-large": Preset(BartConfig(), 406_291_456, _BART),
    "mbart-large-cc25": Preset(
        BartConfig(model_type="mbart", vocab_size=250_027, scale_embedding=True), 610_851_840, _MBART
    ),
    **{name: Preset(_t5(name, *sizes), parameters, source) for name, (*sizes, parameters, source) in _T5_SIZES.items()},
}


def preset(name: str) -> Preset:
    """A published size by name; the ConfigError of an unknown one suggests the nearest."""
    if name not in PRESETS:
        raise ConfigError(f"no preset {name!r}{did_you_mean(name, PRESETS)}; there are {', '.join(PRESETS)}")
    return PRESETS[name]
