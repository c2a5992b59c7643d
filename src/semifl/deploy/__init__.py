"""A real federation: the same methods on machines of different owners."""
