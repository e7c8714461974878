"""What users do with a model besides calling it: load, save, publish, resize, and trade time for memory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, Unpack

from torch import Tensor, nn

from bertkit.checkpoints.any_names import any_table, any_ties
from bertkit.checkpoints.apply import take_theirs
from bertkit.errors import InputError, ResourceError
from bertkit.habit_table import saving_folder
from bertkit.model.class_specs import published_below, spec_of
from bertkit.model.configured_model import ConfiguredModel
from bertkit.model.embeddings import Embeddings
from bertkit.model.encoder import Encoder
from bertkit.model.loading import LoadOptions, load_model, save_model
from bertkit.model.resize import grow_vocabulary
from bertkit.system.model_sources import first_line, http_errors


class PretrainedModel(ConfiguredModel):
    """A model that can be loaded and saved."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if (found := published_below(self, name)) is None:
                raise
            return found

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, **options: Unpack[LoadOptions]) -> Self:
        """Load a checkpoint: a folder, a ``.safetensors`` file, a sharded index, or a name on the Hugging Face Hub.

        Every tensor of the encoder and of this class's head must be there with its shape, unless a new head is asked
        for by name; anything else is an error that lists all differences. The model is returned in eval mode.

        Args:
            name_or_path: what to load.
            **options: ``num_labels``, ``id2label`` or ``label2id`` (a new task head of that size if the file has none),
                ``problem_type``, ``pooling``, ``new_head=True`` (a new head whatever the file has),
                ``ignore_mismatched_sizes=True`` (a new one if the file's has another size), ``seed`` (for the new head,
                default 0), ``revision`` (Hub), ``device`` or ``device_map``, ``dtype`` or ``torch_dtype`` (default:
                float32), ``config``, or fields of it.

        Raises:
            CheckpointError: the file is missing, damaged, unsafe, or does not fit.
            ConfigError: an option contradicts the checkpoint's config.
        """
        model = load_model(cls, name_or_path, **options)
        model.name_or_path = str(name_or_path)
        return model

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *others: Any) -> None:
        """For ``load_state_dict``, also of a module that holds this one: the names of published files are known."""
        own = {prefix + name for name, _ in self.named_parameters()}
        with suppress(InputError):  # a class that has no names in files
            if any(name.startswith(prefix) and name not in own for name in state_dict):
                take_theirs(
                    state_dict, prefix, self.config, spec_of(self), any_table(self.config), any_ties(self.config)
                )
        super()._load_from_state_dict(state_dict, prefix, *others)

    def save_pretrained(self, folder: str | Path | None = None, **ignored: object) -> None:
        """Write ``config.json`` and ``model.safetensors`` under the names that other software of the family reads.

        ``safe_serialization`` and others that transformers takes have no effect: weights are one file of safetensors.

        Raises:
            CheckpointError: ``folder`` is a file.
            InputError: another keyword.
            ResourceError: the disk is full or cannot be written.
        """
        folder = saving_folder(folder, ignored)
        save_model(self, folder)

    def push_to_hub(
        self, repo_id: str, *, private: bool | None = None, token: str | None = None, commit_message: str | None = None
    ) -> str:
        """Upload what :meth:`save_pretrained` writes to the Hugging Face Hub; save a tokenizer and upload it yourself.

        Args:
            repo_id: ``owner/name``; created if it does not exist.
            private: of a new repository; None: as your account is set up.
            token: of your account; None: that of ``hf auth login`` or ``HF_TOKEN``.
            commit_message: None: "Upload" and the name of the class.

        Returns:
            The address of the commit.

        Raises:
            InputError: not a valid name.
            ResourceError: no connection, no permission, or not logged in.
        """
        from huggingface_hub import HfApi, errors

        hub = HfApi(token=token)
        try:
            with TemporaryDirectory() as folder:
                self.save_pretrained(folder)
                name = hub.create_repo(repo_id, private=private, exist_ok=True).repo_id
                message = commit_message or f"Upload {type(self).__name__}"
                return str(hub.upload_folder(repo_id=name, folder_path=folder, commit_message=message))
        except errors.HFValidationError as error:
            raise InputError(f"{repo_id!r} is not a valid name on the Hub: {error}") from None
        except (OSError, errors.HfHubHTTPError, *http_errors()) as error:
            raise ResourceError(
                f"cannot upload to {repo_id!r}: {first_line(error)}. Check the connection; if you are not logged in: "
                "hf auth login"
            ) from error

    def get_input_embeddings(self) -> nn.Embedding:
        """The table of word embeddings, ``(V, E)``; a masked-LM head projects to the same table."""
        return self._embeddings().word_embeddings

    def set_input_embeddings(self, table: nn.Embedding) -> None:
        """Put another table of the same shape in place of the word embeddings.

        Raises:
            InputError: not an ``nn.Embedding``, or one of another shape.
        """
        expected = (self.config.vocab_size, self.config.embedding_width)
        if not isinstance(table, nn.Embedding) or tuple(table.weight.shape) != expected:
            got = tuple(table.weight.shape) if isinstance(table, nn.Embedding) else type(table).__name__
            raise InputError(f"expected an nn.Embedding of shape {expected}, got {got}; see resize_token_embeddings")
        self._embeddings().word_embeddings = table

    def resize_token_embeddings(self, new_num_tokens: int | None = None) -> nn.Embedding:
        """Append rows to the word embeddings, and to the bias of a masked-LM head: each the mean of all old rows.

        For tokens whose pieces are known, :func:`bertkit.model.resize.resize_vocabulary` starts them nearer to their
        meaning. Make an optimizer afterwards: the old tables are replaced.

        Args:
            new_num_tokens: rows afterwards; None changes nothing.

        Returns:
            The table.

        Raises:
            InputError: fewer rows than now.
        """
        if new_num_tokens is not None:
            grow_vocabulary(self, new_num_tokens)
        return self.get_input_embeddings()

    def set_gradient_checkpointing(self, enabled: bool = True) -> None:
        """In training, keep only the input of each encoder layer and compute the layer again in the backward pass.

        The same losses and gradients, bit for bit, in a fraction of the memory and about a third more time.
        """
        for module in self.modules():
            if isinstance(module, Encoder):
                module.gradient_checkpointing = enabled

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: Mapping[str, bool] | None = None) -> None:
        """``set_gradient_checkpointing(True)`` by its name elsewhere; the argument has no effect."""
        self.set_gradient_checkpointing(True)

    def gradient_checkpointing_disable(self) -> None:
        """``set_gradient_checkpointing(False)`` by its name elsewhere."""
        self.set_gradient_checkpointing(False)

    def _embeddings(self) -> Embeddings:
        return next(module for module in self.modules() if isinstance(module, Embeddings))
