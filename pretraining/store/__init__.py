"""A corpus as a token store: documents, what is dropped from them, and the file that holds their tokens."""
