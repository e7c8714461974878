"""Search indices: exact answers, changes, kills, and damage."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import zscore

from bertkit import pipeline
from bertkit.errors import CheckpointError, ConfigError, DataError, InputError
from bertkit.inference.retrieval import index_writer
from bertkit.inference.retrieval.index_files import Row, directions_of, read_manifest, read_rows, read_vectors, stored
from bertkit.inference.retrieval.index_writer import IndexWriter, Located, index_rows
from bertkit.inference.retrieval.search_index import SearchIndex
from bertkit.inference.retrieval.source_texts import SourceText
from bertkit.inference.retrieval.text_vectors import TextEncoder
from bertkit.metrics.bm25 import BM25
from bertkit.system.interrupts import Interrupted
from pipeline_helpers import WORDS, save_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "m")


@pytest.fixture(scope="module")
def encoder(model: Path) -> TextEncoder:
    return TextEncoder(model, device="cpu", by_products=True)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_writer, "BLOCK_TEXTS", 8)


def some_texts(count: int, seed: int = 0) -> list[str]:
    """Different texts."""
    chance = np.random.default_rng(seed)
    return [" ".join([*chance.choice(WORDS, chance.integers(1, 9)), str(number)]) for number in range(count)]


def located(texts: Iterable[str], source: str = "a.txt") -> Iterator[Located]:
    return index_rows(SourceText(source, line, None, text) for line, text in enumerate(texts, start=1))


def build(folder: Path, encoder: TextEncoder, texts: Iterable[str], number_type: Any = "float32") -> SearchIndex:
    with IndexWriter(folder, encoder) as writer:
        writer.build(located(texts), str(encoder.path), number_type)
    return opened(folder, encoder)


def opened(folder: Path, encoder: TextEncoder) -> SearchIndex:
    """Without loading the model again."""
    index = SearchIndex(folder, device="cpu")
    vars(index)["encoder"] = encoder
    return index


def change(folder: Path, encoder: TextEncoder | None, what: str, given: Any) -> Any:
    with IndexWriter(folder, encoder) as writer:
        return getattr(writer, what)(given)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("number_type", ["float32", "float16", "int8"])
def test_search_is_exact(number_type: str, tmp_path: Path, encoder: TextEncoder) -> None:
    texts, queries = some_texts(37), some_texts(5, seed=1)
    index = build(tmp_path / "index", encoder, texts, number_type)
    assert len(index) == 37
    assert len(index.manifest.blocks) == 5
    kept = directions_of(stored(encoder.encode(texts).vectors, number_type))  # type: ignore[arg-type]
    products = encoder.encode(queries, query=True).vectors @ kept.T
    for top_k in (1, 7, 20, 100):
        found = index.search(queries, top_k)
        for hits, row in zip(found, products, strict=True):
            best = np.argsort(-row, kind="stable")[:top_k]
            assert [hit.text for hit in hits] == [texts[number] for number in best]
            assert [hit.id for hit in hits] == [f"a.txt:{number + 1}" for number in best]
            assert [hit.score for hit in hits] == pytest.approx(row[best], abs=1e-6)
    exact = products if number_type == "float32" else queries_and(encoder, queries, texts)
    assert np.abs(products - exact).max() < {"float32": 1e-6, "float16": 2e-3, "int8": 2e-2}[number_type]


def queries_and(encoder: TextEncoder, queries: list[str], texts: list[str]) -> Any:
    return encoder.encode(queries).vectors @ encoder.encode(texts).vectors.T


def test_prompts_and_lengths_belong_to_the_index(tmp_path: Path, model: Path) -> None:
    encoder = TextEncoder(model, device="cpu", prompt="the film ", query_prompt="is ", max_length=20, pooling="cls")
    index = build(tmp_path / "index", encoder, some_texts(5))
    plain = TextEncoder(model, device="cpu", max_length=20, pooling="cls")
    (hits,) = index.search("good end", 5)
    vectors = plain.encode([f"the film {text}" for text in some_texts(5)]).vectors
    expected = np.sort(vectors @ plain.encode(["is good end"]).vectors[0])[::-1]
    assert [hit.score for hit in hits] == pytest.approx(expected, abs=1e-6)
    assert [hit.score for hit in hits] != pytest.approx(np.sort(vectors @ plain.encode(["good end"]).vectors[0])[::-1])
    assert SearchIndex(index.path, device="cpu").encoder.facts == encoder.facts


def measured(model: Path, folder: Path, measure: str) -> Path:
    """A copy of a model whose vectors are meant to be compared in some way."""
    shutil.copytree(model, folder)
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
    settings = {"similarity_fn_name": measure}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def test_vectors_are_compared_as_the_model_says(tmp_path: Path, model: Path) -> None:
    encoder = TextEncoder(measured(model, tmp_path / "dot", "dot"), device="cpu", by_products=True)
    index = build(tmp_path / "index", encoder, some_texts(9))
    embed = pipeline("feature-extraction", model=model, device="cpu", pooling="mean")
    products = np.stack(embed(some_texts(9))) @ embed("good film")
    (hits,) = index.search("good film", 9)
    assert [hit.score for hit in hits] == pytest.approx(np.sort(products)[::-1], abs=1e-3)
    assert hits[0].score > 1.5  # the control: no cosine
    with pytest.raises(ConfigError, match="int8 keeps no lengths"):
        build(tmp_path / "int8", encoder, some_texts(3), "int8")
    assert np.linalg.norm(TextEncoder(encoder.path, device="cpu").encode(["a"]).vectors) == pytest.approx(1)
    with pytest.raises(ConfigError, match="compares vectors by manhattan distances"):
        TextEncoder(measured(model, tmp_path / "far", "manhattan"), device="cpu", by_products=True)


def test_add_update_and_delete_give_what_building_anew_gives(tmp_path: Path, encoder: TextEncoder) -> None:
    texts = some_texts(20)
    folder = tmp_path / "index"
    build(folder, encoder, texts)
    assert change(folder, encoder, "add", located(some_texts(3, 5), "b.txt")).added == 3
    assert change(folder, encoder, "add", located(some_texts(3, 5), "b.txt")).unchanged == 3  # run again after a kill
    # A new first line moves all others; one text is changed, one is gone, the rest keep their vectors.
    later = ["a new film", *texts[:5], "another end", *texts[6:15], *texts[16:]]
    calls = count_encoded(encoder)
    changes = change(folder, encoder, "update", located(later))
    assert calls() == 2
    assert (changes.reused, changes.total) == (14, 23)
    assert change(folder, None, "delete", ["b.txt:2", "a.txt:3"]).removed == 2
    kept = [row.row for row in located(later) if row.row.id != "a.txt:3"]
    kept += [row.row for row in located(some_texts(3, 5), "b.txt") if row.row.id != "b.txt:2"]
    index = opened(folder, encoder)
    assert len(index) == len(kept)
    (hits,) = index.search("good film", 100)
    vectors = encoder.encode([row.text for row in kept]).vectors
    scores = vectors @ encoder.encode(["good film"]).vectors[0]
    expected = {row.id: (row.text, row.source, score) for row, score in zip(kept, scores.tolist(), strict=True)}
    assert {hit.id: (hit.text, hit.source, pytest.approx(hit.score, abs=1e-6)) for hit in hits} == expected
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    before = content(folder)
    assert (
        change(folder, encoder, "update", located([*later[:2], "x", *later[3:]])).changed == 0
    )  # a.txt:3 is new again
    assert before != content(folder)


def count_encoded(encoder: TextEncoder) -> Callable[[], int]:
    """How many texts are encoded from now on."""
    counted, encode = [0], TextEncoder.encode

    def counting(texts: Iterable[str], **options: Any) -> Any:
        listed = list(texts)
        counted[0] += len(listed)
        return encode(encoder, listed, **options)

    encoder.encode = counting  # type: ignore[method-assign]

    def stop() -> int:
        del encoder.encode  # the method of the class again
        return counted[0]

    return stop


def test_an_update_leaves_other_sources_alone(tmp_path: Path, encoder: TextEncoder) -> None:
    folder = tmp_path / "index"
    build(folder, encoder, some_texts(5))
    change(folder, encoder, "add", located(some_texts(4, 5), "b.txt"))
    assert change(folder, encoder, "update", located(["one film"], "b.txt")).removed == 3
    assert sorted(hit.source for hit in opened(folder, encoder).search("film", 10)[0]) == ["a.txt"] * 5 + ["b.txt"]
    before = content(folder)
    changes = change(folder, encoder, "update", located(["one film"], "b.txt"))
    assert (changes.unchanged, changes.added, changes.changed, changes.removed) == (1, 0, 0, 0)
    assert content(folder) == before  # nothing was written again


def test_small_and_mostly_removed_blocks_are_joined(tmp_path: Path, encoder: TextEncoder) -> None:
    folder = tmp_path / "index"
    build(folder, encoder, some_texts(16))
    for number in range(6):
        change(folder, encoder, "add", located([f"film {number}"], f"{number}.txt"))
    assert [block.rows for block in opened(folder, encoder).manifest.blocks] == [8, 8, 6]
    change(folder, None, "delete", [f"a.txt:{number}" for number in range(1, 6)])
    manifest = opened(folder, encoder).manifest
    assert manifest.num_texts == 17
    assert all(2 * len(block.removed) <= block.rows for block in manifest.blocks)
    assert len(list(folder.glob("block-*.npy"))) == len(manifest.blocks)
    change(folder, None, "delete", [f"a.txt:{number}" for number in range(6, 17)] + [f"{n}.txt:1" for n in range(6)])
    assert len(opened(folder, encoder)) == 0
    assert opened(folder, encoder).search("film", 3) == [[]]
    assert opened(folder, encoder).search("film", 3, hybrid=True) == [[]]


class Killed(BaseException):
    """What no handler catches."""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["build", "update"])
def test_killed_at_every_stage(
    what: str, tmp_path: Path, encoder: TextEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before and after every file that is written, renamed or deleted, and run again: the same as at one go."""
    old, new = some_texts(20), [*some_texts(6, 3), *some_texts(20)[2:15]]
    start = tmp_path / "start"
    if what == "update":
        build(start, encoder, old)

    def run(folder: Path) -> None:
        if what == "build":
            build(folder, encoder, new)
        else:
            change(folder, encoder, "update", located(new))

    def begin(name: str) -> Path:
        folder = tmp_path / name
        if what == "update":
            shutil.copytree(start, folder)
        return folder

    whole = begin("whole")
    run(whole)
    answers = opened(whole, encoder).search(some_texts(3, 9), 50)
    replace, unlink = Path.replace, Path.unlink
    stages = 0
    for stage in range(1000):
        folder, left = begin(f"killed-{stage}"), [stage]

        def step(real: Callable[..., Any], left: list[int] = left) -> Callable[..., Any]:
            def stepping(self: Path, *arguments: Any, **options: Any) -> Any:
                if self.name == index_writer.LOCK:
                    return real(self, *arguments, **options)
                for after in (False, True):
                    if after:
                        found = real(self, *arguments, **options)
                    left[0] -= 1
                    if left[0] < 0:
                        raise Killed
                return found

            return stepping

        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", step(replace))
            patched.setattr(Path, "unlink", step(unlink))
            try:
                run(folder)
                finished = True
            except Killed:
                finished = False
        if not finished:
            stages += 1
            if what == "build" and (folder / "index.json").exists() and not read_manifest(folder).finished:
                with pytest.raises(ConfigError, match="unfinished index; run the same"):
                    SearchIndex(folder)
            if not (what == "build" and (folder / "index.json").exists() and read_manifest(folder).finished):
                run(folder)
        if what == "build":
            assert content(folder) == content(whole)
        found = opened(folder, encoder).search(some_texts(3, 9), 50)
        assert [[hit[:3] for hit in hits] for hits in found] == [[hit[:3] for hit in hits] for hits in answers]
        assert sorted(path.name for path in folder.iterdir()) == sorted(
            ["index.json", *(name for block in read_manifest(folder).blocks for name in block.names)]
        )
        if finished:
            break
    assert stages > 15


