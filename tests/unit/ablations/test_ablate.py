"""Ablations: plans are checked as a whole; runs resume, are split over machines, and give the same results each way."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from ablation_plan import PLAN, write_data
from bertkit.ablations import experiment
from bertkit.ablations.experiment import ablate
from bertkit.ablations.hidden_words import hidden_word_scores
from bertkit.ablations.plan import Features, load_plan, plan_names
from bertkit.ablations.unit_results import UnitResult, compare
from bertkit.ablations.word_features import FeatureTagger, fit
from bertkit.cli import main
from bertkit.data.examples.masking import MaskVocabulary
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import ConfigError
from bertkit.model.models import BertForMaskedLM, BertForPreTraining
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.pretraining.pretrain_data import held_out_data, scored_batches
from bertkit.training.pretraining.pretrain_settings import PretrainConfig
from finetune_data import no_pictures

pytestmark = pytest.mark.slow

#: The same plan without fine-tuning.
WORDS = PLAN[: PLAN.index("[measures.tags]")]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """The folder of the plan, run to its end without a stop; its runs draw nothing, but its page has its pictures."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "plan.toml").write_text(PLAN)

    def undrawn(*given: Any, **options: Any) -> Any:
        with no_pictures():
            return finetune(*given, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "finetune", undrawn)
        ablate(load_plan(folder / "plan.toml"), folder / "out", data=data)
    return folder / "out"


def written(folder: Path, text: str = WORDS) -> Path:
    path = folder / "plan.toml"
    path.write_text(text)
    return path


def results(out: Path) -> dict[str, dict[str, float]]:
    return {
        str(path.relative_to(out / "results")): json.loads(path.read_text())["scores"]
        for path in sorted(out.glob("results/*/*.json"))
    }


def test_the_page_says_what_was_found(whole: Path) -> None:
    found = json.loads((whole / "results.json").read_text())
    assert (found["finished"], found["units"]) == (8, 8)
    assert {name: len(rows) for name, rows in found["measures"].items()} == {"words": 4, "tags": 4, "order": 2}
    page, text = (whole / "ablation.html").read_text(), (whole / "README.md").read_text()
    for content in (page, text):
        for words in ("both directions", "two one-way models", "83.9", "Nothing can be said", "no difference seen"):
            assert words in content
    for name in ("words", "tags", "order", "curves"):
        assert f"{name}.png" in text
        assert (whole / f"{name}.png").stat().st_size > 1000
    rows = {row["arm"]: row for row in found["measures"]["tags"]}
    runs = {(run["arm"], run["seed"]): run for run in found["runs"]}
    differences = [runs["left", seed]["scores"]["tags"] - runs["both", seed]["scores"]["tags"] for seed in (0, 1)]
    assert rows["left"]["difference"] == pytest.approx(np.mean(differences))
    assert rows["both"]["difference"] is None


