"""Multiple choice: SWAG, CODAH, ARC and files like them."""
