#!/bin/sh
# test_diff.sh: `driftscope diff` from outside: records of parts of the work, terms of the comparison, what is no pass.
. tests/cli/lib.sh

model=random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128,ctx=64,seed=9

# record NAME OPTION...: $dir/NAME.h5, one arm of the kernels that are the same everywhere, unless options say otherwise.
record() {
    name=$1
    shift
    "$driftscope" run -q -m "$model" --kernels pinned --batch 1 --slot first --neighbours copies --threads 1 --chunk 0 --mode prefill \
        --repeat 1 -n 2 -o "$dir/$name.h5" "$@" >/dev/null 2>&1 || [ $? -eq 1 ]
}
tokens="--tokens 5,9,1,44,23,8"

# golden NAME: the lines that no machine, and no site that is added to the program, decides.
golden() {
    grep -E '^(record +(no|pre)|option|prompt|rows|factor|tolerance)' "$dir/out" >"$dir/settled"
    if [ -n "${DS_UPDATE_GOLDEN:-}" ]; then cp "$dir/settled" "tests/cli/golden/$1"; fi
    same_files "tests/cli/golden/$1" "$dir/settled"
}

test_parts_of_the_work_share_what_they_have() {
    # shellcheck disable=SC2086
    record a $tokens
    # fewer sites, fewer steps and the beginning of the prompt
    record b --tokens 5,9,1,44 -n 1 --sites resid
    ds diff "$dir/a.h5" "$dir/b.h5" --partial
    expect 0
    golden diff_parts.txt
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "; only what both have was compared: missing in B: 3 rows (from request 0, position 5), 33 sites (from embed); 1 row fed with other tokens (request 0, position 4)"
    ds diff "$dir/a.h5" "$dir/b.h5" --partial --json
    expect 0
    has "$dir/out" '"partial": true'
    # that is no pass for who did not ask for it
    ds diff "$dir/a.h5" "$dir/b.h5"
    expect 2
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "incomparable: no difference over 12 comparisons, but missing in B: 3 rows (from request 0, position 5), 33 sites (from embed); 1 row fed with other tokens (request 0, position 4)"
    has "$dir/last" "; --partial compares what both have"
    ds diff "$dir/a.h5" "$dir/b.h5" --json
    expect 2
    has "$dir/out" '"result": "incomparable"'
    has "$dir/out" '"partial": true'
    ds diff "$dir/a.h5" "$dir/b.h5" -q
    expect 2
    # the rows are in both, their digests at this site are not
    ds diff "$dir/a.h5" "$dir/b.h5" --partial --only stages=q_proj
    expect 2
    has "$dir/out" "incomparable: no two arms have a digest of the same row and site before other tokens were fed"
    ds tui "$dir/a.h5" "$dir/b.h5" --partial
    expect 0
    has "$dir/out" "; only what both have was compared: "
    # chunks, batches and decode have the same rows
    # shellcheck disable=SC2086
    record c $tokens --batch 4 --chunk 4
    ds diff "$dir/a.h5" "$dir/c.h5"
    expect 0
    has "$dir/out" "factor        batch: 1 in A, 4 in B"
    has "$dir/out" "factor        chunk: 0 in A, 4 in B"
    has "$dir/out" "same: no difference over"
    # shellcheck disable=SC2086
    record d $tokens --mode decode
    ds diff "$dir/c.h5" "$dir/d.h5" --json
    expect 0
    has "$dir/out" '"result": "same"'
    has "$dir/out" '"unpaired_digests": {'
}

# Whatever one side has more of: less on one side is no pass, the same work done in another way is one.
test_what_is_less_work_and_what_is_another_way() {
    # shellcheck disable=SC2086
    record a $tokens
    while read -r missing options; do
        rm -f "$dir/b.h5"
        # shellcheck disable=SC2086
        record b $tokens $options
        for order in "a b" "b a"; do
            ds diff "$dir/${order% *}.h5" "$dir/${order#* }.h5" --json
            case $missing in
            nothing)
                expect 0
                has "$dir/out" '"partial": false'
                ;;
            *)
                expect 2
                has "$dir/out" '"partial": true'
                grep -q "\"reason\": \"no difference over [0-9]* comparisons, but missing in [AB]: [0-9]* $missing" "$dir/out"
                ds diff "$dir/${order% *}.h5" "$dir/${order#* }.h5" --partial
                expect 0
                ;;
            esac
        done
    done <<END
