"""BERT from raw text to the Hub, in one package on transformers 5."""
