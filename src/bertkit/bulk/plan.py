"""The plan of a run: its files, its blocks, and what computes them. One file, made once, that all workers read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from bertkit.bulk.cuts import Block, Size, cut_file
from bertkit.bulk.inputs import InputFile, local_copy, plain_path
from bertkit.bulk.predictor import Settings
from bertkit.bulk.row_work import ERROR, RowWork
from bertkit.config.file_columns import Columns
from bertkit.errors import CheckpointError, DataError
from bertkit.inference.row_cells import own_name
from bertkit.system.atomic_files import write_atomically
from bertkit.system.json_files import parsed
from bertkit.system.untrusted_files import read_regular
from bertkit.tasks.answering import ColumnType
from bertkit.tasks.reading.splits import kind_of

#: Of the layout of a plan and of manifests.
VERSION = 1
#: Larger than the plan of a hundred million blocks.
_MOST_BYTES = 1 << 34
#: Files whose rows may have columns that others have not.
_OPEN = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True)
class Work:
    """What is done with all rows: the same in every worker.

    command: ``"predict"`` or ``"embed"``. columns: where the texts are, as the caller said. variant: of what computes;
    None: any. suffix: of the parts. typed: whether cells remember dates and numbers, for a workbook.
    """

    command: str
    settings: Settings
    columns: Columns
    variant: str | None
    suffix: str
    typed: bool = False

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides what a row becomes, but the processor."""
        own = asdict(self.settings)
        named = {name: own[name] for name in ("task", "sha256", "device", "precision", "options")}
        return {"command": self.command, **named, "columns": asdict(self.columns), "suffix": self.suffix}


@dataclass(frozen=True)
class Plan:
    """See the module. taken: the columns of the input, with their types. places: of each file, where its texts are."""

    work: Work
    size: Size
    files: list[InputFile]
    places: list[Columns | None]
    taken: dict[str, ColumnType]
    blocks: list[Block] = field(repr=False)
    version: int = VERSION

    @cached_property
    def keys(self) -> list[str]:
        """Of each block a name that changes whenever its result would."""
        about = {**self.work.identity, "taken": list(self.taken.items())}
        work = hashlib.sha256(json.dumps(about, default=list, sort_keys=True).encode()).hexdigest()
        named = [self.files[block.file].name for block in self.blocks]
        each = (
            f"{work} {name} {block.kind} {block.start} {block.end} {block.sha256}"
            for name, block in zip(named, self.blocks, strict=True)
        )
        return [hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24] for text in each]

    @property
    def rows(self) -> int:
        """About how many there are."""
        return sum(block.rows for block in self.blocks)

    def part(self, number: int) -> str:
        """The name of the file of a block."""
        return f"part-{number:05d}{self.work.suffix}"

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        values = {**asdict(self), "blocks": [list(asdict(block).values()) for block in self.blocks]}
        write_atomically(path, json.dumps(values))


def read_plan(path: Path) -> Plan:
    """A plan from its file; CheckpointError for a damaged one, or one of another version."""
    try:
        values = json.loads(read_regular(path, max_bytes=_MOST_BYTES))
        names = tuple(Block.__dataclass_fields__)
        blocks = [Block(**dict(zip(names, each, strict=True))) for each in values.pop("blocks")]
        if values["version"] != VERSION:
            raise CheckpointError(f"{path} was written by another version of bertkit; use a new output folder")
        return Plan(
            parsed(values["work"], Work, str(path)),
            Size(**values["size"]),
            [InputFile(**each) for each in values["files"]],
            [None if each is None else _columns(each) for each in values["places"]],
            {name: _type(kind) for name, kind in values["taken"].items()},
            blocks,
        )
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} is damaged: {error}") from None


def _columns(values: Mapping[str, Any]) -> Columns:
    plain: dict[str, Any] = {name: tuple(kind) if isinstance(kind, list) else kind for name, kind in values.items()}
    return Columns(**plain)


def _type(kind: Any) -> ColumnType:
    return (kind[0], kind[1]) if isinstance(kind, list) and len(kind) == 2 else kind


