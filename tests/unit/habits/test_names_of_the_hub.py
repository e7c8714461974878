"""Keywords about downloads mean the same wherever a model is loaded."""

from __future__ import annotations

from typing import Any

import pytest

from bertkit import (
    AutoModel,
    AutoTokenizer,
    BertForSequenceClassification,
    BertModel,
    CrossEncoder,
    SentenceTransformer,
    SetFitModel,
    pipeline,
)
from bertkit.errors import BertkitError
from bertkit.habit_table import habits
from pipeline_helpers import save_tiny

LOADERS: dict[str, Any] = {
    "AutoModel": AutoModel.from_pretrained,
    "AutoTokenizer": AutoTokenizer.from_pretrained,
    "pipeline": lambda folder, **given: pipeline("feature-extraction", model=folder, device="cpu", **given),
    "model_kwargs": lambda folder, **given: pipeline(
        "feature-extraction", model=folder, device="cpu", model_kwargs=given
    ),
    "SentenceTransformer": SentenceTransformer,
    "its model_kwargs": lambda folder, **given: SentenceTransformer(folder, model_kwargs=given),
    "SetFitModel": SetFitModel.from_pretrained,
}
ROWS = [row for row in habits().values() if row.entry == "hub"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("encoder") / "m", BertModel))


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("reranker") / "m", BertForSequenceClassification, num_labels=1))


@pytest.mark.parametrize("name", [*LOADERS, "CrossEncoder"])
def test_every_loader_reads_the_same_rows(name: str, encoder: str, reranker: str) -> None:
    load, folder = (CrossEncoder, reranker) if name == "CrossEncoder" else (LOADERS[name], encoder)
    assert {row.meaning for row in ROWS} == {"same", "nothing", "otherwise"}
    load(folder, **{row.name: None for row in ROWS if row.meaning != "same"}, revision=None)
    for row in ROWS:
        if row.meaning == "nothing":
            load(folder, **{row.name: True})
        elif row.meaning == "otherwise":
            with pytest.raises(BertkitError) as told:
                load(folder, **{row.name: "x"})
            assert row.ours in str(told.value), row
