"""Pictures of training and attention."""
