"""Tasks: their definition, a file for each kind, the registry, and the settings that they share."""
