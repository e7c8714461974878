"""The comparison of ``make same`` notices what it must, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file
from same_compare import Difference, Expected, compare_outputs, judge, read_expected
from same_jobs import JOBS

TABLE = {"scores": {"f1": 0.1}, "rows": [1, None, "a"], "seconds": 3, "tokens_per_s": 7, "loss": float("nan")}


def write(folder: Path, name: str, value: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    if path.suffix == ".safetensors":
        save_file(value, path)
    elif path.suffix == ".npz":
        np.savez(path, **value)
    elif path.suffix == ".parquet":
        pq.write_table(pa.table(value), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(value))
    else:
        path.write_text(value)


@pytest.fixture
def compare(tmp_path: Path) -> Callable[..., list[Difference]]:
    def call(name: str, old: Any, new: Any, **options: Any) -> list[Difference]:
        for side, value in (("old", old), ("new", new)):
            if value is not None:
                write(tmp_path / side, name, value)
        return list(compare_outputs("item", "run", tmp_path / "old", tmp_path / "new", **options))

    return call


def test_times_and_versions_make_no_difference(compare: Callable[..., list[Difference]]) -> None:
    later = {**TABLE, "seconds": 4, "tokens_per_s": 9.5}
    assert compare("metrics.json", {**TABLE, "bertkit": "0.1.0"}, {**later, "bertkit": "0.2.0"}) == []


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"scores": {"f1": 0.1 + 2e-17}}, "run/metrics.json: scores.f1"),
        ({"scores": {"f1": 0}}, "run/metrics.json: scores.f1"),
        ({"rows": [1, None]}, "run/metrics.json: rows"),
        ({"rows": [1, None, "b"]}, "run/metrics.json: rows[2]"),
        ({"rows": [True, None, "a"]}, "run/metrics.json: rows[0]"),
        ({"more": 1}, "run/metrics.json: more"),
        ({"loss": 1.0}, "run/metrics.json: loss"),
    ],
)
def test_every_other_value_does(changed: Any, where: str, compare: Callable[..., list[Difference]]) -> None:
    found = compare("metrics.json", TABLE, {**TABLE, **changed})
    assert [one.where for one in found] == [where]


def test_arrays_tables_and_texts(compare: Callable[..., list[Difference]]) -> None:
    values = np.arange(3, dtype=np.float32)
    moved = np.nextafter(values, 9)
    assert [d.where for d in compare("a.safetensors", {"w": values, "b": values}, {"w": moved, "b": values})] == [
        "run/a.safetensors: w"
    ]
    write_again = {"a.safetensors": {"w": values}, "b.npz": {"w": values}}
    for name, value in write_again.items():
        assert not [one for one in compare(name, value, value) if name in one.where]
    assert "run/b.npz: w" in [one.where for one in compare("b.npz", {"w": values}, {"w": values.astype(np.float64)})]
    assert "run/c.parquet: rows[1].a" in [one.where for one in compare("c.parquet", {"a": [1, 2]}, {"a": [1, 3]})]
    assert "run/d.csv: [0][1]" in [one.where for one in compare("d.csv", "a,b\n", "a,c\n")]
    assert "run/e.bin" in [one.where for one in compare("e.bin", "a", "b")]


def test_a_missing_file_and_a_new_one(compare: Callable[..., list[Difference]]) -> None:
    compare("same.json", {}, {})
    compare("gone.json", {}, None)
    found = {one.where: one.what for one in compare("new.json", None, {})}
    assert found == {"run/gone.json": "only before", "run/new.json": "only now"}


def test_of_a_report_on_the_machine_only_the_shape_counts(compare: Callable[..., list[Difference]]) -> None:
    assert compare("doctor.json", {"cores": 2, "seconds": 1}, {"cores": 4, "seconds": 2}, shape_only=True) == []
    assert compare("doctor.json", {"cores": 2}, {"cpus": 2}, shape_only=True)


def test_what_was_expected_and_what_no_difference_needs() -> None:
    found = [Difference("finetune text", "run/metrics.json: scores.f1", ""), Difference("tag", "exit code", "")]
    listed = [
        Expected("finetune *", "*: scores.*", "A3", ""),
        Expected("embed", "*", "A1", ""),
        Expected("no", "*", "", ""),
    ]
    unexpected, meant, useless = judge(found, listed, ["finetune text", "tag", "embed"])
    assert (unexpected, meant, useless) == ([found[1]], [found[0]], [listed[1]])


def test_numbers_may_be_expected_to_differ_by_so_much(compare: Callable[..., list[Difference]]) -> None:
    entry = Expected("*", "*", "A1", "", within=1e-6)
    compare("near.json", {"x": [0.5, "a"]}, {"x": [0.5000003, "a"]})
    near = compare("near.npz", {"w": np.ones(3)}, {"w": np.ones(3) + 5e-7})  # with the file before
    assert len(near) == 2
    assert all(entry.covers(one) for one in near)
    assert near[0].apart == pytest.approx(3e-7)
    others = [({"x": 0.5}, {"x": 0.51}), ({"x": 0.5}, {}), ({"x": "a"}, {"x": "b"}), ({"x": 1}, {"x": 1.0})]
    others += [({"x": float("nan")}, {"x": 0.5}), ({"x": 0.0}, {"x": False})]
    for number, (old, new) in enumerate(others):
        (one,) = (one for one in compare(f"{number}.json", old, new) if f"{number}.json" in one.where)
        assert not entry.covers(one), one


def test_the_list_of_expected_differences_is_checked(tmp_path: Path) -> None:
    (tmp_path / "list.toml").write_text('[[difference]]\nitem = "tag"\nreason = "because"\n')
    with pytest.raises(ValueError, match="entry 1: expected item, finding, reason"):
        read_expected(tmp_path / "list.toml")
    for entry in read_expected(Path(__file__).with_name("expected_differences.toml")):
        assert entry.finding
        assert entry.reason


def test_items_have_names_of_their_own() -> None:
    names = [job.item for job in JOBS]
    assert len(set(names)) == len(names)
