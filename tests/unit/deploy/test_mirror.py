"""An operator's copy of a run."""

import json

import pytest
import torch
from safetensors.torch import save_file

pytest.importorskip("nvflare", reason="needs the flare extra: pip install 'semifl[flare]'")

from semifl.cli.deploy import status
from semifl.deploy.flare.controller import JobProgress, for_operators, hand_over
from semifl.deploy.flare.mirror import Mirror, read_outcome
from semifl.errors import UserError
from semifl.running.context import BaselineProgress

CONFIG = "rounds = 9\n"
SUMMARY = {
    **{"method": "semifl", "dataset": "folder", "seed": 0, "rounds": 2, "accuracy": 1.0, "balanced_accuracy": 1.0},
    **{"best_accuracy": 1.0, "best_round": 2, "best_test_accuracy": 1.0, "best_test_round": 2, "bytes_up": 0},
    **{"labels_only_accuracy": None, "seconds": 1.0, "seconds_per_round": 0.5, "bytes_down": 0},
}


class Heard:
    def __init__(self):
        self.rounds = []
        self.baselines = []

    def baseline(self, progress):
        self.baselines.append(str(progress))

    def round(self, record, best, metric, rounds):
        self.rounds.append((record["round"], best, rounds))


def record(number, accuracy=50.0):
    return {"round": number, "accuracy": accuracy}


def news(*numbers, identity="run.1"):
    return {"config": CONFIG, "identity": identity, "rounds": [record(n, 10.0 * n) for n in numbers]}


def written(folder):
    return [json.loads(line)["round"] for line in (folder / "rounds.jsonl").read_text().splitlines()]


def test_rounds_are_told_once_and_kept(tmp_path):
    heard = Heard()
    mirror = Mirror(tmp_path / "run", heard)
    mirror.hear({"rounds": [], "sites": {}})  # still preparing
    assert not (tmp_path / "run").exists()
    mirror.hear(news(1, 2))
    mirror.hear(news(2, 3))
    assert heard.rounds == [(1, 10.0, 9), (2, 20.0, 9), (3, 30.0, 9)]
    assert written(tmp_path / "run") == [1, 2, 3]


def test_labels_only_models_are_told_while_they_train(tmp_path):
    progress, heard = JobProgress(), Heard()
    mirror = Mirror(tmp_path / "run", heard)
    for model, done in ((1, 0), (1, 1), (2, 0), (2, 1)):
        progress.baseline(BaselineProgress(model, 2, done, 1))
        mirror.hear({**news(), **progress.answer("", {}, None), "identity": "run.1"})
    # When the last is done there is nothing more to say of them.
    assert heard.baselines == [f"labels only, model {k} of 2: {n} of 1" for k, n in ((1, 0), (1, 1), (2, 0))]
    progress.facts["baseline"] = ["many", "of", "what", "?"]
    with pytest.raises(UserError, match="cannot be read"):
        mirror.hear({**news(), **progress.answer("", {}, None), "identity": "run.1"})


def test_status_says_how_far_labels_only_models_are(tmp_path):
    assert status._progress({**news(), "baseline": [1, 2, 4, 10]}) == "labels only, model 1 of 2: 4 of 10"
    assert status._progress({**news(1, 2), "baseline": []}) == "2 of 9 rounds done, accuracy 20.0 %"


