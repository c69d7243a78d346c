"""Distillation: fine-tuning that also learns from a fine-tuned teacher's outputs (`mybert distill`)."""
