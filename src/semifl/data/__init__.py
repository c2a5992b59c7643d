"""Pictures as uint8 tensors, who is labeled, who holds what, and the views that training sees."""
