"""Images that lie in files: reading, decoding, and keeping them decoded. Nothing here knows of labels or streams."""
