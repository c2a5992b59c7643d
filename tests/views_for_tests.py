"""Views, and a model, that a configuration can name."""

import torch

DARK = 2


def darker(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return images // DARK


def floating(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return images.float()


def seven_outputs(channels: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Conv2d(channels, 7, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
