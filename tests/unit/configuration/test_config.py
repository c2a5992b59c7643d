"""TOML in and out, and a sentence for every mistake."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from semifl import toml
from semifl.configuration.build import build_world
from semifl.configuration.config import decode, override, read
from semifl.errors import UserError
from semifl.learning.aggregation import Aggregation, Mean, Trimmed
from semifl.learning.server_optimizer import Adam, Momentum, ServerOptimizer, Yogi
from semifl.methods.semifl import SemiFL
from semifl.studies.presets import find, presets
from toys import toy_table


def test_an_empty_file_is_the_default_experiment() -> None:
    config = decode({})
    assert config.method.thing == SemiFL()
    assert (config.data.name, config.model.name, config.run.rounds, config.run.seed) == (
        "digits",
        "wide_resnet",
        800,
        0,
    )


@pytest.mark.parametrize("preset", presets(), ids=lambda preset: preset.name)
def test_every_preset_survives_a_round_trip_through_toml(preset, tmp_path: Path) -> None:
    config = decode(preset.table)
    (tmp_path / "config.toml").write_text(toml.dumps(config.table()))
    again = decode(read(tmp_path / "config.toml"))
    assert again.table() == config.table()
    assert again.method == config.method


def test_presets_state_the_papers_values() -> None:
    assert find("cifar10-250-iid").about.endswith("paper: 88.2 (0.3)")
    assert find("cifar100-10000-k2").about.endswith("paper: 62.1 (0.4)")
    assert find("cifar10-4000-fixmatch").about.endswith("paper: 95.7 (0.1)")
    assert find("svhn-k2-fedavg").about.endswith("paper: 72.3 (4.4)")
    assert find("cifar10-4000-iid-alternate-batch").about.endswith("paper: 81.70")


@pytest.mark.parametrize(
    ("name", "batch", "width"),
    [
        ("cifar10-250-iid", 10, 2),
        ("cifar10-4000-k2", 250, 2),
        ("svhn-1000-iid", 250, 2),
        ("svhn-1000-iid-released", 10, 2),
        ("cifar100-2500-dir0.1", 10, 8),
        ("cifar100-2500-dir0.1-released", 250, 8),
        ("cifar100-10000-dir0.3", 250, 8),
    ],
)
def test_paper_presets_have_the_released_programs_settings(name: str, batch: int, width: int) -> None:
    config = decode(find(name).table)
    method = config.method.thing
    assert (method.server_batch, config.model_keys["width"], config.model_keys["depth"]) == (batch, width, 28)
    assert (method.lr, method.momentum, method.weight_decay, method.threshold, method.mix_beta) == (
        0.03,
        0.9,
        5e-4,
        0.95,
        0.75,
    )
    assert (method.client_epochs, method.server_epochs, method.client_batch, method.server_optimizer.momentum) == (
        5,
        5,
        10,
        0.5,
    )
    assert (config.method.name, method.clip_norm, method.client_buffers, method.strong_view) == (
        "semifl_released",
        1.0,
        "kept",
        "reference",
    )
    assert (config.run.rounds, config.split.clients, method.activity_rate, config.run.labels_only) == (
        800,
        100,
        0.1,
        False,
    )


def test_naming_another_method_discards_what_was_tuned_for_the_former_one() -> None:
    table = {"method": {"name": "semifl", "threshold": 0.7, "activity_rate": 0.4, "mix_weight": 0.0}}
    heard: list[str] = []
    assert override(table, ["method.name=balanced"], heard.append)["method"] == {"name": "balanced"}
    assert "method.activity_rate=0.4" in heard[0]
    assert "threshold" not in heard[0]  # balanced has no such key, so nobody can keep it
    ours = ["method.threshold=0.9", "method.name=fl2"]
    assert override(table, ours, heard.append)["method"] == {"name": "fl2", "threshold": 0.9}
    assert "threshold" not in heard[1]  # it was set anew
    assert override(table, ["method.name=semifl"], heard.append)["method"] == table["method"]
    assert override({"method": {"threshold": 0.7}}, ["method.name=balanced"], heard.append)["method"] == {
        "name": "balanced"
    }
    assert len(heard) == 2
    with pytest.raises(UserError, match="threshold"):  # what a person asks for is never dropped in silence
        decode(override(table, ["method.name=balanced", "method.threshold=0.9"]))


def test_a_name_within_the_method_may_stand_before_the_methods_own() -> None:
    settings = ["method.server_optimizer.name=adam", "method.name=fl2"]
    assert override({}, settings)["method"] == {"name": "fl2", "server_optimizer": {"name": "adam"}}


def test_override_takes_toml_values_and_bare_words() -> None:
    table = override(
        {"method": {"lr": 0.1}}, ["method.lr=0.5", "data.name=cifar10", "labels_only=false", "data.labeled=40"]
    )
    assert table == {"method": {"lr": 0.5}, "data": {"name": "cifar10", "labeled": 40}, "labels_only": False}


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"sede": 1}, "unknown key sede; did you mean 'seed'?"),
        ({"method": {"treshold": 0.5}}, "unknown key method.treshold; did you mean 'threshold'?"),
        ({"method": {"threshold": 1.5}}, "method.threshold must lie between 0 and 1, not 1.5"),
        ({"method": {"threshold": "high"}}, "method.threshold = 'high' is not right: it should be a valid number"),
        ({"method": {"client_epochs": 1.5}}, "method.client_epochs = 1.5 is not right"),
        ({"method": {"nesterov": 1}}, "method.nesterov = 1 is not right: it should be a valid boolean"),
        ({"method": {"statistics": "al"}}, "method.statistics = 'al' is not right: it should be 'server', 'cohort' or"),
        ({"method": {"order": "paper"}}, "there is no key method.order any more: use method.name"),
        ({"method": {"server_optimizer": {"name": "adma"}}}, "did you mean 'adam'?"),
        ({"method": {"server_optimizer": {"beta2": 0.5}}}, "unknown key method.server_optimizer.beta2; known are lr"),
        ({"method": {"server_optimizer": 3}}, "method.server_optimizer must be a section, [method.server_optimizer]"),
        ({"method": {"aggregation": {"name": "trimmed", "share": 0.5}}}, "method.aggregation.share must be at least 0"),
        ({"method": {"mix_weight": 0.0, "mix_beta": 0.5}}, "method.mix_beta has no effect with mix_weight = 0"),
        (
            {"method": {"name": "semifl_ablated", "training": "alternate", "step_from": "server"}},
            "method.step_from has no effect",
        ),
        ({"method": {"name": "semilf"}}, "did you mean 'semifl'?"),
        ({"model": {"depth": 11}}, "model.depth must be 10, 16, 22, 28"),
        ({"model": {"name": "resnet", "depth": 50}}, "model.depth = 50 is not right: it should be 9 or 18"),
        ({"model": {"name": "nowhere:Model"}}, "model.name = 'nowhere:Model' cannot be imported"),
        ({"model": {"name": "toys:NoModel"}}, "has no 'NoModel'"),
        ({"model": {"name": "toys:toy_model", "hiden": 3}}, "unknown key model.hiden; did you mean 'hidden'?"),
        ({"data": {"name": "digits", "root": "x"}}, "unknown key data.root"),
        ({"data": {"partition": {"name": "ird"}}}, "did you mean 'iid'?"),
        ({"data": {"partition": {"name": "dirichlet", "alpha": 0.0}}}, "data.partition.alpha must be above 0"),
        ({"data": {"clients": 0}}, "data.clients must be at least 1"),
        ({"data": {"validation": 1.0}}, "data.validation must be at least 0 and below 1"),
        ({"data": "digits"}, "data must be a section"),
        ({"rounds": 0}, "rounds must be at least 1, not 0"),
        ({"stop": {"patience": 3}}, "stop.patience needs data.validation"),
    ],
)
def test_a_mistake_is_one_sentence(table: dict, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        decode(table)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_paths_in_a_file_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('[data]\nname = "folder"\nroot = "pictures"\n[model]\nweights = "/else/w"\n')
    table = read(tmp_path / "own.toml")
    assert table["data"]["root"] == str(tmp_path / "pictures")
    assert table["model"]["weights"] == "/else/w"


@pytest.mark.parametrize("setting", ["rounds", "=3", "method.=1", "seed.value=1"])
def test_a_setting_of_the_wrong_form_is_one_sentence(setting: str) -> None:
    with pytest.raises(UserError, match="--set"):
        override({"seed": 0}, [setting])


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "notepad.toml").write_bytes(b"\xef\xbb\xbfrounds = 3\r\n")
    assert read(tmp_path / "notepad.toml") == {"rounds": 3}


def test_unreadable_files_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("rounds = = 3")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for name, sentence in (
        ("none.toml", "cannot read"),
        ("bad.toml", "not valid TOML"),
        ("binary.toml", "not a text file"),
    ):
        with pytest.raises(UserError, match=sentence):
            read(tmp_path / name)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"clients": 43}, "data.clients = 43 is more than the 42 unlabeled pictures there are"),
        ({"labeled": 7}, "data.labeled = 7 cannot be balanced over 3 classes"),
        ({"labeled": 0}, "data.labeled must be at least 1, not 0"),
        ({"labeled": 51}, "asks for 17 pictures of every class, but class 'red' has only 16"),
        ({"labeled": 3, "validation": 0.5}, "leaves class 'red', which has 1 labels"),
        ({"partition": {"name": "site"}}, "needs data that come by site"),
        ({"partition": {"name": "classes", "per_client": 2}}, "make the product a multiple of 3"),
        ({"partition": {"name": "dirichlet", "minimum": 11}}, "is more than the 42 unlabeled pictures allow"),
    ],
)
def test_data_that_cannot_be_divided_is_one_sentence(changes: dict, sentence: str) -> None:
    from semifl.configuration.build import build_world
    from toys import toy_table

    table = toy_table()
    table["data"] |= changes
    with pytest.raises(UserError) as error:
        build_world(decode(table))
    assert sentence in str(error.value)


@dataclass(frozen=True)
class TwoChoices:
    """A method, as far as a configuration asks, with two fields that are sections."""

    first: ServerOptimizer = Momentum(momentum=0.25)
    second: Aggregation = Mean()

    def round(self) -> None: ...


NAME = f"{__name__}:TwoChoices"


def test_every_field_that_is_a_choice_is_a_section_and_show_prints_what_run_reads() -> None:
    given = {"name": NAME, "first": {"name": "yogi", "beta1": 0.5}, "second": {"name": "trimmed", "share": 0.1}}
    config = decode({"method": given})
    assert config.method.thing == TwoChoices(Yogi(beta1=0.5), Trimmed(0.1))
    printed = toml.dumps(config.table())
    assert "[method.first]" in printed
    assert decode(tomllib.loads(printed)).table() == config.table()


def test_keys_left_out_of_a_section_are_those_of_the_methods_default_while_its_name_is_kept() -> None:
    assert decode({"method": {"name": NAME, "first": {"lr": 0.5}}}).method.thing.first == Momentum(0.5, 0.25)
    assert decode({"method": {"name": NAME, "first": {"name": "momentum"}}}).method.thing.first.momentum == 0.25
    assert decode({"method": {"name": NAME, "first": "adam"}}).method.thing.first == Adam()
    assert decode({"method": {"name": "fedrgd", "server_optimizer": {"lr": 0.5}}}).method.thing.server_optimizer == (
        Momentum(0.5, 0.0)
    )


def test_the_keys_of_a_choice_go_with_its_name() -> None:
    table = {"method": {"server_optimizer": {"name": "momentum", "momentum": 0.3}}, "data": {"labeled": 20}}
    setting = ["method.server_optimizer.lr=0.2", "method.server_optimizer.name=adam"]
    assert override(table, setting)["method"]["server_optimizer"] == {"lr": 0.2, "name": "adam"}
    same = override(table, ["method.server_optimizer.name=momentum"])["method"]["server_optimizer"]
    assert same == {"name": "momentum", "momentum": 0.3}
    assert override(table, ["data.name=svhn"])["data"] == {
        "labeled": 20,
        "name": "svhn",
    }  # of a whole section they stay


def test_a_mistyped_name_of_a_choice_without_keys_is_told() -> None:
    with pytest.raises(UserError, match=r"unknown key method\.aggregation\.nme; did you mean 'name'\?"):
        decode({"method": {"aggregation": {"nme": "median"}}})


@pytest.mark.parametrize(("held", "divided"), [("unlabeled", 48 - 12), ("everything", 48)])
def test_clients_hold_the_rest_or_everything_but_never_what_is_held_out(held: str, divided: int) -> None:
    table = toy_table()
    table["data"] = {**table["data"], "labeled": 12, "clients": 3, "clients_hold": held}
    assert len(build_world(decode(table)).division.clients.order) == divided
    table["data"]["validation"] = 0.25
    division = build_world(decode(table)).division
    assert not set(division.validation.tolist()) & set(division.clients.order.tolist())
    assert (len(set(division.server.tolist()) & set(division.clients.order.tolist())) > 0) == (held == "everything")
