"""Several tasks at once: heads of different kinds on one encoder, trained together."""
