"""The training loop and what it needs: snapshots, precision, parallelism, run folders."""
