"""Reading labelled data: tables, splits of a folder, datasets of the Hugging Face Hub."""
