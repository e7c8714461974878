"""Writing text token by token: greedy, by sampling, by beam search."""
