"""Search in an index on disk, clusters, topics and duplicates: what vectors of texts are good for."""
