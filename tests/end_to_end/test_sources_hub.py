"""Hub names, against a real HTTP server on this machine that answers as the Hub does; the client runs on its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from adapter_helpers import by_hand
from bertkit import BertConfig, BertModel
from bertkit.errors import CheckpointError, InputError
from bertkit.system.model_sources import resolve
from hub_helpers import COMMIT, NO_FILE, NO_REPOSITORY, NO_REVISION, Answer, HubServer, client, etag, file_of

REPOSITORY = "tester/tiny-bert"


class ModelHub(HubServer):
    """One repository of a model, and names that fail."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        super().__init__()

    def answer(self, parts: list[str]) -> Answer:
        if parts[:2] == ["api", "models"]:
            name, rest = "/".join(parts[2:4]), parts[4:]
            if name == "tester/gated":
                return 403, {"X-Error-Code": "GatedRepo"}, b"{}"
            if name == "tester/broken":
                return 500, {}, b"{}"
            if name != REPOSITORY:
                return NO_REPOSITORY
            if rest[:1] == ["revision"] and rest[1] not in ("main", COMMIT):
                return NO_REVISION
            if rest[:1] == ["tree"]:
                tree = [{"type": "file", "path": n, "size": len(c), "oid": etag(c)} for n, c in self.files.items()]
                return 200, {"Content-Type": "application/json"}, json.dumps(tree).encode()
            info = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in self.files]}
            return 200, {"Content-Type": "application/json"}, json.dumps(info).encode()
        if "/".join(parts[:2]) == REPOSITORY and parts[2] == "resolve" and "/".join(parts[4:]) in self.files:
            return file_of(self.files["/".join(parts[4:])])
        return NO_FILE


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("upload")
    config = BertConfig(
        vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=8,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    files["vocab.txt"] = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\n"
    files["1_Pooling/config.json"] = b"{}"
    files["pytorch_model.bin"] = b"never fetched" * 100
    files["onnx/model.safetensors"] = b"never fetched either"
    return files


@pytest.fixture
def hub(repository: dict[str, bytes]) -> Iterator[ModelHub]:
    server = ModelHub(repository)
    yield server
    server.stop()


LOAD = f"""
from bertkit import BertModel
print(BertModel.from_pretrained({REPOSITORY!r}).num_parameters())
"""
RESOLVE = f"""
from bertkit.system.model_sources import resolve
import sys
path = resolve({REPOSITORY!r})
print(sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()))
assert "torch" not in sys.modules
"""


def failure(name: str, error: str = "CheckpointError", more: str = "") -> str:
    """Code that prints the message of the error it expects."""
    return f"""
from bertkit.system.model_sources import resolve
from bertkit.errors import {error}
try:
    resolve({name!r}{more})
except {error} as error:
    print(error)
"""


def test_a_model_is_fetched_once_and_used_again_without_the_server(hub: ModelHub, tmp_path: Path) -> None:
    first = client(LOAD, tmp_path, hub.url)
    assert first.returncode == 0, first.stderr
    assert int(first.stdout) == 9 * 8 + 8 * 8 + 2 * 8 + 16 + (4 * (64 + 8) + 16) + (2 * 64 + 16 + 16) + 72
    hub.stop()
    offline = client(LOAD, tmp_path, hub.url, HF_HUB_OFFLINE="1")
    assert offline.returncode == 0, offline.stderr
    assert offline.stdout == first.stdout
    unplugged = client(LOAD, tmp_path, hub.url)  # the server is gone, the cache is not
    assert unplugged.stdout == first.stdout, unplugged.stderr


def test_only_weights_configs_and_vocabularies_are_fetched(hub: ModelHub, tmp_path: Path) -> None:
    ran = client(RESOLVE, tmp_path, hub.url, fresh=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "['1_Pooling/config.json', 'config.json', 'model.safetensors', 'vocab.txt']"
    assert not any("pytorch_model" in path or "onnx" in path for path in hub.asked)


def test_files_narrow_what_is_fetched(hub: ModelHub, tmp_path: Path) -> None:
    code = (
        "from bertkit.system.model_sources import resolve; "
        f"print(len(list(resolve({REPOSITORY!r}, files=['vocab.txt']).iterdir())))"
    )
    assert client(code, tmp_path, hub.url).stdout.strip() == "1"
    whole = client(LOAD, tmp_path, hub.url)  # a snapshot with some files is completed, not taken for whole
    assert whole.returncode == 0, whole.stderr


def test_the_config_of_an_adapter(repository: dict[str, bytes], tmp_path: Path) -> None:
    """It has none: it is that of its model, with the labels of its own head."""
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "base").mkdir(exist_ok=True)
        (tmp_path / "base" / name).write_bytes(repository[name])
    head = {"classifier.weight": torch.zeros(5, 8), "classifier.bias": torch.zeros(5)}
    by_hand(tmp_path / "adapter", tmp_path / "base", modules={}, head=head)
    server = ModelHub({file.name: file.read_bytes() for file in (tmp_path / "adapter").iterdir()})
    code = f"""
from bertkit import BertConfig
config = BertConfig.from_pretrained({REPOSITORY!r})
print(config.num_labels, config.hidden_size)
"""
    ran = client(code, tmp_path, server.url)
    server.stop()
    assert ran.stdout.split() == ["5", "8"], ran.stderr


def test_a_partly_cached_model_is_not_taken_for_whole_offline(hub: ModelHub, tmp_path: Path) -> None:
    client(
        f"from bertkit.system.model_sources import resolve; resolve({REPOSITORY!r}, files=['vocab.txt'])",
        tmp_path,
        hub.url,
    )
    ran = client(failure(REPOSITORY), tmp_path, hub.url, HF_HUB_OFFLINE="1")
    assert "HF_HUB_OFFLINE" in ran.stdout, ran.stderr


def test_a_revision_can_be_named(hub: ModelHub, tmp_path: Path) -> None:
    ran = client(
        f"from bertkit.system.model_sources import resolve; print(resolve({REPOSITORY!r}, revision={COMMIT!r}).name)",
        tmp_path,
        hub.url,
    )
    assert ran.stdout.strip() == COMMIT, ran.stderr
    ran = client(failure(REPOSITORY, more=", revision='v9'"), tmp_path, hub.url)
    assert "has no revision 'v9'" in ran.stdout, ran.stderr


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("tester/nobody", "CheckpointError", "and no repository 'tester/nobody' on http"),
        ("runs/x", "CheckpointError", "no folder or file 'runs/x' (looked in"),
        ("tester/gated", "CheckpointError", "gated"),
        ("tester/broken", "ResourceError", "cannot be downloaded from http"),
    ],
)
def test_what_the_hub_refuses_is_told(hub: ModelHub, tmp_path: Path, name: str, error: str, said: str) -> None:
    ran = client(failure(name, error), tmp_path, hub.url)
    assert said in ran.stdout, ran.stderr
    assert "no folder or file" in ran.stdout


