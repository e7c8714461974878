"""The fields of a config that only some families have: None in all others."""

from __future__ import annotations

from typing import Annotated, Literal

from bertkit.system.validated_settings import Field, Settings

Size = Annotated[int, Field(ge=1, le=65_536)]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
#: What the tokens of a layer attend to: all others, or those in a window around them.
LayerType = Literal["full_attention", "sliding_attention"]


class FamilyFields(Settings):
    """Which family has which is in ``bertkit.config.families``, as are their defaults."""

    embedding_size: Size | None = Field(
        None, description="width E of the embeddings (ALBERT, ELECTRA); None means hidden_size"
    )
    num_hidden_groups: int | None = Field(
        None, ge=1, le=512, description="sets of weights that the layers share (ALBERT); None: one per layer"
    )
    inner_group_num: int | None = Field(None, ge=1, le=64, description="layers in a group (ALBERT)")
    seq_classif_dropout: Probability | None = Field(
        None, description="dropout before the classifier of sequences and choices (DistilBERT)"
    )
    qa_dropout: Probability | None = Field(None, description="dropout before the span head (DistilBERT)")
    summary_last_dropout: Probability | None = Field(
        None, description="dropout before the classifier of choices (ELECTRA)"
    )
    global_attn_every_n_layers: int | None = Field(
        None,
        ge=1,
        le=512,
        description="one layer in so many attends to all tokens, the first one included (ModernBERT)",
    )
    layer_types: list[LayerType] | None = Field(
        None, max_length=512, description="the type of each layer, where no such rule gives them (ModernBERT)"
    )
    local_attention: int | None = Field(
        None, ge=2, le=1_000_000, description="tokens that the other layers attend to, half on each side (ModernBERT)"
    )
    global_rope_theta: float | None = Field(
        None,
        gt=1.0,
        le=1e12,
        description="base of the rotary positions in layers that attend to all tokens (ModernBERT)",
    )
    local_rope_theta: float | None = Field(None, gt=1.0, le=1e12, description="that in the other layers (ModernBERT)")
    norm_bias: bool | None = Field(None, description="whether LayerNorm has a bias (ModernBERT)")
    attention_bias: bool | None = Field(None, description="whether the matrices of attention have one (ModernBERT)")
    mlp_bias: bool | None = Field(None, description="whether those of the feed-forward have one (ModernBERT)")
    decoder_bias: bool | None = Field(None, description="whether the scores of words have one (ModernBERT)")
    classifier_bias: bool | None = Field(None, description="whether the layer before a head has one (ModernBERT)")
    classifier_activation: Literal["gelu", "gelu_new", "relu"] | None = Field(
        None, description="activation of the layer before a head (ModernBERT)"
    )
    embedding_dropout: Probability | None = Field(None, description="dropout on embeddings (ModernBERT)")
    mlp_dropout: Probability | None = Field(None, description="dropout inside the feed-forward (ModernBERT)")
    initializer_cutoff_factor: float | None = Field(
        None, gt=0.0, le=100.0, description="where the normal of new weights is cut off, in sd (ModernBERT)"
    )
    pos_att_type: list[Literal["c2p", "p2c"]] | None = Field(
        None, description="scores besides content to content: to position, from position (DeBERTa)"
    )
    share_att_key: bool | None = Field(
        None, description="whether positions go through the matrices of the content (DeBERTa)"
    )
    norm_rel_ebd: Literal["layer_norm", "none"] | None = Field(
        None, description="what is done with the vectors of relative positions (DeBERTa)"
    )
    max_relative_positions: int | None = Field(
        None, ge=-1, le=1_000_000, description="farthest distance; below 1: max_position_embeddings (DeBERTa)"
    )
    position_buckets: int | None = Field(
        None, ge=-1, le=65_536, description="vectors for distances to one side; below 1: one for each (DeBERTa)"
    )
    position_biased_input: bool | None = Field(
        None, description="whether the embeddings have absolute positions as well (DeBERTa)"
    )
    pooler_dropout: Probability | None = Field(None, description="dropout before the pooler of a classifier (DeBERTa)")
    cls_dropout: Probability | None = Field(None, description="dropout before a classifier of sequences (DeBERTa)")
