"""A backbone that others have trained, with a new last layer: frozen, adapted or trained whole."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from semifl.errors import UserError
from semifl.fields import Checked, Positive, Range
from semifl.learning.evaluation import SLICE_PIXELS
from semifl.learning.frozen import freeze_batchnorm, is_virtual, norm_parameters
from semifl.models._backbone import Backbone, find, name_of
from semifl.models._efficientnet_lite import FEATURES, EfficientNetLite0
from semifl.regular import why

Train = Literal["head", "norms", "lora", "all"]
LARGEST = 1024  # pixels on a side, and columns of an adapter: beyond any use
BLOCKS = 15  # of efficientnet_lite0, but for the last
FEWEST = 8  # pictures at once where nothing is learned: more leave the processor's cache, which halves the speed
MOST_VIEWS = 100  # what tells them apart is one byte
OURS = "efficientnet_lite0"  # the model_type that needs no library
UNUSED = "mask_token"  # stands for hidden patches where a backbone is made, and for nothing in a classifier
HEADS = ("classifier", "head", "fc")  # what libraries call the last layer


@dataclass(frozen=True)
class Pretrained(Checked):
    source: str = OURS  # the name of a backbone, or its folder
    train: Train = "head"  # what trains and travels: the last layer, and with it norms, LoRA's adapters, or all
    size: Annotated[int, Range(0, LARGEST)] = 0  # pixels on a side that the backbone sees; 0: those it was trained on
    rank: Annotated[int, Range(1, LARGEST)] = 8  # of LoRA's adapters
    targets: tuple[str, ...] = ()  # layers with adapters, by the ends of their names; none: all that multiply matrices
    batchnorm: Literal["frozen", "refreshed"] = "frozen"  # statistics: as they came, or of this federation's pictures
    frozen_blocks: Annotated[int, Range(0, BLOCKS)] = 0  # from the picture on, never trained; efficientnet_lite0 alone
    views: Annotated[int, Range(0, MOST_VIEWS)] = 0  # k weak, k strong, whose frozen features are kept; 0: always new
    cache_gb: Positive = 8.0  # largest size of those features on disk

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.train != "lora" and (self.targets or self.rank != Pretrained.rank):
            raise ValueError(f'rank and targets have no effect with train = "{self.train}"')
        if self.train == "head" and self.frozen_blocks:
            raise ValueError('frozen_blocks has no effect with train = "head", where all blocks are frozen')
        if self.views and not (self.batchnorm == "frozen" and (self.train == "head" or self.frozen_blocks)):
            raise ValueError(
                'views must be 0 without a frozen part: set train = "head", or frozen_blocks, and batchnorm = "frozen"'
            )

    @property
    def backbone(self) -> Backbone:
        return find(self.source)

    def portable(self) -> dict[str, Any]:
        """The keys as they mean the same on another machine: a name for a path, and a size that needs no folder."""
        return asdict(self) | {"source": name_of(self.source), "size": self.picture_size()}

    def picture_size(self) -> int:
        """Pixels on a side that pictures should have."""
        return self.size or self.backbone.size

    def build(self, channels: int, size: int, classes: int, architecture: dict[str, Any] | None = None) -> nn.Module:
        """With `architecture`, a backbone's config.json, a network of that form whose weights are still to come."""
        backbone = None if architecture else self.backbone
        config = architecture or self.backbone.config
        side = self.size or (backbone.size if backbone else size)
        if side < size:
            raise UserError(
                f"pictures of {size} pixels are larger than the {side} that the backbone sees: "
                f"set data.size = {side}, or model.size = {size}"
            )
        trunk, features = _trunk(config, backbone)
        if self.batchnorm == "frozen":
            freeze_batchnorm(trunk)
        frozen = self._frozen_parts(trunk)
        self._choose_what_trains(trunk, frozen)
        blocks = None if self.train == "head" else self.frozen_blocks
        module = Classifier(trunk, nn.Linear(features, classes), blocks, channels, side)
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.dim() == 4:  # convolutions run a little faster so
                    parameter.data = parameter.contiguous(memory_format=torch.channels_last)
        return module

    def _frozen_parts(self, trunk: nn.Module) -> set[nn.Module]:
        if not self.frozen_blocks:
            return set()
        if not isinstance(trunk, EfficientNetLite0):
            raise UserError(f"model.frozen_blocks is for {OURS} alone: leave it out")
        return {inner for part in trunk.first_parts(self.frozen_blocks) for inner in part.modules()}

    def _choose_what_trains(self, trunk: nn.Module, frozen: set[nn.Module]) -> None:
        trunk.requires_grad_(self.train == "all")
        if self.train == "norms":
            for parameter in norm_parameters(trunk):
                parameter.requires_grad_(True)
        elif self.train == "lora":
            _add_adapters(trunk, frozen, self.rank, self.targets)
        for part in frozen:
            part.requires_grad_(False)
        for name, parameter in trunk.named_parameters():
            if name.endswith(UNUSED):
                parameter.requires_grad_(False)


