"""``bertkit convert``: turn a checkpoint of another format into a folder that bertkit loads, completely or not at all.

The result is compared with the source tensor by tensor, and by its outputs where the source can be run; only then does
the folder get its name.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bertkit.checkpoints.huggingface import is_adapter, is_head
from bertkit.checkpoints.inspect import inspect
from bertkit.checkpoints.pickled import PICKLE, PICKLE_INDEX, find_pickles, unpickle
from bertkit.checkpoints.safetensors_format import write_tensors
from bertkit.checkpoints.sentence_folder import MODULES, is_sentence_folder, read_sentence_parts, write_sentence_parts
from bertkit.checkpoints.tensorflow.variables import find_index, open_archive
from bertkit.checkpoints.weight_files import INDEX, POOLED_WEIGHTS, WEIGHTS
from bertkit.checkpoints.zip_archive import is_archive, unpack
from bertkit.config.config_file import CONFIG, checkpoint_folder
from bertkit.errors import CheckpointError, InputError, ResourceError, shorten
from bertkit.model.convert_sources import HubSource, Overrides, Source, TensorFlowSource, compare
from bertkit.model.fingerprint import FINGERPRINT, Fingerprint, fingerprint, fixed_ids, run
from bertkit.system.atomic_files import held_lock, make_folder, sync_file, sync_folder
from bertkit.system.model_sources import HUB_FILES, resolve
from bertkit.system.paths import user_path
from bertkit.system.untrusted_files import Json
from bertkit.tokenization.auto_tokenizer import AutoTokenizer

#: Largest relative difference of outputs that the alignment of equal weights in memory can cause.
_ROUNDING = 1e-5
_LOCK = "lock"
_PICKLE_FILES = (PICKLE, "pytorch_model-*.bin", PICKLE_INDEX, f"*_Dense/{PICKLE}", f"*_LayerNorm/{PICKLE}")
#: Files of TensorFlow checkpoints, besides ``.json``; fetched from the Hub only for a conversion.
_TENSORFLOW_FILES = (
    "*.index", "*.data-*-of-*", "checkpoint", "saved_model.pb", "variables/*", "vocab*.txt", "assets/vocab.txt",
    "*.model",
)  # fmt: skip
#: Archives other than ``.zip``, which are not opened.
_PACKED = re.compile(r"\.(tar|tgz|tbz2?|txz|tar\.\w+)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Conversion:
    """What :func:`convert` did; ``dropped``: omitted tensors by reason; ``notes``: decisions that users should know."""

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

    def to_dict(self) -> dict[str, Json]:
        """Plain data, ready for JSON."""
        return asdict(self)

    def render(self) -> str:
        """Text for a terminal."""
        dropped = ", ".join(f"{count} {why}" for why, count in self.dropped.items())
        facts = [
            ("from", f"{self.source} ({self.kind})"),
            ("to", f"{self.target}, saved as {self.model}"),
            ("tensors", f"{self.num_tensors} with {self.num_parameters:,} parameters"),
            ("omitted", dropped or "nothing"),
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
    overrides: Overrides | None = None,
    revision: str | None = None,
) -> Conversion:
    """Convert a checkpoint (folder, file, TensorFlow prefix, ``.zip``, or name on the Hub) into a new folder.

    ``trust_pickle`` allows opening pickled weights, in a separate process; see :mod:`bertkit.checkpoints.pickled`.
    """
    path, folder, overrides = user_path(source), user_path(target), overrides or Overrides()
    if path.exists() or find_index(path) is None:  # otherwise it is the prefix of a TensorFlow checkpoint, not a file
        pickles = _PICKLE_FILES if trust_pickle else ()
        path = resolve(source, files=[*HUB_FILES, *_TENSORFLOW_FILES, *pickles], revision=revision)
    _check_target(folder)
    with _workshop(folder) as work:
        if is_archive(path):
            (work / "unpacked").mkdir()
            unpack(path, work / "unpacked")
            found = _open(work / "unpacked", work, trust_pickle, overrides)
        else:
            found = _open(path, work, trust_pickle, overrides)
        draft = work / "draft"
        draft.mkdir()
        with found.opened:
            write_tensors(draft / _weights(found), found.tensors, found.read)
            (draft / CONFIG).write_text(found.config_json(), encoding="utf-8")
            for name, content in found.use_files().items():
                (draft / name).parent.mkdir(exist_ok=True)
                (draft / name).write_bytes(content)
            notes = (*found.notes, *_write_tokenizer(draft, found), *_write_modules(draft, found, work, trust_pickle))
            compared = _verify(draft, found)
        report = inspect(draft, hash_files=False)
        mark = fingerprint(draft)
        (draft / FINGERPRINT).write_text(json.dumps(mark.to_dict(), indent=1) + "\n", encoding="utf-8")
        for file in draft.rglob("*"):
            if file.is_file():
                file.chmod(0o644)
                sync_file(file)
        sync_folder(draft)
        _check_target(folder)
        if folder.is_dir():
            folder.rmdir()
        draft.rename(folder)
        sync_folder(folder.parent)
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


def _open(path: Path, work: Path, trust_pickle: bool, overrides: Overrides) -> Source:
    holds = any((path / name).exists() for name in (WEIGHTS, INDEX, POOLED_WEIGHTS))
    if path.suffix == ".safetensors" or path.name == INDEX or holds or is_adapter(path) or is_head(path):
        _refuse(overrides)
        return HubSource(path, checkpoint_folder(path))
    index = find_index(path)
    if index is not None:
        return TensorFlowSource(open_archive(index), overrides)
    pickles = find_pickles(path)
    if not pickles and path.is_file():
        if _PACKED.search(path.name):
            raise CheckpointError(f"{path} is an archive that bertkit does not open. Unpack it first:\n  tar xf {path}")
        what = f"neither a TensorFlow index, nor safetensors, nor a pickle such as {PICKLE}"
        raise CheckpointError(f"{path} is not a checkpoint: {what}")
    if not pickles:
        held = shorten(sorted(entry.name for entry in path.iterdir())) or "nothing"
        raise CheckpointError(
            f"{path} has no checkpoint to convert: no TensorFlow index, no safetensors and no {PICKLE}, but {held}"
            + ("" if trust_pickle else ". From the Hub, pickles are fetched only with --trust-pickle")
        )
    if not trust_pickle:
        raise CheckpointError(
            f"{pickles[0]} is a pickle, and opening a pickle can run code hidden in it. If you trust its origin, use "
            "bertkit convert --trust-pickle: torch's restricted reader then opens it in a separate process"
        )
    _refuse(overrides)
    raw = work / "raw"
    raw.mkdir()
    unpickle(pickles, raw)
    home = pickles[0].parent
    if (home / CONFIG).is_file():
        shutil.copyfile(home / CONFIG, raw / CONFIG)
    return HubSource(raw, home, kind="pickled weights")


def _weights(found: Source) -> str:
    return POOLED_WEIGHTS if found.config.differs_elsewhere else WEIGHTS


def _refuse(overrides: Overrides) -> None:
    """Refuse overrides for a source that has a config of its own."""
    given = [name.replace("_", "-") for name, value in asdict(overrides).items() if value is not None]
    if given:
        raise InputError(f"only a TensorFlow checkpoint takes {' and '.join(given)}; this one has a {CONFIG}")


def _write_tokenizer(draft: Path, found: Source) -> tuple[str, ...]:
    """Write the files of the tokenizer; one whose settings are written here must load. Returns notes for the user."""
    files = found.tokenizer_files()
    for name, content in files.items():
        (draft / name).write_bytes(content)
    try:
        if files:
            AutoTokenizer.from_pretrained(draft)
    except CheckpointError as error:
        reason = str(error).replace(str(draft), "the result")
        if found.makes_tokenizer:
            raise CheckpointError(
                f"{found.where} has a vocabulary that bertkit cannot read; nothing was written. {reason}. If it is not "
                "that of the model, give the right one: --vocab FILE"
            ) from None
        return (f"the files of the tokenizer were copied, but bertkit cannot read them: {reason}",)
    return ()


def _write_modules(draft: Path, found: Source, work: Path, trust_pickle: bool) -> tuple[str, ...]:
    """Write what follows the encoder of a sentence model; returns notes for the user."""
    home = found.home
    if home is None or not is_sentence_folder(home):
        return ()

    def opened(pickle: Path) -> Path:
        raw = work / f"raw-{pickle.parent.name}"
        raw.mkdir()
        unpickle((pickle,), raw)
        return raw / WEIGHTS

    try:
        parts = read_sentence_parts(home, found.config.hidden_size, opened if trust_pickle else None)
    except CheckpointError as error:
        if not any("For" in name for name in found.config.architectures or ()):
            raise
        return (f"{MODULES} was left out, and the model with its head converted: {error}",)
    assert parts is not None
    write_sentence_parts(draft, parts, found.config.hidden_size)
    steps = ", ".join(type(step).__name__ for step in parts.config.steps)
    return (f"vectors of texts: pooling {', '.join(parts.config.pooling)}{steps and ', then '}{steps}",)


def _verify(draft: Path, found: Source) -> tuple[str, ...]:
    """Load the written folder and compare it with the source; returns what was compared."""
    values = compare(draft / _weights(found), found)
    lines = [f"{len(found.tensors)} tensors with {values:,} values, read again on both sides: equal bit for bit"]
    report = inspect(draft, hash_files=False)
    if not report.loadable:
        problems = "\n".join(problem.replace(str(draft), "the result") for problem in report.problems)
        raise CheckpointError(f"{found.where} gives no model that bertkit loads; nothing was written.\n{problems}")
    if found.runs_at is None:
        return (*lines, "outputs: not compared, because the source runs only in TensorFlow")
    ids = fixed_ids(found.config, 5, 37, 8)
    name, theirs = run(found.runs_at, ids)
    _, ours = run(draft, ids)
    apart = {key: float((value - ours[key]).abs().max()) for key, value in theirs.items()}
    unequal = [key for key, most in apart.items() if not most <= _ROUNDING * max(1.0, float(theirs[key].abs().max()))]
    if unequal:
        raise CheckpointError(f"{found.where} and its conversion differ in {shorten(unequal)}; nothing was written")
    return (
        *lines,
        f"outputs of {name} before and after: {len(theirs)} tensors, at most {max(apart.values()):.1g} apart",
    )


def _check_target(folder: Path) -> None:
    if (folder.exists() or folder.is_symlink()) and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"{folder} exists already; give the name of a new folder")
    if not folder.name:
        raise InputError(f"{str(folder)!r} cannot be replaced; give the name of a new folder, not the current one")


@contextmanager
def _workshop(folder: Path) -> Iterator[Path]:
    """A folder beside the target, of one process at a time, from which the result is renamed into place."""
    work = folder.with_name(f".{folder.name}.convert")
    try:
        make_folder(work)
        busy = f"another bertkit convert is writing {folder}: wait for it, or give another folder"
        with held_lock(work / _LOCK, busy):
            _check_target(folder)
            for entry in work.iterdir():
                if entry.name != _LOCK:
                    shutil.rmtree(entry)
            try:
                yield work
            finally:
                shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        raise ResourceError(
            f"{where}{error.strerror or error}. No conversion was finished; check that the source can be read, and "
            f"that {folder.parent} can be written and has space"
        ) from error
