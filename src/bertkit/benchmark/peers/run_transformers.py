"""transformers on torch, with scaled-dot-product attention; see ``peer.py``."""

from __future__ import annotations

import inspect

import torch
from transformers import AutoModel

from peer import Floats, Ints, PaddedRunner, Setup, main

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def load(setup: Setup) -> PaddedRunner:
    """Open the model."""
    torch.set_num_threads(setup.threads)
    model = AutoModel.from_pretrained(setup.model, attn_implementation="sdpa", dtype=DTYPES[setup.precision]).eval()
    has_segments = "token_type_ids" in inspect.signature(model.forward).parameters

    @torch.inference_mode()
    def encode(ids: Ints, mask: Ints, segments: Ints) -> Floats:
        more = {"token_type_ids": torch.from_numpy(segments)} if has_segments else {}
        # A mask without a single 0 is not passed: attention without a mask is faster.
        if not mask.all():
            more["attention_mask"] = torch.from_numpy(mask)
        states: Floats = model(torch.from_numpy(ids), **more).last_hidden_state.float().numpy()
        return states

    return PaddedRunner(encode, setup.config.get("pad_token_id") or 0)


if __name__ == "__main__":
    main(load)
