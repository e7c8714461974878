"""What those who run the server ask: health, metrics, reloading."""
