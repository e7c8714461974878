"""``bertkit inspect``: what a model or a token store holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Common, Report, write_json, write_line
from bertkit.errors import CheckpointError, ConfigError, shorten
from bertkit.system.paths import user_path

_STEP = re.compile(r"step-\d{8}")


def inspect(
    model: Annotated[str, Parameter(help="Model folder, .safetensors file, run folder, Hub name, or token store.")],
    /,
    *,
    verify: Annotated[
        bool, Parameter(negative=(), help="Show a fingerprint of every layer; for a token store, check every hash.")
    ] = False,
    against: Annotated[
        str | None,
        Parameter(help="A model that must compute the same, or saved output of --verify --json; implies --verify."),
    ] = None,
    accept: Annotated[
        bool,
        Parameter(
            negative=(), help="Only give weights and decision.json, which you changed on purpose, new checksums."
        ),
    ] = False,
    common: Common = Common(),
) -> int:
    """Show what a model or a token store holds, or what a model computes.

    For a model: config, parameters, heads, every tensor, and a hash of the weights.
    For one made by 'bertkit export': its graphs, and how close they are to the model.
    For a token store: counts, lengths of documents and sentences, and samples.
    MODEL may be the run folder of 'bertkit finetune', or RUN/model of 'bertkit
    pretrain'.

    --verify runs a fixed sentence and shows a few numbers of every layer: a
    fingerprint of what the model computes. It is compared with --against, or with
    the fingerprint.json next to the weights, which 'bertkit convert' writes. Exit
    code 4 if they differ. For an export, --verify insists on checksums. For a token
    store, it checks the hash of every shard: exit code 3 if one is damaged.

    Weights and decision.json that bertkit wrote have checksums, so that damage is
    noticed. MODEL may be a file for --accept.

    For example:

        bertkit inspect bert-base-uncased
        bertkit inspect run --json
        bertkit inspect store
        bertkit inspect copy --against original
        bertkit inspect --accept run/decision.json
    """
    folder = user_path(model)
    if accept:
        return _accept(folder)
    names = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
    _refuse_training_state(folder, names)
    has_shard = any(name.startswith("tokens-") and ".parquet" in name for name in names)
    if has_shard or "progress.json" in names or {"manifest.json", "tokenizer"} <= names:  # perhaps unfinished, damaged
        if against is not None:
            raise ConfigError(f"{folder} is a token store; --against compares models only")
        from bertkit.data.store.store_report import inspect_store

        verified = "every shard has the hash that the manifest gives"
        return _shown(inspect_store(folder, verify=verify), common, verified if verify else "")
    if "export.json" in names:
        if against is not None:
            raise ConfigError(f"{folder} is an export; --against compares the layers of models")
        from bertkit.engine.inspect_export import inspect_export

        verified = "the graphs and their weights have the checksums that export.json gives"
        return _shown(inspect_export(folder, verify=verify), common, verified if verify else "")
    from bertkit.checkpoints.static_folder import inspect_static, static_folder

    if (vectors := static_folder(folder)) is not None:
        return _shown(inspect_static(vectors), common)
    if verify or against is not None:
        return _verify(model, against, common)
    from bertkit.checkpoints.huggingface import is_int8

    if is_int8(folder):
        from bertkit.checkpoints.inspect_int8 import inspect_int8

        return _shown(inspect_int8(folder), common)
    from bertkit.checkpoints.inspect import inspect as look_at_model

    return _shown(look_at_model(model), common)


def _shown(report: Report, common: Common, verified: str = "") -> int:
    """Write a report, and what it means that --verify found no error."""
    common.report(report)
    if verified and not common.json:
        write_line(f"\n{verified}")
    return 0


def _accept(path: Path) -> int:
    """Give a file, or all of a folder, the checksums of what they hold now."""
    from bertkit.checkpoints.safetensors_format import seal
    from bertkit.config.decision import DECISION, accept_decision
    from bertkit.engine.export_folder import MANIFEST, accept_files, exported_files

    if not path.exists():
        raise CheckpointError(f"{path} does not exist; --accept takes a folder or a file")
    accepted = []
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.suffix == ".safetensors":
            changed = seal(file)
        elif file.name == DECISION:
            changed = accept_decision(file)
        else:
            is_graph = file.name == MANIFEST or (file == path and file in exported_files(file.parent))
            changed = is_graph and accept_files(file.parent)
        accepted.extend([file] if changed else [])
    for file in accepted:
        write_line(f"accepted: {file}")
    if not accepted:
        write_line(f"{path}: nothing has another checksum than bertkit gave it")
    return 0


def _verify(model: str, against: str | None, common: Common) -> int:
    from bertkit.model.fingerprint import differences as compare
    from bertkit.model.fingerprint import expected_fingerprint, fingerprint

    common.begin()
    found = fingerprint(model)
    named, wanted = expected_fingerprint(model, against)
    differences = [] if wanted is None else compare(found, wanted)
    if common.json:
        write_json({"fingerprint": found.to_dict(), "compared_with": named, "differences": differences})
    else:
        write_line(found.render())
        if named is None:
            write_line("\nnothing to compare with: give --against MODEL, or saved output of --verify --json")
        else:
            write_line(f"\ncompared with {named}: " + ("the same" if not differences else "NOT the same"))
            for difference in differences:
                write_line(f"  {difference}")
    return CheckpointError.exit_code if differences else 0


# The names of files, above those of bertkit.data.store.store_manifest and bertkit.engine.onnx_backend, below those of
# bertkit.training.trainer.snapshot, are repeated because those modules import pyarrow, numpy and torch, which looking
# at a model's files does not need.


def _refuse_training_state(folder: Path, names: set[str]) -> None:
    """Refuse a folder that looks like a checkpoint but holds no model."""
    states = sorted(name for name in names if _STEP.match(name))
    if {"tensors.safetensors", "state.json"} <= names or states:
        what = f"holds training states ({shorten(states)})" if states else "is a training state"
        raise CheckpointError(
            f"{folder} {what}: weights and optimizer of an unfinished run, not a model. Inspect the run's model "
            "instead: the run folder after fine-tuning, its folder model/ after pre-training"
        )
