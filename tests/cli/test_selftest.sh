# test_selftest.sh: every specimen is named right and nothing else is blamed; with healthy kernels in their places nothing is found;
# cases that are wrong or cannot be read are told.
. tests/cli/lib.sh

test_every_specimen_is_named() {
    ds selftest -q
    cat "$dir/out" >&2
    expect 0
    has "$dir/out" "named right, nothing else blamed"
}

# What explain makes of each: the verdict's kind, or why another one.
test_every_specimen_is_explained() {
    ds selftest -q --explain
    [ "$code" -eq 0 ] || cat "$dir/out" >&2
    expect 0
}

test_healthy_kernels_in_another_order() {
    ds selftest -q --healthy --shuffle 7
    [ "$code" -eq 0 ] || cat "$dir/out" >&2
    expect 0
    has "$dir/out" "without a finding"
}

test_json_and_list() {
    ds selftest -q --json O-01
    expect 0
    has "$dir/out" '"schema": "driftscope.selftest/1"'
    has "$dir/out" '"wrong": 0'
    ds selftest --list O-01
    expect 0
    has "$dir/out" "--kernels pinned+matmul=tile-5-8"
}

# A folder with one case of its own beside the specimens of the build.
own_case() {
    mkdir "$dir/own"
    cp "$(dirname "$driftscope")/specimens/specimens.so" "$dir/own/"
    cat >"$dir/own/own.case"
}

# The command of the case runs: its folder has its answer's file.
case_runs() {
    for answer in "$dir"/tmp/driftscope-case-*/out; do is_there "$answer"; done
}

test_an_interruption_leaves_no_folder() {
    own_case <<'END'
case own
$ run -m random:llama,layers=2,hidden=128,heads=4,kv_heads=2,ffn=128,vocab=64 --tokens 5,6,7 -n 8 --repeat 100000 \
  --kernels pinned --batch 1,5 --slot first --threads 1 --mode prefill --no-record
exit 0
END
    mkdir "$dir/tmp"
    for signal in INT TERM HUP; do
        TMPDIR=$dir/tmp python3 -c 'import os, signal, sys
for s in (signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$driftscope" selftest -q --specimens "$dir/own" >"$dir/out" 2>"$dir/err" &
        pid=$!
        eventually case_runs
        kill -s $signal $pid
        ended
        expect 130
        rmdir "$dir/tmp" || return 1
        mkdir "$dir/tmp"
    done
}

# On a full disk a command can neither answer nor say why: that is no wrong verdict, and no right one.
test_a_command_that_cannot_write_is_an_error() {
    for how in "" --healthy; do
        code=0
        # shellcheck disable=SC2086
        out=$( (ulimit -f 0; exec "$driftscope" selftest -q $how O-01 2>&1) ) || code=$?
        [ "$code" -eq 2 ] || { say "exit code $code: $out"; return 1; }
        case $out in *"case O-01, line "*": the command ended with 2 and no word"*) ;; *) say "$out"; return 1 ;; esac
    done
}

test_a_wrong_answer_is_told() {
    own_case <<'END'
case own
title the tile is said to be innocent
$ run -m random:llama,layers=1,hidden=128,heads=4,kv_heads=2,ffn=128,vocab=64 --tokens 5,6,7 -n 1 --repeat 1 \
  --kernels pinned+matmul=tile-5-8 --batch 1,5 --slot first --neighbours copies --threads 1 --chunk 0 --mode prefill --no-record
exit 0
first_drift absent
first_drift.stage is "k_proj"
first_drift.layer >= 1
blames
END
    ds selftest -q --specimens "$dir/own"
    expect 1
    has "$dir/out" "exit code 1; it should be 0 (line 5)"
    has "$dir/out" 'first_drift.stage is "q_proj"; it should be "k_proj" (line 7)'
    has "$dir/out" "first_drift.layer is 0; it should be at least 1 (line 8)"
    has "$dir/out" "blames matmul/tile-5-8; it should blame nobody (line 9)"
    has "$dir/out" "0 of 1 named right"
}

test_a_command_that_fails_is_told() {
    own_case <<'END'
case own
$ run -m nothing.gguf --no-record
exit 0
END
    ds selftest -q --specimens "$dir/own"
    expect 1
    has "$dir/out" "exit code 2; it should be 0"
    has "$dir/out" "it said: driftscope: nothing.gguf"
}

test_cases_that_cannot_be_read() {
    for text in 'exit 0' 'case a' 'case a
$ run "x' 'case a
$ run
x.y is' 'case a
$ run
x.y equals 3' 'case a
$ run
x >= much' 'case a
exit 1'; do
        rm -rf "$dir/own"
        printf '%s\n' "$text" | own_case
        ds selftest -q --specimens "$dir/own"
        expect 2
        has "$dir/err" "own.case"
    done
    ds selftest O-99x
    expect 2
    has "$dir/err" "unknown case 'O-99x'"
    ds selftest --specimens "$dir/none"
    expect 2
    has "$dir/err" "is not a folder"
}

run_tests
