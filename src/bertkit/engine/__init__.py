"""From rows to model outputs: sort, pack, run, scatter back."""
