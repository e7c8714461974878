"""What a report concludes from figures made up by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bertkit.benchmark.benchmark_report import BenchmarkReport, Quality, System
from bertkit.benchmark.runtimes import BERTKIT, PEERS, REFERENCE, Mode
from bertkit.benchmark.sample_texts import RANDOM, SampleTexts
from bertkit.engine.closeness import Closeness
from bertkit.ragged import Ragged
from bertkit.system.processor import Processor

BF16, INT8, AUTO = (Mode(BERTKIT, precision) for precision in ("bf16", "int8", "auto"))
PEER, PEER_INT8 = Mode(PEERS["openvino"], "fp32"), Mode(PEERS["onnxruntime"], "int8")
SAME = Quality(Closeness(1.0, 1.0, 1.0), 1e-6)
NEAR = Quality(Closeness(0.9991, 0.9972, 0.98), 0.1)
FAR = Quality(Closeness(0.991, 0.97, 0.9), 0.4)


def system(single: list[float], whole: float, quality: Quality = SAME, order: str = "arrival") -> System:
    figures = {"single_16": single, "single_128": [4 * value for value in single], f"pass_{order}": [whole] * 3}
    return System({**figures, "memory": [5e8]}, quality)


def report(**systems: System) -> BenchmarkReport:
    named = {"auto": AUTO, "bf16": BF16, "int8": INT8, "peer": PEER, "peer_int8": PEER_INT8}
    ids = np.zeros(1000, np.int32)
    rows = Ragged(ids, np.arange(0, 1001, 10), ids.astype(np.int8), np.full(100, 10))
    return BenchmarkReport(
        model="m",
        int8="m8",
        encoder="512-bit vectors, variant avx512",
        processor=Processor("p", 2, ("AVX2",), 8 << 30),
        threads=2,
        texts=SampleTexts(rows, "given"),
        versions={"bertkit": {"bertkit": "1.0", "torch": "2.13"}, "peers": {}},
        absent=("ctranslate2",),
        lengths=(16, 128),
        systems={REFERENCE: system([0.004, 0.002, 0.003], 2.0), **{named[name]: one for name, one in systems.items()}},
    )


def test_shares_are_ratios_of_medians() -> None:
    found = report(bf16=system([0.0015, 0.001, 0.009], 1.0))
    assert found.relative(BF16, REFERENCE) == pytest.approx((0.5, 0.5))
    assert found.relative(REFERENCE, BF16) == pytest.approx((2.0, 2.0))
    assert found.bars()["bertkit bf16"] == pytest.approx([0.5, 0.5, 0.5])


def test_the_fastest_mode_that_is_near_enough_is_advised() -> None:
    fast = report(bf16=system([0.0015], 1.0, NEAR), int8=system([0.0010], 0.5, FAR))
    assert fast.best_mode() == BF16
    assert fast.advice() == (
        "Use precision bf16 on this machine: it is faster than fp32, and its answers are near enough. "
        "Precision bf16 takes 0.50 of fp32's time for single texts and 0.50 for "
        "all texts. Precision int8 takes 0.33 of fp32's time for single texts and 0.25 for all texts, but its answers "
        "are not near enough."
    )
    near = report(bf16=system([0.0015], 1.0, NEAR), int8=system([0.0010], 0.5, NEAR))
    assert near.best_mode() == INT8  # the control: only its answers kept it from being advised
    assert near.advice().startswith("Use precision int8 on this machine (m8): it is faster than fp32, and its answers")


def test_int8_is_not_judged_on_random_tokens() -> None:
    found = report(int8=system([0.0010], 0.5, FAR))
    assert found.advice().endswith("but its answers are not near enough.")
    found.texts = SampleTexts(found.texts.rows, RANDOM)
    assert found.advice().endswith("not near enough on random tokens; judge it with real texts (--texts).")


def test_a_mode_that_is_hardly_faster_is_not_worth_it() -> None:
    assert report(bf16=system([0.00295], 1.99, NEAR)).best_mode() == REFERENCE
    assert report().advice() == "Use precision fp32 on this machine: no other was measured."
    slower = report(auto=system([0.00305], 2.02), bf16=system([0.00299], 2.0, NEAR))
    assert slower.best_mode() == AUTO
    assert slower.advice().startswith(
        "Use precision auto on this machine, the default: no other takes less than 95% of its time with answers that "
        "are near enough. Precision auto takes 1.02 of"
    )
    wrong = report(auto=system([0.001], 0.5, NEAR)).advice()
    assert wrong.startswith("Use precision fp32 on this machine: no other takes less than 95% of its time with answers")
    assert "Precision auto takes 0.33 of fp32's time for single texts and 0.25 for all texts, but its answers" in wrong


def test_a_mode_that_ended_after_a_round_counts_nowhere() -> None:
    found = report(bf16=system([0.0015], 1.0, NEAR), peer=system([0.0024], 1.0))
    assert (found.best_mode(), set(found.bars())) == (BF16, {"bertkit fp32", "bertkit bf16", "openvino fp32"})
    for mode in (BF16, PEER):
        found.systems[mode].error = f"the process of {mode} ended: killed"
    assert (found.best_mode(), set(found.bars())) == (REFERENCE, {"bertkit fp32"})
    assert found.advice() == "Use precision fp32 on this machine: no other was measured."
    assert found.to_dict()["systems"]["bertkit bf16"]["passes"] is False  # type: ignore[index, call-overload]


def test_fp32_answers_have_a_narrower_gate() -> None:
    assert NEAR.passes("bf16")
    assert not NEAR.passes("fp32")
    assert not NEAR.passes("auto")
    assert not report(auto=system([0.001], 0.5, NEAR)).passes(AUTO)


def test_peers_are_told_and_those_that_are_not_near_enough_left_out() -> None:
    found = report(
        peer=system([0.0024], 3.0, order="sorted"), peer_int8=system([0.0003], 0.2, FAR, order="sorted")
    ).advice()
    assert "The fastest peers with answers as in fp32, beside bertkit fp32: openvino fp32 takes 0.80 of its" in found
    assert "openvino fp32 1.50 for all texts" in found
    assert "onnxruntime" not in found


def test_quality_of_answers() -> None:
    rng = np.random.default_rng(0)
    hidden, vectors = rng.normal(size=(9, 4)).astype(np.float32), rng.normal(size=(200, 4)).astype(np.float32)
    same = Quality.of((hidden, 3 * vectors), (hidden, vectors))
    assert same.passes("fp32")
    assert same.difference == 0.0
    turned = vectors.copy()
    turned[:20] *= -1
    found = Quality.of((hidden + 0.5, turned), (hidden, vectors))
    assert found.closeness.cosine_mean == pytest.approx(0.8)
    assert found.closeness.cosine_p1 == pytest.approx(-1.0)
    assert found.difference == pytest.approx(0.5)
    broken = Quality.of((np.full_like(hidden, np.nan), np.full_like(vectors, np.nan)), (hidden, vectors))
    assert not broken.passes("int8")
    assert broken.to_dict()["cosine_mean"] is None
    assert broken.to_dict()["difference"] is None


def test_text_and_json() -> None:
    found = report(int8=system([0.001], 0.5, FAR), bf16=System(error="the process of bertkit bf16 ended: why"))
    text = found.render()
    assert "bertkit fp32  3.00 (2.00-4.00)  12.00 (8.00-16.00)" in text
    assert "500 (500-500)" in text  # 1,000 tokens in 2 s
    assert "NOT NEAR ENOUGH" in text
    assert "bertkit bf16 was left out: the process of bertkit bf16 ended: why" in text
    assert "\nbertkit: bertkit 1.0, torch 2.13\n" in text
    assert "peers:" not in text
    assert "not installed: ctranslate2 (pip install 'bertkit[bench]')" in text
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert values["systems"]["bertkit fp32"]["figures"]["single_16"] == {
        "median": 0.003,
        "rounds": [0.004, 0.002, 0.003],
    }
    assert values["systems"]["bertkit int8"]["passes"] is False
    assert values["complete"] is True


def test_before_anything_is_measured() -> None:
    nothing = report()
    nothing.systems = {REFERENCE: System()}
    assert (nothing.advice(), nothing.bars()) == ("Too little was measured for any advice.", {})
    assert nothing.to_dict()["use"] is None
    assert "one text, milliseconds" in nothing.render()
