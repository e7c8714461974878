"""Commands and ``pipeline()`` without torch, pyarrow, scipy and scikit-learn: on checkpoints and on exported models
they say what they say with them, and everything else says which package to install.

``lite_command.py`` hides the packages; an environment that lacks them is made in ``test_wheels.py``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import bertkit
from adapter_helpers import by_hand
from bertkit.cli import NAMES, main
from bertkit.engine.native import library
from bertkit.engine.native.library import native_library, why_not
from bertkit.errors import NOT_IN_LITE
from bertkit.export.onnx_export import export_onnx, load_for_export
from bertkit.system.processor import SWITCH
from bertkit.tasks import csv_task, task_of
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.several_heads import finetune_heads
from finetune_data import QUICK, labelled_texts, tiny_start, write_heads_data, write_table
from lite_environment import COMPILED, Environment, build_wheels, can_seal, metadata_of
from pipeline_helpers import save_tiny
from sentence_folders import dense, pooling, sentence_folder
from tokenizer_families import small

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("traced_once")]

NO_LIBRARY = f"there is no compiled encoder: {why_not()}"
needs_library = pytest.mark.skipif(native_library() is None, reason=NO_LIBRARY)
TESTS = Path(__file__).resolve().parents[1]
RUNS = TESTS / "compatibility" / "first_release" / "finetuned"
DATA = TESTS / "compatibility" / "first_release" / "data"
MODELS = {
    "masked": "BertForMaskedLM", "follows": "BertForNextSentencePrediction", "ranks": "BertForSequenceClassification",
}  # fmt: skip
#: What follows the encoder.
MODULES = [pooling("max", "weightedmean", include_prompt=False), dense(64, 16, "activation.GELU"), ("Normalize", {})]


def export(model: Path, folder: Path) -> Path:
    given = load_for_export(model)
    beside = {"decision": given.decision, "beside": given.beside, "sentence": given.sentence}
    export_onnx(given.model, given.tokenizer, folder, **beside, check=False)
    return folder


@pytest.fixture(scope="module")
def folders(once: Callable[..., Any]) -> dict[str, Path]:
    """Name -> model or run folder."""
    made: dict[str, Path] = once("folders-of-commands", make_folders)
    return made


@pytest.fixture(scope="module")
def exported(once: Callable[..., Any], folders: dict[str, Path]) -> Callable[[str], Path]:
    """The exported folder of a name, made where a test asks for it."""
    return lambda name: once(f"export-of-{name}", lambda root: export(folders[name], root / f"{name}-onnx"))


def make_folders(root: Path) -> dict[str, Path]:
    settings = {"ranks": {"num_labels": 1}}
    models = {
        name: save_tiny(root / name, getattr(bertkit, cls), num_hidden_layers=1, **settings.get(name, {}))
        for name, cls in MODELS.items()
    }
    said = {"prompts": {"query": "it is "}, "similarity_fn_name": "euclidean"}
    models["encoder"] = sentence_folder(root / "encoder", MODULES, said, {"max_seq_length": 30})
    return models | {name: RUNS / name for name in ("text", "ner", "squad", "swag")}


LITE = [sys.executable, str(TESTS / "lite_command.py")]
Lite = Callable[..., "subprocess.CompletedProcess[str]"]


@contextmanager
def serving(command: list[str], environment: dict[str, str] | None = None) -> Iterator[Lite]:
    """Runs commands in one interpreter, that of ``lite_command.py``; :func:`started` has one of its own."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def run(*argv: object) -> subprocess.CompletedProcess[str]:
            asked.write(json.dumps([str(part) for part in argv]) + "\n")
            asked.flush()
            code, out, err = json.loads(answers.readline())
            return subprocess.CompletedProcess(argv, code, out, err)

        yield run
        asked.close()


@pytest.fixture(scope="module")
def lite() -> Iterator[Lite]:
    """Without the packages that lite does without."""
    with serving(LITE) as run:
        yield run


@pytest.fixture(scope="module")
def wheel(once: Callable[..., Any]) -> Environment:
    """With nothing but the wheel for this platform and what it needs."""

    def make(folder: Path) -> Environment:
        compiled = once("wheels", build_wheels) / COMPILED
        made = Environment(folder / "venv", metadata_of(compiled), with_pip=False)
        made.pip("install", "--no-deps", "--no-compile", str(compiled))
        return made

    made: Environment = once("wheel-alone", make)
    return made