nothing --chunk 4
nothing --mode decode
nothing --batch 4 --padding 4
nothing --batch 2 --padding 4r
nothing --prefix 4
nothing --rollback 2
nothing --repeat 3
nothing --scores
nothing --place layers=0:cpu0;1-:cpu1
row -n 1
arm --batch 1,2
sites --sites resid
END
    # sites that do not count are not missing either
    ds diff "$dir/a.h5" "$dir/b.h5" --only stages=resid_ffn
    expect 0
    # a row that both made has its sites missing, not itself
    ds diff "$dir/a.h5" "$dir/b.h5" --only stages=q_proj,token
    expect 2
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "but missing in B: 2 sites (from layer 0 q_proj); --partial"
    # the beginning of the prompt, and the record of another order of arms
    record c --tokens 5,9,1
    ds diff "$dir/a.h5" "$dir/c.h5"
    expect 2
    # where something differs that is the answer, and what is missing stands beside it
    # shellcheck disable=SC2086
    record d $tokens -n 1 --kernels pinned+rmsnorm=reference
    ds diff "$dir/a.h5" "$dir/d.h5"
    expect 1
    has "$dir/out" "partial       missing in B: 1 row (request 0, position 7)"
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "drift: first at "
    has "$dir/last" "; only what both have was compared: missing in B: 1 row (request 0, position 7)"
}

test_a_site_of_any_pair() {
    # shellcheck disable=SC2086
    record a $tokens --batch 1,2
    # shellcheck disable=SC2086
    record b $tokens --batch 2,1 --kernels pinned+rmsnorm=reference
    # Arm 0 of B has the settings of arm 1 of A.
    ds diff "$dir/a.h5" "$dir/b.h5" --site 0,attn_norm --arm 0
    expect 1
    has "$dir/out" "arm 3 (batch 2, "
    ds diff "$dir/a.h5" "$dir/b.h5" --site 0,attn_norm --arm 1
    expect 1
    has "$dir/out" "arm 1 (batch 1, "
    ds diff "$dir/a.h5" "$dir/b.h5" --site 0,attn_norm --arm 2
    expect 2
    has "$dir/err" "arm 2 of the second record is compared with no arm of the first"
    ds diff "$dir/a.h5" "$dir/b.h5" --arm 0
    expect 2
    has "$dir/err" "--arm needs --site, --sites or --tokens"
}

test_another_kernel_is_told_with_its_launch() {
    # shellcheck disable=SC2086
    record a $tokens --dump all --dump-rows 1000
    # shellcheck disable=SC2086
    record b $tokens --dump all --dump-rows 1000 --kernels pinned+rmsnorm=reference
    ds diff "$dir/a.h5" "$dir/b.h5"
    expect 1
    has "$dir/out" "first drift   layer 0 attn_norm, rmsnorm/reference: origin"
    has "$dir/out" "variant pinned against reference"
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "drift: first at layer 0 attn_norm, rmsnorm/reference, record B"
    # within a tolerance it is no drift
    ds diff "$dir/a.h5" "$dir/b.h5" --atol 1e-3
    expect 0
    has "$dir/out" " differing rows excused, 0 beyond it"
    has "$dir/out" "differing rows within the tolerance"
    ds diff "$dir/a.h5" "$dir/b.h5" --ulp 1 --nmse 1e-8
    expect 0
    ds diff "$dir/a.h5" "$dir/b.h5" --atol 1e-30
    expect 1
    has "$dir/out" "0 differing rows excused"
    # other sites
    ds diff "$dir/a.h5" "$dir/b.h5" --only layers=-1
    expect 0
    has "$dir/out" "sites compared"
    ds diff "$dir/a.h5" "$dir/b.h5" --ignore stages=attn_norm --only layers=0,stages=attn_norm,q_proj
    expect 1
    has "$dir/out" "first drift   layer 0 q_proj, matmul/pinned: inherited"
}

