"""``SentenceTransformer``: :class:`bertkit.SentenceEncoder` with the names and results of sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertkit.checkpoints.sentence_folder import SentenceParts
from bertkit.config.sentence_config import QUERY, SentenceConfig, Similarity, Step
from bertkit.engine.backend import Network
from bertkit.errors import InputError
from bertkit.habit_table import no_attribute
from bertkit.habits.keywords import known_keywords
from bertkit.habits.sentences.compared_vectors import Vectors, quantize_embeddings, similarity_function
from bertkit.habits.sentences.sentence_modules import FirstModule, Pooling, joined
from bertkit.habits.sentences.sentence_options import EncodeOptions, ModelOptions, dtype_of, max_length_of, with_owner
from bertkit.inference.pipeline_inputs import items_of
from bertkit.inference.sentence_encoder import EncodeOptions as OwnOptions
from bertkit.inference.sentence_encoder import SentenceEncoder
from bertkit.system.device import find_device
from bertkit.system.paths import user_path
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

if TYPE_CHECKING:
    from bertkit.habits.sentences.sentence_training import FitOptions
    from bertkit.model.text_comparison import TextComparison

#: One vector or more, as an array, as a tensor, or as a list of tensors.
Found = npt.NDArray[Any] | Tensor | list[Tensor]


class SentenceTransformer:
    """A model that makes vectors of texts, by the name and with the calls of sentence-transformers 6.

    Args:
        model_name_or_path: as for :class:`bertkit.SentenceEncoder`, which does the work (``model.encoder``).
        **options: see :class:`ModelOptions`. ``model_kwargs`` may have ``dtype`` (``torch_dtype``), and
            ``tokenizer_kwargs`` ``model_max_length``; ``modules``: see :mod:`bertkit.sentence_transformers.models`.

    Deviates: batches are formed by numbers of tokens, and one process uses all cores, so ``batch_size`` and pools of
    processes have no effect. Texts that are too long are cut, as there.

    Raises:
        InputError: an option that there is not; the message has what to write instead.
        CheckpointError: see :class:`bertkit.SentenceEncoder`.
    """

    #: It always computes as in eval mode.
    training = False

    def __init__(self, model_name_or_path: str | Path | None = None, **options: Unpack[ModelOptions]) -> None:
        given = known_keywords("SentenceTransformer", options, ModelOptions.__annotations__)
        if (backend := options.get("backend", "torch")) != "torch":
            raise InputError(
                f"backend={backend!r}: export the model once, 'bertkit export MODEL --out FOLDER', then "
                "write SentenceTransformer('FOLDER')"
            )
        modules, dtype = options.get("modules"), dtype_of(options)
        if (model_name_or_path is None) == (modules is None):
            raise InputError("SentenceTransformer needs a model: a folder, a name on the Hub, or modules=[...]")
        device, revision = options.get("device"), options.get("revision")
        if modules is not None:
            model_name_or_path, parts = joined(modules)
            self.encoder = SentenceEncoder(model_name_or_path, sentence=parts, device=device, dtype=dtype)
        else:
            assert model_name_or_path is not None
            name = with_owner(model_name_or_path)
            self.encoder = SentenceEncoder(name, device=device, revision=revision, dtype=dtype)
        own = {"prompts": "prompts", "default_prompt_name": "default_prompt_name", "truncate_dim": "dimensions"}
        changed = {ours: given[name] for name, ours in own.items() if given.get(name) is not None}
        if (measure := options.get("similarity_fn_name")) is not None:
            changed["similarity"] = str(measure)
        if (most := max_length_of(options)) is not None:
            changed["max_length"] = most
        self._say(**changed)

    @classmethod
    def of(cls, encoder: SentenceEncoder) -> Self:
        """An encoder by this name."""
        model = cls.__new__(cls)
        model.encoder = encoder
        return model

    @property
    def config(self) -> SentenceConfig:
        """How vectors of texts are made."""
        return self.encoder.config

    @property
    def tokenizer(self) -> PreTrainedTokenizer:
        """That of the model."""
        return self.encoder.tokenizer

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return torch.device(str(self.encoder.pipeline.device))

    @property
    def prompts(self) -> dict[str, str]:
        """What is put before a text, by name."""
        return self.config.known_prompts

    @prompts.setter
    def prompts(self, prompts: Mapping[str, str]) -> None:
        self._say(prompts=prompts)

    @property
    def default_prompt_name(self) -> str | None:
        """The prompt where none is asked for."""
        return self.config.default_prompt_name

    @default_prompt_name.setter
    def default_prompt_name(self, name: str | None) -> None:
        self._say(default_prompt_name=name)

    @property
    def similarity_fn_name(self) -> Similarity:
        """How vectors are compared."""
        return self.config.similarity

    @similarity_fn_name.setter
    def similarity_fn_name(self, name: str) -> None:
        self._say(similarity=str(name))

    @property
    def truncate_dim(self) -> int | None:
        """Numbers of a vector that are kept; None: all."""
        return self.config.dimensions

    @truncate_dim.setter
    def truncate_dim(self, width: int | None) -> None:
        self._say(dimensions=width)

    @property
    def max_seq_length(self) -> int:
        """Most tokens that are read of a text, as far as the model has positions for them."""
        return self.config.max_length or self.encoder.pipeline.max_length

    @max_seq_length.setter
    def max_seq_length(self, length: int) -> None:
        if length < 3:
            raise InputError(f"max_seq_length must be 3 or more, got {length!r}")
        self._say(max_length=length)

    @property
    def longest(self) -> int:
        """Most tokens that are read of a text."""
        return min(self.max_seq_length, self.encoder.pipeline.max_length)

    def get_max_seq_length(self) -> int:
        """:attr:`max_seq_length`."""
        return self.max_seq_length

    def get_sentence_embedding_dimension(self) -> int:
        """Numbers of a vector."""
        return self.config.dimensions or self.config.widths(self.encoder.pipeline.config.hidden_size)[-1]

    get_embedding_dimension = get_sentence_embedding_dimension

    def encode(self, inputs: str | Iterable[str] | None = None, **options: Unpack[EncodeOptions]) -> Found:
        """Vectors of texts.

        Args:
            inputs: texts, or one (also by the earlier name ``sentences``).
            **options: ``prompt``, ``prompt_name``, ``normalize_embeddings``, ``truncate_dim``, ``show_progress_bar``;
                ``precision``: as there, int8 and uint8 take their ranges from the vectors of this call;
                ``output_value="token_embeddings"``: a tensor ``(S, D)`` of each text; ``device``: move the model.

        Returns:
            A float32 array ``(N, D)``, or ``(D,)`` for one text; with ``convert_to_tensor=True`` a tensor, with
            ``convert_to_numpy=False`` a list of tensors.

        Raises:
            InputError: an option that there is not, no text, a prompt that the model does not have.
        """
        if options.keys() - _ENCODE:
            known_keywords("encode", options, _ENCODE)
        texts = options.get("sentences") if inputs is None else inputs
        if texts is None:
            raise InputError("encode needs a text or texts")
        if isinstance(place := options.get("device"), str | torch.device):
            self.to(place)
        output = options.get("output_value", "sentence_embedding")
        if output == "token_embeddings":
            return self._token_vectors(texts, options)
        if output != "sentence_embedding":
            raise InputError(f"output_value must be 'sentence_embedding' or 'token_embeddings', got {output!r}")
        own: OwnOptions = {
            "prompt": options.get("prompt"),
            "prompt_name": options.get("prompt_name") if options.get("prompt") is None else None,
            "normalize": True if options.get("normalize_embeddings") else None,
            "dimensions": options.get("truncate_dim"),
            "truncation": True,
            "progress": options.get("show_progress_bar"),
        }
        found = self.encoder.encode(texts, **own)
        precision = options.get("precision") or "float32"
        if precision != "float32":
            found = quantize_embeddings(found, precision).reshape(*found.shape[:-1], -1)
        if options.get("convert_to_tensor"):
            return torch.from_numpy(found).to(self.device)
        if not options.get("convert_to_numpy", True):
            return torch.from_numpy(found) if found.ndim == 1 else list(torch.from_numpy(found))
        return found

    def _token_vectors(self, texts: str | Iterable[str], options: EncodeOptions) -> Tensor | list[Tensor]:
        named = options.get("prompt_name") if options.get("prompt") is None else None
        found: Any = self.encoder.pipeline(
            texts if isinstance(texts, str) else list(items_of(texts, "text")),
            prompt=self.config.prompt(options.get("prompt"), named),
            truncation=True,
            max_length=self.longest,
            progress=options.get("show_progress_bar"),
        )
        if isinstance(texts, str):
            return torch.from_numpy(np.asarray(found)[0])
        return [torch.from_numpy(np.asarray(each)[0]) for each in found]

    def encode_query(self, inputs: str | Iterable[str] | None = None, **options: Unpack[EncodeOptions]) -> Found:
        """:meth:`encode` of what is searched for: with the prompt ``"query"``, unless the options have another."""
        return self.encode(inputs, **_with_prompt(options, QUERY))

    def encode_document(self, inputs: str | Iterable[str] | None = None, **options: Unpack[EncodeOptions]) -> Found:
        """:meth:`encode` of what is searched, see :meth:`bertkit.SentenceEncoder.encode_document`."""
        return self.encode(inputs, **_with_prompt(options, self.config.document_prompt))

    def encode_multi_process(self, inputs: Iterable[str], *pools: object, **options: Unpack[EncodeOptions]) -> Found:
        """:meth:`encode`: one process uses all cores."""
        return self.encode(inputs, **options)

    @staticmethod
    def start_multi_process_pool(target_devices: Sequence[str] | None = None) -> dict[str, list[str]]:
        """Nothing to pass on as ``pool=``: one process uses all cores."""
        return {"processes": []}

    @staticmethod
    def stop_multi_process_pool(pool: object) -> None:
        """Do nothing."""

    def similarity(self, embeddings1: Vectors, embeddings2: Vectors) -> Tensor:
        """How near each vector is to each of others, as :attr:`similarity_fn_name` says, ``(A, B)``."""
        return similarity_function(self.similarity_fn_name)[0](cast(Tensor, embeddings1), cast(Tensor, embeddings2))

    def similarity_pairwise(self, embeddings1: Vectors, embeddings2: Vectors) -> Tensor:
        """How near each vector is to the one at the same place, ``(A,)``."""
        return similarity_function(self.similarity_fn_name)[1](cast(Tensor, embeddings1), cast(Tensor, embeddings2))

    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Token ids of texts, padded, as tensors."""
        found = self.tokenizer(list(texts), padding=True, truncation=True, max_length=self.longest, return_tensors="pt")
        return dict(found)

    preprocess = tokenize

    def evaluate(self, evaluator: Callable[..., dict[str, float]], output_path: str | None = None) -> dict[str, float]:
        """``evaluator(self)``."""
        return evaluator(self, output_path=output_path)

    def fit(self, train_objectives: Sequence[tuple[Any, Any]], **options: Unpack[FitOptions]) -> None:
        """Train with ``[(DataLoader, loss)]``, see :mod:`bertkit.habits.sentences.sentence_training`."""
        from bertkit.habits.sentences.sentence_training import fit_objectives

        fit_objectives(self, train_objectives, **options)

    def save_pretrained(self, path: str | Path, **options: object) -> None:
        """Write a folder that bertkit and sentence-transformers load."""
        known_keywords("save_pretrained", options, ())
        self.encoder.save_pretrained(user_path(path))

    save = save_pretrained

    def to(self, device: str | torch.device) -> Self:
        """Move the model."""
        if find_device(device) != self.device:
            self._go_on(self.encoder.pipeline.model.to(find_device(device)))
        return self

    def half(self) -> Self:
        """Keep the weights in 16 bits; vectors stay float32."""
        return self._go_on(self.encoder.pipeline.model.half())

    def bfloat16(self) -> Self:
        """The same with the range of 32 bits."""
        return self._go_on(self.encoder.pipeline.model.bfloat16())

    def take_over(self, network: TextComparison) -> None:
        """Go on with the weights of a trained network; prompts, length and comparison stay."""
        parts = SentenceParts(self.config, network.sentences.head.parts().weights)
        self._go_on(network.sentences.encoder.eval(), parts)

    def _go_on(self, model: Network, parts: SentenceParts | None = None) -> Self:
        parts = parts or self.encoder.pipeline.sentence
        self.encoder = SentenceEncoder(model, self.tokenizer, sentence=parts)
        return self

    def eval(self) -> Self:
        """Nothing: it always computes as in eval mode; training has its own copy."""
        return self

    def train(self, mode: bool = True) -> Self:
        """Nothing, likewise."""
        return self

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """The weights of the encoder."""
        found: Iterator[torch.nn.Parameter] = self.encoder.pipeline.model.parameters()
        return found

    @contextmanager
    def truncate_sentence_embeddings(self, truncate_dim: int | None) -> Iterator[None]:
        """In the block, vectors have so many numbers."""
        before, self.truncate_dim = self.truncate_dim, truncate_dim
        try:
            yield
        finally:
            self.truncate_dim = before

    truncate_embeddings = truncate_sentence_embeddings

    def __getitem__(self, place: int) -> FirstModule | Pooling | Step:
        """The parts of the model, to look at: the encoder, the pooling, and what follows."""
        width = self.encoder.pipeline.config.hidden_size
        pooling = Pooling(width, self.config.pooling, include_prompt=self.config.include_prompt)
        return [FirstModule(self), pooling, *self.config.steps][place]

    def __len__(self) -> int:
        return 2 + len(self.config.steps)

    def _first_module(self) -> FirstModule:
        return FirstModule(self)

    def __call__(self, features: object) -> NoReturn:
        """Refused: see the error."""
        raise InputError(
            "SentenceTransformer reads texts: write encode(texts, convert_to_tensor=True); for vectors with gradients "
            "use bertkit.AutoModel, for training SentenceTransformerTrainer or fit"
        )

    forward = __call__

    def _say(self, **changes: Any) -> None:
        """Change how vectors of texts are made."""
        if changes:
            old = self.encoder.pipeline.sentence
            config = SentenceConfig(
                **{name: getattr(old.config, name) for name in old.config.model_fields_set} | changes
            )
            self.encoder.pipeline.sentence = SentenceParts(config, old.weights)

    def __getattr__(self, name: str) -> NoReturn:
        raise no_attribute(self, "SentenceTransformer.", name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.encoder!r})"


_ENCODE = frozenset(EncodeOptions.__annotations__)


def _with_prompt(options: EncodeOptions, name: str) -> EncodeOptions:
    if options.get("prompt") is not None or options.get("prompt_name") is not None:
        return options
    return {**options, "prompt_name": name}
