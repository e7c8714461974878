"""What distinguishes the families of BERT's descendants: a few values, and the keys of their config files.

RoBERTa, CamemBERT, XLM-R, DistilBERT, ALBERT and ELECTRA are the encoder of Devlin et al. 2019 with other values;
MPNet, DeBERTa and ModernBERT also have parts of their own, which ``scores`` and ``pre_norm`` put in. What a checkpoint
chooses is a field of :class:`bertkit.config.bert_config.BertConfig`; what a whole family shares is here.
The names of their tensors are in ``bertkit.checkpoints.names``. Plain data: imports nothing else of the package.

Sources: Liu et al. 2019 (RoBERTa), Martin et al. 2020 (CamemBERT), Conneau et al. 2020 (XLM-R), Sanh et al. 2019
(DistilBERT), Lan et al. 2020 (ALBERT), Clark et al. 2020 (ELECTRA), Song et al. 2020 (MPNet), He et al. 2021 (DeBERTa),
Warner et al. 2024 (ModernBERT), and the config files of the published weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

#: A value that a key of a config file must hold.
Fixed = str | int | list[str] | dict[str, str] | None
#: How attention learns where tokens stand, besides absolute positions in the embeddings.
Scores = Literal["content", "rotary", "biased", "disentangled"]


class OwnPooler(NamedTuple):
    """The layer between [CLS] and a classifier that does not read the encoder's pooler; dropout may act before it."""

    activation: str
    drops_input: bool = False


class Family(NamedTuple):
    """One family; the defaults are BERT's.

    prefix: of the names of its classes in other software.
    defaults, keys: config fields whose default, or key in ``config.json``, differs from BERT's.
    absent: fields without a key in its ``config.json``; they keep their defaults.
    own: fields that BERT does not have (None in families without them).
    required, ignored, written: keys with their allowed values; without effect; that other software needs in a file.
    positions_after_padding: positions count from ``pad_token_id + 1``, so two rows of the table are never reached.
    poolers: by kind of head ("sequence", "choice"), where the head has its own layer instead of the pooler.
    projects_out: whether other software calls that layer and the sequence classifier ``classifier.dense`` and
        ``classifier.out_proj``.
    dropouts: by kind of head ("sequence", "token", "choice", "span", "pair"), or "pooler", the field with the dropout
        rate; empty: none. What is not listed: ``classifier_dropout``.
    drops_attention: whether ``hidden_dropout_prob`` acts on the output of attention.
    words_act: activation of the masked-LM head; None: ``hidden_act``.
    projects_always: whether embeddings as wide as the encoder are projected too.
    pair_label: keyword of the target of the sentence-pair head; None: no such head.
    scores: how attention learns where tokens stand: by rotating queries and keys, by a bias for each distance, or by
        vectors for distances that are attended to like content; "content": only by the embeddings.
    pre_norm: layers normalize what they read, not what they return, and have a gated feed-forward.
    head_layer: whether every head has a layer like that of the masked LM before it, which reads pooled vectors too.
    poolings: what other software of the family can pool for a classifier.
    own_classes: class names without a counterpart in BERT, the same here as in other software.
    """

    prefix: str
    defaults: Mapping[str, str | int | float | bool | list[str]] = {}
    keys: Mapping[str, str] = {}
    absent: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    required: Mapping[str, tuple[Fixed, ...]] = {}
    ignored: frozenset[str] = frozenset()
    written: Mapping[str, Fixed] = {}
    positions_after_padding: bool = False
    has_pooler: bool = True
    poolers: Mapping[str, OwnPooler] = {}
    projects_out: bool = False
    dropouts: Mapping[str, str] = {"span": "", "pair": ""}
    drops_attention: bool = True
    words_act: str | None = None
    projects_always: bool = False
    pair_label: str | None = None
    scores: Scores = "content"
    position_table: bool = True
    pre_norm: bool = False
    head_layer: bool = False
    poolings: tuple[str, ...] = ("cls",)
    own_classes: frozenset[str] = frozenset()

    def our_class(self, name: str) -> str:
        """Our name of the class that other software calls ``name``; one class serves all families."""
        return "Bert" + name.removeprefix(self.prefix) if self._is_counterpart(name, self.prefix) else name

    def their_class(self, name: str) -> str:
        """The name in other software of our class ``name``."""
        return self.prefix + name.removeprefix("Bert") if self._is_counterpart(name, "Bert") else name

    def _is_counterpart(self, name: str, prefix: str) -> bool:
        return name not in self.own_classes and name.startswith((f"{prefix}For", f"{prefix}Model"))


