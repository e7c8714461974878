"""Learning a vocabulary: word counts of a corpus, then WordPiece merges."""
