"""``bertkit merge``: one file of a folder of parts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Common, check_format, write_json
from bertkit.cli.results import Excel, check_excel
from bertkit.errors import counted
from bertkit.system.console import say


def merge(
    folder: Annotated[Path, Parameter(help="Folder that 'bertkit predict' or 'bertkit embed' has written parts to.")],
    out: Annotated[Path, Parameter(help="The .jsonl, .csv, .tsv, .xlsx or .parquet file to write.")],
    /,
    *,
    excel: Excel = False,
    common: Common = Common(),
) -> None:
    """Make one file of a folder of parts, in the order of the input.

    All blocks must be done; the folder stays as it is.

    For example:

        bertkit merge labels labels.parquet
    """
    common.refuse_device("nothing is computed")
    check_excel(out, excel=excel)
    from bertkit.bulk.status import merge_folder
    from bertkit.inference.row_files import FORMATS

    check_format(out, FORMATS)
    rows = merge_folder(folder, out, excel=excel)
    say(f"wrote {counted(rows, 'row')} to {out}")
    if common.json:
        write_json({"out": str(out), "rows": rows})
