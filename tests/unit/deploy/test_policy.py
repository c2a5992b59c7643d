import pytest

from semifl.deploy.policy import TEMPLATE, Policy, read_policy
from semifl.errors import UserError


def test_the_template_is_the_default(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(TEMPLATE)
    assert read_policy(path) == Policy()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[share]\nclas_histogram = true", "did you mean 'class_histogram'"),
        ("[shares]\n", "unknown key shares"),
        ("share = 3", "must be a section"),
        ("[limits]\nminimum_examples = 0", "at least 1"),
        ("[privacy]\nnoise = 1.0", "noise needs clip"),
        ("[privacy]\nlargest_epsilon = 1.0", "largest_epsilon needs noise"),
        ("[privacy]\ndelta = 0.0", "between 0 and 1"),
        ("[share]\ncounts = 1", "share.counts"),
        ("[", "not valid TOML"),
    ],
)
def test_a_policy_that_is_not_understood_stops_the_site(tmp_path, text, sentence):
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=r"policy\.toml") as refused:
        read_policy(path)
    assert sentence in str(refused.value)
