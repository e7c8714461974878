"""``bertkit analyze``: ask all heads of a run at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from bertkit.cli.common_options import (
    Computing,
    Pairs,
    Source,
    Texts,
    TrainedModel,
    check_format,
    read_pair_rows,
    read_rows,
    with_texts,
    write_json,
    write_line,
)
from bertkit.cli.results import Excel, check_excel, facts_of, shown
from bertkit.errors import ConfigError, counted
from bertkit.system.console import one_line, say

if TYPE_CHECKING:
    from bertkit.tasks.reading.file_rows import FileRow


def analyze(
    *text: Texts,
    model: TrainedModel,
    pairs: Pairs = False,
    out: Annotated[
        Path | None,
        Parameter(alias="-o", help="With --file: write a .jsonl, .csv, .tsv, .xlsx or .parquet; resumable."),
    ] = None,
    excel: Excel = False,
    source: Source = Source(),
    common: Computing = Computing(),
) -> None:
    """Run all heads of a run in one pass of the encoder.

    RUN is the folder of a 'bertkit finetune multi' run. Prints each text, followed by
    one line per head: the label and its probability, or the entities. Heads trained
    on pairs run with --pairs only.

    With --out, --file may be a table as for 'bertkit predict', which does the same:
    all columns are kept and one column per head is added. If interrupted, the same
    command resumes.

    For example:

        bertkit analyze --model run "Ann Lee liked the film in Oslo."
        bertkit analyze --model run --file reviews.jsonl --out analyzed.jsonl
    """
    check_excel(out, excel=excel)
    common.begin()
    if out is not None:
        from bertkit.bulk.planner import predict_file
        from bertkit.inference.row_files import FORMATS

        if source.file is None or text or pairs:
            raise ConfigError("--out needs a --file with the texts, and no others; pairs are found by its columns")
        check_format(out, FORMATS)
        device = common.device or "auto"
        count = predict_file(
            model, source.file, out, source.columns.places, device=device, excel=excel, **common.engine
        )
        say(f"wrote {counted(count, 'row')} to {out}")
        return
    from bertkit.inference.analysis import Analyzer

    analyzer = Analyzer.open(model, device=common.device, **common.engine)

    def run(rows: Iterator[FileRow]) -> Iterator[dict[str, Any]]:
        return analyzer(row.asked for row in rows)  # type: ignore[return-value]  # lazy, as its input

    for row, found in with_texts((read_pair_rows if pairs else read_rows)(text, source, model), run):
        if common.json:
            write_json({**facts_of(row), "heads": found})
            continue
        write_line(shown(row))
        for head, said in found.items():
            write_line(f"  {head:<12}  {_shown(said)}")


def _shown(said: Any) -> str:
    if not isinstance(said, dict):
        return ", ".join(map(_shown, said)) or "(none)"
    word = f" [{one_line(said['word'])}]" if "word" in said else ""
    return f"{said.get('label', said.get('entity_group'))} {said['score']:.4f}{word}"
