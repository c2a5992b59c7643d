"""A run's file, and the world that it describes."""