def make_plan(work: Work, own: RowWork, inputs: Sequence[InputFile], size: Size, old: Plan | None = None) -> Plan:
    """Cut all files; those that an ``old`` plan has and that have not changed are not read again.

    Raises:
        DataError: files of different columns, or no rows at all.
    """
    places, taken, blocks = list[Columns | None](), dict[str, ColumnType](), list[Block]()
    known = _known(old, work, size)
    for number, file in enumerate(inputs):
        name = file.name
        if (found := known.get(file)) is not None:
            columns, where, cut = found
            cut = [_numbered(block, number) for block in cut]
        else:
            with local_copy(name) as path:
                samples, where, count = own.survey(path, name)
                columns = input_types(path, samples)
                cut = cut_file(path, number, where, size, count)
            if InputFile.of(name) != file:
                raise DataError(f"{name} changes while it is read; wait until it is complete")
        if number and kind_of(plain_path(name)) not in _OPEN:
            _check_columns(inputs[0].name, taken, name, columns)
        taken = _widened(taken, columns) if number else columns
        places.append(where)
        blocks += cut
    if not blocks:
        raise DataError(f"the input has no rows, so there is nothing to {work.command}")
    return Plan(work, size, list(inputs), places, taken, blocks)


def _known(old: Plan | None, work: Work, size: Size) -> dict[InputFile, Any]:
    if old is None or old.work.columns != work.columns or old.size != size:
        return {}
    cuts: dict[int, list[Block]] = {}
    for block in old.blocks:
        cuts.setdefault(block.file, []).append(block)
    each = enumerate(zip(old.files, old.places, strict=True))
    return {file: (old.taken, where, cuts.get(number, [])) for number, (file, where) in each if number in cuts}


def _numbered(block: Block, number: int) -> Block:
    return Block(number, *list(asdict(block).values())[1:])


def input_types(path: Path, samples: Mapping[str, Mapping[type, Any]]) -> dict[str, ColumnType]:
    """The types of the columns of a file, as far as it has any: text otherwise."""
    if kind_of(path) == ".parquet" and samples:
        import pyarrow.parquet as pq

        from bertkit.tasks.reading.lines import seekable

        schema = pq.ParquetFile(seekable(path)).schema_arrow
        return {name: _arrow_kind(str(schema.field(name).type)) for name in samples}
    return {name: _json_kind({kind for kind in types if kind is not type(None)}) for name, types in samples.items()}


def _arrow_kind(name: str) -> str:
    if name == "uint64":
        return name
    if "int" in name and "(" not in name and "<" not in name:
        return "int64"
    return {"double": "float64", "float": "float64", "halffloat": "float64", "bool": "bool"}.get(name, "string")


def _json_kind(kinds: set[type]) -> str:
    if kinds and kinds <= {int, float}:
        return "int64" if kinds == {int} else "float64"
    return "bool" if kinds == {bool} else "string"


def _check_columns(first_name: str, taken: Mapping[str, Any], name: str, columns: Mapping[str, Any]) -> None:
    if taken.keys() == columns.keys():
        return
    lacks, more = sorted(taken.keys() - columns.keys()), sorted(columns.keys() - taken.keys())
    said = [f"lacks {lacks}" if lacks else "", f"has {more} as well" if more else ""]
    raise DataError(
        f"{name} {' and '.join(filter(None, said))}, compared with {first_name}: the files of a run have the same "
        "columns; run them separately, or give them the same"
    )


def _widened(taken: Mapping[str, ColumnType], columns: Mapping[str, ColumnType]) -> dict[str, ColumnType]:
    return {name: _wider(taken.get(name), columns.get(name)) for name in dict.fromkeys((*taken, *columns))}


def _wider(first: ColumnType | None, second: ColumnType | None) -> ColumnType:
    if first is None or second is None or first == second:
        return first or second or "string"
    return "float64" if [first, second] in (["int64", "float64"], ["float64", "int64"]) else "string"


def result_types(plan: Plan, columns: Mapping[str, ColumnType]) -> dict[str, ColumnType]:
    """The types of all columns of the parts, the input's first; ``columns``: those of the model."""
    own = {own_name(name, plan.taken): kind for name, kind in {**columns, ERROR: "string"}.items()}
    return {**plan.taken, **own}
