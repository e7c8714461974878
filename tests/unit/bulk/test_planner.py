"""Files in blocks: the same bytes whoever computes them, nothing lost and nothing twice after anything."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from scipy.sparse import load_npz

from bertkit import BertForMaskedLM, BertForSequenceClassification
from bertkit.bulk import compute, planner, pools
from bertkit.bulk.cuts import Size
from bertkit.bulk.inputs import find_inputs
from bertkit.bulk.planner import How, What, compute_file, compute_folder
from bertkit.bulk.state import State
from bertkit.bulk.status import merge_folder, status_of
from bertkit.bulk.worker_models import shared_name
from bertkit.cli import main
from bertkit.config.file_columns import Columns
from bertkit.errors import ConfigError, DataError, ResourceError
from bertkit.inference.runs import Run
from bertkit.system.atomic_files import held_lock
from pipeline_helpers import save_tiny

SMALL = Size(rows=7, bytes=2000)
#: A row at which the process that computes it ends.
POISON = "poison"
TESTS = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"), BertForSequenceClassification, num_labels=2)


def texts(count: int, seed: int = 0) -> list[str]:
    drawn = random.Random(seed)
    words = ["good", "film", "ünïcode", 'a "quote"', "x,y", "two\nlines", "long " * 30, ""]
    return [" ".join(drawn.choices(words, k=drawn.randint(1, 9))) + f" {number}" for number in range(count)]


def write_inputs(folder: Path, count: int = 23) -> list[Path]:
    """The same rows as a file of each kind."""
    rows = [{"n": number, "text": text} for number, text in enumerate(texts(count))]
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet", row_group_size=10)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    quoted = [row["text"].replace('"', '""') for row in rows]
    lines = "".join(f'{number},"{text}"\n' for number, text in enumerate(quoted))
    (folder / "rows.csv").write_text("n,text\n" + lines, encoding="utf-8", newline="")
    return [folder / name for name in ("rows.csv", "rows.jsonl", "rows.parquet")]


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for part in content(folder).values() for line in part.decode().splitlines()]


def compute_small(model: Path, inputs: Any, out: Path, suffix: str = ".jsonl", **how: Any) -> Any:
    return compute_folder(What(model), inputs, out, How(size=SMALL, **how), suffix)


# ------------------------------------------------------------------------------------------------- cutting


@pytest.mark.slow
def test_blocks_of_each_format_hold_each_row_once_and_as_the_whole_file_does(model: Path, tmp_path: Path) -> None:
    """The oracle is the answer without blocks."""
    for source in write_inputs(tmp_path / "in"):
        out = tmp_path / source.suffix[1:]
        totals = compute_small(model, [source], out)
        assert (totals.rows, totals.errors) == (23, 0)
        assert totals.blocks == len(content(out)) > 3
        whole = tmp_path / f"{source.suffix[1:]}.jsonl"
        planner.predict_file(model, source, whole)
        for row, alone in zip(rows_of(out), map(json.loads, whole.read_text().splitlines()), strict=True):
            assert row["probabilities"] == pytest.approx(alone.pop("probabilities"), abs=1e-5)
            del row["probabilities"]
            assert row == alone
        assert [row["text"] for row in rows_of(out)] == [text for text in texts(23)]


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.txt", b"eins\r\n\r\nzwei\ndrei", "bytes"),
        ("a.txt", "\ufeffeins\nzwei\ndrei\n".encode(), "bytes"),
        ("a.txt", "grün\nzwei\ndrei\n".encode("cp1252"), "rows"),
        ("a.csv", "text\neins\nzwei\ndrei\n".encode("utf-16"), "rows"),
        ("a.csv", b"sep=;\ntext;n\neins;1\nzwei;2\ndrei;3\n", "rows"),
        ("a.csv", b'text;n\n"ei;ns";1\nzwei;2\n"dr\nei";3\n', "bytes"),
        ("a.tsv", b'text\tn\n"eins\t1\nzwei\t2\ndrei\t3\n', "bytes"),
        ("a.json", b'[{"text": "eins"}, {"text": "zwei"}, {"text": "drei"}]', "rows"),
        ("a.jsonl", b'{"text": null, "n": 1}\n\n{"text": "zwei"}\n{"text": "drei", "late": 1}\n', "bytes"),
    ],
)
def test_odd_files_are_cut_where_rows_end(model: Path, tmp_path: Path, name: str, data: bytes, kind: str) -> None:
    source, out = tmp_path / name, tmp_path / "out"
    source.write_bytes(data)
    compute_folder(What(model), [source], out, How(size=Size(rows=1)))
    plan = State(out).plan()
    assert plan is not None
    assert {block.kind for block in plan.blocks} == {kind}
    assert len(plan.blocks) > 2
    planner.predict_file(model, source, tmp_path / "whole.jsonl")
    alone = [json.loads(line) for line in (tmp_path / "whole.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows_of(out)] == [row["text"] for row in alone]
    assert [row.keys() for row in rows_of(out)] == [row.keys() for row in alone]


def test_inputs_are_files_folders_patterns_and_addresses(model: Path, tmp_path: Path) -> None:
    write_inputs(tmp_path / "in")
    (tmp_path / "in" / "_hidden.csv").write_text("text\nno\n")
    (tmp_path / "in" / "README.txt").write_text("no text of the data\n")
    names = [Path(file.name).name for file in find_inputs([tmp_path / "in"])]
    assert names == ["rows.csv", "rows.jsonl", "rows.parquet"], "of tables and texts the tables"
    assert [Path(file.name).name for file in find_inputs([f"{tmp_path}/in/*.txt"])] == ["README.txt"]
    assert [Path(file.name).name for file in find_inputs([f"{tmp_path}/in/*.parquet"])] == ["rows.parquet"]
    address = f"file://{tmp_path}/in"
    assert [Path(file.name).name for file in find_inputs([address])] == names
    assert [Path(file.name).name for file in find_inputs([f"{address}/r*.[cj]*"])] == names[:2]
    compute_small(model, [f"{address}/rows.parquet"], tmp_path / "far")
    compute_small(model, [tmp_path / "in" / "rows.parquet"], tmp_path / "near")
    assert content(tmp_path / "far") == content(tmp_path / "near")
    with pytest.raises(DataError, match="is given twice"):
        find_inputs([tmp_path / "in" / "rows.csv", f"{tmp_path}/in/rows.*"])
    with pytest.raises(DataError, match="no file matches"):
        find_inputs([f"{tmp_path}/in/*.tsv"])
    with pytest.raises(DataError, match=r"nothing.csv does not exist"):
        find_inputs([tmp_path / "nothing.csv"])


class Counted(LocalFileSystem):
    """A store that counts the bytes that are read of it."""

    protocol = "counted"
    read = 0

    def _open(self, path: str, mode: str = "rb", **more: Any) -> Any:
        return CountedFile(path)


class CountedFile(io.FileIO):
    def read(self, size: int | None = -1) -> bytes:
        found = super().read(-1 if size is None else size)
        Counted.read += len(found)
        return found


def test_of_a_remote_file_a_block_reads_its_bytes_alone(model: Path, tmp_path: Path) -> None:
    fsspec.register_implementation("counted", Counted, clobber=True)
    drawn = random.Random(0)
    rows = [{"text": f"good {drawn.randbytes(4000).hex()}"} for _ in range(64)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=4)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("a.parquet", "a.jsonl"):
        size, out = (tmp_path / name).stat().st_size, tmp_path / name.replace(".", "_")

        def read_by(shard: int, name: str = name, out: Path = out) -> int:
            Counted.read = 0
            how = How(size=Size(rows=4), shard=(shard, 16))
            compute_folder(What(model), [f"fsspec+counted://{tmp_path}/{name}"], out, how)
            return Counted.read

        assert size < read_by(1) < 1.5 * size, "to plan it is read once; and one of 16 blocks"
        assert 0 < read_by(2) < 0.3 * size
    with (tmp_path / "a.jsonl").open("r+") as file:
        file.write('{"text": "evil')
    with pytest.raises(ConfigError, match="has changed since the work was planned"):
        read_by(3)


def test_parts_of_parquet_have_one_schema_whatever_their_rows(model: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    lines = [{"text": "good", "n": None}] * 8 + [{"text": 5, "n": 1}] * 8 + [{"text": "bad", "n": 0.5, "x": [1]}]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    compute_small(model, [source], tmp_path / "out", ".parquet")
    schemas = {str(pq.read_schema(part)) for part in (tmp_path / "out").glob("part-*")}
    assert len(schemas) == 1
    table = pq.read_table(tmp_path / "out")
    assert table.schema.field("n").type == pa.float64()
    assert table["x"].to_pylist()[-1] == "[1]"
    assert [bool(said) for said in table["error"].to_pylist()] == [False] * 8 + [True] * 8 + [False]


def test_vectors(tmp_path: Path) -> None:
    sources = write_inputs(tmp_path / "in")
    what = What("bertkit-tiny-en", "embed", options={"normalize": True})
    compute_folder(what, sources[:1], tmp_path / "out", How(size=SMALL), ".parquet")
    table = pq.read_table(tmp_path / "out")
    assert table.schema.field("embedding").type == pa.list_(pa.field("element", pa.float32()), 384)
    assert table["text"].to_pylist() == texts(23)
    lengths = np.linalg.norm(np.stack(table["embedding"].to_pylist()), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-5)


def test_weights_of_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The oracle is the command that prints them, and the table of another library's matrix."""
    model = save_tiny(tmp_path / "m", BertForMaskedLM)
    given = ["good film", "the film was bad", "good"] * 4
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"n": number, "text": text}) + "\n" for number, text in enumerate(given)))
    start = ["embed", "--model", str(model), "--sparse", "--device", "cpu"]
    assert main([*start, "--json", *given]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    blocks = ["--block-rows", "5"]
    assert main([*start, "--file", str(source), "--out", str(tmp_path / "a.jsonl"), *blocks]) == 0
    assert main([*start, "--file", str(source), "--out", str(tmp_path / "a.npz"), *blocks]) == 0
    written = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [row.keys() for row in written] == [row.keys() for row in printed]
    for each, said in zip(written, printed, strict=True):
        assert each["embedding"] == pytest.approx(said["embedding"], abs=1e-4)
    assert written[0]["embedding"] != written[1]["embedding"], "the control: texts are told apart"
    matrix = load_npz(tmp_path / "a.npz")
    assert matrix.shape[0] == 12
    assert [len(each["embedding"]) for each in written] == matrix.getnnz(axis=1).tolist()
    assert main([*start, str(source), "--out", str(tmp_path / "whole"), *blocks]) == 0
    for shard in ("1/2", "2/2"):
        assert main([*start, str(source), "--out", str(tmp_path / "parts"), *blocks, "--shard", shard]) == 0
    assert content(tmp_path / "parts") == content(tmp_path / "whole")
    table = pq.read_table(tmp_path / "whole")
    assert table["n"].to_pylist() == list(range(12))
    found = table["embedding"].to_pylist()
    assert [row["indices"] for row in found] == [matrix[number].indices.tolist() for number in range(12)]
    np.testing.assert_array_equal(np.concatenate([row["values"] for row in found]), matrix.data)
    source.write_text('{"text": "good"}\n{"text": null}\n')
    assert main([*start, "--file", str(source), "--out", str(tmp_path / "b.npz")]) == 3
    assert "in.jsonl:2" in capsys.readouterr().err


# ---------------------------------------------------------------------------- workers, shards, stops, changes


@pytest.mark.slow
def test_workers_shards_and_one_process_write_the_same_bytes(model: Path, tmp_path: Path) -> None:
    sources = write_inputs(tmp_path / "in")
    compute_small(model, sources[:2], tmp_path / "here")
    compute_small(model, sources[:2], tmp_path / "two", workers=2)
    for index in (3, 1, 2):
        compute_small(model, sources[:2], tmp_path / "shards", shard=(index, 3))
        done = status_of(tmp_path / "shards").done
        assert (done == status_of(tmp_path / "here").blocks) == (index == 2)
    expected = content(tmp_path / "here")
    assert content(tmp_path / "two") == expected
    assert content(tmp_path / "shards") == expected
    for name in ("here", "two", "shards"):
        assert merge_folder(tmp_path / name, tmp_path / f"{name}.jsonl") == 46
    compute_file(What(model), sources[:2], tmp_path / "single.jsonl", How(size=SMALL))
    assert (tmp_path / "single.jsonl").read_bytes() == b"".join(expected.values())
    assert (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "single.jsonl").read_bytes()


def test_a_stopped_run_goes_on_and_finished_blocks_are_not_computed_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = write_inputs(tmp_path / "in")
    compute_small(model, sources[:1], tmp_path / "whole")
    answers, seen = Run.answers, list[int]()

    def stops(self: Any, examples: Any, **others: Any) -> Any:
        seen.append(len(examples))
        if len(seen) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return answers(self, examples, **others)

    monkeypatch.setattr(Run, "answers", stops)
    with pytest.raises(KeyboardInterrupt, match=r"after 14 rows; run the same command to resume"):
        compute_small(model, sources[:1], tmp_path / "out")
    status = status_of(tmp_path / "out")
    assert (status.done, status.rows, status.under_way, status.died) == (2, 14, [], [])
    with pytest.raises(ConfigError, match=r"lacks 2 of 4 blocks \('part-00002.jsonl"):
        merge_folder(tmp_path / "out", tmp_path / "out.jsonl")
    (tmp_path / "out" / "part-00001.jsonl").write_bytes(b"cut")  # as a disk may lose it
    compute_small(model, sources[:1], tmp_path / "out")
    assert "resuming after 7 finished rows (1 of 4 blocks)" in capsys.readouterr().err
    assert seen == [7, 7, 7, 7, 7, 2]
    assert content(tmp_path / "out") == content(tmp_path / "whole")


@pytest.mark.slow
def test_refresh_computes_what_has_changed(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [tmp_path / f"{name}.txt" for name in "abc"]
    for source in sources:
        source.write_text("".join(f"{source.stem} {number}\n" for number in range(20)))
    compute_small(model, sources, tmp_path / "out")
    with sources[1].open("a") as file:
        file.write("b more\n" * 3)
    with pytest.raises(ConfigError, match=r"b\.txt has changed since the work was planned.*--refresh"):
        compute_small(model, sources, tmp_path / "out")
    answers, seen = Run.answers, list[str]()
    monkeypatch.setattr(
        Run,
        "answers",
        lambda self, given, **more: seen.extend(each.text for each in given) or answers(self, given, **more),
    )
    compute_small(model, sources, tmp_path / "out", refresh=True)
    assert seen == [f"b {number}" for number in range(14, 20)] + ["b more"] * 3
    compute_small(model, sources[1:], tmp_path / "out", refresh=True)
    assert len(seen) == 9, "the numbers of parts have changed, and nothing else"
    compute_folder(What(model), sources[1:], tmp_path / "new", How(size=SMALL))
    assert content(tmp_path / "out") == content(tmp_path / "new")
    seen.clear()
    other = save_tiny(tmp_path / "other", BertForSequenceClassification, num_labels=3)
    with pytest.raises(ConfigError, match="another model, other settings or another input"):
        compute_small(other, sources[1:], tmp_path / "out")
    compute_small(other, sources[1:], tmp_path / "out", refresh=True)
    assert len(seen) == 43


def test_a_file_that_changes_while_it_is_read_is_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Run.answers
    for source in write_inputs(tmp_path / "in"):
        calls = list[int]()

        def changes(self: Any, given: Any, source: Path = source, calls: list[int] = calls, **more: Any) -> Any:
            calls.append(1)
            if len(calls) == 1:
                data = source.read_bytes()
                source.write_bytes(data[:-40] + bytes(40) if source.suffix == ".parquet" else data.replace(b" ", b"_"))
            return real(self, given, **more)

        with monkeypatch.context() as patch:
            patch.setattr(Run, "answers", changes)
            with pytest.raises(ConfigError, match="has changed since the work was planned"):
                compute_small(model, [source], tmp_path / source.suffix)


@pytest.mark.slow
def test_a_row_that_ends_its_process_is_found_named_and_left_out(model: Path, tmp_path: Path) -> None:
    """The process ends by a signal, as that of a segmentation fault; the model is one of the tests'."""
    source = tmp_path / "in.txt"
    lines = [f"good {number}" for number in range(12)]
    source.write_text("\n".join(lines) + "\n")
    compute_folder(What(model), [source], tmp_path / "clean", How(size=Size(rows=2)))
    lines[9] = POISON
    source.write_text("\n".join(lines) + "\n")
    script = Path(__file__).with_name("poisoned.py")
    found = subprocess.run(
        [sys.executable, script, model, source, tmp_path / "out", "2"],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert "workers died 2 times at block 4" in found.stderr
    clean, rows = rows_of(tmp_path / "clean"), rows_of(tmp_path / "out")
    assert rows[9] == {"text": POISON, "error": compute.DIED}
    assert [row["text"] for row in rows] == lines
    differ = [name for name, data in content(tmp_path / "clean").items() if content(tmp_path / "out")[name] != data]
    assert differ == ["part-00004.jsonl"]
    assert [row["predicted"] for row in rows if "error" not in row] == [
        row["predicted"] for number, row in enumerate(clean) if number != 9
    ]
    (error,) = map(json.loads, (tmp_path / "out" / "_errors.jsonl").read_text().splitlines())
    assert error == {"place": f"{source}:10", "error": compute.DIED}


@pytest.mark.campaign  # every day a run is stopped, and a worker dies
@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, 20])
def test_kills_at_random_change_nothing(model: Path, tmp_path: Path, kills: int) -> None:
    source, out = tmp_path / "in.txt", tmp_path / "out"
    source.write_text("".join(f"{text!r}\n" for text in texts(60 * kills)))
    compute_small(model, [source], tmp_path / "whole")
    command = [
        sys.executable, "-m", "bertkit", "predict", source, "--model", model, "--out", out, "--format", "jsonl",
        "--block-rows", "7", "--workers", "2", "-q",
    ]  # fmt: skip
    drawn, done = random.Random(1), 0
    for _ in range(kills):
        running = subprocess.Popen([str(part) for part in command], start_new_session=True)
        wanted = done + drawn.randint(1, 3)
        while running.poll() is None and len(State(out).manifests()) < wanted:
            time.sleep(0.01)
        time.sleep(drawn.random() * 0.02)
        if drawn.random() < 0.5:  # a worker alone, of which the driver makes another
            for child in children_of(running.pid)[:1]:
                with contextlib.suppress(ProcessLookupError):  # it may have done its last part
                    os.kill(child, signal.SIGKILL)
            time.sleep(0.05)
        running.kill()
        running.wait()
        done = len(State(out).manifests())
    last = subprocess.run([str(part) for part in command], check=False)
    assert last.returncode == 0
    assert done < len(content(out)), "the control: it was not done before the last run"
    assert content(out) == content(tmp_path / "whole")


def children_of(process: int) -> list[int]:
    path = Path(f"/proc/{process}/task/{process}/children")
    found = [int(each) for each in path.read_text().split()] if path.exists() else []
    return [each for each in found if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()]


def test_two_drivers_of_one_output_are_refused(model: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("good\n" * 20)
    compute_small(model, [source], tmp_path / "out", shard=(1, 2))
    folder = tmp_path / "out" / "_bertkit"
    for held, shard, told in (
        ("shard-2-of-2", (2, 2), "shard 2/2"),
        ("shard-1-of-3", (2, 2), "another number of shards"),
    ):
        with held_lock(folder / f"{held}.lock", "held by the test"), pytest.raises(ConfigError, match=told):
            compute_small(model, [source], tmp_path / "out", shard=shard)
    compute_small(model, [source], tmp_path / "out", shard=(2, 2))
    assert status_of(tmp_path / "out").rows == 20


# ------------------------------------------------------------------------------------------------ bad input


def test_standard_input_is_read_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "a.csv", "-", "--model", "m", "--out", "o.jsonl"]) == 2
    assert "standard input (-) is read alone, and 2 inputs are given" in capsys.readouterr().err


