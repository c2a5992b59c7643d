"""The Python interface: `semifl.FederatedData`, `semifl.train`, `semifl.load`; docs/python.md shows it at work."""