def test_what_is_kept_at_the_hub_is_not_handed_over(tmp_path):
    for name in ("result.json", "predictions.npz", "config.toml"):
        (tmp_path / name).write_text('rounds = 1\n[data]\nname = "digits"\n[method]\nname = "semifl"\n')
    (tmp_path / "out").mkdir()
    hand_over(tmp_path, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.toml", "result.json"]


def test_a_desk_that_is_opened_again_keeps_what_it_had(tmp_path):
    first = Mirror(tmp_path, Heard())
    first.hear(news(1, 2))
    first.close()
    heard = Heard()
    Mirror(tmp_path, heard).hear(news(3))  # the job at hand knows its own rounds only
    assert heard.rounds == [(3, 30.0, 9)]
    assert written(tmp_path) == [1, 2, 3]


def test_a_second_desk_is_told_that_the_first_follows_this_run(tmp_path):
    first = Mirror(tmp_path, Heard())
    first.hear(news(1))
    with pytest.raises(UserError, match="follows this run into"):
        Mirror(tmp_path, Heard()).hear(news(1, 2))
    assert written(tmp_path) == [1]
    first.hear(news(2))
    assert written(tmp_path) == [1, 2]


@pytest.mark.parametrize("identity", [None, "run.2"])
def test_another_run_is_never_written_over(tmp_path, identity):
    (tmp_path / "config.toml").write_text("rounds = 3\n")
    (tmp_path / "rounds.jsonl").write_text(json.dumps(record(1)) + "\n")
    if identity:
        (tmp_path / "identity").write_text(identity)
    with pytest.raises(UserError, match="holds another run"):
        Mirror(tmp_path, Heard()).hear(news(1, 2))
    assert (tmp_path / "config.toml").read_text() == "rounds = 3\n"
    assert written(tmp_path) == [1]


def test_files_of_an_ended_job_are_taken_with_the_rounds_in_between(tmp_path):
    job = tmp_path / "job"
    job.mkdir()
    files = {
        "identity": "run.1\n",
        "config.toml": CONFIG,
        "result.json": json.dumps(SUMMARY),
        "outcome.json": "",
    }
    for name, text in files.items():
        (job / name).write_text(text)
    (job / "rounds.jsonl").write_text("".join(json.dumps(record(n)) + "\n" for n in (1, 2)))
    heard = Heard()
    mirror = Mirror(tmp_path / "run", heard)
    mirror.hear(news(1))
    mirror.take(job)
    assert [each[0] for each in heard.rounds] == [1, 2]
    assert mirror.result()["rounds"] == 2
    assert not (tmp_path / "run" / "outcome.json").exists()


def test_what_is_handed_over_has_no_checkpoint_and_no_place_of_pictures(tmp_path):
    run, results = tmp_path / "run", tmp_path / "results"
    (run / "checkpoint").mkdir(parents=True)
    (run / "gallery").mkdir()
    results.mkdir()
    (run / "checkpoint" / "1.safetensors").write_text("x")
    (run / "gallery" / "1.png").write_text("x")
    (run / "rounds.jsonl").write_text("")
    (run / "config.toml").write_text('seed = 1\n\n[data]\nname = "x"\nroot = "/home/hub/pictures"\n')
    hand_over(run, results)
    assert sorted(path.name for path in results.iterdir()) == ["config.toml", "rounds.jsonl"]
    assert "/home" not in (results / "config.toml").read_text()
    assert "/home" not in for_operators({"data": {"root": "/home"}})


def test_nothing_undoes_an_operators_stop():
    progress = JobProgress()
    progress.answer("semifl", {"wish": "paused"}, None)
    assert progress.wish == "paused"
    progress.answer("semifl", {"wish": "stopped"}, None)
    progress.answer("semifl", {"wish": "paused", "gone": ["clinic-b"]}, None)
    assert (progress.wish, progress.gone) == ("stopped", {"clinic-b"})


@pytest.mark.parametrize(
    "change", [{"rounds": 3}, {"rounds": [{}]}, {"rounds": ["x"]}, {"config": "= no"}, {"config": 5}, {"identity": 7}]
)
def test_news_that_make_no_sense_are_one_sentence(tmp_path, change):
    with pytest.raises(UserError, match="the hub's news of this run cannot be read"):
        Mirror(tmp_path / "run", Heard()).hear({**news(1), **change})


CODE = {"name": "subprocess:getoutput", "cmd": "touch x"}


def result_of(folder, config=CONFIG, model=None):
    """The files of a job as a hub may send them."""
    folder.mkdir()
    (folder / "identity").write_text("run.1\n")
    (folder / "config.toml").write_text(config)
    if model:
        about = {"format": 1, "facts": {}, "model": model}
        save_file({"w": torch.zeros(1)}, folder / "model.safetensors", {"semifl": json.dumps(about)})
    return folder


@pytest.mark.parametrize(
    "sent",
    [
        {"config": '[model]\nname = "subprocess:getoutput"\n'},
        {"config": '[data]\nname = "digits"\nweak_view = "os:system"\n'},
        {"config": '[method]\nname = "centralized"\nobjective = "os:system"\n'},
        {"model": CODE},
        {"model": list(map(list, CODE.items()))},
    ],
)
def test_files_that_name_code_are_not_taken(tmp_path, sent):
    job = result_of(tmp_path / "job", **sent)
    with pytest.raises(UserError):
        Mirror(tmp_path / "run", Heard()).take(job)
    assert not (tmp_path / "run").exists()


def test_news_that_name_code_are_not_written_down(tmp_path):
    with pytest.raises(UserError, match=r"name code, model\.name = 'os:system'"):
        Mirror(tmp_path / "run", Heard()).hear({**news(1), "config": '[model]\nname = "os:system"\n'})
    assert not (tmp_path / "run").exists()


def test_of_a_result_only_a_runs_own_files_are_taken(tmp_path):
    job = result_of(tmp_path / "job", '[data]\nname = "semifl.deploy.pictures:HubPictures"\n', {"name": "cnn"})
    (job / "sitecustomize.py").write_text("")
    (job / "report.html").write_text("<script>")
    Mirror(tmp_path / "run", Heard()).take(job)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        *(".following", "config.toml", "identity", "model.safetensors")
    ]


@pytest.mark.parametrize("said", ["[]", "{}", "no JSON", "3", '{"state": "finished"}', "[" * 10**5])
def test_a_last_word_that_makes_no_sense_is_one_sentence(tmp_path, said):
    (tmp_path / "outcome.json").write_text(said)
    with pytest.raises(UserError, match="the hub's last word on this run cannot be read"):
        read_outcome(tmp_path / "outcome.json")


def test_a_finished_run_without_a_result_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match=r"has no result\.json"):
        Mirror(tmp_path, Heard()).result()


@pytest.mark.parametrize("config", ["= no", "\udcff"])
def test_files_that_make_no_sense_are_one_sentence(tmp_path, config):
    job = result_of(tmp_path / "job")
    (job / "config.toml").write_bytes(config.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match="the run's files from the hub cannot be read"):
        Mirror(tmp_path / "run", Heard()).take(job)