def test_a_file_that_has_become_empty(tmp_path: Path, encoder: TextEncoder) -> None:
    texts, others = some_texts(3), some_texts(2, seed=1)
    with IndexWriter(tmp_path / "index", encoder) as writer:
        writer.build([*located(texts), *located(others, "b.txt")], str(encoder.path))
    with IndexWriter(tmp_path / "index", encoder) as writer:
        changes = writer.update([], ["a.txt"])
    assert (changes.removed, changes.total) == (3, 2)


def test_an_open_index_says_that_it_was_changed(tmp_path: Path, encoder: TextEncoder) -> None:
    texts = some_texts(6)
    index = build(tmp_path / "index", encoder, texts)
    assert index.search(texts[0], 1)[0][0].text == texts[0]
    change(tmp_path / "index", encoder, "add", located(["a new film"], "b.txt"))
    with pytest.raises(DataError, match="was changed after it was opened; open it again"):
        index.search(texts[0], 1)
    again = opened(tmp_path / "index", encoder)
    assert again.search(texts[0], 1)[0][0].text == texts[0]
    for block in again.manifest.blocks:
        (tmp_path / "index" / block.names[1]).unlink()
    with pytest.raises(DataError, match="is missing"):  # control: damage is still called so
        again.search(texts[0], 1)


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path, encoder: TextEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, folder = some_texts(30), tmp_path / "index"
    whole = build(tmp_path / "whole", encoder, texts)
    monkeypatch.setattr(index_writer, "TEXTS_AT_ONCE", 2)
    with IndexWriter(folder, encoder) as writer:
        monkeypatch.setattr(writer._signals, "check", stop_after(writer, 22))
        with pytest.raises(Interrupted, match="after 20 texts; run the same command to go on"):
            writer.build(located(texts), str(encoder.path))
    index = build(folder, encoder, texts)
    assert len(index) == 30
    assert index.manifest.blocks[2].rows == 4, "what was computed of a block is kept"
    rows, vectors = stored_texts(index)
    wanted, theirs = stored_texts(whole)
    assert rows == wanted
    np.testing.assert_allclose(vectors, theirs, atol=1e-6)


