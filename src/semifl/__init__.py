"""A server with a few labels trains a classifier together with clients whose data have none and never leave them."""

__version__ = "0.1.0"