test_rows_without_bytes_are_not_excused() {
    # shellcheck disable=SC2086
    record a $tokens --dump none
    # shellcheck disable=SC2086
    record b $tokens --dump none --kernels pinned+rmsnorm=reference
    ds diff "$dir/a.h5" "$dir/b.h5" --atol 1
    expect 1
    has "$dir/out" "their bytes are not in both records"
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "rows not excused: their bytes are not in both records"
}

# Less memory than the records' tables take: an error that says so, and no answer from fewer of them.
test_memory_is_bounded() {
    # shellcheck disable=SC2086
    record a $tokens
    ds diff "$dir/a.h5" "$dir/a.h5" --hold 1K
    expect 2
    has "$dir/err" "more than 854 bytes of memory"
    has "$dir/err" "hint: --hold SIZE allows more"
    ds diff "$dir/a.h5" "$dir/a.h5" --hold 64M
    expect 0
    # Whatever the bound: the whole answer, or an error.
    # shellcheck disable=SC2086
    record c $tokens --dump all --dump-rows 100000
    # shellcheck disable=SC2086
    record d $tokens --dump all --dump-rows 100000 --kernels pinned+rmsnorm=reference
    ds diff "$dir/c.h5" "$dir/d.h5"
    expect 1
    cp "$dir/out" "$dir/whole"
    refused=0 given=0
    for hold in 10K 30K 60K 80K 100K 120K 140K 160K 200K 250K 300K 400K 600K 1M 4M; do
        ds diff "$dir/c.h5" "$dir/d.h5" --hold $hold
        if [ "$code" = 2 ]; then
            has "$dir/err" "of memory"
            refused=$((refused + 1))
        else
            expect 1
            cmp "$dir/out" "$dir/whole"
            given=$((given + 1))
        fi
    done
    [ $refused -gt 0 ] && [ $given -gt 0 ]
}

test_arms_without_a_partner_belong_to_the_answer() {
    # shellcheck disable=SC2086
    record a $tokens --batch 1,2,3
    # shellcheck disable=SC2086
    record b $tokens --batch 1
    ds diff "$dir/a.h5" "$dir/b.h5"
    expect 2
    has "$dir/out" "incomparable: no difference over "
    has "$dir/out" "missing in B: 2 arms (from batch 2); --partial compares what both have"
    ds diff "$dir/a.h5" "$dir/b.h5" --partial
    expect 0
    has "$dir/out" "same: no difference over "
    has "$dir/out" "; only what both have was compared: missing in B: 2 arms (from batch 2)"
    has "$dir/out" "b.h5 --partial --sites" # what comes next judges as this did
    ds diff "$dir/a.h5" "$dir/b.h5" --json
    has "$dir/out" '"unpaired_arms": {'
}

test_one_is_no_plural() {
    # shellcheck disable=SC2086
    record a $tokens
    record b --tokens 5
    ds show "$dir/b.h5" --tokens
    has "$dir/out" "request 0, 1 token: 5"
    ds diff "$dir/a.h5" "$dir/b.h5" --partial
    expect 0
    has "$dir/out" "length: 6 tokens in A, its first token in B"
    record c --tokens 7
    ds diff "$dir/a.h5" "$dir/c.h5"
    expect 2
    has "$dir/out" "the prompts differ: token 0 is 5 in A, 7 in B"
}

# What has grown beyond a tolerance is not told as if nothing stood before it.
test_beyond_a_tolerance_is_said() {
    # shellcheck disable=SC2086
    record a $tokens --dump all --dump-rows 1000000
    # shellcheck disable=SC2086
    record b $tokens --dump all --dump-rows 1000000 --kernels pinned+matmul=split-k
    ds diff "$dir/a.h5" "$dir/b.h5"
    expect 1
    has "$dir/out" "drift: first at layer 0 q_proj, matmul/split-k"
    has "$dir/out" "its inputs are equal, and so are"
    hasnt "$dir/out" "within the tolerance"
    ds diff "$dir/a.h5" "$dir/b.h5" --nmse 1e-14
    expect 1
    has "$dir/out" "rows differ within it from layer "
    has "$dir/out" " digests differ beyond the tolerance, "
    has "$dir/out" "drift: first beyond the tolerance at layer"
}

