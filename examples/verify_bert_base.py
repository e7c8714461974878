"""Does bertkit compute what the tutorials print? Checks every number that they show for bert-base-uncased.

    python examples/verify_bert_base.py [--model bert-base-uncased]

Prints one line per check and exits with 0 if all agree, 1 if one does not, and 3 if the weights are missing; in that
case nothing is checked, and a message says so. Numbers are compared to as many decimals as were printed. Those of the
TF-Hub tutorial come from TensorFlow's copy of the same weights, which uses the tanh form of GELU; the model is run with
that form (gelu_new), with a tolerance of 0.01. The values printed there for padding are meaningless and not checked.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertkit import (
    BertForMaskedLM,
    BertForNextSentencePrediction,
    BertModel,
    BertTokenizer,
    CheckpointError,
    ResourceError,
)
from bertkit.hub import Encoder, Preprocess

#: Positions of the values printed where a tutorial shows only the first and last three of a long row.
ENDS = (0, 1, 2, -3, -2, -1)

PRINTED: dict[str, Any] = {
    "embeddings.position": {
        0: (1.7505e-02, -2.5631e-02, -3.6642e-02, 3.3437e-05, 6.8312e-04, 1.5441e-02),
        1: (7.7580e-03, 2.2613e-03, -1.9444e-02, 2.8910e-02, 2.9753e-02, -5.3247e-03),
        2: (-1.1287e-02, -1.9644e-03, -1.1573e-02, 1.4908e-02, 1.8741e-02, -7.3140e-03),
        -3: (1.7418e-02, 3.4903e-03, -9.5621e-03, 2.9599e-03, 4.3435e-04, -2.6949e-02),
        -2: (2.1687e-02, -6.0216e-03, 1.4736e-02, -5.6118e-03, -1.2590e-02, -2.8085e-02),
        -1: (2.6413e-03, -2.3298e-02, 5.4922e-03, 1.7537e-02, 2.7550e-02, -7.7656e-02),
    },
    "embeddings.token": {
        0: (-0.0102, -0.0615, -0.0265, -0.0199, -0.0372, -0.0098),
        1: (-0.0117, -0.0600, -0.0323, -0.0168, -0.0401, -0.0107),
        2: (-0.0198, -0.0627, -0.0326, -0.0165, -0.0420, -0.0032),
        -3: (-0.0218, -0.0556, -0.0135, -0.0043, -0.0151, -0.0249),
        -2: (-0.0462, -0.0565, -0.0019, 0.0157, -0.0139, -0.0095),
        -1: (0.0015, -0.0821, -0.0160, -0.0081, -0.0475, 0.0753),
    },
    "embeddings.sentence": {
        0: (0.0004, 0.0110, 0.0037, -0.0066, -0.0034, -0.0086),
        1: (0.0011, -0.0030, -0.0032, 0.0047, -0.0052, -0.0112),
    },
    "tokens": (
        ("[CLS]", (-0.23, 0.37, -0.34, -0.35, -0.91, 0.01, 0.67, 0.64, 0.1, -0.32)),
        ("i", (0.11, 0.19, 0.05, 0.25, -0.13, 0.56, -0.07, 1.19, -0.03, -0.78)),
        ("was", (0.45, 0.47, 0.29, 0.36, 0.07, 0.35, 0.37, 0.82, -0.54, -0.47)),
        ("thirsty", (0.88, 0.08, -0.0, -0.03, 1.2, 0.08, 0.37, 0.98, -0.37, 0.08)),
        ("!", (0.22, 0.1, -0.11, -0.29, 0.19, 0.44, 0.61, 0.16, -0.67, -0.38)),
        ("[SEP]", (0.6, 0.19, -0.24, 0.49, -0.5, -0.79, 0.73, -0.06, 0.46, 0.15)),
        ("i", (0.05, 0.29, 0.28, 0.03, -0.71, 0.5, 0.35, 1.22, 0.34, -0.32)),
        ("drank", (0.16, 0.34, 0.4, -0.17, -0.33, 0.24, 0.6, 0.89, 0.01, -0.3)),
        ("water", (0.22, 0.05, 0.1, -0.23, 0.09, -0.27, 0.31, 0.82, -0.35, 0.01)),
        (":", (0.11, 0.39, -0.11, -0.63, -0.53, 0.44, 0.71, 0.21, 0.08, 0.23)),
        ("d", (0.15, 0.93, 0.78, -0.26, -0.7, 0.4, 1.27, -0.72, 0.36, -0.42)),
        ("[SEP]", (0.75, 0.15, -0.57, 0.65, -0.7, -0.76, 0.75, -0.26, 0.7, 0.01)),
    ),
    "tokens.pooled": (-0.9803, -0.7672, -0.9958, 0.9636, 0.9004, -0.5488, 0.9910, 0.6867, -0.9878, -1.0000),
    "workflow": {
        0: (-0.6356, -0.5310, -0.0545, -0.2000, -0.1567, 0.8965),
        1: (0.3849, -0.5095, 0.3477, -0.0883, -0.0330, 0.0359),
        2: (-0.6935, -0.3289, 0.0345, -0.1874, -0.3868, 0.9165),
        -3: (-0.1377, -0.1032, -0.0988, -0.4231, -1.1112, -0.4846),
        -2: (0.4561, -0.1571, -0.4719, 0.2254, -0.4706, -0.2761),
        -1: (-0.7604, -0.3017, 0.3763, 0.6815, -0.6139, 0.5033),
    },
    "workflow.pooled": (
        -8.7065e-01, -3.3561e-01, -8.6563e-01, 6.5553e-01, 7.4882e-01, -2.0365e-01, 5.5993e-01, 1.7072e-01,
        -6.4585e-01, -9.9999e-01, -3.5010e-01, 7.6290e-01, 9.6332e-01, 5.3351e-02, 7.4888e-01, -6.5730e-01,
        -3.4508e-02, -4.6789e-01, 3.2335e-01, 6.8526e-02, 4.5708e-01, 9.9998e-01, 2.4238e-01, 2.6449e-01,
        2.8081e-01, 8.8371e-01, -5.7988e-01, 8.0844e-01, 9.1552e-01,
    ),
    "masked_lm": {
        0: (-6.5931, -6.5281, -6.5194, -5.8572, -5.6498, -4.1681),
        1: (-5.9752, -5.9742, -5.9816, -6.0757, -5.9236, -4.5834),
        2: (-10.8940, -10.3371, -10.8128, -9.9103, -8.2486, -8.0948),
        -3: (-0.7863, -0.4980, -0.6281, -1.3897, -1.0887, -2.6577),
        -2: (-11.2825, -10.9634, -11.0110, -8.5080, -8.9784, -7.6255),
        -1: (-15.6298, -15.5663, -15.5410, -14.5949, -12.5687, -9.8353),
    },
    "masked_lm.answer": (2036, "also"),
    "next_sentence": (5.8095, -5.0802),
    "hub.sequence": {
        (0, 0): (0.02952154, 0.08941655, -0.29414886, -0.28991556, 0.33581254, 0.8754337),
        (0, 1): (-0.2737661, -0.42498857, -0.37990084, -0.57002264, 1.0774478, 0.5713815),
        (0, 2): (-0.33146417, -0.35461444, -0.253891, -0.42635572, 0.382568, 0.91525745),
        (1, 0): (0.07296047, 0.51637626, -0.23151016, -0.4113447, -0.0308435, 0.84255636),
        (1, 1): (-0.3008911, 0.5466946, -0.2294488, -0.2608072, 0.23354402, 0.5297949),
        (1, 2): (0.65989935, 0.8210852, 0.0728514, -0.40727797, -0.13747925, 0.5823894),
    },
    "hub.pooled": {
        0: (-0.87018895, -0.42847177, -0.38309997, -0.34936565, -0.6542408, 0.8658799),
        1: (-0.8610027, -0.33217645, -0.44266653, -0.36746684, -0.6890626, 0.8170812),
    },
}  # fmt: skip


@dataclass(frozen=True)
class Check:
    """One value that a tutorial printed: what bertkit computes, what was printed, and the tolerance."""

    what: str
    got: Tensor | Any
    printed: Any
    tolerance: float = 0.0

    @property
    def difference(self) -> float | None:
        """Largest difference between numbers; None if words are compared."""
        if not isinstance(self.got, Tensor):
            return None
        return float((self.got.double() - torch.tensor(self.printed, dtype=torch.float64)).abs().max())

    @property
    def agrees(self) -> bool:
        """Whether the value matches what was printed."""
        difference = self.difference
        return self.got == self.printed if difference is None else difference <= self.tolerance

    def __str__(self) -> str:
        verdict = "ok  " if self.agrees else "FAIL"
        if self.difference is None:
            return f"{verdict} {self.what}: {self.got!r}" + ("" if self.agrees else f", printed {self.printed!r}")
        return f"{verdict} {self.what}: largest difference {self.difference:.1e}, allowed {self.tolerance:.1e}"


def corners(values: Tensor, printed: Mapping[Any, Sequence[float]], what: str, tolerance: float) -> Check:
    """Compare rows of which only the first and last three values were printed."""
    got = torch.stack([values[row][list(ENDS)] for row in printed])
    return Check(what, got, [list(row) for row in printed.values()], tolerance)


def embeddings(model: BertModel, printed: Mapping[str, Any]) -> Iterator[Check]:
    """The three tables (sentence encoder, cells 6 to 8)."""
    tables = {
        "position": model.embeddings.position_embeddings,
        "token": model.embeddings.word_embeddings,
        "sentence": model.embeddings.token_type_embeddings,
    }
    for name, table in tables.items():
        rows = printed[f"embeddings.{name}"]
        tolerance = 5.1e-7 if name == "position" else 5.1e-5  # half of the last digit printed
        yield corners(table.weight, rows, f"{name} embeddings", tolerance)


def sentence_encoder(model: BertModel, tokenizer: BertTokenizer, printed: Mapping[str, Any]) -> Iterator[Check]:
    """Tokens and the first ten numbers of each vector, to two decimals (cells 3, 4, 11 and 12)."""
    inputs = tokenizer("I was thirsty!", "I drank water :D", return_tensors="pt")
    rows = printed["tokens"]
    yield Check("tokens", tokenizer.convert_ids_to_tokens(inputs["input_ids"][0]), [token for token, _ in rows])
    out = model(**inputs)
    yield Check("vectors of the tokens", out.last_hidden_state[0, :, :10], [list(row) for _, row in rows], 5.1e-3)
    yield Check("pooled vector", out.pooler_output[0, :10], printed["tokens.pooled"], 1.5e-4)


def workflow(
    model: BertModel,
    masked_lm: BertForMaskedLM,
    next_sentence: BertForNextSentencePrediction,
    tokenizer: BertTokenizer,
    printed: Mapping[str, Any],
) -> Iterator[Check]:
    """Hidden states, masked word and next sentence (architecture and workflow, cells 35 to 237)."""
    out = model(**tokenizer("BERT is a transformer model. It is used for various NLP tasks.", return_tensors="pt"))
    yield corners(out.last_hidden_state[0], printed["workflow"], "hidden states", 1.5e-4)
    pooled = printed["workflow.pooled"]
    yield Check("pooled vector of the text", out.pooler_output[0, : len(pooled)], pooled, 1.5e-4)
    inputs = tokenizer("BERT is [MASK] a model for NLP tasks.", return_tensors="pt")
    logits = masked_lm(**inputs).logits[0]
    yield corners(logits, printed["masked_lm"], "masked-LM logits", 5e-4)
    place = int(torch.where(inputs.input_ids == tokenizer.mask_token_id)[1])
    best = int(logits[place].argmax())
    yield Check("word for [MASK]", (best, tokenizer.decode([best])), printed["masked_lm.answer"])
    inputs = tokenizer("BERT is a transformer model.", "It is used for various NLP tasks.", return_tensors="pt")
    logits = next_sentence(**inputs).logits[0]
    yield Check("next-sentence logits", logits, printed["next_sentence"], 2e-4)


def tf_hub(model: BertModel, tokenizer: BertTokenizer, printed: Mapping[str, Any]) -> Iterator[Check]:
    """The TF-Hub layers (introduction, cells 12 and 13)."""
    tanh_form = BertModel(model.config.replace(hidden_act="gelu_new"))
    tanh_form.load_state_dict(model.state_dict())
    texts = ["This is a spam mail", "Computers are not unique to computers"]
    out = Encoder(tanh_form)(Preprocess(tokenizer)(texts))
    yield corners(out["sequence_output"], printed["hub.sequence"], "TF-Hub's sequence_output", 1e-2)
    yield corners(out["pooled_output"], printed["hub.pooled"], "TF-Hub's pooled_output", 1e-2)


def verify(name: str | Path, printed: Mapping[str, Any] = PRINTED, tell: Callable[[str], Any] = print) -> list[Check]:
    """Run every check.

    Args:
        name: folder or Hub name of bert-base-uncased.
        printed: what the tutorials print, as in :data:`PRINTED`.
        tell: called with one line per check.

    Returns:
        The checks that do not agree.

    Raises:
        CheckpointError: the model is missing or a different one; raised before the first check.
    """
    tokenizer, model = BertTokenizer.from_pretrained(name), BertModel.from_pretrained(name)
    heads = BertForMaskedLM.from_pretrained(name), BertForNextSentencePrediction.from_pretrained(name)
    failed = []
    with torch.inference_mode():
        for checks in (
            embeddings(model, printed),
            sentence_encoder(model, tokenizer, printed),
            workflow(model, *heads, tokenizer, printed),
            tf_hub(model, tokenizer, printed),
        ):
            for check in checks:
                tell(str(check))
                failed += [] if check.agrees else [check]
    return failed


def main(argv: Sequence[str] | None = None) -> int:
    """Run all checks and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bert-base-uncased", help="folder or Hub name (default: bert-base-uncased)")
    args = parser.parse_args(argv)
    try:
        failed = verify(args.model)
    except (CheckpointError, ResourceError) as error:
        print(f"NOTHING WAS CHECKED: {args.model} does not exist or cannot be read:\n{error}", file=sys.stderr)
        print("Pass the folder of bert-base-uncased with --model, or have it downloaded from the Hub.", file=sys.stderr)
        return 3
    print(f"{len(failed)} checks failed" if failed else "all numbers match those printed in the tutorials")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
