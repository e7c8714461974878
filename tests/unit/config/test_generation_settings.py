"""Lengths of generated texts: which setting overrules which, and what is said of those that contradict each other."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.config.generation_settings import GenerationSettings
from bertkit.errors import ConfigError

LENGTHS = st.fixed_dictionaries(
    {},
    optional={
        "max_new_tokens": st.integers(1, 300),
        "max_length": st.integers(2, 300),
        "min_new_tokens": st.integers(0, 300),
        "min_length": st.integers(0, 300),
    },
)


@given(own=LENGTHS, asked=LENGTHS)
def test_what_is_said_of_lengths_helps(own: dict[str, int], asked: dict[str, int]) -> None:
    """Lengths of a checkpoint and of a call are accepted, or become so by either advice of the message."""
    try:
        settings = GenerationSettings(**own)
    except ConfigError:
        settings = GenerationSettings()
    try:
        chosen = settings.replace(**asked)
    except ConfigError as error:
        few, most = map(int, re.findall(r"new_tokens of (\d+)", str(error)))
        assert few < most
        assert settings.replace(**{**asked, "max_new_tokens": most}).longest == most + 1
        fewer = {**asked, "min_new_tokens": few}
        fewer.pop("min_length", None)
        assert settings.replace(**fewer).shortest == few
    else:
        assert chosen.shortest < chosen.longest


def test_the_setting_that_is_given_overrules_the_other() -> None:
    for own in ({"min_new_tokens": 56}, {"min_length": 57}):
        settings = GenerationSettings(**own)
        assert settings.shortest == settings.replace(max_new_tokens=60).shortest == 56
        assert settings.replace(min_length=10).shortest == 9
        assert settings.replace(min_new_tokens=10).shortest == 10
    assert GenerationSettings().replace(min_length=10, min_new_tokens=20).shortest == 20
    assert GenerationSettings(max_length=9).replace(max_new_tokens=20).longest == 21
    assert GenerationSettings(max_new_tokens=20).replace(max_length=9).longest == 9


@pytest.mark.parametrize("empty", [None, [], {}])
def test_settings_without_content_change_nothing(empty: object) -> None:
    values = {"bad_words_ids": empty, "suppress_tokens": empty, "sequence_bias": empty}
    assert GenerationSettings.from_dict(values) == GenerationSettings()
    with pytest.raises(ConfigError, match=r"suppress_tokens is \[3\]; .* only with suppress_tokens=None"):
        GenerationSettings.from_dict({**values, "suppress_tokens": [3]})