def _roberta(prefix: str, vocab_size: int) -> Family:
    return Family(
        prefix=prefix,
        defaults={"vocab_size": vocab_size, "pad_token_id": 1},
        positions_after_padding=True,
        poolers={"sequence": OwnPooler("tanh", drops_input=True)},
        projects_out=True,
        dropouts={"span": "", "pair": "", "choice": "hidden_dropout_prob"},
        words_act="gelu",
    )


#: By ``model_type``.
FAMILIES: Mapping[str, Family] = {
    "bert": Family(prefix="Bert", written={"position_embedding_type": "absolute"}, pair_label="next_sentence_label"),
    "roberta": _roberta("Roberta", 50265),
    "camembert": _roberta("Camembert", 30522),
    "xlm-roberta": _roberta("XLMRoberta", 30522),
    "distilbert": Family(
        prefix="DistilBert",
        defaults={"num_hidden_layers": 6, "type_vocab_size": 0, "seq_classif_dropout": 0.2, "qa_dropout": 0.1},
        keys={
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "hidden_act": "activation",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
        },
        absent=frozenset({"type_vocab_size", "layer_norm_eps", "classifier_dropout"}),
        own=frozenset({"seq_classif_dropout", "qa_dropout"}),
        ignored=frozenset({"sinusoidal_pos_embds", "tie_weights_"}),  # initialization; always tied
        has_pooler=False,
        poolers={"sequence": OwnPooler("relu"), "choice": OwnPooler("relu")},
        dropouts={
            "sequence": "seq_classif_dropout",
            "choice": "seq_classif_dropout",
            "token": "hidden_dropout_prob",
            "span": "qa_dropout",
        },
        drops_attention=False,
    ),
    "albert": Family(
        prefix="Albert",
        defaults={
            "vocab_size": 30000,
            "embedding_size": 128,
            "hidden_size": 4096,
            "num_attention_heads": 64,
            "intermediate_size": 16384,
            "hidden_act": "gelu_new",
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "classifier_dropout": 0.1,
            "num_hidden_groups": 1,
            "inner_group_num": 1,
        },
        keys={"classifier_dropout": "classifier_dropout_prob"},
        own=frozenset({"embedding_size", "num_hidden_groups", "inner_group_num"}),
        required={
            "down_scale_factor": (1,),
            "gap_size": (0,),
            "net_structure_type": (0,),
            "num_memory_blocks": (0,),
            "layers_to_keep": ([],),
        },
        dropouts={"span": ""},
        projects_always=True,
        pair_label="sentence_order_label",
    ),
    "electra": Family(
        prefix="Electra",
        defaults={
            "embedding_size": 128,
            "hidden_size": 256,
            "num_attention_heads": 4,
            "intermediate_size": 1024,
            "summary_last_dropout": 0.1,
        },
        own=frozenset({"embedding_size", "summary_last_dropout"}),
        required={"summary_type": ("first",), "summary_use_proj": (True,), "summary_activation": ("gelu",)},
        has_pooler=False,
        poolers={"sequence": OwnPooler("gelu", drops_input=True), "choice": OwnPooler("gelu")},
        projects_out=True,
        dropouts={"span": "", "choice": "summary_last_dropout"},
        words_act="gelu",
        own_classes=frozenset({"ElectraForPreTraining"}),
    ),
    "mpnet": Family(
        prefix="MPNet",
        defaults={
            "vocab_size": 30527,
            "pad_token_id": 1,
            "type_vocab_size": 0,
        },
        absent=frozenset({"type_vocab_size", "classifier_dropout"}),
        required={"relative_attention_num_buckets": (32,)},
        positions_after_padding=True,
        poolers={"sequence": OwnPooler("tanh", drops_input=True)},
        projects_out=True,
        dropouts={"span": ""},
        words_act="gelu",
        scores="biased",
    ),
    "deberta-v2": Family(
        prefix="DebertaV2",
        defaults={
            "vocab_size": 128100,
            "hidden_size": 1536,
            "num_hidden_layers": 24,
            "num_attention_heads": 24,
            "intermediate_size": 6144,
            "type_vocab_size": 0,
            "layer_norm_eps": 1e-7,
            "pos_att_type": ["p2c", "c2p"],
            "share_att_key": False,
            "norm_rel_ebd": "none",
            "max_relative_positions": -1,
            "position_buckets": -1,
            "position_biased_input": True,
            "pooler_dropout": 0.0,
        },
        absent=frozenset({"classifier_dropout"}),
        own=frozenset(
            "pos_att_type share_att_key norm_rel_ebd max_relative_positions position_buckets position_biased_input "
            "pooler_dropout cls_dropout".split()
        ),
        required={
            "relative_attention": (True,),
            "pooler_hidden_act": ("gelu",),
            "conv_kernel_size": (0, None),
        },
        # The two layouts of the masked-LM head differ in their names only, and both are read.
        ignored=frozenset({"legacy", "conv_act", "conv_groups"}),
        written={"relative_attention": True},
        has_pooler=False,
        poolers={"sequence": OwnPooler("gelu", drops_input=True), "choice": OwnPooler("gelu", drops_input=True)},
        dropouts={
            "sequence": "cls_dropout",
            "choice": "cls_dropout",
            "token": "hidden_dropout_prob",
            "span": "",
            "pooler": "pooler_dropout",
        },
        scores="disentangled",
        position_table=False,
    ),
    "modernbert": Family(
        prefix="ModernBert",
        defaults={
            "vocab_size": 50368,
            "num_hidden_layers": 22,
            "intermediate_size": 1152,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "max_position_embeddings": 8192,
            "type_vocab_size": 0,
            "layer_norm_eps": 1e-5,
            "pad_token_id": 50283,
            "classifier_dropout": 0.0,
            "global_attn_every_n_layers": 3,
            "local_attention": 128,
            "global_rope_theta": 160_000.0,
            "local_rope_theta": 10_000.0,
            "norm_bias": False,
            "attention_bias": False,
            "mlp_bias": False,
            "decoder_bias": True,
            "classifier_bias": False,
            "classifier_activation": "gelu",
            "embedding_dropout": 0.0,
            "mlp_dropout": 0.0,
            "initializer_cutoff_factor": 2.0,
        },
        keys={
            "hidden_act": "hidden_activation",
            "layer_norm_eps": "norm_eps",
            "attention_probs_dropout_prob": "attention_dropout",
            "pooling": "classifier_pooling",
        },
        absent=frozenset({"type_vocab_size", "hidden_dropout_prob"}),
        own=frozenset(
            "global_attn_every_n_layers layer_types local_attention global_rope_theta local_rope_theta norm_bias "
            "attention_bias mlp_bias decoder_bias classifier_bias classifier_activation embedding_dropout mlp_dropout "
            "initializer_cutoff_factor".split()
        ),
        # mmBERT says "sans_pos"; neither changes the rotary positions.
        required={"position_embedding_type": ("absolute", "sans_pos", None)},
        ignored=frozenset(
            "deterministic_flash_attn reference_compile repad_logits_with_grad sparse_prediction "
            "sparse_pred_ignore_index".split()
        ),
        has_pooler=False,
        dropouts={"pair": ""},
        scores="rotary",
        position_table=False,
        pre_norm=True,
        head_layer=True,
        poolings=("cls", "mean"),
    ),
}

