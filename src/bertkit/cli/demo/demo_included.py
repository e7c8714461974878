"""The first part of ``bertkit demo``: what the model that comes with bertkit can do at once."""

from __future__ import annotations

from typing import Any, TypedDict

from bertkit.cli.common_options import Common, Computing, open_pipeline, write_line
from bertkit.system.console import say
from bertkit.system.model_sources import INCLUDED, included_model

MASKED = "He studied law at the [MASK] of Oxford."
ASKED = "I cannot sign in any more."
FOUND_IN = (
    "My password is not accepted.",
    "The parcel arrived with a broken lid.",
    "When does the museum open on Sundays?",
    "The invoice lists the same item twice.",
)


class Shown(TypedDict):
    """Words for the mask and texts for the question, each with its score, the best first."""

    model: str
    masked: str
    words: dict[str, float]
    asked: str
    found: dict[str, float]


def show_included(common: Common) -> Shown:
    """Let the included model guess a word and search a few texts, and print what it says, unless JSON is wanted."""
    folder, computing = str(included_model()), Computing(**vars(common))
    say(f"1/5  asking {INCLUDED}, the small model that comes with bertkit")
    guesses: list[dict[str, Any]] = open_pipeline("fill-mask", folder, computing)(MASKED, top_k=3)
    scores = open_pipeline("sentence-similarity", folder, computing)(ASKED, list(FOUND_IN))
    shown = Shown(
        model=INCLUDED,
        masked=MASKED,
        words={guess["token_str"]: guess["score"] for guess in guesses},
        asked=ASKED,
        found=dict(sorted(zip(FOUND_IN, map(float, scores), strict=True), key=lambda pair: -pair[1])),
    )
    if not common.json:
        write_line(f"{MASKED}\n    " + ", ".join(f"{word} {score:.2f}" for word, score in shown["words"].items()))
        write_line(ASKED)
        write_line("".join(f"    {score:.2f}  {text}\n" for text, score in shown["found"].items()))
    return shown
