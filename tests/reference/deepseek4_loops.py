"""A DeepSeek-V4 draft's block in loops over Python's floats, from a checkpoint's bytes.

The names of the definition: see ``dspark_convert.reference.deepseek4``. Nothing here is shared with it.
"""

from __future__ import annotations

import json
import struct
from math import cos, exp, log1p, sin, sqrt
from pathlib import Path
from typing import Any

Vector = list[float]
Matrix = list[Vector]

FOURS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def e4m3(code: int) -> float:
    sign, exponent, mantissa = -1 if code & 0x80 else 1, code >> 3 & 15, code & 7
    return sign * (mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))


def four(code: int) -> float:
    return -FOURS[code - 8] if code >= 8 else FOURS[code]


class Checkpoint:
    """safetensors files, read by hand."""

    def __init__(self, directory: Path) -> None:
        self.config: dict[str, Any] = json.loads((directory / "config.json").read_text())
        self.stored: dict[str, tuple[str, list[int], bytes]] = {}
        for path in directory.glob("*.safetensors"):
            data = path.read_bytes()
            (size,) = struct.unpack("<Q", data[:8])
            for name, entry in json.loads(data[8 : 8 + size]).items():
                if name != "__metadata__":
                    begin, end = (8 + size + offset for offset in entry["data_offsets"])
                    self.stored[name] = (entry["dtype"], entry["shape"], data[begin:end])

    def numbers(self, name: str) -> Vector:
        kind, _, data = self.stored[name]
        if kind == "F32":
            return list(struct.unpack(f"<{len(data) // 4}f", data))
        if kind == "BF16":
            return [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]
        if kind == "F8_E4M3":
            return [e4m3(code) for code in data]
        if kind == "F8_E8M0":
            return [2.0 ** (code - 127) for code in data]
        assert kind == "I8"
        return [four(half) for code in data for half in (code & 15, code >> 4)]

    def matrix(self, name: str) -> Matrix:
        kind, (rows, columns), _ = self.stored[name]
        columns *= 2 if kind == "I8" else 1
        flat = self.numbers(name)
        if kind in ("F8_E4M3", "I8"):
            scale = name.removesuffix("weight") + "scale"
            scales, across = self.numbers(scale), self.stored[scale][1][1]
            tile = self.config["quantization_config"]["weight_block_size"][0]
            down, right = (1, 32) if kind == "I8" else (tile, tile)
            flat = [x * scales[i // columns // down * across + i % columns // right] for i, x in enumerate(flat)]
        return [flat[i * columns : (i + 1) * columns] for i in range(rows)]


def dot(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def times(matrix: Matrix, vector: Vector) -> Vector:
    return [dot(row, vector) for row in matrix]


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


def norm(vector: Vector, weight: Vector | None, eps: float) -> Vector:
    root = sqrt(dot(vector, vector) / len(vector) + eps)
    return [x / root * w for x, w in zip(vector, weight or [1.0] * len(vector), strict=True)]


def turn(vector: Vector, position: int, rope: int, theta: float, sign: int = 1) -> Vector:
    out = list(vector)
    first = len(vector) - rope
    for i in range(0, rope, 2):
        angle = sign * position * theta ** (-i / rope)
        a, b = vector[first + i], vector[first + i + 1]
        out[first + i], out[first + i + 1] = a * cos(angle) - b * sin(angle), a * sin(angle) + b * cos(angle)
    return out


def sinkhorn(rows: Matrix, eps: float, iterations: int) -> Matrix:
    size = range(len(rows))
    rows = [[exp(x) / sum(map(exp, row)) + eps for x in row] for row in rows]
    for i in range(iterations):
        if i:
            rows = [[x / (sum(row) + eps) for x in row] for row in rows]
        sums = [sum(rows[f][t] for f in size) + eps for t in size]
        rows = [[rows[f][t] / sums[t] for t in size] for f in size]
    return rows


class Loops:
    def __init__(self, directory: Path) -> None:
        self.file = Checkpoint(directory)
        self.config = self.file.config
        self.eps: float = self.config["rms_norm_eps"]
        self.copies = range(self.config["hc_mult"])
        self.matrices: dict[str, Matrix] = {}

    def times(self, name: str, vector: Vector) -> Vector:
        if name not in self.matrices:
            self.matrices[name] = self.file.matrix(name)
        return times(self.matrices[name], vector)

    def norm(self, name: str, vector: Vector) -> Vector:
        return norm(vector, self.file.numbers(name), self.eps)

    def turn(self, vector: Vector, position: int, sign: int = 1) -> Vector:
        return turn(vector, position, self.config["qk_rope_head_dim"], self.config["rope_theta"], sign)

    def mixes(self, name: str, streams: Matrix) -> Vector:
        """The mixes before their scales and bases."""
        return self.times(f"{name}_fn", norm([x for stream in streams for x in stream], None, self.eps))

    def read(self, name: str, streams: Matrix) -> Vector:
        mixes, scale, base = (self.mixes(name, streams), *(self.file.numbers(f"{name}_{w}") for w in ("scale", "base")))
        weights = [sigmoid(mixes[c] * scale[0] + base[c]) + self.config["hc_eps"] for c in self.copies]
        return [dot(weights, [stream[i] for stream in streams]) for i in range(len(streams[0]))]

    def write(self, name: str, streams: Matrix, output: Vector) -> Matrix:
        mixes, scale, base = (self.mixes(name, streams), *(self.file.numbers(f"{name}_{w}") for w in ("scale", "base")))
        n, eps = len(self.copies), self.config["hc_eps"]
        post = [2 * sigmoid(mixes[n + c] * scale[1] + base[n + c]) for c in self.copies]
        start = [[mixes[i] * scale[2] + base[i] for i in range(2 * n + f * n, 3 * n + f * n)] for f in self.copies]
        comb = sinkhorn(start, eps, self.config["hc_sinkhorn_iters"])
        return [
            [post[t] * x + sum(comb[f][t] * streams[f][i] for f in self.copies) for i, x in enumerate(output)]
            for t in self.copies
        ]

    def key(self, stage: str, h: Vector, position: int) -> Vector:
        return self.turn(self.norm(f"{stage}attn.kv_norm.weight", self.times(f"{stage}attn.wkv.weight", h)), position)

    def attend(self, stage: str, h: Vector, position: int, keys: Matrix) -> Vector:
        low = self.norm(f"{stage}attn.q_norm.weight", self.times(f"{stage}attn.wq_a.weight", h))
        queries, d = self.times(f"{stage}attn.wq_b.weight", low), self.config["head_dim"]
        out: Vector = []
        for head, sink in enumerate(self.file.numbers(f"{stage}attn.attn_sink")):
            q = self.turn(norm(queries[head * d : (head + 1) * d], None, self.eps), position)
            shares = [exp(dot(q, k) / sqrt(d)) for k in keys]
            total = sum(shares) + exp(sink)
            out += self.turn([dot(shares, [k[i] for k in keys]) / total for i in range(d)], position, -1)
        groups, rank = self.config["o_groups"], self.config["o_lora_rank"]
        rows, width = self.file.matrix(f"{stage}attn.wo_a.weight"), len(out) // groups
        low = []
        for g in range(groups):
            low += times(rows[g * rank : (g + 1) * rank], out[g * width : (g + 1) * width])
        return self.times(f"{stage}attn.wo_b.weight", low)

    def expert(self, name: str, h: Vector) -> Vector:
        limit = self.config["swiglu_limit"]
        gate = [min(x, limit) for x in self.times(f"{name}.w1.weight", h)]
        up = [max(-limit, min(x, limit)) for x in self.times(f"{name}.w3.weight", h)]
        return self.times(f"{name}.w2.weight", [g * sigmoid(g) * u for g, u in zip(gate, up, strict=True)])

    def experts(self, stage: str, h: Vector) -> Vector:
        affinities = [sqrt(log1p(exp(x))) for x in self.times(f"{stage}ffn.gate.weight", h)]
        biased = [a + b for a, b in zip(affinities, self.file.numbers(f"{stage}ffn.gate.bias"), strict=True)]
        ranked = sorted(range(len(biased)), key=lambda e: -biased[e])
        chosen = ranked[: self.config["num_experts_per_tok"]]
        total = sum(affinities[e] for e in chosen)
        out = self.expert(f"{stage}ffn.shared_experts", h)
        for e in chosen:
            share = affinities[e] / total * self.config["routed_scaling_factor"]
            out = [x + share * y for x, y in zip(out, self.expert(f"{stage}ffn.experts.{e}", h), strict=True)]
        return out

    def block(self, features: Matrix, anchor: int, stages: int, sees: Any) -> tuple[Matrix, Matrix]:
        """The final normed states and those before the norm; ``sees(slot)``: the first position that it looks at."""
        project = "mtp.0.main_proj.weight"
        context = [self.norm("mtp.0.main_norm.weight", self.times(project, row)) for row in features]
        ids = [anchor] + [self.config["dspark_noise_token_id"]] * (self.config["dspark_block_size"] - 1)
        embed, n_past = self.file.matrix("embed.weight"), len(features)
        slots = [[list(embed[token]) for _ in self.copies] for token in ids]
        for i in range(stages):
            stage = f"mtp.{i}."
            inputs = [self.norm(f"{stage}attn_norm.weight", self.read(f"{stage}hc_attn", s)) for s in slots]
            keys = [self.key(stage, h, position) for position, h in enumerate(context + inputs)]
            for k, h in enumerate(inputs):
                out = self.attend(stage, h, n_past + k, keys[sees(k) :])
                slots[k] = self.write(f"{stage}hc_attn", slots[k], out)
            for k, streams in enumerate(slots):
                h = self.norm(f"{stage}ffn_norm.weight", self.read(f"{stage}hc_ffn", streams))
                slots[k] = self.write(f"{stage}hc_ffn", streams, self.experts(stage, h))
        last = f"mtp.{stages - 1}."
        collapsed = [self.read(f"{last}hc_head", streams) for streams in slots]
        return [self.norm(f"{last}norm.weight", state) for state in collapsed], collapsed