def test_offline_and_not_cached(hub: ModelHub, tmp_path: Path) -> None:
    ran = client(failure(REPOSITORY), tmp_path, hub.url, HF_HUB_OFFLINE="1")
    told = ran.stdout.splitlines()
    assert len(told) == 3, ran.stderr
    assert f"does not hold all of {REPOSITORY!r}; HF_HUB_OFFLINE forbids downloading it." in told[0]
    assert told[1] == "Download it on a machine with a connection, and pass the path of the folder:"
    assert told[2] == f"  hf download {REPOSITORY} --local-dir {REPOSITORY.rpartition('/')[2]}"
    assert not hub.asked, "offline means no connection"


def test_no_server_and_not_cached(hub: ModelHub, tmp_path: Path) -> None:
    hub.stop()
    ran = client(failure(REPOSITORY, "ResourceError"), tmp_path, hub.url)
    told = ran.stdout.splitlines()
    assert len(told) == 4, ran.stderr
    assert "no folder or file" in told[0]
    assert told[1].startswith(f"It cannot be downloaded from {hub.url}: ")
    assert told[3] == f"  hf download {REPOSITORY} --local-dir {REPOSITORY.rpartition('/')[2]}"


def test_a_proxy_that_is_no_address_is_an_error_of_the_setting(hub: ModelHub, tmp_path: Path) -> None:
    ran = client(failure(REPOSITORY, "ConfigError"), tmp_path, hub.url, HTTP_PROXY="::junk::", HTTPS_PROXY="::junk::")
    assert "the address of a proxy or of the Hub is invalid" in ran.stdout, ran.stderr
    assert "check HTTPS_PROXY" in ran.stdout


@pytest.mark.parametrize(
    "name", ["./nope", "/no/such/folder", "a/b/c", "~/nope", "~typo/run", "model.safetensors", "x\\y", "a..b", "-x"]
)
def test_what_looks_like_a_path_never_reaches_the_hub(name: str) -> None:
    with pytest.raises(CheckpointError, match=r"no folder or file .* cannot be a name on the Hub"):
        resolve(name)


def test_a_near_name_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "sst2-run").mkdir()
    with pytest.raises(CheckpointError, match=r"did you mean 'sst2-run'"):
        resolve(tmp_path / "sst2-rnu")


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_a_name_that_names_nothing(name: str) -> None:
    with pytest.raises(InputError, match="named by a folder"):
        resolve(name)


def test_local_paths_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(b"")
    assert resolve(tmp_path) == tmp_path
    assert resolve(str(file)) == file
    assert resolve(tmp_path, revision="main") == tmp_path
    with pytest.raises(CheckpointError, match="has no revisions"):
        resolve(tmp_path, revision="v2")


def test_a_name_too_long_for_the_file_system() -> None:
    with pytest.raises(CheckpointError, match="cannot be a name on the Hub"):
        resolve("x" * 5000)
