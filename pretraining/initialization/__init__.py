"""What weights begin with: statistics of the text, rows of new pieces, copies of positions."""
