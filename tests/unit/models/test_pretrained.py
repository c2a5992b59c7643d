"""A backbone in a folder becomes a model: what is read, what trains, what is refused."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import backbones
from semifl.errors import UserError
from semifl.learning.frozen import FrozenBatchNorm
from semifl.learning.network import Network, parameters_of
from semifl.models._backbone import Backbone, find, home
from semifl.models._efficientnet_lite import STAGES, EfficientNetLite0, _Conv, _convolved, _normalised, _padding
from semifl.models.pretrained import Pretrained

TRAINS = ("head", "norms", "lora", "all")


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    pytest.importorskip("transformers")
    return backbones.vit(tmp_path_factory.mktemp("backbones") / "vit")


@pytest.fixture(scope="module")
def lite(tmp_path_factory):
    return backbones.lite(tmp_path_factory.mktemp("backbones") / "lite")


def built(folder, **keys):
    torch.manual_seed(5)
    return Pretrained(source=str(folder), **keys).build(3, 8, 4)


def trained(module):
    return {name for name, parameter in module.named_parameters() if parameter.requires_grad}


# What trains


def test_head_trains_the_last_layer_and_nothing_else(vit):
    assert trained(built(vit)) == {"head.weight", "head.bias"}


def test_norms_train_with_the_head(vit):
    names = trained(built(vit, train="norms")) - {"head.weight", "head.bias"}
    # Two LayerNorms in each of two layers and one at the end, each with scale and shift.
    assert len(names) == 2 * (2 * 2 + 1)
    assert all("layernorm" in name.lower() for name in names)


def test_lora_trains_two_thin_matrices_beside_each_layer(vit):
    pytest.importorskip("peft")
    module = built(vit, train="lora", rank=3, targets=("q_proj",))
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters() if p.requires_grad and "lora" in name}
    assert sorted(shapes.values()) == [(3, 16)] * 2 + [(16, 3)] * 2
    pictures = torch.randn(2, 3, 16, 16)
    plain = built(vit)
    assert torch.equal(module.eval().frozen(pictures), pictures)  # no part of it is frozen as a whole
    assert torch.allclose(module.trunk(pictures), plain.trunk(pictures))  # the second matrix is 0 at first


def test_all_trains_everything(vit):
    module = built(vit, train="all")
    assert trained(module) == {name for name, _ in module.named_parameters()}


@pytest.mark.parametrize("train", TRAINS[1:])
def test_frozen_blocks_never_train(lite, train):
    names = trained(built(lite, train=train, size=32, frozen_blocks=15))
    inner = {name.split(".")[2] for name in names if "._blocks." in name}
    assert inner == {"15"}
    assert not any("_conv_stem" in name or "trunk._bn0" in name for name in names)


@pytest.mark.parametrize("train", TRAINS)
def test_a_step_moves_only_what_trains(lite, train):
    module = built(lite, train=train, size=32)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    network = Network(module)
    network.module.train()
    F.cross_entropy(network(torch.randn(3, 3, 8, 8)), torch.tensor([0, 1, 2])).backward()
    with torch.no_grad():
        network.vector -= 0.1 * network.vector.grad
    moved = {name for name, tensor in module.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved <= trained(module)
    assert "head.weight" in moved
    assert set(network.weights()) == trained(module)  # what travels, is averaged and is kept


def test_counting_takes_no_memory_and_reads_no_weights(lite, vit):
    total = sum(p.numel() for p in built(lite).parameters())
    assert parameters_of(lambda: Pretrained(source=str(lite)).build(3, 8, 4)) == total
    # The published network has 4,652,008 numbers, of which 1,281,000 are its last layer for a thousand classes.
    assert total == 4_652_008 - 1_281_000 + 4 * 1280 + 4
    assert parameters_of(lambda: Pretrained(source=str(vit)).build(3, 8, 4)) > 0


# Frozen BatchNorm


def test_frozen_batchnorm_normalises_by_its_own_statistics_also_in_training():
    layer = nn.BatchNorm2d(2, eps=0.5)
    layer.running_mean.copy_(torch.tensor([1.0, -2.0]))
    layer.running_var.copy_(torch.tensor([3.5, 0.5]))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([2.0, 3.0]))
        layer.bias.copy_(torch.tensor([10.0, 20.0]))
    x = torch.randn(3, 2, 4, 4)
    frozen = FrozenBatchNorm(layer).train()
    first = (x[:, 0].numpy() - 1) / np.sqrt(4.0) * 2 + 10
    second = (x[:, 1].numpy() + 2) / np.sqrt(1.0) * 3 + 20
    assert np.allclose(frozen(x).detach().numpy(), np.stack([first, second], axis=1), atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_and_its_frozen_norm_are_one_with_the_same_gradients(stride):
    torch.manual_seed(0)
    conv, norm = nn.Conv2d(3, 4, 1, stride, bias=False), FrozenBatchNorm(nn.BatchNorm2d(4))
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    x = torch.randn(2, 3, 6, 6)
    fused = _normalised(conv, norm, x)
    assert torch.allclose(fused, norm(conv(x)), atol=1e-5)
    gradients = torch.autograd.grad(fused.square().sum(), [conv.weight, norm.weight, norm.bias])
    expected = torch.autograd.grad(norm(conv(x)).square().sum(), [conv.weight, norm.weight, norm.bias])
    assert all(torch.allclose(a, b, atol=1e-3) for a, b in zip(gradients, expected, strict=True))


def test_no_statistics_where_batchnorm_is_frozen_and_fresh_ones_where_not(lite):
    blocks = [torch.randn(4, 3, 8, 8)]
    assert Network(built(lite, train="all", size=32)).statistics(blocks) == {}
    fresh = Network(built(lite, train="all", size=32, batchnorm="refreshed")).statistics(blocks)
    # One in the stem, one at the end, two in the first block and three in each of the others.
    assert len(fresh) == 2 + 2 + 3 * (sum(stage[0] for stage in STAGES) - 1)


# The network itself


@pytest.mark.parametrize(
    ("size", "kernel", "expected"), [(8, 3, (0, 1)), (7, 3, (1, 1)), (8, 5, (1, 2)), (1, 3, (1, 1))]
)
def test_padding_is_tensorflows_same(size, kernel, expected):
    # Output ⌈size / 2⌉; what is missing for it, the smaller half first.
    assert _padding(size, kernel, 2) == expected


def test_filters_train_in_single_precision_beside_products_in_half_of_it():
    conv = _Conv(6, 6, 5, groups=6)
    x = torch.randn(2, 6, 3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert _convolved(x.bfloat16(), conv, conv.weight, None).dtype == torch.float32
        with torch.no_grad():  # where it is fast
            assert _convolved(x, conv, conv.weight.detach(), None).dtype == torch.bfloat16


def test_beginning_and_end_are_the_whole(lite):
    trunk = EfficientNetLite0().eval()
    x = torch.randn(2, 3, 32, 32)
    for blocks in (0, 7, 16):
        assert torch.allclose(trunk.end(trunk.begin(x, blocks), blocks), trunk(x), atol=1e-6)


def test_pictures_are_made_as_large_as_the_backbone_sees_and_grey_ones_have_three_channels(lite):
    torch.manual_seed(5)
    grey = Pretrained(source=str(lite), size=32).build(1, 8, 4).eval()
    picture = torch.randn(1, 1, 8, 8)
    large = F.interpolate(picture, size=(32, 32), mode="bilinear", align_corners=False).expand(-1, 3, -1, -1)
    assert torch.allclose(grey(picture), grey.head(grey.trunk(large)), atol=1e-5)


def test_the_form_alone_builds_the_same_network(lite, vit):
    for folder in (lite, vit):
        spec = Pretrained(source=str(folder))
        whole = spec.build(3, 8, 4)
        portable = Pretrained(**spec.portable())
        assert (portable.source, portable.size) == (folder.name, 16)
        empty = portable.build(3, 8, 4, architecture=spec.backbone.config)
        empty.load_state_dict(whole.state_dict())
        x = torch.randn(2, 3, 8, 8)
        assert torch.equal(empty.eval()(x), whole.eval()(x))


# What a folder says, and what is refused


def test_the_hash_is_that_of_the_weights_and_of_the_networks_form(tmp_path):
    folder = backbones.lite(tmp_path / "a")
    first = Backbone(folder).hash
    assert first.split(".")[0] == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "transformers_version": "9"}))
    assert Backbone(folder).hash == first  # who wrote it does not matter
    (folder / "config.json").write_text(json.dumps({**config, "hidden_act": "gelu"}))
    assert Backbone(folder).hash.split(".")[1] != first.split(".")[1]
    assert Backbone(backbones.lite(tmp_path / "b", seed=1)).hash.split(".")[0] != first.split(".")[0]


def test_what_the_processor_says(tmp_path):
    backbone = Backbone(backbones.lite(tmp_path / "a"))
    assert backbone.normalisation == ((0.5, 0.4, 0.3), (0.25, 0.2, 0.5))
    assert (backbone.size, backbone.licence) == (16, "mit")
    told = {"size": {"shortest_edge": 40}, "crop_size": {"height": 36, "width": 36}}
    (tmp_path / "a/preprocessor_config.json").write_text(json.dumps(told))
    cropped = Backbone(tmp_path / "a")
    assert cropped.size == 36
    assert cropped.normalisation[0] == (0.485, 0.456, 0.406)
    (tmp_path / "a/preprocessor_config.json").unlink()
    (tmp_path / "a/README.md").unlink()
    silent = Backbone(tmp_path / "a")
    assert (silent.size, silent.licence) == (224, "not stated")


def test_code_pickles_and_missing_files_are_refused_with_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "data"))
    with pytest.raises(
        UserError, match=r"'some/name' is not here: run `semifl backbone get some/name`, or put .* into"
    ):
        find("some/name")
    assert home("some/name") == tmp_path / "data/backbones/some--name"
    folder = backbones.lite(tmp_path / "a")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "evil.Model"}}))
    with pytest.raises(UserError, match="would run code that came with it"):
        Pretrained(source=str(folder)).build(3, 8, 4)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"has no \.safetensors file"):
        Pretrained(source=str(folder)).build(3, 8, 4)
    (folder / "model.safetensors").write_bytes(b"not a file of tensors")
    with pytest.raises(UserError, match="does not hold the weights of efficientnet_lite0"):
        Pretrained(source=str(folder)).build(3, 8, 4)
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match=r"it has no config\.json"):
        Pretrained(source=str(folder)).build(3, 8, 4)


def test_a_librarys_unknown_type_and_damaged_weights_are_one_sentence(vit, tmp_path):
    config = json.loads((vit / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes(b"no")
    for change, said in ({"model_type": "nonsense"}, "nonsense"), ({}, "cannot be loaded"):
        (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(UserError, match=said):
            Pretrained(source=str(tmp_path)).build(3, 8, 4)


def test_pictures_larger_than_the_backbone_sees_are_refused(lite):
    with pytest.raises(UserError, match=r"set data\.size = 16, or model\.size = 64"):
        Pretrained(source=str(lite)).build(3, 64, 4)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"rank": 4}, "rank and targets have no effect"),
        ({"train": "norms", "targets": ("q_proj",)}, "rank and targets have no effect"),
        ({"frozen_blocks": 3}, "frozen_blocks has no effect"),
        ({"train": "all", "views": 2}, "views must be 0 without a frozen part"),
        ({"views": 2, "batchnorm": "refreshed"}, "views must be 0 without a frozen part"),
    ],
)
def test_knobs_without_effect_are_refused(keys, said):
    with pytest.raises(ValueError, match=said):
        Pretrained(**keys)


def test_targets_that_no_layer_has_and_blocks_of_another_network_are_told(vit):
    spec = Pretrained(source=str(vit), train="lora", targets=("nothing",))
    with pytest.raises(UserError, match="ends with one of"):
        spec.build(3, 8, 4)
    with pytest.raises(UserError, match="frozen_blocks is for efficientnet_lite0 alone"):
        replace(spec, targets=(), frozen_blocks=2).build(3, 8, 4)
