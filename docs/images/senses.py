"""Draw senses.png, how far the included model tells senses of words apart: python docs/images/senses.py"""

from __future__ import annotations

from pathlib import Path

from bertkit import visualize

if __name__ == "__main__":
    visualize.senses("bertkit-tiny-en").save(Path(__file__).with_suffix(".png"))
