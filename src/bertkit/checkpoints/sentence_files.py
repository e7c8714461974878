"""The settings in a folder of sentence-transformers, field by field; an unknown field is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from bertkit.config.sentence_config import POOLING_MODES, PoolingMode, Similarity
from bertkit.system.validated_settings import Field, FileSettings

_Nothing = Annotated[dict[str, Any], Field(max_length=0)] | Annotated[list[Any], Field(max_length=0)] | None
_Vector = Literal["sentence_embedding"]


def flag_of(mode: PoolingMode) -> str:
    """The name of a mode in older files."""
    return f"pooling_mode_{mode}" + {"cls": "_token"}.get(mode, "" if mode.endswith(("token", "tokens")) else "_tokens")


class ModuleEntry(FileSettings):
    """An entry of ``modules.json``."""

    idx: int
    name: str
    path: str
    type: str
    kwargs: _Nothing = None


class PoolingFile(FileSettings):
    """``1_Pooling/config.json``: newer releases write ``pooling_mode``, older ones a flag for each mode."""

    embedding_dimension: int | None = None
    word_embedding_dimension: int | None = None
    pooling_mode: PoolingMode | tuple[PoolingMode, ...] | None = None
    pooling_mode_cls_token: bool = False
    pooling_mode_max_tokens: bool = False
    pooling_mode_mean_tokens: bool = False
    pooling_mode_mean_sqrt_len_tokens: bool = False
    pooling_mode_weightedmean_tokens: bool = False
    pooling_mode_lasttoken: bool = False
    include_prompt: bool = True

    @property
    def modes(self) -> tuple[PoolingMode, ...]:
        """The modes in the order of their vectors; none if the file names none."""
        if self.pooling_mode is not None:
            return (self.pooling_mode,) if isinstance(self.pooling_mode, str) else self.pooling_mode
        flags = self.model_dump()
        return tuple(mode for mode in POOLING_MODES if flags[flag_of(mode)])


class DenseFile(FileSettings):
    """``2_Dense/config.json``; ``activation_function`` is a class of ``torch.nn``."""

    in_features: int
    out_features: int
    bias: bool = True
    activation_function: str = "torch.nn.modules.activation.Tanh"
    module_input_name: _Vector = "sentence_embedding"
    module_output_name: _Vector | None = None
    use_residual: bool = False


class LayerNormFile(FileSettings):
    """``2_LayerNorm/config.json``."""

    dimension: int


class NormalizeFile(FileSettings):
    """``2_Normalize/config.json``, which most releases leave out."""

    module_input_name: _Vector = "sentence_embedding"
    module_output_name: _Vector | None = None


class SettingsFile(FileSettings):
    """``config_sentence_transformers.json``."""

    versions: dict[str, Any] | None = Field(None, alias="__version__")
    model_type: Literal["SentenceTransformer"] = "SentenceTransformer"
    prompts: Mapping[str, str | None] = Field({})
    default_prompt_name: str | None = None
    similarity_fn_name: Similarity | None = None
    truncate_dim: int | None = None


class TextMethod(FileSettings):
    """What is called with a text, and what is taken of its result."""

    method: Literal["forward"]
    method_output_name: Literal["last_hidden_state"]


class Modalities(FileSettings):
    """Kinds of input: texts."""

    text: TextMethod


class ReadingFile(FileSettings):
    """``sentence_bert_config.json``; ``unpad_inputs`` only says how to compute."""

    max_seq_length: int | None = Field(None, ge=1)
    do_lower_case: bool = False
    transformer_task: Literal["feature-extraction"] = "feature-extraction"
    modality_config: Modalities | None = None
    module_output_name: Literal["token_embeddings"] = "token_embeddings"
    unpad_inputs: bool | None = None
    processing_kwargs: _Nothing = None
    model_args: _Nothing = None
    model_kwargs: _Nothing = None
    tokenizer_args: _Nothing = None
    processor_kwargs: _Nothing = None
    config_args: _Nothing = None
    config_kwargs: _Nothing = None
    tokenizer_name_or_path: None = None
    query_length: None = None
    document_length: None = None
    query_expansion: None = None
