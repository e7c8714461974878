"""Does every head of every family match ``transformers``: forward, backward, and after saving and loading?

    python benchmarks/families.py --out benchmarks/results/families.md

Tiny random models, written by ``transformers`` and read by bertkit. Each line of the table is one class: the largest
error over all its outputs, hidden states and attentions (padded call), over the same sequences packed, of the loss,
and over the gradients of all parameters, each the larger of eval and training mode. The last column says whether
``transformers`` loads what bertkit saved, with no missing or unexpected tensors and identical bits. An error is the
largest difference divided by the largest value (or by 1 if that is larger), in float32. The last line is a control:
two rows of one matrix swapped. Exits with status 1 if an error is above the limit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import torch
import transformers

from machine import about, block, publish

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from bertkit.config.families import FAMILIES
from family_helpers import CASES, SHAPES, Parity, error, inputs, measure, pair

LIMIT = 1e-5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.manual_seed(0)
    found: dict[tuple[str, str], Parity] = {}
    for number, (shape, head) in enumerate(CASES, 1):
        print(f"{number} of {len(CASES)}: {shape}, {head}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            found[shape, head] = measure(shape, head, Path(folder))
    control = swapped_weights()
    good = all(parity.worst <= LIMIT and parity.round_trip for parity in found.values()) and control > 100 * LIMIT
    lines = [
        "# Model families compared with transformers",
        "",
        *block(about(torch.get_num_threads())),
        "",
        f"{len(found)} classes. Limit {LIMIT:.0e}; the largest error is {max(p.worst for p in found.values()):.1e}. "
        "The columns are explained in `benchmarks/families.py`.",
        "",
        "| family | class | forward | packed | loss | gradients | saved and loaded back |",
        "|---|---|---|---|---|---|---|",
        *(line(shape, head, parity) for (shape, head), parity in found.items()),
        f"| *control* | *two rows of a matrix swapped* | {control:.1e} | | | | |",
        "",
    ]
    report = {f"{shape}: {head}": {**vars(parity), "worst": parity.worst} for (shape, head), parity in found.items()}
    publish(lines, {"limit": LIMIT, "good": good, "control": control, "classes": report}, args.out)
    if not good:
        raise SystemExit("an error is above the limit, saving and loading changed a model, or the control is off")


def line(shape: str, head: str, parity: Parity) -> str:
    """The table line of one class, under its ``transformers`` name."""
    loss = "" if parity.loss is None else f"{parity.loss:.1e}"
    name = FAMILIES[SHAPES[shape][0]].their_class(head)
    back = "same bits" if parity.round_trip else "**no**"
    return (
        f"| {shape} | {name} | {parity.forward:.1e} | {parity.packed:.1e} | {loss} | {parity.gradient:.1e} | {back} |"
    )


def swapped_weights() -> float:
    """Error of one of our models with two rows of a matrix swapped; a wrong tensor name would cause a larger one."""
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        theirs, ours = pair("roberta", "BertModel", Path(folder))
        weight = ours.encoder.layer[0].attention.qkv.weight
        weight[[0, 1]] = weight[[1, 0]]
        given = inputs("roberta", "BertModel", padded=False)
        return error(ours(**given).last_hidden_state, theirs(**given).last_hidden_state)


if __name__ == "__main__":
    main()
