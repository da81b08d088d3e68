# test_census.sh: repeats that go on until something is known, busy neighbours, and the search for kernels, from outside.
. tests/cli/lib.sh

model="random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128,ctx=64,seed=9"
sweep="-m $model --tokens 5,9,1,44,23,8,2,60,31 -n 1 --threads 1"
few="--slot first --neighbours copies --chunk 0 --mode prefill"

test_until_stable_chooses_the_number() {
    ds run $sweep $few --batch 1 --kernels pinned --until-stable 0.4 --load 2 -o "$dir/a.h5"
    expect 0
    has "$dir/out" "1 arm, 7 trials"
    has "$dir/out" "a flake rate above 39.3 % of an arm's trials is excluded at 95 %"
    ds run -m "$model" --resume "$dir/a.h5"
    expect 0
    has "$dir/out" "1 arm, 7 trials"
    ds run $sweep $few --batch 1,2 --kernels pinned+matmul=atomic --until-stable 40% -o "$dir/b.h5"
    expect 1
    has "$dir/out" "2 arms, 4 trials"
    ds run -m "$model" --resume "$dir/b.h5"
    expect 1
    has "$dir/out" "2 arms, 4 trials"
    ds show "$dir/b.h5" --runs
    expect 1
    has "$dir/out" "arm 1         2 trials, 2 different runs"
    ds show "$dir/b.h5" --runs --sites
    expect 2
    for bad in 0 1 -1 x 200% nan 0.1x; do
        ds run $sweep $few --until-stable=$bad --no-record
        expect 2
        has "$dir/err" "no rate between 0 and 1"
    done
    # fewer trials than the rate takes: what was asked for is not known, and that is no pass
    ds run $sweep $few --batch 1 --kernels pinned --until-stable 0.1 --repeat 3 -o "$dir/c.h5"
    expect 2
    has "$dir/err" "takes 30 equal trials"
    has "$dir/out" "not the 10 % that --until-stable asked for: that takes 30 equal trials, and 1 arm has fewer"
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "; a flake rate of 10 % is not excluded: that takes 30 trials of an arm"
    ds show "$dir/c.h5" --json
    expect 2
    has "$dir/out" '"result": "same"'
    has "$dir/out" '"reached": false'
    ds show "$dir/c.h5" --runs
    expect 2
    has "$dir/out" "excluded at 95 %, not the 10 %"
    ds show "$dir/a.h5" --json
    expect 0
    has "$dir/out" '"reached": true'
}

# What each row of an unstable site gave over the repeats: text and JSON say the same, whatever arm it is held against.
test_a_site_tells_its_repeats() {
    need python3
    ds run $sweep $few --batch 1 --kernels pinned+matmul=atomic --repeat 6 -o "$dir/a.h5" -q
    expect 1
    ds show "$dir/a.h5" --site embed
    expect 1
    has "$dir/out" "repeats of arm 0: 6 trials, each of 10 rows has one digest"
    ds show "$dir/a.h5" --site 0,q_proj
    expect 1
    cp "$dir/out" "$dir/text"
    ds show "$dir/a.h5" --site 0,q_proj --json
    expect 1
    cp "$dir/out" "$dir/site.json"
    run python3 -c '
import json, sys
text = open(sys.argv[1]).read()
(r,) = json.load(open(sys.argv[2]))["repeats"]
assert (r["arm"], r["trials"], r["rows"]) == (0, 6, 10) and r["unstable_rows"] == len(r["unstable"]) > 0, r
assert r["most_values"] == max(x["values"] for x in r["unstable"]), r
assert r["least_modal"] == min(x["modal"] for x in r["unstable"]), r
for x in r["unstable"]:
    assert x["trials"] == 6 and 2 <= x["values"] <= 6 and x["modal"] + x["values"] - 1 <= 6, x
    assert "    row %d:%d: %d of 6 trials gave %s, %d different digests\n" % (
        x["request"], x["position"], x["modal"], x["digest"], x["values"]) in text, x
assert "repeats of arm 0: 6 trials, %d of 10 rows " % r["unstable_rows"] in text
assert " several digests, up to %d; at least %d of them " % (r["most_values"], r["least_modal"]) in text
' "$dir/text" "$dir/site.json"
    expect 0
    # of two records both sides are told
    ds diff "$dir/a.h5" "$dir/a.h5" --site 0,q_proj
    expect 1
    has "$dir/out" "repeats of arm 0 (A): 6 trials, "
    has "$dir/out" "repeats of arm 0 (B): 6 trials, "
}

