# test_table.sh: many records as one table, and the published figures of their groups.
. tests/cli/lib.sh

# Experts whose router rows are almost equal: any drift chooses other ones, and so turns tokens over, on every machine.
flips="-m random:qwen3moe,layers=2,hidden=256,heads=4,kv_heads=2,experts=8,top_k=1,ffn=128,vocab=256,router_scale=1e-7 --dtype f32
    --tokens 5,9,1,44,23,8,2 --tokens 60,31,11,12,13 --tokens 7,77,70,17,1,2,3,4,5,6 --threads 2 --max-batch 6 --chunk 14 -n 10"
small="-m random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128 --tokens 5,9,1,44,23,8,2,60,31 --threads 1"
sweep="$small -n 3 --slot first --neighbours copies --chunk 0 --mode prefill --kernels pinned"

test_a_storm_and_its_figures() {
    ds storm $flips --requests 18 --rate 0.7 -o "$dir/a.h5" --compare split,pinned --json -q
    expect 1
    need python3
    cp "$dir/out" "$dir/storm.json"
    ds table "$dir/a.h5" --json -q
    expect 0
    cp "$dir/out" "$dir/table.json"
    ds table "$dir/a.h5" --tsv -q
    expect 0
    cp "$dir/out" "$dir/rows.tsv"
    ds table "$dir/a.h5" --tsv --metrics -q
    expect 0
    cp "$dir/out" "$dir/groups.tsv"
    python3 - "$dir" <<'PY'
import json, sys
d = sys.argv[1]
storm = json.load(open(d + "/storm.json", encoding="utf-8"))
t = json.load(open(d + "/table.json", encoding="utf-8"))
rows = [line.rstrip("\n").split("\t") for line in open(d + "/rows.tsv", encoding="utf-8")]
head, rows = rows[0], rows[1:]
assert len(rows) == len(t["rows"]) == t["observations"] == 36, len(rows)
assert all(len(r) == len(head) for r in rows), "ragged"
split, pinned = t["groups"]
assert split["by"]["kernels"] == "split" and pinned["by"]["kernels"] == "pinned", t["groups"]
# What storm counted from the same trials.
for g, s in zip(t["groups"], storm["sets"]):
    assert g["unique_completions"] == s["unique_completions"] and g["prompts"] == s["prompts"] == 3, (g, s)
    assert g["observations"] == 18 and g["choices"] == 180, g
assert pinned["flips"] == 0 and pinned["Div_Index"] is None and pinned["Avg_Std@top1_prob"]["value"] == 0.0, pinned
assert pinned["max_probability_divergence"]["value"] == 0.0 and pinned["diverging_share"]["value"] == 0.0, pinned
assert split["flips"] > 0 and split["Div_Index"]["value"] >= 0 and split["max_probability_divergence"]["value"] > 0, split
assert split["unique_completions_per_prompt"]["low"] <= split["unique_completions_per_prompt"]["value"] \
    <= split["unique_completions_per_prompt"]["high"], split
# The rows add up to the groups.
for g in t["groups"]:
    mine = [r for r in t["rows"] if r["factors"]["kernels"] == g["by"]["kernels"]]
    assert len({(r["prompt"], r["completion"]) for r in mine}) == g["unique_completions"], g
    assert sum(r["flips"] for r in mine if not r["reference"]) == g["flips"], g
    assert sum(r["decode_steps"] for r in mine if not r["reference"]) == g["decode_steps"], g
    assert sum(r["reference"] for r in mine) == 3, mine
    first = {}
    for r in mine:
        if r["div_index"] is not None:
            first[r["prompt"]] = min(first.get(r["prompt"], 99), r["div_index"])
    assert (g["Div_Index"] is None) == (not first), g
    assert not first or abs(g["Div_Index"]["value"] - sum(first.values()) / len(first)) < 1e-9, (g, first)
    assert all(r["tokens_per_second"] > 0 and r["first_token_s"] > 0 for r in mine), mine[0]
for line, r in zip(rows, t["rows"]):
    line = dict(zip(head, line))
    assert line["completion"] == r["completion"] and line["kernels"] == r["factors"]["kernels"], line
    assert (line["div_index"] or None) == (None if r["div_index"] is None else str(r["div_index"])), line
groups = [line.rstrip("\n").split("\t") for line in open(d + "/groups.tsv", encoding="utf-8")]
assert len(groups) == 3 and all(len(g) == len(groups[0]) for g in groups), groups
assert groups[0][:3] == ["record", "kernels", "dtype"] and "Avg_Std@top1_prob_low" in groups[0], groups[0]
assert dict(zip(*groups[:2]))["unique_completions"] == str(split["unique_completions"]), groups
PY
    ds table "$dir/a.h5"
    expect 0
    has "$dir/out" "    Div_Index  "
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "table: 36 observations of 1 record in 2 groups; at most "
}

