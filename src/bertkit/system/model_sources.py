"""Find a model: a path is used as it is, a Hub name is fetched once and cached, one name is that of the included model.

Nothing else in the package opens a connection to fetch weights or vocabularies. ``huggingface_hub`` honours ``HF_HOME``
(the cache), ``HF_ENDPOINT`` (the server) and ``HF_HUB_OFFLINE=1`` (no connections); it is imported only for names that
are not local paths.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bertkit.errors import CheckpointError, ConfigError, InputError, ResourceError, did_you_mean
from bertkit.system.paths import looked_in, user_path
from bertkit.system.untrusted_files import is_there, read_object

#: The weights of a folder ``RUN/heads/NAME`` that holds a head alone, whose encoder is the model in ``RUN``.
HEAD, HEADS = "head.safetensors", "heads"
#: Files fetched from a Hub repository: safetensors (also of the modules of sentence-transformers), configs,
#: vocabularies. Never pickles, never code.
HUB_FILES = (
    "model*.safetensors",
    "adapter_model*.safetensors",
    "*.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "*/config.json",
    f"{HEADS}/*/{HEAD}",
    "*_Dense/model.safetensors",
    "*_LayerNorm/model.safetensors",
    "*_StaticEmbedding/model.safetensors",
)

#: The file of a folder that holds no model but what changes another one, and says which; the format is that of peft.
ADAPTER = "adapter_config.json"
MAX_ADAPTER_BYTES = 4_000_000

#: The model that comes with the package, and its folder.
INCLUDED = "bertkit-tiny-en"
INCLUDED_FOLDER = Path(__file__).resolve().parents[1] / "included" / INCLUDED

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.\-]{0,95}(/[A-Za-z0-9][\w.\-]{0,95})?")


def resolve(name_or_path: str | Path, *, files: Sequence[str] | None = None, revision: str | None = None) -> Path:
    """Find a model or tokenizer by path or by Hub name.

    Existing paths come first (``~`` is expanded), then :data:`INCLUDED`; only other names are looked up on the Hub.
    ``files`` are patterns of what to fetch from there; None: :data:`HUB_FILES`.
    """
    name = os.fspath(name_or_path)
    if not name or "\0" in name:
        raise InputError(f"a model is named by a folder, a file or a Hub name; got {name!r}")
    path = user_path(name)
    if (is_local := _exists(path)) or name == INCLUDED:
        if revision not in (None, "main"):
            what = f"{path} is a local path" if is_local else f"{INCLUDED} comes with bertkit"
            raise CheckpointError(f"{what} and has no revisions; got revision={revision!r}, leave it out")
        return path if is_local else included_model()
    if not _HUB_NAME.fullmatch(name) or ".." in name or "--" in name or name.endswith((".safetensors", ".json")):
        raise CheckpointError(f"{_no_such_path(path)}, and {name!r} cannot be a name on the Hub (owner/name) either")
    from huggingface_hub import snapshot_download

    patterns = list(files or HUB_FILES)
    with hub_errors(name, revision, _no_such_path(path)):
        return Path(snapshot_download(name, allow_patterns=patterns, revision=revision, library_name="bertkit"))


def adapted_model(folder: Path) -> Path | None:
    """The model that the adapter or the head in a folder is for; None if there is neither."""
    if is_there(folder / HEAD):
        return folder.absolute().parent.parent
    file = folder / ADAPTER
    if not is_there(file):
        return None
    said = read_object(file, max_bytes=MAX_ADAPTER_BYTES)
    name, revision = said.get("base_model_name_or_path"), said.get("revision")
    if not isinstance(name, str) or not name:
        raise CheckpointError(f"{file}: base_model_name_or_path does not name the model that the adapter is for")
    try:
        return resolve(name, revision=str(revision) if revision is not None and is_of_hub(name) else None)
    except CheckpointError as error:
        raise CheckpointError(
            f"{folder} is an adapter for the model {name!r}, which is not there: {error}. If it was moved, change "
            f"base_model_name_or_path in {file}"
        ) from None


def adapted_folder(folder: Path) -> Path:
    """The folder of the model that the adapter in a folder changes; without an adapter the folder itself."""
    model = adapted_model(folder)
    return folder if model is None else model if model.is_dir() else model.parent


def is_of_hub(name: str | Path) -> bool:
    """Whether a name that :func:`resolve` accepts is one on the Hub: neither a path nor the included model."""
    return os.fspath(name) != INCLUDED and not _exists(user_path(name))


def included_model() -> Path:
    """The folder of the included model; CheckpointError if whoever packaged bertkit has left it out."""
    if not (INCLUDED_FOLDER / "config.json").is_file():
        raise CheckpointError(
            f"this installation of bertkit lacks its model {INCLUDED}, which should be in {INCLUDED_FOLDER}. Install "
            "it again (pip install --force-reinstall --no-deps bertkit-lite), or name another model: a folder or a Hub "
            "name"
        )
    return INCLUDED_FOLDER


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name too long for the file system, a loop of links
        return False


def _no_such_path(path: Path) -> str:
    """A message that nothing is there, with the most similar name in that folder, or that of the included model."""
    try:
        known = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        known = []
    if "bertkit" in path.name.casefold():
        known.append(INCLUDED)
    return f"no folder or file {str(path)!r}{looked_in(path)}{did_you_mean(path.name, known)}"


@contextmanager
def hub_errors(name: str, revision: str | None, not_here: str, *, what: str = "repository") -> Iterator[None]:
    """Turn the errors of ``huggingface_hub`` into ours; ``not_here`` says that there is no such local path."""
    from huggingface_hub import constants, errors

    hub = constants.ENDPOINT
    http_error, invalid_url = http_errors()
    try:
        yield
    except errors.RevisionNotFoundError:
        raise CheckpointError(f"the Hub {what} {name!r} has no revision {revision!r} ({hub})") from None
    except errors.GatedRepoError:
        raise CheckpointError(
            f"the Hub {what} {name!r} is gated: request access on its page and log in (hf auth login); {not_here}"
        ) from None
    except errors.RepositoryNotFoundError:
        raise CheckpointError(
            f"{not_here}, and no {what} {name!r} on {hub} that you may read. Check the spelling; a private one needs a "
            "login (hf auth login)"
        ) from None
    except errors.HFValidationError as error:
        raise CheckpointError(f"{not_here}, and not a valid name on the Hub: {error}") from None
    except errors.LocalEntryNotFoundError as error:
        missing = f"{not_here}, and the Hub cache {constants.HF_HUB_CACHE} does not hold all of {name!r}"
        advice = _elsewhere(name, what)
        if constants.HF_HUB_OFFLINE:
            raise CheckpointError(f"{missing}; HF_HUB_OFFLINE forbids downloading it.\n{advice}") from None
        reason = first_line(error.__cause__ or error).rstrip(".")
        raise ResourceError(f"{missing}.\nIt cannot be downloaded from {hub}: {reason}.\n{advice}") from None
    except invalid_url as error:
        raise ConfigError(
            f"cannot download {name!r}: the address of a proxy or of the Hub is invalid ({first_line(error)}); check "
            "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and HF_ENDPOINT"
        ) from None
    except (OSError, http_error) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise ResourceError(f"cannot store {name!r} in {constants.HF_HUB_CACHE}: {error.strerror}") from error
        raise ResourceError(f"cannot download {name!r} from {hub}: {first_line(error)}") from error


def http_errors() -> tuple[type[Exception], type[Exception]]:
    """What the HTTP client of ``huggingface_hub``, whichever it is, raises: for any failure, for an invalid address."""
    from huggingface_hub import errors

    http_error: type[Exception] = getattr(errors, "HTTPError", OSError)
    client = sys.modules.get(http_error.__module__.partition(".")[0])
    return http_error, getattr(client, "InvalidURL", http_error)


def _elsewhere(name: str, what: str) -> str:
    kind = "" if what == "repository" else " --repo-type dataset"
    return (
        "Download it on a machine with a connection, and pass the path of the folder:\n"
        f"  hf download {name}{kind} --local-dir {name.rpartition('/')[2]}"
    )


def first_line(error: BaseException) -> str:
    """The type of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
