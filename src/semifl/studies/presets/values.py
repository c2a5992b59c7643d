"""The numbers printed in the paper's four result tables, and nothing else.

Tuples follow the columns CIFAR-10 with 250 and 4000 labels, SVHN with 250 and 1000, CIFAR-100 with 2500 and 10000;
where labels do not matter, the three data sets.
"""

from __future__ import annotations

FULLY = ("95.3 (0.1)", "97.3 (0.0)", "79.3 (0.1)")
PARTIALLY = ("42.4 (1.8)", "76.9 (0.2)", "77.1 (2.9)", "90.4 (0.5)", "27.2 (0.7)", "59.3 (0.1)")

SSL = {
    "pi_model": ("Π-Model", ("45.7 (4.0)", "86.0 (0.4)", "81.0 (1.9)", "92.5 (0.4)", "42.8 (0.5)", "62.1 (0.1)")),
    "pseudo_label": (
        "Pseudo-Labeling",
        ("50.2 (0.4)", "83.9 (0.3)", "79.8 (1.1)", "90.1 (0.6)", "42.6 (0.5)", "63.8 (0.2)"),
    ),
    "mean_teacher": (
        "Mean Teacher",
        ("67.7 (2.3)", "90.8 (0.2)", "96.4 (0.1)", "96.6 (0.1)", "46.1 (0.6)", "64.2 (0.2)"),
    ),
    "mixmatch": ("MixMatch", ("89.0 (0.9)", "93.6 (0.1)", "96.0 (0.2)", "96.5 (0.3)", "60.1 (0.4)", "71.7 (0.3)")),
    "uda": ("UDA", ("91.2 (1.1)", "95.1 (0.2)", "94.3 (2.8)", "97.5 (0.2)", "66.9 (0.2)", "75.5 (0.3)")),
    "remixmatch": ("ReMixMatch", ("94.6 (0.1)", "95.3 (0.1)", "97.1 (0.5)", "97.4 (0.1)", "72.6 (0.3)", "77.0 (0.6)")),
    "fixmatch": ("FixMatch", ("94.9 (0.7)", "95.7 (0.1)", "97.5 (0.4)", "97.7 (0.1)", "71.7 (0.1)", "77.4 (0.1)")),
}

FL = {
    "fedavg": (
        "HeteroFL",
        {
            "k2": ("51.5 (3.6)", "72.3 (4.4)", "3.1 (0.3)"),
            "dir0.1": ("85.0 (0.6)", "95.8 (0.1)", "74.0 (0.4)"),
            "dir0.3": ("91.6 (0.1)", "96.8 (0.0)", "76.9 (0.1)"),
            "iid": ("94.3 (0.1)", "97.5 (0.0)", "77.8 (0.2)"),
        },
    ),
}

SSFL = {
    "fedmatch": (
        "FedMatch",
        {
            "k2": ("41.3 (1.1)", "58.3 (1.0)", "58.2 (3.1)", "84.3 (1.0)", "17.7 (0.5)", "30.5 (0.8)"),
            "dir0.1": ("41.6 (1.0)", "58.9 (0.7)", "58.4 (3.4)", "84.3 (0.6)", "17.5 (0.5)", "30.8 (0.6)"),
            "dir0.3": ("41.2 (1.1)", "58.4 (0.6)", "59.1 (2.8)", "84.0 (1.1)", "17.8 (0.4)", "31.1 (0.5)"),
            "iid": ("41.7 (1.1)", "58.6 (0.5)", "58.6 (3.0)", "84.3 (0.9)", "17.6 (0.3)", "31.3 (1.0)"),
        },
    ),
    "fedrgd": (
        "FedRGD",
        {
            "k2": ("32.7 (3.6)", "48.9 (1.4)", "21.2 (2.2)", "21.6 (2.3)", "13.8 (1.4)", "26.5 (3.0)"),
            "dir0.1": ("31.5 (2.9)", "45.2 (0.8)", "20.0 (4.0)", "23.8 (3.4)", "13.4 (1.3)", "23.6 (2.6)"),
            "dir0.3": ("32.5 (3.0)", "46.9 (1.6)", "24.8 (5.1)", "22.0 (3.9)", "13.1 (2.0)", "23.8 (1.9)"),
            "iid": ("33.2 (1.9)", "47.8 (1.7)", "21.3 (6.5)", "20.7 (1.1)", "13.3 (1.4)", "23.8 (2.6)"),
        },
    ),
    "semifl": (
        "SemiFL",
        {
            "k2": ("60.0 (0.9)", "85.3 (0.3)", "87.5 (1.1)", "92.2 (0.8)", "35.2 (0.3)", "62.1 (0.4)"),
            "dir0.1": ("63.0 (0.6)", "84.5 (0.4)", "91.2 (0.3)", "93.0 (0.5)", "49.0 (1.0)", "68.0 (0.2)"),
            "dir0.3": ("71.9 (1.2)", "88.9 (0.3)", "94.0 (0.5)", "95.2 (0.2)", "54.9 (1.4)", "70.0 (0.3)"),
            "iid": ("88.2 (0.3)", "93.1 (0.1)", "96.8 (0.3)", "96.9 (0.1)", "61.3 (1.2)", "72.1 (0.2)"),
        },
    ),
}

# CIFAR-10, IID, as FedMatch's and FedRGD's own authors ran and reported them: which setting, and the value
AUTHORS = {
    "fedmatch": ("FedMatch: 100 clients, 5 in a round, 1000 labels at the server", "44.95 (0.49)"),
    "fedrgd": ("FedRGD: 10 clients, all in a round, 1000 labels at the server", "93.5"),
}

# CIFAR-10 with 4000 labels: is the global model fine-tuned with labels, does it make the pseudo-labels?
COMPONENT = {
    "cifar10-fully-supervised": {"row": "Fully Supervised", "k2": "95.33", "iid": "95.33"},
    "cifar10-4000-partially-supervised": {"row": "Partially Supervised", "k2": "76.92", "iid": "76.92"},
    "parallel-batch": {"row": "FedAvg + FixMatch: neither", "k2": "41.01", "iid": "40.26"},
    "parallel-global": {"row": "SemiFL without fine-tuning", "k2": "48.89", "iid": "47.03"},
    "alternate-batch": {"row": "SemiFL with labels batch by batch", "k2": "80.42", "iid": "81.70"},
    "alternate-global": {"row": "SemiFL: both", "k2": "85.34", "iid": "93.10"},
}

# CIFAR-10 with 4000 labels
ABLATION = {
    "e1": {"row": "E = 1", "k2": "83.4 (0.5)", "iid": "88.9 (0.3)"},
    "nomix": {"row": "without Mixup", "k2": "84.2 (0.4)", "iid": "91.3 (0.2)"},
    "nomomentum": {"row": "global momentum 0", "k2": "85.4 (0.6)", "iid": "92.4 (0.1)"},
    "full": {"row": "E = 5, global momentum 0.5, Mixup", "k2": "85.3 (0.3)", "iid": "93.1 (0.1)"},
}

# CIFAR-10, by the number of labels: whose pictures the BatchNorm statistics come from
SBN_SERVER: dict[str, dict[int, str]] = {
    "k2": {250: "60.0 (0.8)", 4000: "85.5 (0.1)"},
    "iid": {250: "86.3 (0.2)", 4000: "93.1 (0.2)"},
}