#: The ``model_type`` of each kind of encoder-decoder; see :mod:`bertkit.config.encoder_decoder_config`.
ENCODER_DECODERS = ("bart", "mbart", "t5")

#: Keys of published config files that do not affect the arithmetic of an encoder with absolute positions: settings of
#: generation and training, what a call returns, ids of special tokens, notes of the authors.
IGNORED_KEYS = frozenset(
    """
    _attn_implementation _attn_implementation_autoset _attn_implementation_internal _commit_hash
    _experts_implementation _experts_implementation_internal _name_or_path _num_labels _output_attentions adapters
    attn_implementation bad_words_ids begin_suppress_tokens bos_token_id bos_token_ids cell chunk_size_feed_forward
    cls_token_id cross_attention_hidden_size decoder_start_token_id directionality diversity_penalty do_sample dtype
    early_stopping emb_size encoder_no_repeat_ngram_size eos_token_id eos_token_ids experts_implementation
    exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing
    is_encoder_decoder language length_penalty mask_token_id max_length max_new_tokens min_length min_new_tokens
    model_max_length name no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_past
    output_scores pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type
    pre_trained prefix remove_invalid_values renormalize_logits repetition_penalty return_dict
    return_dict_in_generate return_tuple sbert_ce_default_activation_function sentence_transformers sep_token_id
    structure suppress_tokens task_specific_params temperature tf_legacy_loss tie_encoder_decoder tokenizer_class
    top_k top_p torch_dtype torchscript training transformers.js_config transformers_version typical_p unk_token_id
    use_bfloat16 use_cache xla_device
    """.split()
)
#: Keys that must hold this value (or be absent) for the encoder to be the one this package computes.
REQUIRED_VALUES: Mapping[str, tuple[Fixed, ...]] = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
}
#: Other names of our activations; the tanh form has several.
SAME_ACTIVATIONS: Mapping[str, str] = {
    "gelu_python": "gelu",
    **dict.fromkeys(("gelu_accurate", "gelu_fast", "gelu_python_tanh", "gelu_pytorch_tanh"), "gelu_new"),
}
