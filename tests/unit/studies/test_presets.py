"""The presets under the paper's names: each value against where it comes from.

Sources: [paper] the SemiFL paper and its table of hyper-parameters; [program] the authors' released program in its last
version; [earlier] the version before September 2022, which the K = 2 ablations and figure 2 match; [MixMatch],
[ReMixMatch], [FixMatch], [UDA] those papers, or their authors' re-runs of older methods; [FedMatch], [FedRGD] the
programs of those methods' own authors.
"""

import math

import pytest

from semifl.configuration.config import decode
from semifl.studies.presets import find, presets

FEDMATCH_KEYS = {
    "lr",
    "momentum",
    "client_batch",
    "server_batch",
    "client_epochs",
    "server_epochs",
    "activity_rate",
} | {
    *(
        "threshold",
        "supervised_weight",
        "agreement_weight",
        "consistency_weight",
        "l1_weight",
        "l2_weight",
        "psi_share",
    ),
    *("helpers", "helper_interval", "sparsity"),
}
OURS = ("fedavg_fixmatch", "fedsgd_fixmatch")  # which end like the FixMatch presets

# preset, key, value, source
VALUES = [
    ("cifar10-250-iid", "method.server_batch", 10, "[paper] table of hyper-parameters"),
    ("cifar10-4000-iid", "method.server_batch", 250, "[paper]"),
    ("svhn-250-iid", "method.server_batch", 10, "[paper]"),
    ("svhn-1000-iid", "method.server_batch", 250, "[paper]; [program] 10"),
    ("cifar100-2500-iid", "method.server_batch", 10, "[paper]; [program] 250"),
    ("cifar100-10000-iid", "method.server_batch", 250, "[paper]"),
    ("svhn-1000-iid-released", "method.server_batch", 10, "[program] 250 above 1,000 labels, else 10"),
    ("cifar100-2500-iid-released", "method.server_batch", 250, "[program]"),
    ("cifar10-4000-iid", "method.server_buffers", "fresh", "[earlier] never saved"),
    ("cifar10-4000-k2-e1", "method.server_buffers", "fresh", "[earlier]"),
    ("cifar10-4000-iid-released", "method.server_buffers", "kept", "[program] since 2022-09-09"),
    ("cifar10-4000-iid", "method.client_buffers", "kept", "[earlier] and [program]"),
    ("cifar10-4000-iid", "rounds", 800, "[paper]"),
    # Supervised rows
    ("cifar10-fully-supervised", "method.clip_norm", 1.0, "[program]"),
    ("cifar10-fully-supervised", "method.batch", 250, "[program]"),
    ("cifar10-fully-supervised", "method.lr", 0.1, "[program]"),
    ("cifar10-fully-supervised", "rounds", 400, "[program]"),
    ("svhn-1000-partially-supervised", "method.clip_norm", 1.0, "[program]"),
    ("svhn-1000-partially-supervised", "method.batch", 10, "[program] 10 up to 1,000 labels"),
    # "HeteroFL" divides all pictures among the clients
    ("cifar10-iid-fedavg", "data.clients_hold", "everything", "[program]"),
    ("cifar10-iid-fedavg", "method.weighting", "uniform", "[program]"),
    ("cifar10-iid-fedavg", "method.server_optimizer.momentum", 0.5, "[program]"),
    ("cifar10-4000-iid", "data.clients_hold", "unlabeled", "[program]"),
    # FedMatch as the tables ran it
    ("cifar10-4000-iid-fedmatch-released", "method.threshold", 0.95, "[program]"),
    ("cifar10-4000-iid-fedmatch-released", "method.supervised_weight", 1.0, "[program]"),
    ("cifar10-4000-iid-fedmatch-released", "method.agreement_weight", 1.0, "[program]"),
    ("cifar10-4000-iid-fedmatch-released", "method.weight_decay", 5e-4, "[program]"),
    ("cifar10-4000-iid-fedmatch-released", "method.server_optimizer.momentum", 0.5, "[program]"),
    ("cifar10-4000-iid-fedmatch-released", "method.psi_share", 1.0, "[program] σ and ψ of the same scale"),
    ("cifar10-4000-iid-fedmatch-earlier", "method.step_from", "server", "[earlier]"),
    ("cifar10-4000-iid-fedmatch-earlier", "method.mix_weight", 0.0, "[earlier]"),
    ("cifar10-4000-iid-fedmatch-earlier", "method.server_buffers", "fresh", "[earlier]"),
    ("cifar10-4000-iid-fedmatch-released", "method.sparsity", 0.0, "[program]"),
    ("cifar10-4000-iid-fedmatch-released", "method.server_channels", "half", "[program]"),
    ("cifar10-4000-iid-fedmatch-released", "method.trained", "convolutions", "[program]"),
    ("cifar10-4000-iid-fedmatch-released", "method.helpers", 0, "[program]"),
    ("cifar10-4000-iid-fedmatch-released", "method.l2_weight", 0.0, "[program]"),
    ("cifar10-4000-iid-fedrgd-released", "method.step_from", "server", "[program]"),
    ("cifar10-4000-iid-fedrgd-released", "method.mix_weight", 0.0, "[program]"),
    # FedMatch and FedRGD by their authors
    ("fedmatch-authors", "data.labeled", 1000, "[FedMatch] 100 per class"),
    ("fedmatch-authors", "data.clients", 100, "[FedMatch]"),
    ("fedmatch-authors", "method.activity_rate", 0.05, "[FedMatch] 5 of 100"),
    ("fedmatch-authors", "method.server_batch", 100, "[FedMatch]"),
    ("fedmatch-authors", "method.client_batch", 100, "[FedMatch]"),
    ("fedmatch-authors", "method.lr", 1e-3, "[FedMatch]"),
    ("fedmatch-authors", "method.threshold", 0.75, "[FedMatch]"),
    ("fedmatch-authors", "method.supervised_weight", 10.0, "[FedMatch]"),
    ("fedmatch-authors", "rounds", 200, "[FedMatch]"),
    ("fedrgd-authors", "data.labeled", 1000, "[FedRGD]"),
    ("fedrgd-authors", "data.clients", 10, "[FedRGD]"),
    ("fedrgd-authors", "method.lr", 0.09, "[FedRGD] 0.03 × 6 × 64 / 128: two groups of five clients and a replica"),
    ("fedrgd-authors", "method.weight_decay", 1e-4, "[FedRGD]"),
    ("fedrgd-authors", "method.iterations", 16, "[FedRGD]"),
    ("fedrgd-authors", "method.warmup_rounds", 5 * 64, "[FedRGD] 5 epochs of 65,536 / 64 / 16 rounds"),
    ("fedrgd-authors", "rounds", 300 * 64, "[FedRGD] 300 epochs"),
    ("fedrgd-authors", "method.client_buffers", "kept", "[FedRGD] one optimiser for ever"),
    ("fedrgd-authors", "method.server_buffers", "kept", "[FedRGD]"),
    ("fedrgd-authors", "model.norm", "group", "[FedRGD]"),
    # Semi-supervised rows: one program ran all of the quoted table
    ("cifar10-250-mixmatch", "method.objective.unlabeled_weight", 100.0, "[FixMatch] mixmatch.py w_match"),
    ("svhn-250-mixmatch", "method.objective.unlabeled_weight", 100.0, "[FixMatch] mixmatch.py, one for all data"),
    ("cifar10-250-mixmatch", "method.objective.mix_beta", 0.5, "[FixMatch] mixmatch.py beta"),
    ("cifar10-250-mixmatch", "method.objective.ramp_up", 1 / 64, "[FixMatch] warmup_kimg 1,024 of 65,536"),
    ("cifar10-250-remixmatch", "method.objective.ramp_up", 1 / 64, "[FixMatch] warmup_kimg 1,024 of 65,536"),
    ("cifar10-250-remixmatch", "method.objective.mix_beta", 0.75, "[FixMatch] remixmatch_no_cta.py beta"),
    ("cifar10-250-remixmatch", "method.objective.unlabeled_weight", 1.5, "[FixMatch] remixmatch_no_cta.py w_match"),
    ("cifar10-250-remixmatch", "method.objective.anchor_weight", 0.5, "[FixMatch] remixmatch_no_cta.py w_kl"),
    ("cifar10-250-remixmatch", "method.objective.rotation_weight", 0.5, "[FixMatch] remixmatch_no_cta.py w_rot"),
    ("cifar10-250-remixmatch", "method.objective.strong_views", 8, "[ReMixMatch] K"),
    ("cifar10-250-fixmatch", "method.objective.threshold", 0.95, "[FixMatch] fixmatch.py confidence"),
    ("cifar10-250-fixmatch", "method.objective.ratio", 7, "[FixMatch] fixmatch.py uratio"),
    ("cifar10-250-fixmatch", "method.weight_decay", 5e-4, "[FixMatch]"),
    ("cifar100-2500-fixmatch", "method.weight_decay", 1e-3, "[FixMatch] the paper's, on CIFAR-100"),
    ("cifar10-250-uda", "method.objective.threshold", 0.95, "[FixMatch] uda.py confidence"),
    ("cifar10-250-uda", "method.objective.temperature", 1.0, "[FixMatch] uda.py temperature"),
    ("cifar10-250-uda", "method.objective.ratio", 7, "[FixMatch] uda.py uratio"),
    ("cifar10-250-uda", "method.objective.annealing", "none", "[FixMatch] uda.py tsa"),
    ("cifar10-250-mean_teacher", "method.objective.unlabeled_weight", 50.0, "[FixMatch] mean_teacher.py"),
    (
        "svhn-250-mean_teacher",
        "method.objective.unlabeled_weight",
        50.0,
        "[FixMatch] mean_teacher.py, one for all data",
    ),
    ("cifar10-250-mean_teacher", "method.objective.ramp_up", 0.4, "[FixMatch] mean_teacher.py warmup_pos"),
    ("cifar10-250-mean_teacher", "method.objective.ramp", "linear", "[FixMatch] mean_teacher.py"),
    ("cifar10-250-mean_teacher", "method.objective.decay", 0.999, "[FixMatch] mean_teacher.py ema"),
    ("cifar10-250-pi_model", "method.objective.unlabeled_weight", 10.0, "[FixMatch] pi_model.py"),
    ("svhn-250-pi_model", "method.objective.unlabeled_weight", 10.0, "[FixMatch] pi_model.py, one for all data"),
    ("cifar10-250-pi_model", "method.objective.ramp_up", 0.4, "[FixMatch] pi_model.py warmup_pos"),
    ("cifar10-250-pi_model", "method.objective.ramp", "linear", "[FixMatch] pi_model.py"),
    ("cifar10-250-pi_model", "method.objective.stop_gradient", True, "[FixMatch] pi_model.py"),
    ("cifar10-250-pseudo_label", "method.objective.threshold", 0.95, "[FixMatch] pseudo_label.py"),
    ("svhn-250-pseudo_label", "method.objective.unlabeled_weight", 1.0, "[FixMatch] pseudo_label.py"),
    ("cifar10-250-pseudo_label", "method.objective.ramp_to", 0.4, "[FixMatch] pseudo_label.py warmup_pos"),
    *(
        (f"cifar10-250-{name}", key, value, "[FixMatch] every method of the program")
        for name in ("pi_model", "pseudo_label", "mean_teacher", "mixmatch", "uda", "remixmatch", "fixmatch")
        for key, value in (
            ("method.lr", 0.03),
            ("method.annealing", "fixmatch"),
            ("method.ema", 0.999),
            ("method.batch", 64),
            ("method.momentum", 0.9),
            ("method.nesterov", True),
        )
    ),
    # (FL)² as its authors trained it
    ("fl2-cifar10-10-iid", "method.warmup_steps", 50, "[(FL)²] ten calls of five epochs of one step"),
    ("fl2-cifar10-40-iid", "method.warmup_steps", 200, "[(FL)²] ten calls of five epochs of four steps"),
    ("fl2-svhn-40-iid", "method.warmup_steps", 2048, "[(FL)²] 2048 // steps of a call"),
    ("fl2-svhn-250-iid", "method.warmup_steps", 2048, "[(FL)²] 2048 // steps of a call"),
    ("fl2-cifar10-40-iid", "method.sharpness", 0.1, "[(FL)²] paper, section 5"),
    ("fl2-svhn-40-iid", "method.sharpness", 0.1, "[(FL)²] paper, section 5"),
    ("fl2-cifar100-400-iid", "method.sharpness", 1.0, "[(FL)²] paper, section 5"),
    ("fl2-cifar10-40-iid", "method.lr_schedule", "constant", "[(FL)²] its scheduler is never stepped"),
    ("fl2-cifar10-40-iid", "method.strong_view", "fixmatch", "[(FL)²] RandAugment of FixMatch's operations"),
    ("fl2-cifar10-40-iid", "method.threshold", 0.95, "[(FL)²]"),
    ("fl2-cifar10-40-iid", "method.clip_norm", 1.0, "[(FL)²]"),
    ("fl2-cifar10-40-iid", "method.client_batch", 32, "[(FL)²]"),
    ("fl2-cifar10-40-iid", "method.server_batch", 10, "[(FL)²]"),
]


