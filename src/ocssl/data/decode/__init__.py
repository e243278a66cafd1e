"""Images in files: reading, decoding, and caching them. Nothing here knows of labels or streams."""
