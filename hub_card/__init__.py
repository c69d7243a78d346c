"""Model cards and publishing."""