@pytest.mark.parametrize(("preset", "key", "value", "source"), VALUES, ids=lambda each: str(each)[:40])
def test_a_value_is_that_of_its_source(preset: str, key: str, value: object, source: str) -> None:
    found: object = decode(find(preset).table).table()
    for part in key.split("."):
        assert isinstance(found, dict)
        found = found[part]
    assert found == value, source


@pytest.mark.parametrize("preset", [each.name for each in presets("*") if "objective" in each.table.get("method", {})])
def test_the_semi_supervised_rows_take_a_million_steps(preset: str) -> None:
    """2²⁰, as [MixMatch] and [FixMatch]; a step takes `ratio` × `batch` unlabeled pictures."""
    config = decode(find(preset).table)
    method, labeled = config.method.thing, config.split.labeled
    if not method.objective.views:
        return
    pictures = {"cifar10": 50_000, "svhn": 73_257, "cifar100": 50_000}[config.data.name] - labeled
    steps = config.run.rounds * math.ceil(pictures / (method.objective.ratio * method.batch))
    assert 2**20 <= steps < 1.01 * 2**20


def test_a_round_of_fedsgd_is_a_pass_over_everybodys_pictures() -> None:
    """[earlier] 10 of 100 clients at a time, 10 pictures each, until 46,000 are used up: 460 steps."""
    method = decode(find("cifar10-4000-iid-fedsgd-fixmatch").table).method.thing
    assert method.cohort_size(100) * method.client_batch == 100
    assert method.laps * 100 / method.cohort_size(100) == 46_000 / 100
    assert (method.lr, method.momentum, method.nesterov, method.weight_decay) == (0.03, 0.9, True, 5e-4)
    assert (method.clip_norm, method.server_batch, method.threshold) == (1.0, 250, 0.95)


