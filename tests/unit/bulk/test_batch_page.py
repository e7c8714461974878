"""Each block of docs/batch.md runs as it stands where its engine is installed, and says what one call says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertkit import BatchPredictor, BertForSequenceClassification
from pipeline_helpers import save_tiny

PAGE = Path(__file__).resolve().parents[3] / "docs" / "batch.md"
#: Block of the page, to the package that it needs, and whether `make test` runs it.
BLOCKS = {
    name: (package, quick)
    for name, package, quick in [
        ("Ray Data", "ray", False),
        ("Spark", "pyspark", False),
        ("Spark 2", "pyspark", False),
        ("DuckDB", "duckdb", False),
        ("Polars", "polars", False),
        ("pandas", "pandas", True),
        ("Dask", "dask.dataframe", False),
    ]
}


def blocks() -> dict[str, str]:
    found: dict[str, str] = {}
    for heading, text in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.M | re.S):
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", text, re.S), start=1):
            found[heading if number == 1 else f"{heading} {number}"] = code
    return found


def test_every_block_of_the_page_is_run() -> None:
    assert blocks().keys() == BLOCKS.keys()
    assert all(code.count("\n") <= 16 for code in blocks().values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if quick else pytest.mark.campaign) for name, (_, quick) in BLOCKS.items()]
)
def test_a_block_gives_what_one_call_gives(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(BLOCKS[name][0])
    if BLOCKS[name][0] == "pyspark" and shutil.which("java") is None:
        pytest.skip("Spark needs a JVM")
    model = save_tiny(tmp_path / "RUN", BertForSequenceClassification, num_labels=2)
    texts = ["good film", "the film was bad", "good " * 100, " ", "bad"]
    pq.write_table(given := pa.table({"text": texts}), tmp_path / "reviews.parquet", compression="none")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # Spark compresses by a native library that it cannot load everywhere.
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.sql.parquet.compression.codec uncompressed\nspark.ui.enabled false\nspark.driver.host 127.0.0.1\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    script = tmp_path / "script.py"
    script.write_text(blocks()[name])
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    wanted = {row["text"]: row for row in BatchPredictor(model)(given).to_pylist()}
    assert wanted["good film"]["p_LABEL_1"] != wanted["bad"]["p_LABEL_1"], "the control: the texts are told apart"
    parts = sorted(path for path in tmp_path.rglob("*.parquet") if path.name != "reviews.parquet" and path.is_file())
    rows = [row for part in parts for row in pq.read_table(part).to_pylist()]
    assert sorted(row["text"] for row in rows) == sorted(texts)
    for row in rows:
        expected = wanted[row["text"]]
        assert row["p_LABEL_1"] == pytest.approx(expected["p_LABEL_1"], abs=1e-5, nan_ok=True)
        assert {k: row[k] for k in ("predicted", "error")} == {k: expected[k] for k in ("predicted", "error")}
