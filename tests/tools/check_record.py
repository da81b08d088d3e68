#!/usr/bin/env python3
"""Reads a driftscope record with h5py alone and verifies all of it: the layout of dumps/README.md, every checksum, every index,
and the digest of every dumped row. XXH3-64 is computed by xxhsum (package xxhash), so that nothing of driftscope checks itself.

Usage: check_record.py RECORD    Exit 0: sound. 1: not. 2: cannot check (no h5py, no xxhsum). Development only.
"""
import os
import re
import struct
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy as np
except ImportError as missing:
    print(f"check_record: {missing}", file=sys.stderr)
    sys.exit(2)

RANGES = ["calls", "rows", "launch_refs", "captures", "digests", "drift", "nonfinite", "steps", "packed", "blobs", "failures", "ranges",
          "masks", "mask_words"]
HEADER = ["texts", "environment", "hparams", "options", "weights", "prompts", "prompt_tokens", "sites", "edges", "factors", "arms"]
IDENTITY = ["format", "version", "tool_version", "build", "start", "model_name", "model_arch", "model_digest", "n_layers",
            "n_heads", "n_kv_heads", "head_dim", "repeats", "n_arms", "command_at", "command_bytes"]


def xxh3(blocks):
    """XXH3-64 of every block of bytes, by one run of xxhsum."""
    if not blocks:
        return []
    with tempfile.TemporaryDirectory() as folder:
        for i, block in enumerate(blocks):
            with open(os.path.join(folder, str(i)), "wb") as f:
                f.write(block)
        sums = {}
        names = [str(i) for i in range(len(blocks))]
        for at in range(0, len(names), 1000):
            out = subprocess.run(["xxhsum", "-H3", *names[at:at + 1000]], cwd=folder, check=True, capture_output=True)
            for line in out.stdout.decode().splitlines():
                # "XXH3 (NAME) = HEX" (0.8.1), "XXH3_HEX  NAME" (later)
                found = re.match(r"XXH3 \((\d+)\) = ([0-9a-f]+)$|XXH3_([0-9a-f]+)  (\d+)$", line)
                require(found, f"xxhsum said: {line}")
                sums[int(found[1] or found[4])] = int(found[2] or found[3], 16)
    return [sums[i] for i in range(len(blocks))]


def require(condition, what):
    if not condition:
        raise ValueError(what)


def parts(counts, blocks):
    """The bytes that a checksum over several tables covers: count and XXH3-64 of each."""
    return b"".join(struct.pack("<QQ", n, h) for n, h in zip(counts, xxh3(blocks)))


def packed(attribute, dtype):
    return np.asarray(attribute, dtype=dtype).tobytes()