# What a rival's authors set must stand in its preset: a default may change, and belongs to the method and not to them.
STATED = {
    "fl2-*0-iid": {
        "warmup_steps",
        "sharpness",
        "strong_view",
        "lr_schedule",
        "lr",
        "threshold",
        "clip_norm",
        "statistics",
    }
    | {"client_batch", "server_batch", "client_epochs", "server_epochs", "activity_rate"},
    "*-mixmatch": {"lr", "annealing", "ema", "weight_decay", "batch", "objective"},
    "*-uda": {"lr", "annealing", "ema", "weight_decay", "batch", "objective"},
    "*-pi_model": {"lr", "annealing", "ema", "weight_decay", "batch", "objective"},
    "*-mean_teacher": {"lr", "annealing", "ema", "weight_decay", "batch", "objective"},
    "*-pseudo_label": {"lr", "annealing", "ema", "weight_decay", "batch", "objective"},
    "*-remixmatch": {"lr", "annealing", "ema", "weight_decay", "batch", "objective"},
    "*-fixmatch": {"lr", "annealing", "ema", "weight_decay", "batch", "objective"},
    "fedmatch-authors": FEDMATCH_KEYS,
    "fedrgd-authors": {"lr", "weight_decay", "warmup_rounds", "iterations", "groups", "threshold", "client_buffers"}
    | {"server_buffers", "client_batch", "server_batch", "activity_rate"},
}


@pytest.mark.parametrize("pattern", STATED)
def test_a_rivals_preset_states_what_its_authors_set(pattern: str) -> None:
    found = [each for each in presets(pattern) if each.table["method"]["name"] not in OURS]
    assert found
    for preset in found:
        assert STATED[pattern] <= preset.table["method"].keys(), preset.name