@pytest.fixture(scope="module")
def sealed(wheel: Environment) -> Iterator[Lite]:
    """That, with no compiler, network or home, where nothing can be written."""
    if not can_seal():
        pytest.skip("this system does not let a process have a mount of its own: unshare --map-root-user --mount")
    with serving(wheel.sealed("python", str(TESTS / "lite_command.py"))) as run:
        yield run


@pytest.fixture(scope="module")
def windows_like(wheel: Environment) -> Iterator[Lite]:
    """That, in a Python that lacks what it lacks on Windows."""
    with serving([str(wheel.bin / "python"), str(TESTS / "lite_command.py"), "--windows"], wheel.clean) as run:
        yield run


@pytest.fixture
def same_library(wheel: Environment, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The library of the wheel in this process as well."""
    monkeypatch.setattr(library, "SHIPPED", wheel.packages / "bertkit" / "engine" / "native" / "lib")
    monkeypatch.delenv(SWITCH, raising=False)
    library._attempt.cache_clear()
    yield
    library._attempt.cache_clear()


def started(*argv: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LITE, *map(str, argv)], capture_output=True, text=True, check=False)


def near(found: Any, expected: Any) -> None:
    """Equal, numbers to 1e-4."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            near(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            near(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=1e-4)
    else:
        assert found == expected


USES: list[tuple[str, str, list[str]]] = [
    ("embed", "encoder", ["the film is good", "bad", "--normalize"]),
    ("embed", "encoder", ["the film is good", "bad", "--prompt-name", "query", "--dimensions", "5"]),
    ("similarity", "encoder", ["the film is good", "a great film", "dull"]),
    ("fill-mask", "masked", ["the [MASK] is [MASK]", "[MASK] film", "--top-k", "3"]),
    ("next-sentence", "follows", ["the film was good", "it was great"]),
    ("embed", "masked", ["the film is good", "bad", "--sparse"]),
    ("rerank", "ranks", ["the film", "it is good", "a dull scene"]),
    ("classify", "text", ["a film to remember", "two dull hours", "--all"]),
    ("tag", "ner", ["Ann Lee flew from Oslo to Rome .", "good"]),
    ("answer", "squad", ["who wrote it ?", "--context", "it was written by Ann Lee in 1912 . " * 30, "--top-k", "2"]),
    ("predict", "text", [str(DATA / "reviews" / "dev.csv")]),
    ("predict", "ner", [str(DATA / "ner" / "dev.conll")]),
    ("predict", "squad", [str(DATA / "squad" / "dev.json")]),
    ("predict", "swag", [str(DATA / "swag" / "val.csv")]),
    ("duplicates", "encoder", [str(DATA / "corpus.txt"), "--threshold", "0.95", "--truncate"]),
]


def exports_but_one(name: str, is_export: bool) -> list[pytest.MarkDecorator]:
    """An export takes seconds; that of one run is used by other tests as well."""
    return [pytest.mark.campaign] if is_export and name != "text" else []


@pytest.mark.parametrize(
    ("command", "name", "arguments", "is_export"),
    [
        pytest.param(*use, is_export, id=f"{use[0]}-{use[1]}-{is_export}", marks=exports_but_one(use[1], is_export))
        for use in USES
        for is_export in (False, True)
    ],
)
def test_commands_on_checkpoints_and_exports(
    lite: Lite, folders: dict[str, Path], exported: Callable[[str], Path], capsys: pytest.CaptureFixture[str],
    command: str, name: str, arguments: list[str], is_export: bool,
) -> None:  # fmt: skip
    """Of a checkpoint the C library says the same to the last digit, whether torch is there or not."""
    model = folders[name]
    if not is_export and native_library() is None:
        pytest.skip(NO_LIBRARY)
    assert main([command, *arguments, "--model", str(model), "--json", "--device", "cpu", "--precision", "fp32"]) == 0
    said = capsys.readouterr()
    expected = [json.loads(line) for line in said.out.splitlines()]
    assert expected
    how = ["--model", exported(name)] if is_export else ["--model", model, "--precision", "fp32"]
    done = lite(command, *arguments, *how, "--json", "--threads", 1)
    assert (done.returncode, done.stderr) == (0, said.err)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if is_export:
        near(found, expected)
    else:
        assert found == expected


@pytest.mark.campaign
@pytest.mark.usefixtures("same_library")
@pytest.mark.parametrize("machine", ["sealed", "windows_like"])
@pytest.mark.parametrize(("command", "name", "arguments"), USES, ids=[f"{use[0]}-{use[1]}" for use in USES])
def test_commands_of_the_wheel_alone(
    folders: dict[str, Path], capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest,
    command: str, name: str, arguments: list[str], machine: str,
) -> None:  # fmt: skip
    """Equal to the last digit to the same library beside torch."""
    given = [command, *arguments, "--model", str(folders[name]), "--json", "--precision", "fp32", "--threads", "1"]
    assert main([*given, "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    done = request.getfixturevalue(machine)(*given)
    assert (done.returncode, done.stdout) == (0, said), done.stderr
    assert said


def the_same_sealed(sealed: Lite, capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    """What a command prints, which must be the same beside torch and where nothing else is."""
    given = [str(part) for part in argv]
    assert main([*given, *(["--device", "cpu"] if given[0] != "inspect" else [])]) == 0
    said = capsys.readouterr().out
    done = sealed(*given)
    assert (done.returncode, done.stdout) == (0, said), done.stderr
    return said


@pytest.mark.usefixtures("same_library")
@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("embed", ["A heron stood on the bank.", "--pooling", "mean"]),
        ("fill-mask", ["He studied law at the [MASK] of Oxford.", "--top-k", "3"]),
        ("similarity", ["A cat sat.", "A dog ran.", "The bank was closed."]),
    ],
)
def test_the_included_model_in_the_wheel_alone(
    sealed: Lite, capsys: pytest.CaptureFixture[str], command: str, arguments: list[str]
) -> None:
    """Real weights, which come with the wheel."""
    how = ("--model", "bertkit-tiny-en", "--json", "--precision", "fp32", "--threads", "1")
    assert the_same_sealed(sealed, capsys, command, *arguments, *how)


@pytest.mark.usefixtures("same_library")
def test_other_folders_in_the_wheel_alone(
    sealed: Lite, folders: dict[str, Path], once: Callable[..., Any], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """An index, a run of several heads, an adapter of peft, and a look into a folder."""
    how = ("--precision", "fp32", "--threads", "1", "--json")
    model = folders["masked"]
    given = ["search", "build", str(tmp_path / "index"), str(DATA / "corpus.txt"), "--model", str(model)]
    assert main([*given, "--pooling", "mean", "--truncate", "--device", "cpu"]) == 0
    capsys.readouterr()
    assert the_same_sealed(sealed, capsys, "search", "query", tmp_path / "index", "a film", "--json")
    run = once("run-of-heads", heads_run)
    said = the_same_sealed(sealed, capsys, "analyze", "the film was good", "--model", run, "--threads", "1", "--json")
    assert "mood" in said
    base = save_tiny(tmp_path / "base", num_hidden_layers=1)
    head = {"classifier.weight": torch.randn(3, 32), "classifier.bias": torch.arange(3.0)}
    by_hand(tmp_path / "adapter", base, modules={"bert.encoder.layer.0.attention.self.query": (32, 32)}, head=head)
    assert the_same_sealed(sealed, capsys, "classify", "a film", "--all", "--model", tmp_path / "adapter", *how)
    assert the_same_sealed(sealed, capsys, "inspect", model, "--json")


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "xlsx"])
def test_files_are_written_and_replaced_as_on_windows(
    windows_like: Lite, folders: dict[str, Path], tmp_path: Path, suffix: str
) -> None:
    out = tmp_path / f"out.{suffix}"
    given = ("predict", DATA / "reviews" / "dev.csv", "--model", folders["text"], "--out", out)
    assert windows_like(*given).returncode == 0
    whole = out.read_bytes()
    again = windows_like(*given)
    assert "Traceback" not in again.stderr
    assert out.read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_an_index_is_changed_as_on_windows(windows_like: Lite, folders: dict[str, Path], tmp_path: Path) -> None:
    given = ("--model", folders["masked"], "--pooling", "mean", "--truncate")
    assert windows_like("search", "build", tmp_path / "index", DATA / "corpus.txt", *given).returncode == 0
    assert windows_like("search", "query", tmp_path / "index", "a film").returncode == 0
    (tmp_path / "more.txt").write_text("a line of its own\n")
    done = windows_like("search", "add", tmp_path / "index", tmp_path / "more.txt")
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
    assert "a line of its own" in windows_like("search", "query", tmp_path / "index", "a line of its own").stdout


@pytest.mark.usefixtures("same_library")
def test_the_wheel_alone_says_what_computes(sealed: Lite, wheel: Environment) -> None:
    found = library.native_library()
    assert found is not None
    done = sealed("doctor", "--json")
    assert json.loads(done.stdout)["compiled_encoder"] == f"{found} ({found.path})"
    assert found.path.is_relative_to(wheel.packages)


def test_it_is_sealed(wheel: Environment, tmp_path: Path) -> None:
    """The control: nothing can be written, and no compiler is found."""
    if not can_seal():
        pytest.skip("this system does not let a process have a mount of its own")
    code = f"""
import os, shutil, socket
print([name for name in ("cc", "gcc", "clang", "zig") if shutil.which(name)], os.environ.get("HOME"))
for place in ("/tmp", "/var/tmp", "{tmp_path}", "{wheel.packages}", os.path.expanduser("~")):
    try:
        open(os.path.join(place, "x"), "w")
        print("written", place)
    except OSError:
        pass
try:
    socket.create_connection(("192.0.2.1", 80), 1)
except OSError as error:
    print(error.strerror)
"""
    done = subprocess.run(wheel.sealed("python", "-c", code), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[] None", "Network is unreachable"]


@needs_library
def test_an_index_is_built_and_searched(
    lite: Lite, folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(DATA / "corpus.txt"), "--model", str(folders["masked"]), "--pooling", "mean", "--truncate"]
    assert lite("search", "build", tmp_path / "lite", *given).returncode == 0
    assert main(["search", "build", str(tmp_path / "torch"), *given, "--device", "cpu"]) == 0
    capsys.readouterr()
    found = lite("search", "query", tmp_path / "lite", "a film", "--json")
    assert main(["search", "query", str(tmp_path / "torch"), "a film", "--json", "--device", "cpu"]) == 0
    assert found.stdout == capsys.readouterr().out


@needs_library
def test_all_heads_answer_at_once(
    lite: Lite, once: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = once("run-of-heads", heads_run)
    given = ("analyze", "the film was good and great", "a sad day", "--model", str(run), "--threads", "1", "--json")
    assert main([*given, "--device", "cpu"]) == 0
    expected = capsys.readouterr().out
    assert {"mood", "names"} <= json.loads(expected.splitlines()[0])["heads"].keys()
    done = lite(*given)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
    write_table(tmp_path / "in.csv", ("text", "n"), [("a good film", 1), ("a sad day", 2)], delimiter=",")
    done = lite("analyze", "--file", tmp_path / "in.csv", "--model", run, "--out", tmp_path / "out.csv")
    assert done.returncode == 0, done.stderr
    assert {"mood", "names"} <= set((tmp_path / "out.csv").read_text().splitlines()[0].split(","))


def heads_run(folder: Path) -> Path:
    tiny_start(folder / "start")
    write_heads_data(folder)
    write_table(folder / "mood.csv", ("text", "label"), labelled_texts(48, 1), delimiter=",")
    heads = {
        "mood": (csv_task(folder / "mood.csv", label="label"), folder / "mood.csv"),
        "names": (task_of("ner", folder / "ner"), folder / "ner"),
    }
    finetune_heads(heads, folder / "start", folder / "run", FinetuneConfig(**QUICK), cache=None)
    return folder / "run"


def test_predict_resumes_and_writes_tables(
    lite: Lite, folders: dict[str, Path], exported: Callable[[str], Path], tmp_path: Path
) -> None:
    run, export_of_run = folders["text"], exported("text")
    source = DATA / "reviews" / "dev.csv"
    theirs = tmp_path / "theirs.jsonl"
    assert main(["predict", str(source), "--model", str(run), "--out", str(theirs), "--precision", "fp32"]) == 0
    done = started("predict", source, "--model", export_of_run, "--out", tmp_path / "ours.jsonl")
    assert done.returncode == 0, done.stderr
    ours, theirs = ([json.loads(line) for line in (tmp_path / f"{name}.jsonl").open()] for name in ("ours", "theirs"))
    near(ours, theirs)
    assert lite("predict", source, "--model", export_of_run, "--out", tmp_path / "out.csv").returncode == 0


def test_doctor_and_help() -> None:
    done = started("doctor", "--json")
    assert done.returncode in (0, 5)  # 5: the packages of the distribution that is installed here are hidden
    assert "torch" not in json.loads(done.stdout)
    assert started("--help").returncode == 0


TRAINING = {
    "benchmark": ["encoder"],
    "demo": [],
    "pretrain": ["store", "--preset", "mini"],
    "finetune": ["csv", "--data", str(DATA / "reviews" / "train.csv"), "--model", "encoder"],
    "adapt": ["csv", "--data", str(DATA / "reviews" / "train.csv"), "--model", "encoder"],
    "vocab": [str(DATA / "corpus.txt")],
    "prepare": [str(DATA / "corpus.txt"), "--tokenizer", "encoder"],
    "evaluate": ["csv", "--data", str(DATA / "reviews" / "dev.csv"), "--model", "text"],
    "convert": ["encoder"],
    "generate": ["A text.", "--model", "encoder"],
    "export": ["encoder"],
    "quantize": ["encoder", "--calibrate", str(DATA / "corpus.txt")],
    "cluster": [str(DATA / "corpus.txt"), "--model", "encoder", "--truncate"],
    "topics": [str(DATA / "corpus.txt"), "--model", "encoder", "--truncate"],
    "label": [str(DATA / "corpus.txt"), "--labels", "good, bad"],
    "distill": ["vectors", "--teacher", "encoder", "--data", str(DATA / "corpus.txt")],
    "shrink": ["encoder", "--keep-layers", "0"],
    "visualize": ["training", str(RUNS / "text")],
    "word-vectors": ["train", str(DATA / "corpus.txt"), "--out", "words.vec"],
    "ablate": ["masking"],
}
#: Those of them that write nothing, or only where it is asked for.
WITHOUT_OUT = set("evaluate benchmark generate cluster topics visualize word-vectors".split())


@pytest.mark.parametrize("command", TRAINING)
def test_other_commands_say_what_to_install(lite: Lite, folders: dict[str, Path], tmp_path: Path, command: str) -> None:
    out = str(tmp_path / "new.jsonl")
    where = [out] if command == "convert" else [] if command in WITHOUT_OUT else ["--out", out]
    given = [str(folders[part]) if part in folders else part for part in TRAINING[command]]
    done = lite(command, *given, *where)
    assert (done.returncode, done.stdout) == (5, "")
    assert "Traceback" not in done.stderr
    assert "which bertkit-lite does without. Run: pip install bertkit" in done.stderr


def test_every_command_is_spoken_of() -> None:
    """Those that work, those that say what to install, and those that look at files only."""
    assert {
        *TRAINING,
        *(command for command, *_ in USES),
        "analyze",
        "compare",
        "doctor",
        "inspect",
        "mcp",
        "merge",
        "predict-status",
        "search",
        "serve",
    } == set(NAMES)


def test_models_are_served(lite: Lite, folders: dict[str, Path]) -> None:
    done = lite("serve", *(f"{name}={model}" for name, model in folders.items()), "--check", "--json")
    assert done.returncode == 0, done.stderr
    tasks = {each["name"]: each["tasks"][0] for each in map(json.loads, done.stdout.splitlines())}
    expected = {"masked": "fill-mask", "follows": "next-sentence", "ranks": "rerank", "encoder": "embed"}
    assert tasks == expected | {"text": "classify", "ner": "tag", "squad": "answer", "swag": "choose"}


def test_runs_are_compared(lite: Lite) -> None:
    done = lite("compare", RUNS / "text", RUNS / "text", "--json")
    assert (done.returncode, json.loads(done.stdout)["difference"]) == (0, 0.0)


def encoder_decoder(folder: Path, name: str, shared: Path) -> Path:
    """A BART or a T5 with random weights and a small vocabulary."""
    tokenizer = small("roberta" if name == "bart" else name, shared, folder)
    sizes: dict[str, Any] = {"vocab_size": len(tokenizer), "d_model": 16}
    if name == "t5":
        model: Any = bertkit.T5EncoderModel(bertkit.T5Config(**sizes, d_kv=8, d_ff=16, num_layers=1, num_heads=2))
    else:
        towers = {f"{tower}_{what}": 2 for tower in ("encoder", "decoder") for what in ("layers", "attention_heads")}
        model = bertkit.BartForSequenceClassification(bertkit.BartConfig(**sizes, **towers))
    model.save_pretrained(folder / name)
    tokenizer.save_pretrained(folder / name)
    return folder / name


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["embed", "a", "--model", "one-way"], "does not compute (attention is left-to-right), needs 'torch'"),
        (["embed", "a", "--model", "no-layers"], "does not compute (the model has no layers), needs 'torch'"),
        (["embed", "a", "--model", "bart"], "does not compute (it is an encoder-decoder), needs 'torch'"),
        (["embed", "a", "--model", "t5"], "does not compute (it is an encoder-decoder), needs 'torch'"),
        (["embed", "a", "--model", "encoder-onnx", "--out", "x.parquet"], "a .parquet file needs 'pyarrow'"),
    ],
)
def test_what_needs_the_whole_package(
    lite: Lite, tmp_path: Path, request: pytest.FixtureRequest, arguments: list[str], told: str
) -> None:
    made: dict[str, Callable[[], Path]] = {
        "one-way": lambda: save_tiny(tmp_path / "one-way", attention_direction="left-to-right"),
        "no-layers": lambda: save_tiny(tmp_path / "no-layers", num_hidden_layers=0),
        "bart": lambda: encoder_decoder(tmp_path, "bart", request.getfixturevalue("shared")),
        "t5": lambda: encoder_decoder(tmp_path, "t5", request.getfixturevalue("shared")),
        "encoder-onnx": lambda: request.getfixturevalue("exported")("encoder"),
    }
    done = lite(*(made[part]() if part in made else part for part in arguments))
    assert (done.returncode, "Traceback" in done.stderr) == (5, False)
    assert told in done.stderr
    assert "Run: pip install bertkit" in done.stderr


