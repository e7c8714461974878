"""The runtimes that can be measured, and the choice among them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from bertkit.engine.backend import Precision
from bertkit.errors import ConfigError, MissingExtraError, did_you_mean
from bertkit.system.processor import Processor

PEERS_FOLDER = Path(__file__).with_name("peers")
#: Arithmetic of a runtime; auto: what bertkit chooses by itself, with answers as in fp32.
PRECISIONS: tuple[str, ...] = get_args(Precision)


@dataclass(frozen=True, slots=True)
class Runtime:
    """Software that runs a model, and the packages it needs; bertkit itself needs its last one for exports only.

    int8_packages: those that int8 needs besides.
    """

    name: str
    packages: tuple[str, ...]
    precisions: tuple[str, ...]
    int8_packages: tuple[str, ...] = ()

    @property
    def script(self) -> Path:
        """What is run as a process; see ``peers/peer.py``."""
        return PEERS_FOLDER / f"run_{self.name}.py"


BERTKIT = Runtime("bertkit", ("bertkit", "torch", "onnxruntime"), PRECISIONS)
PEERS = {
    peer.name: peer
    for peer in (
        Runtime("onnxruntime", ("onnxruntime", "onnx", "transformers", "torch"), ("fp32", "int8")),
        Runtime("openvino", ("openvino", "onnx", "transformers", "torch"), ("fp32", "bf16", "int8"), ("nncf",)),
        Runtime("ctranslate2", ("ctranslate2", "transformers", "torch"), ("fp32", "int8")),
        Runtime("transformers", ("transformers", "torch"), ("fp32", "bf16")),
    )
}


@dataclass(frozen=True, slots=True)
class Mode:
    """A runtime with one of its precisions."""

    runtime: Runtime
    precision: str

    @property
    def is_ours(self) -> bool:
        """Whether it is bertkit."""
        return self.runtime is BERTKIT

    def __str__(self) -> str:
        return f"{self.runtime.name} {self.precision}"


#: Why :data:`INT8` is left out or refused where no folder is given.
NEEDS_INT8 = "it needs the model in 8 bits: make it with 'bertkit quantize', and give its folder as --int8"
#: What every other mode is compared with.
REFERENCE = Mode(BERTKIT, "fp32")
#: What bertkit does unless it is told otherwise.
DEFAULT = Mode(BERTKIT, "auto")
#: The model that ``bertkit quantize`` made of the one that is measured.
INT8 = Mode(BERTKIT, "int8")


@dataclass(frozen=True, slots=True)
class Choice:
    """What is measured: modes, the reference first; versions of packages; peers and modes that lack packages."""

    modes: tuple[Mode, ...]
    versions: dict[str, dict[str, str]]
    absent: tuple[str, ...]


def choose(
    against: Sequence[str] | None,
    precisions: Sequence[str] | None,
    python: str,
    processor: Processor,
    *,
    has_int8: bool = False,
) -> Choice:
    """The modes to measure, the reference among them; without bf16 products bf16 is left out, or refused."""
    for name in against or ():
        if name not in PEERS:
            raise ConfigError(f"unknown runtime {name!r}{did_you_mean(name, PEERS)}; known: {', '.join(PEERS)}")
    wanted = _wanted_precisions(precisions, processor, has_int8=has_int8)
    peers = [PEERS[name] for name in (PEERS if against is None else dict.fromkeys(against))]
    found = _versions(python, peers)
    missing = _missing(peers, wanted, found)
    absent = tuple(missing)
    if against is not None and absent:
        packages = sorted({package for packages in missing.values() for package in packages})
        raise MissingExtraError(
            f"comparing with {', '.join(absent)} needs {', '.join(packages)}, not installed for {python}. Run: "
            f"{python} -m pip install {' '.join(packages)}"
        )
    runtimes = [BERTKIT, *(peer for peer in peers if peer.name not in absent)]
    modes = [Mode(runtime, each) for runtime in runtimes for each in runtime.precisions if each in wanted]
    modes = [mode for mode in modes if str(mode) not in absent]
    versions = {"bertkit": _versions(sys.executable, [BERTKIT]), "peers": found}
    return Choice(tuple(dict.fromkeys([REFERENCE, *modes])), versions, absent)


def _wanted_precisions(precisions: Sequence[str] | None, processor: Processor, *, has_int8: bool) -> list[str]:
    for name in precisions or ():
        if name not in PRECISIONS:
            raise ConfigError(
                f"unknown precision {name!r}{did_you_mean(name, PRECISIONS)}; known: {', '.join(PRECISIONS)}"
            )
    if "bf16" in (precisions or ()) and not processor.has_bf16:
        raise ConfigError(f"precision bf16: this processor cannot multiply in bfloat16: {processor}")
    if precisions is not None and has_int8 != ("int8" in precisions):
        lack = "there is a model in 8 bits, but int8 is not among the precisions; add it, or leave out --int8"
        raise ConfigError(lack if has_int8 else f"precision int8: {NEEDS_INT8}")
    return [name for name in precisions or PRECISIONS if name != "bf16" or processor.has_bf16]


def _missing(peers: Sequence[Runtime], wanted: Sequence[str], found: Mapping[str, str]) -> dict[str, list[str]]:
    """The packages that each peer lacks, or its int8 alone; without those that lack none."""
    missing = {}
    for peer in peers:
        packages = (*peer.packages, *(peer.int8_packages if "int8" in wanted else ()))
        if lacking := [package for package in packages if package not in found]:
            only_int8 = set(lacking) <= set(peer.int8_packages)
            missing[str(Mode(peer, "int8")) if only_int8 else peer.name] = lacking
    return missing


def _versions(python: str, peers: Sequence[Runtime]) -> dict[str, str]:
    names = sorted({package for peer in peers for package in (*peer.packages, *peer.int8_packages)})
    if not names:
        return {}
    try:
        done = subprocess.run(
            [python, str(PEERS_FOLDER / "versions.py"), *names], capture_output=True, text=True, check=True
        )
        found: dict[str, str | None] = json.loads(done.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        raise ConfigError(f"{python} is not a Python interpreter that runs here: {error}") from None
    return {name: version for name, version in found.items() if version is not None}