def test_a_finished_plan_only_writes_the_page(whole: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (whole / "README.md").unlink()
    before = results(whole)
    plan = whole.parent / "plan.toml"
    assert main(["ablate", str(plan), "--out", str(whole), "--data", str(data), "--json"]) == 0
    captured = capsys.readouterr()
    assert "pre-training" not in captured.err
    assert json.loads(captured.out)["finished"] == 8
    assert (whole / "README.md").exists()
    assert results(whole) == before


@pytest.mark.campaign
def test_stopped_and_in_shards_it_finds_the_same(
    whole: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, out = written(tmp_path), tmp_path / "out"
    command = ["ablate", str(plan), "--out", str(out), "--data", str(data)]
    pretrain, calls = experiment.pretrain, []

    def killed(*args: Any, **options: Any) -> Any:
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return pretrain(*args, **options)

    monkeypatch.setattr(experiment, "pretrain", killed)
    assert main([*command, "--shard", "2/2"]) == 130
    done = results(out)
    assert 0 < len(done) < 8
    monkeypatch.setattr(experiment, "pretrain", pretrain)
    changed = {path: path.stat().st_mtime_ns for path in out.glob("results/*/*.json")}
    for part in ("1/2", "2/2"):
        assert main([*command, "--shard", part]) == 0
    assert not (out / "README.md").exists()
    assert all(path.stat().st_mtime_ns == time for path, time in changed.items())  # what is finished is kept
    assert main(command) == 0
    assert (out / "README.md").exists()
    assert "8 of 8 runs" in capsys.readouterr().out
    only_words = {name: {"words": scores["words"]} for name, scores in results(whole).items()}
    assert results(out) == only_words


@pytest.mark.campaign
def test_killed_again_and_again_it_finds_the_same(whole: Path, data: Path, tmp_path: Path) -> None:
    plan, out = written(tmp_path), tmp_path / "out"
    command = [sys.executable, "-m", "bertkit", "ablate", str(plan), "--out", str(out), "--data", str(data)]
    chance = np.random.default_rng(0)
    kills = 0
    while kills < 4:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = len(results(out))
        while process.poll() is None and len(results(out)) == before:
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.5))  # at whatever it does next
        if process.poll() is not None:
            break
        process.kill()
        assert process.wait() == -signal.SIGKILL
        kills += 1
    assert kills > 1, "it ended before it was killed twice"
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert results(out) == {name: {"words": scores["words"]} for name, scores in results(whole).items()}
    assert "8 of 8 runs" in (out / "README.md").read_text()
    assert not list(out.rglob("*.tmp")), "drafts are left behind"


def test_when_the_time_is_over_it_stops_and_says_so(
    whole: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, out = written(tmp_path), tmp_path / "out"
    monkeypatch.setattr(experiment, "pretrain", lambda *args, **options: time.sleep(600))
    command = ["ablate", str(plan), "--out", str(out), "--data", str(data), "--shared", str(whole / "shared")]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a script
    try:
        assert main([*command, "--max-time", "1s"]) == 0
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    captured = capsys.readouterr()
    assert "the time is over; the same command resumes" in captured.err
    assert "0 of 8 runs (arm and seed) are finished" in captured.out


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'title = "Directions"',
            'titel = "Directions"',
            r"\[plan\]: .*unknown field 'titel' \(did you mean 'title'\?\)",
        ),
        ("[corpus]", "[korpus]", r"unknown key 'korpus' \(did you mean 'corpus'\?\)"),
        ("vocab_size = 120", "vocab_sise = 120", r"\[corpus\]: unknown field 'vocab_sise'"),
        ('training = { objective = "next-word" }', "trainin = {}", r"\[arms.left\]: unknown field 'trainin'"),
        ("num_hidden_layers = 2", "num_hiden_layers = 2", r"\[arms.both\]: .*num_hidden_layers"),
        ("max_steps = 4", "max_stepz = 4", r"\[arms.both\]: .*max_steps"),
        ('base = "both"', 'base = "bth"', r"\[plan\]: base = 'bth' is unknown \(did you mean 'both'\?\)"),
        ('of = ["left", "right"]', 'of = ["lft"]', r"\[arms.joined\]: of = 'lft' is unknown"),
        ('of = ["left", "right"]', 'of = ["left"]\nstart = "m"', "an arm with of trains no model"),
        ('training = { objective = "next-word" }', "", r"\[arms.left\]: objective='mlm' does not fit .* left-to-right"),
        ("layers = [-1]", "layers = [-1, 3]", r"\[arms.joined\]: layer 3 of a model with 2 layers"),
        ('title = "two one-way models"', 'title = ""\nbase = "lft"', r"\[arms.joined\]: base = 'lft' is unknown"),
        ('title = "two one-way models"', 'title = ""\nbase = "joined"', r"\[arms.joined\]: base = 'joined' is unknown"),
        ("[measures.words]", "[measures.curves]", "the picture of pre-training has this name"),
        (
            "[arms.right]",
            '[arms.big]\ntitle = "big"\nstart = "m"\n[arms.right]',
            "arm 'big' begins with a model that has",
        ),
        ("seeds = 2", "seeds = 0", r"\[plan\]: seeds = 0"),
        ('kind = "words"', 'kind = "task"', r"\[measures.words\]: kind = 'task' needs task and data"),
        ("examples = 32", 'task = "ner"', "are for kind = 'task'"),
        ("[arms.right]", '[arms."../right"]', r"\[arms\]: '../right' names a folder"),
        ("[arms.both]", "arms.both = 3\n[arms.other]", "plan.toml"),
    ],
)
def test_a_plan_is_refused_before_anything_runs(
    tmp_path: Path, data: Path, old: str, new: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert WORDS.count(old) == 1
    plan = written(tmp_path, WORDS.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        load_plan(plan)
    assert main(["ablate", str(plan), "--out", str(tmp_path / "out"), "--data", str(data)]) == 2
    assert str(plan) in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('task = "ner"', 'task = "nr"', r"\[measures.tags\]: unknown task 'nr'"),
        ("settings = { epochs = 1,", "settings = { epoch = 1,", r"\[measures.tags\]: unknown field 'epoch'"),
        ("features = { layers = [-1] }", "", "several models are not fine-tuned together"),
        ('arms = ["both", "left"]', 'arms = ["left"]', "arms lacks 'both'"),
        ('arms = ["both", "left"]', "", "arm 'joined' has features, which tag words"),
    ],
)
def test_measures_that_do_not_fit_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_plan(written(tmp_path, PLAN.replace(old, new, 1)))


