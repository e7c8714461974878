"""The files tokenizers come in: vocab.txt, tokenizer.json, merges.txt, SentencePiece models."""
