"""From the token store to batches: which tokens become an example, which rows share one, which tokens are hidden."""
