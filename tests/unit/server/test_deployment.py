"""The examples of deployment: each can be read by what it is for, and says nothing that the server does not know."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertkit import cli
from bertkit.server.dialects.table import routes
from bertkit.server.mcp import TOOLS
from bertkit.server.settings import PREFIX, ServeSettings
from linters import linters

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "serve"
FILES = {path.name: path.read_text() for path in FOLDER.iterdir()}
#: Paths that operations answer, beside those of the dialects.
OPERATIONS = {"/health", "/ready", "/metrics", "/admin/"}


def test_there_is_an_example_of_each() -> None:
    assert FILES.keys() == {"Dockerfile", "bertkit.service", "kubernetes.yaml", "nginx.conf", "README.md"}
    for name, text in FILES.items():
        assert len(text.splitlines()) <= 100, f"{name}: short"


def serve_options() -> set[str]:
    arguments = cli.build_app(("serve",))["serve"].assemble_argument_collection()
    return {name for argument in arguments for name in argument.names}


@pytest.mark.parametrize("name", FILES)
def test_options_and_settings_are_those_of_the_server(name: str) -> None:
    """In commands of ``bertkit serve`` and in comments, which also speak of ``--grace`` alone."""
    others = "--read-only --cap-drop --security-opt --from-file --no-cache-dir --find-links --start-period --now --from"
    others += " --model"  # of search build
    used = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", FILES[name])) - set(others.split())
    assert used <= serve_options()
    settings = {found.lower() for found in re.findall(rf"\b{PREFIX}([A-Z_]+)\b", FILES[name])}
    assert settings <= ServeSettings.model_fields.keys()


@pytest.mark.parametrize("name", ["Dockerfile", "kubernetes.yaml", "nginx.conf"])
def test_paths_are_those_of_the_server(name: str) -> None:
    known = OPERATIONS | {path for _, path in routes()}
    used = re.findall(r"(?:location |path: |:8080)(/[\w/]*)", FILES[name])
    assert used
    for path in set(used) - {"/"}:
        assert any(each.startswith(path) for each in known), path


def pods() -> tuple[Any, Any, Any]:
    deployment, service = yaml.safe_load_all(FILES["kubernetes.yaml"])
    return deployment["spec"]["template"]["spec"], deployment, service


def test_kubernetes_manifest() -> None:
    pod, deployment, service = pods()
    (container,) = pod["containers"]
    assert {deployment["kind"], service["kind"]} == {"Deployment", "Service"}
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    probes = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    assert probes == {"startup": "/ready", "readiness": "/ready", "liveness": "/health"}
    for name in probes:  # the Host header is checked, and that of a probe would be the pod's address
        assert {"name": "Host", "value": "localhost"} in container[f"{name}Probe"]["httpGet"]["httpHeaders"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"].keys() == container["resources"]["requests"].keys() == {"cpu", "memory"}
    arguments = container["args"]
    wait = int(container["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert pod["terminationGracePeriodSeconds"] > wait + int(arguments[arguments.index("--grace") + 1])
    assert arguments[arguments.index("--threads") + 1] == container["resources"]["limits"]["cpu"]
    mounts = {mount["name"] for mount in container["volumeMounts"] if mount["readOnly"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}


def test_dockerfile() -> None:
    lines = [line for line in FILES["Dockerfile"].replace("\\\n", " ").splitlines() if line and line[0] != "#"]
    said = [line.partition(" ")[::2] for line in lines]
    last = said[max(place for place, (word, _) in enumerate(said) if word == "FROM") :]
    found = dict(last)
    assert found["FROM"] == "python:3.12-slim"
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", found["USER"]), "a number, which Kubernetes can see is not root"
    assert "HF_HUB_OFFLINE=1" in found["ENV"]
    user, _, _ = found["USER"].partition(":")
    pod, _, _ = pods()
    assert pod["securityContext"]["runAsUser"] == int(user)
    assert pod["containers"][0]["ports"][0]["containerPort"] == int(found["EXPOSE"])
    assert f"BERTKIT_PORT={found['EXPOSE']}" in found["ENV"]


def test_systemd_unit(tmp_path: Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(FILES["bertkit.service"])
    service = unit["Service"]
    hardened = "DynamicUser NoNewPrivileges PrivateTmp PrivateDevices ProtectHome MemoryDenyWriteExecute".split()
    assert [service[name] for name in hardened] == ["yes"] * len(hardened)
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    words = service["ExecStart"].split()
    assert int(service["TimeoutStopSec"]) > int(words[words.index("--grace") + 1])
    if tool := shutil.which("systemd-analyze"):
        file = tmp_path / "bertkit.service"
        file.write_text(FILES["bertkit.service"].replace("/opt/bertkit/bin/bertkit serve", f"{sys.executable} serve"))
        done = subprocess.run([tool, "verify", "--man=no", file], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_nginx_keeps_administration_to_itself_and_buffers_no_lines() -> None:
    text = re.sub(r"#.*", "", FILES["nginx.conf"])
    assert text.count("{") == text.count("}")
    blocks = dict(re.findall(r"location (\S+) \{([^}]*)\}", text))
    assert "deny all" in blocks["/admin/"]
    for setting in ("client_max_body_size 0", "proxy_request_buffering off", "proxy_buffering off"):
        assert setting in blocks["/v1/bulk/"]
    assert "proxy_set_header Host $host" in text


LINTERS = [
    ["hadolint", "Dockerfile"],
    ["kubernetes-validate", "--strict", "kubernetes.yaml"],
    ["kubernetes-validate", "--strict", "../cluster/kubernetes.yaml"],
]


def linted(command: list[str], folder: Path = FOLDER) -> tuple[int, str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("command", [*LINTERS, ["kubeconform", "-strict", "kubernetes.yaml"]])
def test_linters_that_are_installed(command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed; the campaign installs those of PyPI")
    assert linted(command)[0] == 0, linted(command)[1]


@pytest.mark.campaign
@pytest.mark.parametrize(("name", "arguments"), [(name, arguments) for name, *arguments in LINTERS])
def test_linters_of_an_environment_of_their_own(tmp_path: Path, name: str, arguments: list[str]) -> None:
    tool = str(linters() / name)
    code, said = linted([tool, *arguments])
    assert code == 0, said
    text = (FOLDER / arguments[-1]).read_text()  # a control: both find what is wrong
    wrong = text.replace("USER 10001:10001", "RUN cd /tmp && sudo ls") if name == "hadolint" else f"{text}\nnone: 1\n"
    (tmp_path / "wrong").write_text(wrong)
    code, said = linted([tool, *arguments[:-1], str(tmp_path / "wrong")])
    assert code != 0, said


def test_nginx_reads_its_file(tmp_path: Path) -> None:
    tool = shutil.which("nginx")
    if tool is None:
        pytest.skip("nginx is not installed")
    text = re.sub(r"ssl_certificate\w* .*|( ssl http2)", "", FILES["nginx.conf"]).replace("443", "8443")
    whole = f"pid {tmp_path}/pid; error_log stderr; events {{}}\nhttp {{ access_log off;\n{text}}}\n"
    (tmp_path / "nginx.conf").write_text(whole)
    done = subprocess.run([tool, "-t", "-c", tmp_path / "nginx.conf"], capture_output=True, text=True, check=False)
    assert "syntax is ok" in done.stderr, done.stderr


def test_the_page_names_every_file_and_tool() -> None:
    page = FILES["README.md"]
    for name in FILES.keys() - {"README.md"}:
        assert f"`{name}`" in page
    for tool in TOOLS:
        assert f"`{tool}`" in page
