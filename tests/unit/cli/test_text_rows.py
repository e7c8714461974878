"""The texts of a file, for commands that put texts into groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertkit.cli.cluster import text_rows
from bertkit.cli.task_options import TextColumns


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.txt", "\n\nhello\n \nbye\n\n\n"), ("a.csv", 'text,n\n" ",1\n"",2\nhello,3\n" ",4\nbye,5\n"",6\n" ",7\n')],
)
def test_every_empty_text_is_counted(
    name: str, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(content)
    rows = text_rows(tmp_path / name, TextColumns())
    assert rows.texts == ["hello", "bye"]
    assert "left out 5 empty texts" in capsys.readouterr().err