def check_header(f):
    attributes = b"".join(packed(f.attrs[name], f.attrs.get_id(name).dtype) for name in IDENTITY)
    blocks = [attributes] + [f[name][:].tobytes() for name in HEADER]
    counts = [1] + [f[name].shape[0] for name in HEADER]
    [checksum] = xxh3([parts(counts, blocks)])
    require(checksum == int(f.attrs["header_checksum"]), "header checksum")
    require(f.attrs["format"].decode() == "driftscope.record", "format")
    require(int(f.attrs["version"]) == 3, "version")
    sites, arms = f["sites"], f["arms"][:]
    for name in ("from", "to"):
        require(bool(np.all(f["edges"][:][name] < len(sites))), f"edges: {name}")
    factors = len(f["factors"])
    require(len(arms) == int(f.attrs["n_arms"]) * factors, "arms: length")
    require(all(row["arm"] == i // factors and row["factor"] == i % factors for i, row in enumerate(arms)), "arms: order")


def trial_blocks(f, row):
    """What a trial refers to, as arrays."""
    blocks = {name: f[name][int(row["first_" + name]):int(row["first_" + name]) + int(row["n_" + name])] for name in RANGES}
    for name in RANGES:
        require(len(blocks[name]) == int(row["n_" + name]), f"{name}: range")
    blocks["launches"] = f["launches"][:][blocks["launch_refs"]]
    return blocks


def check_masks(f, b, number):
    words, used = b["mask_words"], 0
    for m in b["masks"]:
        width, planes, first = int(m["width"]), int(m["planes"]), int(m["first"])
        n = (width + 63) // 64
        require(m["site"] < len(f["sites"]) and int(m["ref_arm"]) < int(f.attrs["n_arms"]) and m["phase"] < 2,
                f"trial {number}: mask")
        require(int(m["rows"]) <= len(b["rows"]), f"trial {number}: mask: rows")
        require(width in (int(f["sites"][int(m["site"])]["width"]), 0), f"trial {number}: mask: width")
        require(planes in (1, 2) and first + planes * n <= len(words), f"trial {number}: mask: words")
        bits = np.unpackbits(words[first:first + planes * n].view(np.uint8), bitorder="little").reshape(planes, n * 64)
        require(not bits[:, width:].any(), f"trial {number}: mask: bits beyond the row")
        require(bool(np.all(bits[-1] <= bits[0])), f"trial {number}: mask: beyond rounding, but equal")
        used += planes * n
    require(used == len(words), f"trial {number}: mask_words: {len(words)}, {used} used")


def check_indices(f, b, number):
    calls, rows, captures = b["calls"], b["rows"], b["captures"]
    sites = len(f["sites"])
    require(bool(np.all(rows["call"] < len(calls))), f"trial {number}: rows: call")
    require(bool(np.all(calls["index"] == np.arange(len(calls)))), f"trial {number}: calls: index")
    for c in captures:
        require(c["call"] < len(calls) and c["site"] < sites and c["launch"] < len(b["launches"]), f"trial {number}: capture")
        require(int(c["first_digest"]) + int(c["rows"]) <= len(b["digests"]), f"trial {number}: capture: digests")
        require(int(c["first_row"]) + int(c["rows"]) <= len(rows), f"trial {number}: capture: rows")
    for failure in b["failures"]:
        require(failure["site"] < sites or failure["site"] == 0xffffffff, f"trial {number}: failures: site")
    check_masks(f, b, number)
    for name in ("drift", "nonfinite", "ranges"):
        require(bool(np.all(b[name]["site"] < sites) and np.all(b[name]["row"] < len(rows))), f"trial {number}: {name}")


def check_trials(f):
    trials, order = f["trials"][:], [name if name != "launch_refs" else "launches" for name in RANGES]
    raw = [trials[i:i + 1].tobytes()[:-8] for i in range(len(trials))]
    for i, (row, checksum) in enumerate(zip(trials, xxh3(raw))):
        require(checksum == int(row["row_checksum"]), f"trial {i}: row checksum")
    wholes = []
    arms = len(set(f["arms"]["arm"]))
    for i, row in enumerate(trials):
        require(row["pass"] == 1 or row["healed_to"] == 0, f"trial {i}: healed to an arm, but no heal trial")
        require(row["healed_to"] < max(arms, 1), f"trial {i}: healed to arm {row['healed_to']}")
        b = trial_blocks(f, row)
        check_indices(f, b, i)
        wholes.append(parts([len(b[name]) for name in order], [b[name].tobytes() for name in order]))
        require(set(b["blobs"].tolist()) <= set(f["tensors"][:]["digest"].tolist()), f"trial {i}: a dumped row is missing")
    for i, checksum in enumerate(xxh3(wholes)):
        require(checksum == int(trials[i]["checksum"]), f"trial {i}: checksum")
    return len(trials)


def check_tensors(f):
    tensors, data = f["tensors"][:], f["tensor_bytes"][:]
    rows = [tensors[i:i + 1].tobytes()[:-8] for i in range(len(tensors))]
    blobs = [data[int(t["first"]):int(t["first"]) + int(t["bytes"])].tobytes() for t in tensors]
    size = {b"f32": 4, b"bf16": 2, b"f16": 2, b"i32": 4}
    for i, (t, row, blob) in enumerate(zip(tensors, xxh3(rows), xxh3(blobs))):
        require(row == int(t["check"]), f"tensor {i}: row checksum")
        require(blob == int(t["digest"]), f"tensor {i}: the bytes do not have the digest")
        require(int(t["elements"]) * size[t["dtype"]] == int(t["bytes"]), f"tensor {i}: elements")
    require(len(set(tensors["digest"].tolist())) == len(tensors), "tensors: stored twice")
    launches = f["launches"][:]
    require(len({launches[i:i + 1].tobytes() for i in range(len(launches))}) == len(launches), "launches: stored twice")
    return len(tensors)


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        with h5py.File(sys.argv[1], "r", libver="latest", swmr=True) as f:
            check_header(f)
            trials, tensors = check_trials(f), check_tensors(f)
    except FileNotFoundError as missing:
        print(f"check_record: {missing}", file=sys.stderr)
        return 2
    except (ValueError, KeyError, OSError) as fault:
        print(f"check_record: {sys.argv[1]}: {fault}", file=sys.stderr)
        return 1
    print(f"{sys.argv[1]}: sound: {trials} trials, {tensors} dumped rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
