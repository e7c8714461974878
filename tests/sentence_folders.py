"""Folders as sentence-transformers writes them, made by hand from its published layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

from pipeline_helpers import save_tiny

#: Width of the token vectors of :func:`save_tiny`.
WIDTH = 32
Module = tuple[str, dict[str, Any]]


def sentence_folder(
    folder: Path,
    modules: list[Module],
    settings: dict[str, Any] | None = None,
    reading: dict[str, Any] | None = None,
    **encoder: Any,
) -> Path:
    """A tiny encoder and modules, each a kind and its config, with weights drawn by its number; the first is 1."""
    save_tiny(folder, **encoder)
    entries = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for number, (kind, config) in enumerate(modules, start=1):
        path = folder / f"{number}_{kind}"
        path.mkdir()
        (path / "config.json").write_text(json.dumps(config))
        entries.append(
            {"idx": number, "name": str(number), "path": path.name, "type": f"sentence_transformers.models.{kind}"}
        )
        if weights := weights_of(kind, config, number):
            save_file(weights, path / "model.safetensors")
    (folder / "modules.json").write_text(json.dumps(entries))
    if settings is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    if reading is not None:
        (folder / "sentence_bert_config.json").write_text(json.dumps(reading))
    return folder


def pooling(*modes: str, **more: Any) -> Module:
    """A pooling in the form of the newer releases."""
    return "Pooling", {"embedding_dimension": WIDTH, "pooling_mode": list(modes), **more}


def dense(inward: int, outward: int, activation: str = "activation.Tanh", **more: Any) -> Module:
    """A dense module."""
    path = f"torch.nn.modules.{activation}"
    return "Dense", {
        "in_features": inward,
        "out_features": outward,
        "bias": True,
        "activation_function": path,
        **more,
    }


def weights_of(kind: str, config: dict[str, Any], number: int) -> dict[str, np.ndarray]:
    """Weights of a module, the same for the same number."""
    random = np.random.default_rng(number)

    def draw(*shape: int) -> np.ndarray:
        return random.normal(0, 0.4, shape).astype(np.float32)

    if kind == "LayerNorm":
        return {"norm.weight": draw(config["dimension"]), "norm.bias": draw(config["dimension"])}
    if kind != "Dense":
        return {}
    inward, outward = config["in_features"], config["out_features"]
    found = {"linear.weight": draw(outward, inward)}
    if config["bias"]:
        found["linear.bias"] = draw(outward)
    if config.get("use_residual") and inward != outward:
        found["residual.weight"] = draw(outward, inward)
    return found


def after_pooling(x_BD: torch.Tensor, modules: list[Module]) -> torch.Tensor:
    """What the modules after the pooling make of vectors, by torch's functions."""
    for number, (kind, config) in enumerate(modules[1:], start=2):
        weights = {name: torch.from_numpy(x) for name, x in weights_of(kind, config, number).items()}
        if kind == "Normalize":
            x_BD = torch.nn.functional.normalize(x_BD, dim=-1)
        elif kind == "LayerNorm":
            x_BD = torch.nn.functional.layer_norm(x_BD, x_BD.shape[1:], weights["norm.weight"], weights["norm.bias"])
        else:
            activation = getattr(torch.nn, config["activation_function"].rpartition(".")[2])()
            out = activation(torch.nn.functional.linear(x_BD, weights["linear.weight"], weights.get("linear.bias")))
            if config.get("use_residual"):
                out = out + (x_BD @ weights["residual.weight"].T if "residual.weight" in weights else x_BD)
            x_BD = out
    return x_BD


def padded_pooling(x_BSD: torch.Tensor, mask_BS: torch.Tensor, mode: str, skipped: int = 0) -> torch.Tensor:
    """One mode of pooling of a padded batch: the formulas of the publications, with masks."""
    mask = mask_BS.clone()
    mask[:, :skipped] = 0
    weights = mask[..., None].float()
    if mode == "cls":
        return x_BSD[:, skipped]
    if mode == "lasttoken":
        return x_BSD[torch.arange(len(x_BSD)), mask_BS.sum(1) - 1]
    if mode == "max":
        return x_BSD.masked_fill(weights == 0, -torch.inf).amax(1)
    if mode == "weightedmean":
        weights = weights * torch.arange(1, x_BSD.shape[1] + 1)[None, :, None]
    total = weights.sum(1)
    return (x_BSD * weights).sum(1) / (total.sqrt() if mode == "mean_sqrt_len_tokens" else total)
