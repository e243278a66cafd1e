"""Use what was learned: the encoder with its preprocessing, vectors of a folder, and search in them."""
