"""A pre-trained backbone in a federation of real processes, FLARE's and Flower's: each machine brings the weights,
nothing but what trains travels, and the bits are those of a simulation."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file

pytest.importorskip("transformers", reason="needs the pretrained extra: pip install 'semifl[pretrained]'")

import backbones
from deploy.net import CountingProxy, Net
from federated_pictures import make_federation, run_table
from semifl import toml
from semifl.configuration.config import decode
from semifl.learning.weights import digest
from semifl.running.loop import start

pytestmark = pytest.mark.skipif(os.environ.get("SEMIFL_DEPLOY") != "full", reason="part of make test-deploy")
SITES = ("clinic-a", "clinic-b")
NAME = "tiny"
ROUNDS = 2
HEAD = 16 * 3 + 3  # numbers: features times classes, and a bias for each class
ADAPTERS = 2 * 2 * (2 * 16 + 16 * 2)  # layers, targets in each, and two matrices of rank 2 for 16 features
WAYS = {
    "head": ({"train": "head", "views": 2}, HEAD),
    "lora": ({"train": "lora", "rank": 2, "targets": ["q_proj", "v_proj"]}, HEAD + ADAPTERS),
}


def table(**model) -> dict:
    made = run_table(ROUNDS, mix_weight=0.0, threshold=0.0)
    made["data"] = {}  # the backbone says how large pictures are
    made["model"] = {"name": "pretrained", "source": NAME, **model}
    return made


def lines(folder: Path) -> list[dict]:
    records = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    rounded = ("seconds", "client_loss", "agreement", "terms")  # a site tells the clients' with three digits
    return [{key: value for key, value in record.items() if key not in rounded} for record in records]


def same_bits_as_simulated(remote: Path, asked: dict, pictures: Path, folder: Path, monkeypatch) -> None:
    """The simulation has a backbone of its own, in a folder of its own."""
    monkeypatch.setenv("SEMIFL_DATA", str(folder / "data"))
    backbones.vit(folder / "data/backbones" / NAME)
    start(decode({**asked, "data": {"name": "folder", "root": str(pictures)}}), folder / "local")
    assert lines(remote) == lines(folder / "local")
    models = [load_file(each / "model.safetensors") for each in (remote, folder / "local")]
    assert digest(models[0]) == digest(models[1])


def whole_backbone(folder: Path) -> int:
    """Bytes of a backbone's weights."""
    return (folder / "model.safetensors").stat().st_size


class Flare(Net):
    """Every kit has its own backbones; the sites reach the hub through a proxy that counts."""

    def home(self, name: str) -> Path:
        return self.kits[name].folder / "cache/backbones"

    def begin(self, name: str, asked: dict, **deploy: object):
        config = self.folder / f"{name}.toml"
        config.write_text(toml.dumps({**asked, "deploy": deploy}))
        return self.run(config, "--name", name)

    def play(self, name: str, asked: dict, code: int = 0, **deploy: object) -> str:
        run = self.begin(name, asked, **deploy)
        out, _ = run.communicate(timeout=240)
        assert run.returncode == code, out
        return " ".join(out.split())


@pytest.fixture(scope="module")
def flare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flare]:
    pytest.importorskip("nvflare", reason="needs the flare extra: pip install 'semifl[flare]'")
    folder = tmp_path_factory.mktemp("flare")
    pictures = make_federation(folder / "pictures", SITES)
    net = Flare(folder, SITES)
    try:
        net.provision()
        net.proxy = CountingProxy(net.port)
        net.dial_through(net.proxy)
        for name in ("hub", *SITES):
            backbones.vit(net.home(name) / NAME)
            backbones.lite(net.home(name) / "lite")
        for site in SITES:
            policy = net.kits[site].policy
            shared = policy.read_text().replace("class_histogram = false", "class_histogram = true")
            policy.write_text(shared.replace("smallest_count = 5 ", "smallest_count = 1 "))
        net.start_all(pictures)
        yield net
    finally:
        net.close()


def features_at(memory: Path) -> list[Path]:
    return list(memory.glob("**/features/**/*.safetensors"))


