"""Optimizers, schedules and trainers."""
