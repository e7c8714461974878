"""Word vectors: tables of them, and a back-end of the engine without layers."""