def test_other_folders_data_and_shards_are_refused(
    whole: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = written(tmp_path, PLAN.replace("max_steps = 4", "max_steps = 5"))
    same = tmp_path / "same.toml"
    same.write_text(PLAN)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    mine, new = [str(plan), "--data", str(data), "--out"], str(tmp_path / "o")
    cases = [
        ([*mine, str(whole)], 2, "holds another plan (plan; other values in training)"),
        ([*mine, str(tmp_path / "full")], 2, "holds no plan (thesis.txt)"),
        ([str(plan), "--out", new, "--data", str(tmp_path)], 3, "reads train.txt (and 2 more)"),
        ([*mine, new, "--shard", "3/2"], 2, "shard 3/2 is out of range"),
        ([*mine, new, "--shard", "0/2"], 2, "shard 0/2 is out of range"),
        ([*mine, new, "--shard", "half"], 2, "such as 1/3"),
        ([*mine, new, "--model", "m"], 2, "leave --model out"),
        ([str(plan)], 2, "give --out"),
        ([], 2, "give a plan"),
        (["--out", new], 2, "give a plan"),
        (["left-to-rigt", "--out", new], 2, "did you mean 'left-to-right'"),
        ([str(plan), "--list"], 2, "--list stands alone"),
    ]
    for argv, code, message in cases:
        assert main(["ablate", *argv]) == code
        assert message in capsys.readouterr().err
        assert not (tmp_path / "o").exists()
    assert (tmp_path / "full" / "thesis.txt").read_text() == "mine"
    assert not (tmp_path / "full" / "plan.json").exists()


def test_shared_data_of_another_corpus_are_refused(whole: Path, data: Path, tmp_path: Path) -> None:
    shared = shutil.copytree(whole / "shared", tmp_path / "shared")
    plan = load_plan(written(tmp_path, PLAN.replace("vocab_size = 120", "vocab_size = 110")))
    with pytest.raises(ConfigError, match=r"another corpus \(other values in vocab_size\)"):
        ablate(plan, tmp_path / "out", data=data, shared=shared)
    longer = shutil.copytree(data, tmp_path / "data")
    with (longer / "train.txt").open("a") as file:
        file.write("\nOne more.\n")
    with pytest.raises(ConfigError, match="other values in bytes"):
        ablate(load_plan(written(tmp_path, PLAN)), tmp_path / "longer", data=longer, shared=shared)


def test_layers_that_a_given_model_lacks_are_refused_first(whole: Path, data: Path, tmp_path: Path) -> None:
    model = next((whole / "shared" / "pretrained").iterdir()) / "model"
    head = PLAN[PLAN.index("[plan]") : PLAN.index("[corpus]")]
    arms = (
        '[arms.both]\ntitle = "a"\nstart = "M"\n[arms.layer]\ntitle = "b"\nof = ["both"]\nfeatures = { layers = [3] }\n'
    )
    tags = PLAN[PLAN.index("[measures.tags]") : PLAN.index("[measures.order]")]
    plan = load_plan(written(tmp_path, head + arms + tags), start=str(model))
    with pytest.raises(ConfigError, match=r"\[arms.layer\]: layer 3 of a model with 2 layers"):
        ablate(plan, tmp_path / "out", data=data)
    assert not (tmp_path / "out").exists()


@pytest.mark.campaign
def test_an_arm_may_have_a_base_of_its_own(whole: Path, data: Path, tmp_path: Path) -> None:
    """In the measures that its base has; elsewhere the plan's base is taken, as for all others."""
    copy = shutil.copytree(whole, tmp_path / "out")
    text = PLAN.replace('title = "two one-way models"', 'title = "two one-way models"\nbase = "left"')
    found = ablate(load_plan(written(tmp_path, text)), copy, data=data)
    rows = {row.arm: row for row in found.tables["tags"]}
    assert (rows["joined"].base, rows["right"].base) == ("left", "both")
    runs = {(run.arm, run.seed): run for run in found.results}
    differences = [runs["joined", seed].scores["tags"] - runs["left", seed].scores["tags"] for seed in (0, 1)]
    assert rows["joined"].difference == pytest.approx(np.mean(differences))
    assert "two one-way models (from: left-to-right)" in (copy / "README.md").read_text()
    plan = load_plan("masking")
    assert plan.base_of("always-mask-vectors", "tags") == "paper-vectors"
    assert plan.base_of("always-mask", "tags") == "paper"


@pytest.mark.campaign
def test_two_plans_that_share_a_model_wait_for_each_other(whole: Path, data: Path, tmp_path: Path) -> None:
    plan, shared = written(tmp_path), shutil.copytree(whole / "shared", tmp_path / "shared")
    shutil.rmtree(shared / "pretrained")
    argv = [sys.executable, "-m", "bertkit", "ablate", str(plan), "--data", str(data), "--shared", str(shared)]
    started = [subprocess.Popen([*argv, "--out", str(tmp_path / out)]) for out in ("one", "two")]
    assert [each.wait() for each in started] == [0, 0]
    assert results(tmp_path / "one") == results(tmp_path / "two")


def test_more_seeds_and_other_words_of_the_page_are_the_same_plan(whole: Path, data: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(whole, tmp_path / "out")
    plan = written(tmp_path, PLAN.replace("seeds = 2", "seeds = 1").replace("Both directions are", "Both are"))
    found = ablate(load_plan(plan), copy, data=data)
    assert len(found.results) == found.num_units == 4
    assert "Both are better." in (copy / "README.md").read_text()


def test_shipped_plans_are_whole_and_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ablate", "--list", "--json"]) == 0
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["plan"] for each in listed] == list(plan_names())
    assert len(listed) >= 6
    budgets = set()
    for each in listed:
        plan = load_plan(each["plan"])
        assert plan.head.seeds == 3
        assert each["summary"]
        assert each["trainings"] == 3 * len(plan.pretrained())
        for name in plan.pretrained():
            config = plan.training(name)
            budgets.add((config.batch_size, config.max_seq_length, None if plan.name == "steps" else config.max_steps))
    assert len(budgets) == 2  # equal tokens for all arms, but where the number of steps is asked
    assert main(["ablate", "--list"]) == 0
    assert "left-to-right" in capsys.readouterr().out


def test_paired_intervals() -> None:
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(3, 400))
    sets = draw.integers(400, size=(500, 400))

    def unit(arm: str, seed: int, values: np.ndarray) -> UnitResult:
        return UnitResult(arm, seed, {"m": float(values.mean())}, {"m": [values[s].mean() for s in sets]}, {}, [])

    base = [unit("base", seed, rows[seed]) for seed in range(3)]
    same = [unit("same", seed, rows[seed]) for seed in range(3)]
    better = [unit("better", seed, rows[seed] + 0.05) for seed in range(3)]
    noisy = [unit("noisy", seed, rows[seed][::-1] + 0.01) for seed in range(2)]
    found = {row.arm: row for row in compare([*base, *same, *better, *noisy], "m", lambda arm: "base")}
    assert found["base"].difference is None
    assert (found["same"].difference, found["same"].interval) == (0.0, (0.0, 0.0))
    assert found["better"].difference == pytest.approx(0.05)
    # Paired: the noise of the rows, many times as large, is the same on both sides.
    assert found["better"].interval == pytest.approx((0.05, 0.05))
    assert found["better"].verdict == "higher"
    assert (found["noisy"].shared, found["noisy"].verdict) == (2, "no difference seen")
    reach = 1.96 * np.sqrt(2 / 400 / 2)
    assert found["noisy"].interval == pytest.approx((0.01 - reach, 0.01 + reach), abs=0.06)


