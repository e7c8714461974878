"""From what a user typed to a folder on this disk: a path stays as it is, a Hub name is fetched once and cached.

Nothing else in the package opens a connection to fetch weights or vocabularies. ``HF_HOME`` (where the cache is),
``HF_ENDPOINT`` (which server) and ``HF_HUB_OFFLINE=1`` (no connection at all) are honoured by ``huggingface_hub``,
which is imported only when a name is not a local path. Imports no torch.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bertkit.errors import CheckpointError, InputError, ResourceError, did_you_mean

#: What is fetched of a Hub repository: weights as safetensors, configs, vocabularies. Never a pickle, never code.
HUB_FILES = (
    "model*.safetensors",
    "*.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "*/config.json",
)

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.\-]{0,95}(/[A-Za-z0-9][\w.\-]{0,95})?")


def resolve(name_or_path: str | Path, *, files: Sequence[str] | None = None, revision: str | None = None) -> Path:
    """Find a model or tokenizer by path or by Hub name.

    Args:
        name_or_path: a folder, a single file, or a Hub name such as ``"bert-base-uncased"`` or ``"owner/name"``.
            What exists on disk is taken as a path; only other names are looked up on the Hub.
        files: file name patterns to fetch of a Hub repository, for example ``("vocab.txt", "*.json")``; None means
            :data:`HUB_FILES`. Does not matter for a local path.
        revision: branch, tag or commit on the Hub; None means ``main``.

    Returns:
        The path as given (``~`` expanded), or the folder in the Hub cache that holds the files.

    Raises:
        InputError: an empty name.
        CheckpointError: neither a local path nor a repository that the Hub knows and lets us read; also a name that
            is not in the cache while ``HF_HUB_OFFLINE`` is set; a ``revision`` for a local path.
        ResourceError: no connection, and nothing cached; disk full while fetching.
    """
    name = os.fspath(name_or_path)
    if not name or "\0" in name:
        raise InputError(f"a model is named by a folder, a file or a Hub name, got {name!r}")
    path = Path(name).expanduser()
    if _exists(path):
        if revision not in (None, "main"):
            raise CheckpointError(f"{path} is on this disk and has no revisions, got revision={revision!r}")
        return path
    if not _HUB_NAME.fullmatch(name) or ".." in name or "--" in name or name.endswith((".safetensors", ".json")):
        raise CheckpointError(f"{_no_such_path(path)}, and {name!r} cannot be a name on the Hub (owner/name) either")
    return _fetch(name, files or HUB_FILES, revision)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name too long for the file system, a loop of links
        return False


def _no_such_path(path: Path) -> str:
    """Says that nothing is there, and which neighbour has a similar name."""
    parent = path.parent
    try:
        near = did_you_mean(path.name, sorted(entry.name for entry in parent.iterdir()))
    except OSError:
        near = ""
    return f"there is no folder or file {str(path)!r} (looked in {Path.cwd()}){near}"


def _fetch(name: str, files: Sequence[str], revision: str | None) -> Path:
    from huggingface_hub import snapshot_download

    with hub_errors(name, revision, _no_such_path(Path(name))):
        return Path(snapshot_download(name, allow_patterns=list(files), revision=revision, library_name="bertkit"))


@contextmanager
def hub_errors(name: str, revision: str | None, not_here: str, *, what: str = "repository") -> Iterator[None]:
    """Say in our words why something of the Hub cannot be had.

    Args:
        name: of the repository, as it was given.
        revision: as it was given.
        not_here: why it is nothing on this disk either.
        what: the kind of repository.

    Raises:
        CheckpointError, ResourceError: see :func:`resolve`.
    """
    from huggingface_hub import constants, errors

    where = f"{name!r} is no local folder or file, and"
    hub = constants.ENDPOINT
    http_error: type[Exception] = getattr(errors, "HTTPError", OSError)  # of the HTTP client, whichever it is
    try:
        yield
    except errors.RevisionNotFoundError:
        raise CheckpointError(f"{where} the Hub {what} {name!r} has no revision {revision!r} ({hub})") from None
    except errors.GatedRepoError:
        raise CheckpointError(
            f"{where} the Hub {what} {name!r} is gated: ask for access on its page and log in (hf auth login)"
        ) from None
    except errors.RepositoryNotFoundError:
        raise CheckpointError(
            f"{where} the Hub at {hub} knows no {what} {name!r} that you may read; {not_here}. "
            "Check the spelling; a private one needs a log-in (hf auth login)"
        ) from None
    except errors.HFValidationError as error:
        raise CheckpointError(f"{where} it cannot be a name on the Hub either: {error}") from None
    except errors.LocalEntryNotFoundError as error:
        missing = f"{where} the Hub cache {constants.HF_HUB_CACHE} does not hold all of it"
        if constants.HF_HUB_OFFLINE:
            raise CheckpointError(f"{missing}; HF_HUB_OFFLINE forbids fetching it.\n{_elsewhere(name, what)}") from None
        raise ResourceError(
            f"{missing}; {not_here}.\n"
            f"It cannot be fetched from {hub}: {_first_line(error.__cause__ or error).rstrip('.')}.\n"
            f"{_elsewhere(name, what)}"
        ) from None
    except (OSError, http_error) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise ResourceError(f"cannot store {name!r} in {constants.HF_HUB_CACHE}: {error.strerror}") from error
        raise ResourceError(f"fetching {name!r} from {hub} failed: {_first_line(error)}") from error


def _elsewhere(name: str, what: str) -> str:
    """What to do where there is no connection."""
    kind = "" if what == "repository" else " --repo-type dataset"
    return (
        "Download it where there is a connection, and pass the path of the folder:\n"
        f"  hf download {name}{kind} --local-dir {name.rpartition('/')[2]}"
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