# A pass without probes is held against an arm that disagrees with itself, too: against each of its trials. It has
# the seed of the first one.
test_probes_are_checked_where_repeats_disagree() {
    ds run $sweep $few --batch 1 --kernels pinned+matmul=atomic --repeat 4 -o "$dir/a.h5"
    expect 1
    has "$dir/out" "the answer without them is that of some repeat"
    ds show "$dir/a.h5" --json
    has "$dir/out" '"check": "agrees-with-a-repeat"'
    has "$dir/out" '"disturbs": false'
}

test_bisect_finds_and_goes_on() {
    ds bisect $sweep --kernels pinned+matmul=split-k,pinned --batch 1,4 --state "$dir/state"
    expect 1
    has "$dir/out" "bisect: matmul/split-k brings the difference in; with matmul as in pinned the logits agree"
    has "$dir/out" "shown by --kernels pinned+matmul=split-k"
    cp "$dir/state" "$dir/whole"
    sed -n 1,2p "$dir/whole" >"$dir/state"
    ds bisect $sweep --kernels pinned+matmul=split-k,pinned --batch 1,4 --state "$dir/state"
    expect 1
    cmp "$dir/state" "$dir/whole"
    ds bisect $sweep --kernels pinned+matmul=split-k,pinned --batch 1,4 --state "$dir/state" --json
    expect 1
    has "$dir/out" '"schema": "driftscope.bisect/1"'
    has "$dir/out" '"passes": 0'
    ds bisect $sweep --kernels pinned+matmul=split-k,pinned --batch 1,5 --state "$dir/state"
    expect 2
    has "$dir/err" "is not the state of this search"
    echo "01 1" >>"$dir/state"
    ds bisect $sweep --kernels pinned+matmul=split-k,pinned --batch 1,4 --state "$dir/state"
    expect 2
    has "$dir/err" "is no outcome of this search"
}

test_bisect_answers() {
    ds bisect $sweep --kernels reference,pinned --batch 1,4
    expect 0
    has "$dir/out" "bisect: same: the logits agree"
    ds bisect $sweep --kernels pinned+matmul=atomic,pinned --batch 1,4
    expect 1
    has "$dir/out" "bisect: unstable"
    ds bisect $sweep --kernels pinned,pinned+matmul=split-k@1+rmsnorm=split --batch 1
    expect 2
    has "$dir/err" "single layers"
    ds bisect $sweep --kernels reference,pinned --per-layer
    expect 1
    ds bisect $sweep --kernels reference,pinned --compare tokens
    expect 0
    ds bisect $sweep --kernels pinned --batch 4
    expect 2
    ds bisect $sweep --batch 1,2,3
    expect 2
    has "$dir/err" "more than two values"
    ds bisect $sweep --batch 1,2 --threads 1,2
    expect 2
}

test_inert_fixtures_are_named() {
    ds run $sweep $few --batch 1 --kernels pinned --repeat 1 --mutate --no-record
    expect 0
    has "$dir/out" "fixture       57 of 57 changes"
    hasnt "$dir/out" "suspect"
    ds run -m "$model" --tokens 5,5,5 -n 0 --threads 1 $few --batch 1 --kernels pinned --repeat 1 --mutate -o "$dir/inert.h5"
    # a recording that could not show a fault is no success
    expect 2
    has "$dir/out" "suspect       the fixture is inert under a shift of positions at embed"
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "incomparable: the fixture is inert under a shift of positions at "
    ds show "$dir/inert.h5" --json
    expect 2
    has "$dir/out" '"what": "inert-fixture"'
    # nor does it show anything beside another one, whichever side it is
    ds run -m "$model" --tokens 5,5,5 -n 0 --threads 1 $few --batch 1 --kernels pinned --repeat 1 -o "$dir/plain.h5"
    expect 0
    for order in "plain inert" "inert plain"; do
        # shellcheck disable=SC2086
        set -- $order
        ds diff "$dir/$1.h5" "$dir/$2.h5"
        expect 2
        has "$dir/out" "suspect       the fixture is inert under a shift of positions at embed"
    done
}

test_kernels_of_single_layers() {
    ds run $sweep $few --batch 1,4 --kernels pinned,pinned+matmul=split-k@1 --repeat 1 --no-record
    expect 1
    has "$dir/out" "first drift   layer 1 q_proj, matmul/split-k"
    for bad in pinned+matmul=split-k@ pinned+matmul=split-k@x pinned+matmul=split-k@2-1 pinned+embed=reference@0 \
        pinned+matmul=split-k@3 pinned+matmul=nothing@1 pinned+matmul=split-k@-1; do
        ds run $sweep $few --kernels $bad --no-record
        expect 2
    done
}

run_tests
