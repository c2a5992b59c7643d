"""What a run's final weights score with BatchNorm statistics of other pictures. It trains nothing.

    python results/cifar10/whose_statistics.py RUN

Of the server's pictures alone, of these and those of as many clients as take part in a round (five draws), and of
these and everybody's. Prints one JSON line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from semifl.configuration.build import build_world
from semifl.configuration.config import decode, read
from semifl.federation.local import draw
from semifl.federation.sites import grade_block, own_statistics
from semifl.learning.batchnorm import BatchNormStats, pool
from semifl.learning.weights import Snapshot
from semifl.trained.modelfile import load_model

DRAWS = 5


def main() -> None:
    torch.set_num_threads(1)
    run = Path(sys.argv[1])
    world = build_world(decode(read(run / "config.toml")))
    place = world.place(None, "cpu")
    weights = load_model(run / "model.safetensors").network.weights()
    pictures = [world.data.images[world.division.server], *map(place.images_of, range(len(place.holdings)))]
    server, *clients = (own_statistics(place, weights, each) for each in pictures)

    def accuracy(*parts: BatchNormStats) -> float:
        score = grade_block(place, Snapshot(weights, pool(parts)), ("test", 0, len(world.data.test_labels)))
        return round(score.accuracy, 2)

    size = world.config.method.thing.cohort_size(len(clients))
    cohorts = [draw(len(clients), size, torch.Generator().manual_seed(seed)) for seed in range(DRAWS)]
    found = {
        "server": accuracy(server),
        "server_and_cohort": [accuracy(server, *(clients[each] for each in cohort)) for cohort in cohorts],
        "everybody": accuracy(server, *clients),
    }
    print(json.dumps({"run": run.name, **found}))


if __name__ == "__main__":
    main()