test_records_of_two_kinds_in_one_table() {
    ds run $sweep --batch 1,4 --repeat 2 -o "$dir/a.h5"
    expect 0
    ds run $small -n 3 --batch 1 --slot first --neighbours copies --chunk 0 --mode prefill --kernels vendor+matmul=split-k --repeat 1 -o "$dir/b.h5"
    expect 0
    ds storm $small --requests 2 -n 4 --compare pinned --dtype f32 -o "$dir/c.h5"
    expect 0
    ds table "$dir/a.h5" "$dir/b.h5" "$dir/c.h5" --tsv
    expect 0
    [ "$(wc -l <"$dir/out")" -eq 8 ] || { cat "$dir/out" >&2; false; }
    cut -f 1 "$dir/out" | sort -u | wc -l >"$dir/records"
    [ "$(cat "$dir/records")" -eq 4 ]
    # All of them read the same prompt: with groups that do not tell records apart they are one example.
    ds table "$dir/a.h5" "$dir/b.h5" "$dir/c.h5" --by model_digest --json -q
    expect 0
    has "$dir/out" '"prompts":1,"observations":7,'
    ds table "$dir/a.h5" "$dir/b.h5" "$dir/c.h5" --by kernels,batch --tsv --metrics
    expect 0
    [ "$(wc -l <"$dir/out")" -eq 5 ] || { cat "$dir/out" >&2; false; }
    # The same again, byte for byte; the seed moves intervals only.
    ds table "$dir/a.h5" "$dir/b.h5" --json -q -o "$dir/1"
    expect 0
    ds table "$dir/a.h5" "$dir/b.h5" --json -q -o "$dir/2"
    expect 0
    same_files "$dir/1" "$dir/2"
}

test_mistakes() {
    ds run $sweep --batch 1 --repeat 1 -o "$dir/a.h5"
    expect 0
    ds table
    expect 2
    ds table "$dir/a.h5" --by kernel
    expect 2
    has "$dir/err" "--by: no column 'kernel'"
    has "$dir/err" "did you mean 'kernels'?"
    ds table "$dir/a.h5" --by flips
    expect 2
    has "$dir/err" "no column 'flips' that could tell groups apart"
    ds table "$dir/a.h5" --tsv --json
    expect 2
    ds table "$dir/a.h5" --metrics
    expect 2
    echo nothing >"$dir/no.h5"
    ds table "$dir/a.h5" "$dir/no.h5" --tsv
    expect 2
    has "$dir/err" "no.h5"
    empty "$dir/out"
    head -c 20000 "$dir/a.h5" >"$dir/cut.h5"
    ds table "$dir/a.h5" "$dir/cut.h5" --tsv
    expect 2
    has "$dir/err" "cut.h5"
    empty "$dir/out"
    # One bit of a trial's tables: an error that names the record, and no half table.
    need python3
    python3 - "$dir/a.h5" "$dir/bent.h5" <<'PY'
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
found = 0
for i in range(0, len(data) - 104, 4): # a step: request 0, step 2, the token, the token that is fed, the best 8 ids
    v = struct.unpack_from("<12i", data, i)
    if v[0] == 0 and v[1] == 2 and v[2] == v[4] and len(set(v[4:])) == 8 and all(0 <= x < 128 for x in v[4:]):
        data[i + 50] ^= 1
        found += 1
assert found, "no step in the file"
open(sys.argv[2], "wb").write(data)
PY
    ds table "$dir/a.h5" "$dir/bent.h5" --tsv
    expect 2
    has "$dir/err" "bent.h5"
    empty "$dir/out"
}

run_tests
