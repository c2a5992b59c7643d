"""What a model costs, whatever the machine: multiply-adds of a picture, and the bytes of a message.

Counted where they happen, from the operations of a real pass over a picture of 3 × 32 × 32 with ten classes. A message
is what a client sends or gets in a round, its trainable weights in fp32. Prints one JSON line per model.
"""

from __future__ import annotations

import torch
from measure import flops, report

from semifl.learning.network import Network
from semifl.models.fast_cnn import FastCnn
from semifl.models.wide_resnet import WideResNet

MODELS = {
    "fast_cnn 16/64/64": FastCnn((16, 64, 64)),
    "fast_cnn 32/128/128": FastCnn((32, 128, 128)),
    "fast_cnn 64/256/256": FastCnn(),
    "WRN-10-1": WideResNet(10, 1),
    "WRN-16-2": WideResNet(16, 2),
    "WRN-28-2": WideResNet(28, 2),
}


def main() -> None:
    torch.set_num_threads(1)
    for name, spec in MODELS.items():
        network = Network(spec.build(3, 32, 10))
        inference, training = (count / 2 for count in flops(network.module, 3, 32))  # a multiply-add is two
        parameters = len(network.vector)
        report(
            "arithmetic",
            name,
            inference_multiply_adds=round(inference),
            training_multiply_adds=round(training),
            parameters=parameters,
            message_bytes=4 * parameters,
        )


if __name__ == "__main__":
    main()
