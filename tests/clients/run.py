"""Every client of this folder against a server with tiny models, each in an environment of its own: ``make clients``.

    python tests/clients/run.py [CLIENT ...]

Environments are made once, in build/clients, with the versions named here. The exit status says whether all are green.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from server_helpers import save_models, serving  # noqa: E402

ENVIRONMENTS = HERE.parents[1] / "build" / "clients"
#: Seconds for one of them; schemathesis sends a thousand requests.
TIMEOUT = 900
#: What pip installs for a program of this folder.
PACKAGES: Mapping[str, str] = {
    "openai": "openai==3.57.0",
    "huggingface": "huggingface-hub==2.4.0 numpy",
    "cohere": "cohere==7.3.1 numpy",
    "ollama": "ollama==0.6.3",
    "langchain_ollama": "langchain-ollama==1.1.0",
    "langchain_openai": "langchain-openai==1.7.4",
    "litellm": "litellm==1.110.2",
    "llama_index": "llama-index-embeddings-text-embeddings-inference==0.6.0 "
    "llama-index-postprocessor-tei-rerank==0.6.0",
    "haystack": "haystack-ai==3.4.1 huggingface-api-haystack==3.1.0",
    "rerankers": "rerankers==0.10.0 requests",
    "tei_http": "tei-client==0.2.4",
    "infinity_http": "infinity-client==0.0.78",
    "mcp": "mcp==2.3.0",
    "schemathesis": "schemathesis==4.32.5",
}
#: What npm installs for a program of the folder npm.
NPM: Mapping[str, str] = {
    "npm/openai": "openai@6.49.0",
    "npm/huggingface": "@huggingface/inference@4.13.30",
    "npm/cohere": "cohere-ai@8.1.0",
    "npm/ollama": "ollama@0.6.4",
}


def ready(name: str) -> Path:
    """The folder of a client's environment, made where it is not there yet."""
    packages = (PACKAGES.get(name) or NPM[name]).split()
    folder, stamp = ENVIRONMENTS / name, ENVIRONMENTS / name / "installed"
    if stamp.is_file() and stamp.read_text() == " ".join(packages):
        return folder
    if name in NPM:
        folder.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *packages]
    else:
        venv.create(folder, with_pip=True, clear=True)
        install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages]
    subprocess.run(install, check=True, capture_output=True, text=True)
    stamp.write_text(" ".join(packages))
    return folder


def program(name: str, address: str) -> list[str]:
    """The command that asks the server by a client."""
    if name in NPM:
        return ["node", str(HERE / f"{name}.mjs"), address]
    return [str(ENVIRONMENTS / name / "bin" / "python"), str(HERE / f"{name}_client.py"), address]


def main() -> None:
    """Run them, one line each."""
    failed = []
    with tempfile.TemporaryDirectory() as folder, serving(*save_models(Path(folder)), mcp=True) as (_, address):
        for name in sys.argv[1:] or [*PACKAGES, *NPM]:
            try:
                cwd = ready(name)
                done = subprocess.run(program(name, address), cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT)
                said, good = done.stdout + done.stderr, done.returncode == 0
            except (subprocess.SubprocessError, OSError) as error:
                said, good = f"{error} {getattr(error, 'stderr', '')}", False
            print(f"{name}: {'green' if good else 'FAILED'}", flush=True)
            if not good:
                failed.append(name)
                print(said, file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