class Classifier(nn.Module):
    """Trunk and head, in two parts: one that is frozen, and one that trains.

    `frozen_blocks` is how many of the trunk's blocks the first part has; None: all of the trunk, which is then in
    evaluation mode for good.
    """

    def __init__(self, trunk: nn.Module, head: nn.Linear, frozen_blocks: int | None, channels: int, side: int) -> None:
        super().__init__()
        self.trunk, self.head = trunk, head
        nn.init.normal_(self.head.weight, std=0.01)
        nn.init.zeros_(self.head.bias)
        self.takes_features = False  # of `frozen`, instead of pictures
        self.at_once = max(FEWEST, SLICE_PIXELS // side**2)  # pictures on their way through `frozen`
        self._blocks, self._channels, self._side = frozen_blocks, channels, side

    def forward(self, x: Tensor) -> Tensor:
        if not self.takes_features:
            x = self.frozen(x)
        if isinstance(self.trunk, EfficientNetLite0) and self._blocks is not None:
            x = self.trunk.end(x, self._blocks)
        elif self._blocks is not None:
            x = self.trunk(x)
        logits: Tensor = self.head(x)
        return logits

    def frozen(self, x: Tensor) -> Tensor:
        """What the part that trains sees of pictures."""
        if self._channels == 1:
            x = x.expand(-1, 3, -1, -1)
        if x.shape[-1] != self._side:
            x = F.interpolate(x, size=(self._side, self._side), mode="bilinear", align_corners=False)
        if self._blocks is None:
            x = self.trunk(x)
        elif isinstance(self.trunk, EfficientNetLite0):
            x = self.trunk.begin(x, self._blocks)
        return x

    def train(self, mode: bool = True) -> Classifier:
        super().train(mode)
        if self._blocks is None:
            self.trunk.eval()
        return self


class _FromLibrary(nn.Module):
    """A network of `transformers` whose last layer was taken off: pictures in, features out."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        # Where positions are learned for one size of pictures, they are interpolated for others.
        self._more = _interpolation(model)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.model(pixel_values=x, **self._more).logits
        return features


def _trunk(config: dict[str, Any], backbone: Backbone | None) -> tuple[nn.Module, int]:
    """The network without its last layer, and how many features it gives."""
    if config["model_type"] == OURS:
        trunk = EfficientNetLite0()
        if backbone and not is_virtual(trunk):
            _load(trunk, backbone)
        return trunk, FEATURES
    model = _from_library(config, backbone)
    name = next((name for name in HEADS if isinstance(getattr(model, name, None), nn.Module)), None)
    linear = [each for each in getattr(model, name).modules() if isinstance(each, nn.Linear)] if name else []
    if name is None or not linear:
        raise UserError(f"a backbone of type {config['model_type']!r} has no last layer that could be taken off")
    features = linear[-1].in_features
    setattr(model, name, nn.Flatten())
    return _FromLibrary(model), features


def _load(trunk: nn.Module, backbone: Backbone) -> None:
    try:
        tensors = {name: tensor for path in backbone.weights for name, tensor in load_file(path).items()}
        trunk.load_state_dict(tensors)
    except Exception as error:  # a damaged file, another network: safetensors and torch each have their own errors
        raise UserError(f"{backbone.weights[0]} does not hold the weights of {OURS}: {why(error)[:200]}") from error


def _from_library(config: dict[str, Any], backbone: Backbone | None) -> Any:
    try:
        import transformers
    except ImportError as error:
        raise UserError("a backbone of transformers needs extra packages: pip install 'semifl[pretrained]'") from error
    settings = dict(config)
    kind = settings.pop("model_type")
    auto = transformers.AutoModelForImageClassification
    try:
        form = transformers.AutoConfig.for_model(kind, **settings)
        if backbone is None or torch.empty(0).device.type == "meta":
            return auto.from_config(form, trust_remote_code=False)  # type: ignore[no-untyped-call]
        backbone.weights  # noqa: B018  (refuses a folder without any)
        return auto.from_pretrained(
            backbone.folder, config=form, use_safetensors=True, trust_remote_code=False, local_files_only=True,
            dtype=torch.float32,
        )  # fmt: skip
    except UserError:
        raise
    except Exception as error:  # a library's errors have many types
        where = backbone.folder if backbone else "the model file"
        raise UserError(f"{where} cannot be loaded as a classifier of type {kind!r}: {why(error)[:200]}") from error


def _interpolation(model: Any) -> dict[str, bool]:
    asked = inspect.signature(model.forward).parameters
    return {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in asked else {}


def _add_adapters(trunk: nn.Module, frozen: set[nn.Module], rank: int, targets: tuple[str, ...]) -> None:
    """LoRA: a product of two thin matrices beside each chosen layer, the second of them 0 at first."""
    try:
        import peft
    except ImportError as error:
        raise UserError("train = \"lora\" needs extra packages: pip install 'semifl[pretrained]'") from error
    layers = [(name, layer) for name, layer in trunk.named_modules() if layer not in frozen]
    names = [name for name, layer in layers if _multiplies(layer) and _is_meant(name, targets)]
    if not names:
        raise UserError(f"no layer of the backbone that could have an adapter ends with one of {list(targets)}")
    # The usual scale: twice the rank, so that the rank does not change how strongly adapters act.
    peft.inject_adapter_in_model(peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=names), trunk)


def _multiplies(layer: nn.Module) -> bool:
    """A linear layer, or a convolution that is one for every pixel."""
    return isinstance(layer, nn.Linear) or (
        isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1) and layer.groups == 1
    )


def _is_meant(name: str, targets: tuple[str, ...]) -> bool:
    return not targets or name.endswith(targets)
