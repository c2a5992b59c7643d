"""Architectures, one file each: a frozen dataclass whose `build` gives a module, images in and logits out."""
