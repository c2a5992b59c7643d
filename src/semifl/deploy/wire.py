"""Packets between the hub and its sites, as bytes: a safetensors file whose header tells what is in it.

No pickle, and nothing but tensors, numbers and words: whoever reads a packet can run no code by reading it. The same
bytes travel over every engine, so one test that reads packets speaks for all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from semifl.errors import UserError
from semifl.learning import trees

FORMAT = 3  # of packets; hub and sites must agree
LONGEST_HEADER = 2 << 20  # bytes of JSON before the tensors: many times what any model's names need
WORDS = 64 << 10  # bytes of an answer's header that are not the names of its tensors
NAME = 512  # bytes of a header for each tensor
Precision = Literal["fp32", "fp16"]


class Packet(NamedTuple):
    kind: str
    facts: dict[str, Any]  # JSON
    body: Any  # a nest of tuples, dicts, tensors and plain values


def pack(kind: str, facts: Mapping[str, Any], body: Any = None, precision: Precision = "fp32") -> bytes:
    """With "fp16" matrices and kernels travel in half precision: nearly all of a model, but no statistics."""
    tensors: list[Tensor] = []
    skeleton = trees.flatten(body, tensors)
    halved = [
        number
        for number, tensor in enumerate(tensors)
        if precision == "fp16" and tensor.dtype == torch.float32 and tensor.dim() > 1
    ]
    # Clones, because tensors that are views of one vector must be separate in a file.
    named = {str(number): tensor.detach().cpu().contiguous().clone() for number, tensor in enumerate(tensors)}
    for number in halved:
        named[str(number)] = named[str(number)].half()
    head = {"format": FORMAT, "kind": kind, "facts": dict(facts), "skeleton": skeleton, "halved": halved}
    return bytes(save(named, {"packet": json.dumps(head)}))


def unpack(data: bytes, named: Mapping[str, type]) -> Packet:
    """The packet again; `named` are the named tuples it may hold. Whatever is wrong with it is one sentence."""
    try:
        head = _head(data)
        if head["format"] != FORMAT:
            raise UserError(f"the packet has format {head['format']}, and this version of semifl reads {FORMAT}")
        tensors = load(data)
        ordered = [tensors[str(number)] for number in range(len(tensors))]
        for number in head["halved"]:
            ordered[number] = ordered[number].float()
        body = trees.rebuild(head["skeleton"], ordered, dict(named))
        return Packet(_word(head["kind"]), dict(head["facts"]), body)
    except (SafetensorError, ValueError, KeyError, TypeError, IndexError, RecursionError, AttributeError) as error:
        raise UserError(f"the packet is damaged ({type(error).__name__})") from error


def facts_of(data: bytes) -> dict[str, Any]:
    """The facts alone: the order among them says which named tuples the rest may hold."""
    try:
        return dict(_head(data)["facts"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"the packet is damaged ({type(error).__name__})") from error


def room_for(tensors: Iterable[int]) -> int:
    """The largest size of an answer with tensors of these sizes in bytes."""
    sizes = list(tensors)
    return WORDS + sum(sizes) + NAME * len(sizes)


def tensor_bytes(data: bytes) -> int:
    """How much of a packet is tensors."""
    return len(data) - 8 - int.from_bytes(data[:8], "little")


def _head(data: bytes) -> dict[str, Any]:
    """What safetensors keeps beside the tensors: its reader of bytes does not give it."""
    length = int.from_bytes(data[:8], "little")
    if not 0 < length <= min(LONGEST_HEADER, len(data) - 8):
        raise ValueError("the header's length is wrong")
    head = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["packet"])
    if not isinstance(head, dict):
        raise ValueError("the header is no object")
    return head


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a word is missing")
    return value
