"""The labels that a text may get, and the words that stand for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError, TextError, shorten
from bertkit.inference.pipeline_inputs import Inputs, Request, Text, read_request

#: Labels as a caller may pass them: names, or names with the words that stand for them.
Labels = str | Sequence[str] | Mapping[str, str | Sequence[str]]
#: ``sequence``, ``labels`` and ``scores``, the best first; and ``truncated`` where that was asked for.
Answer = dict[str, str | list[str] | list[float] | bool]


@dataclass(frozen=True, slots=True)
class CandidateLabels:
    """L different labels; ``words``: texts that stand for each, its name where nothing else was given."""

    names: tuple[str, ...]
    words: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def descriptions(self) -> list[str]:
        """The one text of each label; InputError where there are several."""
        for name, words in zip(self.names, self.words, strict=True):
            if len(words) > 1:
                raise InputError(
                    f"label {name!r} has {len(words)} descriptions; a hypothesis is made of one, so give one text each"
                )
        return [words[0] for words in self.words]

    def answer(self, text: str, scores: npt.NDArray[np.floating], truncated: bool | None) -> Answer:
        """What is said of a text with these scores ``(L,)``; of equal ones the earlier label comes first."""
        order = np.argsort(-scores, kind="stable")
        note: Answer = {} if truncated is None else {"truncated": truncated}
        return {
            "sequence": text,
            "labels": [self.names[number] for number in order.tolist()],
            "scores": scores[order].tolist(),
            **note,
        }


def read_labels(given: Labels | None) -> CandidateLabels:
    """Labels in one form; ``a, b`` is two of them."""
    if isinstance(given, str):
        given = [name.strip() for name in given.split(",") if name.strip()]
    if given is None or not isinstance(given, Iterable) or not len(given):
        raise InputError(
            "zero-shot classification needs candidate_labels: a list of labels, 'one, two', or a dict of labels and "
            "the words that stand for them"
        )
    pairs = given.items() if isinstance(given, Mapping) else ((name, name) for name in given)
    words: dict[str, tuple[str, ...]] = {}
    names, owners = dict[str, str](), dict[str, str]()  # by names and words without their superfluous blanks
    for name, texts in pairs:
        listed = (texts,) if isinstance(texts, str) else tuple(texts) if isinstance(texts, Iterable) else (texts,)
        if not listed or any(not isinstance(text, str) or not text.strip() for text in (name, *listed)):
            raise InputError(f"a label and its words must be texts that are not empty, got {name!r}: {texts!r:.80}")
        if (same := names.setdefault(" ".join(name.split()), name)) != name or name in words:
            twice = f"{name!r} twice" if same == name else f"{same!r} and {name!r}, which differ in blanks only"
            raise InputError(f"candidate_labels has {twice}; give each label once")
        for text in listed:
            if (owner := owners.get(plain := " ".join(text.split()))) is not None:
                raise InputError(f"{text!r} stands for {owner!r} and for {name!r}; a label needs its own words")
            owners[plain] = name
        words[name] = listed
    return CandidateLabels(tuple(words), tuple(words.values()))


def read_single_texts(inputs: Inputs) -> Request[Text]:
    """The texts to label; an InputError for a pair and for a text without a word, when it is drawn."""
    request = read_request(inputs, tuple_is_pair=False)

    def checked() -> Iterable[Text]:
        for number, (text, pair) in enumerate(request.items):
            if pair is not None:
                raise InputError(f"text {number} is a pair; zero-shot classification labels single texts")
            if not text.strip():
                raise TextError(f"text {number} is empty, so there is nothing to label; leave it out")
            yield text, None

    return Request(iter(checked()), request.shape, request.total)


def fill_template(template: str, description: str) -> str:
    """A hypothesis: the template with a description in the place of ``{}``."""
    probe = "\0a label\0"
    try:
        filled, whole = template.format(description), probe in template.format(probe)
    except (IndexError, KeyError, ValueError, AttributeError):
        filled, whole = template, False
    if not whole and (times := template.count("{}")) > 1:
        raise InputError(
            f"hypothesis_template={template!r} has {{}} {times} times; leave it once, where the label goes"
        )
    if not whole:
        fields = shorten(["{text}", "{mask}"])
        more = f"; {fields} are for method='pattern'" if "{text}" in template or "{mask}" in template else ""
        more = "; {{}} stands for braces, so that every label would give the same text" if "{{" in template else more
        raise InputError(f"hypothesis_template={template!r} has no {{}} where the whole label goes{more}")
    return filled
