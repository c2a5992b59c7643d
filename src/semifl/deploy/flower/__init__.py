"""Flower as the engine that carries packets: `flwr run` starts the hub's side, SuperNodes start the sites'."""
