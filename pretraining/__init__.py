"""From text to a pretrained model."""