@pytest.mark.parametrize("way", WAYS)
def test_over_flare_only_what_trains_travels_and_the_bits_are_a_simulations(flare, tmp_path, monkeypatch, way):
    model, numbers = WAYS[way]
    asked = table(**model)
    flare.play(way, asked, min_updates=2)
    remote = flare.kits["hub"].runs / way
    assert [record["bytes_up"] for record in lines(remote)] == ROUNDS * [len(SITES) * 4 * numbers]
    same_bits_as_simulated(remote, asked, flare.folder / "pictures", tmp_path, monkeypatch)
    assert [features_at(flare.kits[site].memory) for site in SITES] == [[], []]  # they end with the job


def test_over_flare_the_wire_carries_less_than_a_tenth_of_a_backbone(flare):
    """All bytes that pass while a run is played, by FLARE's own messages and TLS too, as a proxy counts them."""
    before = flare.proxy.bytes
    flare.play("wire", table(source="lite", size=32, views=1), min_updates=2)
    passed = flare.proxy.bytes - before
    assert len(lines(flare.kits["hub"].runs / "wire")) == ROUNDS
    assert passed < whole_backbone(flare.home("hub") / "lite") / 10, f"{passed} bytes"


def test_over_flare_a_site_with_another_backbone_or_none_refuses(flare):
    kept, asked = flare.home("clinic-b") / NAME, table(train="head")
    try:
        shutil.rmtree(kept)
        backbones.vit(kept, seed=1)
        told = flare.play("other", asked, code=2, min_updates=2)
        assert f"clinic-b holds another backbone '{NAME}' than the hub" in told
        shutil.rmtree(kept)
        told = flare.play("none", asked, code=2, min_updates=2)
        assert f"clinic-b does not hold the backbone '{NAME}'" in told
        assert "semifl backbone get" in told
        assert str(flare.kits["clinic-b"].folder) not in told
        flare.play("without", asked, min_updates=1)  # the other site goes on alone
        assert [record["failed"] for record in lines(flare.kits["hub"].runs / "without")] == ROUNDS * [[1]]
    finally:
        shutil.rmtree(kept, ignore_errors=True)
        backbones.vit(kept)


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory):
    pytest.importorskip("flwr", reason="Flower is not installed: pip install 'semifl[flower]'")
    from deploy.flower_net import Net as FlowerNet

    folder = tmp_path_factory.mktemp("flower")
    net = FlowerNet(folder, make_federation(folder / "pictures", SITES))
    hubs = net.env["SEMIFL_DATA"]
    try:
        backbones.vit(Path(hubs) / "backbones" / NAME)
        net.start_link()
        for site in SITES:
            net.register(site)
            net.env["SEMIFL_DATA"] = str(folder / f"cache-{site}")  # each on a machine of its own
            backbones.vit(folder / f"cache-{site}/backbones" / NAME)
            net.start_node(site)
            net.env["SEMIFL_DATA"] = hubs
        yield net
    finally:
        net.close()


@pytest.mark.parametrize("way", WAYS)
def test_over_flower_only_what_trains_travels_and_the_bits_are_a_simulations(flower, tmp_path, monkeypatch, way):
    model, numbers = WAYS[way]
    asked = table(**model)
    (tmp_path / "run.toml").write_text(toml.dumps(asked))
    said = flower.run(way, SITES, tmp_path / "run.toml", 600)
    assert f"round {ROUNDS}: accuracy" in said, said + flower.logs()
    remote = flower.folder / "runs" / way
    assert [record["bytes_up"] for record in lines(remote)] == ROUNDS * [len(SITES) * 4 * numbers]
    same_bits_as_simulated(remote, asked, flower.data, tmp_path, monkeypatch)
    assert [features_at(flower.folder / "memory" / site) for site in SITES] == [[], []]  # the hub says when it is over


def test_over_flower_a_site_with_another_backbone_refuses(flower, tmp_path):
    """The other site goes on alone, and the events of the run say why."""
    kept = flower.folder / f"cache-clinic-b/backbones/{NAME}"
    shutil.rmtree(kept)
    backbones.vit(kept, seed=1)
    (tmp_path / "run.toml").write_text(toml.dumps({**table(train="head"), "deploy": {"min_updates": 1}}))
    flower.run("other", SITES, tmp_path / "run.toml", 600)
    remote = flower.folder / "runs" / "other"
    assert [record["failed"] for record in lines(remote)] == ROUNDS * [[1]]
    assert f"clinic-b holds another backbone '{NAME}' than the hub" in (remote / "events.jsonl").read_text()
