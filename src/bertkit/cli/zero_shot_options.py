"""Options of the commands that give texts labels which the model was not trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from bertkit.errors import ConfigError

GROUP = Group("Labels without training", sort_key=1)
LabelNames = Annotated[
    str | None,
    Parameter(
        help="Labels that the model need not know: 'sports, politics'; with words of their own 'pos=great|good, "
        "neg=terrible'."
    ),
]


@Parameter(name="*", group=GROUP)
@dataclass(frozen=True)
class ZeroShot:
    """How texts get labels that the model was not trained on."""

    labels: LabelNames = None
    template: Annotated[
        str | None,
        Parameter(help="Has {} where the label goes; for a masked-LM {text} and {mask}. Default: as the method says."),
    ] = None
    multi_label: Annotated[bool, Parameter(negative=(), help="Labels are not exclusive; each gets its own score.")] = (
        False
    )
    method: Annotated[
        Literal["nli", "embedding", "pattern"] | None,
        Parameter(help="By entailment, by vectors, or by a masked word; default: as the model's head allows."),
    ] = None


@Parameter(name="*", group=GROUP)
@dataclass(frozen=True)
class ZeroShotModels:
    """What is compared of labels without training."""

    labels: LabelNames = None
    template: Annotated[
        tuple[str, ...],
        Parameter(help="A template with {}, and one with {text} and {mask}; repeat the option for each.", negative=()),
    ] = ()
    beside: Annotated[tuple[str, ...], Parameter(help="Another model to compare; repeat for more.", negative=())] = ()


def words_of(labels: str) -> dict[str, list[str]]:
    """``a, b=x|y``: the label a, and the label b with the words x and y."""
    found: dict[str, list[str]] = {}
    for part in filter(None, map(str.strip, labels.split(","))):
        name, given, words = (piece.strip() for piece in part.partition("="))
        if name in found:
            raise ConfigError(f"--labels has {name!r} twice; give each label once")
        found[name] = [word.strip() for word in words.split("|")] if given else [name]
    if not found:
        raise ConfigError("--labels is empty; give labels separated by commas, such as 'sports, politics'")
    return found
