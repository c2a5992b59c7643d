"""Backbones for tests: tiny random networks in folders, as `semifl backbone get` would leave them."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from semifl.models._efficientnet_lite import EfficientNetLite0

PREPARED = {"size": 16, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.25, 0.2, 0.5]}


def lite(folder: Path, seed: int = 0) -> Path:
    """EfficientNet-Lite0 with random weights and statistics that are not those of a new layer."""
    torch.manual_seed(seed)
    tensors = {name: tensor.contiguous() for name, tensor in EfficientNetLite0().state_dict().items()}
    for name, tensor in tensors.items():
        if name.endswith("running_mean"):
            tensor.normal_(std=0.1)
        if name.endswith("running_var"):
            tensor.uniform_(0.5, 2.0)
    return _written(folder, {"model_type": "efficientnet_lite0"}, tensors)


def vit(folder: Path, seed: int = 0) -> Path:
    """A transformer of two layers for pictures of 16 pixels, four patches each: LayerNorm and no BatchNorm."""
    import transformers

    torch.manual_seed(seed)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=8
    )
    return _saved(folder, transformers.AutoModelForImageClassification.from_config(config))


def resnet(folder: Path, seed: int = 0) -> Path:
    """Convolutions and BatchNorm of a library."""
    import transformers

    torch.manual_seed(seed)
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
    return _saved(folder, transformers.AutoModelForImageClassification.from_config(config))


def _saved(folder: Path, model) -> Path:
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPARED))
    (folder / "README.md").write_text("---\nlicense: mit\n---\nA test.\n")
    return folder


def _written(folder: Path, config: dict, tensors: dict) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPARED))
    (folder / "README.md").write_text("---\nlicense: mit\n---\nA test.\n")
    save_file(tensors, folder / "model.safetensors")
    return folder
