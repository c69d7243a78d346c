"""The sizes of BERT models."""

# Layers, width and heads: Devlin et al. (2018) for base and large, the released miniatures (Turc et al., 2019) for the
# others; feed-forward layers are four times as wide.
MODEL_SIZES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}
