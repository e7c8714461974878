"""What sets the families apart: configs, positions, places of dropout, layers that share weights, names of classes."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers.models.auto import modeling_auto
from transformers.models.modernbert import modeling_modernbert

import bertkit
from bertkit import BertConfig, BertForMaskedLM, BertForPreTraining, BertModel, CheckpointError, ConfigError, InputError
from bertkit.batch import Layout, pack
from bertkit.checkpoints.names import TABLES
from bertkit.config.any_config import COUNTERPARTS
from bertkit.config.families import FAMILIES
from bertkit.model.auto import MODEL_CLASSES
from bertkit.model.kernels import dropout
from bertkit.model.resize import resize_vocabulary
from bertkit.model.rotary_attention import RotaryPositions
from family_helpers import CASES, SHAPES, C, V, inputs, pair, their_model
from parity_measures import error

LIMIT = 1e-5
TINY = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
#: Configs as they were published, with the keys of their time.
PUBLISHED: dict[str, dict[str, Any]] = {
    "roberta-base": {
        "architectures": ["RobertaForMaskedLM"], "attention_probs_dropout_prob": 0.1, "bos_token_id": 0,
        "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
        "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 514,
        "model_type": "roberta", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1,
        "type_vocab_size": 1, "vocab_size": 50265,
    },
    "xlm-roberta-base": {
        "architectures": ["XLMRobertaForMaskedLM"], "attention_probs_dropout_prob": 0.1, "bos_token_id": 0,
        "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
        "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 514,
        "model_type": "xlm-roberta", "num_attention_heads": 12, "num_hidden_layers": 12, "output_past": True,
        "pad_token_id": 1, "position_embedding_type": "absolute", "type_vocab_size": 1, "use_cache": True,
        "vocab_size": 250002,
    },
    "distilbert-base-uncased": {
        "activation": "gelu", "architectures": ["DistilBertForMaskedLM"], "attention_dropout": 0.1, "dim": 768,
        "dropout": 0.1, "hidden_dim": 3072, "initializer_range": 0.02, "max_position_embeddings": 512,
        "model_type": "distilbert", "n_heads": 12, "n_layers": 6, "pad_token_id": 0, "qa_dropout": 0.1,
        "seq_classif_dropout": 0.2, "sinusoidal_pos_embds": False, "tie_weights_": True, "vocab_size": 30522,
    },
    "albert-base-v2": {
        "architectures": ["AlbertForMaskedLM"], "attention_probs_dropout_prob": 0, "bos_token_id": 2,
        "classifier_dropout_prob": 0.1, "down_scale_factor": 1, "embedding_size": 128, "eos_token_id": 3, "gap_size": 0,
        "hidden_act": "gelu_new", "hidden_dropout_prob": 0, "hidden_size": 768, "initializer_range": 0.02,
        "inner_group_num": 1, "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
        "model_type": "albert", "net_structure_type": 0, "num_attention_heads": 12, "num_hidden_groups": 1,
        "num_hidden_layers": 12, "num_memory_blocks": 0, "pad_token_id": 0, "type_vocab_size": 2, "vocab_size": 30000,
    },
    "electra-small-discriminator": {
        "architectures": ["ElectraForPreTraining"], "attention_probs_dropout_prob": 0.1, "embedding_size": 128,
        "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 256, "initializer_range": 0.02,
        "intermediate_size": 1024, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "electra",
        "num_attention_heads": 4, "num_hidden_layers": 12, "pad_token_id": 0, "summary_activation": "gelu",
        "summary_last_dropout": 0.1, "summary_type": "first", "summary_use_proj": True, "type_vocab_size": 2,
        "vocab_size": 30522,
    },
}  # fmt: skip
#: Parameters of the bare encoder, counted by transformers 5 for these configs.
NUM_PARAMETERS = {
    "roberta-base": 124_645_632, "xlm-roberta-base": 278_043_648, "distilbert-base-uncased": 66_362_880,
    "albert-base-v2": 11_683_584, "electra-small-discriminator": 13_483_008,
}  # fmt: skip


# --- configs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs(name: str) -> None:
    values = PUBLISHED[name]
    config = BertConfig.from_dict(values)
    assert config.architectures == [FAMILIES[config.model_type].our_class(values["architectures"][0])]
    assert BertConfig.from_dict(config.to_dict()) == config
    written = config.to_dict()
    again = {key: written[key] for key in values if key in written}
    assert again == {key: values[key] for key in again}
    dropped = values.keys() - written.keys()
    assert dropped <= {
        "bos_token_id", "eos_token_id", "output_past", "use_cache", "position_embedding_type", "sinusoidal_pos_embds",
        "tie_weights_", "down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks",
        "summary_activation", "summary_type", "summary_use_proj",
    }  # fmt: skip
    with torch.device("meta"):
        assert BertModel(config).num_parameters() == NUM_PARAMETERS[name]


#: Theirs is no DeBERTa by default: it has no relative positions.
PUBLISHED_DEFAULTS: dict[str, dict[str, Any]] = {
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
}
#: Keys that theirs reads but does not declare, or that only older versions read.
UNDECLARED = (
    "position_embedding_type", "global_attn_every_n_layers", "norm_rel_ebd", "position_buckets", "share_att_key",
)  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_every_key_and_default_is_that_of_the_field(family: str) -> None:
    theirs = transformers.AutoConfig.for_model(family, num_labels=3, **PUBLISHED_DEFAULTS.get(family, {}))
    config = BertConfig.from_dict(theirs.to_dict())
    assert BertConfig(model_type=family, num_labels=3) == config
    again = transformers.AutoConfig.for_model(**config.to_dict()).to_dict()
    for name in UNDECLARED:
        again.pop(name, None)
    assert again == theirs.to_dict()


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "bert"])
def test_configs_by_their_names_elsewhere(family: str, tmp_path: Path) -> None:
    name = f"{FAMILIES[family].prefix}Config"
    ours, theirs = getattr(bertkit, name), getattr(transformers, name)
    usual = PUBLISHED_DEFAULTS.get(family, {})
    few = {"vocab_size": 30, "num_labels": 3, "pad_token_id": 1, **usual}
    small = {key: value for key, value in theirs(**few).to_dict().items() if value is not None}
    for values in (usual, few, small):
        config = ours(**values)
        assert isinstance(config, BertConfig)
        again = transformers.AutoConfig.for_model(**config.to_dict()).to_dict()
        for name in UNDECLARED:
            again.pop(name, None)
        assert {**again, "dtype": None} == {**theirs(**values).to_dict(), "dtype": None}
    config.save_pretrained(tmp_path)
    assert ours.from_pretrained(tmp_path) == config
    assert ours.from_pretrained(tmp_path, num_labels=4).num_labels == 4


def test_a_name_of_a_family_reads_no_other() -> None:
    assert bertkit.DistilBertConfig(dim=24, n_heads=2) == BertConfig(
        model_type="distilbert", hidden_size=24, num_attention_heads=2
    )
    with pytest.raises(ConfigError, match="model_type is 'bert'; RobertaConfig takes 'roberta' only"):
        bertkit.RobertaConfig(model_type="bert")
    with pytest.raises(ConfigError, match="did you mean 'hidden_size'"):
        bertkit.AlbertConfig(hiden_size=4)


def test_a_checkpoint_of_another_family_is_refused(tmp_path: Path) -> None:
    BertConfig(**TINY).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"is of the bert family; ElectraConfig takes 'electra' only"):
        bertkit.ElectraConfig.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model_type": "mobilebert"}, "model_type is 'mobilebert'.*reads bert, roberta"),
        ({"model_type": "robert"}, "did you mean 'roberta'"),
        ({"embedding_size": 4}, "the bert family has no field embedding_size, got 4"),
        ({"model_type": "roberta", "qa_dropout": 0.1}, "the roberta family has no field qa_dropout"),
        ({"model_type": "distilbert", "type_vocab_size": 2}, "type_vocab_size is 0 in the distilbert family, got 2"),
        ({"model_type": "roberta", "max_position_embeddings": 2}, "leaves no position.*begin at pad_token_id"),
        ({"model_type": "albert", "num_hidden_groups": 0}, "num_hidden_groups = 0"),
        ({"model_type": ["bert"]}, "model_type is"),
    ],
)
def test_values_that_a_family_has_not(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BertConfig(**values)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model_type": "distilbert", "dim": 8, "hidden_size": 16}, "dim is 8 but hidden_size, another name.*is 16"),
        ({"model_type": "electra", "summary_type": "mean"}, "summary_type is 'mean'; bertkit only supports"),
        ({"model_type": "albert", "num_memory_blocks": 2}, "num_memory_blocks is 2"),
        ({"model_type": "roberta", "dim": 8}, "unknown field 'dim'"),
    ],
)
def test_files_that_say_something_else(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BertConfig.from_dict(values)


def test_both_names_of_a_field_are_read_where_they_agree() -> None:
    assert BertConfig.from_dict({"model_type": "distilbert", "dim": 24, "hidden_size": 24}).hidden_size == 24


# --- positions -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def robertas(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    return pair("roberta", "BertModel", tmp_path_factory.mktemp("roberta"))


def states(model: Any, **given: Tensor) -> Tensor:
    with torch.no_grad():
        return model(**given).last_hidden_state


def test_padding_s_id_inside_a_text_takes_padding_s_position(robertas: tuple[Any, Any]) -> None:
    theirs, ours = robertas
    ids = torch.tensor([[0, 7, 1, 9, 2], [0, 1, 1, 5, 2]])
    assert error(states(ours, input_ids=ids), states(theirs, input_ids=ids)) < LIMIT
    control = states(ours, input_ids=ids, position_ids=torch.arange(2, 7)[None])
    assert error(control, states(theirs, input_ids=ids)) > 100 * LIMIT


def test_padding_on_the_left_and_positions_that_are_given(robertas: tuple[Any, Any]) -> None:
    theirs, ours = robertas
    ids, mask = torch.tensor([[1, 1, 0, 5, 2], [0, 8, 7, 6, 2]]), torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    given = {"input_ids": ids, "attention_mask": mask}
    real = mask.bool()
    assert error(states(ours, **given)[real], states(theirs, **given)[real]) < LIMIT
    given["position_ids"] = torch.tensor([[1, 1, 20, 3, 39], [5, 2, 1, 0, 9]])
    assert error(states(ours, **given)[real], states(theirs, **given)[real]) < LIMIT


@pytest.mark.parametrize("family", ["modernbert", "deberta-v3", "mpnet"])
def test_a_gap_in_the_mask_where_distances_count(family: str, tmp_path: Path) -> None:
    """Padding inside a text would change distances: refused, unless every token sees every other one anyway."""
    theirs, ours = pair(family, "BertModel", tmp_path)
    longest = ours.config.longest_with_gaps
    size = longest + 8
    mask = torch.ones(2, size, dtype=torch.int64)
    mask[0, :2] = mask[1, -2:] = 0  # on the left and on the right
    ids = torch.randint(5, 30, (2, size)) * mask + ours.config.pad_token_id * (1 - mask)
    real = mask.bool()
    given = {"input_ids": ids, "attention_mask": mask}
    assert error(states(ours, **given)[real], states(theirs, **given)[real]) < LIMIT
    mask[1, 1] = 0
    with pytest.raises(InputError, match="attention_mask has a gap: column 1 of row 1 is 0 between real tokens"):
        ours(ids, mask)
    if longest:
        mask[1, longest:] = 0
        real = mask.bool()
        assert error(states(ours, **given)[real], states(theirs, **given)[real]) < LIMIT


def test_vectors_in_place_of_ids_count_from_the_first_position(robertas: tuple[Any, Any]) -> None:
    theirs, ours = robertas
    vectors = torch.randn(2, 6, 32, generator=torch.Generator().manual_seed(1))
    ids = torch.ones(2, 6, dtype=torch.int64)
    found = states(ours, input_ids=ids, inputs_embeds=vectors)
    assert error(found, states(theirs, inputs_embeds=vectors)) < LIMIT


def test_the_longest_input(robertas: tuple[Any, Any]) -> None:
    theirs, ours = robertas
    assert ours.config.max_input_length == 38  # of 40 rows
    ids = torch.full((1, 38), 5)
    assert error(states(ours, input_ids=ids), states(theirs, input_ids=ids)) < LIMIT
    with pytest.raises(InputError, match=r"position_ids has 40, outside 0 \.\.\. 39.*Truncate"):
        ours(torch.full((1, 39), 5))
    with pytest.raises(InputError, match="position_ids has 40"):
        ours.forward_packed(pack([[5] * 3, [5] * 39]))


def test_embeddings_are_projected_also_where_vectors_are_given(tmp_path: Path) -> None:
    theirs, ours = pair("albert", "BertModel", tmp_path)
    vectors = torch.randn(2, 6, 12, generator=torch.Generator().manual_seed(1))
    found = states(ours, input_ids=torch.zeros(2, 6, dtype=torch.int64), inputs_embeds=vectors)
    assert error(found, states(theirs, inputs_embeds=vectors)) < LIMIT


def test_a_family_without_segments_does_not_look_at_them(tmp_path: Path) -> None:
    _, ours = pair("distilbert", "BertModel", tmp_path)
    given = inputs("distilbert", "BertModel")
    segments = torch.ones_like(given["input_ids"])
    assert torch.equal(states(ours, **given, token_type_ids=segments), states(ours, **given))


@pytest.mark.parametrize("sizes", [{}, {"hidden_size": 36, "num_attention_heads": 3}, {"hidden_size": 768}])
def test_angles_are_theirs_bit_for_bit(sizes: dict[str, int]) -> None:
    """Far into a text a frequency that is rounded otherwise makes other angles: of 8,000 radians a part in 10,000."""
    values = {**SHAPES["modernbert"][1], "max_position_embeddings": 8192, **sizes}
    config = transformers.AutoConfig.for_model("modernbert", **values)
    theirs = modeling_modernbert.ModernBertRotaryEmbedding(config)
    ours = RotaryPositions(BertConfig.from_dict(config.to_dict()))
    for kind, angles in ours(torch.empty(0), Layout((8192,))).items():
        expected = theirs(torch.empty(0), torch.arange(8192)[None], kind)
        for found, both_halves in zip(angles, expected, strict=True):
            assert torch.equal(found[:, 0], both_halves[0, :, : found.shape[-1]])


# --- dropout ---------------------------------------------------------------------------------------------------------

RATES = {
    "hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3, "classifier_dropout": 0.4,
    "classifier_dropout_prob": 0.4, "dropout": 0.2, "attention_dropout": 0.3, "qa_dropout": 0.5,
    "seq_classif_dropout": 0.6, "summary_last_dropout": 0.7, "embedding_dropout": 0.8, "mlp_dropout": 0.15,
    "pooler_dropout": 0.25, "cls_dropout": 0.35,
}  # fmt: skip
#: One layer says it all; two heads of BERT need a target to be run at all.
ONE_OF_EACH = [(shape, head) for shape, head in CASES if "," not in shape and shape not in ("camembert", "xlm-roberta")]


@pytest.mark.parametrize(("shape", "head"), ONE_OF_EACH)
def test_dropout_acts_where_theirs_does(shape: str, head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rates above 0 in the order in which they act."""
    family, values = SHAPES[shape]
    known = transformers.AutoConfig.for_model(family).to_dict()
    if family not in ("mpnet", "deberta-v2"):
        known["classifier_dropout"] = None
    own = {name: rate for name, rate in RATES.items() if name in values or (name in known and family != "distilbert")}
    own.pop("classifier_dropout", None) if family == "albert" else None
    theirs = their_model(shape, head, num_hidden_layers=1, **own)
    seen: list[float] = []
    plain = torch.nn.functional.dropout

    def spy(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        seen.extend([p] if p and training else [])
        return plain(x, p, training, inplace)

    monkeypatch.setattr(torch.nn.functional, "dropout", spy)
    given = inputs(shape, head, padded=False)
    theirs.train()(**given)
    expected, ours = list(seen), MODEL_CLASSES[head](BertConfig.from_dict(theirs.config.to_dict()))
    if family == "albert":  # theirs leaves out the one after the feed-forward, which the paper's code has
        expected.insert(3, 0.2)
    seen.clear()
    original = dropout.keep_mask
    monkeypatch.setattr(dropout, "keep_mask", lambda like, p: (seen.append(p), original(like, p))[1])
    ours.train()(**given)
    assert seen == expected
    assert len(set(expected)) > 1


# --- weights that are shared -----------------------------------------------------------------------------------------


def test_layers_of_a_group_share_their_weights() -> None:
    config = BertConfig(
        model_type="albert",
        **{**TINY, "num_hidden_layers": 6},
        embedding_size=4,
        num_hidden_groups=2,
        inner_group_num=2,
    )
    assert config.layer_order == (0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3)
    model = BertModel(config)
    assert len(model.encoder.layer) == config.num_stored_layers == 4
    out = model(torch.randint(0, 30, (2, 5)), output_hidden_states=True)
    assert len(out.hidden_states) == 13
    out.pooler_output.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_gradient_checkpointing_of_shared_layers() -> None:
    config = BertConfig(model_type="albert", **TINY, embedding_size=4)
    model = BertForMaskedLM(config).train()
    ids = torch.randint(0, 30, (2, 5), generator=torch.Generator().manual_seed(0))
    gradients = []
    for kept in (False, True):
        model.set_gradient_checkpointing(kept)
        model.zero_grad()
        model(ids, labels=ids).loss.backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_can_be_pickled_prepacked_and_given_more_words(family: str) -> None:
    narrow, padding = {"embedding_size": 4}, {"pad_token_id": 0}
    own = {"albert": narrow, "electra": narrow, "modernbert": padding}.get(family, {})
    model = BertForMaskedLM(BertConfig(model_type=family, **TINY, **own)).eval()
    ids = torch.randint(2, 30, (2, 5), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        logits = model(ids).logits
        assert torch.allclose(pickle.loads(pickle.dumps(model)).prepack()(ids).logits, logits, atol=1e-5)
    resize_vocabulary(model, 32, {30: [3], 31: [4, 5]})
    with torch.inference_mode():
        assert torch.allclose(model(ids).logits[..., :30], logits, atol=1e-5)


# --- classes ---------------------------------------------------------------------------------------------------------


def test_names_of_classes_both_ways() -> None:
    for shape, head in CASES:
        family = FAMILIES[SHAPES[shape][0]]
        theirs = family.their_class(head)
        assert hasattr(transformers, theirs)
        assert family.our_class(theirs) == head
    assert FAMILIES["roberta"].our_class("XLMRobertaModel") == "XLMRobertaModel"
    assert FAMILIES["electra"].our_class("ElectraForPreTraining") == "ElectraForPreTraining"


def test_auto_classes_choose_as_the_field_does() -> None:
    for auto, mapping in {
        "AutoModel": modeling_auto.MODEL_MAPPING_NAMES,
        "AutoModelForPreTraining": modeling_auto.MODEL_FOR_PRETRAINING_MAPPING_NAMES,
        "AutoModelForMaskedLM": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        "AutoModelForSequenceClassification": modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
        "AutoModelForTokenClassification": modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
        "AutoModelForQuestionAnswering": modeling_auto.MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES,
        "AutoModelForMultipleChoice": modeling_auto.MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES,
    }.items():
        for family, values in FAMILIES.items():
            if auto == "AutoModelForPreTraining" and family not in mapping:
                continue  # theirs has none; ours is the masked LM
            assert values.their_class(getattr(bertkit, auto).classes[family]) == mapping[family]
        for kind in COUNTERPARTS:  # encoder-decoders; theirs has classifiers of a T5, too
            if ours := getattr(bertkit, auto).classes.get(kind):
                assert re.sub("^MBart", "Bart", mapping.get(kind, ours)) == ours


@pytest.mark.parametrize("shape", SHAPES)
def test_auto_classes_load(shape: str, tmp_path: Path) -> None:
    theirs = their_model(shape, "BertForTokenClassification")
    theirs.save_pretrained(tmp_path)
    model = bertkit.AutoModelForTokenClassification.from_pretrained(tmp_path)
    assert (model.config.model_type, model.config.num_labels) == (SHAPES[shape][0], C)
    assert isinstance(bertkit.AutoModel.from_pretrained(tmp_path), BertModel)
    assert bertkit.AutoConfig.from_pretrained(tmp_path) == model.config
    if SHAPES[shape][0] != "bert":
        with pytest.raises(CheckpointError, match=r"has no BertForNextSentencePrediction.*it has"):
            bertkit.AutoModelForNextSentencePrediction.from_pretrained(tmp_path)


def test_names_that_people_bring() -> None:
    for family in FAMILIES.values():
        for head in ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"):
            assert getattr(bertkit, family.prefix + head) is getattr(bertkit, "Bert" + head)
        if family.prefix in ("MPNet", "DebertaV2", "ModernBert"):
            continue  # AutoTokenizer reads theirs
        assert getattr(bertkit, f"{family.prefix}TokenizerFast") is getattr(bertkit, f"{family.prefix}Tokenizer")
    assert bertkit.AlbertForPreTraining is BertForPreTraining
    assert not hasattr(bertkit, "RobertaForPreTraining")
    assert bertkit.ElectraForPreTraining is not BertForPreTraining


def test_heads_that_a_family_has_not() -> None:
    """A model that could not be saved is not built: the classes of each family are those of its table of names."""
    for family, table in TABLES.items():
        config = BertConfig(model_type=family, pad_token_id=1, **TINY)
        for name, model_class in MODEL_CLASSES.items():
            if name in table.classes:
                with torch.device("meta"):
                    model_class(config)
            else:
                with pytest.raises(ConfigError, match=f"the {family} family has no {name}"):
                    model_class(config)


# --- losses of their own ---------------------------------------------------------------------------------------------


def test_sentence_order_has_two_names() -> None:
    model = BertForPreTraining(BertConfig(model_type="albert", **TINY, embedding_size=4, num_labels=2)).eval()
    ids, order = torch.randint(0, 30, (3, 5)), torch.tensor([0, 1, 1])
    out = model(ids, labels=ids, sentence_order_label=order)
    same = model(ids, labels=ids, next_sentence_label=order)
    assert torch.equal(out.loss, same.loss)
    assert out.sop_logits is out.seq_relationship_logits
    with pytest.raises(InputError, match="takes no 'sentence_order_label'"):
        BertForPreTraining(BertConfig(**TINY))(ids, sentence_order_label=order)


def test_replaced_tokens_count_real_targets_only() -> None:
    torch.manual_seed(0)
    model = bertkit.ElectraForPreTraining(BertConfig(model_type="electra", **TINY, embedding_size=4)).eval()
    ids, mask = torch.randint(0, 30, (2, 4)), torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    labels = torch.tensor([[0, 1, -100, 0], [1, 0, 1, 1]])
    out = model(ids, mask, labels=labels)
    kept = mask.bool() & (labels != -100)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(out.logits[kept], labels[kept].float())
    assert torch.allclose(out.loss, expected)
    with pytest.raises(InputError, match=r"label 2 is outside 0 \.\.\. 1"):
        model(ids, labels=torch.full((2, 4), 2))
    with pytest.raises(InputError, match="shape of input_ids"):
        model(ids, labels=torch.zeros(2, dtype=torch.int64))


def test_the_vocabulary_size_is_checked_against_a_list_of_pieces(tmp_path: Path) -> None:
    """A unigram ``tokenizer.json`` numbers its pieces by their places."""
    import json

    pair("xlm-roberta", "BertModel", tmp_path)
    pieces = [[f"▁{number}", 0.0] for number in range(V)]
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps({"model": {"type": "Unigram", "vocab": pieces}, "added_tokens": []}))
    assert BertModel.from_pretrained(tmp_path)
    file.write_text(json.dumps({"model": {"type": "Unigram", "vocab": pieces}, "added_tokens": [{"id": V}]}))
    with pytest.raises(CheckpointError, match="98 tokens, but the embedding table has only 97 rows"):
        BertModel.from_pretrained(tmp_path)
