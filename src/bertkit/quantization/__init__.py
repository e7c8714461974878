"""Models in 8 bits: how inputs are distributed, what each matrix becomes, and whether the answers stay the same."""
