"""The network: configuration, padding and every model class."""