def test_an_address_as_an_output_makes_nothing(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a path ``s3://bucket/out`` would be a folder of the name ``s3:`` here."""
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("good\n")
    for name in ("s3://bucket/out", "s3:/bucket/out", "gs://bucket/out.jsonl"):
        for command in (
            ["predict", "in.txt"],
            ["embed", "--file", "in.txt"],
            ["embed", "good"],
            ["embed", "--sparse", "a"],
        ):
            assert main([*command, "--model", str(model), "--out", name]) == 2
            assert "results are written to a file system" in capsys.readouterr().err
        for write in (compute_folder, compute_file):
            with pytest.raises(ConfigError, match="results are written to a file system"):
                write(What(model), ["in.txt"], Path(name))
        with pytest.raises(ConfigError, match="results are written to a file system"):
            planner.predict_file(model, "in.txt", name)
    assert os.listdir() == ["in.txt"]


def test_what_is_wrong_is_said_before_any_work(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "answers", lambda *_, **__: pytest.fail("work has begun"))
    one, two, empty = tmp_path / "1.csv", tmp_path / "2.csv", tmp_path / "empty.csv"
    one.write_text("text,n\ngood,1\n")
    two.write_text("text,m\ngood,1\n")
    empty.write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.doc").write_text("mine")
    for inputs, out, how, error, told in (
        ([one, two], "out", How(), DataError, r"2\.csv lacks \['n'\] and has \['m'\] as well, compared with .*1\.csv"),
        ([empty], "out", How(), DataError, "empty.csv is empty"),
        ([one], "full", How(), ConfigError, "is a folder of something else"),
    ):
        with pytest.raises(error, match=told):
            compute_folder(What(model), inputs, tmp_path / out, how)
    for shard in ((0, 4), (5, 4)):
        with pytest.raises(ConfigError, match=r"give i/n with i from 1 to n \(add 1"):
            How(shard=shard)
    with pytest.raises(ConfigError, match="give --out a folder"):
        compute_file(What(model), [one], tmp_path / "x.csv", How(shard=(1, 2)))
    with pytest.raises(ConfigError, match=r"x\.docx: unknown format"):
        compute_file(What(model), [one], tmp_path / "x.docx")
    with pytest.raises(ConfigError, match="is no folder of parts"):
        status_of(tmp_path / "full")
    with pytest.raises(DataError, match=r"no text column .*--text"):
        compute_folder(What(model, columns=Columns(("review",))), [one], tmp_path / "out")


@pytest.mark.slow
def test_errors_are_counted_listed_and_put_up_with_up_to_a_number(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.jsonl"
    lines = [{"text": "good"}, {"text": 5}, {"text": "x" * 10_000_000}, {"text": ["a"]}, {"text": None}] * 2
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(
        DataError, match=r"than --max-errors 0 allows; the first is .*in\.jsonl:2: column 'text' holds 5"
    ):
        compute_small(model, [source], tmp_path / "out", max_errors=0)
    totals = compute_small(model, [source], tmp_path / "out", max_errors=4)
    assert (totals.rows, totals.errors, totals.truncated, totals.empty) == (10, 4, 0, 2)
    assert "without a result: 4 of 10 rows" in capsys.readouterr().err
    listed = [json.loads(line)["place"] for line in (tmp_path / "out" / "_errors.jsonl").read_text().splitlines()]
    assert listed == [f"{source}:{line}" for line in (2, 4, 7, 9)]
    assert status_of(tmp_path / "out").errors == 4


def test_a_full_disk_and_a_folder_of_others_are_said(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("good\n" * 20)

    def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("bertkit.bulk.parts.to_jsonl", full)
        with pytest.raises(ResourceError, match=r"no room for part-00000\.jsonl .* run the same command to resume"):
            compute_small(model, [source], tmp_path / "out")
    assert compute_small(model, [source], tmp_path / "out").rows == 20
    if os.geteuid() != 0:
        (tmp_path / "theirs").mkdir(0o555)
        with pytest.raises(ResourceError, match="cannot write"):
            compute_small(model, [source], tmp_path / "theirs" / "out")


def test_a_run_keeps_the_variant_of_its_first_block(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "in.txt", tmp_path / "out"
    source.write_text("good\n" * 20)
    compute_small(model, [source], out, shard=(1, 3))
    own = next(iter(status_of(out).variants))
    monkeypatch.setattr(compute, "variant_of", lambda answers: "another processor")
    with pytest.raises(ConfigError, match=r"computes with another processor, and this run with .*--mixed-hardware"):
        compute_small(model, [source], out, shard=(2, 3))
    with pytest.raises(ConfigError, match="the last bits of results would differ"):
        compute_small(model, [source], out, mixed_hardware=True)
    mixed = tmp_path / "mixed"
    compute_small(model, [source], mixed, shard=(1, 3), mixed_hardware=True)
    monkeypatch.undo()
    for index in (2, 3):
        compute_small(model, [source], mixed, shard=(index, 3), mixed_hardware=True)
    status = status_of(mixed)
    assert status.variants == {"another processor": 1, own: 2}
    assert len(status.other_variants) in (1, 2)
    assert "computed with different variants" in status.render()


def test_a_resume_reads_each_manifest_once(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No clock: how often files are opened is what a resume costs; the seconds are in the results."""
    source, out = tmp_path / "in.jsonl", tmp_path / "out"
    source.write_text("".join(json.dumps({"text": 5 if number % 9 else "good"}) + "\n" for number in range(60)))
    compute_small(model, [source], out)
    errors, blocks = (out / "_errors.jsonl").read_bytes(), State(out).manifests()
    (out / blocks[next(iter(blocks))].part).unlink()
    read, real = list[object](), open
    monkeypatch.setattr("bertkit.bulk.state.open", lambda *given: read.append(given) or real(*given), raising=False)
    compute_small(model, [source], out)
    assert len(read) == len(blocks) + 1, "each once, and that of the block that was computed again"
    assert (out / "_errors.jsonl").read_bytes() == errors
    with held_lock(out / "_bertkit" / "plan.lock", "held by the test"):  # a shard does not wait for it
        for index in (1, 2, 3):
            read.clear()
            assert compute_small(model, [source], out, shard=(index, 3)).blocks == len(read) == len(blocks) // 3
    listed = [line for path in sorted(out.glob("_errors*")) for line in path.read_bytes().splitlines()]
    assert sorted(listed) == sorted(errors.splitlines())


@pytest.mark.campaign
def test_a_ray_cluster_writes_the_same_bytes(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    sources = write_inputs(tmp_path / "in")
    compute_small(model, sources[:2], tmp_path / "here")
    compute_small(model, sources[:2], tmp_path / "ray", engine="ray", workers=2)
    assert content(tmp_path / "ray") == content(tmp_path / "here")


@pytest.mark.campaign
def test_killed_workers_of_a_ray_cluster_change_nothing(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    source, out = tmp_path / "in.txt", tmp_path / "out"
    source.write_text("".join(f"{text!r}\n" for text in texts(1400)))
    compute_small(model, [source], tmp_path / "whole")
    killed, ended = list[int](), threading.Event()

    def kill() -> None:
        for wanted in (1, 20, 60):
            while len(State(out).manifests()) < wanted or not (workers := workers_on_ray()):
                if ended.wait(0.02):
                    return
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        compute_small(model, [source], out, engine="ray", workers=2)
    finally:
        ended.set()
        killer.join()
    assert len(killed) == 3
    assert content(out) == content(tmp_path / "whole")


def workers_on_ray() -> list[int]:
    """The processes of tasks of ours, in a cluster of this process."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if b"ray::_work_on_ray" in (path / "cmdline").read_bytes() and os.getpid() in parents_of(int(path.name)):
                found.append(int(path.name))
        except OSError:  # it has ended
            continue
    return found


def parents_of(process: int) -> Iterator[int]:
    while process > 1:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        yield process


@pytest.mark.slow
def test_workers_that_cannot_start_are_said(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "in.txt"
    source.write_text("good\n")
    monkeypatch.setattr(pools, "_serve", os._exit)
    with pytest.raises(ResourceError, match="ended before it had opened the model"):
        compute_small(model, [source], tmp_path / "out", workers=1)


def test_a_model_is_found_by_other_processes(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(model.parent))
    monkeypatch.setenv("USERPROFILE", str(model.parent))
    monkeypatch.chdir(model.parent)
    assert {shared_name(name) for name in (model, model.name, f"~/{model.name}")} == {str(model)}
    assert shared_name("owner/name") == "owner/name"