@pytest.mark.parametrize("direction", ["both", "left-to-right", "right-to-left"])
def test_hidden_words_are_guessed_from_what_a_model_may_see(whole: Path, direction: str) -> None:
    store = TokenStore(whole / "shared" / "dev")
    runs = sorted((whole / "shared" / "pretrained").iterdir())
    models = {}
    for run in runs:
        shape = json.loads((run / "model" / "config.json").read_text())
        kind = "left-to-right" if shape.get("is_decoder") else shape.get("attention_direction", "both")
        loaded = BertForPreTraining if kind == "both" else BertForMaskedLM
        models[kind] = loaded.from_pretrained(run / "model").eval()
    model = models[direction]
    found = hidden_word_scores([model], store, 16, 20)
    vocabulary = MaskVocabulary.of_tokenizer(store.tokenizer())
    plan = held_out_data(store, vocabulary, PretrainConfig(objective="mlm", max_seq_length=16))
    losses = []
    for batch in scored_batches(plan, 20):
        for start, end in batch.layout.spans():
            labels = batch.targets["labels"][start:end]
            ids = batch.input_ids[start:end].clone()
            total = 0.0
            for at in (labels != -100).nonzero().flatten().tolist():
                text = ids.clone()
                if direction != "both":
                    text = torch.where(labels == -100, ids, labels)
                    text[at] = vocabulary.mask_id  # the word itself must not matter
                place = at + {"both": 0, "left-to-right": -1, "right-to-left": 1}[direction]
                out = model(text[None])
                logits = out.prediction_logits if direction == "both" else out.logits
                total -= float(logits.detach()[0, place].log_softmax(-1)[labels[at]])
            losses.append(total)
    assert found["words"].sum() > 20
    np.testing.assert_allclose(found["loss"], losses, rtol=1e-4, atol=1e-4)