# A label goes by the bits of what a kernel read. The rmsnorm of four threads begins the drift, within the tolerance; the matmul that takes
# it beyond gives the same bits on the same inputs, as the heal trials of both records show.
test_inputs_within_a_tolerance_make_no_origin() {
    for threads in 1 4; do
        ds run -m random:llama,layers=3,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=128 --tokens 5,6,7,8 --batch 1 -n 2 --repeat 1 --slot first \
            --neighbours copies --kernels pinned,split --threads $threads --dump all --dump-rows 100000 --chunk 0 --mode prefill \
            -o "$dir/$threads.h5" -q
        expect 1
    done
    ds diff "$dir/1.h5" "$dir/4.h5" --nmse 1e-14
    expect 1
    has "$dir/out" "rmsnorm/split         A|B"
    has "$dir/out" "matmul/split-k        same"
    has "$dir/out" "rows differ within it from layer 1 attn_norm, rmsnorm/split, on"
    has "$dir/out" "first drift   layer 1 q_proj, matmul/split-k: inherited"
    has "$dir/out" "its inputs differ within the tolerance: what is beyond it may have grown from them"
    has "$dir/out" "unknown: an input differs already, within the tolerance"
    has "$dir/out" "origins       rmsnorm/split 1: ffn_norm in 1 layer"
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "drift: first beyond the tolerance at layer 1 q_proj, matmul/split-k, whose inputs differ within it, record B"
    ds diff "$dir/1.h5" "$dir/4.h5" --nmse 1e-14 --sites
    expect 1
    grep -Eq "^L01 +=" "$dir/out"
    has "$dir/out" "= differs within the tolerance"
    ds diff "$dir/1.h5" "$dir/4.h5" --nmse 1e-14 --site 1,attn_norm
    expect 1
    [ "$(awk '$NF == "within" && $3 != $4' "$dir/out" | wc -l)" -eq 1 ]
    has "$dir/out" "1 of 6 rows differ at this site, 1 of them within the tolerance"
    ds diff "$dir/1.h5" "$dir/4.h5" --nmse 1e-13
    expect 0
    has "$dir/out" "rmsnorm/split         within"
    has "$dir/out" "(within = its bits differ, nowhere by more than the tolerance)"
    has "$dir/out" "same: no difference beyond the tolerance over "
    hasnt "$dir/out" "bit-identical"
    need python3
    ds diff "$dir/1.h5" "$dir/4.h5" --nmse 1e-14 --json
    expect 1
    cp "$dir/out" "$dir/verdict.json"
    run python3 -c '
import json, sys
v = json.load(open(sys.argv[1]))
first, within = v["first_drift"], v["diff"]["tolerance"]["first_within"]
assert (first["label"], first["inputs_within"], first["kind"]) == ("inherited", True, "unknown"), first
assert (within["layer"], within["stage"], within["op"], within["variant"]) == (1, "attn_norm", "rmsnorm", "split"), within
of = {k["op"] + "/" + k["variant"]: k for k in v["kernels"]}
assert of["matmul/split-k"]["origins"] == 0 and of["rmsnorm/split"]["origins"] == 1, of
assert of["rmsnorm/split"]["within"] > 0 and of["rmsnorm/pinned"]["within"] == 0, of
assert not any(x["op"] == "rmsnorm" and x["variant"] == "split" for x in v["bit_identical"]), v["bit_identical"]
' "$dir/verdict.json"
    expect 0
}

# What is told to be done next is about the same comparison.
test_next_keeps_what_was_compared() {
    # shellcheck disable=SC2086
    record a $tokens
    # shellcheck disable=SC2086
    record b $tokens --kernels pinned+matmul=split-k
    ds diff "$dir/a.h5" "$dir/b.h5" --only layers=0-1 --ignore 'parts=k' --ignore stages=o_proj --atol 1e-12 --nmse 0.1e-20
    expect 1
    has "$dir/out" "--only layers=0-1 --ignore parts=k --ignore stages=o_proj --atol 1e-12 --nmse 1e-21"
}