def stored_texts(index: SearchIndex) -> tuple[list[Row], np.ndarray]:
    """All rows of an index without removed ones, and their vectors."""
    blocks = index.manifest.blocks
    rows = [row for block in blocks for row in read_rows(index.path, block).values()]
    return rows, np.concatenate([read_vectors(index.path, block, index.manifest) for block in blocks])


def stop_after(writer: IndexWriter, count: int) -> Callable[[], None]:
    """As Ctrl-C after so many looks for it."""
    left, check = [count], writer._signals.check

    def asked() -> None:
        left[0] -= 1
        if left[0] == 0:
            writer._signals.signum = 2
        check()

    return asked


def test_what_cannot_be_indexed(tmp_path: Path, encoder: TextEncoder, model: Path) -> None:
    folder = tmp_path / "index"
    long = [*some_texts(12), "film " * 100]
    with pytest.raises(InputError, match=r"a.txt:13: a text of more than 64 tokens.*--truncate"):
        build(folder, encoder, long)
    assert not read_manifest(folder).finished
    with (
        pytest.raises(ConfigError, match="was started with another number_type"),
        IndexWriter(folder, encoder) as writer,
    ):
        writer.build(located(long), "m", "int8")
    with IndexWriter(folder, encoder, truncate=True) as writer:
        assert writer.build(located(long), str(model)).unchanged == 8
    with pytest.raises(ConfigError, match="is a finished index"):
        build(folder, encoder, long)
    with pytest.raises(DataError, match=r"a.txt:2: the index has another text with the id 'a.txt:2'.*update"):
        change(folder, encoder, "add", located([some_texts(1)[0], "y"]))
    with pytest.raises(InputError, match=r"no text with the id 'a.txt:99'"):
        change(folder, None, "delete", ["a.txt:1", "a.txt:99"])
    assert len(opened(folder, encoder)) == 13
    twice = [row._replace(row=row.row._replace(id="same")) for row in located(["a", "b"])]
    with (
        pytest.raises(DataError, match=r"a.txt:2: the id 'same' occurs twice"),
        IndexWriter(tmp_path / "twice", encoder) as writer,
    ):
        writer.build(twice, "m")
    assert not (tmp_path / "twice").exists()
    with pytest.raises(DataError, match="no text to index"):
        build(tmp_path / "none", encoder, [" ", ""])
    assert not (tmp_path / "none").exists()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "x").touch()
    with pytest.raises(ConfigError, match="is not empty"):
        build(tmp_path / "taken", encoder, ["a"])
    for what in ("add", "update"):
        with pytest.raises(DataError, match=r"is not there|has no index.json"):
            change(tmp_path / "nowhere", encoder, what, located(["a"]))
    assert not (tmp_path / "nowhere").exists()
    with IndexWriter(folder, encoder), pytest.raises(ConfigError, match="another process is changing"):
        change(folder, None, "delete", ["a.txt:1"])


