"""Trained models: saved, loaded, used, judged, exported."""
