"""How large inputs are computed: in blocks, by processes, shards or a cluster."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from bertkit.cli.common_options import Computing, write_json
from bertkit.errors import ConfigError, counted
from bertkit.system.console import say
from bertkit.system.paths import refuse_address

if TYPE_CHECKING:
    from bertkit.bulk.planner import How, What

GROUP = Group("Large inputs", sort_key=8)
#: Endings of files that results are not written to, and that no folder has.
_OF_FILES = ".arrow .doc .docx .feather .gz .html .json .md .ndjson .npy .npz .ods .orc .txt .xls .xml .zip".split()


@Parameter(name="*", group=GROUP)
@dataclass(frozen=True)
class Blocks:
    """See the module."""

    workers: Annotated[
        int | None, Parameter(help="Processes of this machine, or tasks of the Ray cluster; default: this process.")
    ] = None
    engine: Annotated[Literal["local", "ray"], Parameter(help="This machine, or the cluster at RAY_ADDRESS.")] = "local"
    shard: Annotated[
        str | None, Parameter(help="i/n: only the i-th of n parts of the blocks, i from 1 to n; needs no engine.")
    ] = None
    refresh: Annotated[
        bool, Parameter(negative=(), help="Compute the blocks whose input or model has changed; keep the others.")
    ] = False
    max_errors: Annotated[
        int | None, Parameter(help="Stop when more rows than this have no result; default: mark them and go on.")
    ] = None
    format: Annotated[
        Literal["parquet", "jsonl"] | None,
        Parameter(help="Of the parts of a folder; default: parquet, if possible."),
    ] = None
    block_rows: Annotated[int | None, Parameter(help="Most rows of a block; default: 16384 or 4 MB of text.")] = None
    cpu: Annotated[
        str | None, Parameter(help="Variant of the encoder, such as avx2, by which all machines get the same bits.")
    ] = None
    mixed_hardware: Annotated[
        bool, Parameter(negative=(), help="Let machines compute with different variants: last bits differ.")
    ] = False

    def refuse(self, why: str) -> None:
        """ConfigError for any of these where no blocks are computed."""
        given = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        if given:
            raise ConfigError(f"--{given[0].replace('_', '-')} is for inputs that are computed in blocks: {why}")

    def suffix(self) -> str:
        """Of the parts of a folder."""
        from importlib.util import find_spec

        found = self.format or ("parquet" if find_spec("pyarrow") is not None else "jsonl")
        return f".{found}"

    def how(self) -> How:
        """For :mod:`bertkit.bulk.planner`."""
        from bertkit.bulk.cuts import Size
        from bertkit.bulk.planner import How

        return How(
            self.engine,
            self.workers,
            _shard(self.shard),
            self.refresh,
            self.max_errors,
            None if self.block_rows is None else Size(rows=self.block_rows),
            self.cpu,
            self.mixed_hardware,
        )


def _shard(given: str | None) -> tuple[int, int]:
    if given is None:
        return 1, 1
    found = re.fullmatch(r"(\d+)/(\d+)", given)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ConfigError(
            f"--shard {given}: expected i/n with i from 1 to n, such as 1/8; add 1 to an index that counts from 0"
        )
    return int(found[1]), int(found[2])


def refuse_file(out: Path, formats: Sequence[str]) -> None:
    """ConfigError for a name that is neither a file of one of the formats nor that of a folder, or an address."""
    refuse_address(out)
    if out.suffix in _OF_FILES:
        raise ConfigError(
            f"--out {out}: unknown format; the name of a file must end in {', '.join(formats)}, that of a folder in "
            "none"
        )


def write_folder(what: What, inputs: Sequence[str], out: Path, blocks: Blocks, common: Computing) -> None:
    """Compute a folder of parts, and say so."""
    from bertkit.bulk.planner import compute_folder

    totals = compute_folder(what, inputs, out, blocks.how(), blocks.suffix())
    shard = f" (shard {blocks.shard})" if blocks.shard else ""
    say(f"{out} has {counted(totals.rows, 'row')} in {counted(totals.blocks, 'part')}{shard}")
    if common.json:
        write_json({"out": str(out), "rows": totals.rows, "parts": totals.blocks, "errors": totals.errors})
