"""Architectures, one file each: a frozen dataclass of settings whose `build` gives a module, images in and logits out."""
