"""Vocabulary training and the Google-exact tokenizer."""
