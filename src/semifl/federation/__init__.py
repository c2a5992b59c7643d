"""Where clients live: the nouns a method sees, and their implementation in this process or in worker processes."""