test_a_record_and_itself() {
    # shellcheck disable=SC2086
    record a $tokens
    ln -sf a.h5 "$dir/also.h5"
    ds diff "$dir/a.h5" "$dir/also.h5"
    expect 0
    has "$dir/err" "both records are one file: $dir/also.h5"
    cp "$dir/a.h5" "$dir/copy.h5"
    ds diff "$dir/a.h5" "$dir/copy.h5"
    expect 0
    hasnt "$dir/err" "one file"
}

# The name of an arm that would be too long ends behind a whole factor.
test_a_long_name_of_an_arm_is_cut_between_factors() {
    # shellcheck disable=SC2086
    record a $tokens --batch 1,2 --threads 1,2 --slot first,last --neighbours copies,varied --chunk 0,4 --mode prefill,decode
    # shellcheck disable=SC2086
    record b $tokens --batch 1
    ds diff "$dir/a.h5" "$dir/b.h5" --partial
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "arms (from batch 2, slot first, neighbours copies, threads 1, chunk 0, ...)"
}

test_bad_terms() {
    # shellcheck disable=SC2086
    record a $tokens
    for bad in "--ulp 0" "--ulp x" "--atol 0" "--atol -1" "--rtol nan" "--nmse inf" "--atol 1e" "--hold 1X"; do
        # shellcheck disable=SC2086
        ds diff "$dir/a.h5" "$dir/a.h5" $bad
        expect 2
        empty "$dir/out"
        has "$dir/err" "driftscope: "
    done
    ds diff "$dir/a.h5" "$dir/a.h5" --only stages=q_prj --error-exit 125
    expect 125
    has "$dir/err" "no site with stage q_prj"
    has "$dir/err" "did you mean q_proj?"
    ds diff "$dir/a.h5" "$dir/a.h5" --only layer=3
    expect 2
    has "$dir/err" "did you mean layers?"
    ds diff "$dir/a.h5" "$dir/a.h5" --only layers=7
    expect 2
    has "$dir/out" "incomparable: --only and --ignore leave no site to compare"
}

test_what_is_no_pass() {
    # shellcheck disable=SC2086
    record a $tokens --dump all --dump-rows 1000
    # shellcheck disable=SC2086
    record b $tokens --dump all --dump-rows 1000 --kernels pinned+rmsnorm=reference
    # another model
    saved=$model
    model=random:llama,layers=2,hidden=64,heads=8,kv_heads=2,ffn=96,vocab=128,ctx=64,seed=9
    # shellcheck disable=SC2086
    record other $tokens
    model=$saved
    ds diff "$dir/a.h5" "$dir/other.h5"
    expect 2
    has "$dir/out" "incomparable: the models' shapes differ: heads 4 in A, 8 in B"
    # cut short
    head -c 20000 "$dir/a.h5" >"$dir/cut.h5"
    ds diff "$dir/a.h5" "$dir/cut.h5"
    expect 2
    empty "$dir/out"
    has "$dir/err" "cut.h5"
    # no record at all
    echo text >"$dir/text.h5"
    ds diff "$dir/text.h5" "$dir/a.h5"
    expect 2
    has "$dir/err" "is not a record"
    # dumped bytes that do not have their digest, said per row
    need python3
    python3 - "$driftscope" "$dir/a.h5" "$dir/b.h5" "$dir/bad.h5" <<'END'
import re, subprocess, sys
program, a, b, bad = sys.argv[1:]
site = subprocess.run([program, "diff", a, b, "--site", "0,attn_norm"], capture_output=True, text=True).stdout
index = re.findall(r"^ +([0-9]+) +-?[0-9.]+ .* ([0-9a-f]{8})  +-?[0-9.]+ .* ([0-9a-f]{8})  [0-9]+$", site, re.M)
data = bytearray(open(b, "rb").read())
word = bytes.fromhex(index[0][2])[::-1]
at = data.find(word)
assert at > 0, site
while at >= 0:
    data[at] ^= 0x40
    at = data.find(word)
open(bad, "wb").write(data)
END
    ds diff "$dir/a.h5" "$dir/bad.h5"
    expect 2
    has "$dir/out" "damage        B: layer 0 attn_norm, request 0, position "
    has "$dir/out" ", but its bytes have "
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "damaged: 1 dumped row does not have its digest"
}

