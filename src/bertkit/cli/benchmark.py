"""``bertkit benchmark``: how fast a model is on this machine, in every mode and beside other runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Common, ModelArgument, Source, check_format, read_texts
from bertkit.cli.task_options import TextColumns
from bertkit.errors import DataError, require
from bertkit.system.console import say

if TYPE_CHECKING:
    from bertkit.benchmark.benchmark_report import BenchmarkReport


def benchmark(
    model: ModelArgument,
    /,
    *,
    int8: Annotated[
        str | None, Parameter(help="Folder made from MODEL by 'bertkit quantize', measured as int8; default: none.")
    ] = None,
    texts: Annotated[
        Path | None,
        Parameter(help="Measure with these texts, one per line; default: built-in lengths and random tokens."),
    ] = None,
    encoding: Annotated[str | None, Parameter(help="Encoding of --texts; default: as found.")] = None,
    against: Annotated[
        str | None,
        Parameter(
            help="Peers, separated by commas: onnxruntime, openvino, ctranslate2, transformers; or none. Default: "
            "those that are installed."
        ),
    ] = None,
    precision: Annotated[
        str | None,
        Parameter(
            help="Some of auto, fp32, fp16, bf16, int8, separated by commas; default: all that this machine has."
        ),
    ] = None,
    threads: Annotated[int | None, Parameter(help="Threads of every runtime; default: one per core.")] = None,
    rounds: Annotated[int, Parameter(help="Number of rounds.")] = 5,
    out: Annotated[Path | None, Parameter(alias="-o", help="Plot the results to this .png file.")] = None,
    peers_python: Annotated[
        Path | None, Parameter(help="Python interpreter with the peers installed; default: bertkit's own.")
    ] = None,
    common: Common = Common(),
) -> None:
    """Measure how fast a model's encoder is on this machine's processor.

    Measures the latency of single texts, the throughput of texts of mixed lengths,
    start-up time and peak memory, for each of bertkit's modes and for other installed
    runtimes. They take turns, and their answers are compared before anything is timed.
    Recommends a mode for this machine, with the reason. Takes some minutes; Ctrl-C
    shows what has been measured so far. Nothing else should be running. All models are
    in memory at once: BERT-base with all peers needs about 7 GB.

    The peers come with an extra: pip install 'bertkit[bench]'

    For example:

        bertkit benchmark bert-base-uncased
        bertkit benchmark run --texts reviews.txt --out speed.png
        bertkit benchmark run --against openvino --precision fp32
        bertkit benchmark run --int8 run-int8 --texts reviews.txt
    """
    common.refuse_device("benchmark measures the processor")
    if out is not None:
        from bertkit.visualize.figures import IMAGE_ENDINGS

        check_format(out, IMAGE_ENDINGS)
        require("matplotlib.figure", extra="plots", needed_for="drawing pictures")
    given = None if texts is None else list(read_texts((), Source(file=texts, columns=TextColumns(encoding=encoding))))
    if given == []:
        raise DataError(f"{texts} has no text to measure with; it should have one text per line")
    common.begin()
    from bertkit.benchmark.measure import run_benchmark

    report = run_benchmark(
        model,
        int8=int8,
        texts=given,
        against=[] if against == "none" else _listed(against),
        precisions=_listed(precision),
        threads=threads,
        rounds=rounds,
        seed=common.seed,
        python=None if peers_python is None else str(peers_python),
    )
    common.report(report)
    if out is not None:
        _draw(report, out)
    if report.interrupted is not None:
        raise report.interrupted


def _draw(report: BenchmarkReport, out: Path) -> None:
    from bertkit.benchmark.runtimes import REFERENCE
    from bertkit.visualize.benchmark_pictures import relative_times
    from bertkit.visualize.figures import save_figure

    bars = report.bars()
    if bars:
        save_figure(relative_times(bars, report.bar_groups(), str(REFERENCE)), out)
        say(f"wrote {out}")
    else:
        say(f"no plot was written to {out}: too little was measured")


def _listed(names: str | None) -> list[str] | None:
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]
