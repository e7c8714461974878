"""What may stand in place of ``[MASK]``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bertkit.config.bert_config import BertConfig
from bertkit.engine.backend import Pack, Values, Wanted
from bertkit.errors import CheckpointError, InputError, TextError
from bertkit.inference.pipeline_base import Pipeline, TextRow, check_vocabulary
from bertkit.inference.pipeline_inputs import Inputs, Shaped, Text, is_whole, read_request
from bertkit.inference.pipeline_results import Ranked
from bertkit.metrics.probabilities import softmax
from bertkit.metrics.probabilities import top_k as highest
from bertkit.ragged import Floats

#: How families write the word that is to be guessed.
MASKS = ("[MASK]", "<mask>", "<extra_id_0>", "[mask]", "<MASK>")
Guess = dict[str, float | int | str | bool]


@dataclass(frozen=True, slots=True)
class Guesses:
    """The best tokens for the M masks of one text.

    input_ids: the text's token ids ``(S,)``. places: positions of the masks in it ``(M,)``.
    scores, tokens: probability and id of the best K tokens for each mask ``(M, K)``, best first.
    """

    input_ids: NDArray[np.int64]
    places: NDArray[np.int64]
    scores: NDArray[np.floating]
    tokens: NDArray[np.int64]


class FillMaskPipeline(Pipeline):
    """The masked-language-model head at work: ``pipeline("fill-mask", model=...)``."""

    task: ClassVar[str] = "fill-mask"

    def _prepare(self) -> None:
        if self.tokenizer.mask_token_id is None:
            raise CheckpointError("the tokenizer has no mask token, so no text can hold a mask")
        if isinstance(self.config, BertConfig) and self.config.attention_direction != "both":
            raise CheckpointError(
                f"the model reads {self.config.attention_direction}: its scores at a token are of the word beside it, "
                "so it cannot fill a mask; use a model with masked words"
            )
        check_vocabulary(self.tokenizer, self.config.vocab_size)  # its last token may be the mask

    def __call__(
        self,
        inputs: Inputs,
        *,
        targets: str | Sequence[str] | None = None,
        top_k: int = 5,
        truncation: bool = False,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> Shaped[Ranked | list[Ranked]]:
        """Guess masked tokens.

        As in ``transformers``, a text with one mask gives a list of ``{"score", "token", "token_str", "sequence"}``,
        and with ``truncation=True`` ``truncated``; one with several masks such a list for each, in order: each mask is
        predicted on its own with the others still hidden, so the scores of different masks are not those of a joint
        guess; ``sequence`` then shows the special tokens too. A mask in a part that is cut is not filled.

        targets: the only words to consider; each must be one token of the vocabulary. Scores stay probabilities over
            the whole vocabulary.
        top_k: guesses for each mask, best first.

        Deviates: ``transformers`` replaces a target that is several tokens by its first one, with a warning. Rows of
        the model's table that no token has are no answers here, and the scores are shared among tokens alone.
        """
        if not is_whole(top_k):
            raise InputError(f"top_k must be a whole number from 1, got {top_k!r}")
        target_ids = None if targets is None else np.array(self._read_targets(targets))

        def present(guesses: Guesses, row: TextRow) -> Ranked | list[Ranked]:
            if not len(guesses.places):
                cut = f" in its first {row.num_tokens} tokens, and truncation cut the rest" if row.truncated else ""
                raise TextError(f"text {row.number} (counted from 0) has no {self.tokenizer.mask_token}{cut}")
            return self._describe(guesses, {"truncated": row.truncated} if truncation else {})

        def guess(pack: Pack, values: Values) -> list[Guesses]:
            return self._guess(pack, values["logits"], top_k, target_ids)

        # The head runs at the masked positions only.
        wanted = Wanted(("logits",), only_at=self.tokenizer.mask_token_id, num_words=len(self.tokenizer))
        asked = read_request(inputs, tuple_is_pair=False)
        request = asked._replace(items=map(self._with_own_mask, count(), asked.items))
        return self._answer_texts(request, wanted, guess, partial(map, present), truncation, max_length, progress)

    def _with_own_mask(self, number: int, text: Text) -> Text:
        """The text; TextError if it has the mask of another family and none of this one's."""
        mask = self.tokenizer.mask_token
        whole = f"{text[0]} {text[1] or ''}"
        foreign = None if mask in whole else next((each for each in MASKS if each in whole), None)
        if foreign is not None:
            raise TextError(
                f"text {number} (counted from 0) has {foreign}, the mask of other models; this model's is {mask}: "
                f"write {text[0].replace(foreign, mask)!r:.80}, or pipe.tokenizer.mask_token in an f-string"
            )
        return text

    def _read_targets(self, targets: str | Sequence[str]) -> list[int]:
        listed = [targets] if isinstance(targets, str) else list(targets)
        if not listed:
            raise InputError("targets is empty; give at least one word, or None for the whole vocabulary")
        found: dict[int, None] = {}
        for target in listed:
            if not isinstance(target, str):
                raise InputError(f"a target must be a str, got {type(target).__name__}")
            pieces = [target] if target in self.tokenizer.vocab else self.tokenizer.tokenize(target)
            if len(pieces) != 1 or pieces[0] == self.tokenizer.unk_token:
                read_as = " ".join(pieces) if pieces else "nothing"
                raise InputError(
                    f"target {target!r} is not one token of this vocabulary (it is read as {read_as}); a mask "
                    "stands for exactly one token"
                )
            found[self.tokenizer.vocab[pieces[0]]] = None
        return list(found)

    def _guess(self, pack: Pack, logits_RV: Floats, top_k: int, target_ids: NDArray[np.int64] | None) -> list[Guesses]:
        probs_RV = softmax(logits_RV)
        if target_ids is not None:
            probs_RV = probs_RV[:, target_ids]
        tokens_RK, scores_RK = highest(probs_RV, top_k)
        tokens_RK = tokens_RK if target_ids is None else target_ids[tokens_RK]
        places = np.flatnonzero(pack.ids == self.tokenizer.mask_token_id)
        found = []
        for start, end in pack.spans():
            mine = slice(*np.searchsorted(places, (start, end)).tolist())
            found.append(Guesses(pack.ids[start:end], places[mine] - start, scores_RK[mine], tokens_RK[mine]))
        return found

    def _describe(self, guesses: Guesses, note: dict[str, bool]) -> Ranked | list[Ranked]:
        single = len(guesses.places) == 1
        filled = []
        for place, scores, tokens in zip(guesses.places, guesses.scores, guesses.tokens, strict=True):
            row: list[Guess] = []
            for score, token in zip(scores.tolist(), tokens.tolist(), strict=True):
                ids = guesses.input_ids.copy()
                ids[place] = token
                word = self.tokenizer.decode([token])
                text = self.tokenizer.decode(ids.tolist(), skip_special_tokens=single)
                row.append({"score": score, "token": token, "token_str": word, "sequence": text, **note})
            filled.append(Ranked(row))
        return filled[0] if single else filled