test_what_differs_across_missing_sites_is_no_kernels_fault() {
    # shellcheck disable=SC2086
    record long $tokens
    saved=$model
    model=random:llama,layers=1,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128,ctx=64,seed=9
    # shellcheck disable=SC2086
    record short $tokens
    model=$saved
    ds diff "$dir/long.h5" "$dir/short.h5"
    expect 1
    has "$dir/out" "origins       rmsnorm/pinned or a kernel before it: final_norm in 1 layer"
    has "$dir/out" "hyperparameter n_layers: 2 in A, 1 in B"
    hasnt "$dir/out" "unstable:"
}

# No weight in common: two models, and nothing that is said of one of them is true of the other.
test_two_models_are_not_compared_unasked() {
    # shellcheck disable=SC2086
    record a $tokens
    saved=$model
    model=random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128,ctx=64,seed=10
    # shellcheck disable=SC2086
    record b $tokens
    model=random:llama,layers=1,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128,ctx=64,seed=10
    # shellcheck disable=SC2086
    record c $tokens
    model=$saved
    for other in b c; do
        ds diff "$dir/a.h5" "$dir/$other.h5"
        expect 2
        has "$dir/out" "no weight of A's 21 is one of B's"
        has "$dir/out" "weight        token_embd.weight"
        tail -n 1 "$dir/out" | grep -q '^incomparable: two models: .*; --across-models compares them all the same$'
    done
    has "$dir/out" "two models    2 layers in A, 1 in B, no weight"
    ds diff "$dir/a.h5" "$dir/b.h5" --json
    expect 2
    has "$dir/out" '"two_models": true'
    # Asked to, it does, and says between what.
    ds diff "$dir/a.h5" "$dir/b.h5" --across-models
    expect 1
    has "$dir/out" "drift between two models: first at embed"
    has "$dir/out" " --across-models --site"
    # Where both agree in all that is looked at, that is said of two models, too.
    ds diff "$dir/a.h5" "$dir/b.h5" --across-models --partial --only stages=positions
    expect 0
    has "$dir/out" "same between two models: no difference"
}

# However much of it is there: no pass, no crash, and a reason.
test_a_record_cut_anywhere_is_no_pass() {
    # shellcheck disable=SC2086
    record a $tokens
    size=$(wc -c <"$dir/a.h5")
    cut=0
    while [ $cut -lt 40 ]; do
        head -c $((size * cut / 40 + cut * 37 % 97)) "$dir/a.h5" >"$dir/c.h5"
        ds diff "$dir/a.h5" "$dir/c.h5"
        expect 2
        has "$dir/err" "c.h5"
        ds diff "$dir/c.h5" "$dir/a.h5" --ulp 1
        expect 2
        has "$dir/err" "c.h5"
        cut=$((cut + 1))
    done
}

# Bytes behind equal digests are held against them, too: nothing is a pass by default. Every damaged row is named.
test_verify_names_every_damaged_row() {
    need python3
    # shellcheck disable=SC2086
    ds run -m random:llama,layers=1,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128 --tokens 5,6,7,8 -n 1 --batch 1 --threads 1 --chunk 0 \
        --mode prefill --repeat 1 --kernels pinned --dump all --dump-rows 100 -q -o "$dir/a.h5"
    expect 0
    bend "$dir/a.h5" "$dir/b.h5" 3
    ds diff "$dir/a.h5" "$dir/b.h5"
    expect 2
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "incomparable: the records are damaged: 3 dumped rows do not have their digest"
    ds show "$dir/b.h5" --site 0,q_proj
    expect 2
    ds report "$dir/b.h5" -o "$dir/b.html"
    expect 2
    has "$dir/err" "the record is damaged"
    ds diff "$dir/b.h5" "$dir/a.h5"
    expect 2
    has "$dir/out" "damage        A: "
    ds diff "$dir/a.h5" "$dir/a.h5" --json
    expect 0
    has "$dir/out" '"verified": true'
    ds diff "$dir/a.h5" "$dir/b.h5" --verify
    expect 2
    [ "$(grep -cE '^damage +B: (layer [0-9]+ )?[a-z_/]+, request 0, position [0-9]+, trial 0 \(arm 0, repeat 0\)' "$dir/out")" -eq 3 ]
    [ "$(grep -cE '^ +digest [0-9a-f]{16}, but its bytes have [0-9a-f]{16}$' "$dir/out")" -eq 3 ]
    hasnt "$dir/out" "damage        A:"
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "incomparable: the records are damaged: 3 dumped rows do not have their digest"
    ds show "$dir/b.h5" --verify --json
    expect 2
    cp "$dir/out" "$dir/damage.json"
    run python3 -c '
import json, sys
v = json.load(open(sys.argv[1]))
d = v["damage"]
assert v["result"] == "incomparable" and d["verified"] and d["rows"] == 3 and d["trials"] == 0, d
assert len({(x["layer"], x["stage"], x["part"], x["position"]) for x in d["listed"]}) == 3, d
assert all(x["what"] == "row" and x["trial"] == x["arm"] == x["repeat"] == x["request"] == 0 for x in d["listed"]), d
assert all(len(x["digest"]) == len(x["found"]) == 16 and x["digest"] != x["found"] for x in d["listed"]), d
' "$dir/damage.json"
    expect 0
    ds show "$dir/a.h5" --verify
    expect 0
    # what is suggested repairs it
    ds run -q -m random:llama,layers=1,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128 --resume "$dir/b.h5"
    expect 0
    ds diff "$dir/a.h5" "$dir/b.h5" --verify
    expect 0
}

