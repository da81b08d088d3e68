# test_run.sh: `driftscope run` and `show` from outside: names of records, ends before the end, what the texts say. The kernels are
# the project's own, so that nothing depends on the machine.
. tests/cli/lib.sh

small=random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=512
few="--slot first --neighbours copies --threads 1 --chunk 0 --mode prefill"
one="--batch 1 --slot first --neighbours copies --threads 1 --chunk 0 --mode prefill"

test_default_name_is_never_taken_twice() {
    cd "$dir"
    mkdir here && cd here
    # Whatever second of the next hour the run falls into, another run has taken its name already.
    seq 0 3600 | sed 's/.*/+& sec/' | date -f - +driftscope-%Y%m%d-%H%M%S.h5 | xargs touch
    # shellcheck disable=SC2086
    ds run -m $small --kernels pinned $one --force
    expect 0
    ls driftscope-*-2.h5 >/dev/null
    [ "$(find . -size +0 | grep -c h5)" -eq 1 ] || {
        say "another record was replaced"
        return 1
    }
}

test_failed_run_leaves_no_record() {
    ds run -m $small,ctx=10 --tokens 1,2,3,4,5,6,7,8,9 -o "$dir/a.h5"
    expect 2
    [ ! -e "$dir/a.h5" ]
}

test_chat_contradicts_tokens() {
    ds run -m $small --no-record --chat --tokens 1,2
    expect 2
    has "$dir/err" "--tokens is no text"
}

test_chat_needs_a_tokenizer() {
    ds run -m $small --no-record --chat
    expect 2
    has "$dir/err" "--chat: this model has no tokenizer"
    empty "$dir/out"
}

test_a_prompt_without_a_token_is_named() {
    : >"$dir/empty.txt"
    ds run -m tests/data/gguf/tiny.gguf --no-record -f "$dir/empty.txt"
    expect 2
    has "$dir/err" "empty.txt' is empty"
}

test_no_record_contradicts_output() {
    ds run -m $small --no-record -o "$dir/a.h5"
    expect 2
    has "$dir/err" "--no-record"
}

# start ARGUMENT...: a run in the background that would take hours, recording to $dir/a.h5; returns once the record is there.
start() {
    background run -m $small --kernels pinned --repeat 20000 -o "$dir/a.h5" "$@"
    there "$dir/a.h5"
}

test_interrupted_run_says_how_to_go_on() {
    start --batch 1,2,4 $few
    kill -TERM $pid
    ended
    expect 130
    has "$dir/err" "of 60000 trials are saved; go on with: $driftscope run -m $small --resume $dir/a.h5"
    ds show "$dir/a.h5"
    has "$dir/out" "$driftscope run -m $small --resume $dir/a.h5"
    hasnt "$dir/out" "60000 trials)"
}

# KiB of the model that are in memory.
loaded() { awk '/^RssShmem:/ { print $2 }' "/proc/$pid/status"; }
is_loading() { [ "$(loaded)" -gt 20000 ] || ! kill -0 "$pid"; }

# While a model is loaded there is nothing to be kept: the run ends where it is, and leaves no record behind.
test_interrupted_while_a_model_is_loaded() {
    grep -q RssShmem /proc/self/status || skip "this system does not tell what is loaded"
    background run -m random:llama,layers=8,hidden=1024,heads=16,kv_heads=16,ffn=4096,vocab=32000 $few -o "$dir/a.h5"
    eventually is_loading
    # It stands still while it is asked how far it is.
    kill -STOP $pid
    [ "$(loaded)" -lt 500000 ] || {
        kill -KILL $pid
        skip "the model was loaded before anybody looked"
    }
    kill -TERM $pid
    kill -CONT $pid
    ended
    expect 130
    has "$dir/err" "driftscope: interrupted"
    hasnt "$dir/err" "are saved"
    [ ! -e "$dir/a.h5" ]
}

# As `timeout` and a closing terminal do: two signals at once are one request, not an abort.
test_two_signals_at_once_are_one_interrupt() {
    start --batch 1,2,4 $few
    # It stands still until both are there, however busy this machine is.
    kill -STOP $pid
    kill -TERM $pid
    kill -HUP $pid
    kill -CONT $pid
    ended
    expect 130
    has "$dir/err" "of 60000 trials are saved"
}

test_ignored_hangup_stays_ignored() {
    trap '' HUP
    start --repeat 20
    kill -HUP $pid
    ended
    expect 0
}

test_one_view_of_a_record() {
    # shellcheck disable=SC2086
    ds run -m $small --kernels pinned $one -o "$dir/a.h5"
    expect 0
    ds show "$dir/a.h5" --site 0,q_proj --sites
    expect 2
    ds show "$dir/a.h5" --arm 0
    expect 2
    has "$dir/err" "--arm needs --site, --sites or --tokens"
    ds diff "$dir/a.h5" "$dir/a.h5" --site 0,q_proj --sites
    expect 2
}

