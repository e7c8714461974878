"""Names that matplotlib would hide, read as mathematics, or write into an SVG that nothing opens."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from bertkit.visualize.figures import new_figure, plain, save_figure


def test_any_name_is_shown(tmp_path: Path) -> None:
    figure, axes = new_figure(3, 2)
    for name in ("_other", "a\x01b", "$5$", "\ud800"):
        axes.plot([0, 1], label=plain(name))
    shown = [each.get_text() for each in axes.legend().get_texts()]
    assert [text.strip("\u200b") for text in shown] == ["_other", "a\ufffdb", r"\$5\$", "\ufffd"]
    ElementTree.parse(save_figure(figure, tmp_path / "a.svg"))
