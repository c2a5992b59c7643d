"""Flower as the engine that carries letters: `flwr run` starts the hub's side, SuperNodes start the sites'."""