def test_queries_that_cannot_be_answered(tmp_path: Path, encoder: TextEncoder) -> None:
    index = build(tmp_path / "index", encoder, some_texts(3))
    with pytest.raises(InputError, match=r"query 1 .* is not empty"):
        index.search(["a", " "])
    with pytest.raises(InputError, match=r"query 0 .* more than 64 tokens"):
        index.search("film " * 100)
    assert len(index.search("film " * 100, truncate=True)[0]) == 3
    with pytest.raises(InputError, match="top_k must be a whole number from 1"):
        index.search("a", 0)
    with pytest.raises(InputError, match="queries must be of shape"):
        index.nearest(np.zeros((1, 3), np.float32), 1)


def test_another_model_is_refused(tmp_path: Path, encoder: TextEncoder) -> None:
    folder = tmp_path / "index"
    build(folder, encoder, some_texts(3))
    other = save_tiny(tmp_path / "other", initializer_range=0.2)
    with pytest.raises(CheckpointError, match=r"other is not the model that .*index was built with .*: another model"):
        SearchIndex(folder, other, device="cpu").search("film")
    wide = save_tiny(tmp_path / "wide", hidden_size=48, num_attention_heads=4)
    with pytest.raises(CheckpointError, match=r"makes vectors of 48 numbers, those in .* have 32"):
        SearchIndex(folder, wide, device="cpu").search("film")
    words = save_tiny(tmp_path / "words")
    vocabulary = (words / "vocab.txt").read_text(encoding="utf-8").replace("film", "felm")
    (words / "vocab.txt").write_text(vocabulary, encoding="utf-8")
    with pytest.raises(CheckpointError, match="another tokenizer"):
        SearchIndex(folder, words, device="cpu").search("film")
    moved = tmp_path / "moved"
    shutil.copytree(encoder.path, moved)
    assert len(SearchIndex(folder, moved, device="cpu").search("film")[0]) == 3
    manifest = read_manifest(folder).model_copy(update={"model": str(tmp_path / "gone")})
    (folder / "index.json").write_text(manifest.model_dump_json(), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"was built with it; if it has moved, say where \(--model\)"):
        SearchIndex(folder, device="cpu").search("film")