def test_the_head_is_a_logistic_regression() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(400, 2, 5, generator=draw)
    labels = (x[:, 0, 1] + x[:, 1, 3] + torch.randn(400, generator=draw) > 0).long() + (x[:, 0, 0] > 1).long()
    kept = labels.clone()
    kept[:30] = -100
    for mix, columns in (("concatenated", x.flatten(1)), ("summed", x.sum(1))):
        tagger = FeatureTagger(Features(layers=(1, 2), mix=mix), 2, 5, 3)
        fit(tagger, x, kept)
        theirs = LogisticRegression(C=0.01, tol=1e-8, max_iter=1000).fit(columns[30:].numpy(), labels[30:].numpy())
        with torch.inference_mode():
            ours = tagger(x).softmax(1).numpy()
        np.testing.assert_allclose(ours, theirs.predict_proba(columns.numpy()), atol=2e-3)


def test_a_weighted_sum_finds_the_layer_that_knows() -> None:
    x = torch.randn(2000, 3, 8, generator=torch.Generator().manual_seed(0))
    labels = (x[:, 1, 2] > 0).long()
    right = {}
    for mix in ("weighted", "summed", "concatenated"):
        tagger = FeatureTagger(Features(layers=(1, 2, 3), mix=mix), 3, 8, 2)
        fit(tagger, x, labels)
        with torch.inference_mode():
            right[mix] = float((tagger(x).argmax(1) == labels).float().mean())
        if tagger.weights is not None:
            assert tagger.weights.softmax(0)[1] > 0.9
    assert right["concatenated"] > 0.95
    assert right["weighted"] > right["summed"] + 0.1  # which two layers of noise disturb