test_site_lists_the_rows_that_differ() {
    # The vendor attention splits one row over 512 slots or more by threads: only the last rows of many differ.
    # shellcheck disable=SC2046
    ds run -m $small --kernels pinned+attention=vendor --threads 1,2 --batch 1 --slot first --neighbours copies --chunk 0 \
        --mode prefill --tokens $(seq -s, 1 510) -n 4 -o "$dir/a.h5"
    expect 1
    ds show "$dir/a.h5" --site 0,attn_out
    expect 1
    has "$dir/out" "512"
    grep -Eq '^ +0 +512 .* origin$' "$dir/out"
    has "$dir/out" "not listed: 511 rows without a difference"
    grep -Eq '^ +[0-9]+ .* 0x1' "$dir/out"
}

test_an_arm_is_held_against_any_other() {
    ds run -m $small --kernels reference,pinned --batch 1,2 --slot first --neighbours copies --threads 1 --chunk 0 --mode prefill \
        --tokens 1,2,3,4 -n 1 -q -o "$dir/a.h5"
    expect 1
    # Arm 1 has another batch, arm 2 other kernels than the base arm.
    ds show "$dir/a.h5" --site 0,q_proj --arm 2 --against 1
    expect 1
    has "$dir/out" "against arm 1: batch 2, kernels reference"
    ds show "$dir/a.h5" --site 0,q_proj --arm 2 --against 2
    has "$dir/out" "its own repeats against each other"
    ds show "$dir/a.h5" --sites --arm 1 --against 2
    expect 1
    has "$dir/out" "against arm 2"
    ds show "$dir/a.h5" --site 0,q_proj --against 1
    expect 2
    has "$dir/err" "--against needs --arm"
    ds show "$dir/a.h5" --site 0,q_proj --arm 1 --against 9
    expect 2
}

# A copy of the tiny model with a NaN as the first of blk.0.ffn_norm.weight.
make_nan_model() {
    cp tests/data/gguf/tiny.gguf "$1"
    printf '\000\000\300\177' | dd of="$1" bs=1 seek=7744 conv=notrunc 2>/dev/null
}

test_grid_shows_every_site_that_is_not_finite() {
    make_nan_model "$dir/nan.gguf"
    ds run -m "$dir/nan.gguf" --kernels pinned --batch 1,4 --tokens 1,2,3,4 -n 2 -q -o "$dir/a.h5"
    expect 2 # NaN everywhere: to be equal says nothing
    # The second arm's rows equal the base's, and are as little finite.
    ds show "$dir/a.h5" --sites --arm 1
    has "$dir/out" "! final_norm"
    has "$dir/out" "against arm 0"
}

test_site_tells_other_tokens_from_drift() {
    make_nan_model "$dir/nan.gguf"
    ds run -m tests/data/gguf/tiny.gguf --kernels pinned --batch 1 --tokens 1,2,3,4 -n 2 -q -o "$dir/a.h5"
    expect 0
    ds run -m "$dir/nan.gguf" --kernels pinned --batch 1 --tokens 1,2,3,4 -n 2 -q -o "$dir/b.h5"
    expect 2 # NaN everywhere
    ds diff "$dir/a.h5" "$dir/b.h5" --site 0,ffn_norm
    expect 1
    has "$dir/out" "not compared: other tokens before it"
    has "$dir/out" "4 of 6 rows differ at this site"
}

test_text_fits() {
    ds run -m $small --kernels vendor+matmul=reference,pinned --no-record
    expect 1
    # The answer itself is one line however long it is.
    sed '$d' "$dir/out" | awk 'length($0) > 100 { print; long = 1 } END { exit long }' >&2
}

test_first_drift_is_told_of_the_nearest_arm() {
    # Every batch size shows it alike; the base's is the one to look at.
    ds run -m $small --kernels vendor+matmul=reference,pinned --full --batch 1,2,3,4,5,6 --slot first --neighbours copies \
        --threads 1 --chunk 0 --mode prefill -n 1 --repeat 1 --no-record
    expect 1
    has "$dir/out" "kernels pinned against vendor+matmul=reference; prefill"
}

test_sites_not_digested_are_not_acquitted() {
    ds run -m $small --kernels vendor+matmul=reference,pinned --sites resid --no-record
    expect 1
    has "$dir/out" "its inputs were not compared"
    has "$dir/out" "or a kernel before it"
}

# git bisect takes 2 for a bad commit: what compared nothing must be told apart from drift.
test_nothing_compared_is_an_error_exit() {
    # shellcheck disable=SC2086
    ds run -m $small --kernels pinned $one -n 1 -q -o "$dir/a.h5"
    expect 0
    # shellcheck disable=SC2086
    ds run -m $small --kernels pinned $one -n 1 -q --tokens 1,2 -o "$dir/b.h5"
    expect 0
    ds diff "$dir/a.h5" "$dir/b.h5"
    expect 2
    has "$dir/out" "incomparable: the prompts differ"
    for arguments in "" --json; do
        # shellcheck disable=SC2086
        ds diff "$dir/a.h5" "$dir/b.h5" --error-exit=125 $arguments
        expect 125
    done
    ds diff "$dir/a.h5" "$dir/a.h5" --error-exit=125
    expect 0
}

