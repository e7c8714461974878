"""The playground: its files, what they may load, and every tab in a browser, by mouse and by keyboard."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from bertkit import BertForSequenceClassification
from bertkit.server.playground.pages import PATHS
from browser_helpers import CHROMIUM, Page, browser
from pipeline_helpers import save_tiny
from server_helpers import LABELS, ask, save_models, serving

in_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
FOLDER = files("bertkit.server.playground")
#: Of the page: the result of the tab that is open.
RESULT = "document.querySelector('.result')"
METHOD = "document.querySelector('.ask select[name=by]')"
#: What a tab shows of its example, for the tiny models: by task, a part of the text of its result.
SHOWN = {
    "classify": "Labels by probability",
    "explain": "Each word was masked in turn",
    "tag": "Entities",
    "redact": "What was replaced",
    "answer": "Answers, the most probable first",
    "choose": "Choices",
    "fill-mask": "Guesses",
    "next-sentence": "The model says",
    "rerank": "Documents, the most relevant first",
    "zero-shot": "Labels",
    "similarity": "Cosine similarity",
    "map": "Trustworthiness",
    "attention": "Layer 2 of 2, 4 heads",
    "embed": "32 numbers",
    "tokenize": "Word",
}
#: Texts that the tiny models read.
WRITTEN = {
    "input": "a good film and the end", "pair": "", "first": "a good film", "follows": "the end",
    "labels": "good, bad", "question": "was it good", "context": "the film was good", "query": "a film",
    "choices": "it was good\nit was bad", "lines": "a good film\nthe dull end\na bad scene\na great start",
}  # fmt: skip


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(*save_models(tmp_path_factory.mktemp("models")), playground=True) as (_, found):
        yield found


def test_the_files_are_served_with_a_strict_policy(address: str) -> None:
    here = {file.name for file in FOLDER.iterdir() if file.name.endswith((".html", ".js", ".css"))}
    assert here == set(PATHS.values())
    for path, name in PATHS.items():
        reply = ask(address, path)
        assert reply.status == 200
        assert reply.body == FOLDER.joinpath(name).read_bytes()
        assert reply.headers["content-security-policy"].startswith("default-src 'self'; ")
        assert "unsafe" not in reply.headers["content-security-policy"]
        assert reply.headers["x-content-type-options"] == "nosniff"
        kind = {"html": "text/html", "css": "text/css", "js": "text/javascript"}[name.rpartition(".")[2]]
        assert reply.headers["content-type"] == f"{kind}; charset=utf-8"
    assert ask(address, "/playground/pages.py").status == 404
    assert ask(address, "/playground", {}).status in (404, 405)


def test_the_files_name_no_other_host_and_no_inline_code() -> None:
    for name in PATHS.values():
        text = FOLDER.joinpath(name).read_text(encoding="utf-8")
        assert set(re.findall(r"https?://[^\"'`\s]*", text)) <= {"http://www.w3.org/2000/svg"}
        assert not re.search(r"\s(on\w+|style)=\"", text)
        for loaded in re.findall(r'from "\./([^"]+)"', text):
            assert loaded in PATHS.values()


def test_nothing_is_there_unless_asked(server: Any) -> None:
    for path in PATHS:
        assert ask(server.address, path).status == 404


def test_with_a_key_the_page_comes_and_the_models_do_not(tmp_path: Path) -> None:
    with serving(*save_models(tmp_path, ("vectors",)), playground=True, api_key="secret") as (_, address):
        assert {ask(address, path).status for path in PATHS} == {200}
        assert ask(address, "/v1/info").status == 401
        if CHROMIUM is None:
            return
        with browser(tmp_path / "profile") as page:
            page.open(f"{address}/playground")
            page.wait("document.activeElement.id === 'secret'")
            page.write("wrong")
            page.press("Enter")
            page.wait("document.getElementById('server').textContent.includes('key is needed')")
            page.write("secret")
            page.press("Enter")
            page.wait("document.querySelectorAll('#models [role=tab]').length === 1")
            assert page.value("document.querySelector('.same code').textContent").count("Bearer $KEY") == 1
            assert page.value("JSON.stringify({...localStorage, ...sessionStorage}) + document.cookie") == "{}"


def opened(page: Page, address: str, **options: Any) -> None:
    page.open(f"{address}/playground", **options)
    page.wait("document.querySelectorAll('#models [role=tab]').length > 0")


def names(page: Page, within: str) -> list[str]:
    found: list[str] = page.value(f"[...document.querySelectorAll('{within} [role=tab]')].map((b) => b.dataset.name)")
    return found


def choose(page: Page, within: str, name: str) -> None:
    page.value(f"document.querySelector('{within} [role=tab][data-name=\"{name}\"]').click()")


def ran(page: Page) -> str:
    """The text of the result, once it is there."""
    page.wait(f"{RESULT}.children.length > 0 && {RESULT}.ariaBusy === 'false'")
    text: str = page.value(f"{RESULT}.innerText")
    return text


def write_fields(page: Page, task: str) -> None:
    own = {
        "fill-mask": {"input": "the [MASK] film"},
        "redact": {"labels": ""},
        "explain": {"word": "film", "label": "", "pair": "the end was good"},
    }.get(task, {})
    for name in page.value("[...document.querySelectorAll('.ask textarea, .ask input[type=text]')].map((f) => f.name)"):
        page.value(f"document.querySelector('.ask [name={name}]').focus()")
        page.write({**WRITTEN, **own}[name])


def check_quiet(page: Page, address: str) -> None:
    """Nothing went wrong, and nothing was asked of anybody else."""
    assert page.problems == []
    assert [url for url in page.requests if not url.startswith((f"{address}/", "data:"))] == []


@in_browser
@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [pytest.param(1280, False, marks=pytest.mark.campaign), (360, True)])
def test_every_tab(address: str, tmp_path: Path, width: int, dark: bool) -> None:
    seen = set()
    with browser(tmp_path / "profile") as page:
        opened(page, address, width=width, dark=dark)
        for model in names(page, "#models"):
            choose(page, "#models", model)
            for task in names(page, ".tasks"):
                if task in seen and model != "labels" and task != "explain":
                    continue
                seen.add(task)
                choose(page, ".tasks", task)
                write_fields(page, task)
                page.press("Control+Enter")
                assert SHOWN[task] in ran(page), (model, task, page.value(f"{RESULT}.innerText"))
                assert page.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
                said = page.value("[...document.querySelectorAll('.same code')].map((code) => code.textContent)")
                assert said[0].startswith(f"curl {address}/v1/")
                assert f'"model":"{model}"' in said[0]
                assert all(said)
                assert ("There is no command" in said[2]) == (task in ("choose", "tokenize"))
        assert seen == set(SHOWN)
        check_quiet(page, address)


@in_browser
@pytest.mark.slow
def test_by_keyboard_alone(address: str, tmp_path: Path) -> None:
    focused = (
        "(({id, name, dataset, textContent}) => dataset.name || name || id || textContent)(document.activeElement)"
    )
    with browser(tmp_path / "profile") as page:
        opened(page, address)
        page.press("Tab", "Tab")
        assert page.value(focused) == "labels"  # the first model
        page.press("End", "Home")
        assert page.value(focused) == "labels"
        page.press("Tab")
        assert page.value(focused) == "classify"
        while page.value(focused) != "explain":
            page.press("ArrowRight")
        page.press("Tab")
        assert page.value(focused) == "Example 1"
        page.press("Tab", "Enter", "Tab", "Tab")
        assert page.value(focused) == "input"
        page.write("the film is great")
        page.press("Control+Enter")
        assert "Each word was masked in turn" in ran(page)
        # In a field of one line, Enter does it.
        page.press("Tab")
        assert page.value(focused) == "pair"
        page.write("not bad")
        page.press("Enter")
        page.wait(f"{RESULT}.innerText.includes('bad')")
        # The focus is always to be seen.
        for _ in range(6):
            page.press("Tab")
            assert page.value("getComputedStyle(document.activeElement).outlineStyle") != "none"
        # Attention: arrow keys move from piece to piece.
        choose(page, ".tasks", "attention")
        page.value("document.querySelector('.ask textarea').focus()")
        page.press("Control+Enter")
        ran(page)
        page.value(f"{RESULT}.querySelector('.from button').focus()")
        page.press("ArrowDown", "ArrowDown")
        assert page.value(f"{RESULT}.querySelectorAll('[aria-pressed=true]').length") == 1
        assert "attends to:" in page.value(f"{RESULT}.querySelector('.said').textContent")
        check_quiet(page, address)


@pytest.mark.campaign
@in_browser
@pytest.mark.slow
def test_failures_and_what_was_cut_are_said(address: str, tmp_path: Path) -> None:
    with browser(tmp_path / "profile") as page:
        opened(page, address)
        field = "document.querySelector('.ask textarea').focus()"
        page.value(field)
        page.write("film " * 100)
        page.press("Control+Enter")
        assert "422 too_long: " in ran(page)
        page.value("document.querySelector('.ask [name=overflow]').value = 'truncate'")
        page.value(field)
        page.press("Control+Enter")
        page.wait(f"{RESULT}.innerText.includes('Truncated: the end of 1 text was not read')")
        page.value(field)
        page.write("<b>a good film</b> & </script>")
        page.press("Control+Enter")
        ran(page)
        assert page.value("document.querySelectorAll('.same b').length") == 0
        page.problems = [each for each in page.problems if "status of 422" not in each]
        check_quiet(page, address)


@pytest.mark.campaign
@in_browser
@pytest.mark.slow
def test_explained_by_gradients(address: str, tmp_path: Path) -> None:
    with browser(tmp_path / "profile") as page:
        opened(page, address, width=360)
        choose(page, "#models", "labels")
        choose(page, ".tasks", "explain")
        write_fields(page, "explain")
        page.value(f"{METHOD}.value = 'gradients'; {METHOD}.dispatchEvent(new Event('input', {{ bubbles: true }}))")
        page.press("Control+Enter")
        text = ran(page)
        assert "The gradients add up to the difference with an error of" in text
        assert "Drop of the logit without it" in text
        assert page.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        curl, python, _ = page.value("[...document.querySelectorAll('.same code')].map((code) => code.textContent)")
        found = ask(address, "/v1/explain", json.loads(shlex.split(curl)[-1])).results
        assert f"has the logit {found['score']:.3f}" in text
        assert python.startswith("# Needs torch.\nfrom bertkit.visualize import explain")
        check_quiet(page, address)


@pytest.mark.campaign
@in_browser
@pytest.mark.slow
def test_thresholds_of_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Moving a slider changes what the model gives, and the calls below; those give the same."""
    folder = tmp_path / "models"
    models = save_models(folder, ("labels",))
    several = save_tiny(
        folder / "several", BertForSequenceClassification, problem_type="multi_label_classification", **LABELS
    )
    with (
        serving(*models, f"several={several}", playground=True, thresholds=("several:dull=0.9",)) as (_, address),
        browser(tmp_path / "profile") as page,
    ):
        opened(page, address)
        slider = "[...document.querySelectorAll('.shares input')].find((each) => each.dataset.name === '{}')".format

        def move(label: str, to: str) -> None:
            page.value(f"{slider(label)}.focus()")
            page.press(to)  # End: 1, Home: 0

        def given(text: str) -> dict[str, Any]:
            """What the page shows, and what its calls give."""
            page.wait(f"{RESULT}.ariaBusy === 'false' && {RESULT}.innerText.includes('{text}')")
            curl, python, command = page.value(
                "[...document.querySelectorAll('.same code')].map((code) => code.textContent)"
            )
            body = json.loads(shlex.split(curl)[-1])
            found: dict[str, Any] = ask(address, "/v1/classify", body).body
            capsys.readouterr()
            exec(python.replace('model="', f'model="{folder}/'), {})  # the page knows names, not places
            said = ast.literal_eval(capsys.readouterr().out.splitlines()[-1] if "least" in python else "''")
            return {**body, **found, "said": said, "command": command}

        page.value("document.querySelector('.ask textarea').focus()")
        page.write("a good film and the end")
        page.press("Control+Enter")
        first = given("The model gives: ")
        (best,) = first["chosen"]
        assert "thresholds" not in first
        move(best, "End")
        after = given("The model abstains")
        assert after["thresholds"] == {best: 1}
        assert (after["chosen"], after["abstained"], after["said"]) == ([None], [True], None)
        assert f"--thresholds {best}=1" in after["command"]
        assert page.value("document.querySelectorAll('.result tr.below').length") == 3
        move(best, "Home")
        assert given(f"The model gives: {best}")["chosen"] == [best]
        choose(page, "#models", "several")
        page.wait("document.querySelectorAll('.shares input').length === 3")
        assert page.value(f"{slider('dull')}.value") == "0.9"  # as whoever runs the server has set it
        page.value("document.querySelector('.ask textarea').focus()")
        page.write("a good film and the end")
        page.press("Control+Enter")
        first = given("The model")
        assert sorted(first["said"]) == sorted(first["chosen"][0])
        for label in LABELS["id2label"].values():
            move(label, "Home")
        after = given("The model gives: bad, good, dull")
        assert after["chosen"] == [["bad", "good", "dull"]]
        for label in LABELS["id2label"].values():
            move(label, "End")
        after = given("The model abstains")
        assert (after["chosen"], after["said"]) == ([[]], [])
        check_quiet(page, address)


@pytest.mark.campaign
@in_browser
@pytest.mark.slow
def test_models_that_are_not_loaded(tmp_path: Path) -> None:
    with (
        serving(*save_models(tmp_path, ("vectors",)), playground=True, lazy=True) as (_, address),
        browser(tmp_path / "profile") as page,
    ):
        opened(page, address)
        assert "It is not loaded." in page.value("document.getElementById('model').innerText")
        page.value("document.querySelector('#model button').click()")
        page.wait("document.querySelectorAll('.tasks [role=tab]').length > 0")
