"""Reading and writing checkpoints: name tables, strict conversion, safetensors, inspection."""