def damage_with(name: str, act: Callable[[Path], None]) -> Any:
    return pytest.param(name, act, id=f"{name}-{act.__name__}")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))


def remove(path: Path) -> None:
    path.unlink()


def forge(path: Path) -> None:
    """Another content of the same length, with its checksum in the manifest."""
    data = b"x" * path.stat().st_size
    path.write_bytes(data)
    manifest = json.loads((path.parent / "index.json").read_text(encoding="utf-8"))
    kind = "vectors" if path.suffix == ".npy" else "texts"
    manifest["blocks"][0][f"{kind}_crc32"] = zlib.crc32(data)
    (path.parent / "index.json").write_text(json.dumps(manifest), encoding="utf-8")


def line_with(line: str) -> Callable[[Path], None]:
    """Another first text, with its size and checksum in the manifest."""

    def act(path: Path) -> None:
        data = b"\n".join([line.encode(), *path.read_bytes().split(b"\n")[1:]])
        path.write_bytes(data)
        manifest = json.loads((path.parent / "index.json").read_text(encoding="utf-8"))
        manifest["blocks"][0] |= {"texts_bytes": len(data), "texts_crc32": zlib.crc32(data)}
        (path.parent / "index.json").write_text(json.dumps(manifest), encoding="utf-8")

    return act


def pickle_in(path: Path) -> None:
    """An array of objects, which numpy would unpickle."""
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    manifest = json.loads((path.parent / "index.json").read_text(encoding="utf-8"))
    data = path.read_bytes()
    manifest["blocks"][0] |= {"vectors_bytes": len(data), "vectors_crc32": zlib.crc32(data)}
    (path.parent / "index.json").write_text(json.dumps(manifest), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "act"),
    [
        *(damage_with(name, act) for name in ("block-000000.npy", "block-000000.jsonl")
          for act in (cut, flip, remove, forge)),
        damage_with("block-000000.npy", pickle_in),
        damage_with("block-000000.jsonl", line_with('{"id": "0", "source": "", "text": ' + "[" * 100_000)),
        damage_with("block-000000.jsonl", line_with('{"id": "0", "source": "", "text": ["a"]}')),
        damage_with("block-000000.jsonl", line_with('{"id": 0, "source": "", "text": "a"}')),
        damage_with("index.json", cut),
        damage_with("index.json", remove),
    ],
)  # fmt: skip
def test_damage_is_an_error(name: str, act: Callable[[Path], None], tmp_path: Path, encoder: TextEncoder) -> None:
    folder = tmp_path / "index"
    build(folder, encoder, some_texts(12))
    assert opened(folder, encoder).check()["texts"] == 12
    act(folder / name)
    for use in (
        lambda: opened(folder, encoder).search("film"),
        lambda: opened(folder, encoder).check(),
        lambda: change(folder, encoder, "update", located(["x", *some_texts(12)])),
    ):
        with pytest.raises(DataError, match="index"):
            use()


