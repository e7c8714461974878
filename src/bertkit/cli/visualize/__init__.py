"""Draw embeddings, attention, layers, explanations and runs.

Prints what was found; --out writes the picture as .png, .svg or .pdf, as a page for a browser that needs no network
(.html), or the numbers behind it (.json).

For example:

    bertkit visualize embeddings reviews.csv --model DIR --out map.html
    bertkit visualize attention "The cat slept." --model DIR --out heads.html
    bertkit visualize training run --out curves.png
"""
