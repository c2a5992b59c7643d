"""What a round of a real federation costs beside the training: seconds, and bytes as counted on the wire.

Hub and two sites are processes of their own on loopback, with TLS. A proxy that both sites dial through counts what
passes. The overhead of a round is its time less the time that the same round takes in a simulation on the same machine;
training is kept to a step or two so that little is left of it. Prints one JSON line per precision.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))


from deploy.net import CountingProxy, Net
from federated_pictures import make_federation
from semifl import toml
from semifl.configuration.config import decode
from semifl.records.directory import RunDirectory
from semifl.running.loop import start

SITES = ("clinic-a", "clinic-b")
ROUNDS = 12


def table(precision: str) -> dict:
    """A wide ResNet of 1.5 million parameters, and hardly a step of training."""
    return {
        "rounds": ROUNDS,
        "threads": 1,
        "labels_only": False,
        "data": {"size": 8},
        "model": {"name": "wide_resnet", "depth": 28, "width": 2},
        "method": {
            "activity_rate": 1.0, "threshold": 0.0, "client_epochs": 1, "server_epochs": 1, "client_batch": 100,
            "server_batch": 100,
        },
        "deploy": {"precision": precision, "deadline": 60.0},
    }  # fmt: skip


def seconds(records: list[dict]) -> float:
    """Of a usual round; the first ones decode pictures and start trainers."""
    return median(record["seconds"]["total"] for record in records[2:])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        pictures = make_federation(root / "pictures", SITES, pictures=2)
        local = {**table("fp32"), "data": {"size": 8, "name": "folder", "root": str(pictures)}}
        del local["deploy"]
        start(decode(local), root / "local")
        alone = RunDirectory(root / "local").rounds()
        net = Net(root, SITES)
        try:
            net.provision()
            proxy = CountingProxy(net.port)
            net.dial_through(proxy)
            net.start_all(pictures)
            for precision in ("fp32", "fp16"):
                print(json.dumps(measured(net, proxy, precision, seconds(alone))), flush=True)
        finally:
            net.close()


def measured(net: Net, proxy: CountingProxy, precision: str, alone: float) -> dict:
    config = net.folder / f"{precision}.toml"
    config.write_text(toml.dumps(table(precision)))
    run = net.run(config)
    name = f"{precision}-seed-0"
    net.wait_for_rounds(name, 2)
    before, first = proxy.bytes, len(net.records(name))
    net.wait_for_rounds(name, ROUNDS - 1)
    after, last = proxy.bytes, len(net.records(name))
    out, _ = run.communicate(timeout=120)
    assert run.returncode == 0, out
    records = net.records(name)
    model = records[-1]["bytes_down"] / len(SITES)  # of the snapshot as it travels
    wire = (after - before) / (last - first)
    return {
        "benchmark": "federation", "precision": precision, "megabytes_of_the_model": round(model / 1e6, 3),
        "megabytes_on_the_wire_per_round": round(wire / 1e6, 3),
        "wire_over_model_x2_x_sites": round(wire / (2 * len(SITES) * model), 4),
        "seconds_per_round": round(seconds(records), 3), "seconds_in_a_simulation": round(alone, 3),
        "overhead_seconds": round(seconds(records) - alone, 3),
    }  # fmt: skip


if __name__ == "__main__":
    main()
