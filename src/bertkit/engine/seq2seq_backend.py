"""The back-end of a BART that fills masks: as one of an encoder with a masked-LM head, it gives logits at the masks.

As in ``transformers``, the decoder reads the same text, masks and all, shifted right by one.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Self

import torch

from bertkit.batch import Batch, Layout
from bertkit.engine.backend import Pack, Precision, Values, Wanted, check_options
from bertkit.errors import ConfigError, InputError
from bertkit.model.seq2seq.conditional_generation import AutoModelForSeq2SeqLM, ConditionalGeneration
from bertkit.system.device import find_device

#: Most tokens of a pack.
MAX_TOKENS = 4096


class Seq2SeqBackend:
    """See the module; ``config`` is that of the model, which has the names of an encoder's that a pipeline reads."""

    max_tokens = MAX_TOKENS

    def __init__(self, model: ConditionalGeneration, precision: Precision, threads: int | None) -> None:
        check_options(precision, threads)
        if precision not in ("auto", "fp32") or threads is not None:
            raise ConfigError("precision and threads are not for BART and T5, which compute in the type of the weights")
        self.model: Any = model
        self.config: Any = model.config
        self.model_class = type(model).__name__

    @classmethod
    def load(cls, path: Path, device: Any, dtype: Any, precision: Precision, threads: int | None) -> Self:
        """The back-end of a checkpoint."""
        return cls(AutoModelForSeq2SeqLM.from_pretrained(path, dtype=dtype).to(find_device(device)), precision, threads)

    @classmethod
    def of(cls, model: Any, device: Any, dtype: Any, precision: Precision, threads: int | None) -> Self:
        """The back-end of a model object."""
        if device is not None or dtype is not None:
            model.to(device=None if device is None else find_device(device), dtype=dtype)
        return cls(model, precision, threads)

    @property
    def place(self) -> torch.device:
        """Where it computes."""
        found: torch.device = self.model.model.shared.weight.device
        return found

    @property
    def dtype(self) -> str:
        """Type of the weights."""
        return str(self.model.model.shared.weight.dtype).removeprefix("torch.")

    def compute(self, pack: Pack, wanted: Wanted) -> Values:
        """Logits ``(R, V)`` at the tokens that are wanted, in their order."""
        assert wanted.outputs == ("logits",), wanted
        assert wanted.only_at is not None, wanted
        ids_T = torch.from_numpy(pack.ids)
        batch = Batch(
            ids_T, torch.from_numpy(pack.token_type_ids), torch.from_numpy(pack.positions), Layout(pack.lengths)
        )
        batch = batch.to(self.place)
        rows = batch.input_ids.split(list(pack.lengths))
        ids_BS = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=self.config.pad_token_id)
        with self.model.evaluating():
            decoded_BSD = self.model.decode(self.model.shift_right(ids_BS), self.model.model.remember(batch))
            logits_RV = self.model.predict(decoded_BSD[ids_BS == wanted.only_at])
        return {"logits": logits_RV.float().cpu().numpy()}

    def num_threads(self, num_packs: int) -> int:
        """One: torch uses the threads itself."""
        return 1

    def in_thread(self, alone: bool) -> AbstractContextManager[None]:
        """Nothing has to be held."""
        return nullcontext()

    def encoder(self) -> Self:
        """It has none that gives vectors of words by itself."""
        raise InputError(f"{self.model_class} has no encoder to take features from; pass a BertModel")