test_unknown_core_gets_a_suggestion() {
    ds run -m $small --blas-core Haswel --no-record
    expect 2
    has "$dir/err" "did you mean Haswell?"
}

# A limit on file sizes is told like a full disk; without care its signal ends the program without a word.
test_a_limit_on_file_sizes_is_told() {
    (
        ulimit -f 64
        ds run -m random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=512 --tokens 5,6,7,8 -n 2 --repeat 3 \
            --batch 1,4 --kernels split --dump all -o "$dir/r.h5" -q
        expect 2
    )
    has "$dir/err" "driftscope:"
}

# One trial is a recording: what comes next is the same prompt and kernels again; no blank lines stand for a matrix of nothing.
test_a_recording_suggests_its_own_prompt() {
    ds run -m random:llama,layers=1,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128 --tokens 5,6,7 -n 1 --kernels pinned --repeat 1 --batch 1 \
        --threads 1 --slot first --neighbours copies --chunk 0 --mode prefill --no-record
    expect 0
    has "$dir/out" " --tokens 5,6,7 --kernels pinned --repeat 3 --batch 1,2,4,8"
    [ "$(grep -c '^$' "$dir/out")" -eq 0 ]
}

test_attached_files_are_known_again() {
    set -- run -m random:llama,layers=1,hidden=32,ffn=48,vocab=64 --tokens 5,9,1 -n 1 --batch 1 --threads 1 --kernels pinned --repeat 1 -q
    printf abc >"$dir/t"
    : >"$dir/empty"
    ds "$@" --attach "template=$dir/t" --attach "set=$dir/empty" -o "$dir/a.h5"
    expect 0
    printf abd >"$dir/t"
    ds "$@" --attach "template=$dir/t" --attach "set=$dir/empty" -o "$dir/b.h5"
    expect 0
    ds show "$dir/a.h5" --environment
    expect 0
    has "$dir/out" "attached template"
    has "$dir/out" "78af5f94892f3950, 3 bytes" # as xxhsum -H3 has it
    has "$dir/out" "2d06800538d394c2, 0 bytes"
    ds diff "$dir/a.h5" "$dir/b.h5"
    has "$dir/out" "attached template: 78af5f94892f3950, 3 bytes in A, "
    hasnt "$dir/out" "attached set"
    for bad in template template= "=$dir/t" "a b=$dir/t" "template=$dir/none" "template=$dir"; do
        ds "$@" --attach "$bad" -o "$dir/c.h5"
        expect 2
        has "$dir/err" "--attach"
        [ ! -e "$dir/c.h5" ]
    done
    ds "$@" --attach "a=$dir/t" --attach "a=$dir/empty" -o "$dir/c.h5"
    expect 2
    has "$dir/err" "'a' twice"
    # What cannot be read, or says that it has 0 bytes and has more.
    ds "$@" --attach template=/proc/self/mem -o "$dir/c.h5"
    expect 2
    has "$dir/err" "--attach: cannot read '/proc/self/mem': "
    ds "$@" --attach template=/proc/version -o "$dir/d.h5"
    ds show "$dir/d.h5" --environment
    has "$dir/out" ", $(wc -c </proc/version) bytes"
}

# The C library fills what it hands out with a byte that two runs choose apart: a byte of their records that is the one's fill in all of
# its runs, and the other's in its run, was written by nobody. (Times differ from run to run as they like.)
test_records_hold_only_what_was_written() {
    cd "$dir"
    for n in 1 2 3 4; do
        fill=85
        [ $n -lt 4 ] || fill=170
        # shellcheck disable=SC2086
        run env MALLOC_PERTURB_=$fill "$driftscope" run -m $small --tokens 5,6,7,8 -n 2 --batch 1,3 $few --threads 1,2 \
            --kernels pinned,reference --dump all --process 1,2 -o a.h5 --force
        expect 1
        mv a.h5 $n.h5
        # shellcheck disable=SC2086
        run env MALLOC_PERTURB_=$fill "$driftscope" storm -m $small --tokens 5,6,7,8 --requests 5 -n 3 -o s.h5 --force
        [ "$code" -le 1 ]
        mv s.h5 s$n.h5
    done
    # A flush that a slow machine puts between others may lay a file out in another way.
    for n in "" s; do
        [ "$(wc -c ${n}[1-4].h5 | sort -u -k1,1n | wc -l)" -eq 2 ] || skip "records of one command are of several sizes here"
    done
    python3 -c '
for name in "", "s":
    a, b, c, other = (open("%s%d.h5" % (name, n), "rb").read() for n in (1, 2, 3, 4))
    unwritten = [i for i in range(len(a)) if a[i] == b[i] == c[i] == 0xaa and other[i] == 0x55]
    assert not unwritten, (name, len(unwritten), unwritten[:8])'
}

run_tests
