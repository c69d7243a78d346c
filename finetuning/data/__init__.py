"""Task data before any task reads it: rows of files, of the Hub and of memory, and labels."""