@pytest.mark.parametrize(
    "values",
    [
        {"format_version": 2},
        {"width": 0},
        {"number_type": "float64"},
        {"blocks": [{"number": 0}]},
        {"next_block": 0},
        {"unknown": 1},
        {"blocks": None},
    ],
)
def test_a_manifest_that_cannot_be(values: dict[str, Any], tmp_path: Path, encoder: TextEncoder) -> None:
    folder = tmp_path / "index"
    build(folder, encoder, some_texts(3))
    manifest = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    (folder / "index.json").write_text(json.dumps({**manifest, **values}), encoding="utf-8")
    with pytest.raises(DataError, match=r"index\.json"):
        SearchIndex(folder)
    for text in ("[]", "{", '{"a": ' * 5000, "\xff"):
        (folder / "index.json").write_text(text, encoding="latin-1")
        with pytest.raises(DataError, match=r"index\.json"):
            SearchIndex(folder)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda manifest: manifest["blocks"].append(manifest["blocks"][0]), "two of its blocks have one number"),
        (lambda manifest: manifest["blocks"][0].update(removed=[1, 1]), "block 0 has numbers that cannot be"),
        (lambda manifest: manifest["facts"].update(query_prompt=5), "query_prompt is 5"),
        (lambda manifest: manifest["facts"].update(prompt=None), "prompt is None"),
        (lambda manifest: manifest["facts"].update(pooling=7), "pooling is 7"),
        (lambda manifest: manifest["facts"].update(max_length="9"), "max_length is '9'"),
    ],
)
def test_a_manifest_with_values_that_cannot_be(
    change: Callable[[Any], Any], told: str, tmp_path: Path, encoder: TextEncoder
) -> None:
    folder = tmp_path / "index"
    build(folder, encoder, some_texts(3))
    manifest = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    change(manifest)
    (folder / "index.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(DataError, match=rf"index\.json is damaged: {told}"):
        opened(folder, encoder)


@pytest.mark.parametrize(
    ("facts", "told"), [({"max_length": -5}, "max_length is -5"), ({"pooling": "men"}, "pooling='men' is unknown")]
)
def test_a_manifest_with_settings_that_no_model_has(
    facts: dict[str, Any], told: str, tmp_path: Path, encoder: TextEncoder
) -> None:
    folder = tmp_path / "index"
    build(folder, encoder, some_texts(3))
    manifest = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    manifest["facts"].update(facts)
    (folder / "index.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(DataError, match=rf"index\.json is damaged: {told}"):
        SearchIndex(folder, device="cpu").search("good")


def test_two_searches_are_mixed_by_scipys_zscores(tmp_path: Path, encoder: TextEncoder) -> None:
    texts = ["a zebra", *some_texts(30)]
    build(tmp_path / "index", encoder, texts)
    change(tmp_path / "index", encoder, "delete", ["a.txt:3", "a.txt:10"])
    index = opened(tmp_path / "index", encoder)
    left = {f"a.txt:{number}": text for number, text in enumerate(texts, start=1) if number not in (3, 10)}
    products = encoder.encode(left.values()).vectors @ encoder.encode(["zebra good"], query=True).vectors[0]
    expected = 0.8 * zscore(products.astype(float)) + 0.2 * zscore(BM25(left.values()).scores("zebra good"))
    (hits,) = index.search("zebra good", 31, by="both")
    assert {hit.id: hit.score for hit in hits} == pytest.approx(dict(zip(left, expected, strict=True)), abs=1e-4)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert index.search("zebra good", 31, hybrid=True) == [hits]
    (by_words,) = index.search("zebra good", 31, by="words")
    assert {hit.id for hit in by_words} == {name for name, text in left.items() if {"good", "zebra"} & {*text.split()}}
    assert by_words[0].text == "a zebra"
    with pytest.raises(InputError, match="got 'letters'"):
        index.search("good", by="letters")  # type: ignore[arg-type]
