"""``bertkit convert``: a checkpoint of another kind becomes a folder that everything here loads, whole or not at all.

Read are the archives of the original code, SavedModels of TensorFlow 2 (each also as a ``.zip``), pickled
``pytorch_model.bin`` where the user trusts it, and safetensors under old names or in shards. The result is compared
with the source tensor by tensor, and by what it computes where the source can be run; only then does the folder get its
name.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from bertkit.checkpoints.huggingface import INDEX, WEIGHTS
from bertkit.checkpoints.inspect import inspect
from bertkit.checkpoints.pickled import PICKLE, PICKLE_INDEX, find_pickles, unpickle
from bertkit.checkpoints.safetensors_writer import write_tensors
from bertkit.checkpoints.tensorflow.variables import find_index, open_archive
from bertkit.checkpoints.zip_archive import is_archive, unpack
from bertkit.config.bert_config import CONFIG
from bertkit.errors import CheckpointError, InputError, ResourceError, shorten
from bertkit.model.convert_sources import HubSource, Source, TensorFlowSource, Wishes, compare
from bertkit.model.fingerprint import FINGERPRINT, Fingerprint, fingerprint, run, write_fingerprint
from bertkit.system.atomic_files import sync_file, sync_folder, try_lock
from bertkit.system.model_sources import HUB_FILES, resolve
from bertkit.tokenization import AutoTokenizer

#: Difference of outputs, as a share of the largest, that only the place of the same values in memory makes.
_ROUNDING = 1e-5
#: In the folder where a conversion works, held by the process that does it.
_LOCK = "lock"
_PICKLE_FILES = (PICKLE, "pytorch_model-*.bin", PICKLE_INDEX)
#: What TensorFlow's checkpoints consist of, beside the ``.json`` files; only to convert are they fetched of the Hub.
_TENSORFLOW_FILES = (
    "*.index", "*.data-*-of-*", "checkpoint", "saved_model.pb", "variables/*", "vocab*.txt", "assets/vocab.txt",
    "*.model",
)  # fmt: skip
#: Archives other than ``.zip``.
_PACKED = re.compile(r"\.(tar|tgz|tbz2?|txz|tar\.\w+)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Conversion:
    """What :func:`convert` did.

    source, target: the paths.
    kind: of the source, in words.
    model: class the result was saved from.
    num_tensors, num_parameters: of the result.
    dropped: number of tensors left out, by reason.
    notes: decisions the user should know.
    compared: what was found equal.
    fingerprint: of the result; also in its file ``fingerprint.json``.
    """

    source: str
    target: str
    kind: str
    model: str
    num_tensors: int
    num_parameters: int
    dropped: dict[str, int]
    notes: tuple[str, ...]
    compared: tuple[str, ...]
    fingerprint: Fingerprint = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)

    def render(self) -> str:
        """Text for a terminal."""
        dropped = ", ".join(f"{count} {why}" for why, count in self.dropped.items())
        facts = [
            ("from", f"{self.source} ({self.kind})"),
            ("to", f"{self.target}, saved as {self.model}"),
            ("tensors", f"{self.num_tensors} with {self.num_parameters:,} parameters"),
            ("left out", dropped or "nothing"),
            *(("note", note) for note in self.notes),
            *(("compared", line) for line in self.compared),
        ]
        lines = [f"{name:<8}  {value}" for name, value in facts]
        return "\n".join([*lines, "", self.fingerprint.render()])


def convert(
    source: str | Path,
    target: str | Path,
    *,
    trust_pickle: bool = False,
    wishes: Wishes | None = None,
    revision: str | None = None,
) -> Conversion:
    """Convert a checkpoint into a new folder.

    Args:
        source: folder, file, TensorFlow prefix (``.../bert_model.ckpt``), ``.zip``, or name on the Hub.
        target: the folder to make; it must not exist, or be empty.
        trust_pickle: pickled weights may be opened, in a process of their own; see
            :mod:`bertkit.checkpoints.pickled`.
        wishes: what overrides the source.
        revision: on the Hub.

    Raises:
        CheckpointError: nothing to convert there, damaged, unsafe, or no model that bertkit computes; the source and
            the result differ. Nothing is left at ``target``.
        InputError: ``target`` holds something; wishes that this kind of source has no use for.
        ResourceError: the disk is full.
    """
    path, folder, wishes = _local(source, trust_pickle, revision), Path(target).expanduser(), wishes or Wishes()
    _check_target(folder)
    with _workshop(folder) as work:
        if is_archive(path):
            (work / "unpacked").mkdir()
            unpack(path, work / "unpacked")
            found = _open(work / "unpacked", work, trust_pickle, wishes)
        else:
            found = _open(path, work, trust_pickle, wishes)
        draft = work / "draft"
        draft.mkdir()
        with found:
            write_tensors(draft / WEIGHTS, found.tensors, found.read)
            found.config.to_json_file(draft / CONFIG)
            notes = (*found.notes, *_write_tokenizer(draft, found))
            compared = _verify(draft, found)
        report = inspect(draft, hash_files=False)
        mark = fingerprint(draft)
        write_fingerprint(mark, draft)
        _publish(draft, folder)
    return Conversion(
        source=str(source),
        target=str(folder),
        kind=found.kind,
        model=mark.model,
        num_tensors=len(found.tensors),
        num_parameters=report.num_parameters,
        dropped=found.dropped,
        notes=notes,
        compared=compared,
        fingerprint=mark,
    )


def _local(source: str | Path, trust_pickle: bool, revision: str | None) -> Path:
    """The source as a path on this disk."""
    path = Path(source).expanduser()
    if not path.exists() and find_index(path) is not None:
        return path  # the prefix of a TensorFlow checkpoint, which is no file
    pickles = _PICKLE_FILES if trust_pickle else ()
    return resolve(source, files=[*HUB_FILES, *_TENSORFLOW_FILES, *pickles], revision=revision)


def _open(path: Path, work: Path, trust_pickle: bool, wishes: Wishes) -> Source:
    """What lies at a path, ready to be read."""
    if path.suffix == ".safetensors" or path.name == INDEX or any((path / name).exists() for name in (WEIGHTS, INDEX)):
        _refuse(wishes)
        return HubSource(path, path.parent if path.is_file() else path)
    index = find_index(path)
    if index is not None:
        return TensorFlowSource(open_archive(index), wishes)
    pickles = find_pickles(path)
    if not pickles and path.is_file() and _PACKED.search(path.name):
        raise CheckpointError(f"{path} is an archive that is not opened here. Unpack it first:\n  tar xf {path}")
    if not pickles:
        held = shorten(sorted(entry.name for entry in path.iterdir())) if path.is_dir() else path.name
        raise CheckpointError(
            f"{path} holds no checkpoint that can be converted: no TensorFlow index, no safetensors and no "
            f"{PICKLE}, but {held or 'nothing'}"
            + ("" if trust_pickle else " (of a repository on the Hub, pickles are fetched only with --trust-pickle)")
        )
    if not trust_pickle:
        raise CheckpointError(
            f"{pickles[0]} is a pickle, and opening a pickle can run code that is hidden in it. If you trust where it "
            "comes from, say so: bertkit convert --trust-pickle; it is then opened by torch's restricted reader, in a "
            "process of its own"
        )
    _refuse(wishes)
    raw = work / "raw"
    raw.mkdir()
    unpickle(pickles, raw)
    home = pickles[0].parent
    if (home / CONFIG).is_file():
        shutil.copyfile(home / CONFIG, raw / CONFIG)
    return HubSource(raw, home, kind="pickled weights")


def _refuse(wishes: Wishes) -> None:
    """A source that brings its own config has no use for wishes."""
    given = [name for name, value in asdict(wishes).items() if value is not None]
    if given:
        raise InputError(f"{' and '.join(given)} can only be given for a TensorFlow checkpoint")


def _write_tokenizer(draft: Path, found: Source) -> tuple[str, ...]:
    """Write the tokenizer's files, and read them as a user will; returns what the user should know.

    Raises:
        CheckpointError: a tokenizer that was made here cannot be read. One that was only copied may be of a kind that
            other software has.
    """
    files = found.tokenizer_files()
    for name, content in files.items():
        (draft / name).write_bytes(content)
    if not files:
        return ()
    try:
        AutoTokenizer.from_pretrained(draft)
    except CheckpointError as error:
        said = str(error).replace(str(draft), "the result")
        if found.makes_tokenizer:
            raise CheckpointError(
                f"{found.where} has a vocabulary that bertkit cannot read; nothing was written. {said}. If it is not "
                "the model's, give the right one: --vocab FILE"
            ) from None
        return (f"the tokenizer's files are copied, but bertkit cannot read them: {said}",)
    return ()


def _verify(draft: Path, found: Source) -> tuple[str, ...]:
    """Compare the written folder with the source, and load it.

    Raises:
        CheckpointError: they differ, or no class loads the result.
    """
    values = compare(draft / WEIGHTS, found)
    told = [f"{len(found.tensors)} tensors with {values:,} values, read again from both sides: equal bit for bit"]
    report = inspect(draft, hash_files=False)
    if not report.loadable:
        problems = "\n".join(problem.replace(str(draft), "the result") for problem in report.problems)
        raise CheckpointError(f"{found.where} gives no model that bertkit loads; nothing was written.\n{problems}")
    if found.runs_at is None:
        return (*told, "outputs: the source runs only in TensorFlow, so they were not compared")
    ids = tuple((5 + 37 * number) % found.config.vocab_size for number in range(8))
    ids = ids[: found.config.max_input_length]
    name, theirs = run(found.runs_at, ids)
    _, ours = run(draft, ids)
    apart = {key: float((value - ours[key]).abs().max()) for key, value in theirs.items()}
    unequal = [key for key, most in apart.items() if not most <= _ROUNDING * max(1.0, float(theirs[key].abs().max()))]
    if unequal:
        raise CheckpointError(f"{found.where} and its conversion compute other {shorten(unequal)}; nothing was written")
    return (
        *told,
        f"outputs of {name} before and after: {len(theirs)} tensors, at most {max(apart.values()):.1g} apart",
    )


def _check_target(folder: Path) -> None:
    if (folder.exists() or folder.is_symlink()) and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"{folder} is there already; give the name of a new folder")


@contextmanager
def _workshop(folder: Path) -> Iterator[Path]:
    """A folder beside the target, so that the result can be renamed into place; removed at the end.

    One process at a time has it. What a killed one left behind is removed by the next.
    """
    work = folder.with_name(f".{folder.name}.convert")
    try:
        work.mkdir(parents=True, exist_ok=True)
        with (work / _LOCK).open("ab") as lock:
            if not try_lock(lock) or not _lies_at(work / _LOCK, lock):  # held by another process, or just left by one
                raise InputError(f"another bertkit convert is writing {folder}: wait for it, or give another folder")
            _check_target(folder)
            for entry in work.iterdir():
                if entry.name != _LOCK:
                    shutil.rmtree(entry)
            try:
                yield work
            finally:
                shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise ResourceError(
            f"cannot write to {folder.parent}: {error.strerror or error}. Nothing is left there; make room, or give "
            "another place, and try again"
        ) from error


def _lies_at(path: Path, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _publish(draft: Path, folder: Path) -> None:
    """Give the finished folder its name."""
    for file in draft.iterdir():
        file.chmod(0o644)
        sync_file(file)
    sync_folder(draft)
    _check_target(folder)
    if folder.is_dir():
        folder.rmdir()
    draft.rename(folder)
    sync_folder(folder.parent)


__all__ = ["FINGERPRINT", "Conversion", "Wishes", "convert"]
