"""Draw attention.png, the heads of the included model's top layer: python docs/images/attention.py"""

from __future__ import annotations

from pathlib import Path

from bertkit import visualize

if __name__ == "__main__":
    drawn = visualize.attention("The cat did not eat, because it was tired.", model="bertkit-tiny-en")
    drawn.save(Path(__file__).with_suffix(".png"))
