"""Federated methods, one file each with both halves: what the server does in a round, and what a client does."""
