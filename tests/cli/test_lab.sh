# test_lab.sh: what check, order and bench have in common: signals, where the result goes, what is asked for in vain.
. tests/cli/lib.sh

hang=-DFAULT_HANG_IN_PREPARE

# reached VERB: starts the verb on a kernel that hangs, in the background, and waits until it does.
reached() {
    FAULT_REACHED=$dir/reached
    export FAULT_REACHED
    rm -f "$dir/reached"
    background "$1" matmul/mine --plugin "$dir/hang.so" --shape n=16,k=16 -o "$dir/result"
    there "$dir/reached"
}

test_interrupted_verbs_end_with_130() {
    need gcc
    gcc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -fPIC -shared -Ikernels $hang -o "$dir/hang.so" tests/plugins/fault.c
    for verb in check order bench; do
        for signal in TERM HUP; do
            reached $verb
            kill -$signal $pid
            ended
            expect 130
            empty "$dir/out"
            has "$dir/err" "driftscope: interrupted"
            hasnt "$dir/err" "ended by signal"
            [ "$(grep -c interrupted "$dir/err")" -eq 1 ]
            set -- "$dir"/result*
            [ ! -e "$1" ]
        done
    done
}

test_where_the_result_goes_is_looked_at_first() {
    for verb in check order bench; do
        ds $verb matmul/pinned -o "$dir/no/folder"
        expect 2
        empty "$dir/out"
        has "$dir/err" "$dir/no/folder: cannot create: No such file or directory"
        ds $verb matmul/pinned -o "$dir"
        expect 2
        has "$dir/err" "$dir: is a folder"
    done
    ds order matmul/pinned --dot "$dir/no/folder"
    expect 2
    empty "$dir/out"
    has "$dir/err" "$dir/no/folder: cannot create: No such file or directory"
    ds order matmul/pinned --dot -
    expect 2
    has "$dir/err" "hint: --dot /dev/stdout -o FILE has the graph on stdout"
    [ ! -e ./- ]
    ds order matmul/pinned --dot "$dir/both" -o "$dir/both"
    expect 2
    has "$dir/err" "--dot and -o name the same file"
}

# A graph that does not fit leaves the old one as it was.
test_graph_appears_whole_or_not_at_all() {
    [ -w /dev/full ] || skip "no /dev/full here"
    ds order matmul/pinned --shape n=16,k=16 --dot /dev/full
    expect 2
    empty "$dir/out"
    has "$dir/err" "/dev/full: cannot write: No space left on device"
    echo old >"$dir/graph"
    chmod 640 "$dir/graph"
    ln -s graph "$dir/link"
    ds order matmul/pinned --shape n=16,k=16 --dot "$dir/link"
    expect 0
    [ -L "$dir/link" ]
    has "$dir/graph" digraph
    [ "$(stat -c %a "$dir/graph")" = 640 ]
}

test_words_are_escaped_once() {
    for verb in check order bench; do
        ds $verb "$(printf 'mat\033[31m')"
        expect 2
        has "$dir/err" "unknown op 'mat\\x1b[31m'"
        ds $verb matmul/pinned --shape "$(printf '\033=1')"
        expect 2
        has "$dir/err" "matmul has no size '\\x1b'"
    done
}

test_sizes_that_no_machine_has() {
    huge="--shape n=16777216,k=16777216"
    # shellcheck disable=SC2086
    ds check matmul/pinned $huge
    expect 2
    has "$dir/out" "not run       array w needs 1048576.00 GiB, but only "
    has "$dir/err" "nothing could be compared"
    # shellcheck disable=SC2086
    ds order matmul/pinned $huge
    expect 2
    has "$dir/err" "a sum of 16777216 terms is too long to be measured"
    # shellcheck disable=SC2086
    ds bench matmul/pinned $huge --rows 1
    expect 2
    has "$dir/err" "array w needs 1048576.00 GiB, but only "
    # shellcheck disable=SC2086
    ds bench matmul/pinned $huge
    expect 2
    empty "$dir/out"
    has "$dir/err" "array w needs 1048576.00 GiB, but only "
    ds check matmul/pinned --shape n=0
    expect 2
    has "$dir/err" "hint: for example n=192"
}

run_tests
