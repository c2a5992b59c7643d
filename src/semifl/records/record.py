"""What a line of rounds.jsonl and result.json hold: typed once, and checked against these types where they are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, NotRequired, TypeGuard

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from semifl.records.metrics import Metric

LARGEST = 1e18  # of numbers; what lies beyond is damage
Number = Annotated[float, Field(gt=-LARGEST, lt=LARGEST)]
Unbounded = Annotated[float, Field(allow_inf_nan=False)]  # what a round that diverged leaves: a run goes on after it
Clients = list[int]
Terms = dict[str, Unbounded | None]
JSON = dict[str, Any]  # an object of JSON that is none of the types below


class SideTerms(TypedDict):
    server: Terms
    clients: Terms


@with_config(ConfigDict(extra="allow", strict=True))
class Measured(TypedDict):
    """What a round, or the final model, was measured to be. The signals of clients stand beside these keys."""

    round: Annotated[int, Field(ge=1, lt=LARGEST)]
    lr: Number | None
    accuracy: NotRequired[Number]  # this and the next of rounds that were tested
    balanced_accuracy: NotRequired[Number]
    auc: NotRequired[Number]  # earlier versions did not measure it, nor what follows
    f1: NotRequired[Number]
    calibration_error: NotRequired[Number]
    decision_threshold: NotRequired[Number]  # this and the next two of two classes alone
    sensitivity: NotRequired[Number]
    specificity: NotRequired[Number]
    loss: Unbounded | None
    validation_accuracy: NotRequired[Number]
    validation_balanced_accuracy: NotRequired[Number]
    validation_auc: NotRequired[Number]
    validation_f1: NotRequired[Number]
    server_loss: Unbounded | None
    client_loss: Unbounded | None
    cohort: Clients
    abstained: Clients
    failed: Clients
    late: Clients
    rejected: Clients
    label_ratio: Number | None
    class_histogram: list[Number]
    agreement: Number | None
    terms: SideTerms
    update_norm: Unbounded | None
    bytes_up: Number
    bytes_down: Number


@with_config(ConfigDict(extra="allow", strict=True))
class RoundRecord(Measured):
    """A line of rounds.jsonl. All but `seconds` is part of the promise that the same seed gives the same bits."""

    alerts: list[str]
    skipped: bool
    back_to: NotRequired[int]  # the round whose model the run went back to, by a health policy
    fallbacks: NotRequired[int]  # of the guard, so far
    digest: str  # of the weights after the round
    seconds: dict[str, Number]  # by phase, and "total"


@with_config(ConfigDict(extra="allow", strict=True))
class Summary(TypedDict):
    """result.json. Beside `accuracy` stand the other numbers of a model, and each again with best_ and labels_only_.

    Where a method makes more of the labels than plain training does, also with plain_labels_only_.
    """

    method: str
    dataset: str
    seed: int
    rounds: int
    metric: NotRequired[Metric]  # what decided
    kept: NotRequired[Literal["last", "best"]]  # whose numbers are those of model.safetensors
    accuracy: Number
    balanced_accuracy: Number
    best_accuracy: Number
    best_round: int | Literal["final"]  # "final": the model after the last round's closing fine-tune
    best_test_accuracy: Number
    best_test_round: int | Literal["final"]
    labels_only_accuracy: Number | None
    seconds: Number
    seconds_per_round: Number | None
    bytes_up: Number
    bytes_down: Number
    guard: NotRequired[JSON]
    evidence: NotRequired[Literal["measured"]]  # how the numbers are known: on labeled test examples
    test_examples: NotRequired[int]
    intervals: NotRequired[dict[str, list[Number]]]  # 95 %, by the name of the number: low, high
    difference: NotRequired[JSON]  # of the kept model from the better labels-only model, by metric: value, low, high
    faults: NotRequired[list[dict[str, str]]]  # what is wrong with the kept model: name, sentence, remedy


ABSENT: tuple[Literal["abstained", "failed", "late", "rejected"], ...] = ("abstained", "failed", "late", "rejected")
_ROUND, _SUMMARY = TypeAdapter(RoundRecord), TypeAdapter(Summary)


def is_round(record: Any) -> TypeGuard[RoundRecord]:
    """Whether this is a finished round that a run can go on from."""
    return _fits(_ROUND, record) and "total" in record["seconds"]


def is_summary(record: Any) -> TypeGuard[Summary]:
    """Whether this is a whole outcome."""
    return _fits(_SUMMARY, record)


def absent(record: Measured) -> dict[str, Clients]:
    """The clients of the cohort that gave no update, by what became of them; only what happened to somebody."""
    return {name: record[name] for name in ABSENT if record[name]}


def number(value: Any) -> float | None:
    """A number that can be drawn, or None: files may say anything."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < LARGEST else None  # not a number is not below anything either


def _fits(adapter: TypeAdapter[Any], record: Any) -> bool:
    try:
        adapter.validate_python(record)
    except ValidationError:
        return False
    return True


def is_best(now: Any, history: Iterable[Measured], metric: Metric) -> bool:
    """Whether a value of the metric on labels held out, if there is one, is as good as those of all rounds before.

    Few labels are held out, so rounds are often as good as each other there; then the latest has learned longest.
    """
    value = number(now)
    earlier = [number(each.get(f"validation_{metric}")) for each in history]
    return value is not None and value >= max((each for each in earlier if each is not None), default=value)