# More dumped rows than are read whatever the answer: read where nothing differs, else counted in the last line.
test_what_was_not_read_is_said() {
    maker=$(dirname "${DRIFTSCOPE:-build/driftscope}")/tests/tools/make_big_records
    [ -x "$maker" ] || skip "$maker is not built"
    "$maker" "$dir/a.h5" "$dir/b.h5" 136 10
    ds diff "$dir/a.h5" "$dir/b.h5"
    expect 1
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" " dumped rows (28"
    has "$dir/last" " were not held against their digests: --verify does that"
    ds diff "$dir/a.h5" "$dir/b.h5" --ulp 1
    expect 0
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" " were not held against their digests: --verify does that"
    ds diff "$dir/a.h5" "$dir/b.h5" --verify
    expect 1
    hasnt "$dir/out" "were not held"
    ds show "$dir/a.h5"
    expect 0
    hasnt "$dir/out" "were not held"
    # nearly all of the file is dumped rows
    cp "$dir/a.h5" "$dir/bad.h5"
    for part in 3 5; do
        at=$(($(wc -c <"$dir/a.h5") * part / 7))
        was=$(dd if="$dir/a.h5" bs=1 count=1 skip=$at 2>/dev/null | od -An -tu1)
        # shellcheck disable=SC2059
        printf "\\$(printf %o $((was ^ 1)))" | dd of="$dir/bad.h5" bs=1 seek=$at conv=notrunc 2>/dev/null
    done
    ds diff "$dir/a.h5" "$dir/bad.h5"
    expect 2
    has "$dir/out" "incomparable: the records are damaged: 2 dumped rows do not have their digest"
    hasnt "$dir/out" "were not held"
}

# A trial whose tables are damaged has no digests to show: with --verify it stands beside the damaged rows.
test_verify_names_damaged_trials() {
    need python3
    # shellcheck disable=SC2086
    ds run -m random:llama,layers=1,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128 --tokens 5,6,7,8 -n 1 --batch 1 --threads 1 --chunk 0 \
        --mode prefill --repeat 1 --kernels pinned,pinned+matmul=split-k --no-heal -q -o "$dir/a.h5" --json
    expect 1
    # the digest of the first drift's reference, wherever it stands in the file, but for one bit
    python3 -c '
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
want = struct.pack("<Q", int(json.load(open(sys.argv[3]))["first_drift"]["digest"], 16))
at = data.find(want)
while at >= 0:
    data[at] ^= 1
    at = data.find(want, at)
open(sys.argv[2], "wb").write(data)' "$dir/a.h5" "$dir/b.h5" "$dir/out"
    ds show "$dir/b.h5" --verify
    expect 2
    has "$dir/out" "damage        trial 2 (arm 1, repeat 0): its tables have another checksum"
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "1 trial does not have its checksum"
    ds show "$dir/b.h5"
    expect 2
    has "$dir/err" "trial 2 does not have its checksum"
}

run_tests
