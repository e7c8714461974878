"""Train, distill and query word vectors: one vector a word, wherever it stands.

Files are word2vec's, GloVe's and fastText's text (.vec, .txt, also .gz). A folder that 'distill' writes, or model2vec,
loads wherever a sentence encoder does, and is a hundred times as fast.

For example:

    bertkit word-vectors distill --model bertkit-tiny-en --out words
    bertkit word-vectors nearest bank --vectors words
    bertkit similarity --model words "A good day." "A nice day."
"""