def test_exports_run_on_the_cpu(lite: Lite, exported: Callable[[str], Path]) -> None:
    done = lite("classify", "a", "--model", exported("text"), "--device", "cuda")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "no device 'cuda'" in done.stderr
    assert "run on the CPU; use 'cpu', or leave it out" in done.stderr


def test_public_names_say_what_to_install() -> None:
    """Every public name is there, or is an error of ours that says which package has it."""
    code = """
import sys
from importlib.machinery import PathFinder
from lite_command import LiteFinder
sys.meta_path[:] = [LiteFinder if finder is PathFinder else finder for finder in sys.meta_path]
import bertkit
for name in bertkit.__all__:
    try:
        getattr(bertkit, name)
        print(name)
    except bertkit.MissingExtraError as error:
        assert f".{name} needs " in str(error), error
        assert str(error).endswith("Run: pip install bertkit"), error
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=TESTS)
    there = set(done.stdout.split())
    assert {"pipeline", "BertTokenizer", "AutoTokenizer", "BertConfig", "FinetuneConfig", "BertkitError"} <= there
    assert not {"BertModel", "BertClassifier", "AdamW", "finetune"} & there, "the control: these need torch"


def test_what_is_hidden_is_what_lite_does_without() -> None:
    import tomllib

    from lite_command import ABSENT

    root = TESTS.parent
    full, light = (
        {line.partition(">")[0] for line in tomllib.loads((root / place).read_text())["project"]["dependencies"]}
        for place in ("pyproject.toml", "packaging/lite/pyproject.toml")
    )
    assert {name.replace("scikit-learn", "sklearn").replace("-", "_") for name in full} == NOT_IN_LITE
    assert NOT_IN_LITE <= ABSENT
    assert not full & light
